"""Rows as a server of MariaDB sends them, joined many at once: the same bytes as our encoder writes."""

from __future__ import annotations

import io
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from haulage.core.errors import BuildFailed
from haulage.core.reading import Column
from haulage.formats.csv import CsvEncoder
from haulage.sources.mariadb_rows import END, RowStream, WholeRows

TEXTS = st.one_of(
    st.none(),
    st.sampled_from(["", ",", '"', '""', "a,b", 'a"b', "\n", "\r", "a,\nb", "\\.", "\0", "é", "\x01,\x02"]),
    st.sampled_from([1, 31, 32, 34, 44, 250, 251, 252, 253, 256, 300, 508, 1020, 5000]).map(lambda size: "x" * size),
    st.text(max_size=4),
)
NUMBERS = st.one_of(st.none(), st.integers(-999, 10**18))


@st.composite
def tables(draw):
    """Which columns are texts, and rows."""
    texts = draw(st.lists(st.booleans(), min_size=2, max_size=5))
    row = st.tuples(*[TEXTS if is_text else NUMBERS for is_text in texts])
    return texts, draw(st.lists(row, min_size=1, max_size=8))


def field(cell):
    """One cell as the protocol has it."""
    if cell is None:
        return b"\xfb"
    text = cell if isinstance(cell, bytes) else str(cell).encode()
    return (bytes([len(text)]) if len(text) < 251 else b"\xfc" + len(text).to_bytes(2, "little")) + text


def packet(row, number=0):
    whole = b"".join(map(field, [*row, END]))
    return len(whole).to_bytes(3, "little") + bytes([number % 256]) + whole


def made(fields, packets, replaced=None):
    stream = RowStream(None, "", {}, fields, Counter() if replaced is None else replaced)
    return stream._chunk(packets), stream.rows


@pytest.mark.slow
@given(tables(), st.integers(0, 255))
@example(([True, False, True], [("a", 1, "b"), ("a,b", 2, "c"), ("a", 3, "b,c"), ("", 5, None), (",", None, "")]), 0)
@example(([True, True], [("", ""), ('"', '"'), (None, None), ("\n", "\r")]), 9)
@example(([False, True], [(1, "x" * (251 - 7)), (2, "y" * 300), (3, "z,")]), 252)
def test_many_rows_at_once_are_the_same_bytes_as_ours(table, first):
    texts, rows = table
    replaced = Counter()
    encoder = CsvEncoder([Column(f"c{at}", f"c{at}") for at in range(len(texts))], {"dialect": "exact"})
    expected = encoder.rows(rows)
    packets = b"".join(packet(row, first + number) for number, row in enumerate(rows))

    assert (expected, len(rows)) == made(len(texts), packets, replaced)
    assert dict(encoder.notices.items()) == replaced


@pytest.mark.parametrize("rows", [[(1,)], [(1, 2, 3)], [(1, 2), (1,)], [(1,), (1, 2, 3)]])
def test_a_row_with_other_fields_than_it_should_have_is_no_row(rows):
    with pytest.raises(BuildFailed) as failed:
        made(2, b"".join(map(packet, rows)))
    assert "source_failed" == failed.value.code


@pytest.mark.parametrize("code", [*range(0xF5, 0x100)])
def test_bytes_that_are_no_text_are_refused_and_not_taken_for_marks(code):
    with pytest.raises(BuildFailed):
        made(2, packet((1, b"a" + bytes([code]) + b"b")))


class Wire:
    """Bytes that come in pieces of a size, as from a network."""

    def __init__(self, data, size):
        self._data = io.BytesIO(data)
        self._size = size

    def read(self, size):
        return self._data.read(size)

    def read1(self, size):
        return self._data.read(min(size, self._size))


LAST = b"\5\0\0\0\xfe\0\0\2\0"


@pytest.mark.parametrize("piece", [1, *(pytest.param(each, marks=pytest.mark.slow) for each in (5, 64, 5_000)), 2**30])
@pytest.mark.parametrize("more", [False, True])
def test_rows_are_taken_whole_whatever_stands_in_the_heads_of_their_packets(piece, more):
    # Lengths and numbers that have the bytes with which a row ends.
    sizes = [0, 1, 0xFA, 0xFC, 0xFF, 0x1FD, 0x1FE, 0x2FF, 0xFEFF, 0xFDFF, 3, *range(0xF4, 0x100)] + [7] * 300
    rows = [(None if size % 5 == 0 else size, "x" * min(size, 59_000)) for size in sizes]
    sent = b"".join(packet(row, number) for number, row in enumerate(rows)) + LAST
    wire = Wire(sent, piece)
    # More is there as long as it is: the end is no piece to wait behind.
    packets = WholeRows(wire, lambda: more and wire._data.tell() < len(sent))
    chunks = []
    while not packets.ended:
        chunks += [made(2, whole)[0] for whole in packets.lines()]
    expected = CsvEncoder([Column("a", "a"), Column("b", "b")], {"dialect": "exact"}).rows(rows)

    assert packets.error is None
    assert expected == b"".join(chunks)


@pytest.mark.parametrize("rest", [b"", b"\5\0", b"\5\0\0\0", b"\5\0\0\0\1x", b"\5\0\0\0\xfe", b"\5\0\0\0\xff"])
def test_a_connection_that_breaks_within_a_row_is_no_end(rest):
    packets = WholeRows(Wire(packet((1, "a")) + rest, 2**17), lambda: False)
    with pytest.raises(BuildFailed) as failed:
        packets.drain()
    assert "source_unavailable" == failed.value.code

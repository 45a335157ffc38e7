"""Lines as a server of MariaDB sends them, made into CSV many at once: the same bytes as our encoder writes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from haulage.core.errors import BuildFailed
from haulage.core.reading import Column
from haulage.formats.csv import CsvEncoder
from haulage.sources.mariadb_lines import BETWEEN, NOTHING, LineStream

TEXTS = st.one_of(
    st.none(), st.sampled_from(["", ",", '"', "a,b", 'a"b', "\n", "\r", "a,\nb", "\\.", "\0", "é", "ab", "x" * 300])
)
NUMBERS = st.one_of(st.none(), st.integers(-999, 999))
PLAIN_TEXTS = st.sampled_from([None, "", "a,b", ",", "ab", "a,,b,"])


@st.composite
def tables(draw):
    """Which columns are texts, and rows; in some nothing but commas needs quotes."""
    texts = draw(st.lists(st.booleans(), min_size=1, max_size=4))
    kinds = draw(st.sampled_from([TEXTS, PLAIN_TEXTS]))
    row = st.tuples(*[kinds if is_text else NUMBERS for is_text in texts])
    return texts, draw(st.lists(row, min_size=1, max_size=8))


def line(texts, row):
    """One row as the SQL of ``mariadb_lines`` makes it."""
    nothing = {True: NOTHING, False: b""}
    pairs = zip(row, texts, strict=True)
    return BETWEEN.join(nothing[is_text] if cell is None else str(cell).encode() for cell, is_text in pairs)


@given(tables())
@example(([True, False, True], [("a", 1, "b"), ("a,b", 2, "c"), ("a", 3, "b,c"), ("d", 5, None), (",", 4, "a,b")]))
@example(([False, True], [(1, "a"), (2, "b\nc"), (3, "d")]))
@example(([False, True], [(1, "a"), (2, "b\rc"), (3, "d")]))
def test_many_lines_at_once_are_the_same_bytes_as_ours(table):
    texts, rows = table
    replaced = Counter()
    encoder = CsvEncoder([Column(f"c{at}", f"c{at}") for at in range(len(texts))], {"dialect": "exact"})
    expected = encoder.rows(rows)

    assert expected == LineStream(None, "", {}, texts, replaced)._chunk([line(texts, row) for row in rows])
    assert dict(encoder.notices.items()) == replaced


def test_a_line_without_one_of_its_fields_is_no_line():
    lines = [b"1" + BETWEEN + b"2", b"1"]
    with pytest.raises(BuildFailed):
        LineStream(None, "", {}, [False, False], Counter())._chunk(lines)

"""The messages of a COPY, however they are cut on the way: every row, and nothing that is for the driver."""

from __future__ import annotations

import contextlib
import random
import select
import socket
import time

import pytest
from tests.servers.framing import message

from haulage.core.errors import BuildFailed
from haulage.sources import postgresql_wire
from haulage.sources.postgresql_wire import Wire

BEGIN = message(b"1") + message(b"2") + message(b"n") + message(b"H", b"\0\0\2\0\0\0\0")
END = message(b"c") + message(b"C", b"COPY 3\0") + message(b"Z", b"T")
FAILED = message(b"E", b"SERROR\0C22012\0\0") + message(b"Z", b"E")
NOTICE = message(b"N", b"SNOTICE\0Mbusy\0\0") + message(b"S", b"TimeZone\0UTC\0") + message(b"A", b"\0\0\0\1a\0b\0")


def rows_of(*rows):
    return b"".join(message(b"d", row) for row in rows)


@pytest.fixture(params=["tcp", "unix"])
def ends(request):
    """Two ends of a connection, the server's and the driver's."""
    if request.param == "unix":
        server, client = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = socket.create_connection(listener.getsockname())
            client, _ = listener.accept()
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with server, client:
        client.setblocking(False)
        yield server, client


def arrives(client):
    """Wait until something is there."""
    assert select.select([client], [], [], 20)[0]


def waiting(client):
    """What the driver would read."""
    found = b""
    with contextlib.suppress(BlockingIOError):
        while came := client.recv(65_536):
            found += came
    return found


def taken(wire, client, size):
    """What a wire takes while something is there, and up to so many bytes, or what is for the driver."""
    count, text, until = 0, b"", time.monotonic() + 20
    while len(text) < size and not wire.ended:
        held, piece = wire.take()
        assert bool(held) == bool(piece)
        count, text = count + held, text + piece
        assert time.monotonic() < until
    return count, text


@pytest.mark.parametrize("piece", [40, 64, 128 * 1024])
@pytest.mark.parametrize("end", [END, FAILED])
def test_wherever_what_is_sent_is_cut(ends, monkeypatch, piece, end):
    monkeypatch.setattr(postgresql_wire, "PIECE_BYTES", piece)
    server, client = ends
    rows = [
        b"1,a\n",
        b'2,"b\nd\0\0\0\n"\n',
        b"\n",
        b"no end",
        b"three\nin\none\n",
        b"x" * 60 + b"\n",
        b"7,g\n",
        b"8,h\n",
    ]
    data = BEGIN + rows_of(*rows[:3]) + NOTICE + rows_of(*rows[3:]) + end
    for cut in range(1, len(data)):
        wire = Wire(client.fileno())
        server.sendall(data[:cut])
        arrives(client)
        found = [wire.take()]
        server.sendall(data[cut:])
        found.append(taken(wire, client, 10**9))
        wire.close()

        assert (len(rows), b"".join(rows)) == (sum(count for count, _ in found), b"".join(text for _, text in found))
        assert wire.begun
        assert end == _all(client, len(end))


def _all(client, size):
    data = b""
    while len(data) < size:
        arrives(client)
        data += client.recv(size - len(data))
    assert b"" == waiting(client)
    return data


def test_rows_of_any_size_in_any_order(ends, monkeypatch):
    monkeypatch.setattr(postgresql_wire, "PIECE_BYTES", 4_096)
    server, client = ends
    chance = random.Random(7)
    sizes = [chance.choice((1, 9, 10, 11, 100, 250, 251, 252, 2_555, 4_090, 4_091, 4_092, 9_000)) for _ in range(900)]
    rows = [bytes(chance.choices(b'ab,"d\n' if chance.random() < 0.02 else b"abcd,", k=size)) + b"\n" for size in sizes]
    between = [NOTICE if chance.random() < 0.01 else b"" for _ in rows]
    data = BEGIN + b"".join(rows_of(row) + aside for row, aside in zip(rows, between, strict=True)) + END
    wire, at, count, text = Wire(client.fileno()), 0, 0, b""
    while not wire.ended:
        if at < len(data):
            size = chance.choice((1, 4, 100, 5_000))
            server.sendall(data[at : at + size])
            at += size
        held, piece = wire.take()
        count, text = count + held, text + piece
        assert len(piece) <= 9_001
    wire.close()

    assert (len(rows), b"".join(rows)) == (count, text)
    assert END == _all(client, len(END) - len(data[at:])) + data[at:]


def test_part_of_a_row_stays_in_the_socket_until_nothing_is_before_it(ends):
    """So it is not copied together with what comes; alone it is taken, or who waits for more would be woken by it."""
    server, client = ends
    wire, row = Wire(client.fileno()), message(b"d", b"the second\n")
    server.sendall(BEGIN)
    arrives(client)
    wire.take()
    server.sendall(rows_of(b"the first\n") + row[:9])
    arrives(client)

    assert (1, b"the first\n") == wire.take()
    assert row[:9] == client.recv(100, socket.MSG_PEEK)
    assert (0, b"") == wire.take()
    assert b"" == waiting(client)

    server.sendall(row[9:] + END)
    assert (1, b"the second\n") == taken(wire, client, 10**9)
    wire.close()
    assert END == _all(client, len(END))


@pytest.mark.parametrize(
    "size", [655_354, 680_955, 680_956, 680_957, 5_000_000, 20_000_000]
)  # 680,960 has "\nd\0" in it
def test_a_large_row_between_small_ones(ends, size):
    server, client = ends
    rows = [b"before\n"] * 3 + [b"y" * (size - 1) + b"\n"] + [b"after\n"] * 3
    data = BEGIN + rows_of(*rows) + END
    server.settimeout(0)
    wire, at, found = Wire(client.fileno()), 0, []
    while not wire.ended:
        if at < len(data):
            at += _sent(server, data[at : at + 300_000])
        found.append(wire.take())
    wire.close()

    assert b"".join(rows) == b"".join(piece for _, piece in found)
    assert 7 == sum(held for held, _ in found)
    assert (1, size) in [(held, len(piece)) for held, piece in found]


def _sent(server, data):
    try:
        return server.send(data)
    except BlockingIOError:
        return 0


def test_plain_rows_are_cut_by_their_lines_and_others_soon_again(ends, monkeypatch):
    """The one way in a third of the time of the other; both are exact."""
    walked = []
    walk = Wire._walk
    monkeypatch.setattr(Wire, "_walk", lambda self, data, at, rows: walked.append(at) or walk(self, data, at, rows))
    server, client = ends
    wire = Wire(client.fileno())
    server.sendall(BEGIN)
    arrives(client)
    wire.take()
    for row, by_line in (
        (b"simple\n", True),
        (b"two\nlines\n", False),
        *[(b"simple\n", False)] * 16,
        (b"simple\n", True),
    ):
        server.sendall(rows_of(row))
        arrives(client)

        assert (1, row) == wire.take()
        assert (len(row) + 5 if by_line else 0) == walked[-1]
    wire.close()


@pytest.mark.parametrize(
    "begins",
    [b"\x17\3\3\0\x20", b"\0\0\1\0abc", message(b"E", b"SERROR\0C42601\0\0"), NOTICE + BEGIN, b"rest\0" + BEGIN],
    ids=["TLS", "GSS", "an error", "a notice", "the end of another message"],
)
def test_of_what_begins_otherwise_nothing_is_taken(ends, begins):
    server, client = ends
    wire = Wire(client.fileno())
    server.sendall(begins)
    arrives(client)

    assert (0, b"") == wire.take()
    assert (True, False) == (wire.ended, wire.begun)
    wire.close()
    assert begins == waiting(client)


def test_an_answer_that_is_none_of_a_copy_is_for_the_driver(ends):
    server, client = ends
    wire = Wire(client.fileno())
    server.sendall(message(b"1") + message(b"2") + message(b"T", b"\0\0") + message(b"C", b"SELECT 0\0"))
    arrives(client)

    assert (0, b"") == wire.take()
    assert (True, False) == (wire.ended, wire.begun)
    wire.close()
    assert waiting(client).startswith(b"T")


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (BEGIN + rows_of(b"a\n") + message(b"K", b"abcdefgh") + rows_of(b"b\n"), "'K' among the rows"),
        (BEGIN + rows_of(b"a\n") + b"d\0\0\0\3", "a message of 3 bytes"),
        (BEGIN[:15] + rows_of(b"a\n"), "rows before it began"),
        (BEGIN[:15] + message(b"H", b"\1\0\1\0\1"), "no text"),
        (BEGIN + message(b"S", b"client_encoding\0SJIS\0"), "client_encoding"),
    ],
)
def test_what_a_server_may_not_send_is_refused(ends, sent, said):
    """A message that is left to the driver would make it pass over the rows behind it."""
    server, client = ends
    wire = Wire(client.fileno())
    server.sendall(sent)
    arrives(client)
    with pytest.raises(BuildFailed) as failed:
        taken(wire, client, 10**9)
    wire.close()

    assert said in failed.value.cause


@pytest.mark.parametrize("data", [BEGIN, BEGIN + rows_of(b"a\n") + b"d\0\0\0\x20half"])
def test_a_connection_that_is_lost_has_ended(ends, data):
    server, client = ends
    wire = Wire(client.fileno())
    server.sendall(data)
    server.close()

    assert (data.count(b"\n"), b"a\n" * data.count(b"\n")) == taken(wire, client, 10**9)
    assert wire.begun
    wire.close()

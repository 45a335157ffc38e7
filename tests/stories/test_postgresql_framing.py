"""A COPY whose messages come otherwise than a server sends them is the same, from the socket and by the driver."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl

import pytest
import trustme
from tests.servers.framing import Framing, message
from tests.stories.building import PostgresqlYard, query
from tests.stories.terminal import until

from haulage.core.errors import BuildFailed
from haulage.core.reading import Reading
from haulage.sources import open_source, postgresql_copy
from haulage.sources.postgresql_wire import Wire

pytestmark = pytest.mark.slow
ROWS = 6_000
# Rows of one line and of several, of nothing, of a size whose bytes look like the beginning of another row, and long.
MIXED = f"""select i, case when i % 50 = 0 then E'a\\nb\\nd' when i % 7 = 0 then null when i = 3000
    then repeat('x', 680948)
    when i = 4000 then repeat(E'line\\n', 400000) else 'text ' || i end as t from generate_series(1, {ROWS}) as i"""
NOTICE = message(b"N", b"SNOTICE\0VNOTICE\0C00000\0Mbusy\0\0") + message(b"S", b"TimeZone\0UTC\0")
ASIDE = NOTICE + message(b"A", b"\0\0\0\1channel\0payload\0")


@pytest.fixture(scope="module")
def yard(tmp_path_factory):
    made = PostgresqlYard(tmp_path_factory.mktemp("framing"))
    yield made
    made.close()


@pytest.fixture(params=["from the socket", "by the driver"])
def way(request, monkeypatch):
    """How rows are read; says for how many statements it was so from the socket."""
    monkeypatch.setattr(postgresql_copy, "READS_SOCKETS", request.param == "from the socket")
    return request.param


@pytest.fixture
def begun(monkeypatch):
    """COPYs that were read from the socket."""
    wires = []
    take = Wire.take

    def seen(self):
        found = take(self)
        if self.begun and self not in wires:
            wires.append(self)
        return found

    monkeypatch.setattr(Wire, "take", seen)
    return wires


@contextlib.contextmanager
def at(yard, proxy):
    """Builds reach their source through it."""
    url, yard.url = yard.url, proxy.url(yard._database)
    try:
        yield
    finally:
        yard.url = url


def through(yard, changed=message, **how):
    return Framing(yard._server.port, changed, **how)


class Rows:
    """Changes what comes of a COPY, row by row."""

    def __init__(self, change):
        self._change = change
        self._number = 0
        self._held = b""

    def __call__(self, kind, content):
        if kind != b"d":
            held, self._held, self._number = self._held, b"", 0
            return held + message(kind, content)
        self._number += 1
        return getattr(self, self._change)(content)

    def between(self, row):
        return (ASIDE if self._number % 100 == 1 else b"") + message(b"d", row)

    def cut(self, row):
        if self._number % 10:
            return message(b"d", row)
        half = len(row) // 2
        return message(b"d", row[:half]) + message(b"d", row[half:])

    def joined(self, row):
        if self._number % 10 == 0:
            held, self._held = self._held, b""
            return message(b"d", held + row)
        self._held += row
        return b""


@pytest.mark.parametrize("change", ["as they are", "between"])
@pytest.mark.parametrize("at_once", [2**20, 5])
def test_the_file_is_the_same_however_its_messages_come(yard, way, begun, change, at_once):
    sql = MIXED if at_once > 5 else MIXED.replace("400000", "1000").replace("680948", "2048")
    built, expected = yard.build(query(sql))
    begun.clear()
    changed = message if change == "as they are" else Rows(change)
    with through(yard, changed, at_once=at_once) as proxy, at(yard, proxy):
        found, content = yard.build(query(sql))

    assert expected == content
    assert (built.rows, built.sha256) == (found.rows, found.sha256)
    assert (1 if way == "from the socket" else 0) == len(begun)


@pytest.mark.parametrize("format", ["ndjson", "parquet", "xlsx"])
def test_rows_that_are_read_on_are_whole_and_counted(yard, way, format):
    sql = "select i, 'text ' || i as t, i / 4.0::numeric(9, 2) as n from generate_series(1, 6000) as i"
    direct, _ = yard.build(query(sql), format=format)
    with through(yard, Rows("between"), at_once=1_000) as proxy, at(yard, proxy):
        found, content = yard.build(query(sql), format=format)

    assert (6_000, direct.bytes) == (found.rows, found.bytes) == (direct.rows, len(content))


def test_an_encrypted_connection_is_read_by_the_driver(yard, begun):
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    built, expected = yard.build(query(MIXED))
    assert 1 == len(begun)

    begun.clear()
    with through(yard, tls=context) as proxy, at(yard, proxy):
        found, content = yard.build(query(MIXED))

    assert expected == content
    assert built.rows == found.rows
    assert [] == begun


# -- ends ----------------------------------------------------------------------------------------------


def reading(sql):
    return Reading(sql, {}, {}, None, (), (), None, {})


def test_an_error_in_the_middle_is_told_and_the_snapshot_goes_on(yard, way):
    sql = "select 1 / (90000 - i) as x from generate_series(1, 100000) as i"
    with open_source(yard.url).snapshot() as snapshot:
        with pytest.raises(BuildFailed) as failed:
            sum(map(len, snapshot.batches(reading(sql))))

        assert ("source_failed", "22012: division by zero") == (failed.value.code, failed.value.cause)
        assert 1 == snapshot.count(reading("select 1 as one"), 5)


@pytest.mark.parametrize(
    "sql",
    ["select pg_sleep(20) as x", "select i from generate_series(1, 10000) as i, generate_series(1, 10000)", MIXED],
)
def test_a_reader_that_goes_away_leaves_a_connection_that_can_be_used(yard, way, sql):
    with open_source(yard.url).snapshot() as snapshot:
        with contextlib.closing(snapshot._session.copying(f"copy ({sql}) to stdout")) as copying:
            copying.take(wait="sleep" not in sql)

        assert 1 == snapshot.count(reading("select 1 as one"), 5)
        assert [[(1,)]] == list(snapshot.batches(reading("select 1 as one")))


def test_the_last_rows_come_with_the_count(yard, way):
    """Who reads several connections lets one go on at once, not after another wait."""
    with (
        open_source(yard.url).snapshot() as snapshot,
        contextlib.closing(snapshot._session.copying("copy (values (1), (2)) to stdout")) as copying,
    ):
        until(lambda: copying._ready.poll(0) and _peeked(copying._link.socket).endswith(b"Z\0\0\0\5T"))
        assert (2, b"1\n2\n") == copying.take(wait=False)
        assert 2 == copying.count


def _peeked(descriptor):
    with contextlib.closing(socket.socket(fileno=os.dup(descriptor))) as peeked:
        return peeked.recv(1_000, socket.MSG_PEEK)


@pytest.mark.parametrize("lost", ["at a row", "in a row", "in a long row"])
def test_a_connection_that_is_lost_in_the_middle_is_a_failure(yard, way, lost):
    class Breaks(Rows):
        def lost(self, row):
            if self._number < 2_000:
                return message(b"d", row)
            if self._number == 2_000:
                sent = message(b"d", row if lost == "in a row" else row * 100_000)
                return b"" if lost == "at a row" else sent[:-5]
            raise ConnectionError

    with through(yard, Breaks("lost")) as proxy, open_source(proxy.url(yard._database)).snapshot() as snapshot:
        stream = snapshot.stream(reading(MIXED), "csv")
        with pytest.raises(BuildFailed) as failed:
            for _ in stream.chunks():
                pass

    assert "source_unavailable" == failed.value.code
    assert stream.rows < 2_000


def test_what_no_server_sends_is_a_failure_and_no_short_file(yard, way):
    def changed(kind, content):
        stray = message(b"K", b"abcdefgh") if content == b"4502,text 4502\n" else b""
        return stray + message(kind, content)

    with through(yard, changed) as proxy, open_source(proxy.url(yard._database)).snapshot() as snapshot:
        stream = snapshot.stream(reading(MIXED), "csv")
        with pytest.raises(BuildFailed):
            for _ in stream.chunks():
                pass

        assert stream.rows < ROWS


@pytest.mark.parametrize("change", ["cut", "joined"])
def test_messages_that_are_not_the_rows_that_were_counted_are_no_file(yard, way, change):
    with through(yard, Rows(change)) as proxy, open_source(proxy.url(yard._database)).snapshot() as snapshot:
        stream, found = snapshot.stream(reading(MIXED), "csv"), []
        with pytest.raises(BuildFailed) as failed:
            found.extend(stream.chunks())

        assert "08P01: the server counts 6,000 rows and " in failed.value.cause
        assert 1 == snapshot.count(reading("select 1 as one"), 5)

"""A database of MariaDB that is exported from: its values, its errors, and what it would do in silence."""

from __future__ import annotations

import contextlib
import io
import sys
import threading

import pytest
import trustme
from tests.ports import free_port
from tests.servers import mariadb
from tests.servers.starting import make_folder
from tests.stories.building import Yard, query

from haulage.core.catalogue import Column
from haulage.core.errors import BuildFailed
from haulage.core.reading import Reading
from haulage.sources import mariadb_lines, mariadb_session, open_source
from haulage.sources.mariadb import MariadbSnapshot
from haulage.sources.mariadb_lines import BETWEEN, LAST, LineStream, Packets, ShortLines
from haulage.sources.mariadb_rows import RowStream
from haulage.sources.mariadb_session import _parts

pytestmark = pytest.mark.slow
PLAIN = Reading("select 1 as a", {}, {}, None, (), (), None, {})


class MariadbYard(Yard):
    """All in one database, since to make one takes longer than most of these tests."""

    def _make(self):
        self._server, self._database = mariadb.server(), "yard_of_builds"
        self._server.execute(None, f"create database if not exists {self._database} character set utf8mb4")
        self.url = self._server.url(self._database)

    def run(self, *statements):
        return self._server.execute(self._database, *statements)

    @contextlib.contextmanager
    def writer(self):
        yield None


@pytest.fixture
def yard(tmp_path):
    return MariadbYard(tmp_path)


VALUES = [  # type, literal, as CSV, as JSON, type and name of the column
    ("tinyint", "-128", "-128", "-128", ("integer", "tinyint")),
    ("bigint unsigned", "18446744073709551615", "18446744073709551615", "18446744073709551615", ("integer", "bigint")),
    ("decimal(30, 10)", "0.0000001", "0.0000001000", "0.0000001000", ("decimal", "decimal(30,10)")),
    ("decimal(5, 0)", "-42", "-42", "-42", ("decimal", "decimal(5,0)")),
    ("float", "0.1", "0.1", "0.1", ("float", "float")),
    ("float", "16777217", "16777216", "16777216.0", ("float", "float")),
    ("float", "123456.789", "123456.79", "123456.79", ("float", "float")),
    ("float", "1e-30", "1e-30", "1e-30", ("float", "float")),
    ("double", "0.1e0 + 0.2e0", "0.30000000000000004", "0.30000000000000004", ("float", "double")),
    ("double", "1e300", "1e300", "1e+300", ("float", "double")),
    ("boolean", "true", "1", "1", ("integer", "tinyint")),
    ("bit(10)", "b'1000000001'", "513", "513", ("integer", "bit")),
    ("text", "''", '""', '""', (None, None)),
    ("text", r"'a\\b\tc\nd'", '"a\\b\tc\nd"', r'"a\\b\tc\nd"', (None, None)),
    ("varchar(20)", "'é🚀 '", "é🚀 ", '"é🚀 "', (None, None)),
    ("char(5)", "'ab'", "ab", '"ab"', (None, None)),
    ("date", "'2024-03-07'", "2024-03-07", '"2024-03-07"', ("date", "date")),
    ("datetime(6)", "'2024-03-07 21:00:00.000001'", "2024-03-07 21:00:00.000001", '"2024-03-07 21:00:00.000001"',
     ("timestamp", "datetime")),
    ("timestamp", "'2024-03-07 21:00:00'", "2024-03-07 21:00:00+00", '"2024-03-07 21:00:00+00"',
     ("timestamp", "timestamp")),
    ("time", "'-838:59:59'", "-838:59:59", '"-838:59:59"', (None, "time")),
    ("year", "2024", "2024", "2024", ("integer", "year")),
    ("enum('a','b,c')", "'b,c'", '"b,c"', '"b,c"', (None, None)),
    ("blob", "x'00ff'", "AP8=", '"AP8="', ("bytes", None)),
    ("uuid", "'00112233-4455-6677-8899-aabbccddeeff'", "00112233-4455-6677-8899-aabbccddeeff",
     '"00112233-4455-6677-8899-aabbccddeeff"', (None, None)),
    ("integer", "null", "", "null", ("integer", "int")),
]  # fmt: skip


def test_every_value_is_in_the_file_with_all_of_its_digits(yard):
    kinds, literals, as_csv, as_json, columns = zip(*VALUES, strict=True)
    names = [f"v{number}" for number in range(len(VALUES))]
    made = ", ".join(f"{name} {kind} null" for name, kind in zip(names, kinds, strict=True))
    yard.run("set time_zone = '+00:00'", f"create or replace table t ({made})",
             f"insert into t values ({', '.join(literals)})")  # fmt: skip
    dataset = query("select * from t")
    with open_source(yard.url).snapshot() as snapshot:
        found = snapshot.columns(PLAIN._replace(sql=dataset.sql))

    assert list(columns) == [column[2:4] for column in found]
    assert f"{','.join(names)}\n{','.join(as_csv)}\n" == yard.build(dataset)[1].decode()
    expected = ",".join(f'"{name}":{text}' for name, text in zip(names, as_json, strict=True))
    assert f"{{{expected}}}\n" == yard.build(dataset, format="ndjson")[1].decode()


def test_bytes_are_counted_and_json_that_is_declared_is_json(yard):
    yard.run(
        "create or replace table t (i integer, b blob, j json)",
        """insert into t values (1, x'00', '{"a": 1e2}'), (2, '', null)""",
    )
    dataset = query("select i, b, j from t", key=("i",), columns={"j": Column("j", "j", "json")})
    built, content = yard.build(dataset, format="ndjson")

    assert '{"i":1,"b":"AA==","j":{"a": 1e2}}\n{"i":2,"b":"","j":null}\n' == content.decode()
    assert ({"code": "bytes_as_base64", "count": 2},) == built.notices


def test_a_recursion_is_not_cut_after_a_thousand_steps(yard):
    sql = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000) select i from n"
    assert 5_000 == yard.build(query(sql))[0].rows


def test_a_limit_of_the_server_for_everybody_cuts_no_file(yard):
    yard.run("set global sql_select_limit = 10")
    try:
        assert 500 == yard.build(query("select seq as i from seq_1_to_500"))[0].rows
    finally:
        yard.run("set global sql_select_limit = default")


MANGLED = ["hush/4711", "a@hush4711/b", "a@hush4711/hu@sh", "4711/a", "a@b?hush/4711", "a/b?hush=4711"]


@pytest.mark.parametrize("password", ["hush-4711", "hush 4711", "hush%404711", "hu@sh4711", "hush:4711", *MANGLED])
@pytest.mark.parametrize("place", ["127.0.0.1:{port}/shop", "127.0.0.1:no/shop", "127.0.0.1:{port}/shop?nothing=1"])
def test_no_error_tells_the_password(password, place):
    with (
        pytest.raises(BuildFailed) as failed,
        open_source(f"mariadb://amina:{password}@" + place.format(port=free_port())).snapshot(),
    ):
        pass
    assert "source_unavailable" == failed.value.code
    assert "4711" not in f"{failed.value} {failed.value.cause} {failed.value.__cause__}"


def test_who_may_not_enter_is_told_why():
    server = mariadb.server()
    with (
        pytest.raises(BuildFailed) as failed,
        open_source(f"mariadb://nobody:hush@127.0.0.1:{server.port}/x").snapshot(),
    ):
        pass
    assert "source_unavailable" == failed.value.code
    assert "Access denied" in failed.value.cause
    assert "hush" not in failed.value.cause


def test_a_driver_that_is_missing_is_told_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(BuildFailed) as failed, open_source("mariadb://db/shop").snapshot():
        pass
    assert "pymysql not found; install the mariadb extra: pip install 'haulage[mariadb]'" == failed.value.cause


def test_a_table_that_somebody_locks_is_waited_for_and_then_told(yard):
    yard.run("create or replace table t (i integer)")
    with contextlib.closing(yard._server.connect(yard._database)) as other, other.cursor() as cursor:
        cursor.execute("lock tables t write")
        with pytest.raises(BuildFailed) as failed:
            yard.build(query("select i from t"), busy_seconds=0.1)
    assert "source_locked" == failed.value.code


def test_a_function_that_writes_is_refused(yard):
    yard.run("create or replace table t (i integer) engine = innodb")
    body = "begin insert into t values (1); return 1; end"
    yard.run(f"create or replace function writes() returns integer modifies sql data {body}")
    with pytest.raises(BuildFailed) as failed:
        yard.build(query("select writes() as a"))
    assert "1792" in failed.value.cause
    assert () == tuple(yard.run("select i from t"))


# -- lines that the server builds ----------------------------------------------------------------------

TEXTS = ("''", "' '", "'  '", "'a,b'", "'say \"hi\"'", "'a\\nb'", "'a\\rb'", "'a\\r\\nb'", "'\\\\.'", "'\\\\. '", "'.'",
         "'NULL'", "'=1+1'", "'é🚀'", "'\uff0c'", "'\uff02'", "'a\\0b'", "repeat('x,', 1000)", "'\\\\'",
         "null")  # fmt: skip
NUMBERS = ("1e15", "1e-7", "1e300", "-0.0", "1e16", "123456789012345678", "0.1e0 + 0.2e0", "null", "0.00001", "5e-324")


@pytest.fixture(params=["by the server", "many at once"])
def joined(request, monkeypatch):
    """Who joins the fields of short rows, whatever their number."""
    monkeypatch.setattr(mariadb_lines, "ROWS_FROM", 10**9 if request.param == "by the server" else 0)
    return LineStream if request.param == "by the server" else RowStream


def by_our_encoder(monkeypatch):
    monkeypatch.setattr(MariadbSnapshot, "stream", lambda *_: None)


def built_twice(yard, monkeypatch, dataset, **asked):
    """By the server, which must be able to, and by us."""
    streams = []
    stream = MariadbSnapshot.stream
    with monkeypatch.context() as patched:
        patched.setattr(MariadbSnapshot, "stream", lambda *args: streams.append(stream(*args)) or streams[-1])
        made = yard.build(dataset, **asked)
    with monkeypatch.context() as patched:
        by_our_encoder(patched)
        ours = yard.build(dataset, **asked)
    (stream,) = streams
    return made, ours, type(stream)


@pytest.mark.parametrize(
    "kind",
    ["varchar(4000)", "varchar(4000) collate utf8mb4_unicode_ci", "varchar(4000) character set utf16", "text"],
)
@pytest.mark.parametrize("columns", [["v"], ["i", "v", "n"]])
def test_the_server_and_our_encoder_write_the_same_bytes(yard, monkeypatch, joined, kind, columns):
    yard.run(f"create or replace table t (i integer, v {kind}, n double)")
    for number, text in enumerate(TEXTS):
        yard.run(f"insert into t values ({number}, {text}, {NUMBERS[number % len(NUMBERS)]})")
    (made, content), (ours, same), by = built_twice(
        yard, monkeypatch, query("select i, v, n from t", key=("i",)), columns=columns
    )

    assert content == same
    assert by is (LineStream if kind == "text" or columns == ["v"] else joined)
    assert made._replace(snapshot_at=None) == ours._replace(snapshot_at=None)
    assert ({"code": "text_replaced", "count": 1},) == made.notices


def test_every_other_type_is_the_same_too(yard, monkeypatch, joined):
    left = ("float", "bit", "blob", "text")  # made here; and one that may be too long to be joined here
    columns = [(kind, literal) for kind, literal, *_ in VALUES if not kind.startswith(left)]
    made = ", ".join(f"v{number} {kind} null" for number, (kind, _) in enumerate(columns))
    yard.run("set time_zone = '+00:00'", f"create or replace table t ({made})",
             f"insert into t values ({', '.join(literal for _, literal in columns)})",
             f"insert into t values ({', '.join('null' for _ in columns)})")  # fmt: skip
    (_, content), (_, same), by = built_twice(yard, monkeypatch, query("select * from t order by v0"))

    assert content == same
    assert by is joined


@pytest.mark.parametrize("kind", ["float", "bit(3)", "blob", "varbinary(3)", "mediumtext", "json"])
def test_where_the_server_would_write_otherwise_it_is_not_asked(yard, kind):
    yard.run(f"create or replace table t (v {kind})")
    with open_source(yard.url).snapshot() as snapshot:
        assert None is snapshot.stream(PLAIN._replace(sql="select v from t"), "csv")
        assert None is snapshot.stream(PLAIN, "another")
        assert None is not snapshot.stream(PLAIN, "csv")


def test_a_line_that_is_too_long_for_the_server_is_made_here(yard):
    yard.run("create or replace table t (i integer, v varchar(4000))")
    yard.run("insert into t values (1, 'x'), (2, repeat('x', 3000)), (3, 'x')", "set global max_allowed_packet = 8192")
    try:
        dataset = query("select i, v, v as w, v as u, v as s from t", key=("i",))
        with open_source(yard.url).snapshot() as snapshot:
            assert None is snapshot.stream(PLAIN._replace(sql=dataset.sql), "csv")
        content = yard.build(dataset)[1]
    finally:
        yard.run("set global max_allowed_packet = default")
    assert b"2" + (b"," + b"x" * 3000) * 4 in content.splitlines()


def test_rows_come_whole_over_an_encrypted_connection_too(joined):
    place, certificate = make_folder("certificate"), trustme.CA().issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(place / "certificate.pem")
    certificate.private_key_pem.write_to_path(place / "key.pem")
    for file in place.iterdir():
        file.chmod(0o644)  # the server has another user
    server = mariadb.MariaDB(f"--ssl-cert={place}/certificate.pem", f"--ssl-key={place}/key.pem")
    asked = PLAIN._replace(sql="select seq as i, concat('a,', seq) as t from seq_1_to_100000")
    with open_source(server.url("mysql")).snapshot() as snapshot:
        ((_, cipher),) = snapshot._session.run("show status like 'Ssl_cipher'")
        stream = snapshot.stream(asked, "csv")
        content = b"".join(stream.chunks())

    assert (True, joined) == (bool(cipher), type(stream))
    assert b"".join(b'%d,"a,%d"\n' % (i, i) for i in range(1, 100_001)) == content


def stream_of(yard, count):
    asked = PLAIN._replace(sql="select seq as i, 'x' as x from seq_1_to_10")
    with open_source(yard.url).snapshot() as snapshot:
        if count:
            assert 10 == snapshot.count(asked, 10)
        return type(snapshot.stream(asked, "csv"))


def test_only_for_many_rows_is_numpy_loaded(yard, monkeypatch):
    monkeypatch.setattr(mariadb_lines, "ROWS_FROM", 10)
    assert [LineStream, RowStream] == [stream_of(yard, count) for count in (False, True)]
    monkeypatch.setattr(mariadb_lines, "ROWS_FROM", 11)
    assert stream_of(yard, count=True) is LineStream


def test_without_numpy_or_memory_for_it_the_server_joins(yard, monkeypatch):
    monkeypatch.setattr(mariadb_lines, "ROWS_FROM", 10)
    with monkeypatch.context() as patched:
        patched.setattr(mariadb_lines, "allowed_memory", lambda: mariadb_lines.LEAST_MEMORY - 1)
        assert stream_of(yard, count=True) is LineStream
    monkeypatch.delitem(sys.modules, "haulage.sources.mariadb_rows", raising=False)
    monkeypatch.delattr("haulage.sources.mariadb_rows", raising=False)
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert stream_of(yard, count=True) is LineStream


@pytest.mark.parametrize("given_up", [None, lambda: False], ids=["of a build", "at a door"])
def test_numpy_is_loaded_while_many_rows_are_counted(yard, monkeypatch, given_up):
    loaded = threading.Event()
    monkeypatch.setattr(mariadb_lines, "MANY_SECONDS", 0)
    monkeypatch.setattr(mariadb_lines, "_rows_loaded", loaded.set)
    asked = PLAIN._replace(sql="select seq from seq_1_to_10 where sleep(0.05) = 0")
    with open_source(yard.url).snapshot() as snapshot:
        assert 10 == snapshot.count(asked, 10, given_up=given_up)

    assert loaded.is_set() == (given_up is None)


def test_to_see_its_columns_runs_and_ends_no_statement(yard, monkeypatch):
    ended = []
    monkeypatch.setattr(mariadb_session.Session, "kill", lambda _session: ended.append("a statement"))
    with open_source(yard.url).snapshot() as snapshot:
        for sql, keys in (
            ("select seq, sleep(3600) as s from seq_1_to_10", ["seq", "s"]),
            ("select seq, seq from seq_1_to_10 limit 9", ["seq", "seq_2"]),  # two of one name have no place in a wrap
            ("select seq, '?' as mark from seq_1_to_10", ["seq", "mark"]),
        ):
            assert keys == [each.key for each in snapshot.columns(PLAIN._replace(sql=sql))]
        assert [] == ended


def test_a_mark_for_a_value_is_refused_and_nothing_is_out_of_step(yard):
    with open_source(yard.url).snapshot() as snapshot:
        with pytest.raises(BuildFailed) as failed:
            list(snapshot.batches(PLAIN._replace(sql="select seq, ? as a, ? as b from seq_1_to_10 where seq > ?")))
        assert "source_failed" == failed.value.code
        assert 3 == snapshot.count(PLAIN._replace(sql="select seq from seq_1_to_3"), 10)


MOST = 2**24 - 1  # bytes of one packet


def packet(text, length=b""):
    return len(length + text).to_bytes(3, "little") + b"\0" + length + text


def row(size):
    """A text of so many bytes, in as many packets as it needs."""
    for least, mark, width in ((2**24, b"\xfe", 8), (2**16, b"\xfd", 3), (251, b"\xfc", 2), (0, b"", 1)):
        if size >= least:
            whole = mark + size.to_bytes(width, "little") + b"x" * size
            break
    pieces = [whole[at : at + MOST] for at in range(0, len(whole) + 1, MOST)]
    return b"".join(map(packet, pieces))


END = packet(b"\xfe\0\0\2\0")


class Wire:
    """Bytes that come in pieces of a size, as from a network."""

    def __init__(self, data, size):
        self._data = io.BytesIO(data)
        self._size = size

    def read(self, size):
        return self._data.read(size)

    def read1(self, size):
        return self._data.read(min(size, self._size))


def read(packets):
    lines = []
    while not packets.ended:
        lines += packets.lines()
    assert packets.error is None
    return lines


@pytest.mark.parametrize("piece", [1, 5, 256, 2**30])
def test_rows_of_every_length_are_read_in_pieces_of_any(piece):
    sizes = [0, 1, 250, 251, 65_535, 65_536, 3]
    assert sizes == list(map(len, read(Packets(Wire(b"".join(map(row, sizes)) + END, piece)))))


def test_a_row_may_be_longer_than_a_packet_of_the_protocol():
    sizes = [5, MOST - 5, MOST - 4, MOST + 7, 2 * MOST, 9]  # with its length in front: the third fills a packet
    assert sizes == list(map(len, read(Packets(Wire(b"".join(map(row, sizes)) + END, 2**17)))))


@pytest.mark.parametrize("piece", [64, 5_000, 2**30])
def test_short_lines_are_split_where_they_end_whatever_stands_in_the_heads_of_their_packets(piece):
    # Lengths and numbers that have the bytes in which a line ends.
    sizes = [0, 1, 0xFA, 0xFC, 0xFF, 0x1FD, 0x1FE, 0xFEFF, 0xFDFF, 3, *range(0xF4, 0x100)] + [7] * 300
    texts = [b"x" * min(max(size - 6, 0), 59_990) for size in sizes]
    sent = []
    for number, text in enumerate(texts):
        line = text + BETWEEN + LAST
        length = bytes([len(line)]) if len(line) < 251 else b"\xfc" + len(line).to_bytes(2, "little")
        sent.append(len(length + line).to_bytes(3, "little") + bytes([number % 256]) + length + line)
    assert texts == read(ShortLines(Wire(b"".join(sent) + END, piece)))


@pytest.mark.parametrize("kind", [Packets, ShortLines])
@pytest.mark.parametrize("rest", [b"", b"\5\0", b"\5\0\0", b"\5\0\0\0", b"\5\0\0\0\4x", b"\5\0\0\0\xfe"])
def test_a_connection_that_breaks_within_a_packet_is_no_end(kind, rest):
    with pytest.raises(BuildFailed) as failed:
        read(kind(Wire(row(5) + rest, 2**17)))
    assert "source_unavailable" == failed.value.code


def test_lines_that_are_left_in_the_middle_leave_the_snapshot_usable(yard, joined):
    asked = PLAIN._replace(sql="select seq as i, repeat('x', 100) as x from seq_1_to_100000000000")
    with open_source(yard.url).snapshot() as snapshot:
        with contextlib.closing(snapshot.stream(asked, "csv").chunks()) as chunks:
            assert next(chunks).startswith(b"1,xxx")
        assert 1 == snapshot.count(PLAIN, 10)


def test_an_error_in_the_middle_of_the_lines_is_an_error(yard, joined):
    sql = "select seq as i, exp(case when seq = 4000 then 100000 else 1 end) as e from seq_1_to_5000"
    with pytest.raises(BuildFailed) as failed:
        yard.build(query(sql))
    assert "source_failed" == failed.value.code
    assert "1690" in failed.value.cause


@pytest.mark.parametrize(("url", "parts"), [
    ("mariadb://db.example/shop", {"host": "db.example", "port": 3306, "user": None, "password": "",
                                   "database": "shop"}),
    ("mysql://amina:h%40s%2Fh@db.example:3307/shop?ssl_ca=/ca.pem&ssl_verify_cert=true",
     {"host": "db.example", "port": 3307, "user": "amina", "password": "h@s/h", "database": "shop",
      "ssl_ca": "/ca.pem", "ssl_verify_cert": True}),
    ("mariadb://amina@[::1]:3306/shop", {"host": "::1", "port": 3306, "user": "amina", "password": "",
                                         "database": "shop"}),
    ("mariadb://[::1]/shop", {"host": "::1", "port": 3306, "user": None, "password": "", "database": "shop"}),
    ("mariadb:///shop?unix_socket=/run/s", {"host": "localhost", "port": 3306, "user": None, "password": "",
                                            "database": "shop", "unix_socket": "/run/s"}),
])  # fmt: skip
def test_a_url_says_where_and_who(url, parts):
    assert parts == _parts(url)

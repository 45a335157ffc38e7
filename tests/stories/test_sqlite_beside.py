"""Two ways from SQLite to one file of CSV: by processes that read beside the build, and as values. The same bytes."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.process.house import until
from tests.stories.building import PLENTY, Yard, query

from haulage.artifacts.part import PartFile
from haulage.core.catalogue import Column, Parameter
from haulage.core.errors import BuildFailed
from haulage.core.reading import IF_FIT, Reading
from haulage.exports.build import BuildOrder, build
from haulage.formats.csv import CsvEncoder
from haulage.formats.format import Unfit
from haulage.sources import open_source, sqlite_beside, sqlite_outside, sqlite_plain
from haulage.sources.sqlite import SqliteSnapshot
from haulage.sources.sqlite_beside import BesideStream, Reader
from haulage.sources.sqlite_plain import Plan
from haulage.worker.process import Child

pytestmark = pytest.mark.slow
ROWS = 24
TEXTS = ["", "a", '"', "a,b", "two\nlines", "\r", 'say ""x""', "ä€🚀", r"\.", " blank ", "NULL", "1", "1.0", "'", "\t"]
# What may stand where something else was met before, and what is special by itself; as SQL.
ODD = {
    "null": "null",
    "integer": "7",
    "largest": "9223372036854775807",
    "float": "1.0",
    "fraction": "0.1",
    "minus zero": "-0.0",
    "tiny": "5e-324",
    "small": "1e-7",
    "huge": "1e300",
    "infinite": "9e999",
    "text": "'word'",
    "empty": "''",
    "digits": "'12'",
    "bytes": "x'6162'",
    "no bytes": "x''",
    "nul": "'a' || char(0) || 'b'",
    "no utf-8": "cast(x'ff41' as text)",
    "surrogate": "cast(x'eda080' as text)",
    "quoted": "'a\"b,c'",
}
USUAL = {"integer": "i * 7919 - 40000", "float": "i / 8.0 + 0.5", "text": "'text ' || i", "null": "null"}
TYPES = ("", "text", "integer", "real", "numeric")


PLAIN = {
    "binds": {}, "types": {}, "visible": None, "hidden": (), "order": (), "columns": None, "declared": {}
}  # fmt: skip


def reader():
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("reading_beside.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def read_by(process, uri, plan: Plan, rows=ROWS, first=0, batch=5):
    binds = {f":{name}": value for name, value in {**plan.binds, "FIRST": first, "ROWS": rows}.items()}
    order = {"sql": plan.sql, "binds": binds, "kinds": plan.kinds, "batch": batch, "line_end": plan.line_end}
    process.stdin.write(json.dumps([uri, order]) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def planned(source, sql, monkeypatch, *, looked=2, end="\n", **more) -> Plan | None:
    """How the readers would read this; they look at so few rows that most of what is odd comes later."""
    monkeypatch.setattr(sqlite_outside, "ROWS_FROM", 0)
    monkeypatch.setattr(sqlite_plain, "LOOKED_ROWS", looked)
    profile = next(profile for profile, line_end in IF_FIT.items() if line_end == end)
    reading = Reading(sql, **PLAIN | more)
    with source.snapshot() as snapshot:
        snapshot.count(reading, 10)
        stream = snapshot.stream(reading, profile)
    return None if stream is None else stream.plan


def as_values(path, sql):
    """What our encoder makes of the same statement; None where it has to say something of it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        rows = connection.execute(sql).fetchall()
    encoder = CsvEncoder([Column(f"c{i}", f"c{i}") for i in range(len(rows[0]))], {"dialect": "exact"})
    made = encoder.rows(rows).decode()
    return None if dict(encoder.notices.items()) else made


def test_every_odd_value_at_every_place_is_written_the_same_or_given_up(tmp_path, monkeypatch):
    """In the rows that were looked at, in the first batch, in the second, and in the last row."""
    path = tmp_path / "shop.db"
    places = (1, 4, 7, ROWS)
    tables = []
    with closing(sqlite3.connect(path)) as connection:
        for (type_, usual, odd), place in zip(
            itertools.product(TYPES, USUAL, ODD), itertools.cycle(places), strict=False
        ):
            name = f"t{len(tables)}"
            connection.execute(f"create table {name} (i integer, c {type_}, d {type_})")
            chosen = f"case i when {place} then {ODD[odd]} else {USUAL[usual]} end"
            connection.execute(
                f"insert into {name} with recursive n(i) as (select 1 union all select i + 1 from n where i < {ROWS})"
                f" select i, {chosen}, {USUAL[usual]} from n"
            )
            tables.append((name, type_, usual, odd, place))
        connection.commit()
    source = open_source(f"sqlite:///{path}")
    same, given_up, differ = 0, 0, []
    with reader() as process:
        for name, *case in tables:
            sql = f"select d, c, i from {name}"
            plan = planned(source, sql, monkeypatch)
            said = None if plan is None else read_by(process, source._uri, plan)
            same += said is not None
            given_up += said is None
            if said is not None and said != as_values(path, sql):
                differ.append((case, said))
        process.stdin.close()

    assert [] == differ
    assert same > 60  # most of the usual ones, and what is odd without a change of type
    assert given_up > 200


def test_texts_and_numbers_of_every_kind_are_written_the_same(tmp_path, monkeypatch):
    path = tmp_path / "shop.db"
    chance = random.Random(3)
    numbers = [None, 0.0, -0.0, 0.1, 1.5, -2.0, 123456.789, 1 / 3, 1e15, 99999999.0]
    whole = [None, 0, -1, 2**63 - 1, -(2**63), 42]
    rows = [
        (chance.choice(whole), chance.choice(numbers), chance.choice([None, *TEXTS]), chance.choice(TEXTS), None)
        for _ in range(3_000)
    ]
    rows[0] = (1, 1.5, "a", "b", None)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table t (a integer, b real, c text, d text not null, e text)")
        connection.execute("create view v as select c, a, d as again, d from t")
        connection.execute(
            "create table s (a integer primary key, b real, c text, d text generated always as (c) stored) strict"
        )
        connection.execute("create table w (a text primary key, b integer, c real) without rowid")
        connection.executemany("insert into t values (?, ?, ?, ?, ?)", rows)
        connection.executemany("insert into s (b, c) values (?, ?)", [row[1:3] for row in rows])
        connection.executemany(
            "insert or ignore into w values (?, ?, ?)", [(str(i), *row[:2]) for i, row in enumerate(rows)]
        )
        connection.execute("create index by_d on t (d, a)")
        connection.commit()
    source = open_source(f"sqlite:///{path}")
    asked = {
        "select * from t": {},
        'select a, a, b as a, c as "A", d as "b""c", d as "x,y" from t': {},
        "select * from v": {},
        "select * from s": {},
        "select b, a, c from w": {},
        "select a, d from t where d > :least": {"binds": {"least": "a"}},
        "select a, d from t where a = :n or b > :f": {"binds": {"n": 42, "f": 0.5}},
        "select a, d from t where d in (:some)": {"binds": {"some": ["a", "\r", "'"]}},
        "select t.a, d, rowid from t": {"visible": "d <> :requester_tenant", "binds": {"requester_tenant": "a"}},
        "select a, d from t -- by an index": {"order": ("d", "a")},
        "select rowid as id, c, b from t": {"order": ("id desc",)},
    }  # fmt: skip
    with reader() as process:
        for sql, more in asked.items():
            for end in ("\n", "\r\n"):
                plan = planned(source, sql, monkeypatch, looked=200, end=end, **more)
                assert plan is not None, sql
                said = read_by(process, source._uri, plan, rows=10**6, batch=700)
                reading = Reading(sql, **PLAIN | more)
                with source.snapshot() as snapshot:
                    values = [row for batch in snapshot.batches(reading) for row in batch]
                encoder = CsvEncoder(
                    [Column(f"c{i}", f"c{i}") for i in range(len(values[0]))],
                    {"dialect": "exact" if end == "\n" else "rfc4180"},
                )
                assert encoder.rows(values).decode() == said, sql
        process.stdin.close()


def test_columns_of_a_table_without_rowids_lie_elsewhere_than_they_are_declared(tmp_path, monkeypatch):
    """Its key lies first: a column without a type was taken for the text of the key, and a float in it for text."""
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table w (a, b text primary key) without/**/rowid")
        connection.executemany(
            "insert into w values (?, ?)", [(1e-7 if i == 9 else "word", f"k{i}") for i in range(20)]
        )
        connection.commit()
    source = open_source(f"sqlite:///{path}")
    with reader() as process:
        plan = planned(source, "select a, b from w", monkeypatch)
        assert plan is not None
        assert read_by(process, source._uri, plan) is None
        process.stdin.close()


@pytest.mark.parametrize(
    "sql",
    [
        "select a, upper(d) from t",
        "select a, d || 'x' from t",
        "select a, b * 2 from t",
        "select a, 0.1 from t",
        "select a, count(*) from t group by a",
        "select distinct a, d from t",
        "select a, d from t order by b",
        "select a, cast(b as text) from t",
        "select a, d from t limit 3",
        "select a, d from t union all select a, d from t",
        "select d from t",
        "select a, random() from t",
    ],
)
def test_what_computes_is_left_to_the_general_way(tmp_path, monkeypatch, sql):
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table t (a integer, b real, d text)")
        connection.execute("insert into t values (1, 1.5, 'x'), (2, 2.5, 'y')")
        connection.commit()
    source = open_source(f"sqlite:///{path}")

    assert planned(source, "select a, d from t", monkeypatch) is not None
    assert planned(source, sql, monkeypatch) is None


# -- whole builds ----------------------------------------------------------------------------------

MADE = """insert into t with recursive n(i) as (select 1 union all select i + 1 from n where i < 4000)
    select i, i / 8.0, case i % 5 when 0 then '' when 1 then 'a,b' when 2 then null else 'text ' || i end, 'ä' from n"""


@pytest.fixture
def yard(tmp_path, monkeypatch):
    monkeypatch.setenv("SQLITE_TMPDIR", str(tmp_path))
    monkeypatch.setattr(sqlite_outside, "ROWS_FROM", 1_000)
    monkeypatch.setattr(sqlite_beside, "BATCH_ROWS", 500)
    made = Yard(tmp_path, "create table t (a integer primary key, b real, c text, d text)", MADE)
    yield made
    assert [] == readers_of(os.getpid())


@pytest.fixture
def ways(monkeypatch):
    """How each stream ended: with all of its rows, or given up after so many."""
    seen = []
    original = BesideStream.chunks

    def chunks(stream):
        try:
            yield from original(stream)
        except Unfit:
            seen.append(("given up", stream.rows))
            raise
        seen.append(("whole", stream.rows))

    monkeypatch.setattr(BesideStream, "chunks", chunks)
    return seen


def by_values(yard, dataset, **asked):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_outside, "ROWS_FROM", 10**9)
        return yard.build(dataset, **asked)


@pytest.mark.parametrize("asked", [{}, {"options": {"dialect": "rfc4180"}}, {"compression": "gzip"}], ids=str)
def test_a_file_is_the_same_by_both_ways(yard, ways, asked):
    dataset = query("select * from t where a > :above", parameters=(Parameter("above", "integer"),), order=("a",))
    built, content = yard.build(dataset, above=12, **asked)
    expected, same = by_values(yard, dataset, above=12, **asked)

    assert same == content
    assert [("whole", 3_988)] == ways
    assert (expected.rows, expected.total, expected.notices) == (built.rows, built.total, built.notices)


def test_where_the_excel_dialect_or_the_driver_is_wanting_the_file_is_made_of_values(yard, ways, monkeypatch):
    dataset = query("select * from t")
    yard.build(dataset, options={"dialect": "excel"})
    _, with_driver = yard.build(dataset)
    monkeypatch.setattr(sqlite_beside, "_is_installed", lambda: False)

    assert with_driver == yard.build(dataset)[1]
    assert [("whole", 4_000)] == ways


def test_readers_that_were_begun_and_are_not_asked_end_before_the_first_row(yard, monkeypatch):
    """While a count takes its time nobody knows yet that the file is of another dialect."""
    count, rows, seen = SqliteSnapshot.count, CsvEncoder.rows, []

    def counted(snapshot, *asked):
        sqlite_beside.begin_early(snapshot._outside)
        seen.append(len(readers_of(os.getpid())))
        return count(snapshot, *asked)

    def written(encoder, batch):
        seen.append(len(readers_of(os.getpid())))
        return rows(encoder, batch)

    monkeypatch.setattr(sqlite_beside, "_cores", lambda: 2)
    monkeypatch.setattr(SqliteSnapshot, "count", counted)
    monkeypatch.setattr(CsvEncoder, "rows", written)
    yard.build(query("select * from t"), options={"dialect": "excel"})

    assert [2, 0] == seen[:2]


@pytest.mark.parametrize(
    ("odd", "place"), [("x'ff00'", 1_700), ("7.5", 4_000), ("char(0)", 4_000), ("cast(x'ff' as text)", 1_700)]
)
def test_a_file_that_was_begun_and_given_up_is_begun_anew(yard, ways, odd, place):
    with yard.writer() as source:
        source.execute("create table o (a, b, c)")
        source.execute("insert into o select a, b, d from t")
        source.execute(f"update o set c = {odd} where a = {place}")
    built, content = yard.build(query("select * from o"))
    expected, same = by_values(yard, query("select * from o"))

    assert same == content
    assert ["given up"] == [way for way, _ in ways]
    assert (expected.rows, expected.notices) == (built.rows, built.notices)


def test_what_cannot_be_begun_anew_is_not_begun_this_way(yard, ways):
    class Sent(PartFile):
        rewinds = False

    order = yard.order(query("select * from t"))
    sink = Sent(order.folder, file_bytes=order.file_bytes, reserved_bytes=order.reserved_bytes)
    built = build(order, open_source(order.source_url, 1), sink, lambda _progress: None)

    assert 4_000 == built.rows
    assert [] == ways


@pytest.mark.parametrize("which", [0, 1], ids=["the first reader", "the second"])
def test_a_reader_that_is_killed_costs_time_and_no_row(yard, ways, which, monkeypatch):
    started, original = [], Reader.piece
    monkeypatch.setattr(Reader, "begin", _noting(Reader.begin, started))

    def piece(reader):
        os.kill(started[which]._process.pid, signal.SIGSTOP)
        os.kill(started[which]._process.pid, signal.SIGKILL)
        return original(reader)

    monkeypatch.setattr(Reader, "piece", piece)
    monkeypatch.setattr(Reader, "ask", _asked_for_more_than_a_pipe_holds(Reader.ask))
    _, content = yard.build(query("select * from t"))

    assert by_values(yard, query("select * from t"))[1] == content
    assert "given up" == ways[0][0]


def _noting(method, noted):
    def noting(reader, *given):
        noted.append(reader)
        method(reader, *given)

    return noting


def _asked_for_more_than_a_pipe_holds(ask):
    """A reader that cannot have ended by itself: it finds no end."""

    def asked(reader, plan, first, rows):
        endless = plan.sql.replace("from (", "from (select 1 union all select 2), (", 1)
        ask(reader, plan._replace(sql=endless), first, rows)

    return asked


def test_a_full_disk_for_the_second_half_costs_time_and_no_row(yard, ways, monkeypatch):
    monkeypatch.setattr(sqlite_beside, "_unlinked", lambda: os.open("/dev/full", os.O_RDWR))
    _, content = yard.build(query("select * from t"))

    assert by_values(yard, query("select * from t"))[1] == content
    assert ["given up"] == [way for way, _ in ways]


def test_a_half_that_is_too_large_to_wait_in_a_file_is_read_by_one(yard, ways, monkeypatch):
    started = []
    monkeypatch.setattr(Reader, "begin", _noting(Reader.begin, started))
    yard.build(query("select * from t"), limits={"sort_bytes": 10_000})
    yard.build(query("select * from t"))

    assert [("whole", 4_000)] * 2 == ways
    assert 1 + min(2, len(os.sched_getaffinity(0))) == len(started)


def test_a_file_over_its_limit_ends_the_readers(yard):
    with pytest.raises(BuildFailed) as failed:
        yard.build(query("select * from t"), file_bytes=30_000)

    assert "bytes_exceeded" == failed.value.code


def test_beside_a_writer_a_file_is_of_one_instant_or_made_of_values(yard, ways):
    """Money moves from the first half of the rows to the second: two instants would have another sum."""
    with yard.writer() as source:
        source.execute("create table accounts (id integer primary key, balance integer)")
        source.execute("insert into accounts select a, 100 from t")
    done, moved = threading.Event(), []

    def move():
        with yard.writer() as source:
            while not done.is_set():
                moved.append(len(moved))
                pair = f"(case id when {len(moved) % 1_000 + 1} then -7 else 7 end)"
                source.execute(
                    f"update accounts set balance = balance + {pair} "
                    f"where id in ({len(moved) % 1_000 + 1}, {len(moved) % 1_000 + 3_000})"
                )

    thread = threading.Thread(target=move)
    thread.start()
    try:
        sums = set()
        for _ in range(4):
            _, content = yard.build(query("select id, balance from accounts"))
            sums.add(sum(int(line.split(b",")[1]) for line in content.splitlines()[1:]))
    finally:
        done.set()
        thread.join()
    yard.build(query("select id, balance from accounts"))

    assert {400_000} == sums
    assert len(moved) > 100
    assert [("given up", 0)] * 4 + [("whole", 4_000)] == ways


def test_another_file_under_the_same_name_is_not_read(yard):
    with yard.writer() as source:
        source.execute("pragma journal_mode=delete")
    source = open_source(yard.url)
    with source.snapshot() as snapshot:
        assert snapshot._outside.is_unchanged()
        Path(f"{yard.path}.new").write_bytes(yard.path.read_bytes())
        Path(f"{yard.path}.new").replace(yard.path)
        assert not snapshot._outside.is_unchanged()


def test_readers_begin_while_rows_are_counted_and_end_where_nobody_wants_them(yard, ways, monkeypatch):
    """A count that takes a while is one of many rows; here it takes as long as they need to start."""
    seen, expected = [], 2 if len(os.sched_getaffinity(0)) > 1 else 0

    class Slow(sqlite3.Connection):
        def execute(self, sql, *given):
            cursor = super().execute(sql, *given)
            if sql.startswith("select count(*)"):
                until(lambda: len(readers_of(os.getpid())) == expected)
                seen.append(readers_of(os.getpid()))
            return cursor

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **more: connect(*given, **more, factory=Slow))
    _, content = yard.build(query("select a, d from t"))
    assert content == by_values(yard, query("select a, d from t"))[1]
    with pytest.raises(BuildFailed) as failed:
        yard.build(query("select a, d from t"), limits={"rows": 10})

    assert "rows_exceeded" == failed.value.code
    assert [("whole", 4_000)] == ways
    assert 3 == len(seen)


def test_a_reader_ends_with_its_input_whatever_it_waits_for(yard, monkeypatch):
    monkeypatch.setattr(sqlite_beside, "PIPE_BYTES", 4_096)
    source = open_source(yard.url)
    plan = planned(source, "select * from t", monkeypatch)
    reader = Reader(is_first=True)
    try:
        reader.begin(source._uri)
        reader.wait_begun()
        reader.ask(plan, 0, 4_000)
        assert 500 == reader.piece()[0]  # the others are more than the pipe holds
        reader._process.stdin.close()
        assert 1 == reader._process.wait(60)
    finally:
        reader.end()


@pytest.mark.process
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_that_reads_outlives_the_build(tmp_path, how):
    path, folder = tmp_path / "shop.db", tmp_path / "run"
    folder.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table t (a integer, b text)")
        connection.execute(
            "insert into t with recursive n(i) as (select 1 union all select i + 1 from n where i < 400000)"
            " select i, 'text' from n"
        )
        connection.commit()
    names = {"hidden": [], "order": [], "order_fixed": False, "columns": None, "declared": {}}
    plan = {"sql": "select * from t", "binds": {}, "types": {}, "visible": None, **names, "limits": PLENTY}
    order = BuildOrder(f"sqlite:///{path}", 1, str(folder), plan, "csv", {"dialect": "exact"}, None, 10**9, 10**9, 1)
    child = Child(order.to_json())
    try:
        until(lambda: child.messages(0.01) is not None and (readers_of(child.pid) or child.ended()))
        os.kill(child.pid, signal.SIGSTOP)
        reading = readers_of(child.pid)
        assert [] != reading
        if how == signal.SIGKILL:
            os.kill(child.pid, how)  # it alone: its readers find that nobody asks any more
        else:
            child.signal(how)
            os.kill(child.pid, signal.SIGCONT)
        until(lambda: not any(is_alive(pid) for pid in reading))
        until(child.ended)
    finally:
        child.reap()
    assert {"part"} >= {each.name for each in folder.iterdir()}


def readers_of(parent):
    found = []
    for pid in filter(str.isdigit, (each.name for each in Path("/proc").iterdir())):
        with suppress(OSError):
            above = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            if above == parent and b"sqlite_reader" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(int(pid))
    return found


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

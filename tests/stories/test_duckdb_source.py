"""A file of DuckDB that is exported from: its values, who has it open, what its SQL reaches, and where it sorts."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import struct
import subprocess
import sys
import threading
from decimal import Decimal

import duckdb
import pytest
from tests.stories.building import Yard, query

from haulage.core.errors import BuildFailed
from haulage.core.reading import Reading
from haulage.sources import open_source
from haulage.sources.duckdb import DuckdbSnapshot

pytestmark = pytest.mark.slow
PLAIN = Reading("select 1 as a", {}, {}, None, (), (), None, {})
FOREVER = "select sum(a.i * b.i) as total from range(1000000) as a (i), range(1000000) as b (i)"
SORTED = "select i, 'a text of some length ' || i as t from range(2000000) as n (i)"


class DuckdbYard(Yard):
    """The same with a file of DuckDB."""

    def _make(self):
        self.path = self.folder / "shop.duckdb"
        self.url = f"duckdb:///{self.path}"
        duckdb.connect(self.path).close()

    @contextlib.contextmanager
    def writer(self):
        with duckdb.connect(self.path) as source:
            yield source


@pytest.fixture
def yard(tmp_path):
    return DuckdbYard(tmp_path)


def failed(act) -> BuildFailed:
    with pytest.raises(BuildFailed) as caught:
        act()
    return caught.value


def elsewhere(program: str, *words: str) -> subprocess.Popen:
    """Another process with this file open, for as long as its input is."""
    begun = [
        sys.executable,
        "-c",
        f"import duckdb, sys\n{program}\nprint('open', flush=True)\nsys.stdin.read()",
        *words,
    ]
    return subprocess.Popen(begun, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


# -- values ----------------------------------------------------------------------------------------


def test_doubles_have_the_fewest_digits_that_give_them_back_and_decimals_all_of_theirs(yard):
    chance = random.Random(4711)
    doubles = [struct.unpack("d", chance.randbytes(8))[0] for _ in range(150)]
    doubles = [each for each in doubles if math.isfinite(each)] + [10.0**power for power in range(-30, 30)]
    singles = [struct.unpack("f", chance.randbytes(4))[0] for _ in doubles]
    singles = [each if math.isfinite(each) else 0.5 for each in singles]
    decimals = [Decimal(f"{chance.randrange(10**38)}e-17") for _ in doubles]
    with yard.writer() as source:
        source.execute("create table t (i integer, d double, f float, n decimal(38, 17))")
        source.executemany(
            "insert into t select ?, ?, ?, ?::decimal(38, 17)",
            [(at, each, singles[at], f"{decimals[at]:f}") for at, each in enumerate(doubles)],
        )
    lines = yard.text("select d, f, n from t order by i").splitlines()[1:]

    assert [repr(each) for each in doubles] == [line.split(",")[0] for line in lines]
    assert [f"{each:f}" for each in decimals] == [line.split(",")[2] for line in lines]
    found = [line.split(",")[1] for line in lines]
    assert singles == [struct.unpack("f", struct.pack("f", float(each)))[0] for each in found]
    assert max(len(Decimal(each).normalize().as_tuple().digits) for each in found) <= 9  # not those of a DOUBLE


def test_documents_are_json_with_every_digit_whatever_is_in_them(yard):
    sql = """select 1 as i, {'n': 1.10, 'N2': [2.50, null], 'u': union_value(f := 0.1::float), 'x': null::double,
        'm': map {'a"b': 1e300::double}, 't': timestamptz '2026-01-31 23:30:00+01', 'l': [{'z': 'é\\'}],
        'b': true, 'h': 170141183460469231731687303715884105727, 'inf': 'inf'::double} as d
        union all select 2, null"""
    built, content = yard.build(query(sql, key=("i",)), format="json")
    first, second = json.loads(content, parse_float=str)

    text = (
        '{"n":1.10,"N2":[2.50,null],"u":{"f":0.1},"x":null,"m":{"a\\"b":1e+300},"t":"2026-01-31 22:30:00+00",'
        '"l":[{"z":"é\\\\"}],"b":true,"h":170141183460469231731687303715884105727,"inf":"Infinity"}'
    )
    assert f'"d":{text}' in content.decode()
    assert ("1.10", None) == (first["d"]["n"], second["d"])
    assert () == built.notices


def test_types_with_names_of_their_own_are_what_they_stand_for(yard):
    with yard.writer() as source:
        source.execute("create schema s")
        source.execute("create type s.mood as enum ('a', 'b')")
        source.execute("create type s.money as decimal(12, 2)")
        source.execute("create type s.pair as struct(m s.money, e s.mood)")
        source.execute("create table t as select 'a'::s.mood as e, 1.5::s.money as m, {'m': 2, 'e': 'b'}::s.pair as p")

    assert 'e,m,p\na,1.50,"{""m"":2.00,""e"":""b""}"\n' == yard.text("select * from t")


NASTY = ["", "a", ",", '"', "a,b", 'say "x"', "a\rb", "\n", "\r\n", "\\.", "a\0b", "é🚀", " ", "x" * 300_000, None]


def test_lines_of_the_engine_are_those_of_our_encoder(yard, monkeypatch):
    chance = random.Random(4711)
    doubles = [struct.unpack("d", chance.randbytes(8))[0] for _ in NASTY]
    doubles[:7] = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e16, 123456789012345.0]
    with yard.writer() as source:
        source.execute(
            "create table t (i integer, t varchar, d double, f float, e enum('a', 'b,c', ''), l varchar[],"
            " n decimal(38, 10), b boolean, z timestamptz)"
        )
        for at, text in enumerate(NASTY):
            single = struct.unpack("f", chance.randbytes(4))[0] if at > 2 else doubles[at]
            source.execute(
                "insert into t select ?, ?, ?, ?,"
                " case ? when 0 then null when 1 then '' when 2 then 'b,c' else 'a' end, [?, null],"
                " ?::decimal(38, 10), ? = 1, timestamptz '2026-01-31 23:30:00+01' + to_days(?)",
                [at, text, doubles[at], single, at, text, f"{at}.5", at % 3, at],
            )
    asked = [query(f"select {each} from t order by i") for each in ("t", "t, i", "i, t, t as u", "d", "f, d, e", "e",
                                                                    "l, t", "n, b, z, i")]  # fmt: skip
    lines = [yard.build(each) for each in asked]
    monkeypatch.setattr(DuckdbSnapshot, "stream", lambda *_: None)
    for dataset, (built, content) in zip(asked, lines, strict=True):
        ours, wanted = yard.build(dataset)

        assert wanted == content, dataset.sql
        assert (ours.rows, ours.total, ours.notices) == (built.rows, built.total, built.notices)


def test_what_the_engine_would_write_otherwise_is_no_stream(yard):
    asked = PLAIN._replace(declared={"f": ("f", "decimal")})
    with open_source(yard.url).snapshot() as snapshot:
        assert None is snapshot.stream(PLAIN, "xlsx")
        assert None is not snapshot.stream(asked._replace(sql="select 1.5 as f, ['a'] as l"), "csv")
        for sql in ("select 1.5::double as f", "select [1.5] as a", "select 'x'::blob as a"):
            assert None is snapshot.stream(asked._replace(sql=sql), "csv")


def test_nul_in_a_text_is_replaced_and_counted(yard):
    built, content = yard.build(query("select 'a' || chr(0) || 'b' as t"))

    assert "t\na\ufffdb\n" == content.decode()
    assert {"code": "text_replaced", "count": 1} in built.notices


def test_an_instant_is_bound_with_its_zone_and_a_text_is_compared_as_what_it_stands_beside(yard):
    with yard.writer() as source:
        source.execute("create table t (u uuid, e enum('a', 'b'), t timestamptz)")
        source.execute("insert into t values ('00000000-0000-0000-0000-00000000000A', 'a', '2026-01-31 22:30:00+00')")
    asked = PLAIN._replace(
        sql="select e from t where u = :u and e in (:e) and t = :at",
        binds={"u": "00000000-0000-0000-0000-00000000000a", "e": ["a", "b"], "at": "2026-01-31T23:30:00+01:00"},
        types={"u": "text", "e": "text", "at": "timestamp"},
    )
    with open_source(yard.url).snapshot() as snapshot:
        assert [[("a",)]] == list(snapshot.batches(asked))


def test_nulls_are_sorted_as_duckdb_sorts_them(yard):
    sql = "select * from (values (2), (null), (1)) as t (a)"
    for order, wanted in (("a", "1\n2\n\n"), ("a desc", "2\n1\n\n"), ("a nulls first", "\n1\n2\n")):
        assert "a\n" + wanted == yard.build(query(sql, order=(order,)))[1].decode()


def test_now_is_one_instant_for_count_and_rows_also_after_a_fault(yard):
    asked = PLAIN._replace(sql="select strftime(now(), '%f') as a")
    with open_source(yard.url).snapshot() as snapshot:
        for _ in range(2):
            assert 1 == len({tuple(batch) for _ in range(3) for batch in snapshot.batches(asked)})
            failed(lambda: list(snapshot.batches(PLAIN._replace(sql="select error('x') as a"))))


def test_a_pivot_names_its_values(yard):
    with yard.writer() as source:
        source.execute("create table t as select 'a' as k, 1 as n union all select 'b', 2")

    assert "a,b\n1,2\n" == yard.text("pivot t on k in ('a', 'b') using sum(n)")
    assert "name the values of a PIVOT" in failed(lambda: yard.text("pivot t on k using sum(n)")).cause


# -- who has it open -------------------------------------------------------------------------------


def test_a_file_that_is_open_for_writing_is_locked_and_read_as_soon_as_it_is_not(yard):
    writer = elsewhere(
        "c = duckdb.connect(sys.argv[1]); c.execute('create table t as select 4711 as a')", str(yard.path)
    )
    assert "open\n" == writer.stdout.readline()
    locked = failed(lambda: yard.text("select a from t"))
    threading.Timer(
        0.3, writer.kill
    ).start()  # its last words are in the log beside the file, and are read all the same
    content = yard.build(query("select a from t"), busy_seconds=60)[1]
    writer.communicate()

    assert "source_locked" == locked.code
    assert "Could not set lock on file" in locked.cause
    assert b"a\n4711\n" == content


def test_a_file_that_this_very_process_writes_to_is_locked_too(yard):
    with yard.writer():
        assert "source_locked" == failed(lambda: yard.text("select 1 as a")).code


def test_while_it_is_read_nobody_writes_and_everybody_reads(yard):
    with open_source(yard.url).snapshot() as snapshot:
        writer = elsewhere("duckdb.connect(sys.argv[1])", str(yard.path))
        reader = elsewhere("duckdb.connect(sys.argv[1], read_only=True)", str(yard.path))
        answers = [each.communicate() for each in (writer, reader)]
        with open_source(yard.url).snapshot() as another:
            assert [[(1,)]] == list(another.batches(PLAIN)) == list(snapshot.batches(PLAIN))

    assert "Conflicting lock" in answers[0][1]
    assert ("open\n", "") == answers[1]


@pytest.mark.parametrize("what", ["nothing", "a text", "a folder", "a setting"])
def test_what_cannot_be_opened_is_told(yard, what):
    if what == "a setting":
        yard.url += "?enable_external_access=true"
    else:
        yard.path.unlink()
    if what == "a text":
        yard.path.write_text("not a database " * 400)
    if what == "a folder":
        yard.path.mkdir()
    found = failed(lambda: yard.text("select 1 as a"))
    words = {"nothing": "does not exist", "a text": "not a valid DuckDB database", "a folder": "Is a directory",
             "a setting": "'enable_external_access' in its URL is none of threads, memory_limit"}  # fmt: skip

    assert "source_unavailable" == found.code
    assert words[what] in found.cause


def test_a_missing_driver_says_what_to_install(yard, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    found = failed(lambda: yard.text("select 1 as a"))

    assert ("source_unavailable", True) == (found.code, "pip install 'haulage[duckdb]'" in found.cause)


# -- what its SQL reaches --------------------------------------------------------------------------


@pytest.mark.parametrize("sql", [
    "select content from read_text('{file}')",
    "select * from '{file}'",
    "select * from glob('{file}*')",
    "select * from read_csv('{file}')",
    "copy (select 1 as a) to '{file}'",
    "attach '{file}' as other",
    "install httpfs",
    "load httpfs",
    "set memory_limit = '10GiB'",
    "create temp table t as select 1 as a",
    "call pragma_version()",
    "explain analyze select 1 as a",
])  # fmt: skip
def test_no_file_no_network_no_code_and_no_setting_is_reached(yard, tmp_path, sql):
    file = tmp_path / "secret.csv"
    file.write_text("hush_4711\n")
    found = failed(lambda: yard.text(sql.format(file=file)))

    assert "source_failed" == found.code
    assert "hush" not in found.cause
    assert "hush_4711\n" == file.read_text()


@pytest.mark.parametrize("sql", [
    "select error(secret) as a from t",
    "select secret::integer as a from t",
    "select strptime(secret, '%Y') as a from t",
    "select n::tinyint as a from t",
    "select json_extract(secret, '$.a') as a from t",
])  # fmt: skip
def test_what_the_engine_says_of_a_value_is_not_told(yard, sql):
    with yard.writer() as source:
        source.execute("create table t as select 'hush 4711' as secret, 4711 as n")
    cause = failed(lambda: yard.text(sql)).cause

    assert [] == [word for word in ("hush", "4711") if word in cause]


# -- space, time and order -------------------------------------------------------------------------


def test_sorting_is_in_the_folder_of_the_run_within_its_limit_and_leaves_nothing(yard, monkeypatch):
    folder = yard.folder / "space"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    dataset = query(SORTED, order=("t desc",))
    found = failed(lambda: yard.build(dataset, limits={"sort_bytes": 10**6}))
    yard.url += "?memory_limit=32MiB"
    asked = PLAIN._replace(sql=SORTED, order=("t desc",))
    with open_source(yard.url).snapshot() as snapshot, contextlib.closing(snapshot.batches(asked, 10**9)) as batches:
        assert (999_999, "a text of some length 999999") == next(batches)[0]
        seen = [path for path in folder.rglob("*.tmp") if path.is_file()]

    assert ("sort_space_exceeded", "more space than allowed" in found.detail) == (found.code, True)
    assert [] != seen
    assert [] == list(folder.iterdir()) == list(yard.folder.glob("*.duckdb.tmp"))


def test_a_statement_has_its_time_and_the_snapshot_goes_on(yard):
    with open_source(yard.url, seconds=0.2).snapshot() as snapshot:
        found = failed(lambda: list(snapshot.batches(PLAIN._replace(sql=FOREVER))))
        assert 1 == snapshot.count(PLAIN, 10)

    assert "generation_timeout" == found.code


def test_groups_come_in_the_same_order_each_time_and_in_every_process(yard):
    sql = "select hash(i) % 1000 as g, count(*) as n from range(300000) as r (i) group by all"
    once = yard.text(sql)
    program = (
        "from haulage.sources import open_source\nfrom haulage.core.reading import Reading\n"
        f"asked = Reading({sql!r}, {{}}, {{}}, None, (), (), None, {{}})\n"
        "with open_source(sys.argv[1]).snapshot() as s:\n"
        "    for b in s.batches(asked):\n"
        "        for row in b: print(*row, sep=',')\n"
        "raise SystemExit"
    )
    other = elsewhere(program, yard.url).communicate()[0]

    assert once == yard.text(sql) == "g,n\n" + other


def test_the_temporary_folder_of_two_files_is_not_one(yard, tmp_path_factory):
    asked = PLAIN._replace(sql="select current_setting('temp_directory') as a")
    found = set()
    for url in (yard.url, DuckdbYard(tmp_path_factory.mktemp("other")).url):
        with open_source(url).snapshot() as snapshot:
            found.update(row for batch in snapshot.batches(asked) for row in batch)

    assert 2 == len(found)
    assert all(str(os.getpid()) in folder for (folder,) in found)

"""Two ways from PostgreSQL to one file: its text, taken as it comes, and values. The same bytes, the same notices."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace

import pyarrow.parquet
import pytest
from tests.conformance.formats.readers import read_parquet
from tests.stories.building import PostgresqlYard, query
from tests.stories.test_postgresql_source import NASTY, by_our_encoder

from haulage.artifacts.part import PartFile
from haulage.core import clock
from haulage.core.catalogue import Column
from haulage.core.errors import BuildFailed
from haulage.core.progress import Phase
from haulage.exports import build
from haulage.formats import json_text, parquet_groups, parquet_text
from haulage.formats.json_arrow import ArrowLines
from haulage.formats.objects import Objects
from haulage.formats.parquet import ParquetEncoder
from haulage.sources import postgresql_wire

pytestmark = pytest.mark.slow
WAYS = ("parquet", "ndjson", "ndjson by Arrow", "json")
# Of every kind that has its own place in a file, some NULL; in a few rows what JSON has to escape, and nothing at all.
MANY = """select i, i::bigint * 7919 as big, i / 7.0::numeric(12, 4) as price, (i % 3 = 0) as odd, i % 5 as five,
    case when i % 11 > 0 then date '2020-01-01' + i % 900 end as day,
    timestamptz '2020-01-01Z' + i * interval '1 s' as at,
    case i % 1000 when 7 then E'a\\tb\\nc\\r\\x01\\x1f"\\\\' when 8 then '' when 9 then 'null' when 10 then null
    when 11 then 'NaN' else 'wörd 🚀 ' || i end as words, md5(i::text)::uuid as id,
    case when i % 4 > 0 then sha256(i::text::bytea) end as bytes from generate_series(1, {rows}) as i"""
PLAIN = "select i, 'text ' || i as words, i / 8.0::numeric(9, 3) as price from generate_series(1, {rows}) as i"


@pytest.fixture(scope="module")
def yard(tmp_path_factory):
    made = PostgresqlYard(tmp_path_factory.mktemp("ways"))
    with made.writer() as source:
        source.execute("create type pair as (a integer, b text)")
        source.execute("create type mood as enum ('ok', 'so, so')")
        source.execute("create domain positive as integer check (value > 0)")
        for name, (kind, *literals) in NASTY.items():
            source.execute(f'create table "of_{name}" (at serial, "{name}" {kind})')
            source.execute(
                f'insert into "of_{name}" ("{name}") values {", ".join(f"({each})" for each in literals)}, (null)'
            )
    yield made
    made.close()


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """A format, and for JSON whose hands."""
    format, _, by = request.param.partition(" ")
    monkeypatch.setattr(json_text, "ARROW_FROM", 0 if by else 10**9)
    return format


@pytest.fixture(autouse=True)
def of_one_instant(monkeypatch):
    monkeypatch.setattr(clock, "rfc3339", lambda _: "2026-01-31T00:00:00Z")


def taken(monkeypatch, of=(ParquetEncoder, Objects)):
    """How many rows were taken as text."""
    rows = [0]
    for kind in of:

        def text(self, data, more, *around, whole=kind.text):
            rows[0] += more
            return whole(self, data, more, *around)

        monkeypatch.setattr(kind, "text", text)
    return rows


def both(yard, monkeypatch, dataset, **asked):
    """By text and by values: notices and bytes."""
    found = []
    for prepare in (lambda _: None, by_our_encoder):
        with monkeypatch.context() as patch:
            prepare(patch)
            built, data = yard.build(dataset, **asked)
            found.append((built.notices, built.rows, built.total, data))
    return found


def test_every_value_of_every_type(yard, monkeypatch, way):
    rows = taken(monkeypatch)
    for name in NASTY:
        dataset = query(f'select at, "{name}" from "of_{name}"', key=("at",), hidden=("at",))
        by_text, by_values = both(yard, monkeypatch, dataset, format=way)
        assert (name, by_values) == (name, by_text)

    assert rows[0] > 100


@pytest.mark.parametrize("format", ["ndjson", "json"])
def test_long_numbers_as_text(yard, monkeypatch, format):
    for name in ("large", "exact", "money_like", "double", "oid", "document", "doubles"):
        dataset = query(f'select "{name}" from "of_{name}"')
        by_text, by_values = both(yard, monkeypatch, dataset, format=format, options={"numbers": "string"})
        assert (name, by_values) == (name, by_text)


@pytest.mark.parametrize("sql", [MANY, PLAIN])
def test_many_rows(yard, monkeypatch, way, sql):
    monkeypatch.setattr(parquet_groups, "GROUP_ROWS", 5_000)
    rows = taken(monkeypatch)
    by_text, by_values = both(yard, monkeypatch, query(sql.format(rows=12_345)), format=way)

    assert by_values == by_text
    assert rows == [12_345]


def test_plain_rows_are_put_together_by_arrow(yard, monkeypatch):
    monkeypatch.setattr(json_text, "ARROW_FROM", 0)
    monkeypatch.setattr(json_text.TextLines, "joined", lambda *_: pytest.fail("by our own hands"))
    _, data = yard.build(query(PLAIN.format(rows=3_000)), format="ndjson")

    assert 3_000 == data.count(b"\n")
    assert ArrowLines.joined is not json_text.TextLines.joined


def test_one_row_and_none(yard, monkeypatch, way):
    for rows in (0, 1):
        by_text, by_values = both(yard, monkeypatch, query(MANY.format(rows=rows)), format=way)
        assert by_values == by_text


def test_a_column_alone_that_is_null(yard, monkeypatch, way):
    by_text, by_values = both(
        yard, monkeypatch, query("select nullif(i, 2) from generate_series(1, 3) as i"), format=way
    )

    assert by_values == by_text


def test_headers_of_any_kind(yard, monkeypatch, way):
    names = ['a"b', "a.b", "c\\d", "e\nf", "ü🚀", "{", "0"]
    listed = ", ".join(f"i as {chr(34)}{name.replace(chr(34), chr(34) * 2)}{chr(34)}" for name in names)
    by_text, by_values = both(yard, monkeypatch, query(f"select {listed} from generate_series(1, 9) as i"), format=way)

    assert by_values == by_text


def test_row_groups_are_cut_by_the_rows_alone(yard, monkeypatch):
    monkeypatch.setattr(parquet_groups, "GROUP_BYTES", 1_000_000)
    sizes = "select i, repeat(chr(64 + i), i * 17000) as t from generate_series(1, 40) as i"
    by_text, by_values = both(yard, monkeypatch, query(sizes), format="parquet")

    assert by_values == by_text


@pytest.mark.parametrize("sink", [PartFile, "one that does not rewind"])
@pytest.mark.parametrize("last", ["price = 'NaN'", "day = 'infinity'", "at = '0044-03-15 BC'", "clock = '24:00'"])
def test_what_does_not_fit_late_makes_its_column_text(yard, monkeypatch, sink, last):
    if sink is not PartFile:
        monkeypatch.setattr(PartFile, "rewinds", False)
        monkeypatch.setattr(PartFile, "rewind", lambda _: pytest.fail("parts were sent"))
    monkeypatch.setattr(parquet_groups, "GROUP_ROWS", 1_000)
    monkeypatch.setattr(parquet_text, "BLOCK_BYTES", 1)  # much stands in the file when it comes
    monkeypatch.setattr(postgresql_wire, "PIECE_BYTES", 8_192)
    column, _, value = last.partition(" = ")
    kinds = {"price": "numeric(9, 2)", "day": "date", "at": "timestamptz", "clock": "time"}
    values = {"price": "1.5", "day": "'2026-01-31'", "at": "'2026-01-31 00:00Z'", "clock": "'12:00'"}
    made = f"case i when 9000 then {value} else {values[column]} end::{kinds[column]} as {column}"
    by_text, by_values = both(
        yard, monkeypatch, query(f"select i, {made} from generate_series(1, 9000) as i"), format="parquet"
    )

    assert by_values == by_text
    assert {"code": "written_as_text", "columns": [column]}.items() <= {**by_text[0][-1], "count": 0}.items()


def test_what_does_not_fit_at_once_ends_the_statement_and_the_rows_are_read_again(yard, monkeypatch):
    """The server has sent a little of much when it is told to stop, and the transaction goes on."""
    sql = "select case i when 3 then 'NaN' else 1.5 end::numeric(9, 2) as n, i from generate_series(1, 60000) as i"
    by_text, by_values = both(yard, monkeypatch, query(sql), format="parquet")

    assert by_values == by_text


def test_nothing_is_said_to_stand_in_a_file_that_is_begun_anew(yard, monkeypatch):
    monkeypatch.setattr(parquet_text, "BLOCK_BYTES", 1)
    monkeypatch.setattr(postgresql_wire, "PIECE_BYTES", 8_192)
    monkeypatch.setattr(parquet_groups, "GROUP_ROWS", 1_000)
    sql = "select case i when 9000 then 'NaN' else 1.5 end::numeric(9, 2) as n from generate_series(1, 9000) as i"
    yard.build(query(sql), format="parquet")
    told = [(each.phase, each.processed) for each in yard.progress]
    again = len(told) - told[::-1].index((Phase.COUNTING, None)) - 1

    assert again > 0
    assert max(rows or 0 for _, rows in told[:again]) > 0
    assert (Phase.WRITING, 0) == told[again + 1]


def test_rows_that_wait_as_text_are_not_said_to_stand_in_the_file(yard):
    yard.build(query(PLAIN.format(rows=9_000)), format="parquet")

    assert [9_000] == [each.processed for each in yard.progress if each.phase == Phase.WRITING and each.processed]


@pytest.mark.parametrize(("values", "type"), [
    ("1.5, 20, -0.003", "decimal128(18, 3)"),
    ("12345678901234567890.1, 1", "decimal128(38, 1)"),
    ("1e37, 1e-2", "string"),
    ("1, 'NaN'::numeric", "string"),
    ("null, null", "string"),
])  # fmt: skip
def test_decimals_without_measures_are_measured(yard, monkeypatch, values, type):
    listed = ", ".join(f"({each})" for each in values.split(", "))
    by_text, by_values = both(
        yard, monkeypatch, query(f"select v::numeric from (values {listed}) as t(v)"), format="parquet"
    )
    schema = pyarrow.parquet.read_schema(pyarrow.BufferReader(by_text[3]))

    assert by_values == by_text
    assert type == str(schema.field(0).type)


def test_a_declared_type_goes_the_way_of_values(yard, monkeypatch, way):
    rows = taken(monkeypatch)
    columns = {"x": Column("x", "X", "decimal")}
    dataset = replace(query("select 0.1::float8 as x"), columns=columns)
    by_text, by_values = both(yard, monkeypatch, dataset, format=way)

    assert by_values == by_text
    assert rows == [0]


def test_a_declared_header_does_not(yard, monkeypatch, way):
    rows = taken(monkeypatch)
    dataset = replace(query("select 1 as x"), columns={"x": Column("x", "Gesamt", None)})
    by_text, by_values = both(yard, monkeypatch, dataset, format=way)

    assert by_values == by_text
    assert rows == [1]


# -- what ends a build ---------------------------------------------------------------------------------------------


def fails(yard, dataset, **asked):
    with pytest.raises(BuildFailed) as failed:
        yard.build(dataset, **asked)
    assert [] == [each for each in threading.enumerate() if each.name == "ahead"]
    return failed.value.code


def test_too_many_bytes(yard, way, monkeypatch):
    monkeypatch.setattr(parquet_groups, "GROUP_ROWS", 1_000)
    dataset = query(MANY.format(rows=150_000))

    assert "bytes_exceeded" == fails(yard, dataset, format=way, file_bytes=200_000)


def test_other_rows_than_were_counted(yard, way):
    dataset = query(f"select i from generate_series(1, 5000) as i where {yard.lot}")

    for _ in range(3):  # two draws have as many rows one time in a hundred
        with suppress(pytest.fail.Exception):
            assert "count_mismatch" == fails(yard, dataset, format=way)
            return
    pytest.fail("as many rows came as were counted")


def test_an_error_in_the_middle(yard, way):
    dataset = query("select 1 / (i - 40000) as x, repeat('x', 100) from generate_series(1, 50000) as i")

    assert "source_failed" == fails(yard, dataset, format=way, limits={"count_seconds": 0})


def test_too_many_rows_for_its_limit(yard, way):
    dataset = query("select i from generate_series(1, 50000) as i")

    assert "rows_exceeded" == fails(yard, dataset, format=way, limits={"rows": 40_000, "count_seconds": 0})


def test_the_statement_ends_with_a_build_that_ends_early(yard, monkeypatch, way):
    """The server is in the middle of a long silence when the build fails."""
    few, size = 10, 3_000
    sql = f"select i, repeat('x', {size}) from generate_series(1, 20) as i where i < {few} or pg_sleep(60) is not null"
    whole = build._Writer.add

    def add(self, data):
        whole(self, data)
        if data:
            raise BuildFailed("no_space")

    if way == "parquet":
        monkeypatch.setattr(parquet_groups, "GROUP_ROWS", 1)
        monkeypatch.setattr(parquet_text, "BLOCK_BYTES", 1)
    monkeypatch.setattr(build._Writer, "add", add)

    assert "no_space" == fails(yard, query(sql), format=way, limits={"count_seconds": 0.1})
    with yard.writer() as source:
        running = "select count(*) from pg_stat_activity where query like '%%pg_sleep(60)%%' and state = 'active'"
        assert [(0,)] == source.execute(running + " and pid <> pg_backend_pid()").fetchall()


def test_what_stands_in_it_is_read_by_another_program(yard, tmp_path):
    _, data = yard.build(query(MANY.format(rows=2_000)), format="parquet")
    headers, rows = read_parquet(data)

    assert (10, 2_000) == (len(headers), len(rows))
    assert [7, 55_433, False, 2] == [rows[6][place] for place in (0, 1, 3, 4)]
    assert 'a\tb\nc\r\x01\x1f"\\' == rows[6][7]

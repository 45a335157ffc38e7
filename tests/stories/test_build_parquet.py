"""A build of a Parquet file: two readings of one snapshot, types from what was read, and nothing claimed too early."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from tests.conformance.formats.readers import read_parquet
from tests.stories.building import Yard, query

from haulage.core.errors import BuildFailed
from haulage.core.progress import Phase
from haulage.core.reading import Column
from haulage.formats import parquet, parquet_groups
from haulage.sources.sqlite import SqliteSnapshot

UPTO = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 1000) select i from n"
MIXED = "select 1 as n, 1.5 as x, 'one' as t, 1 as some union all select 9007199254740993, null, '', 'two'"


@pytest.fixture
def yard(tmp_path):
    return Yard(tmp_path)


def parquet_of(yard, dataset, **asked):
    built, data = yard.build(dataset, format="parquet", **asked)
    return built, read_parquet(data)


def code_of(yard, dataset, **asked):
    with pytest.raises(BuildFailed) as failed:
        yard.build(dataset, format="parquet", **asked)
    return failed.value.code


def test_a_source_with_a_type_per_value_gives_columns_with_types(yard):
    built, (headers, rows) = parquet_of(yard, query(MIXED))

    assert ["n", "x", "t", "some"] == headers
    assert [[1, 1.5, "one", "1"], [9007199254740993, None, "", "two"]] == rows
    assert ({"code": "written_as_text", "count": 1, "columns": ["some"]},) == built.notices[1:]
    assert [None] * 4 == [column["type"] for column in built.columns], "those of the source, which has none"


def test_what_is_declared_makes_days_and_decimals_of_what_sqlite_keeps_as_text_and_doubles(yard):
    columns = {"day": Column("day", "Day", "date"), "price": Column("price", "Price", "decimal")}
    dataset = replace(query("select '2026-01-31' as day, 0.1 as price"), columns=columns)
    _, (headers, [[day, price]]) = parquet_of(yard, dataset)

    assert (["Day", "Price"], "2026-01-31", "0.1") == (headers, str(day), str(price))
    assert ("date", "Decimal") == (type(day).__name__, type(price).__name__)


def test_rows_written_meanwhile_are_in_neither_reading(yard, monkeypatch):
    with yard.writer() as source:
        source.execute("create table item (a)")
        source.execute("insert into item values (1), (2)")
    whole = SqliteSnapshot.batches
    readings = []

    def batches(snapshot, *asked):
        readings.append(1)
        with yard.writer() as source:
            source.execute("insert into item values ('three')")
        return whole(snapshot, *asked)

    monkeypatch.setattr(SqliteSnapshot, "batches", batches)
    built, (_, rows) = parquet_of(yard, query("select a from item"))

    assert ([[1], [2]], 2, 2) == (rows, built.rows, len(readings))


def test_what_the_source_mended_is_counted_once(yard):
    with yard.writer() as source:
        source.execute("create table item (a text)")
        source.execute("insert into item values (cast(x'61ff62' as text)), ('fine')")
    built, (_, rows) = parquet_of(yard, query("select a from item"))

    assert [["a\ufffdb"], ["fine"]] == rows
    assert {"code": "text_replaced", "count": 1} in built.notices


def test_an_export_without_rows_is_ready(yard):
    built, found = parquet_of(yard, query("select 1 as a, 2 as a where 1 = 0"))

    assert ((["a", "a_2"], []), 0) == (found, built.rows)


def test_progress_counts_only_what_stands_in_the_file(yard, monkeypatch):
    monkeypatch.setattr(parquet_groups, "GROUP_ROWS", 400)
    yard.build(query(UPTO), format="parquet")

    written = [each.processed for each in yard.progress if each.phase is Phase.WRITING]
    assert {0, 1_000} <= set(written) <= {0, 400, 800, 1_000}
    assert sorted(written) == written
    assert {1_000} == {each.total for each in yard.progress if each.phase is Phase.WRITING}


def test_rows_that_could_not_be_counted_in_time_are_known_after_the_first_reading(yard, monkeypatch):
    monkeypatch.setattr(SqliteSnapshot, "count", lambda *_asked: None)
    built = yard.build(query(UPTO), format="parquet")[0]

    assert (1_000, 1_000) == (built.rows, built.total)
    assert "rows_exceeded" == code_of(yard, query(UPTO), limits={"rows": 999})
    assert {Phase.COUNTING} == {each.phase for each in yard.progress}, "nothing was written"


def test_a_query_that_draws_lots_ends_without_a_file(yard):
    """Each row is a number or a text by chance: a thousand of them are not the same twice."""
    kinds = ", ".join(f"iif(random() > 0, 1, 1.5) as c{number}" for number in range(40))
    few = f"select {kinds} from (select 1 union all select 2)"

    codes = set()
    for _ in range(30):
        try:
            yard.build(query(few), format="parquet")
        except BuildFailed as failed:
            codes.add(failed.code)
    assert {"values_changed"} == codes


def test_a_footer_that_lost_its_end_is_no_file(yard, monkeypatch):
    whole = parquet.ParquetEncoder.end
    monkeypatch.setattr(parquet.ParquetEncoder, "end", lambda encoder: whole(encoder)[:-1])

    assert "verify_failed" == code_of(yard, query("select 1 as a"))


def test_a_worker_without_pyarrow_says_what_to_install(yard, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BuildFailed) as failed:
        yard.build(query("select 1 as a"), format="parquet")

    assert ("library_missing", "pip install 'haulage[parquet]'") == (failed.value.code, failed.value.detail)

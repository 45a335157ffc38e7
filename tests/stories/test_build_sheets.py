"""A build of a workbook: what a sheet cannot hold is refused before a row is written, or ends the run with a code."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
import python_calamine
from tests.conformance.formats.readers import Digits, read_xlsx
from tests.stories.building import Yard, query

from haulage.core.errors import BuildFailed
from haulage.core.progress import Phase
from haulage.core.reading import Column
from haulage.formats import xlsx
from haulage.sources.sqlite import SqliteSnapshot

UPTO = "with recursive n(i) as (select 1 union all select i + 1 from n where i < :rows) select i from n"
MOST = 1_048_575


@pytest.fixture
def yard(tmp_path):
    return Yard(tmp_path)


def upto(rows, **members):
    return query(UPTO.replace(":rows", str(rows)), **members)


def failure(yard, dataset, **asked):
    with pytest.raises(BuildFailed) as failed:
        yard.build(dataset, format="xlsx", **asked)
    return failed.value.code, failed.value.detail


def test_a_workbook_has_every_row_and_is_the_same_the_second_time(yard):
    dataset = query("select 1 as a, 'x' as b, null as c, 1.5 as d union all select 2, '', x'00ff', 12345678901234567")
    built, data = yard.build(dataset, format="xlsx")
    wanted = [[Digits("1"), "x", None, Digits("1.5")], [Digits("2"), "", "AP8=", "12345678901234567"]]

    assert (["a", "b", "c", "d"], wanted) == read_xlsx(data)
    assert (2, len(data)) == (built.rows, built.bytes)
    assert {"code": "bytes_as_base64", "count": 1} in built.notices
    assert {"code": "written_as_text", "count": 1, "columns": ["d"]} in built.notices
    again, same = yard.build(dataset, format="xlsx")
    assert (built.sha256, data) == (again.sha256, same)


def test_a_workbook_without_rows_is_ready_and_has_its_headers(yard):
    built, data = yard.build(query("select 1 as a, 2 as a where 1 = 0"), format="xlsx")

    assert (["a", "a_2"], []) == read_xlsx(data)
    assert 0 == built.rows


def test_one_row_too_many_is_refused_before_the_first_is_written(yard):
    others = ("csv", "xlsx", "json")
    code, detail = failure(yard, replace(upto(MOST + 1), formats=others))

    assert "format_rows_exceeded" == code
    said = "The export has more than the 1,048,575 rows that a sheet of Excel (XLSX) holds."
    assert f"{said} Ask for it in parts with sheets = several. Or choose another format: csv, json." == detail
    assert {Phase.COUNTING} == {progress.phase for progress in yard.progress}, "nothing was begun"
    assert [0] == [part.stat().st_size for part in yard.folder.glob("build-*/part")]


def test_one_row_too_many_that_was_not_counted_before_ends_the_run(yard, monkeypatch):
    monkeypatch.setattr(SqliteSnapshot, "count", lambda *_asked: None)
    monkeypatch.setattr(xlsx, "FORMAT", xlsx.FORMAT._replace(rows_max=999))

    code, detail = failure(yard, upto(1_000))
    assert "format_rows_exceeded" == code
    assert "999 rows" in detail
    assert 999 == yard.build(upto(999), format="xlsx")[0].rows


def test_the_rows_that_the_operator_allows_count_before_those_of_the_format(yard):
    assert "rows_exceeded" == failure(yard, upto(1_000), limits={"rows": 999})[0]


@pytest.mark.slow
def test_the_rows_beyond_a_full_sheet_are_in_a_second_one_where_that_is_asked_for(yard):
    built, data = yard.build(upto(MOST + 1), format="xlsx", options={"sheets": "several"})
    book = python_calamine.load_workbook(io.BytesIO(data))
    full, rest = [book.get_sheet_by_name(name).to_python() for name in book.sheet_names]

    assert MOST + 1 == built.rows
    assert (MOST + 1, ["i"], [1.0], [float(MOST)]) == (len(full), full[0], full[1], full[-1])
    assert [["i"], [float(MOST + 1)]] == rest


def test_one_column_too_many_is_refused_before_the_first_row(yard, monkeypatch):
    monkeypatch.setattr(SqliteSnapshot, "columns", lambda *_: tuple(Column(f"c{n}", f"c{n}") for n in range(16_385)))
    dataset = replace(query("select 1 as a"), formats=("xlsx", "ndjson"))

    said = "The export has 16,385 columns; a file of Excel (XLSX) holds 16,384. Choose another format: ndjson."
    assert ("format_columns_exceeded", said) == failure(yard, dataset)
    assert {Phase.COUNTING} == {progress.phase for progress in yard.progress}


@pytest.mark.parametrize(("length", "wanted"), [(32_767, None), (32_768, "cell_too_long")])
def test_a_cell_that_is_too_long_ends_the_run_and_nothing_is_cut(yard, length, wanted):
    dataset = query(f"select 1 as n, 'short' as note union all select 2, printf('%.*c', {length}, 'x')")
    if wanted is None:
        assert length == len(str(read_xlsx(yard.build(dataset, format="xlsx")[1])[1][1][1]))
        return
    code, detail = failure(yard, dataset)

    assert wanted == code
    assert "'note'" in detail
    assert "xxx" not in detail, "a public sentence holds no value"
    assert "Choose another format: csv, json, ndjson." in detail


def test_an_archive_that_lost_its_end_is_no_file(yard, monkeypatch):
    """What the disk keeps is compared with what the format ends with."""
    whole = xlsx.XlsxEncoder.end

    monkeypatch.setattr(xlsx.XlsxEncoder, "end", lambda encoder: whole(encoder)[:-1])
    assert "verify_failed" == failure(yard, query("select 1 as a"))[0]


def test_a_declared_day_is_a_day_in_the_sheet_also_where_the_source_keeps_text(yard):
    columns = {"day": Column("day", "Day", "date"), "price": Column("price", "Price", "decimal")}
    dataset = replace(query("select '2026-01-31' as day, 0.1 as price, 'x' as t"), columns=columns)
    headers, [[day, price, _]] = read_xlsx(yard.build(dataset, format="xlsx")[1])

    assert ["Day", "Price", "t"] == headers
    assert ("2026-01-31", Digits("0.1")) == (str(day), price)
    assert not isinstance(day, str)

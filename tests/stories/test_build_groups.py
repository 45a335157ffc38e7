"""A build of groups: what stands in the file in each format, what is told on the way, and what is refused."""

from __future__ import annotations

import csv
import io
import json

import pytest
from tests.conformance.formats.readers import read_parquet
from tests.stories.building import YARDS, query

from haulage.core.catalogue import Column, Dimension, Measure
from haulage.core.errors import BuildFailed
from haulage.core.progress import Phase
from haulage.exports.grouping import Grouping

SCRIPT = (
    "create table sales (country varchar(9), status varchar(9), total numeric(9,2), customer varchar(9))",
    """insert into sales values ('N', 'a', 1.5, 'x'), ('N', 'a', 3, 'y'), ('N', 'b', 10, 'x'), (null, 'a', 5, 'x'),
        (null, null, null, null)""",
)
DIMENSIONS = (Dimension("country", "country", "Country"), Dimension("status", "status"))
MEASURES = (
    Measure("sales", "count"),
    Measure("revenue", "sum", "total", "Revenue"),
    Measure("mean", "avg", "total"),
    Measure("customers", "count_distinct", "customer"),
)
SALES = query(
    "select * from sales",
    dimensions=DIMENSIONS,
    measures=MEASURES,
    columns={"total": Column("total", "total", "decimal")},
)
BOTH = ("country", "status")


@pytest.fixture(params=list(YARDS))
def yard(request, tmp_path):
    yard = YARDS[request.param](tmp_path, *SCRIPT)
    yield yard
    yard.close()


def told(text):
    return list(csv.reader(io.StringIO(text)))


def test_subtotals_in_csv_are_marked_and_empty_cells_of_groups_are_not(yard):
    built, data = yard.build(SALES, grouping=Grouping(BOTH, "rollup"), columns=["sales", "mean", "customers"])

    assert [
        ["row_kind", "row_level", "Country", "status", "sales", "mean", "customers"],
        ["regular", "country,status", "N", "a", "2", "2.25", "2"],
        ["regular", "country,status", "N", "b", "1", "10", "1"],
        ["subtotal", "country", "N", "", "3", "4.833333333333", "2"],
        ["regular", "country,status", "", "a", "1", "5", "1"],
        ["regular", "country,status", "", "", "1", "", "0"],
        ["subtotal", "country", "", "", "2", "5", "1"],
        ["total", "", "", "", "5", "4.875", "2"],
    ] == told(data.decode())
    assert (7, 7, 4) == (built.rows, built.total, built.logical_count)


def test_a_pivot_is_cells_in_json_and_a_table_in_csv(yard):
    grouping = Grouping(BOTH, "total", ("status",))
    cells, data = yard.build(SALES, format="json", grouping=grouping, columns=["sales"])
    table, lines = yard.build(SALES, grouping=grouping, columns=["sales"])

    assert {"row_kind": "regular", "row": {"country": "N"}, "column": {"status": "a"}, "measures": {"sales": 2}} == (
        json.loads(data)[0]
    )
    assert {"row_kind": "total", "row": {}, "column": {}, "measures": {"sales": 5}} == json.loads(data)[-1]
    assert [
        ["row_kind", "row_level", "Country", "a", "b", "(null)", "(total)"],
        ["regular", "country", "N", "2", "1", "", "3"],
        ["regular", "country", "", "1", "", "1", "2"],
        ["total", "", "", "3", "1", "1", "5"],
    ] == told(lines.decode())
    assert (10, 4) == (cells.rows, cells.logical_count)
    assert (3, 4) == (table.rows, table.logical_count)


def test_progress_aggregates_without_a_total_until_a_record_is_written(yard):
    yard.build(SALES, grouping=Grouping(BOTH, "rollup"))

    first, *rest = yard.progress
    assert (Phase.AGGREGATING, None, None, None) == first
    assert (Phase.WRITING, 7, 7, 4) == rest[-2]
    assert (Phase.PUBLISHING, 7, 7, 4) == rest[-1]
    assert all(each.processed for each in rest)


def test_groups_of_nothing(yard):
    nothing = SALES.__class__(**{name: getattr(SALES, name) for name in SALES.__slots__} | {"visible": "1 = 0"})
    built, data = yard.build(nothing, grouping=Grouping(BOTH), columns=["sales"])

    assert "row_kind,Country,status,sales\n" == data.decode()
    assert (0, 0, 0) == (built.rows, built.total, built.logical_count)
    assert (Phase.WRITING, 0, 0, 0) == yard.progress[-2]


def test_types_of_a_grouped_file(yard):
    built, data = yard.build(SALES, format="parquet", grouping=Grouping(BOTH, "total"))
    headers, rows = read_parquet(data)

    assert ["row_kind", "row_level", "Country", "status", "sales", "Revenue", "mean", "customers"] == list(headers)
    assert ("total", "", None, None, 5, 19.5, 4.875, 2) == tuple(
        float(cell) if index in (5, 6) else cell for index, cell in enumerate(rows[-1])
    )
    assert ["text", "text", "integer", "decimal", "decimal", "integer"] == [
        column["type"] for column in built.columns if column["key"] not in BOTH
    ]


@pytest.mark.parametrize(
    ("limit", "value", "pivot"),
    [("groups", 3, None), ("rows", 6, None), ("pivot_columns", 3, ("status",))],
    ids=["groups_exceeded", "rows_exceeded", "pivot_columns_exceeded"],
)
def test_more_than_is_allowed_has_a_code_of_its_own_and_what_is_allowed_a_file(yard, request, limit, value, pivot):
    asked = {"grouping": Grouping(BOTH, "rollup", pivot), "columns": ["sales"]}
    expected = request.node.callspec.id.partition("-")[2]
    with pytest.raises(BuildFailed) as failed:
        yard.build(SALES, limits={limit: value}, **asked)
    built, _ = yard.build(SALES, limits={limit: value + 1}, **asked)

    assert expected == failed.value.code
    assert built.logical_count == 4


def test_groups_and_subtotals_are_of_one_instant_whatever_is_written_meanwhile(yard, monkeypatch):
    snapshot = yard.snapshot_class
    grouped = snapshot.grouped

    def disturbed(self, *asked, **how):
        with yard.writer() as source:
            source.execute("insert into sales values ('new', 'new', 1, 'new')")
        return grouped(self, *asked, **how)

    monkeypatch.setattr(snapshot, "grouped", disturbed)
    built, data = yard.build(SALES, grouping=Grouping(BOTH, "cube"))

    assert "new" not in data.decode()
    assert built.logical_count == 4


def test_a_sum_of_what_is_no_number_ends_the_run_and_not_in_a_sum(yard):
    wrong = query("select * from sales", dimensions=DIMENSIONS, measures=(Measure("m", "sum", "customer"),))
    with pytest.raises(BuildFailed) as failed:
        yard.build(wrong, grouping=Grouping(("status",)))

    assert failed.value.code == "source_failed"
    assert "number" in failed.value.cause

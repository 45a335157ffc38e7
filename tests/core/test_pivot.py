"""A cross-tab in literal words: its cells, its wide table with headers, and how wide it may be."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from haulage.core.errors import BuildFailed
from haulage.core.grouping import Dimension, Grouped, Measure, levels_of
from haulage.exports.pivot import Pivot, Wide
from haulage.exports.rollup import roll_up

COUNTRY_STATUS = (Dimension("country", "Country", "c"), Dimension("status", "Status", "s"))
ORDERS, REVENUE = Measure("orders", "Orders", "count"), Measure("revenue", "Revenue", "sum", "total")
FINEST = [("DE", "shipped", 2, 30), ("DE", None, 1, 5), (None, "open", 4, None), (None, "shipped", 1, 1)]


def pivot(subtotals, finest=FINEST, measures=(ORDERS, REVENUE)):
    levels = levels_of(subtotals, ["country", "status"], ["status"])
    return Pivot(roll_up(Grouped(COUNTRY_STATUS, measures, levels, (1,)), [finest], groups_max=99))


def test_cells_name_what_they_are_and_a_rolled_up_dimension_is_absent():
    found = [(cell.kind, cell.row, cell.column, cell.measures["orders"]) for cell in pivot("total")]

    assert [
        ("regular", {"country": "DE"}, {"status": "shipped"}, 2),
        ("regular", {"country": "DE"}, {"status": None}, 1),
        ("subtotal", {"country": "DE"}, {}, 3),
        ("regular", {"country": None}, {"status": "open"}, 4),
        ("regular", {"country": None}, {"status": "shipped"}, 1),
        ("subtotal", {"country": None}, {}, 5),
        ("subtotal", {}, {"status": "open"}, 4),
        ("subtotal", {}, {"status": "shipped"}, 3),
        ("subtotal", {}, {"status": None}, 1),
        ("total", {}, {}, 8),
    ] == found


def test_a_wide_table_has_a_column_for_each_measure_of_each_key_across_and_totals_last():
    table = Wide(pivot("total"), 8)

    assert [
        "open: Orders", "open: Revenue", "shipped: Orders", "shipped: Revenue",
        "(null): Orders", "(null): Revenue", "(total): Orders", "(total): Revenue",
    ] == [column.header for column in table.columns]  # fmt: skip
    assert [
        ("regular", (0,), ("DE",), (None, None, 2, 30, 1, 5, 3, 35), 2),
        ("regular", (0,), (None,), (4, None, 1, 1, None, None, 5, 1), 2),
        ("total", (), (None,), (4, None, 3, 31, 1, 5, 8, 36), 0),
    ] == list(table)
    assert list(table) == list(table)
    assert 3 == table.records


def test_one_measure_is_not_named_in_headers():
    finest = [(*row[:2], row[2]) for row in FINEST]

    assert ["open", "shipped", "(null)"] == [
        column.header for column in Wide(pivot(None, finest, (ORDERS,)), 99).columns
    ]


def test_headers_show_values_of_all_types_and_stay_distinct():
    values = ["(null)", None, "", True, 12, Decimal("1E+2"), 0.5, b"\x00\xff", date(2026, 11, 30), "a / b"]
    finest = [("DE", value, 1) for value in values]

    assert sorted([
        "(null)", '"(null)"', "(empty)", "true", "12", "100", "0.5", "00ff", "2026-11-30", "a / b",
    ]) == sorted(column.header for column in Wide(pivot(None, finest, (ORDERS,)), 99).columns)  # fmt: skip


def test_several_dimensions_across_are_joined_and_their_totals_stand_behind_each():
    dimensions = (Dimension("year", "", ""), Dimension("quarter", "", ""))
    grouped = Grouped(dimensions, (ORDERS,), ((0,), ()), (0, 1))
    finest = [(2025, "Q1", 1), (2025, "Q2", 2), (2024, "Q4", 3)]

    table = Wide(Pivot(roll_up(grouped, [finest], groups_max=9)), 9)

    assert ["2024 / Q4", "2024 / (total)", "2025 / Q1", "2025 / Q2", "2025 / (total)", "(total)"] == [
        column.header for column in table.columns
    ]
    assert [("regular", (), (), (3, 3, 1, 2, 3, 6), 3)] == list(table)


def test_a_pivot_of_nothing_has_its_grand_total_where_that_is_asked_for():
    assert ([], []) == (list(Wide(pivot(None, []), 9)), list(pivot(None, [])))
    assert [("total", (), (None,), (0, None), 0)] == list(Wide(pivot("total", []), 9))
    assert [("total", {}, {}, {"orders": 0, "revenue": None})] == list(pivot("total", []))
    assert (1, 1, 0) == (Wide(pivot("total", []), 9).records, pivot("total", []).records, pivot(None, []).records)


def test_more_columns_than_allowed_are_refused():
    assert 8 == len(Wide(pivot("total"), 8).columns)
    with pytest.raises(BuildFailed) as failed:
        Wide(pivot("total"), 7)

    assert ("pivot_columns_exceeded", "The pivot has more than the 7 columns allowed.") == (
        failed.value.code,
        failed.value.detail,
    )


def test_headers_are_no_longer_than_a_run_can_keep():
    def headed(characters):
        finest = [("DE", "a" * 100_000, 1), ("DE", "b" * (characters - 100_000), 1)]
        return Wide(pivot(None, finest, (ORDERS,)), 99).columns

    assert 200_000 == sum(len(column.header) for column in headed(200_000))
    with pytest.raises(BuildFailed) as failed:
        headed(200_001)
    assert failed.value.code == "pivot_columns_exceeded"

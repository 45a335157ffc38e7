"""Groups, subtotals and pivots of every source against a plain model of Python, on drawn rows with NULLs and ties."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from decimal import ROUND_HALF_EVEN, Decimal

import pytest
from tests.conformance.source_cases import CASES
from tests.promises import NotPromised

from haulage.core.errors import BuildFailed
from haulage.core.grouping import Dimension, Grouped, Measure, levels_of
from haulage.core.reading import Reading
from haulage.exports.counts import counts_of_source
from haulage.exports.grouped import GroupedSnapshot

pytestmark = pytest.mark.slow

TEXTS = [None, "", "a", "A", "a ", "ä", "Z", "null", "(total)"]
COLUMNS = ("tenant", "country", "status", "year", "amount", "weight", "customer", "day")
MEASURES = (
    Measure("rows", "rows", "count"),
    Measure("paid", "paid", "count", "amount"),
    Measure("revenue", "revenue", "sum", "amount"),
    Measure("mean", "mean", "avg", "amount"),
    Measure("least", "least", "min", "amount"),
    Measure("weights", "weights", "sum", "weight"),
    Measure("years", "years", "sum", "year"),
    Measure("last", "last", "max", "customer"),
    Measure("first_day", "first day", "min", "day"),
    Measure("customers", "customers", "count_distinct", "customer"),
)
LIMITS = {"groups": 1_000_000, "pivot_columns": 1_000}
SQL = "select tenant, country, status, year, amount, weight, customer, day from sales"
DECLARED = {"amount": ("amount", "decimal"), "day": ("day", "date")}


def drawn(rng, count):
    return [
        (
            rng.choice(["ours", "ours", "theirs"]),
            rng.choice(TEXTS),
            rng.choice([None, "new", "New", "sent"]),
            rng.choice([None, 2024, 2025, -1]),
            rng.choice([None, Decimal("0.10"), Decimal("0.20"), Decimal("-1234567.89"), Decimal("0.00")]),
            rng.choice([None, 0.1, 0.25, -3.5]),
            rng.choice([None, "", "b", "B", "b ", "é"]),
            rng.choice([None, "2024-02-29", "1999-12-31"]),
        )
        for _ in range(count)
    ]


def literal(value):
    if value is None:
        return "null"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


@pytest.fixture(params=list(CASES))
def case(request, tmp_path):
    made = CASES[request.param](tmp_path)
    made.execute(
        "create table sales (tenant varchar(10), country varchar(20), status varchar(20), year integer,"
        " amount decimal(12,2), weight double precision, customer varchar(20), day date)"
    )
    yield made
    made.close()


def fill(case, rows):
    for some in itertools.batched(rows, 200) if hasattr(itertools, "batched") else [rows]:
        case.execute("insert into sales values " + ", ".join(f"({', '.join(map(literal, row))})" for row in some))


def reading_of(visible="tenant = 'ours'"):
    return Reading(SQL, {}, {}, visible, ("tenant",), (), None, DECLARED)


def grouped_by(names, subtotals=None, across=(), measures=MEASURES):
    order = [*(name for name in names if name not in across), *across]
    places = tuple(range(len(order) - len(across), len(order)))
    dimensions = tuple(Dimension(name, name, name) for name in order)
    return Grouped(dimensions, tuple(measures), levels_of(subtotals, order, across), places)


def rows_of(case, grouped, *, cells=False, reading=None):
    reading = reading or reading_of()
    with case.open().snapshot() as snapshot:
        groups = GroupedSnapshot(snapshot, grouped.to_plan(), LIMITS, cells=cells)
        count = groups.count(reading, 10)
        columns = groups.columns(reading)
        with contextlib.closing(groups.batches(reading)) as batches:
            rows = [row for batch in batches for row in batch]
        assert count == len(rows)
        return columns, rows, groups.groups


# -- the model -----------------------------------------------------------------------------------------


def measured(measure, rows):
    cells = [row[COLUMNS.index(measure.column)] for row in rows] if measure.column else rows
    cells = [cell for cell in cells if cell is not None]
    if measure.function == "count":
        return len(cells)
    if measure.function == "count_distinct":
        return len(set(cells))
    if not cells:
        return None
    if measure.function == "sum":
        return math.fsum(cells) if isinstance(cells[0], float) else sum(cells)
    if measure.function == "avg":
        return (sum(cells) / Decimal(len(cells))).quantize(Decimal("1e-12"), ROUND_HALF_EVEN)
    return min(cells) if measure.function == "min" else max(cells)


def modelled(rows, grouped):
    """What stands at each level: (level, keys) -> measures."""
    found = {}
    for level in (grouped.full, *grouped.levels):
        groups = {} if level else {(None,) * len(grouped.dimensions): []}
        for row in rows:
            key = tuple(
                row[COLUMNS.index(each.column)] if place in level else None
                for place, each in enumerate(grouped.dimensions)
            )
            groups.setdefault(key, []).append(row)
        for key, inside in groups.items():
            found[level, key] = tuple(measured(each, inside) for each in grouped.measures)
    return found


def alike(one, other):
    if isinstance(one, float) or isinstance(other, float):
        return one is not None and other is not None and math.isclose(float(one), float(other), rel_tol=1e-12)
    return one == other and isinstance(one, str) == isinstance(other, str)


def assert_alike(expected, got):
    assert expected.keys() == got.keys()
    for key, values in expected.items():
        assert all(map(alike, values, got[key])), (key, values, got[key])


def level_named(grouped, name):
    keys = [each.key for each in grouped.dimensions]
    return tuple(sorted(keys.index(each) for each in name.split(",") if each))


SUBTOTALS = [None, "total", "rollup", "cube", [["year"], []], [["status", "year"], ["country", "year"]]]


@pytest.mark.parametrize("subtotals", SUBTOTALS, ids=str)
def test_every_level_is_what_a_plain_model_says(case, subtotals, seed):
    rng = random.Random(seed)
    rows = drawn(rng, 150)
    fill(case, rows)
    grouped = grouped_by(("country", "status", "year"), subtotals)
    columns, got, groups = rows_of(case, grouped)
    visible = [row for row in rows if row[0] == "ours"]

    marks = 2 if grouped.levels else 1
    found = {}
    for kind, *cells in got:
        level = level_named(grouped, cells[0]) if grouped.levels else grouped.full
        keys, values = tuple(cells[marks - 1 : marks + 2]), tuple(cells[marks + 2 :])
        assert kind == ("regular" if level == grouped.full else "subtotal" if level else "total")
        assert (level, keys) not in found
        found[level, keys] = values
    assert_alike(modelled(visible, grouped), found)
    assert groups == len({row[1:4] for row in visible})
    assert ["row_kind", "row_level"][:marks] == [column.header for column in columns[:marks]]


def test_a_pivot_as_cells_has_the_same_numbers_and_names_only_what_is_not_rolled_up(case, seed):
    rows = drawn(random.Random(seed), 120)
    fill(case, rows)
    grouped = grouped_by(("country", "status", "year"), "total", ("status",))
    _, got, groups = rows_of(case, grouped, cells=True)
    keys = [each.key for each in grouped.dimensions]
    found = {}
    for _kind, row, column, measures in got:
        held = row | column
        level = tuple(place for place, key in enumerate(keys) if key in held)
        found[level, tuple(held.get(key) for key in keys)] = tuple(measures.values())

    visible = [row for row in rows if row[0] == "ours"]
    assert_alike(modelled(visible, grouped), found)
    assert groups == len({row[1:4] for row in visible})


def test_a_pivot_as_a_table_has_a_column_for_each_value_and_totals_behind_them(case):
    fill(case, [("ours", "N", "a", 1, Decimal("1.50"), None, None, None),
                ("ours", "N", "b", 1, Decimal("2.50"), None, None, None),
                ("ours", "S", "a", 1, Decimal("4.00"), None, None, None),
                ("theirs", "T", "c", 1, Decimal("8.00"), None, None, None),
                ("ours", None, None, 1, None, None, None, None)])  # fmt: skip
    grouped = grouped_by(("country", "status"), "total", ("status",), [MEASURES[2]])
    columns, got, groups = rows_of(case, grouped)

    assert ["row_kind", "row_level", "country", "a", "b", "(null)", "(total)"] == [each.header for each in columns]
    one, two = Decimal("1.50"), Decimal("2.50")
    assert [
        ("regular", "country", "N", one, two, None, Decimal("4.00")),
        ("regular", "country", "S", Decimal("4.00"), None, None, Decimal("4.00")),
        ("regular", "country", None, None, None, None, None),
        ("total", "", None, Decimal("5.50"), two, None, Decimal("8.00")),
    ] == got
    assert groups == 4


def test_averages_and_distinct_counts_of_every_level_come_from_the_rows(case):
    fill(case, [("ours", "N", "a", 1, 0, None, "x", None), ("ours", "N", "a", 3, 0, None, "y", None),
                ("ours", "N", "b", 10, 0, None, "x", None), ("ours", "S", "a", 5, 0, None, "x", None)])  # fmt: skip
    measures = [Measure("mean", "mean", "avg", "year"), Measure("people", "people", "count_distinct", "customer")]
    _, got, _ = rows_of(case, grouped_by(("country", "status"), "rollup", measures=measures))

    kept = {(row[2], row[3]): row[4:] for row in got}
    assert (Decimal("4.666666666667"), 2) == kept["N", None]
    assert (Decimal("4.75"), 2) == kept[None, None]
    assert (Decimal(2), 2) == kept["N", "a"]


def test_what_a_screen_counts_is_what_an_export_writes_and_hides_what_is_hidden(case):
    rows = drawn(random.Random(3), 90)
    fill(case, rows)
    plan = {
        **reading_of()._asdict(),
        "grouped": grouped_by(("country", "status")).to_plan(),
    }
    counts = counts_of_source(case.open, plan, 10, everybody=True, given_up=None)
    nobody = counts_of_source(case.open, {**plan, "visible": "1 = 0"}, 10, everybody=False, given_up=None)

    assert counts.visible_output_count == rows_of(case, grouped_by(("country", "status")))[2]
    assert counts.output_count == len({row[1:3] for row in rows})
    assert (None, 0) == (nobody.output_count, nobody.visible_output_count)


def test_no_rows_give_no_group_and_a_total_of_nothing(case):
    grouped = grouped_by(("country", "status"), "rollup")
    _, got, groups = rows_of(case, grouped)

    nothing = (0, 0, None, None, None, None, None, None, None, 0)
    assert [("total", "", None, None, *nothing)] == got
    assert groups == 0


def test_a_column_that_is_not_there_or_no_number_is_named(case):
    fill(case, drawn(random.Random(5), 20))
    unknown = grouped_by(("country",), measures=[Measure("m", "m", "sum", "nowhere")])
    with pytest.raises(BuildFailed) as failed:
        rows_of(case, unknown)
    assert failed.value.cause == "measures: the query has no column 'nowhere'"

    with pytest.raises(BuildFailed) as failed:
        rows_of(case, grouped_by(("year",), measures=[Measure("m", "m", "sum", "country")]))
    assert "number" in failed.value.cause


def test_a_column_is_found_as_sql_finds_it_and_keeps_its_type(case):
    fill(case, drawn(random.Random(5), 20))
    grouped = Grouped((Dimension("c", "c", "COUNTRY"),), (Measure("m", "m", "sum", "Amount"),))
    columns, got, _ = rows_of(case, grouped)

    assert columns[-1].type == "decimal"
    assert got


def test_sums_beyond_sixty_four_bits_are_exact(case):
    big = 2_000_000_000
    sql = f"select 'a' as k, {big} * {big} as n from (select 1 as one union all select 2 union all select 3) as three"
    if not case.typed:
        sql = sql.replace(f"{big} * {big}", str(big * big))
    else:
        sql = sql.replace(f"{big} *", f"cast({big} as decimal(20, 0)) *")
    reading = Reading(sql, {}, {}, None, (), (), None, {})
    grouped = Grouped((Dimension("k", "k", "k"),), (Measure("n", "n", "sum", "n"),), ((),))
    _, got, _ = rows_of(case, grouped, reading=reading)

    assert [3 * big * big] * 2 == [row[-1] for row in got]


def test_sums_beyond_what_the_engine_holds_are_exact(case):
    """DuckDB adds up 38 digits, and the largest of its whole numbers as floats."""
    if not case.url.startswith("duckdb"):
        raise NotPromised("sums of it have every digit by themselves")
    most, wide, cents = 2**127 - 1, 2**128 - 1, "-9999999999999999999999999999999999.9999"
    values = f"({most}::hugeint, {wide}::uhugeint, {cents}::decimal(38, 4), '1' || repeat('0', 50))"
    drawn_from = f"(values {values}, {values}, (null, 7, -0.05, '1')) as v (h, u, d, b)"
    rows = f"select 'a' as k, h, u, d, b::bignum as b from {drawn_from}"
    reading = Reading(rows, {}, {}, None, (), (), None, {})
    sums = [Measure(f"s{key}", f"s{key}", "sum", key) for key in "hudb"]
    mean = Measure("mean", "mean", "avg", "d")
    _, got, _ = rows_of(case, Grouped((Dimension("k", "k", "k"),), (*sums, mean), ((),)), reading=reading)
    _, small, _ = rows_of(case, Grouped((Dimension("k", "k", "k"),), (sums[1],), ((),)), reading=reading)

    total = Decimal("-20000000000000000000000000000000000.0498")
    assert [(2 * most, 2 * wide + 7, total, 2 * 10**50 + 1)] * 2 == [row[-5:-1] for row in got]
    assert {"int", "Decimal"} == {type(cell).__name__ for row in got for cell in row[-5:]}
    assert [2 * wide + 7] * 2 == [row[-1] for row in small]


def test_a_long_sum_changes_no_other_one(case):
    """SQLite is asked again where whole numbers overflow; what it says of floats beside them stays what it was."""
    if case.typed:
        raise NotPromised("each of its columns has one type, and none overflows")
    big = 2**62
    rows = ["('a', 0.1, 7, 1)", f"('a', 0.2, {big}, 2.5)", f"('a', null, {big}, 1)", f"('b', null, {big}, 1)"]
    sql = f"select column1 as k, column2 as f, column3 as n, column4 as i from (values {', '.join(rows)})"
    declared = {"i": ("i", "integer")}
    reading = Reading(sql, {}, {}, None, (), (), None, declared)
    sums = [Measure(f"s{key}", f"s{key}", "sum", key) for key in ("f", "i", "n")]
    _, got, _ = rows_of(case, Grouped((Dimension("k", "k", "k"),), tuple(sums), ((),)), reading=reading)
    _, short, _ = rows_of(case, Grouped((Dimension("k", "k", "k"),), tuple(sums[:2]), ((),)), reading=reading)

    assert [row[-3:-1] for row in got] == [row[-2:] for row in short]
    assert [4.5, 1, 5.5] == [row[-2] for row in got]
    assert [2 * big + 7, big, 3 * big + 7] == [row[-1] for row in got]
    assert {int} == {type(row[-1]) for row in got}
    text = reading._replace(sql=sql.replace("'b', null", "'b', '12'"))
    with pytest.raises(BuildFailed) as failed:
        rows_of(case, Grouped((Dimension("k", "k", "k"),), tuple(sums)), reading=text)
    assert "no number" in failed.value.cause


def test_infinite_days_are_compared_by_the_source(case):
    if not case.url.startswith(("postgresql", "duckdb")):
        raise NotPromised("no day of it is infinite")
    sql = "select 'a' as k, cast(d as date) as d from (values ('infinity'), ('2024-01-01'), ('-infinity')) as v (d)"
    reading = Reading(sql, {}, {}, None, (), (), None, {})
    measures = (Measure("first", "first", "min", "d"), Measure("last", "last", "max", "d"))
    _, got, _ = rows_of(case, Grouped((Dimension("k", "k", "k"),), measures, ((),)), reading=reading)

    assert [("-infinity", "infinity")] * 2 == [row[-2:] for row in got]


def test_levels_of_any_dimension_are_in_the_order_of_time(case):
    """The source sorts leading days by time; what is sorted of their texts must not stand in another order."""
    if not case.url.startswith(("postgresql", "duckdb")):
        raise NotPromised("no year of it has five digits")
    behind = "(BC)" if case.url.startswith("duckdb") else "BC"
    days = ["-infinity", f"0044-03-15 {behind}", "0044-03-15", "9999-12-31", "10000-01-01", "infinity", None]
    values = ", ".join(f"({place}, {literal(day)})" for place, day in enumerate(days[::-1]))
    sql = f"select n % 2 as k, cast(d as date) as d, cast(d as timestamp) as t from (values {values}) as v (n, d)"
    reading = Reading(sql, {}, {}, None, (), (), None, {})
    for column in ("d", "t"):
        dimensions = (Dimension("k", "k", "k"), Dimension("d", "d", column))
        counted = (Measure("n", "n", "count"),)
        _, led, _ = rows_of(case, Grouped((dimensions[1],), counted), reading=reading)
        _, got, _ = rows_of(case, Grouped(dimensions, counted, ((1,),)), reading=reading)
        wide, _, _ = rows_of(case, Grouped(dimensions, counted, (), (1,)), reading=reading)

        assert [row[-2] for row in got if row[0] == "subtotal"] == [row[-2] for row in led]
        assert [each.header for each in wide][2:] == [row[-2] or "(null)" for row in led]
        if column == "d":
            assert days == [row[-2] for row in led]

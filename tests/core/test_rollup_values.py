"""The arithmetic of a roll-up in literal numbers, and what a source may not do."""

from __future__ import annotations

from decimal import Decimal
from math import inf, isnan, nan

import pytest

from haulage.core.errors import BuildFailed
from haulage.core.grouping import Dimension, Grouped, Measure, mask_of, order_key, states_of
from haulage.exports.rollup import roll_up

BIG = 2**63


def rolled(function, *states, own=(), exact=(), groups_max=99):
    """The only total over groups of one dimension, each with its states."""
    grouped = Grouped((Dimension("d", "D", "d"),), (Measure("m", "M", function, "x"),), ((),))
    finest = [[(place, *cells)] for place, cells in enumerate(states)]
    return list(roll_up(grouped, finest, groups_max=groups_max, own=own, exact=exact))


def total(function, *states):
    *regular, last = rolled(function, *states)
    assert "total" == last[0]
    assert len(states) == len(regular)
    return last[3][0]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([], None),
        ([None, None], None),
        ([1, None, 2], 3),
        ([BIG - 1, 1], BIG),
        ([-BIG, -1, BIG], -1),  # -2**63 is how NULL is packed
        ([None, -BIG], -BIG),
        ([10**30, 1], 10**30 + 1),
        ([Decimal("0.10"), Decimal("0.20"), None], Decimal("0.30")),
        ([Decimal("0.1"), Decimal("0.25")], Decimal("0.35")),
        ([None, Decimal("1.5"), 2], Decimal("3.5")),
        ([Decimal(10**38 - 1), Decimal("0.01")],
         Decimal("99999999999999999999999999999999999999.01")),
        ([Decimal("99999999999999999999.99"), Decimal("0.01")], Decimal("100000000000000000000.00")),
        ([Decimal("1E+3"), Decimal("1E-7")], Decimal("1000.0000001")),
        ([Decimal("1E+127"), Decimal(1)], Decimal("1" + "0" * 126 + "1")),  # how NULL is packed
        ([Decimal("1E-99"), Decimal("1E-100")], Decimal("1.1E-99")),
        ([Decimal(-(2**63)), None, Decimal(1)], Decimal(1 - 2**63)),
        ([None, Decimal("2.50"), None, Decimal("1.5")], Decimal("4.00")),
        ([Decimal("Infinity"), Decimal(1)], Decimal("Infinity")),
        ([0.1, 0.2, 0.3, None], 0.6),
        ([1e16, 1.0, 1.0, -1e16], 2.0),
        ([1e308, 1e308, -1e308], 1e308),
        ([1e308, 1e308], inf),
        ([-1e308, -1e308], -inf),
        ([inf, 1.0], inf),
        ([1, 0.5], 1.5),  # SQLite adds whole numbers and floats in one column
        ([2**53 + 1, 0.0, -(2**53)], 1.0),
        ([2**53 + 1, -(2.0**53)], 1.0),
        ([2**62, 1, 0.5], float(2**62)),
    ],
)  # fmt: skip
def test_sums_are_exact_and_those_of_floats_are_rounded_once(cells, expected):
    found = total("sum", *([cell] for cell in cells))

    assert (expected, type(expected), str(expected)) == (found, type(found), str(found))


def test_infinities_of_two_signs_and_nan_make_nan():
    for cells in ([inf, -inf], [nan, 1.0], [Decimal("Infinity"), Decimal("-Infinity")], [Decimal("NaN"), Decimal(1)]):
        assert isnan(total("sum", *([cell] for cell in cells)))


def test_a_cell_that_stands_alone_is_what_the_source_said():
    for cell in (Decimal("-0.00"), Decimal("1.50"), Decimal("1E+3"), 10**30, -0.0, True, "text", b"bytes", -BIG, None):
        (_, _, _, (first,)), (_, _, _, (second,)), _ = rolled("max", [cell], [None])

        assert (cell, str(cell), type(cell)) == (first, str(first), type(first))
        assert second is None


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([[1, 2], [1, 1]], "0.666666666667"),
        ([[-1, 2], [-1, 1]], "-0.666666666667"),
        ([[1, 8]], "0.125"),
        ([[200, 2], [None, 0]], "100"),
        ([[0, 3]], "0"),
        ([[1, 2_000_000_000_000]], "0"),  # half of the last place goes to the even one
        ([[3, 2_000_000_000_000]], "0.000000000002"),
        ([[-3, 2_000_000_000_000]], "-0.000000000002"),
        ([[Decimal("10.50"), 2], [Decimal("0.10"), 1]], "3.533333333333"),
        ([[Decimal("0.00000000000049"), 1]], "0"),
        ([[Decimal("1E+3"), 3]], "333.333333333333"),
        ([[10**30, 3]], "333333333333333333333333333333.333333333333"),
        ([[Decimal("Infinity"), 3]], "Infinity"),
    ],
)
def test_an_average_is_the_exact_quotient_at_twelve_places(states, expected):
    found = total("avg", *states)

    assert (expected, Decimal) == (f"{found:f}", type(found))
    assert "E+" not in str(found)


def test_an_average_of_floats_is_a_float_and_of_nothing_is_null():
    assert (0.25, None) == (total("avg", [0.5, 1], [0.0, 1]), total("avg", [None, 0], [None, 0]))
    assert total("avg") is None


@pytest.mark.parametrize(
    ("cells", "least", "greatest"),
    [
        ([3, None, -2], -2, 3),
        ([Decimal("1.5"), Decimal("0.25")], Decimal("0.25"), Decimal("1.5")),
        ([Decimal("1.50"), Decimal("0.25")], Decimal("0.25"), Decimal("1.50")),
        (["b", "a", None], "a", "b"),
        ([b"x", "x", 7, 7.5, None], 7, b"x"),  # SQLite's order of types
        ([nan, 1.0, 2.0], 1.0, nan),
        ([2.0, nan, 1.0], 1.0, nan),
        ([Decimal("NaN"), Decimal(1)], Decimal(1), nan),
        ([None, None], None, None),
        ([True, False], False, True),
    ],
)
def test_least_and_greatest_are_those_of_databases(cells, least, greatest):
    found = [total(function, *([cell] for cell in cells)) for function in ("min", "max")]

    assert [str(least), str(greatest).lower()] == [str(found[0]), str(found[1]).lower()]


def test_a_total_of_nothing_counts_nothing():
    assert [("total", (), (None,), (0,))] == rolled("count")
    assert [("total", (), (None,), (0,))] == rolled("count_distinct")
    assert [("total", (), (None,), (0,))] == rolled("count_distinct", own=[[(1, None, 0)]])
    assert [("total", (), (None,), (None,))] == rolled("max", exact=["m"])


def test_what_cannot_be_added_is_refused():
    with pytest.raises(BuildFailed) as failed:
        rolled("sum", ["$1.00"], ["$2.00"])

    assert ("source_failed", "cannot be added: str") == (failed.value.code, failed.value.cause)


def test_more_groups_than_allowed_are_refused():
    assert 4 == len(rolled("count", [1], [1], [1], groups_max=3))
    with pytest.raises(BuildFailed) as failed:
        rolled("count", [1], [1], [1], [1], groups_max=3)

    assert ("groups_exceeded", "The export has more than the 3 groups allowed.") == (
        failed.value.code,
        failed.value.detail,
    )


@pytest.mark.parametrize(
    ("keys", "cause"),
    [
        ([("a", 1), ("b", 1), ("a", 2)], "a source gave equal values of d0 apart from each other"),
        ([("a", 1), ("a", 2), ("a", 1)], "a source gave equal values of d1 apart from each other"),
        ([("a", 1), ("a", 1.0)], "a source gave one group twice"),
        ([(nan, 1), (float("nan"), 1)], "a source gave one group twice"),
    ],
)
def test_a_source_that_gives_equal_groups_apart_is_refused(keys, cause):
    grouped = Grouped((Dimension("d0", "", ""), Dimension("d1", "", "")), (), ((0,),))

    for batches in ([keys], [[key] for key in keys]):
        with pytest.raises(BuildFailed) as failed:
            roll_up(grouped, batches, groups_max=9)
        assert ("source_failed", cause) == (failed.value.code, failed.value.cause)
    assert 4 == len(list(roll_up(grouped, [[("a", 1), ("b", 1)]], groups_max=9)))


@pytest.mark.parametrize(
    "own",
    [
        [(1, "a", None, 1), (1, "b", None, 1)],  # no total
        [(1, "a", None, 1), (3, None, None, 1)],
        [(1, "a", None, 1), (1, "c", None, 1), (3, None, None, 1)],
        [(1, "a", None, 1), (1, "b", None, 1), (1, "c", None, 1), (3, None, None, 1)],
    ],
)
def test_own_statements_that_see_other_groups_are_refused(own):
    dimensions = (Dimension("d", "", ""), Dimension("e", "", ""))
    grouped = Grouped(dimensions, (Measure("m", "", "count_distinct", "x"),), ((0,), ()))
    finest = [("a", 1, 5), ("b", 1, 6)]
    whole = [(1, "a", None, 5), (1, "b", None, 6), (3, None, None, 7)]
    rolled = roll_up(grouped, [finest], groups_max=9, own=[whole])
    assert [5, 5, 6, 6, 7] == [values[0] for *_, values in rolled]

    with pytest.raises(BuildFailed) as failed:
        roll_up(grouped, [finest], groups_max=9, own=[own])

    assert "values_changed" == failed.value.code


def test_groups_that_are_known_but_not_together_are_seen_when_they_are_wanted():
    dimensions = tuple(Dimension(key, "", "") for key in "def")
    grouped = Grouped(dimensions, (Measure("m", "", "count_distinct", "x"),), ((0, 1),))
    finest, own = [("a", 1, 0, 1), ("b", 2, 0, 1)], [(1, "a", 1, None, 1), (1, "b", 1, None, 1)]
    rolled = roll_up(grouped, [finest], groups_max=9, own=[own])

    with pytest.raises(BuildFailed) as failed:
        list(rolled)
    assert "values_changed" == failed.value.code


def test_no_dimension_at_all_is_one_group():
    grouped = Grouped((), (Measure("m", "", "sum", "x"), Measure("n", "", "count_distinct", "x")))
    rolled = roll_up(grouped, [[(5, 3)]], groups_max=1)

    assert [("regular", (), (), (5, 3))] == list(rolled)
    assert (1, 1) == (rolled.groups, rolled.records)


def test_values_of_all_types_have_one_order():
    mixed = [None, b"a", inf, "b", -1, nan, b"", "", Decimal("0.5"), "a", 1.5, -inf]
    ordered = [-inf, -1, Decimal("0.5"), 1.5, inf, nan, "", "a", "b", b"", b"a", None]

    assert list(map(str, ordered)) == list(map(str, sorted(mixed, key=order_key)))


def test_masks_are_those_of_grouping_in_sql():
    assert [0, 1, 2, 3] == [mask_of(level, 2) for level in [(0, 1), (0,), (1,), ()]]


def test_states_are_told_for_each_function():
    functions = ["count", "count_distinct", "sum", "avg", "min", "max"]

    assert [1, 0, 1, 2, 1, 1] == [states_of(Measure(each, each, each, "x")) for each in functions]
    assert [1, 0, 1, 2, 1, 0] == [states_of(Measure(each, each, each, "x"), {"max"}) for each in functions]

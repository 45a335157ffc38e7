"""Subtotals and totals out of the groups of a source, in literal numbers."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest

from haulage.core.grouping import Dimension, Grouped, Measure, levels_of
from haulage.exports.rollup import roll_up

REGION_USER = (Dimension("region", "Region", "region"), Dimension("user", "User", "user"))
MEASURES = (
    Measure("orders", "Orders", "count"),
    Measure("revenue", "Revenue", "sum", "total"),
    Measure("mean", "Mean", "avg", "total"),
    Measure("users", "Users", "count_distinct", "user"),
)
# Of the rows (N, a, 1) (N, a, 3) (N, b, 10) (S, a, 5): count, sum, sum and count of the average, and distinct count.
FINEST = [("N", "a", 2, 4, 4, 2, 1), ("N", "b", 1, 10, 10, 1, 1), ("S", "a", 1, 5, 5, 1, 1)]
OWN = [
    (1, "N", None, 2), (1, "S", None, 1),
    (2, None, "a", 1), (2, None, "b", 1),
    (3, None, None, 2),
]  # fmt: skip


def test_averages_and_distinct_counts_of_subtotals_come_from_the_rows():
    grouped = Grouped(REGION_USER, MEASURES, levels_of("cube", ["region", "user"]))

    rolled = roll_up(grouped, [FINEST[:1], FINEST[1:]], groups_max=3, own=[OWN])

    written = [
        ("regular", "region,user", ("N", "a"), (2, 4, 2, 1)),
        ("regular", "region,user", ("N", "b"), (1, 10, 10, 1)),
        ("subtotal", "region", ("N", None), (3, 14, Decimal("4.666666666667"), 2)),
        ("regular", "region,user", ("S", "a"), (1, 5, 5, 1)),
        ("subtotal", "region", ("S", None), (1, 5, 5, 1)),
        ("subtotal", "user", (None, "a"), (3, 9, 3, 1)),
        ("subtotal", "user", (None, "b"), (1, 10, 10, 1)),
        ("total", "", (None, None), (4, 19, Decimal("4.75"), 2)),
    ]
    assert written == [(kind, grouped.level_name(level), keys, values) for kind, level, keys, values in rolled]
    assert written == [(kind, grouped.level_name(level), keys, values) for kind, level, keys, values in rolled]
    assert (3, 8) == (rolled.groups, rolled.records)


@pytest.mark.parametrize(
    ("subtotals", "across", "levels"),
    [
        (None, [], ()),
        ([], [], ()),
        ("total", [], ((),)),
        ("rollup", [], ((0, 1), (0,), ())),
        ("cube", [], ((0, 1), (0, 2), (1, 2), (0,), (1,), (2,), ())),
        ([["c", "a"], []], [], ((0, 2), ())),
        ("total", ["c"], ((0, 1), (2,), ())),
        ("rollup", ["c"], ((0, 1), (0, 2), (0,), (2,), ())),
        ("rollup", ["b", "c"], ((1, 2), (0,), ())),
        ("total", ["a", "b", "c"], ((),)),
    ],
)
def test_levels_are_named_in_four_ways(subtotals, across, levels):
    assert levels == levels_of(subtotals, ["a", "b", "c"], across)


@pytest.mark.parametrize(
    ("subtotals", "words"),
    [
        ("all", "'all' is not known; write total, rollup, cube, or a list of levels"),
        ([["a", "x"]], "'x' is not in group_by; write levels of a, b"),
        (["a"], "'a' is no level; write each as a list of dimensions, [] for the grand total"),
        ([["a", "a"]], "the level [a, a] names a dimension twice"),
        ([["a"], ["a"]], "the level [a] is named twice"),
        ([["b", "a"]], "the level [b, a] is group_by itself, whose rows are always there; leave it out"),
    ],
)
def test_a_wrong_level_is_refused_with_what_to_write(subtotals, words):
    with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
        levels_of(subtotals, ["a", "b"])


def test_a_cube_takes_ten_dimensions():
    assert 1_023 == len(levels_of("cube", [f"d{number}" for number in range(10)]))
    with pytest.raises(ValueError, match="a cube takes at most 10 dimensions, not 11"):
        levels_of("cube", [f"d{number}" for number in range(11)])

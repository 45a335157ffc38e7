"""What a grouped export is: dimensions, measures, the levels of its subtotals, and which dimensions go across.

A level is the dimensions that stay, as indices in ascending order; ``()`` is the grand total, and the full level, at
which the source groups, is always there and is not named among ``levels``. Dimensions that go across (a pivot) stand
last. Named tuples, as in core/reading.py: the child of every run may load this file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias

FUNCTIONS = ("count", "count_distinct", "sum", "avg", "min", "max")
UNHIDDEN = ("count", "count_distinct")  # of what functions say of a column nothing is a value of it
REGULAR, SUBTOTAL, TOTAL = "regular", "subtotal", "total"  # what a row of a grouped result is
WORDS = ("total", "rollup", "cube")  # for levels
CUBE_DIMENSIONS = 10  # a cube over more has thousands of levels
TIME = re.compile(r"(\d+)(-\d\d-\d\d.*)", re.DOTALL).fullmatch
LAST = 9  # rank of NULL in an order of values

Level: TypeAlias = tuple[int, ...]


class Dimension(NamedTuple):
    """What rows are grouped by: one column of the query."""

    key: str
    header: str
    column: str


class Measure(NamedTuple):
    """What is said of each group: one of FUNCTIONS over a column, or a count of rows."""

    key: str
    header: str
    function: str
    column: str | None = None


class Grouped(NamedTuple):
    """A grouped request, frozen."""

    dimensions: tuple[Dimension, ...]
    measures: tuple[Measure, ...]
    levels: tuple[Level, ...] = ()  # beside the full one; as ``levels_of`` gives them
    across: Level = ()  # the last dimensions, or none

    @property
    def full(self) -> Level:
        """The level of the source's groups."""
        return tuple(range(len(self.dimensions)))

    @property
    def down(self) -> Level:
        """The dimensions that do not go across."""
        return tuple(range(len(self.dimensions) - len(self.across)))

    def level_name(self, level: Level) -> str:
        """What stands in ``row_level``: the dimensions that are not rolled up."""
        return ",".join(self.dimensions[index].key for index in level)

    def to_plan(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "dimensions": [list(each) for each in self.dimensions],
            "measures": [list(each) for each in self.measures],
            "levels": [list(level) for level in self.levels],
            "across": list(self.across),
        }

    @staticmethod
    def from_plan(plan: Mapping[str, Any]) -> Grouped:
        """From that."""
        return Grouped(
            tuple(Dimension(*each) for each in plan["dimensions"]),
            tuple(Measure(*each) for each in plan["measures"]),
            tuple(tuple(level) for level in plan["levels"]),
            tuple(plan["across"]),
        )


def mask_of(level: Iterable[int], dimensions: int) -> int:
    """A level as ``GROUPING(d1, d2, …)`` of SQL says it: a bit for each dimension that is rolled up, the first highest.

    Example:
        >>> mask_of((0,), 3), mask_of((0, 1, 2), 3)
        (3, 0)
    """
    stays = set(level)
    return sum(1 << (dimensions - 1 - index) for index in range(dimensions) if index not in stays)


def states_of(measure: Measure, exact: Iterable[str] = ()) -> int:
    """How many cells of a row at the full level stand for a measure: of an average its sum and its count.

    Args:
        exact: keys of measures that Python cannot roll up, beside the distinct counts: their values come per level.
    """
    if measure.function == "count_distinct" or measure.key in exact:
        return 0
    return 2 if measure.function == "avg" else 1


def levels_of(
    subtotals: str | Sequence[Sequence[str]] | None, names: Sequence[str], across: Sequence[str] = ()
) -> tuple[Level, ...]:
    """The levels of a request, each once, finer ones first, without the full level.

    Args:
        names: the dimensions, those that go across last.

    Raises:
        ValueError: says what is wrong, and what to write.
    """
    count, down = len(names), len(names) - len(across)
    assert tuple(names[down:]) == tuple(across), "dimensions that go across stand last"
    whole, rows, columns = tuple(range(count)), tuple(range(down)), tuple(range(down, count))
    found: set[Level]
    if subtotals is None:
        found = set()
    elif subtotals == "total":
        found = {rows, columns, ()} if across else {()}
    elif subtotals == "rollup":
        prefixes = [rows[:length] for length in range(down + 1)]
        found = {prefix + kept for prefix in prefixes for kept in (columns, ())}
    elif subtotals == "cube":
        if count > CUBE_DIMENSIONS:
            raise ValueError(f"a cube takes at most {CUBE_DIMENSIONS} dimensions, not {count}; name the levels instead")
        found = {level for length in range(count) for level in combinations(whole, length)}
    elif isinstance(subtotals, str):
        raise ValueError(f"{subtotals!r} is not known; write {', '.join(WORDS)}, or a list of levels")
    else:
        found = _named(subtotals, names)
    return tuple(sorted(found - {whole}, key=lambda level: (-len(level), level)))


def _named(subtotals: Sequence[Sequence[str]], names: Sequence[str]) -> set[Level]:
    found: set[Level] = set()
    for named in subtotals:
        if isinstance(named, str):
            raise ValueError(f"{named!r} is no level; write each as a list of dimensions, [] for the grand total")  # noqa: TRY004 - it is a request
        shown = "[" + ", ".join(map(str, named)) + "]"
        if unknown := [name for name in named if name not in names]:
            raise ValueError(f"{unknown[0]!r} is not in group_by; write levels of {', '.join(names)}")
        level = tuple(sorted({names.index(name) for name in named}))
        if len(level) < len(named):
            raise ValueError(f"the level {shown} names a dimension twice")
        if len(level) == len(names):
            raise ValueError(f"the level {shown} is group_by itself, whose rows are always there; leave it out")
        if level in found:
            raise ValueError(f"the level {shown} is named twice")
        found.add(level)
    return found


def order_key(value: Any) -> tuple[Any, ...]:
    """A key that sorts values of any types: numbers (NaN after them), text, bytes, whatever else, and NULL last."""
    if value is None:
        return (LAST,)
    if isinstance(value, str):
        return (2, value)
    if isinstance(value, int | float):
        return (0, value) if value == value else (1,)  # noqa: PLR0124 - NaN is not itself
    if isinstance(value, bytes | bytearray | memoryview):
        return (3, bytes(value))
    return _order_key_of_other(value)


def _order_key_of_other(value: Any) -> tuple[Any, ...]:
    if hasattr(value, "as_tuple"):  # a Decimal, whose module takes 2 ms to load
        return (1,) if value.is_nan() else (0, value)
    if hasattr(value, "isoformat"):  # an instant of one zone is not to be compared with one of none, but for its text
        return (4, type(value).__name__, value.isoformat())
    return (4, type(value).__name__, str(value))


def time_key(value: Any) -> tuple[Any, ...]:
    """A key that sorts days and instants as text in the order of time, also those of years that have not four digits.

    Example:
        >>> sorted(["infinity", "10000-01-01", "9999-12-31", "0044-03-15 BC", "-infinity"], key=time_key)
        ['-infinity', '0044-03-15 BC', '9999-12-31', '10000-01-01', 'infinity']
    """
    if not isinstance(value, str):
        return order_key(value)
    if value in ("-infinity", "infinity"):
        return (0, float(value))
    found = TIME(value)
    if found is None:
        return order_key(value)
    year = -int(found[1]) if "BC" in found[2] else int(found[1])
    return (0, year, found[2])


# -- what a source is asked ------------------------------------------------------------------------------

NO_NUMBER = "haulage: no number"  # stands for a sum, where a source finds only while it adds up that there is none
DIGITS_MAX = 200_000  # of a sum: more than a numeric of PostgreSQL has, and nobody has longer ones


class Aggregate(NamedTuple):
    """What a source computes of each group: one of ``count count_distinct sum min max``, of rows or of a column."""

    function: str
    column: str | None


class Question(NamedTuple):
    """What a source is asked for groups.

    Args:
        by: columns, by their keys.
        aggregates: over any columns, hidden ones too.
        levels: places of ``by`` that rows are grouped by, each level by its own and the finest first, of a source that
            has sets. Behind the aggregates then stands which were not, as GROUPING() says it.
        exact: sums of whole numbers of any size, where those of the source end somewhere.
    """

    by: Sequence[str]
    aggregates: Sequence[Aggregate] = ()
    levels: Sequence[Level] | None = None
    exact: bool = False


def additive(function: str, column: str | None) -> list[Aggregate]:
    """What a source is asked for a measure: of an average the sum and the count."""
    if function == "avg":
        return [Aggregate("sum", column), Aggregate("count", column)]
    return [Aggregate(function, column)]


def adder() -> Callable[[Any, Any], Any]:
    """What adds up decimals, every digit of them."""
    from decimal import Context

    return Context(prec=DIGITS_MAX).add

"""A grouped result with some dimensions across: as cells, or as a wide table of bounded width.

A row is a group of the dimensions that go down, or a subtotal of them; its cells are groups of those that go across.
A row's groups are at hand when it is written, and one row at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

from haulage.core.errors import BuildFailed
from haulage.core.grouping import REGULAR, SUBTOTAL, TOTAL, Level
from haulage.core.reading import unique_names
from haulage.exports.rollup import Positions, Rolled
from haulage.formats.cells import decimal_text, family

NULL, ALL, EMPTY = "(null)", "(total)", "(empty)"  # in headers
HEADERS_MAX = 200_000  # characters of all headers, which a run keeps; they are values of rows here
ROLLED_UP = float("inf")  # sorts after the place of every value

Across: TypeAlias = tuple[Level, tuple[int, ...]]  # one key across: which dimensions, and the number of each value


class Cell(NamedTuple):
    """One cell of a pivot; a dimension that is rolled up has no key in it."""

    kind: str
    row: dict[str, Any]
    column: dict[str, Any]
    measures: dict[str, Any]


class WideRow(NamedTuple):
    """One row of a wide table."""

    kind: str
    level: Level  # of the dimensions that go down
    keys: tuple[Any, ...]  # of those
    values: tuple[Any, ...]  # one of each of the table's columns; None where there is no such cell
    groups: int  # regular result rows that stand in it


class WideColumn(NamedTuple):
    """One column of measures of a wide table."""

    header: str
    measure: int  # which of the measures


class Pivot:
    """A pivot of a rolled up result; what it gives can be read as often as one likes."""

    def __init__(self, rolled: Rolled) -> None:
        """See which levels go down and across."""
        grouped = rolled.grouped
        self.rolled = rolled
        self.down = grouped.down
        assert grouped.across == grouped.full[len(self.down) :], "dimensions that go across stand last"
        self.levels: dict[Level, list[Level]] = {}  # of the dimensions that go down -> those across that its rows have
        for level in (grouped.full, *grouped.levels):
            down = tuple(index for index in level if index in self.down)
            self.levels.setdefault(down, []).append(level[len(down) :])

    @property
    def records(self) -> int:
        """How many cells there are: as many as the same request has rows without a pivot."""
        return self.rolled.records

    def __iter__(self) -> Iterator[Cell]:
        """Every cell, those of a row one after the other, sorted by what goes across, totals last."""
        grouped = self.rolled.grouped
        names = [dimension.key for dimension in grouped.dimensions]
        measures = [measure.key for measure in grouped.measures]
        for down, positions in self.rows():
            found = self.across(down, positions)
            for across in sorted(found, key=self.place):
                level = down + across[0]
                keys = self.rolled.keys(level, found[across])
                yield Cell(
                    REGULAR if level == grouped.full else SUBTOTAL if level else TOTAL,
                    {names[index]: keys[index] for index in down},
                    {names[index]: keys[index] for index in across[0]},
                    dict(zip(measures, self.rolled.values(level, found[across]), strict=True)),
                )

    def rows(self) -> Iterator[tuple[Level, Positions]]:
        """What goes down: groups, and which groups of the source each is."""
        levels = sorted(self.levels, key=lambda level: (-len(level), level))
        for down, positions in self.rolled.runs(levels, self.down):
            if positions or () in self.rolled.grouped.levels:
                yield down, positions

    def across(self, down: Level, positions: Positions) -> dict[Across, Positions]:
        """What goes across in one row."""
        found: dict[Across, Any] = {}
        for level in self.levels[down]:
            if not level:
                found[level, ()] = positions
                continue
            codes = [self.rolled.codes_of(index) for index in level]
            for position in positions:
                numbers = tuple(each[position] for each in codes)
                found.setdefault((level, numbers), []).append(position)
        return found

    def place(self, across: Across) -> tuple[float, ...]:
        """What sorts keys across by their values, totals last."""
        level, numbers = across
        given = dict(zip(level, numbers, strict=True))
        return tuple(
            self.rolled.ranks_of(index)[given[index]] if index in given else ROLLED_UP
            for index in self.rolled.grouped.across
        )


class Wide:
    """A pivot as a table: for each key across every measure, after the dimensions that go down."""

    def __init__(self, pivot: Pivot, columns_max: int) -> None:
        """Find its columns.

        Raises:
            BuildFailed: ``pivot_columns_exceeded``.
        """
        self._pivot = pivot
        self._measures = len(pivot.rolled.grouped.measures)
        self._keys = sorted(self._found(columns_max), key=pivot.place)
        self.columns = tuple(self._headed())

    @property
    def records(self) -> int:
        """How many rows there are."""
        rolled = self._pivot.rolled
        return sum(map(rolled.count, self._pivot.levels)) if rolled.groups else rolled.records

    def __iter__(self) -> Iterator[WideRow]:
        """Every row."""
        pivot, many = self._pivot, self._measures
        places = {key: place * many for place, key in enumerate(self._keys)}
        for down, positions in pivot.rows():
            values: list[Any] = [None] * (len(self._keys) * many)
            for key, groups in pivot.across(down, positions).items():
                values[places[key] : places[key] + many] = pivot.rolled.values(down + key[0], groups)
            regular = down == pivot.down
            kind = REGULAR if regular else SUBTOTAL if down else TOTAL
            keys = pivot.rolled.keys(down, positions)[: len(pivot.down)]
            yield WideRow(kind, down, keys, tuple(values), len(positions) if regular else 0)

    def _found(self, columns_max: int) -> set[Across]:
        rolled = self._pivot.rolled
        found: set[Across] = set()
        for level in {level for levels in self._pivot.levels.values() for level in levels}:
            keys = zip(*(rolled.codes_of(index) for index in level), strict=True) if level else [()]
            for numbers in keys:
                found.add((level, numbers))
                if len(found) * self._measures > columns_max:
                    said = f"The pivot has more than the {columns_max:,} columns allowed."
                    raise BuildFailed("pivot_columns_exceeded", said)
        return found

    def _headed(self) -> Iterator[WideColumn]:
        measures = self._pivot.rolled.grouped.measures
        keys = [self._header(level, numbers) for level, numbers in self._keys]
        if sum(map(len, keys)) * len(measures) > HEADERS_MAX:
            said = f"The values across are longer than the {HEADERS_MAX:,} characters that headers may have in all."
            raise BuildFailed("pivot_columns_exceeded", said)
        headers = keys if len(measures) == 1 else [f"{key}: {each.header}" for key in keys for each in measures]
        for place, header in enumerate(unique_names(headers)):
            yield WideColumn(header, place % len(measures))

    def _header(self, level: Level, numbers: tuple[int, ...]) -> str:
        if not level:
            return ALL
        rolled, given = self._pivot.rolled, dict(zip(level, numbers, strict=True))
        across = rolled.grouped.across
        return " / ".join(_shown(rolled.value(index, given[index])) if index in given else ALL for index in across)


def _shown(value: Any) -> str:
    """A value as a header has it."""
    kind = family(type(value))
    if value is None:
        return NULL
    if kind == "boolean":
        return "true" if value else "false"
    if kind == "decimal":
        return decimal_text(value)
    if kind == "moment":
        return str(value.isoformat())
    if kind == "bytes":
        return bytes(value).hex()
    text = str(value)
    return f'"{text}"' if text in (NULL, ALL, EMPTY) else text or EMPTY  # a value is not to be taken for a total

"""The records of a grouped file: a table of rows, or a pivot as cells or as a wide table; and their columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from haulage.core.grouping import REGULAR, Dimension, Measure
from haulage.core.reading import Column, unique_names
from haulage.exports.pivot import Pivot, Wide

if TYPE_CHECKING:
    from haulage.exports.rollup import Rolled

KIND, LEVEL = "row_kind", "row_level"
Row = tuple[Any, ...]


class Table(Protocol):
    """What is written."""

    @property
    def columns(self) -> Sequence[Column]:
        """As a format takes them."""

    @property
    def records(self) -> int:
        """How many there are."""

    @property
    def groups(self) -> int:
        """How many groups, which subtotals and totals are not."""

    def rows(self) -> Iterator[tuple[int, Row]]:
        """Every record, and how many groups it holds; as often as one likes."""


def tabled(rolled: Rolled, base: Mapping[str, Column], columns_max: int, *, cells: bool) -> Table:
    """The records of a result.

    Args:
        base: the columns of the query, by key.
        cells: a pivot as one record a cell.

    Raises:
        BuildFailed: ``pivot_columns_exceeded``.
    """
    if not rolled.grouped.across:
        return Rows(rolled, base)
    pivot = Pivot(rolled)
    return Cells(pivot) if cells else WideRows(pivot, base, columns_max)


class Rows:
    """One record for each group, subtotal and total."""

    def __init__(self, rolled: Rolled, base: Mapping[str, Column]) -> None:
        """Take the result."""
        self._rolled = rolled
        grouped = rolled.grouped
        self._has_levels = bool(grouped.levels)
        self.records, self.groups = rolled.records, rolled.groups
        dimensions = [dimension_column(each, base) for each in grouped.dimensions]
        measures = [measure_column(each, base) for each in grouped.measures]
        self.columns = distinct([*marks(has_levels=self._has_levels), *dimensions, *measures])

    def rows(self) -> Iterator[tuple[int, Row]]:
        """Every record, and how many groups it holds: one, or none for what is added up."""
        name = self._rolled.grouped.level_name
        for kind, level, keys, values in self._rolled:
            marked = (kind, name(level)) if self._has_levels else (kind,)
            yield int(kind == REGULAR), (*marked, *keys, *values)


class Cells:
    """One record for each cell of a pivot; a dimension that is rolled up is not in it."""

    def __init__(self, pivot: Pivot) -> None:
        """Take the result."""
        self._pivot = pivot
        self.records, self.groups = pivot.records, pivot.rolled.groups
        self.columns = [
            Column(KIND, KIND, "text"),
            *(Column(key, key, "json") for key in ("row", "column", "measures")),
        ]

    def rows(self) -> Iterator[tuple[int, Row]]:
        """Every cell, and whether it is one of a group."""
        for cell in self._pivot:
            yield int(cell.kind == REGULAR), cell


class WideRows:
    """One record for each group of what goes down, with a column for each of what goes across."""

    def __init__(self, pivot: Pivot, base: Mapping[str, Column], columns_max: int) -> None:
        """Take the result.

        Raises:
            BuildFailed: ``pivot_columns_exceeded``.
        """
        self._wide = Wide(pivot, columns_max)
        self._grouped = grouped = pivot.rolled.grouped
        self._has_levels = len(pivot.levels) > 1
        self.records, self.groups = self._wide.records, pivot.rolled.groups
        dimensions = [dimension_column(each, base) for each in grouped.dimensions[: len(pivot.down)]]
        measures = [measure_column(grouped.measures[each.measure], base, each.header) for each in self._wide.columns]
        self.columns = distinct([*marks(has_levels=self._has_levels), *dimensions, *measures])

    def rows(self) -> Iterator[tuple[int, Row]]:
        """Every record, and how many groups it holds; none where it adds up."""
        name = self._grouped.level_name
        for row in self._wide:
            marked = (row.kind, name(row.level)) if self._has_levels else (row.kind,)
            yield row.groups, (*marked, *row.keys, *row.values)


def marks(*, has_levels: bool) -> list[Column]:
    """The columns that say what a row is, so that nobody adds up a subtotal."""
    return [Column(key, key, "text") for key in ((KIND, LEVEL) if has_levels else (KIND,))]


def dimension_column(dimension: Dimension, base: Mapping[str, Column]) -> Column:
    """The column of a dimension: of the type that it has in the query."""
    of = column_named(dimension.column, base) or Column("", "")
    return of._replace(key=dimension.key, header=dimension.header)


def column_named(key: str | None, base: Mapping[str, Column]) -> Column | None:
    """A column of the query, by its key or as SQL would find it; None for a hidden one, and where none is meant."""
    if key is None or key in base:
        return base.get(key or "")
    return next((column for each, column in base.items() if each.lower() == key.lower()), None)


def measure_column(measure: Measure, base: Mapping[str, Column], header: str | None = None) -> Column:
    """The column of a measure."""
    of = column_named(measure.column, base)
    kind = None if of is None else of.type
    native: str | None = None
    if measure.function in ("count", "count_distinct"):
        kind = "integer"
    elif measure.function in ("min", "max"):
        native = None if of is None else of.native
        kind = kind if kind in ("integer", "decimal", "float", "date", "timestamp", "boolean", "bytes") else "text"
        if of is not None and of.type is None and of.native is None:  # a source with a type per value
            kind = None
    elif measure.function == "avg" and kind == "integer":
        kind = "decimal"
    elif measure.function == "sum" and kind == "decimal" and of is not None:
        native = _wide(of.native)
    return Column(header or measure.key, header or measure.header, kind, native)


def _wide(native: str | None) -> str | None:
    """The type of a sum of decimals: as many digits behind the point, and as many before it as there can be."""
    scale = (native or "").partition(",")[2].rstrip(")").strip()
    return f"decimal(38,{scale})" if scale.isdecimal() else None


def distinct(columns: Sequence[Column]) -> list[Column]:
    """The same, with no header twice."""
    headers = unique_names([column.header for column in columns])
    return [column._replace(header=header) for column, header in zip(columns, headers, strict=True)]

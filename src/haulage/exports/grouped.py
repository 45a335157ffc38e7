"""A grouped export: the groups of a snapshot in the place of its rows.

The source groups the authorised rows once, at the finest level. Every other level is rolled up from that
(``rollup.py``); what cannot be, as distinct counts, comes by statements of its own in the same snapshot. What is then
read of a ``GroupedSnapshot`` is a table like any other, so formats, limits and checks are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from haulage.core.errors import BuildFailed
from haulage.core.grouping import NO_NUMBER, Aggregate, Grouped, Level, Measure, Question, additive, mask_of, states_of
from haulage.core.progress import Phase, Progress
from haulage.core.reading import Column
from haulage.exports.rollup import Rolled, roll_up
from haulage.exports.tables import KIND, LEVEL, column_named, tabled

if TYPE_CHECKING:
    from haulage.core.reading import Reading
    from haulage.core.source import Batches, Snapshot
    from haulage.exports.tables import Table

Rows = Sequence[tuple[Any, ...]]

BATCH_ROWS = 256
OVERFLOW = "integer overflow"  # what SQLite and DuckDB say of a sum of their own
PLAIN_DAY = re.compile(r"\d{4}-\d\d-\d\d(?!.*BC)").match  # a text that stands in an order where its time does
TIME = re.compile(r"(date|timestamp\w*)\b").match  # types, as PostgreSQL and DuckDB name them


class GroupedSnapshot:
    """The groups of a snapshot; implements ``core.source.Snapshot``.

    Everything is read of the source when it is counted; from then on the source is not asked again.
    """

    has_sets = False

    def __init__(self, snapshot: Snapshot, plan: Mapping[str, Any], limits: Mapping[str, int], *, cells: bool) -> None:
        """Take a snapshot and what is frozen of the grouping; ``cells``: one record of a pivot is a cell, not a row."""
        self._snapshot = snapshot
        self._grouped = Grouped.from_plan(plan)
        self._limits = limits
        self._cells = cells
        self._known: Table | None = None
        self._marks: list[tuple[int, int]] = []  # after so many records, so many groups
        self.at = snapshot.at
        self.session = snapshot.session

    @property
    def notices(self) -> Mapping[str, int]:
        """What the source had to change while it was read."""
        return self._snapshot.notices

    def grouped(self, reading: Reading, _question: Question) -> Reading:
        """Groups are not grouped again."""
        raise AssertionError("what is grouped is the snapshot behind this one")

    # -- what the build asks -----------------------------------------------------------------------

    def columns(self, reading: Reading) -> tuple[Column, ...]:
        """The columns of the table: what a row is, its dimensions, its measures."""
        return tuple(self._table(reading).columns)

    def count(
        self,
        reading: Reading,
        _seconds: float,
        sort_bytes: int | None = None,
        _given_up: Callable[[], bool] | None = None,
    ) -> int:
        """How many records there are, subtotals and totals included. The source is read for that to its end."""
        return self._table(reading, sort_bytes).records

    def batches(self, reading: Reading, sort_bytes: int | None = None) -> Batches:
        """The records."""
        rows = self._table(reading, sort_bytes).rows()
        self._marks = [(0, 0)]
        while batch := list(islice(rows, BATCH_ROWS)):
            records, groups = self._marks[-1]
            self._marks.append((records + len(batch), groups + sum(groups for groups, _ in batch)))
            yield [row for _, row in batch]

    def stream(self, _reading: Reading, _profile: str) -> None:
        """None: no source writes subtotals as we do."""

    def reporting(self, report: Callable[[Progress], None]) -> Callable[[Progress], None]:
        """A report that tells of groups, too; until the first record is written, no total and no other phase."""

        def told(progress: Progress) -> None:
            if progress.phase == Phase.COUNTING:
                progress = Progress(Phase.AGGREGATING, None, None)
            elif progress.phase == Phase.WRITING and not progress.processed and progress.total:
                return
            else:
                progress = progress._replace(logical_count=self._groups_of(progress.processed))
            report(progress)

        return told

    @property
    def all_groups(self) -> int:
        """How many groups there are, once they are counted."""
        assert self._known is not None, "count() comes first"
        return self._known.groups

    @property
    def shape(self) -> dict[str, int]:
        """How many columns say what a row is, and how many are dimensions and measures."""
        assert self._known is not None, "count() comes first"
        columns, down = self._known.columns, len(self._grouped.down)
        marks = sum(column.key in (KIND, LEVEL) for column in columns[:2])
        return {"marks": marks, "dimensions": down, "measures": len(columns) - marks - down}

    @property
    def groups(self) -> int:
        """How many groups the records given so far hold."""
        return self._marks[-1][1] if self._marks else 0

    def _groups_of(self, records: int | None) -> int | None:
        """How many groups so many records hold, as far as it was noted: never more than there are."""
        if records is None:
            return None
        return max((groups for upto, groups in self._marks if upto <= records), default=0)

    # -- what is asked of the source ---------------------------------------------------------------

    def _table(self, reading: Reading, sort_bytes: int | None = None) -> Table:
        if self._known is None:
            base = {column.key: column for column in self._snapshot.columns(reading._replace(columns=None))}
            rolled = self._rolled(reading, base, sort_bytes)
            self._known = tabled(rolled, base, self._limits["pivot_columns"], cells=self._cells)
        return self._known

    def _rolled(self, reading: Reading, base: Mapping[str, Column], sort_bytes: int | None) -> Rolled:
        days = [each for each in self._grouped.measures if _is_of_days(each, base)]
        try:
            return self._read(reading, base, sort_bytes, days)
        except _NoPlainDay:  # there is an infinity, or a year of five digits: the source compares them itself
            return self._read(reading, base, sort_bytes, days, exact=[each.key for each in days])
        except BuildFailed as failed:
            if OVERFLOW not in (failed.cause or ""):
                raise
            return self._read(reading, base, sort_bytes, days, large=True)

    def _read(
        self,
        reading: Reading,
        base: Mapping[str, Column],
        sort_bytes: int | None,
        days: Sequence[Measure],
        exact: Collection[str] = (),
        *,
        large: bool = False,
    ) -> Rolled:
        grouped, snapshot = self._grouped, self._snapshot
        by = [each.column for each in grouped.dimensions]
        aggregates: list[Aggregate] = []
        sums: dict[int, str | None] = {}
        plain = []
        for measure in grouped.measures:
            if not states_of(measure, exact):
                continue
            place = len(by) + len(aggregates)
            if measure.function in ("sum", "avg"):
                column = column_named(measure.column, base)
                sums[place] = "decimal" if column is None else column.type
            elif measure in days:
                plain.append(place)
            aggregates += additive(measure.function, measure.column)
        own = [Aggregate(each.function, each.column) for each in grouped.measures if not states_of(each, exact)]
        at_once = bool(own and grouped.levels) and snapshot.has_sets
        levels = [grouped.full, *grouped.levels] if at_once else None
        statement = snapshot.grouped(reading, Question(by, [*aggregates, *own], levels, large))
        with closing(snapshot.batches(statement, sort_bytes)) as batches:
            if at_once:
                finest, others = _parted(batches, len(by), len(own))
            else:
                finest, others = batches, self._others(reading, own, sort_bytes)
            rows = _mended(finest, sums, plain)
            times = [place for place, column in enumerate(by) if _is_of_time(column_named(column, base))]
            return roll_up(grouped, rows, groups_max=self._limits["groups"], own=others, exact=exact, times=times)

    def _others(self, reading: Reading, own: Sequence[Aggregate], sort_bytes: int | None) -> Iterator[Rows]:
        """What is not rolled up, of every level but the finest: by a statement for each."""
        columns = [each.column for each in self._grouped.dimensions]
        for level in self._grouped.levels if own else ():
            mask = mask_of(level, len(columns))
            statement = self._snapshot.grouped(reading, Question([columns[place] for place in level], own))
            with closing(self._snapshot.batches(statement, sort_bytes)) as batches:
                for batch in batches:
                    yield [(mask, *_spread(row, level, len(columns))) for row in batch]


class _NoPlainDay(Exception):
    """A day or an instant whose text does not stand in an order where its time does."""


def _is_of_days(measure: Measure, base: Mapping[str, Column]) -> bool:
    column = column_named(measure.column, base)
    return measure.function in ("min", "max") and column is not None and column.type in ("date", "timestamp")


def _is_of_time(column: Column | None) -> bool:
    """Say whether a source sorts a column by time, whatever type is declared for it."""
    return column is not None and column.native is not None and TIME(column.native) is not None


def _spread(row: tuple[Any, ...], level: Level, count: int) -> tuple[Any, ...]:
    """A row of some dimensions as one of all of them."""
    cells: list[Any] = [None] * count
    for place, cell in zip(level, row, strict=False):
        cells[place] = cell
    return *cells, *row[len(level) :]


def _parted(batches: Iterator[Rows], dimensions: int, own: int) -> tuple[Iterator[Rows], Iterator[Rows]]:
    """The rows of a statement of several levels: those of the finest, which come first, and then the others.

    The second is to be read when the first has ended. Of the others only what is not rolled up is of use.
    """
    left: list[Rows] = []

    def finest() -> Iterator[Rows]:
        for batch in batches:
            count = sum(not row[-1] for row in batch)
            if count:
                yield [row[:-1] for row in batch[:count]]
            if count < len(batch):
                left.append(batch[count:])
                return

    def others() -> Iterator[Rows]:
        for batch in chain(left, batches):
            yield [(row[-1], *row[:dimensions], *row[-1 - own : -1]) for row in batch]

    return finest(), others()


def _mended(batches: Iterable[Rows], sums: Mapping[int, str | None], days: Collection[int]) -> Iterator[Rows]:
    """Rows of a source with sums that are numbers, of whole ones whole; a source may have them as decimals, or as text.

    Args:
        sums: where they stand, and the type of what was added up.

    Raises:
        BuildFailed: ``source_failed`` where something that was added up is no number.
    """
    for batch in batches:
        columns = list(zip(*batch, strict=True))
        for place in days:
            if not all(cell is None or (isinstance(cell, str) and PLAIN_DAY(cell)) for cell in columns[place]):
                raise _NoPlainDay
        for place, kind in sums.items():
            columns[place] = tuple(_numbers(columns[place], kind))
        yield list(zip(*columns, strict=True)) if sums else batch


def _numbers(cells: Sequence[Any], kind: str | None) -> Sequence[Any]:
    if NO_NUMBER in cells:
        raise BuildFailed("source_failed", cause="measures: a sum met a value that is no number")
    if kind is None:  # SQLite, which has whole numbers and floats in one column: what comes as text is a long whole one
        return [int(cell) if isinstance(cell, str) else cell for cell in cells]
    if any(isinstance(cell, str) for cell in cells):
        from decimal import Decimal  # takes 2 ms to load

        cells = [Decimal(cell) if isinstance(cell, str) else cell for cell in cells]
    if kind != "integer":
        return cells
    return [cell if cell is None or isinstance(cell, float) else int(cell) for cell in cells]

"""From the source's groups to every level: subtotals and the grand total, without asking the source again.

Read ``roll_up`` first. The source gives its groups once, with equal values of a dimension together inside those of the
dimensions before it; so the subtotals of leading dimensions are runs of groups, and follow them in the file. Any other
level is sorted when its turn comes and given up after it. Values of dimensions are kept once each and numbered.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeAlias

from haulage.core.errors import BuildFailed
from haulage.core.grouping import (
    REGULAR,
    SUBTOTAL,
    TOTAL,
    Grouped,
    Level,
    Measure,
    mask_of,
    order_key,
    states_of,
    time_key,
)
from haulage.exports.states import States, value_of, values_of

BLOCK_ROWS = 1_000

Batch: TypeAlias = Sequence[tuple[Any, ...]]
Record: TypeAlias = tuple[str, Level, tuple[Any, ...], tuple[Any, ...]]  # kind, level, keys, values
Positions: TypeAlias = Sequence[int]  # of groups of the source; a range where they stand together


def roll_up(
    grouped: Grouped,
    finest: Iterable[Batch],
    *,
    groups_max: int,
    own: Iterable[Batch] = (),
    exact: Collection[str] = (),
    times: Collection[int] = (),
) -> Rolled:
    """Read the groups of a source.

    Args:
        finest: rows of ``(*dimensions, *states, *own)``; of a measure ``states_of`` says how many states it has, and
            those that have none, because they cannot be rolled up, are the last cells.
        own: rows of ``(mask, *dimensions, *own)`` of every level that is asked for, in any order, for the measures
            that cannot be rolled up; see ``mask_of``. Read when ``finest`` has ended.
        exact: keys of measures that are in ``own`` beside the distinct counts.
        times: dimensions whose texts are days or instants, which the source sorts by time.

    Raises:
        BuildFailed: ``groups_exceeded``; ``source_failed`` where equal groups are not together; ``values_changed``
            where ``own`` has other groups.
    """
    rolled = Rolled(grouped, exact, times)
    for batch in finest:
        rolled.take(batch)
        if rolled.groups > groups_max:
            raise BuildFailed("groups_exceeded", f"The export has more than the {groups_max:,} groups allowed.")
    rolled.take_own(own)
    return rolled


class Rolled:
    """All rows of a grouped result, in the order of the file, as often as one likes."""

    def __init__(self, grouped: Grouped, exact: Collection[str] = (), times: Collection[int] = ()) -> None:
        """Start empty."""
        self.grouped = grouped
        self._times = times
        self.groups = 0  # of the source: the regular rows
        self._numbers = [_Numbers() for _ in grouped.dimensions]
        self._codes = [array("I") for _ in grouped.dimensions]
        self._states = [[States() for _ in range(states_of(each, exact))] for each in grouped.measures]
        self._own_of_groups = [States() for states in self._states if not states]
        self._columns = [states for several in self._states for states in several] + self._own_of_groups
        self._changed = bytearray()  # of each group the first dimension in which it differs from the one before
        self._last: tuple[int, ...] | None = None
        self._seen: list[set[int]] = [set() for _ in grouped.dimensions]
        self._own: dict[Level, dict[int, tuple[Any, ...]]] = {}
        self._counts: dict[Level, int] = {}
        self._ranks: dict[int, Sequence[int]] = {}

    def __iter__(self) -> Iterator[Record]:
        """Every row: kind, level, the dimensions (None where they are rolled up), the measures."""
        full, regular = self.grouped.full, self._regular()
        for level, positions in self.runs(self.grouped.levels, full):
            if level == full:
                yield (REGULAR, level, *next(regular))
            else:
                kind = SUBTOTAL if level else TOTAL
                yield kind, level, self.keys(level, positions), self.values(level, positions)

    @property
    def records(self) -> int:
        """How many rows there are, subtotals and total included."""
        return self.groups + sum(map(self.count, self.grouped.levels))

    def count(self, level: Level) -> int:
        """How many groups a level has; the grand total is one also of nothing."""
        if level not in self._counts:
            if self._leads(level):
                self._counts[level] = 1 if not level else sum(map(len(level).__gt__, self._changed))
            else:
                self._counts[level] = len(set(self._keyed(level, self._codes)))
        return self._counts[level]

    def runs(self, levels: Collection[Level], full: Level) -> Iterator[tuple[Level, Positions]]:
        """Groups of some levels over leading dimensions, in the order of the file: which groups of the source each is.

        Args:
            full: the finest of them, of leading dimensions.
        """
        lengths = [len(level) for level in levels if level and level != full and self._leads(level)]
        yield from self._nested([len(full), *sorted(lengths, reverse=True)] if full else [])
        for level in levels:
            if level != full and not self._leads(level):
                for positions in self._sorted(level):
                    yield level, positions
        if () in levels or (not full and self.groups):
            yield (), range(self.groups)

    def keys(self, level: Level, positions: Positions) -> tuple[Any, ...]:
        """The dimensions of a group; None where they are rolled up."""
        if not level:
            return (None,) * len(self._codes)
        first = positions[0]
        return tuple(
            numbers.seen[codes[first]] if index in level else None
            for index, (numbers, codes) in enumerate(zip(self._numbers, self._codes, strict=True))
        )

    def values(self, level: Level, positions: Positions) -> tuple[Any, ...]:
        """The measures of a group."""
        own = iter(self._own_of(level, positions))
        return tuple(
            value_of(measure, states, positions) if states else next(own)
            for measure, states in zip(self.grouped.measures, self._states, strict=True)
        )

    def _regular(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Keys and measures of every group of the source, a block at a time: that takes a third of the time."""
        for start in range(0, self.groups, BLOCK_ROWS):
            block = range(start, min(start + BLOCK_ROWS, self.groups))
            codes = [each[block.start : block.stop] for each in self._codes]
            keys = [
                list(map(numbers.seen.__getitem__, each)) for numbers, each in zip(self._numbers, codes, strict=True)
            ]
            own = iter(self._own_of_groups)
            values = [
                values_of(measure, states, block.start, block.stop)
                if states
                else next(own).cells(block.start, block.stop)
                for measure, states in zip(self.grouped.measures, self._states, strict=True)
            ]
            yield from zip(_rows(keys, len(block)), _rows(values, len(block)), strict=True)

    def codes_of(self, index: int) -> Sequence[int]:
        """Of each group the number of its value of one dimension."""
        return self._codes[index]

    def value(self, index: int, number: int) -> Any:
        """The value of a dimension that has a number."""
        return self._numbers[index].seen[number]

    def ranks_of(self, index: int) -> Sequence[int]:
        """The place of each number of a dimension in the order of its values."""
        if index not in self._ranks:
            seen = self._numbers[index].seen
            ranks = array("I", bytes(4 * len(seen)))
            key = time_key if index in self._times else order_key
            for rank, number in enumerate(sorted(range(len(seen)), key=lambda number: key(seen[number]))):
                ranks[number] = rank
            self._ranks[index] = ranks
        return self._ranks[index]

    # -- reading -----------------------------------------------------------------------------------

    def take(self, batch: Batch) -> None:
        """More groups of the source."""
        if not batch:
            return
        columns = list(zip(*batch, strict=True))
        count = len(self._codes)
        assert len(columns) == count + len(self._columns), "a group has other cells than its measures need"
        numbered = [
            list(map(numbers.__getitem__, cells)) for numbers, cells in zip(self._numbers, columns, strict=False)
        ]
        self._follow(_rows(numbered, len(batch)))
        for codes, numbers in zip(self._codes, numbered, strict=True):
            codes.extend(numbers)
        for states, cells in zip(self._columns, columns[count:], strict=True):
            states.extend(cells)
        self.groups += len(batch)

    def _follow(self, rows: Iterable[tuple[int, ...]]) -> None:
        """Note where each dimension changes; a value that comes back after another would give a subtotal twice."""
        last, seen = self._last, self._seen
        for row in rows:
            changed = 0
            if last is not None:
                while changed < len(row) and row[changed] == last[changed]:
                    changed += 1
                if changed == len(row):
                    raise BuildFailed("source_failed", cause="a source gave one group twice")
            if row and row[changed] in seen[changed]:
                name = self.grouped.dimensions[changed].key
                raise BuildFailed("source_failed", cause=f"a source gave equal values of {name} apart from each other")
            for index in range(changed, len(row)):
                if index > changed:
                    seen[index].clear()
                seen[index].add(row[index])
            self._changed.append(changed)
            last = row
        self._last = last

    def take_own(self, own: Iterable[Batch]) -> None:
        """The values of measures that cannot be rolled up."""
        count = len(self._codes)
        wanted = {mask_of(level, count): level for level in self.grouped.levels}
        self._own = {level: {} for level in wanted.values()}
        self._seen.clear()
        for batch in own:
            for mask, *cells in batch:
                level = wanted[mask]
                self._own[level][self._own_key(level, cells)] = tuple(cells[count:])
        for numbers in self._numbers:
            numbers.clear()  # from here on only the values are needed
        if not self._own_of_groups:
            return
        for level, found in self._own.items():
            if len(found) != self.count(level) and (self.groups or found):
                raise BuildFailed("values_changed", cause=f"{len(found):,} groups, and {self.count(level):,} before")

    def _own_key(self, level: Level, cells: Sequence[Any]) -> int:
        key = 0
        for index in level:
            numbers = self._numbers[index]
            known = len(numbers.seen)
            number = numbers[cells[index]]
            if number >= known:
                raise BuildFailed("values_changed", cause="a group that was not there before")
            key = key * known + number
        return key

    def _own_of(self, level: Level, positions: Positions) -> tuple[Any, ...]:
        if not self._own_of_groups:
            return ()
        if level == self.grouped.full:
            return tuple(states.at(positions[0]) for states in self._own_of_groups)
        if not self.groups:
            return tuple(0 if each.function == "count_distinct" else None for each in self._without_states())
        return self._found(
            level, self._keyed(level, [codes[positions[0] : positions[0] + 1] for codes in self._codes])
        )[0]

    def _found(self, level: Level, keys: Iterable[int]) -> Sequence[tuple[Any, ...]]:
        try:
            return list(map(self._own[level].__getitem__, keys))
        except KeyError as problem:
            raise BuildFailed("values_changed", cause="a group that was not there a second time") from problem

    def _without_states(self) -> Iterator[Measure]:
        return (each for each, states in zip(self.grouped.measures, self._states, strict=True) if not states)

    # -- levels ------------------------------------------------------------------------------------

    def _leads(self, level: Level) -> bool:
        """Say whether a level is of leading dimensions, so that its groups stand together."""
        return level == tuple(range(len(level)))

    def _nested(self, lengths: Sequence[int]) -> Iterator[tuple[Level, Positions]]:
        """Groups of so many leading dimensions, a longer one before the one that it belongs to."""
        begun = dict.fromkeys(lengths, 0)
        levels = {length: tuple(range(length)) for length in lengths}
        for position in range(1, self.groups + 1):
            changed = self._changed[position] if position < self.groups else 0
            for length in lengths:
                if changed >= length:
                    break
                yield levels[length], range(begun[length], position)
                begun[length] = position

    def _sorted(self, level: Level) -> Iterator[Positions]:
        """The groups of any level in the order of their values."""
        ranked = []
        for index, codes in enumerate(self._codes):
            ranked.append(list(map(self.ranks_of(index).__getitem__, codes)) if index in level else codes)
        keys = self._keyed(level, ranked)
        for _, positions in groupby(sorted(range(self.groups), key=keys.__getitem__), keys.__getitem__):
            yield list(positions)

    def _keyed(self, level: Level, codes: Sequence[Sequence[int]]) -> Sequence[int]:
        """Of each group one number that stands for its values at a level, and sorts as its codes do."""
        if not level:
            return [0] * (len(codes[0]) if codes else 1)
        keys = codes[level[0]]
        for index in level[1:]:
            many = len(self._numbers[index].seen)
            keys = [key * many + code for key, code in zip(keys, codes[index], strict=True)]
        return keys


def _rows(columns: Sequence[Sequence[Any]], rows: int) -> Iterable[tuple[Any, ...]]:
    return zip(*columns, strict=True) if columns else [()] * rows


class _Numbers(dict[Any, int]):
    """Numbers for the values of a dimension, as they come; equal values are one, and so are all NaN."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []  # by number
        self._nan: int | None = None

    def __missing__(self, value: Any) -> int:
        number = len(self.seen)
        if value != value:  # noqa: PLR0124 - NaN is not itself
            if self._nan is not None:
                return self._nan
            self._nan = number
        else:
            self[value] = number
        self.seen.append(value)
        return number

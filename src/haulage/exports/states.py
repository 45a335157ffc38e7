"""The measures of a grouped export: what a source says of its groups, kept small, and put together exactly.

A million groups are allowed, and a number of Python takes 32 to 104 bytes: integers, floats, and decimals of one scale
are kept in 8. Adding never rounds but for floats, and those once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import cache
from math import fsum, isfinite
from typing import TYPE_CHECKING, Any

from haulage.core.errors import BuildFailed
from haulage.core.grouping import Measure, order_key

if TYPE_CHECKING:  # it takes 2 ms to load, and is loaded where one comes
    from decimal import Context, Decimal

NULL = -(2**63)  # what stands for it among packed integers
PLACES = 12  # of an average, after the point
ONE = 10**PLACES
Cells = Sequence[Any]


class States:
    """One column of what a source says of its groups, in the order of the groups."""

    def __init__(self) -> None:
        """Start empty."""
        self._cells: Any = array("q")
        self._kind: type | None = None  # of the cells; None: nothing but NULL so far; object: kept as they come
        self._unit: Decimal | None = None  # 0.01, where cells are decimals of two places
        self._exponent = 0
        self._nulls = False

    def extend(self, cells: Cells) -> None:
        """Keep more of them."""
        packed = None if self._kind is object else self._packed(cells)
        if packed is None:
            if self._kind is not object:
                self._cells = [self.at(position) for position in range(len(self._cells))]
                self._kind = object
            packed = cells
        self._cells.extend(packed)

    def at(self, position: int) -> Any:
        """The cell of one group."""
        cell = self._cells[position]
        if self._kind is object or self._kind is float:
            return cell
        return None if cell == NULL else self._unpacked(cell)

    def cells(self, start: int, stop: int) -> Cells:
        """The cells of some groups that follow each other."""
        cells = self._cells[start:stop]
        if self._kind is object or self._kind is float:
            return list(cells)
        if self._unit is None:
            return [None if cell == NULL else cell for cell in cells] if self._nulls else list(cells)
        multiply, unit = _exact().multiply, self._unit
        return [None if cell == NULL else multiply(cell, unit) for cell in cells]

    def total(self, positions: Sequence[int]) -> Any:
        """The sum over groups; None of nothing but NULL."""
        cells = self._taken(positions)
        if not cells:
            return None
        if self._kind is object:
            return _sum(cells)
        return fsum_of(cells) if self._kind is float else self._unpacked(sum(cells))

    def chosen(self, positions: Sequence[int], choose: Callable[..., Any]) -> Any:
        """The least or greatest over groups, by ``min`` or ``max``; None of nothing but NULL."""
        cells = self._taken(positions)
        if not cells:
            return None
        if self._kind is object or self._kind is float:
            return _chosen(cells, choose)
        return self._unpacked(choose(cells))

    def _taken(self, positions: Sequence[int]) -> Cells:
        """Cells as they are kept, without NULL."""
        cells = self._cells
        if isinstance(positions, range):
            found: Cells = cells[positions.start : positions.stop]
        else:
            found = [cells[position] for position in positions]
        if self._kind is object:
            return [cell for cell in found if cell is not None]
        return [cell for cell in found if cell != NULL] if self._nulls else found

    def _unpacked(self, cell: int) -> Any:
        return cell if self._unit is None else _exact().multiply(cell, self._unit)

    def _packed(self, cells: Cells) -> Cells | None:
        """Cells as they are kept; None where they do not fit."""
        kinds = set(map(type, cells))
        has_null = type(None) in kinds
        kinds.discard(type(None))
        if kinds:
            kind = kinds.pop()
            if kinds or not self._takes(kind, cells):
                return None
        if self._kind is float:
            return None if has_null else cells
        whole = cells if self._unit is None else self._in_units(cells, self._unit)
        if whole is None or NULL in whole:
            return None
        if has_null:
            self._nulls = True
            whole = [NULL if cell is None else cell for cell in whole]
        try:
            return array("q", whole)
        except OverflowError:
            return None

    def _takes(self, kind: type, cells: Cells) -> bool:
        """Say whether cells of a type can join those that are there; the first decide."""
        if self._kind is not None:
            return kind is self._kind
        if kind is float and not self._cells:
            self._cells = array("d")
        elif kind.__name__ == "Decimal":
            first = next(cell for cell in cells if cell is not None)
            if not first.is_finite():
                return False
            self._exponent = first.as_tuple().exponent
            self._unit = _decimal()((0, (1,), self._exponent))
        elif kind is not int:
            return False
        self._kind = kind
        return True

    def _in_units(self, cells: Cells, unit: Decimal) -> Cells | None:
        """Decimals as whole numbers of a unit; None where one has another scale, or is -0."""
        there = [cell for cell in cells if cell is not None]
        if not all(map(unit.same_quantum, there)) or any(not cell and cell.is_signed() for cell in there):
            return None
        scaleb, places = _exact().scaleb, -self._exponent
        return [None if cell is None else int(scaleb(cell, places)) for cell in cells]


def values_of(measure: Measure, states: Sequence[States], start: int, stop: int) -> Cells:
    """A measure of each of some groups of the source that follow each other."""
    cells = states[0].cells(start, stop)
    if measure.function == "avg":
        return list(map(quotient, cells, states[1].cells(start, stop)))
    return [cell or 0 for cell in cells] if measure.function == "count" else cells


def value_of(measure: Measure, states: Sequence[States], positions: Sequence[int]) -> Any:
    """A measure over some groups of the source."""
    if measure.function in ("min", "max"):
        return _over(states[0], positions, min if measure.function == "min" else max)
    total = _over(states[0], positions)
    if measure.function == "avg":
        return quotient(total, _over(states[1], positions))
    return 0 if total is None and measure.function == "count" else total


def _over(states: States, positions: Sequence[int], choose: Callable[..., Any] | None = None) -> Any:
    if len(positions) == 1:
        return states.at(positions[0])
    return states.total(positions) if choose is None else states.chosen(positions, choose)


def quotient(total: Any, count: int | None) -> Any:
    """An average: of whole numbers and decimals rounded half to even at PLACES, of floats a float."""
    if total is None or not count:
        return None
    if isinstance(total, float):
        return total / count
    top, bottom = total, int(count)
    if not isinstance(total, int):
        if not total.is_finite():
            return total
        top, below = total.as_integer_ratio()
        bottom *= below
    units, rest = divmod(top * ONE, bottom)
    if 2 * rest > bottom or (2 * rest == bottom and units & 1):
        units += 1
    if units % ONE == 0:
        return _decimal()(units // ONE)
    return _exact().normalize(_decimal()(units).scaleb(-PLACES, _exact()))


def fsum_of(cells: Cells) -> float:
    """Floats, and whole numbers among them, added as if exactly and rounded once."""
    parts = [cell for cell in cells if isinstance(cell, float)]
    whole = sum(cell for cell in cells if not isinstance(cell, float))
    while whole:  # one beyond 2^53 is several floats
        parts.append(float(whole))
        whole -= int(parts[-1])
    try:
        return fsum(parts)
    except (OverflowError, ValueError):
        if unbounded := [part for part in parts if not isfinite(part)]:
            return sum(unbounded)
    from fractions import Fraction  # large ones that may cancel out

    total = sum(map(Fraction, parts))
    try:
        return float(total)
    except OverflowError:
        return float("inf") if total > 0 else float("-inf")


def _sum(cells: Cells) -> Any:
    kinds = {cell.__class__.__name__ for cell in cells}
    if kinds == {"int"}:
        return sum(cells)
    if kinds <= {"int", "float"}:
        return fsum_of(cells)
    if kinds <= {"int", "Decimal"}:
        add, total = _exact().add, _decimal()(cells[0])
        for cell in cells[1:]:
            total = add(total, cell)
        return total
    raise BuildFailed("source_failed", cause=f"cannot be added: {', '.join(sorted(kinds))}")


def _chosen(cells: Cells, choose: Callable[..., Any]) -> Any:
    """The least or greatest as databases have it: NaN is the greatest number."""
    numbers = [cell for cell in cells if cell == cell]  # noqa: PLR0124 - NaN is not itself
    if not numbers or (choose is max and len(numbers) < len(cells)):
        return next(cell for cell in cells if cell != cell)  # noqa: PLR0124
    try:
        return choose(numbers)
    except TypeError:  # SQLite has numbers and text in one column
        return choose(numbers, key=order_key)


@cache
def _decimal() -> type[Decimal]:
    from decimal import Decimal

    return Decimal


@cache
def _exact() -> Context:
    """Arithmetic that never rounds, and in which infinities and NaN are numbers as others."""
    from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context

    return Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])

"""The measures of a grouped export: what a source says of its groups, kept small, and put together exactly.

A million groups are allowed, and a number of Python takes 32 to 104 bytes: integers and floats are kept in 8, decimals
in 9. Adding never rounds but for floats, and those once.
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
OF_NULL = 127  # exponent of NULL among decimals
PLACES = 12  # of an average, after the point
ONE = 10**PLACES
Cells = Sequence[Any]


class States:
    """One column of what a source says of its groups, in the order of the groups."""

    def __init__(self) -> None:
        """Start empty."""
        self._cells: Any = array("q")  # or one of floats, or Decimals, or a list of whatever came
        self._kind: type | None = None  # of the cells; None: nothing but NULL so far; object: kept as they come

    def extend(self, cells: Cells) -> None:
        """Keep more of them."""
        if self._kind is object or not self._packs(cells):
            if self._kind is not object:
                self._cells, self._kind = self.cells(0, len(self._cells)), object
            self._cells.extend(cells)

    def at(self, position: int) -> Any:
        """The cell of one group."""
        cell = self._cells[position]
        return None if self._is_whole and cell == NULL else cell

    def cells(self, start: int, stop: int) -> Cells:
        """The cells of some groups that follow each other."""
        cells = list(self._cells[start:stop])
        return [None if cell == NULL else cell for cell in cells] if self._is_whole and NULL in cells else cells

    def total(self, positions: Sequence[int]) -> Any:
        """The sum over groups; None of nothing but NULL."""
        if isinstance(self._cells, Decimals):
            return self._cells.total(positions)
        return _sum(self._there(positions))

    def chosen(self, positions: Sequence[int], choose: Callable[..., Any]) -> Any:
        """The least or greatest over groups, by ``min`` or ``max``; None of nothing but NULL."""
        if isinstance(self._cells, Decimals):
            return self._cells.chosen(positions, choose)
        return _chosen(self._there(positions), choose)

    @property
    def _is_whole(self) -> bool:
        return self._kind is None or self._kind is int

    def _there(self, positions: Sequence[int]) -> Cells:
        """Cells that are not NULL."""
        found = taken(self._cells, positions)
        nothing = NULL if self._is_whole else None
        return [cell for cell in found if cell != nothing] if nothing in found else found

    def _packs(self, cells: Cells) -> bool:
        """Keep cells in few bytes each; say whether that could be done."""
        kinds = set(map(type, cells))
        has_null = type(None) in kinds
        kinds.discard(type(None))
        if len(kinds) > 1 or (kinds and not self._takes(*kinds)) or (has_null and self._kind is float):
            return False
        try:
            if self._is_whole and has_null:
                cells = array("q", [NULL if cell is None else cell for cell in cells])
            elif self._is_whole:
                cells = array("q", cells)
                if NULL in cells:
                    return False
            self._cells.extend(cells)
        except OverflowError:
            return False
        return True

    def _takes(self, kind: type) -> bool:
        """Say whether cells of a type can join those that are there; the first decide."""
        if self._kind is None:
            if kind.__name__ == "Decimal":
                self._cells = Decimals(len(self._cells))
            elif kind is float and not self._cells:
                self._cells = array("d")
            elif kind is not int:
                return False
            self._kind = kind
        return kind is self._kind


class Decimals:
    """Decimals of up to 18 digits, and NULL, in nine bytes each; they come back with the scales that they had."""

    def __init__(self, nulls: int) -> None:
        """Begin with so many NULL."""
        self._whole = array("q", bytes(8 * nulls))
        self._exponents = array("b", [OF_NULL]) * nulls
        self._units: dict[int, Decimal] = {}  # exponent -> 0.01
        self._usual = 0

    def __len__(self) -> int:
        return len(self._whole)

    def __getitem__(self, place: Any) -> Any:
        if not isinstance(place, slice):
            return self[place : place + 1][0]
        multiply, units = _exact().multiply, self._units
        pairs = zip(self._whole[place], self._exponents[place], strict=True)
        return [None if exponent == OF_NULL else multiply(whole, units[exponent]) for whole, exponent in pairs]

    def extend(self, cells: Cells) -> None:
        """Keep more of them.

        Raises:
            OverflowError: one has too many digits, is -0, or no number; none was kept.
        """
        there = [cell for cell in cells if cell is not None]
        if not all(map(self._unit(self._usual).same_quantum, there)):
            exponents = [OF_NULL if cell is None else _exponent(cell) for cell in cells]
            self._usual = _exponent(there[-1])
        elif len(there) == len(cells):
            exponents = [self._usual] * len(cells)
        else:
            exponents = [OF_NULL if cell is None else self._usual for cell in cells]
        if any(not cell and cell.is_signed() for cell in there):
            raise OverflowError
        scaleb = _exact().scaleb
        pairs = zip(cells, exponents, strict=True)
        whole = array("q", [0 if cell is None else int(scaleb(cell, -exponent)) for cell, exponent in pairs])
        self._whole.extend(whole)
        self._exponents.extend(exponents)
        for exponent in set(exponents):
            self._unit(exponent)

    def total(self, positions: Sequence[int]) -> Any:
        """The exact sum over groups, at the finest scale of them; None of nothing but NULL."""
        exponents = taken(self._exponents, positions)
        lowest = min(exponents, default=OF_NULL)
        if lowest == OF_NULL:
            return None
        whole = taken(self._whole, positions)
        if lowest != max(exponents):  # with NULL among them, too
            pairs = zip(whole, exponents, strict=True)
            whole = [each * 10 ** (exponent - lowest) for each, exponent in pairs if exponent != OF_NULL]
        return _exact().multiply(sum(whole), self._unit(lowest))

    def chosen(self, positions: Sequence[int], choose: Callable[..., Any]) -> Any:
        """The least or greatest over groups."""
        exponents = taken(self._exponents, positions)
        lowest = min(exponents, default=OF_NULL)
        if lowest != OF_NULL and lowest == max(exponents):
            return _exact().multiply(choose(taken(self._whole, positions)), self._unit(lowest))
        return choose((cell for cell in map(self.__getitem__, positions) if cell is not None), default=None)

    def _unit(self, exponent: int) -> Decimal:
        if exponent not in self._units:
            self._units[exponent] = _decimal()((0, (1,), exponent))
        return self._units[exponent]


def _exponent(cell: Decimal) -> int:
    exponent = cell.as_tuple().exponent
    if not isinstance(exponent, int) or not -100 < exponent < 100:
        raise OverflowError
    return exponent


def taken(cells: Any, positions: Sequence[int]) -> Cells:
    """The cells at some positions."""
    if isinstance(positions, range):
        found: Cells = cells[positions.start : positions.stop]
        return found
    return [cells[position] for position in positions]


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
    if isinstance(cells, array) and cells.typecode == "q":
        return sum(cells) if cells else None
    kinds = {cell.__class__.__name__ for cell in cells}
    if kinds <= {"int"}:
        return sum(cells) if cells else None
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
    if not cells:
        return None
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

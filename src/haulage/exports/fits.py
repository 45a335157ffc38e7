"""Whether a file can hold what was asked for, and whether it holds what was counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from haulage.core.errors import BuildFailed
from haulage.formats import FORMATS

if TYPE_CHECKING:
    from haulage.core.source import Counting
    from haulage.exports.build import BuildOrder


def refuse_over(rows: int, rows_max: int) -> None:
    """Fail for more rows than are allowed."""
    if rows > rows_max:
        raise BuildFailed("rows_exceeded", f"The export has more than the {rows_max:,} rows allowed.")


def refuse_rows(order: BuildOrder, rows: int) -> None:
    """The same as the dataset says, and for more than the format holds."""
    refuse_over(rows, order.plan["limits"]["rows"])
    format = FORMATS[order.format]
    if format.rows_max is None or rows <= format.rows_max:
        return
    offer = offer_of(order)
    if format.rows_split is not None:
        option, value = format.rows_split
        if order.options.get(option) == value:
            return
        offer = f" Ask for it in parts with {option} = {value}." + offer.replace("Choose", "Or choose")
    said = f"The export has more than the {format.rows_max:,} rows that a sheet of {format.label} holds."
    raise BuildFailed("format_rows_exceeded", said + offer)


def refuse_columns(order: BuildOrder, columns: int) -> None:
    """Fail for more columns than the format holds."""
    format = FORMATS[order.format]
    if format.columns_max is not None and columns > format.columns_max:
        said = f"The export has {columns:,} columns; a file of {format.label} holds {format.columns_max:,}."
        raise BuildFailed("format_columns_exceeded", said + offer_of(order))


def offer_of(order: BuildOrder) -> str:
    """A sentence that names the dataset's other formats, which have no limits like these."""
    others = [name for name in order.plan.get("formats", ()) if name != order.format]
    return f" Choose another format: {', '.join(others)}." if others else ""


def refuse_difference(total: int, rows: str) -> NoReturn:
    """Counted and written in one read transaction: a query that gives other rows each time cannot be proved."""
    raise BuildFailed("count_mismatch", f"{total:,} rows were counted and {rows} came; no file was kept.")


class Total:
    """How many rows there will be, as far as is known: counted before they are read, or beside it."""

    def __init__(self, order: BuildOrder, counted: int | None, beside: Counting | None) -> None:
        """Refuse more than may be."""
        self._order = order
        self._beside = beside
        self._is_open = beside is not None
        self._counted = counted
        self.rows = counted  # that are expected
        self.has_changed = False
        refuse_rows(order, counted or 0)

    def begin_anew(self) -> None:
        """Nothing was read yet."""
        self.rows, self.has_changed = self._counted, False

    def now(self) -> int | None:
        """What is known at the moment."""
        if self._beside is not None and self._is_open and self._beside.done():
            self._take(self._beside.total())
        return self.rows

    def looked(self, rows: int, *, exact: bool) -> None:
        """So many were there in a first reading."""
        if exact and self.rows is not None and rows != self.rows:
            refuse_difference(self.rows, f"{rows:,}")
        self.rows = rows

    def came(self, rows: int, *, exact: bool, at_end: bool = False) -> None:
        """So many have been read, or are all. In a source without a snapshot, they may be others than were counted."""
        if self._beside is not None:
            if at_end:
                self._close(self._beside, rows)
            elif self.rows is not None and rows > self.rows:
                self.rows = None
        if self.rows is None or not (rows > self.rows or (at_end and rows < self.rows)):
            return
        if exact:
            refuse_difference(self.rows, f"{rows:,}" if at_end else f"more than {self.rows:,}")
        self.rows, self.has_changed = None, True

    def _close(self, beside: Counting, rows: int) -> None:
        """Compare with what was counted beside, and where that is another number, with what is counted here."""
        if self._is_open:
            self._take(beside.total())
        if self._counted is not None and self._counted != rows:
            self._take(beside.again())

    def _take(self, counted: int | None) -> None:
        self._is_open = False
        refuse_rows(self._order, counted or 0)
        self.rows = self._counted = counted

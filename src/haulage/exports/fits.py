"""Whether a file can hold what was asked for, and whether it holds what was counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from haulage.core.errors import BuildFailed
from haulage.formats import FORMATS

if TYPE_CHECKING:
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

"""Types and rows of PostgreSQL: what each type is to a file, and rows out of what COPY sends as text.

The server writes every value by the output function of its type; what is set about that is in
``postgresql_session.py``. Only booleans, arrays and rows are written otherwise than COPY does: as ``true`` and
``false``, and as JSON.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from haulage.sources.query import mended

if TYPE_CHECKING:
    from haulage.core.source import Batches

_TYPES = {  # by oid; any other is text, or a document by its category
    16: "boolean",
    17: "bytes",
    20: "integer",
    21: "integer",
    23: "integer",
    26: "integer",  # oid
    114: "json",
    700: "float",
    701: "float",
    1082: "date",
    1114: "timestamp",
    1184: "timestamp",
    1700: "decimal",
    2249: "row",
    3802: "json",
}
_CATEGORIES = {"A": "array", "C": "row"}
_TEXTUAL = ("S", "E", "Z", "X", "P")  # categories of which text is the nature: texts, names, enums
_TYPED_BY_NAME = ("uuid", "xml", "time")  # so begin the names of those that are text by nature, or that formats know
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_MEANT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

BATCH_ROWS = 512
Reader = Callable[[Sequence[str | None]], Sequence[Any]]


class Kind(NamedTuple):
    """One column's type.

    Args:
        type: one of the types that a dataset can declare, ``bytes``, or None for what is text to a file.
        native: the server's own name of it, with its measures.
    """

    type: str | None
    native: str
    is_document: bool = False
    foreign: bool = False  # text to a file, but of a type that is more than that: intervals, ranges, addresses

    def written(self, column: str, declared: str | None) -> str:
        """The SQL of this column as it comes."""
        if self.is_document:
            return f"pg_catalog.to_json({column})::text"
        if self.type == "boolean":
            return f"{column}::text"
        if self.type == "float" and declared == "decimal":  # by its digits: a cast of the number would round them
            return f"{column}::text::numeric"
        return column

    def reader(self, *, as_text: bool) -> Reader | None:
        """What makes values of the texts of a column; None where they stay texts."""
        if self.type == "bytes":
            return _bytes
        if as_text:
            return None
        return {"integer": _integers, "float": _floats, "decimal": _decimals, "boolean": _booleans}.get(self.type or "")


def kind_of(oid: int, native: str, category: str) -> Kind:
    """What a type is to a file."""
    known = _TYPES.get(oid) or _CATEGORIES.get(category)
    if known in ("array", "row"):
        return Kind("json", native, is_document=True)
    is_text = category in _TEXTUAL or (native.startswith(_TYPED_BY_NAME) and not native.endswith(" with time zone"))
    return Kind(known, native, foreign=known is None and not is_text)


def batches_of(
    pieces: Iterator[tuple[int, bytes]], readers: Sequence[Reader | None], replaced: Counter[str]
) -> Batches:
    """Rows of COPY's text format, not many at a time: small ones are larger here than in their text."""
    reads = any(readers)
    for _, piece in pieces:
        text, mends = mended(piece)
        if mends:
            replaced["text_replaced"] += mends
        lines = text[:-1].split("\n")
        for start in range(0, len(lines), BATCH_ROWS):
            found = [_cells(line) for line in lines[start : start + BATCH_ROWS]]
            yield _read(found, readers) if reads else found


def _cells(line: str) -> tuple[str | None, ...]:
    if "\\" not in line:
        return tuple(line.split("\t"))
    return tuple([None if cell == "\\N" else _plain(cell) if "\\" in cell else cell for cell in line.split("\t")])


def _plain(cell: str) -> str:
    return _ESCAPE.sub(lambda found: _MEANT.get(found[1], found[1]), cell)


def _read(rows: list[tuple[str | None, ...]], readers: Sequence[Reader | None]) -> Sequence[tuple[Any, ...]]:
    columns = zip(readers, zip(*rows, strict=True), strict=True)
    return list(zip(*[cells if reader is None else reader(cells) for reader, cells in columns], strict=True))


def _integers(cells: Sequence[str | None]) -> Sequence[Any]:
    return [None if cell is None else int(cell) for cell in cells]


def _floats(cells: Sequence[str | None]) -> Sequence[Any]:
    return [None if cell is None else float(cell) for cell in cells]


def _decimals(cells: Sequence[str | None]) -> Sequence[Any]:
    from decimal import Decimal  # takes 2 ms to load

    return [None if cell is None else Decimal(cell) for cell in cells]


def _booleans(cells: Sequence[str | None]) -> Sequence[Any]:
    return [None if cell is None else cell == "true" for cell in cells]


def _bytes(cells: Sequence[str | None]) -> Sequence[Any]:
    return [None if cell is None else bytes.fromhex(cell[2:]) for cell in cells]

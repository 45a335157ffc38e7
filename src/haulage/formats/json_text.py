"""Lines of JSON out of text of PostgreSQL in which every cell is JSON already: only the keys are put between.

The server is asked for CSV in which ``quote`` and ``escape`` are those of JSON: what stands in a cell is right as it
is, but for control characters, of which one that text hardly has parts the cells. A chunk that holds no others than one
behind each cell needs nothing; any other is read cell by cell. Floats, bytes and documents are written by the same
hands as those of any source. The bytes are those of ``Objects``, and it takes a third of the time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING

from haulage.core.reading import CELL_END
from haulage.formats.arrow import LEAST_MEMORY, allowed_memory

if TYPE_CHECKING:
    from haulage.core.catalogue import Column
    from haulage.formats.json_values import JsonValues

PROFILE = "json_fields"
ARROW_FROM = 200_000  # rows; to load Arrow takes as long as to write so many without it
_CELL_END = CELL_END.encode()
_CONTROLS = bytes(range(32))
_CELL = re.compile(rb'("(?:[^"\\]++|\\.)*+"|[^\x01\n]*+)[\x01\n]', re.DOTALL)  # possessive: nothing is kept to go back
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPES = {bytes([sign]): quoted(chr(sign))[1:-1].encode() for sign in range(1, 32)}
_NULL, _NO_NUMBERS = b"null", (b"NaN", b"Infinity", b"-Infinity")

Cells = list[bytes]


class TextLines:
    """The rows of one file as objects, with ``between`` from each to the next."""

    def __init__(
        self, names: Sequence[str], columns: Sequence[Column], values: JsonValues, between: bytes, *, long_as_text: bool
    ) -> None:
        self._values = values
        leads = [f"{',' if place else '{'}{name}".encode() for place, name in enumerate(names)]
        self._first = leads[0]
        self._leads = [b"}" + between + leads[0], *leads[1:]]
        self._width = len(columns)
        self._decimals = [place for place, column in enumerate(columns) if column.type == "decimal"]
        self._infinite = any("(" not in (columns[place].native or "") for place in self._decimals)  # may be, of those
        self._special: dict[int, Callable[[bytes], bytes]] = {}
        for place, column in enumerate(columns):
            if column.type in ("float", "bytes", "json"):
                self._special[place] = {"float": self._float, "bytes": self._bytes, "json": self._document}[column.type]
            elif long_as_text and column.type == "decimal":
                self._special[place] = self._decimal_text
            elif long_as_text and column.type == "integer":
                self._special[place] = self._integer_text

    def joined(self, data: bytes, rows: int, start: bytes, end: bytes) -> bytes:
        """Whole rows as objects, behind ``start`` and before ``end``."""
        special = self._special
        if self._may_be_no_number(data):
            special = {**dict.fromkeys(self._decimals, self._decimal), **special}
        cells = self._plain(data, rows)
        if cells is None:
            raw = _CELL.findall(data)
            if len(raw) != rows * self._width:
                raise AssertionError(f"{len(raw)} cells in {rows} rows of {self._width}")
            cells = _escaped(raw)
        else:
            raw = cells
        for place, write in special.items():
            column = slice(place, None, self._width)
            cells[column] = [cell if cell == _NULL else write(cell) for cell in raw[column]]
        return self._put_together(cells, rows, start, end)

    def _may_be_no_number(self, data: bytes) -> bool:
        """Whether there may be decimals that are none; to look from the end takes half the time."""
        return bool(self._decimals) and (data.rfind(b"NaN") >= 0 or (self._infinite and data.rfind(b"Infinity") >= 0))

    def _plain(self, data: bytes, rows: int) -> Cells | None:
        """The cells of a chunk without control characters in them; None for another."""
        if len(data) - len(data.translate(None, _CONTROLS)) != rows * self._width:
            return None
        cells = data.replace(b"\n", _CELL_END).split(_CELL_END)
        cells.pop()
        return cells

    def _put_together(self, cells: Cells, rows: int, start: bytes, end: bytes) -> bytes:
        parts = [b""] * (2 * len(cells))
        parts[0::2] = self._leads * rows
        parts[1::2] = cells
        parts[0] = start + self._first
        parts.append(b"}" + end)
        return b"".join(parts)

    # -- cells that are not JSON as they come ------------------------------------------------------------

    def _float(self, cell: bytes) -> bytes:
        return self._values.text(float(cell)).encode()

    def _bytes(self, cell: bytes) -> bytes:
        return self._values.text(bytes.fromhex(cell[4:-1].decode())).encode()  # "\\x00ff"

    def _document(self, cell: bytes) -> bytes:
        return self._values.document(_ESCAPED.sub(rb"\1", cell[1:-1]).decode()).encode()

    def _decimal(self, cell: bytes) -> bytes:
        return self._not_a_number(cell) if cell in _NO_NUMBERS else cell

    def _decimal_text(self, cell: bytes) -> bytes:
        return self._not_a_number(cell) if cell in _NO_NUMBERS else b'"' + cell + b'"'

    def _not_a_number(self, cell: bytes) -> bytes:
        return self._values.text(float(cell)).encode()  # as text, and counted

    def _integer_text(self, cell: bytes) -> bytes:
        return self._values.text(int(cell)).encode()


def _escaped(cells: Cells) -> Cells:
    """Cells without control characters. No text of PostgreSQL holds NUL; a pattern would hold each of its finds."""
    whole = b"\0".join(cells)
    for sign, escape in _ESCAPES.items():
        if sign in whole:
            whole = whole.replace(sign, escape)
    return whole.split(b"\0")


def text_lines(
    names: Sequence[str],
    columns: Sequence[Column],
    values: JsonValues,
    between: bytes,
    *,
    long_as_text: bool,
    total: int | None,
) -> TextLines:
    """By Arrow, where it is installed, takes less than its start, and no cell needs a look; else by our own hands."""
    lines: type[TextLines] = TextLines
    if (total is None or total >= ARROW_FROM) and allowed_memory() >= LEAST_MEMORY:
        with suppress(ImportError):
            from haulage.formats.json_arrow import ArrowLines

            lines = ArrowLines
    return lines(names, columns, values, between, long_as_text=long_as_text)

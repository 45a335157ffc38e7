"""XLSX: a sheet, or several for many rows, written from front to back in memory that does not grow with them.

xlsx_cells.py says what becomes of a value, xlsx_parts.py has the rest of a workbook, archive.py the ZIP around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice, product, repeat
from string import ascii_uppercase
from typing import TYPE_CHECKING

from haulage.formats.archive import Archive
from haulage.formats.cells import as_declared, encoded, known_type
from haulage.formats.format import ABOUT_NOTHING, About, Format, Notices, Option
from haulage.formats.xlsx_cells import XlsxCells
from haulage.formats.xlsx_parts import SHEET_END, SHEET_START, parts, sheet_part

if TYPE_CHECKING:
    from haulage.core.catalogue import Column

ROWS_MAX = 1_048_575  # beside the header
COLUMNS_MAX = 16_384
WIDE, NARROW, WIDEST = 20, 11, 60  # characters; a day or a moment in too narrow a column is shown as ####


def _letters(count: int) -> list[str]:
    """A, B, … Z, AA, …: the names of so many columns."""
    names = ("".join(name) for length in (1, 2, 3) for name in product(ascii_uppercase, repeat=length))
    return list(islice(names, count))


class XlsxEncoder:
    """One workbook in the making.

    As in objects.py, the columns are written one by one, and a row is then joined from its values and what stands
    between them, so that most of the work is done by loops in C.
    """

    held = 0

    def __init__(self, columns: Sequence[Column], options: Mapping[str, str], about: About = ABOUT_NOTHING) -> None:
        assert columns, "a file has at least one column"
        self.notices = Notices()
        self.trailer = b""
        self._archive = Archive()
        self._columns = columns
        self._letters = _letters(len(columns))
        self._types = list(map(known_type, columns))
        as_cells = options["moments"] == "cells"
        self._cells = [
            XlsxCells(column.header, known, self.notices, about, as_cells=as_cells, foreign=column.foreign)
            for column, known in zip(columns, self._types, strict=True)
        ]
        self._is_split = options["sheets"] == "several"
        self._sheets = 0  # begun so far
        self._row = 1  # the last one written
        self._start = b""  # of every sheet

    def begin(self) -> bytes:
        headers = [
            f'<c r="{letters}1{cells.header()}' for letters, cells in zip(self._letters, self._cells, strict=True)
        ]
        widths = "".join(map(self._width, range(len(self._columns))))
        start = f'{SHEET_START.format(columns=widths)}<row r="1">{"".join(headers)}</row>'
        self._start = encoded(start, self.notices)
        return (b"" if self._is_split else self._parts()) + self._sheet()

    def _sheet(self) -> bytes:
        """Begin the next sheet."""
        self._sheets += 1
        self._row = 1
        return self._archive.entry(sheet_part(self._sheets)) + self._archive.write(self._start)

    def _parts(self) -> bytes:
        """Everything but sheets. It names them, so it stands behind them where nobody knows how many there will be."""
        written = parts(max(1, self._sheets))
        return b"".join(
            [self._archive.entry(name) + self._archive.write(text.encode()) for name, text in written.items()]
        )

    def rows(self, batch: Sequence[tuple[object, ...]]) -> bytes:
        room = ROWS_MAX + 1 - self._row
        if self._is_split and len(batch) > room:
            filled = self.rows(batch[:room])
            return filled + self._archive.write(SHEET_END.encode()) + self._sheet() + self.rows(batch[room:])
        if not batch:
            return b""
        numbers = list(map(str, range(self._row + 1, self._row + 1 + len(batch))))
        pieces: list[Iterable[str]] = [repeat('<row r="'), numbers]
        lead = '">'
        columns = zip(*batch, strict=True)
        for letters, known, writer, cells in zip(self._letters, self._types, self._cells, columns, strict=True):
            before, values, behind = writer.column(as_declared(cells, known))
            pieces += (repeat(f'{lead}<c r="{letters}'), numbers)
            pieces += (repeat(before), values) if before else (values,)
            lead = behind
        pieces.append(repeat(lead + "</row>"))
        text = "".join(chain.from_iterable(zip(*pieces, strict=False)))  # what stands between is endless
        self._row += len(batch)
        return self._archive.write(encoded(text, self.notices))

    def end(self) -> bytes:
        last = self._archive.write(SHEET_END.encode())
        if self._is_split:
            last += self._parts()
        rest, self.trailer = self._archive.end()
        return last + rest

    def _width(self, index: int) -> str:
        column = self._columns[index]
        least = WIDE if column.type in (None, "timestamp") else NARROW
        width = max(least, min(WIDEST, len(column.header) + 2))
        return f'<col min="{index + 1}" max="{index + 1}" width="{width}" customWidth="1"/>'


FORMAT = Format(
    name="xlsx",
    label="Excel (XLSX)",
    media_type="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    suffix=".xlsx",
    options=(
        Option("moments", ("exact", "cells"), "exact", "Times with a zone, or finer than milliseconds"),
        Option("sheets", ("one", "several"), "one", "More rows than a sheet holds"),
    ),
    open=XlsxEncoder,
    rows_max=ROWS_MAX,
    rows_split=("sheets", "several"),
    columns_max=COLUMNS_MAX,
)

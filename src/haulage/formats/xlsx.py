"""XLSX: one sheet, written from front to back in memory that does not grow with it.

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
from haulage.formats.xlsx_parts import PARTS, SHEET, SHEET_END, SHEET_START

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
            XlsxCells(column.header, known, self.notices, about, as_cells=as_cells)
            for column, known in zip(columns, self._types, strict=True)
        ]
        self._row = 1  # the last one written

    def begin(self) -> bytes:
        parts = [self._archive.entry(name) + self._archive.write(text.encode()) for name, text in PARTS.items()]
        headers = [
            f'<c r="{letters}1{cells.header()}' for letters, cells in zip(self._letters, self._cells, strict=True)
        ]
        sheet = SHEET_START.format(columns="".join(map(self._width, range(len(self._columns)))))
        parts.append(self._archive.entry(SHEET))
        parts.append(self._archive.write(encoded(f'{sheet}<row r="1">{"".join(headers)}</row>', self.notices)))
        return b"".join(parts)

    def rows(self, batch: Sequence[tuple[object, ...]]) -> bytes:
        if not batch:
            return b""
        numbers = list(map(str, range(self._row + 1, self._row + 1 + len(batch))))
        parts: list[Iterable[str]] = [repeat('<row r="'), numbers]
        lead = '">'
        columns = zip(*batch, strict=True)
        for letters, known, writer, cells in zip(self._letters, self._types, self._cells, columns, strict=True):
            before, values, behind = writer.column(as_declared(cells, known))
            parts += (repeat(f'{lead}<c r="{letters}'), numbers)
            parts += (repeat(before), values) if before else (values,)
            lead = behind
        parts.append(repeat(lead + "</row>"))
        text = "".join(chain.from_iterable(zip(*parts, strict=False)))  # what stands between is endless
        self._row += len(batch)
        return self._archive.write(encoded(text, self.notices))

    def end(self) -> bytes:
        last = self._archive.write(SHEET_END.encode())
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
    options=(Option("moments", ("exact", "cells"), "exact", "Times with a zone, or finer than milliseconds"),),
    open=XlsxEncoder,
    rows_max=ROWS_MAX,
    columns_max=COLUMNS_MAX,
)

"""Single cells of a sheet: what a spreadsheet holds exactly is a number, a day or a truth; all else is text.

A spreadsheet keeps numbers as doubles and shows 15 digits, so longer integers and decimals are text; floats are
doubles already. Its calendar is wrong before 1900-03-01 and knows no zones but in words, and those who read it round
moments to milliseconds. What is text for such a reason is counted as ``written_as_text``, with the names of its
columns. Text is never shared between cells and never a formula.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID

from haulage.formats.cells import (
    NON_FINITE,
    NON_FINITE_AS_TEXT,
    NUMBERS_OR_NULL,
    TEXT_OR_NULL,
    WRITTEN_AS_TEXT,
    base64_text,
    decimal_text,
    family,
    is_typed,
    plain_texts,
)
from haulage.formats.xlsx_parts import (
    CLOCK,
    CLOCK_FINE,
    DAY,
    HEADER,
    MOMENT,
    MOMENT_FINE,
    MOMENT_UTC,
    MOMENT_UTC_FINE,
)

if TYPE_CHECKING:
    from decimal import Decimal

    from haulage.formats.format import About, Notices

TEXT_MAX = 32_767  # characters of a cell, in units of UTF-16 as a spreadsheet counts them
DIGITS = 15  # of a number that a double holds and a spreadsheet shows
_INTEGER_MAX = 10**DIGITS - 1
_SMALLEST = 2.2250738585072014e-308  # a spreadsheet has no smaller double but 0
_DAY_ZERO = 693_594  # 1899-12-30 as an ordinal
_FIRST_DATE = date(1900, 3, 1)
_FIRST_DAY = _FIRST_DATE.toordinal()
_DAY_MILLISECONDS = 86_400_000
_FINE = 1000  # microseconds of the finest part of a second that readers keep
ZONES_AS_UTC = "zones_as_utc"  # a notice, only where it was asked for: moments that lost their zone
TIMES_CUT = "times_cut"  # the same: moments and times that lost what is finer than milliseconds
_BLANK = '"/>'
_START, _PRESERVED, _END = '" t="inlineStr"><is><t>', '" t="inlineStr"><is><t xml:space="preserve">', "</t></is></c>"
_SPACES = (" ", "\n", "\t")  # at an end they are kept only if asked for; a CR is written otherwise anyhow
# Signs that XML has, those that it does not have, and what a reader would take for such an escape of ours.
_TROUBLE = re.compile("[&<>\x01-\x08\x0b-\x1f\ufffe\uffff]|_(?=x[0-9a-fA-F]{4}_)")
_XML = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def _start(cell: str) -> str:
    return _PRESERVED if cell.startswith(_SPACES) or cell.endswith(_SPACES) else _START


def _escape(sign: re.Match[str]) -> str:
    return _XML.get(sign[0]) or f"_x{ord(sign[0]):04X}_"


class XlsxCells:
    """The cells of one column; what stands in a row before a cell, up to its reference, is the caller's.

    Everything here begins with the quote that closes the reference.
    """

    def __init__(
        self,
        header: str,
        known: str | None,
        notices: Notices,
        about: About,
        *,
        as_cells: bool = False,
        foreign: bool = False,
    ) -> None:
        """One column.

        Args:
            as_cells: rather a moment in UTC or without its last digits than a text.
            foreign: its texts are values of a type that a sheet does not have.
        """
        self._header = header
        self._is_typed = foreign or is_typed(known)
        self._as_cells = as_cells
        self._notices = notices
        self._about = about
        self._writers: dict[str, Callable[[Any], str]] = {
            "null": lambda _: _BLANK,
            "boolean": lambda cell: f'" t="b"><v>{cell:d}</v></c>',
            "integer": self._integer,
            "float": self._float,
            "decimal": self._decimal,
            "text": self._as_text if self._is_typed else self._text,
            "bytes": lambda cell: self._text(base64_text(cell, notices)),
            "moment": self._moment,
            "document": lambda cell: self._text(self._json(cell)),
            "other": lambda cell: (self._text if isinstance(cell, UUID) else self._as_text)(str(cell)),
        }

    def header(self) -> str:
        """The cell of the header."""
        return f'" s="{HEADER}' + self._text(self._header)

    def column(self, cells: Sequence[Any]) -> tuple[str, Iterable[str], str]:
        """What stands before each value, the values, and what stands behind each."""
        text = _joined(cells)
        if text is not None:
            if self._is_typed:
                self._notices.count(WRITTEN_AS_TEXT, len(cells), column=self._header)
            return self._texts(cells, text)
        kinds = set(map(type, cells))
        if kinds == {date} and min(cells) >= _FIRST_DATE:
            return f'" s="{DAY}"><v>', [str(day - _DAY_ZERO) for day in map(date.toordinal, cells)], "</v></c>"
        if (numbers := self._plain_numbers(cells, kinds)) is not None:
            return numbers
        if kinds <= TEXT_OR_NULL:
            write = self._writers["text"]
            return "", [_BLANK if cell is None else write(cell) for cell in cells], ""
        writers = {kind: self._writers[family(kind)] for kind in kinds}
        return "", [writers[type(cell)](cell) for cell in cells], ""

    def _plain_numbers(self, cells: Sequence[Any], kinds: set[type]) -> tuple[str, Iterable[str], str] | None:
        """A column of numbers and NULL in which nothing is special."""
        there = [cell for cell in cells if cell is not None]
        numbers = None
        if there and kinds <= NUMBERS_OR_NULL:
            numbers = self._numbers(there, kinds)
        elif there and {family(kind) for kind in kinds} <= {"decimal", "null"}:
            numbers = _decimals(there)
        if numbers is None:
            return None
        if len(there) == len(cells):
            return '"><v>', numbers, "</v></c>"
        left = iter(numbers)
        return "", [_BLANK if cell is None else f'"><v>{next(left)}</v></c>' for cell in cells], ""

    def _numbers(self, cells: Sequence[Any], kinds: set[type]) -> list[str] | None:
        """The texts of integers and floats, or None when one of them is special."""
        texts = list(map(repr, cells))
        if float in kinds:
            line = "".join(texts)
            if "n" in line or "e-3" in line:  # inf and nan; perhaps too small
                return None
        if int in kinds and max(map(abs, cells)) > _INTEGER_MAX:
            return None
        return texts

    def _texts(self, cells: Sequence[str], text: str) -> tuple[str, Iterable[str], str]:
        if len(text) * 2 > TEXT_MAX:
            for cell in cells:
                self._refuse_long(cell)
        if _TROUBLE.search(text):
            cells = [_TROUBLE.sub(_escape, cell) for cell in cells]
        spaced = text.startswith(_SPACES) or text.endswith(_SPACES)
        if spaced or any(f"\0{space}" in text or f"{space}\0" in text for space in _SPACES):
            return "", [_start(cell) + cell + _END for cell in cells], ""
        return _START, cells, _END

    def _text(self, cell: str) -> str:
        if len(cell) * 2 > TEXT_MAX:
            self._refuse_long(cell)
        return _start(cell) + _TROUBLE.sub(_escape, cell) + _END

    def _as_text(self, text: str) -> str:
        """What is text only because a spreadsheet would change it otherwise."""
        self._notices.count(WRITTEN_AS_TEXT, column=self._header)
        return self._text(text)

    def _refuse_long(self, cell: str) -> None:
        if len(cell) <= TEXT_MAX // 2:
            return
        units = len(cell) + sum(map("\uffff".__lt__, cell))
        if units > TEXT_MAX:
            self._refuse(units)

    def _refuse(self, units: int) -> NoReturn:
        from haulage.core.errors import BuildFailed

        said = (
            f"A cell of the column {self._header[:80]!r} has {units:,} characters; a cell of XLSX holds {TEXT_MAX:,}."
        )
        raise BuildFailed("cell_too_long", said + self._about.offer)

    # -- numbers ---------------------------------------------------------------------------------------

    def _integer(self, cell: int) -> str:
        text = int.__repr__(cell)
        return f'"><v>{text}</v></c>' if -_INTEGER_MAX <= cell <= _INTEGER_MAX else self._as_text(text)

    def _float(self, cell: float) -> str:
        text = float.__repr__(cell)
        if text in NON_FINITE:
            return self._non_finite(NON_FINITE[text])
        return f'"><v>{text}</v></c>' if abs(cell) >= _SMALLEST or not cell else self._as_text(text)

    def _decimal(self, cell: Decimal) -> str:
        text = decimal_text(cell)
        if not cell.is_finite():
            return self._non_finite(text)
        digits = (text.rstrip("0") if "." in text else text).replace(".", "").lstrip("-0")
        fits = len(digits) <= DIGITS and (not digits or cell.adjusted() > -300)  # far from the smallest
        return f'"><v>{text}</v></c>' if fits else self._as_text(text)

    def _non_finite(self, text: str) -> str:
        self._notices.count(NON_FINITE_AS_TEXT)
        return self._text(text)

    # -- days and times --------------------------------------------------------------------------------

    def _moment(self, cell: date | time) -> str:
        if isinstance(cell, datetime):
            return self._instant(cell)
        if isinstance(cell, date):
            day = cell.toordinal()
            return f'" s="{DAY}"><v>{day - _DAY_ZERO}</v></c>' if day >= _FIRST_DAY else self._as_text(cell.isoformat())
        if cell.tzinfo is not None or self._is_too_fine(cell):
            return self._as_text(cell.isoformat())
        serial = _since_midnight(cell) / _DAY_MILLISECONDS
        return f'" s="{CLOCK_FINE if cell.microsecond >= _FINE else CLOCK}"><v>{serial!r}</v></c>'

    def _instant(self, cell: datetime) -> str:
        """A moment of UTC says so in its look; those of other zones would lose them, unless that was asked for."""
        shown, offset = cell, cell.utcoffset()
        if offset:
            try:
                shown = cell.astimezone(UTC) if self._as_cells else cell
            except OverflowError:  # there is no year 0, and none of five digits
                return self._as_text(cell.isoformat())
        day = shown.toordinal()
        if day < _FIRST_DAY or (offset and not self._as_cells) or self._is_too_fine(cell):
            return self._as_text(cell.isoformat())
        if offset:
            self._notices.count(ZONES_AS_UTC, column=self._header)
        # One division of whole numbers, so that only one rounding stands between the moment and its double.
        serial = ((day - _DAY_ZERO) * _DAY_MILLISECONDS + _since_midnight(shown)) / _DAY_MILLISECONDS
        coarse, fine = (MOMENT, MOMENT_FINE) if offset is None else (MOMENT_UTC, MOMENT_UTC_FINE)
        return f'" s="{fine if cell.microsecond >= _FINE else coarse}"><v>{serial!r}</v></c>'

    def _is_too_fine(self, cell: datetime | time) -> bool:
        """Whether milliseconds are not enough; where cells are asked for, they are, and the rest is cut."""
        if not cell.microsecond % _FINE:
            return False
        if self._as_cells:
            self._notices.count(TIMES_CUT, column=self._header)
        return not self._as_cells

    def _json(self, document: object) -> str:
        from haulage.formats.json_values import JsonValues

        return JsonValues(self._notices).text(document)


def _decimals(cells: Sequence[Decimal]) -> list[str] | None:
    """Short ones as they stand in a file; None where one has to be looked at."""
    texts = plain_texts(cells)
    return texts if texts and max(map(len, texts)) <= DIGITS else None


def _since_midnight(cell: datetime | time) -> int:
    return ((cell.hour * 60 + cell.minute) * 60 + cell.second) * 1000 + cell.microsecond // 1000


def _joined(cells: Sequence[Any]) -> str | None:
    """All cells of a column in one text, with NUL between them; None when one of them is no text or holds a NUL."""
    if not isinstance(cells[0], str):
        return None
    try:
        text = "\0".join(cells)
    except TypeError:
        return None
    return text if text.count("\0") == len(cells) - 1 else None

"""Which text a spreadsheet would run as a formula, and the apostrophe that stops it.

A program that opens a CSV file drops what it cannot show before it looks for ``=``; so the question is not
how a cell begins but what its first visible character is. Numbers are no text: -42 stays -42.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

APOSTROPHE = "'"
FORMULA_GUARDED = "formula_guarded"  # a notice: cells and headers

_SIGNS = tuple("=+-@\uff1d\uff0b\uff0d\uff20")  # the last four are full-width, signs in an East Asian Excel
_BREAKS = "\t\r\n\0"  # as first character reason enough: some programs split or trim the cell there


def _span(first: int, last: int) -> str:
    return "".join(map(chr, range(first, last + 1)))


# Controls, spaces, joiners, direction marks, variation selectors, fillers, tags: nothing or a gap to see.
_INVISIBLE = (
    _span(0x00, 0x20)
    + _span(0x7F, 0xA0)
    + "\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5"
    + _span(0x180B, 0x180F)
    + _span(0x2000, 0x200F)
    + _span(0x2028, 0x202F)
    + _span(0x205F, 0x206F)
    + "\u2800\u3000\u3164"
    + _span(0xFE00, 0xFE0F)
    + "\ufeff\uffa0"
    + _span(0xFFF0, 0xFFFC)
    + _span(0xE0000, 0xE007F)
    + _span(0xE0100, 0xE01EF)
)
_SUSPECT = frozenset((*_SIGNS, *_INVISIBLE))
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?Infinity")


def is_formula(text: str) -> bool:
    """Whether a spreadsheet might calculate this text instead of showing it."""
    first = text[:1]
    if first not in _SUSPECT:
        return False
    return first in _BREAKS or text.lstrip(_INVISIBLE).startswith(_SIGNS)


def guarded(cells: Sequence[str], *, numeric: bool) -> tuple[Sequence[str], int]:
    """Text cells with an apostrophe before each formula, and how many got one.

    Args:
        cells: a column, or a single header.
        numeric: the column is declared as numbers, so text that is a plain number and nothing else stays;
            SQLite and some drivers hand numbers over as text.
    """
    if _SUSPECT.isdisjoint({cell[:1] for cell in cells}):  # nearly always
        return cells, 0
    found = [is_formula(cell) and not (numeric and _NUMBER.fullmatch(cell)) for cell in cells]
    changed = [APOSTROPHE + cell if formula else cell for cell, formula in zip(cells, found, strict=True)]
    return changed, sum(found)

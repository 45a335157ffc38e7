"""Sums in SQLite, which has a type per value: its own takes text for 0, and has no decimals.

A sum over anything that is no number is the text NO_NUMBER, and no number at all.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from haulage.core.grouping import NO_NUMBER, adder

# Whatever is no number is greater than every number: https://www.sqlite.org/datatype3.html#sort_order
NUMBER_SUM = f"case when typeof(max({{0}})) in ('text', 'blob') then '{NO_NUMBER}' else sum({{0}}) end"
EXACT_NAME = "haulage_sum"
EXACT_SUM = EXACT_NAME + "({})"  # of decimals
WIDE_SUM = (  # of whole numbers beyond what the own one can add up; where one is a float it is asked as ever
    f"case when typeof(max({{0}})) in ('text', 'blob') then '{NO_NUMBER}'"
    f" when total(typeof({{0}}) = 'real') then sum(cast({{0}} as real)) else {EXACT_NAME}({{0}}) end"
)


class _ExactSum:
    """Adds up by the digits that are written; gives text, since SQLite has no type for it."""

    def __init__(self) -> None:
        from decimal import Decimal  # takes 2 ms to load

        self._number = Decimal
        self._add = adder()
        self._sum: Any = None
        self._wrong = False

    def step(self, value: Any) -> None:
        if value is None or self._wrong:
            return
        try:
            number = self._number(repr(value) if isinstance(value, float) else value)
        except (ArithmeticError, TypeError, ValueError):
            self._wrong = True
            return
        self._sum = number if self._sum is None else self._add(self._sum, number)

    def finalize(self) -> str | None:
        if self._wrong:
            return NO_NUMBER
        return None if self._sum is None else str(self._sum)


def teach_sums(connection: sqlite3.Connection) -> None:
    """Let a connection add up exactly."""
    connection.create_aggregate(EXACT_NAME, 1, _ExactSum)  # type: ignore[arg-type]  # what it gives is text

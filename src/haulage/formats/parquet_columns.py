"""One column of a Parquet file: looked at first, then written, so that no value has to be bent to a type.

A file of Parquet says the type of a column before its first row, and a source may have one per value. So every cell is
looked at in a first reading of the same snapshot; a column gets the type that holds all of them exactly, and where
there is none it is text, as CSV has it, and is counted as ``written_as_text``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa

from haulage.core.errors import BuildFailed
from haulage.formats.cells import (
    NON_FINITE,
    TEXT_OR_NULL,
    WRITTEN_AS_TEXT,
    as_declared,
    base64_text,
    decimal_text,
    family,
    is_typed,
    mended,
    plain_texts,
)
from haulage.formats.json_values import JsonValues

if TYPE_CHECKING:
    from haulage.formats.format import Notices

INT64 = range(-(2**63), 2**63)
EXACT = 2**53  # the largest integer up to which a double has them all
DIGITS, FEW_DIGITS = 38, 18  # of a decimal; those with few are kept in 64 bits
_SCALED = re.compile(r"decimal\((\d+), ?(\d+)\)")
_AS_ONE = {  # what a column of nothing but these is written as
    "boolean": pa.bool_(),
    "float": pa.float64(),
    "bytes": pa.binary(),
    "day": pa.date32(),
    "clock": pa.time64("us"),
    "uuid": pa.uuid(),
}
_SAID = {
    "integer": pa.int64(),
    "float": pa.float64(),
    "boolean": pa.bool_(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "instant": pa.timestamp("us", "UTC"),
    "time": pa.time64("us"),
    "uuid": pa.uuid(),
}
_PLAIN = {"integer": int, "float": float, "boolean": bool, "bytes": bytes}  # what Arrow takes, of all that is like it


def _name(kind: type) -> str:
    """The families of cells.py, with days, moments, times of day and UUIDs apart."""
    if issubclass(kind, date):
        return "moment" if issubclass(kind, datetime) else "day"
    if issubclass(kind, time):
        return "clock"
    return "uuid" if issubclass(kind, UUID) else family(kind)


def decimal_of(whole: int, scale: int) -> pa.DataType | None:
    """The type of decimals with at most so many digits before and behind the point, if there is one."""
    if whole + scale > DIGITS:
        return None
    return pa.decimal128(FEW_DIGITS if whole + scale <= FEW_DIGITS else DIGITS, scale)


class ParquetColumn:
    """``look`` at every batch, ``settle``, then ask for the ``array`` of every batch again."""

    def __init__(self, header: str, declared: str | None, notices: Notices, *, foreign: bool = False) -> None:
        self.header = header
        self._foreign = foreign  # its texts are values of a type that a file does not have
        self._declared = declared
        self._notices = notices
        self._names: dict[type, str] = {}
        self._integers = (0, 0)  # smallest and largest
        self._whole_digits = 0  # of decimals, before the point
        self._scale = 0  # and behind it
        self._offsets: set[timedelta | None] = set()  # of moments and times; None is one without a zone
        self._is_finite = True  # every decimal
        self._type: pa.DataType = pa.string()
        self._is_text = True

    # -- the first reading -----------------------------------------------------------------------------

    def look(self, cells: Sequence[Any]) -> None:
        """Remember what is in a batch."""
        cells = as_declared(cells, self._declared)
        for kind in set(map(type, cells)):
            name = self._names.setdefault(kind, _name(kind))
            if name in ("integer", "decimal", "moment", "clock"):
                self._measure(name, [cell for cell in cells if type(cell) is kind])

    def _measure(self, name: str, cells: Sequence[Any]) -> None:
        if name == "integer":
            self._integers = (min(self._integers[0], *cells), max(self._integers[1], *cells))
        elif name == "decimal":
            self._measure_decimals(cells)
        else:
            self._offsets.update([cell.utcoffset() for cell in cells])

    def _measure_decimals(self, cells: Sequence[Any]) -> None:
        texts = plain_texts(cells)
        if texts is None:
            for cell in cells:
                self._measure_decimal(cell)
            return
        halves = [text.partition(".") for text in texts]
        self._whole_digits = max(self._whole_digits, *[len(whole.lstrip("-0")) for whole, _, _ in halves])
        self._scale = max(self._scale, *[len(rest) for _, _, rest in halves])

    def _measure_decimal(self, cell: Any) -> None:
        _, digits, exponent = cell.as_tuple()
        if isinstance(exponent, str):
            self._is_finite = False
            return
        if cell:
            self._whole_digits = max(self._whole_digits, len(digits) + exponent)
        self._scale = max(self._scale, -exponent)

    def settle(self) -> pa.DataType:
        """The type that holds everything that was seen."""
        names = set(self._names.values()) - {"null"}
        known = self._known(names) if names else self._said()
        self._is_text = known is None
        self._type = pa.string() if known is None else known
        return self._type

    def _said(self) -> pa.DataType | None:
        """Of a column without a value: what it is said to be, so that an empty file has the types of a full one."""
        if said := _SCALED.fullmatch(self._declared or ""):
            return self._decimal() if int(said[1]) <= DIGITS else None
        return _SAID.get(self._declared or "")

    def _known(self, names: set[str]) -> pa.DataType | None:
        if names == {"integer"} and self._integers[0] in INT64 and self._integers[1] in INT64:
            return pa.int64()
        if names == {"integer", "float"} and self._integers[0] >= -EXACT and self._integers[1] <= EXACT:
            return pa.float64()
        if names in ({"decimal"}, {"decimal", "integer"}, {"integer"}) and self._is_finite:
            return self._decimal()
        if names == {"moment"} and len(self._offsets) == 1:
            return self._moment(*self._offsets)
        if names == {"clock"} and self._offsets != {None}:
            return None
        return _AS_ONE.get(*names) if len(names) == 1 else None

    def _decimal(self) -> pa.DataType | None:
        """As declared, if that is enough; else with as many digits as there can be, so that they stay the same."""
        whole = max(self._whole_digits, *(len(str(abs(each)).lstrip("0")) for each in self._integers))
        scale = self._scale
        if (said := _SCALED.fullmatch(self._declared or "")) and int(said[1]) <= DIGITS:
            precision, declared_scale = int(said[1]), int(said[2])
            if scale <= declared_scale and whole <= precision - declared_scale:
                return pa.decimal128(precision, declared_scale)
        return decimal_of(whole, scale)

    def _moment(self, offset: timedelta | None) -> pa.DataType | None:
        if offset is None:
            return pa.timestamp("us")
        minutes, rest = divmod(offset, timedelta(minutes=1))
        if rest:
            return None
        hours, minutes = divmod(abs(minutes), 60)
        zone = f"{'-' if offset < timedelta() else '+'}{hours:02d}:{minutes:02d}"
        return pa.timestamp("us", "UTC" if not offset else zone)

    # -- the second ------------------------------------------------------------------------------------

    def array(self, cells: Sequence[Any]) -> pa.Array:
        """A batch in the column's type.

        Raises:
            BuildFailed: ``values_changed`` where it was something else in the first reading.
        """
        typed = as_declared(cells, self._declared)
        kinds = set(map(type, typed))
        if not kinds <= self._names.keys():
            raise self._changed()
        try:
            return self._texts(cells, typed, kinds) if self._is_text else self._typed(typed, kinds)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as problem:  # not ArrowMemoryError
            raise self._changed() from problem

    def _changed(self) -> BuildFailed:
        return BuildFailed("values_changed", cause=f"the column {self.header[:80]!r}")

    def _typed(self, cells: Sequence[Any], kinds: Iterable[type]) -> pa.Array:
        if self._offsets and not self._offsets.issuperset(_offsets(cells)):
            raise self._changed()  # Arrow would move them to the zone of the others
        for kind in kinds:
            plain = _PLAIN.get(self._names[kind], kind)
            if plain is not kind:
                cells = [plain(cell) if type(cell) is kind else cell for cell in cells]
        if self._type == pa.uuid():
            stored = pa.array([None if cell is None else cell.bytes for cell in cells], pa.binary(16))
            return pa.ExtensionArray.from_storage(self._type, stored)
        return pa.array(cells, self._type)

    def _texts(self, cells: Sequence[Any], typed: Sequence[Any], kinds: Iterable[type]) -> pa.Array:
        """Text as it was read, also where it could have been a day: one that could not made them all text."""
        textual = ("null",) if self._foreign or is_typed(self._declared) else ("null", "text", "document")
        others = {kind for kind in kinds if self._names[kind] not in textual}
        if others:
            self._notices.count(WRITTEN_AS_TEXT, sum(type(cell) in others for cell in typed), column=self.header)
        if self._declared == "decimal":
            cells = typed
        read = set(map(type, cells))
        if not read <= TEXT_OR_NULL:
            writers = {kind: self._writer(_name(kind)) for kind in read}
            cells = [writers[type(cell)](cell) for cell in cells]
        return self._readable(cells)

    def _readable(self, cells: Sequence[str | None]) -> pa.Array:
        """Without what no text can hold, where there is any."""
        if not any(cell is not None and "\0" in cell for cell in cells):
            with suppress(UnicodeEncodeError):
                return pa.array(cells, pa.string())
        return pa.array([cell and mended(cell, self._notices) for cell in cells], pa.string())

    def _writer(self, name: str) -> Callable[[Any], str | None]:
        known: dict[str, Callable[[Any], str | None]] = {
            "null": lambda _: None,
            "text": str.__str__,
            "boolean": lambda cell: "true" if cell else "false",
            "integer": int.__repr__,
            "float": lambda cell: NON_FINITE.get(float.__repr__(cell), float.__repr__(cell)),
            "decimal": decimal_text,
            "bytes": lambda cell: base64_text(cell, self._notices),
            "day": date.isoformat,
            "moment": datetime.isoformat,
            "clock": time.isoformat,
            "document": JsonValues(self._notices).text,
        }
        return known.get(name, str)


def _offsets(cells: Sequence[Any]) -> set[timedelta | None]:
    return {cell.utcoffset() for cell in cells if isinstance(cell, datetime | time)}

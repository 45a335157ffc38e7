"""What single values become as text, the same in every format, and the last step from text to bytes.

A family is what a Python type means to a file. Encoders look at the types that occur in a column of a batch
once and then use one writer for each of them, so nothing here decides anew for every cell.
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from decimal import Decimal
    from uuid import UUID

    from haulage.core.catalogue import Column
    from haulage.formats.format import Notices

NUMBERS = frozenset((int, float))  # exact types whose repr is their text; bool is neither
NUMBERS_OR_NULL = NUMBERS | {type(None)}
TEXT_OR_NULL = frozenset((str, type(None)))
NON_FINITE = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}  # Python's word -> that of the databases
TEXT_REPLACED = "text_replaced"  # a notice: characters that no UTF-8 file or text reader can hold
BYTES_AS_BASE64 = "bytes_as_base64"  # a notice: cells
NON_FINITE_AS_TEXT = "non_finite_as_text"  # a notice: values
WRITTEN_AS_TEXT = (
    "written_as_text"  # a notice: cells of a type that the format has no exact place for, and their columns
)

_FAMILIES: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("null", (type(None),)),
    ("boolean", (bool,)),  # before the integers, which it is one of
    ("integer", (int,)),
    ("float", (float,)),
    ("text", (str,)),
    ("bytes", (bytes, bytearray, memoryview)),
    ("moment", (date, time)),  # datetime is a date
    ("document", (dict, list, tuple)),
)


def family(kind: type) -> str:
    """What a type means to a file: one of the families above, ``decimal`` or ``other``."""
    for name, types in _FAMILIES:
        if issubclass(kind, types):
            return name
    from decimal import Decimal  # costs a few ms at start, which a file without decimals need not pay

    return "decimal" if issubclass(kind, Decimal) else "other"


def joined(cells: Sequence[Any]) -> str | None:
    """All cells of a column as one text, or None when one of them is no text.

    This is the fastest way to see that a column is text, and one look at the whole (does a quote occur at
    all?) then spares one at every cell.
    """
    if not isinstance(cells[0], str):
        return None
    try:
        return "".join(cells)
    except TypeError:
        return None


def as_decimals(cells: Sequence[Any]) -> Sequence[Any]:
    """A column that is declared as decimals: SQLite keeps those as floats, whose shortest text may be ``1e-07``."""
    if float not in set(map(type, cells)):
        return cells
    from decimal import Decimal

    return [Decimal(repr(cell)) if type(cell) is float and isfinite(cell) else cell for cell in cells]


def known_type(column: Column) -> str | None:
    """The type of a column as far as it is known, with its measures, for formats that have more types than we."""
    native = column.native or ""
    if column.type == "decimal" and native.startswith(("numeric(", "decimal(")):
        return native.replace("numeric", "decimal")
    if column.type == "timestamp" and native.endswith("with time zone"):
        return "instant"
    return _NATIVE.get(_PRECISION.sub("", native)) if column.type is None else column.type


def as_declared(cells: Sequence[Any], declared: str | None) -> Sequence[Any]:
    """A column whose source keeps days or numbers as text, as what it is declared to be.

    For formats that have types. A text of which only another spelling would come back stays text: ``007``, ``24:00``.
    """
    known = declared and declared.partition("(")[0]  # a source may know decimal(12,2)
    if known == "decimal":
        cells = as_decimals(cells)
    if known not in _READERS or str not in set(map(type, cells)):
        return cells
    if known in _IN_BULK and (whole := _in_bulk(cells, *_IN_BULK[known])) is not None:
        return whole
    read = _READERS[known]
    return [read(cell) if isinstance(cell, str) else cell for cell in cells]


def _in_bulk(cells: Sequence[Any], read: Callable[[str], Any], spell: Callable[[Any], str]) -> Sequence[Any] | None:
    """A column of nothing but texts of one spelling, and NULL; by loops in C, a fifth of the time. None for others."""
    texts = [cell for cell in cells if cell is not None]
    try:
        found = list(map(read, texts))
    except (ValueError, TypeError):
        return None
    if list(map(spell, found)) != texts:
        return None
    left = iter(found)
    return found if len(texts) == len(cells) else [None if cell is None else next(left) for cell in cells]


def is_typed(known: str | None) -> bool:
    """Whether text in such a column is there because it is no value of the type: a date that is infinite, ``007``."""
    return known is not None and known.partition("(")[0] in _READERS


def _day(text: str) -> date | str:
    try:
        found = date.fromisoformat(text)
    except ValueError:
        return text
    return found if found.isoformat() == text else text


def _moment(text: str) -> datetime | str:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return text
    return found if text == found.isoformat(" ") or _unpadded(text) in _spellings(found) else text


def _unpadded(text: str) -> str:
    """A time without the zeros that fill up its fraction: a ``datetime(3)`` has three digits, whatever its value."""
    whole, point, fraction = text.partition(".")
    zone = fraction.lstrip("0123456789")
    digits = fraction[: len(fraction) - len(zone)].rstrip("0")
    return f"{whole}{point if digits else ''}{digits}{zone}"


def _spellings(moment: datetime) -> tuple[str, ...]:
    """Of ISO 8601, the ways of Python and of databases: T or a blank, few digits, a zone in hours, or called Z."""
    long = moment.isoformat(" ")
    zone = long[26 if moment.microsecond else 19 :]
    short = _unpadded(long[: len(long) - len(zone)]) + zone
    few = short.removesuffix(":00") if zone else short
    utc = f"{few.removesuffix('+00')}Z" if zone == "+00:00" else few
    return tuple(each.replace(" ", between) for each in (short, few, utc) for between in " T")


def _clock(text: str) -> time | str:
    try:
        found = time.fromisoformat(text)
    except ValueError:
        return text
    return found if _unpadded(text) == _unpadded(found.isoformat()) else text


def _whole(text: str) -> int | str:
    return int(text) if _WHOLE.fullmatch(text) else text


def _fraction(text: str) -> Decimal | str:
    if not _FRACTION.fullmatch(text):
        return text
    from decimal import Decimal

    return Decimal(text)


def _double(text: str) -> float | str:
    try:
        found = float(text)
    except ValueError:
        return text
    return found if isfinite(found) and repr(found) == text else text


def _uuid(text: str) -> UUID | str:
    from uuid import UUID

    try:
        found = UUID(text)
    except ValueError:
        return text
    return found if str(found) == text else text


_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,999}")  # more digits take Python too long to read
_FRACTION = re.compile(r"-?(?:0|[1-9][0-9]{0,999})(?:\.[0-9]{1,999})?")
_READERS: dict[str | None, Callable[[str], object]] = {
    "date": _day,
    "timestamp": _moment,
    "instant": _moment,
    "integer": _whole,
    "decimal": _fraction,
    "float": _double,
    "time": _clock,
    "uuid": _uuid,
}
_IN_BULK: dict[str | None, tuple[Callable[[str], Any], Callable[[Any], str]]] = {
    "date": (date.fromisoformat, date.isoformat),
    "timestamp": (datetime.fromisoformat, str),
    "instant": (datetime.fromisoformat, str),
    "time": (time.fromisoformat, str),
    "integer": (int, str),
}
_PRECISION = re.compile(r"\([0-6]\)")  # time(3) without time zone
_NATIVE = {"uuid": "uuid", "time": "time", "time without time zone": "time"}  # what servers call it -> a name above


def plain_texts(decimals: Sequence[Decimal]) -> list[str] | None:
    """Decimals as ``decimal_text`` has them, where nothing is special about any; None where there is."""
    texts = list(map(str, decimals))
    line = "".join(texts)
    return None if "E" in line or "N" in line or "I" in line else texts


def decimal_text(value: Decimal) -> str:
    """Every digit, never an exponent. NaN is one word here, whatever its sign, kind and payload."""
    return "NaN" if value.is_nan() else format(value, "f")


def base64_text(value: bytes | bytearray | memoryview, notices: Notices) -> str:
    """Bytes as text of one line."""
    notices.count(BYTES_AS_BASE64)
    return b2a_base64(value, newline=False).decode("ascii")


def without_nul(text: str, notices: Notices) -> str:
    """Text in which NUL has become U+FFFD, for formats that would escape it out of sight of ``encoded``."""
    notices.count(TEXT_REPLACED, text.count("\0"))
    return text.replace("\0", "\ufffd")


def encoded(text: str, notices: Notices) -> bytes:
    """A chunk of a file as UTF-8, where lone surrogates and NUL become U+FFFD and are counted.

    The whole chunk is tried at once, and only one that fails is searched: replacing a character by another
    cannot touch the marks of any format, as none of them is replaced.
    """
    if "\0" not in text:
        try:
            return text.encode()
        except UnicodeEncodeError:
            pass
    return mended(text, notices).encode()


def mended(text: str, notices: Notices) -> str:
    """A text in which lone surrogates and NUL have become U+FFFD and are counted."""
    text, replaced = re.subn("[\0\ud800-\udfff]", "\ufffd", text)
    notices.count(TEXT_REPLACED, replaced)
    return text

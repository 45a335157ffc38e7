"""Single values as JSON: every digit kept, nothing that RFC 8259 does not know.

Infinity and NaN become text and are counted. With long numbers as text, so do *all* decimals, and every
integer that a double does not hold; shorter integers and floats stay numbers, as any reader gets them back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from json import JSONDecoder
from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING, Any

from haulage.formats.cells import (
    NON_FINITE,
    NON_FINITE_AS_TEXT,
    TEXT_REPLACED,
    base64_text,
    decimal_text,
    family,
    without_nul,
)

if TYPE_CHECKING:
    from decimal import Decimal

    from haulage.formats.format import Notices

_INTEGER_MAX = 2**53 - 1  # beyond it readers that use doubles change digits (RFC 8259, section 6)


def is_plain(text: str) -> bool:
    """Whether nothing in this text needs a backslash."""
    return len(quoted(text)) == len(text) + 2


class JsonValues:
    """Writes values; what it has to change it counts in the notices."""

    def __init__(self, notices: Notices, *, long_numbers_as_text: bool = False) -> None:
        self._notices = notices
        self._long_numbers_as_text = long_numbers_as_text
        self._writers: dict[str, Callable[[Any], str]] = {
            "null": lambda _: "null",
            "boolean": lambda value: "true" if value else "false",
            "integer": self._integer if long_numbers_as_text else int.__repr__,
            "float": self._float,
            "decimal": self._decimal,
            "text": self.string,
            "bytes": lambda value: f'"{base64_text(value, notices)}"',
            "moment": lambda value: f'"{value.isoformat()}"',
            "document": self._nested,
            "other": lambda value: self.string(str(value)),
        }

    def text(self, value: object) -> str:
        """One value of any type."""
        return self.writer(type(value))(value)

    def writer(self, kind: type) -> Callable[[Any], str]:
        """What writes values of one type."""
        return self._writers[family(kind)]

    def numbers(self, cells: Sequence[Any], kinds: set[type]) -> Sequence[str]:
        """A column of integers, floats and NULLs; all of it at once where nothing in it is special."""
        if not (self._long_numbers_as_text and int in kinds):
            texts = ["null" if cell is None else repr(cell) for cell in cells]
            line = "".join(texts) if float in kinds else ""
            if "inf" not in line and "nan" not in line:
                return texts
        return [self.text(cell) for cell in cells]

    def string(self, value: str) -> str:
        """Text. NUL goes here, as JSON would escape it and so hide it from the look at the whole chunk."""
        return quoted(without_nul(value, self._notices) if "\0" in value else value)

    def document(self, value: str) -> str:
        """The JSON document that a text holds, as it stands, on one line; the text if it holds none."""
        try:
            _DOCUMENT.decode(value)
        except (ValueError, RecursionError):
            return self.string(value)
        if "\\u" in value:
            value = _ESCAPE.sub(self._mended, value)
        return value.replace("\n", " ").replace("\r", " ")  # in a document they occur only between its tokens

    def _mended(self, escape: re.Match[str]) -> str:
        """An escape of a document; what no text can hold becomes U+FFFD there as everywhere."""
        if escape["none"] is None:
            return escape[0]
        self._notices.count(TEXT_REPLACED)
        return "\ufffd"

    def _integer(self, value: int) -> str:
        text = int.__repr__(value)
        return text if -_INTEGER_MAX <= value <= _INTEGER_MAX else f'"{text}"'

    def _float(self, value: float) -> str:
        text = float.__repr__(value)
        return self._non_finite(NON_FINITE[text]) if text in NON_FINITE else text

    def _decimal(self, value: Decimal) -> str:
        text = decimal_text(value)
        if not value.is_finite():
            return self._non_finite(text)
        return f'"{text}"' if self._long_numbers_as_text else text

    def _non_finite(self, text: str) -> str:
        self._notices.count(NON_FINITE_AS_TEXT)
        return f'"{text}"'

    def _nested(self, value: dict[Any, Any] | Sequence[Any]) -> str:
        if isinstance(value, dict):
            members = [f"{self._name(name)}:{self.text(item)}" for name, item in value.items()]
            return "{" + ",".join(members) + "}"
        return "[" + ",".join(map(self.text, value)) + "]"

    def _name(self, name: object) -> str:
        return self.string(name if isinstance(name, str) else self.text(name))


# Every escape, so that none is found in the middle of another: a pair of surrogates, then one alone and NUL.
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(?P<none>\\u(?:[dD][89a-fA-F][0-9a-fA-F]{2}|0000))"
    r"|\\."
)


def _refuse(constant: str) -> None:
    raise ValueError(constant)


# Numbers are not read as numbers: their digits go into the file as they are, however many there be.
_DOCUMENT = JSONDecoder(parse_float=str, parse_int=str, parse_constant=_refuse)

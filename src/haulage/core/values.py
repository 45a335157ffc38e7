"""One value of a parameter, read by its declared type: what a request sends, and the default that stands in for it."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from haulage.core.catalogue import Parameter

TEXT_MAX = 10_000  # characters of one text parameter
INTEGER_MAX = 2**63 - 1  # what every source can bind


def read_value(parameter: Parameter, value: Any) -> Any:  # noqa: C901, PLR0912 - one line a type
    """A value as Python holds it, from what JSON has or from text.

    Raises:
        ValueError: it is not of the parameter's type; says so, and what to write instead.
    """
    wrong = ValueError(f"{_short(value)} is no {parameter.type}: {example_of(parameter)}")
    kind = parameter.type
    if kind == "boolean":
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        raise wrong
    if isinstance(value, bool):
        raise wrong
    if kind == "text":
        if not isinstance(value, str) or "\0" in value:
            raise wrong
        if len(value) > TEXT_MAX:
            raise ValueError(f"is longer than {TEXT_MAX:,} characters")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise wrong from None
        return value
    if kind == "choice":
        if not isinstance(value, str) or value not in {choice for choice, _ in parameter.choices}:
            raise wrong
        return value
    if kind == "integer":
        if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,19}", value):
            value = int(value)
        if not isinstance(value, int) or not -INTEGER_MAX - 1 <= value <= INTEGER_MAX:
            raise wrong
        return value
    if kind == "decimal":
        try:
            # Python reads an underscore between digits; nobody else does.
            readable = isinstance(value, int | float | str | Decimal) and "_" not in str(value)
            number = Decimal(str(value)) if readable else None
        except InvalidOperation:
            number = None
        if number is None or not number.is_finite() or abs(number.adjusted()) > 100:
            raise wrong
        return number
    try:
        moment = _timestamp(value) if kind == "timestamp" else value if type(value) is date else _date(value)
    except (ValueError, OverflowError, TypeError):
        raise wrong from None
    if parameter.end and moment == date.max:
        # The day after is bound. Without one the rows of this day would be missing, and nobody would be told.
        or_none = ", or leave it out" if parameter.optional else ""
        raise ValueError(f"{moment} has no day after it, and so cannot be an end; write an earlier day{or_none}")
    return moment


def example_of(parameter: Parameter) -> str:
    """What to write for a parameter, in words."""
    examples = {
        "text": "write text",
        "integer": "write a whole number such as 42",
        "decimal": "write a number such as 12.50",
        "boolean": "write true or false",
        "date": "write a date such as 2026-01-31",
        "timestamp": "write an instant with its zone such as 2026-01-31T23:30:00Z",
        "choice": "write one of " + ", ".join(choice for choice, _ in parameter.choices),
    }
    return examples[parameter.type] + (" (several are allowed)" if parameter.many else "")


def _date(value: Any) -> date:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        raise ValueError
    return date.fromisoformat(value)


def _timestamp(value: Any) -> datetime:
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError  # A naive local time means another instant to every reader.
    return moment.astimezone(UTC)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "…"

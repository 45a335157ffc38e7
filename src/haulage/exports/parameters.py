"""The parameters of a request, read by their declared types; every fault at once, with what to write instead."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from haulage.core.catalogue import Dataset, Parameter
from haulage.core.errors import Fault, Refused, pointer_to

LIST_MAX = 1_000  # values of one list parameter
TEXT_MAX = 10_000  # characters of one text parameter
INTEGER_MAX = 2**63 - 1  # what every source can bind


@dataclass(frozen=True, slots=True)
class Resolved:
    """The parameters of one request: as Python values, as bound, and as shown."""

    values: Mapping[str, Any]
    binds: Mapping[str, Any]
    types: Mapping[str, str]
    shown: Mapping[str, Any]


def resolve_parameters(dataset: Dataset, given: Mapping[str, Any]) -> Resolved:
    """Read every parameter by its declared type.

    Args:
        given: values as JSON has them, or as text (a query string, ``-p name=value``).

    Raises:
        Refused: ``invalid`` with every fault at once.
    """
    faults = [
        Fault(pointer_to("parameters", name), f"{dataset.name} has no such parameter; it has {_names(dataset)}")
        for name in given
        if name not in {parameter.name for parameter in dataset.parameters}
    ]
    values: dict[str, Any] = {}
    for parameter in dataset.parameters:
        value = given.get(parameter.name)
        if value is None:
            value = parameter.default
        if value is None:
            if parameter.required:
                faults.append(Fault(f"/parameters/{parameter.name}", f"is needed: {_example(parameter)}"))
            values[parameter.name] = None
            continue
        try:
            values[parameter.name] = _read_all(parameter, value)
        except ValueError as problem:
            faults.append(Fault(f"/parameters/{parameter.name}", str(problem)))
    if faults:
        raise Refused("invalid", faults=faults)
    return _resolved(dataset, values)


def defaults_of(dataset: Dataset) -> Resolved:
    """Every parameter left as it is, also one that a request would need."""
    values = {p.name: None if p.default is None else _read_all(p, p.default) for p in dataset.parameters}
    return _resolved(dataset, values)


def _resolved(dataset: Dataset, values: Mapping[str, Any]) -> Resolved:
    binds = {p.name: _bound(p, values[p.name]) for p in dataset.parameters}
    shown = {p.name: _plain(values[p.name]) for p in dataset.parameters}
    return Resolved(values, binds, {p.name: p.type for p in dataset.parameters}, shown)


def _names(dataset: Dataset) -> str:
    return ", ".join(parameter.name for parameter in dataset.parameters) or "none"


def _read_all(parameter: Parameter, value: Any) -> Any:
    if not parameter.many:
        if isinstance(value, list | tuple):
            raise ValueError(f"takes one value, not a list: {_example(parameter)}")
        return _read(parameter, value)
    listed = value if isinstance(value, list | tuple) else [value]
    if len(listed) > LIST_MAX:
        raise ValueError(f"takes at most {LIST_MAX} values, not {len(listed)}")
    return tuple(_read(parameter, item) for item in listed)


def _read(parameter: Parameter, value: Any) -> Any:  # noqa: C901, PLR0912 - one line a type
    wrong = ValueError(f"{_short(value)} is no {parameter.type}: {_example(parameter)}")
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
        if kind == "date":
            return value if type(value) is date else _date(value)
        return _timestamp(value)
    except (ValueError, OverflowError, TypeError):
        raise wrong from None


def _date(value: Any) -> date:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        raise ValueError
    return date.fromisoformat(value)


def _timestamp(value: Any) -> datetime:
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError  # A naive local time means another instant to every reader.
    return moment.astimezone(UTC)


def _bound(parameter: Parameter, value: Any) -> Any:
    if isinstance(value, tuple):
        return [_bound(replace(parameter, many=False), item) for item in value]
    if parameter.end and isinstance(value, date) and not isinstance(value, datetime):
        # The end date includes its day: the query compares with < the day after.
        value = value + timedelta(days=1) if value < date.max else value
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return format(value, "f") if isinstance(value, Decimal) else value


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "…"


def _example(parameter: Parameter) -> str:
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

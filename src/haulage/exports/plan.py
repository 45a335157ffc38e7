"""From what was asked to what is frozen: parameters read by their types, the query, how it is wrapped.

A Python dataset is called here, at the door, so what the worker runs is what was accepted (DECISIONS 31).
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from haulage.core.binds import bound_names
from haulage.core.catalogue import Dataset, Parameter
from haulage.core.clock import rfc3339
from haulage.core.errors import Fault, Refused
from haulage.core.requester import Requester

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
        Fault(f"/parameters/{name}", f"{dataset.name} has no such parameter; it has {_names(dataset)}")
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
    binds = {p.name: _bound(p, values[p.name]) for p in dataset.parameters}
    shown = {p.name: _plain(values[p.name]) for p in dataset.parameters}
    return Resolved(values, binds, {p.name: p.type for p in dataset.parameters}, shown)


def _names(dataset: Dataset) -> str:
    return ", ".join(parameter.name for parameter in dataset.parameters) or "none"


def _read_all(parameter: Parameter, value: Any) -> Any:  # noqa: ANN401 - JSON in, a typed value out
    if not parameter.many:
        if isinstance(value, list | tuple):
            raise ValueError(f"takes one value, not a list: {_example(parameter)}")
        return _read(parameter, value)
    listed = value if isinstance(value, list | tuple) else [value]
    if len(listed) > LIST_MAX:
        raise ValueError(f"takes at most {LIST_MAX} values, not {len(listed)}")
    return tuple(_read(parameter, item) for item in listed)


def _read(parameter: Parameter, value: Any) -> Any:  # noqa: ANN401, C901, PLR0911, PLR0912 - one line a type
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
        if value not in {choice for choice, _ in parameter.choices}:
            raise wrong
        return value
    if kind == "integer":
        if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,19}", value):
            value = int(value)
        if not isinstance(value, int) or abs(value) > INTEGER_MAX:
            raise wrong
        return value
    if kind == "decimal":
        try:
            number = Decimal(str(value)) if isinstance(value, int | float | str | Decimal) else None
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


def _date(value: Any) -> date:  # noqa: ANN401
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        raise ValueError
    return date.fromisoformat(value)


def _timestamp(value: Any) -> datetime:  # noqa: ANN401
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError  # A naive local time means another instant to every reader.
    return moment.astimezone(UTC)


def _bound(parameter: Parameter, value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, tuple):
        return [_bound(replace(parameter, many=False), item) for item in value]
    if parameter.end and isinstance(value, date) and not isinstance(value, datetime):
        # The end date includes its day: the query compares with < the day after.
        value = value + timedelta(days=1) if value < date.max else value
    return _plain(value)


def _plain(value: Any) -> Any:  # noqa: ANN401 - what JSON can hold
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return format(value, "f") if isinstance(value, Decimal) else value


def _short(value: Any) -> str:  # noqa: ANN401
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


def query_of(dataset: Dataset, resolved: Resolved, seconds: float) -> str:
    """The SQL of a dataset; a Python one is called, for at most so many seconds.

    Raises:
        Refused: ``source_failed`` when the function raises, answers no text, or takes too long.
    """
    if dataset.function is None:
        return dataset.sql
    function = dataset.function
    answers: list[object] = []

    def call() -> None:
        try:
            answers.append(function(**resolved.values))
        except Exception as problem:  # noqa: BLE001 - the operator's function may raise anything
            answers.append(problem)

    thread = threading.Thread(target=call, daemon=True, name=f"dataset {dataset.name}")
    thread.start()
    thread.join(seconds)
    answer = answers[0] if answers else None
    if isinstance(answer, str) and answer.strip():
        return answer
    why = f"took longer than {seconds:g} s" if not answers else "answered no query"
    raise Refused("source_failed", f"The dataset {dataset.name!r} {why}.") from (
        answer if isinstance(answer, Exception) else None
    )


def freeze(
    dataset: Dataset,
    sql: str,
    resolved: Resolved,
    requester: Requester,
    as_of: int,
    columns: Sequence[str] | None,
) -> dict[str, Any]:
    """What the row keeps, so that the worker runs what was accepted."""
    own = {"requester_tenant": requester.tenant, "requester_account": requester.account}
    named = bound_names(sql) | bound_names(dataset.visible or "")
    binds = {**resolved.binds, **own, "as_of": rfc3339(as_of)}
    return {
        "sql": sql,
        "binds": {name: binds[name] for name in sorted(named) if name in binds},
        "types": {**{name: resolved.types[name] for name in resolved.types if name in named}, "as_of": "timestamp"},
        "visible": dataset.visible,
        "hidden": list(dataset.hidden),
        "order": [*dataset.order, *(key for key in dataset.key if not _ordered_by(dataset, key))],
        "columns": None if columns is None else list(columns),
        "declared": {column.key: [column.header, column.type] for column in dataset.columns.values()},
    }


def _ordered_by(dataset: Dataset, key: str) -> bool:
    return any(entry.split()[0].strip('"').lower() == key.lower() for entry in dataset.order)


def active_key_of(run_facts: Sequence[object]) -> str:
    """The key under which an equal active request is found: SHA-256 of everything that decides the file."""
    return hashlib.sha256(json.dumps(run_facts, sort_keys=True, default=str).encode()).hexdigest()

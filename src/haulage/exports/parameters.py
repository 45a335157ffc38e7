"""The parameters of a request, read by their declared types; every fault at once, with what to write instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from haulage.core.catalogue import Dataset, Parameter
from haulage.core.errors import Fault, Refused, pointer_to
from haulage.core.values import example_of, read_value

LIST_MAX = 1_000  # values of one list parameter


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
                faults.append(Fault(f"/parameters/{parameter.name}", f"is needed: {example_of(parameter)}"))
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


def population_of(dataset: Dataset) -> Resolved | None:
    """Every parameter at its default, for who asks for no condition; None where one of them has none and is needed."""
    return None if any(parameter.required for parameter in dataset.parameters) else defaults_of(dataset)


def _resolved(dataset: Dataset, values: Mapping[str, Any]) -> Resolved:
    binds = {p.name: _bound(p, values[p.name]) for p in dataset.parameters}
    shown = {p.name: plain(values[p.name]) for p in dataset.parameters}
    return Resolved(values, binds, {p.name: p.type for p in dataset.parameters}, shown)


def _names(dataset: Dataset) -> str:
    return ", ".join(parameter.name for parameter in dataset.parameters) or "none"


def _read_all(parameter: Parameter, value: Any) -> Any:
    if not parameter.many:
        if isinstance(value, list | tuple):
            raise ValueError(f"takes one value, not a list: {example_of(parameter)}")
        return read_value(parameter, value)
    listed = value if isinstance(value, list | tuple) else [value]
    if len(listed) > LIST_MAX:
        raise ValueError(f"takes at most {LIST_MAX} values, not {len(listed)}")
    return tuple(read_value(parameter, item) for item in listed)


def _bound(parameter: Parameter, value: Any) -> Any:
    if isinstance(value, tuple):
        return [_bound(replace(parameter, many=False), item) for item in value]
    if parameter.end and isinstance(value, date) and not isinstance(value, datetime):
        value += timedelta(days=1)  # The end date includes its day: the query compares with < the day after.
    return plain(value)


def plain(value: Any) -> Any:
    """A value as JSON holds it."""
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return format(value, "f") if isinstance(value, Decimal) else value

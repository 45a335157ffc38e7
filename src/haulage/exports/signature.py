"""The parameters of a Python dataset, read from its function's annotations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from datetime import date, datetime
from decimal import Decimal
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from haulage.core.catalogue import RESERVED_BINDS, Parameter

TYPES: dict[Any, str] = {
    str: "text",
    int: "integer",
    Decimal: "decimal",
    bool: "boolean",
    date: "date",
    datetime: "timestamp",
}


def parameters_of(
    function: Callable[..., Any], given: int = 0, *, leave_out: Collection[str] = ()
) -> tuple[Parameter, ...]:
    """One parameter per argument, after as many as are given to each call, and without those that are given by name.

    Raises:
        TypeError: an argument has no annotation, or one that no parameter type stands for.
    """
    hints = get_type_hints(function)
    found = []
    for argument in list(inspect.signature(function).parameters.values())[given:]:
        if argument.name in leave_out:
            continue
        hint = hints.get(argument.name)
        default = None if argument.default is inspect.Parameter.empty else argument.default
        found.append(_parameter(function, argument.name, hint, default))
    return tuple(found)


def _parameter(function: Callable[..., Any], name: str, hint: Any, default: object) -> Parameter:
    optional = many = False
    if get_origin(hint) in (Union, UnionType):
        inner = [each for each in get_args(hint) if each is not NoneType]
        optional = len(inner) < len(get_args(hint))
        hint = inner[0] if len(inner) == 1 else None
    if get_origin(hint) is list:
        many, (hint,) = True, get_args(hint)
    label = name.replace("_", " ").capitalize()
    if name in RESERVED_BINDS:
        raise TypeError(f"{function.__name__}({name}): this name is bound by Haulage itself; choose another one")
    if get_origin(hint) is Literal and all(isinstance(choice, str) for choice in get_args(hint)):
        choices = tuple((choice, choice) for choice in get_args(hint))
        return Parameter(name, "choice", label, default, optional, many, choices)
    if hint not in TYPES:
        kinds = "str, int, Decimal, bool, date, datetime, Literal of texts"
        raise TypeError(f"{function.__name__}({name}): annotate it with one of {kinds}")
    return Parameter(name, TYPES[hint], label, default, optional, many)

"""The parameters of a Python dataset, read from its annotations."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Literal, Optional

import pytest

from haulage.core.catalogue import Parameter
from haulage.exports.signature import parameters_of


def everything(
    text: str,
    number: int,
    price: Decimal,
    flag: bool,
    day: date,
    instant: datetime,
    size: Literal["s", "m"],
) -> str:
    return ""


def test_every_type_has_its_annotation():
    kinds = [(parameter.name, parameter.type) for parameter in parameters_of(everything)]

    assert [
        ("text", "text"),
        ("number", "integer"),
        ("price", "decimal"),
        ("flag", "boolean"),
        ("day", "date"),
        ("instant", "timestamp"),
        ("size", "choice"),
    ] == kinds
    assert all(parameter.required for parameter in parameters_of(everything))


def test_a_function_without_arguments_has_no_parameters():
    assert () == parameters_of(lambda: "select 1")


def test_a_name_becomes_a_label_and_texts_become_choices():
    def orders(order_size: Literal["small", "large"]) -> str: ...

    assert (
        Parameter("order_size", "choice", "Order size", choices=(("small", "small"), ("large", "large"))),
    ) == parameters_of(orders)


def test_defaults_lists_and_what_may_be_left_out():
    def orders(
        limit: int = 10,
        since: date | None = None,
        until: Optional[date] = None,  # noqa: UP045 - both spellings are read
        cities: list[str] | None = None,
        ids: list[int] = [1],  # noqa: B006 - read and never changed
    ) -> str: ...

    limit, since, until, cities, ids = parameters_of(orders)

    assert (10, False, False) == (limit.default, limit.optional, limit.required)
    assert (None, True, False) == (since.default, since.optional, since.required)
    assert replace_name(since, "until") == until
    assert ("text", True, True) == (cities.type, cities.many, cities.optional)
    assert ("integer", True, [1]) == (ids.type, ids.many, ids.default)


def replace_name(parameter, name):
    return Parameter(name, parameter.type, name.capitalize(), parameter.default, parameter.optional, parameter.many)


class Unknown:
    """No parameter type."""


def unannotated(since):
    return ""


def of_a_strange_type(since: Unknown) -> str: ...


def of_two_types(since: int | str) -> str: ...


def a_float(since: float) -> str: ...


def a_bare_list(since: list) -> str: ...


def a_list_of_lists(since: list[list[int]]) -> str: ...


def choices_that_are_no_texts(since: Literal[1, 2]) -> str: ...


def with_stars(*since) -> str: ...


@pytest.mark.parametrize(
    "function",
    [
        unannotated,
        of_a_strange_type,
        of_two_types,
        a_float,
        a_bare_list,
        a_list_of_lists,
        choices_that_are_no_texts,
        with_stars,
    ],
)
def test_an_annotation_that_stands_for_no_type_is_refused_with_those_that_do(function):
    with pytest.raises(TypeError, match=rf"{function.__name__}\(since\): annotate it with one of str, int, Decimal"):
        parameters_of(function)


@pytest.mark.parametrize("name", ["requester_tenant", "requester_account", "as_of"])
def test_a_name_that_is_bound_anyway_is_refused(name):
    namespace = {}
    exec(f"def orders({name}: str) -> str: ...", namespace)

    with pytest.raises(TypeError, match=f"{name}.*choose another one"):
        parameters_of(namespace["orders"])

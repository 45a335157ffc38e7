"""What a request freezes: the query, only the names that it binds, and the key that equal requests share."""

from __future__ import annotations

import threading
import time
from datetime import date

import pytest

from haulage.core.catalogue import Column, Dataset, Parameter
from haulage.core.errors import Refused
from haulage.core.requester import Requester
from haulage.exports.parameters import resolve_parameters
from haulage.exports.plan import Asked, active_key_of, check, freeze, query_of

AMINA = Requester("north", "amina", frozenset({"orders.read"}), session="secret-session")
ORDERS = Dataset(
    "orders",
    "shop",
    sql="select * from orders where day >= :since and tenant = :requester_tenant",
    parameters=(Parameter("since", "date"), Parameter("unused", "text", optional=True)),
    columns={"day": Column("day", "Day", "date")},
    hidden=("tenant",),
    visible="owner = :requester_account",
    key=("id",),
    order=("day desc", '"Total"'),
    formats=("csv", "json"),
)


def frozen(dataset=ORDERS, given=None, columns=None, **changes):
    resolved = resolve_parameters(dataset, {"since": "2026-01-01"} if given is None else given)
    sql = changes.pop("sql", dataset.sql)
    return freeze(dataset, sql, resolved, AMINA, 1_800_000_000_000, columns)


def test_a_plan_keeps_everything_that_the_worker_needs():
    assert {
        "sql": ORDERS.sql,
        "binds": {"requester_account": "amina", "requester_tenant": "north", "since": "2026-01-01"},
        "types": {"since": "date", "as_of": "timestamp"},
        "visible": "owner = :requester_account",
        "hidden": ["tenant"],
        "order": ["day desc", '"Total"', "id"],
        "columns": None,
        "declared": {"day": ["Day", "date"]},
        "verify": "end",
        "formats": ["csv", "json"],
        "order_fixed": True,
    } == frozen()


def test_only_names_that_the_query_has_are_bound():
    plan = frozen(sql="select :as_of, ':since'")

    assert {"as_of": "2027-01-15T08:00:00.000Z", "requester_account": "amina"} == plan["binds"]


def test_no_session_is_kept():
    assert "secret-session" not in repr(frozen())


@pytest.mark.parametrize("order", ["id", "ID desc", '"id" asc'])
def test_a_key_that_already_orders_is_not_named_twice(order):
    dataset = Dataset("orders", "shop", sql="select 1", key=("id", "line"), order=(order,))

    assert [order, "line"] == frozen(dataset, {})["order"]


def test_the_columns_asked_for_are_kept_in_their_order():
    assert ["b", "a"] == frozen(columns=("b", "a"))["columns"]


# -- Python datasets ----------------------------------------------------------------------------------------


def declared(function):
    return Dataset("orders", "shop", function=function, parameters=(Parameter("since", "date"),))


def ask(function, seconds=5):
    dataset = declared(function)
    return query_of(dataset, resolve_parameters(dataset, {"since": "2026-01-31"}), seconds)


def test_a_function_is_called_with_typed_values():
    assert "select 2026" == ask(lambda since: f"select {since.year}" if type(since) is date else "")


@pytest.mark.parametrize("answer", [None, "", "  \n", 5, b"select 1"])
def test_a_function_that_answers_no_query_is_refused(answer):
    with pytest.raises(Refused, match="'orders' answered no query") as refused:
        ask(lambda since: since and answer)

    assert "source_failed" == refused.value.code


def test_a_function_that_raises_is_refused_and_shows_nothing_of_it():
    def function(since):
        raise RuntimeError("password=hunter2")

    with pytest.raises(Refused) as refused:
        ask(function)

    assert "hunter2" not in refused.value.detail
    assert isinstance(refused.value.__cause__, RuntimeError)


def test_a_function_that_takes_too_long_is_left_behind():
    release = threading.Event()
    began = time.monotonic()

    with pytest.raises(Refused, match=r"took longer than 0\.05 s"):
        ask(lambda since: release.wait(60) and since and "select 1", seconds=0.05)

    release.set()
    assert 30 > time.monotonic() - began


# -- the check at the door -----------------------------------------------------------------------------------


def asked(**changes):
    usual = {
        "dataset": "orders",
        "format": "csv",
        "parameters": {"since": "2026-01-01"},
        "columns": None,
        "compression": None,
        "options": {},
    }
    return Asked(**{**usual, **changes})


def test_a_good_request_becomes_a_wish():
    wish = check(asked(columns=["day", "id"]), ORDERS, 5)

    assert ("csv", ORDERS.sql, ("day", "id"), None) == (wish.format, wish.sql, wish.columns, wish.compression)


def test_every_fault_of_a_request_is_told_at_once():
    with pytest.raises(Refused) as refused:
        check(asked(format="pdf", parameters={}, columns=[], compression="rar"), ORDERS, 5)

    assert ["/parameters/since", "/format", "/compression", "/columns"] == [
        fault.pointer for fault in refused.value.faults
    ]


@pytest.mark.parametrize("columns", [[], ["day", "day"]])
def test_columns_are_named_once_and_at_least_one_is(columns):
    with pytest.raises(Refused) as refused:
        check(asked(columns=columns), ORDERS, 5)

    assert ["/columns"] == [fault.pointer for fault in refused.value.faults]
    assert ("day",) == check(asked(columns=["day"]), ORDERS, 5).columns


def test_equal_requests_have_equal_digests_and_others_have_not():
    usual = asked().digest()

    assert usual == asked(parameters={"since": "2026-01-01"}).digest()
    assert 6 == len(
        {
            usual,
            asked(format="json").digest(),
            asked(parameters={"since": "2026-01-02"}).digest(),
            asked(columns=["day"]).digest(),
            asked(compression="gzip").digest(),
            asked(options={"dialect": "excel"}).digest(),
        }
    )


def test_an_active_key_is_a_hash_of_everything_that_decides_the_file():
    key = active_key_of(["north", {"a": 1, "b": 2}])

    assert 64 == len(key)
    assert key == active_key_of(["north", {"b": 2, "a": 1}])
    assert key != active_key_of(["south", {"a": 1, "b": 2}])

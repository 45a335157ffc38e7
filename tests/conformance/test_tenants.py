"""A verb that acts for one tenant touches nothing of another one, in every store; and what is behind the predicate.

The predicate is one function (`stores/tenants.py`). Here it is taken away: a store with row security must leak nothing
all the same, and any other one must leak, or the test would not see a leak.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext

import pytest

from haulage.core.errors import StoreUnavailable
from haulage.core.ports import KeptKey, Query
from haulage.stores import tenants

# What a door does with the run of an id, for a tenant; true where it saw or did something.
DOORS = {
    "get": lambda case, run, whose: case.runs.get(run.id, **whose),
    "list": lambda case, _run, whose: case.runs.list(Query(tenant=whose["tenant"]), **_tx(whose)),
    "find_active": lambda case, run, whose: case.runs.find_active(run.active_key, **whose),
    "waiting": lambda case, _run, whose: case.runs.waiting(**whose),
    "storage": lambda case, _run, whose: case.runs.storage(**whose).tenant_bytes,
    "move": lambda case, run, whose: case.runs.move(
        run.id, case.moves("abandon"), {"failure_code": "workers_gone"}, now=case.now, **whose
    ),
    "request_cancel": lambda case, run, whose: case.runs.request_cancel(run.id, now=case.now, **whose),
    "request_cancel of a running one": lambda case, _run, whose: case.runs.request_cancel(
        running_in(case).id, now=case.now, **whose
    ),
}
WRITES = ("move", "request_cancel", "request_cancel of a running one")


def running_in(case):
    (running,) = case.runs.list(Query(state="running"))
    return running


def _tx(whose):
    return {name: value for name, value in whose.items() if name == "tx"}


@pytest.fixture(params=DOORS)
def door(request):
    return DOORS[request.param]


@pytest.fixture
def run(case):
    """A run of north that waits; it has a finished file and a running build too, so every door has something to see."""
    case.settle(case.hold(), case.moves("finish"))
    case.hold()
    return case.add(active_key="k" * 64)


@contextmanager
def acting_for(case, tenant, within):
    """What a verb is told of whose it may touch: outside a transaction, or inside one of the tenant's."""
    with case.store.begin(tenant=tenant) if within else nullcontext() as tx:
        yield {"tenant": tenant} if tx is None else {"tenant": tenant, "tx": tx}


@pytest.mark.parametrize("within", [False, True], ids=["alone", "in a transaction"])
def test_a_door_sees_and_changes_what_is_its_tenants_and_nothing_else(case, run, door, within):
    before = case.runs.list(Query())
    with acting_for(case, "south", within) as whose:
        of_another = door(case, run, whose)
    between = case.runs.list(Query())
    with acting_for(case, "north", within) as whose:
        its_own = door(case, run, whose)

    assert not of_another
    assert before == between
    assert its_own


def anybodys(_kept, tenant):
    return tenant == tenant  # noqa: PLR0124 - in SQL as well


@pytest.mark.slow
@pytest.mark.parametrize("within", [False, True], ids=["alone", "in a transaction"])
def test_without_its_predicate_a_door_leaks_nothing_where_the_database_keeps_tenants_apart(
    case, run, door, within, monkeypatch
):
    monkeypatch.setattr(tenants, "of", anybodys)
    case.store.close()
    case.store = case.open()
    before = case.runs.list(Query())
    with acting_for(case, "south", within) as whose:
        leaked = bool(door(case, run, whose))

    assert leaked != case.store.capabilities.row_security
    assert (case.runs.list(Query()) == before) or leaked


@pytest.mark.parametrize("name", ["get", "find_active", *WRITES])
def test_a_verb_that_was_told_no_tenant_is_bound_by_its_transaction(case, run, name):
    """As if a door had forgotten to say it."""
    case.needs("row_security")
    before = case.runs.list(Query())
    with case.store.begin(tenant="south") as tx:
        seen = DOORS[name](case, run, {"tx": tx})

    assert not seen
    assert before == case.runs.list(Query())


def test_what_is_written_for_a_tenant_in_the_transaction_of_another_is_refused(case):
    case.needs("row_security")
    run = case.kit.new(tenant="north", requested_at=case.now)

    def add():
        with case.store.begin(tenant="south") as tx:
            case.runs.add(run, tx=tx)

    def keep():
        with case.store.begin(tenant="south") as tx:
            case.store.keys.keep("north", "amina", "k", KeptKey("b" * 64, run.id), seconds=60, now=case.now, tx=tx)

    for act in (add, keep):
        with pytest.raises(StoreUnavailable, match="row-level security"):
            act()
    assert case.get(run) is None


@pytest.mark.parametrize("tenant", ["it's", "a\\b", "%s", "{north}", "north' or true --", "ü報", " north ", "NORTH"])
def test_every_name_of_a_tenant_is_only_a_name(case, tenant):
    run, other = case.add(tenant), case.add("north")

    assert [run] == case.runs.list(Query(tenant=tenant))
    assert run == case.runs.get(run.id, tenant=tenant)
    assert [None, None] == [case.runs.get(other.id, tenant=tenant), case.runs.get(run.id, tenant="north")]


def test_what_a_tenant_hears_of_the_others_are_numbers(case):
    """The limit of all, the budget and the place in the queue are counted over all tenants, whoever asks."""
    case.settle(case.hold("w1", tenant="south"), case.moves("finish"))
    for tenant in ("south", "south", "west"):
        case.add(tenant)
    mine = case.add("north", seconds=1)
    everybody = case.runs.waiting(), case.runs.storage("north").stored_bytes, case.runs.queue_position(mine)
    with case.store.begin(tenant="north") as tx:
        alone = (
            case.runs.waiting(tx=tx),
            case.runs.storage("north", tx=tx).stored_bytes,
            case.runs.queue_position(mine, tx=tx),
        )

    assert (4, 1_000, 3) == everybody
    assert everybody == alone
    assert [int] * 3 == [type(figure) for figure in (*everybody[:2], case.runs.storage("south").tenant_bytes)]

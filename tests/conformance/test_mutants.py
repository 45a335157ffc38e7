"""Guards broken on purpose: for each of them the model of test_model.py must find a history that goes wrong.

A mutant that lives would mean that the guard, or the test, is for show.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy import Integer, bindparam, column, func, literal, select, update
from tests.conformance.model import machine_over
from tests.promises import NotPromised

from haulage.core.lifecycle import CancelWish, LeaseUse
from haulage.stores import moves, runs
from haulage.stores.claims import ClaimInOne, _Gates
from haulage.stores.queue import Queue, in_state
from haulage.stores.runs import SqlRuns
from haulage.stores.tables import gates

pytestmark = pytest.mark.slow

SEARCH = settings(
    max_examples=400,
    stateful_step_count=40,
    deadline=None,
    database=None,
    derandomize=True,
    report_multiple_bugs=False,
    phases=[Phase.generate],  # Found is enough; the shortest history is of no interest.
    suppress_health_check=list(HealthCheck),
)


ANY_FENCE = bindparam("guard_claim_no", type_=Integer) >= 0
SAME_FENCE = column("claim_no") == bindparam("guard_claim_no")
real_guard_of = moves.guard_of


def settle_without_the_fence(table, move):
    fence = () if move.lease is LeaseUse.NONE else (ANY_FENCE,)
    return changing(table, move, *real_guard_of(table, move), *fence)


def move_without_the_state(table, move):
    fence = () if move.lease is LeaseUse.NONE else (SAME_FENCE,)
    return changing(table, move, *real_guard_of(table, move)[1:], *fence)


def finish_without_a_look_at_the_cancel(table, move):
    return (in_state(table, move.source),)


def stop_without_a_cancel(table, move):
    return (
        real_guard_of(table, replace(move, cancel=CancelWish.EITHER))
        if move.name == "stop"
        else real_guard_of(table, move)
    )


def beat_without_the_state(table, claim, beats):
    return table.c.id == beats.c.id, table.c.claim_no == beats.c.claim_no


def beat_without_the_fence(table, claim, beats):
    return table.c.id == beats.c.id, in_state(table, claim.target)


def changing(table, move, *guard):
    changed = {"state": literal(str(move.target)), "revision": table.c.revision + 1}
    return update(table).where(table.c.id == bindparam("guard_id"), *guard).values(changed)


def any_slot(self):
    held = self._table.alias("held")
    return select(func.coalesce(func.max(held.c.slot), 0) + 1).where(bindparam("slots") > 0).scalar_subquery()


def the_oldest_of_all(self):
    q, busy = self._table.alias("q"), self._busy()
    running = select(busy.c.running).where(busy.c.tenant == q.c.tenant).scalar_subquery()
    return (
        select(q.c.id)
        .where(in_state(q, "queued"), func.coalesce(running, 0) < bindparam("tenant_running"))
        .order_by(q.c.requested_at, q.c.id)
        .limit(1)
        .scalar_subquery()
    )


real_open = _Gates.open


def the_oldest_gate(self, *, only, skip=False):
    wanted = real_open(self, only=only, skip=skip)
    return wanted if only else wanted.order_by(None).order_by(gates.c.head_at, gates.c.head_id)


real_change_due = SqlRuns._change_due
real_entering = SqlRuns._entering


def a_sweep_that_takes_no_fence(self, due, oldest, changes, limit):
    return real_change_due(self, due, oldest, {**changes, "worker": "sweeper"} | _same(self, changes), limit)


def _same(self, changes):
    return {"claim_no": self._table.c.claim_no} if "claim_no" in changes else {}


def a_final_run_that_keeps_its_key(self, move, values, now):
    return {name: value for name, value in real_entering(self, move, values, now).items() if name != "active_key"}


MUTANTS = {
    "settle without the fence": (runs, "write_of", settle_without_the_fence),
    "move without the state": (runs, "write_of", move_without_the_state),
    "finish without a look at the cancel": (moves, "guard_of", finish_without_a_look_at_the_cancel),
    "stop without a cancel": (moves, "guard_of", stop_without_a_cancel),
    "sweep without the fence": (SqlRuns, "_change_due", a_sweep_that_takes_no_fence),
    "key kept by a final run": (SqlRuns, "_entering", a_final_run_that_keeps_its_key),
    "claim by age alone": (Queue, "next", the_oldest_of_all),
}
# What is said to each database in other words is broken on each of them; the rest comes out of the same lines.
EVERYWHERE = {
    "beat without the state": (moves, "beat_guard", beat_without_the_state),
    "beat without the fence": (moves, "beat_guard", beat_without_the_fence),
    "claim without counting slots": (Queue, "free_slot", any_slot),
}
WITH_GATES = {"gate by age alone": (_Gates, "open", the_oldest_gate)}


def broken_in_vain(case, mutant):
    return mutant == "claim without counting slots" and isinstance(case.runs._claimer, ClaimInOne)


@pytest.mark.parametrize("mutant", MUTANTS | EVERYWHERE | WITH_GATES)
def test_a_broken_guard_is_found(case, monkeypatch, mutant):
    if not isinstance(case.runs, SqlRuns):
        raise NotPromised("the guards of another kind of store are broken in a file of their own")
    here = EVERYWHERE | (WITH_GATES if case.store.capabilities.counters else MUTANTS)
    if mutant not in here:
        raise NotPromised("the same lines are broken on another store")
    if broken_in_vain(case, mutant):
        raise NotPromised(
            "its claims compare the number of slots where the run is written (test_claim.py, test_pool.py)"
        )
    owner, name, broken = here[mutant]
    assert hasattr(owner, name)
    monkeypatch.setattr(owner, name, broken)
    case.store.close()
    case.store = case.open()

    # Ids are drawn by chance and decide between runs of one instant: what went wrong may go well when replayed.
    with pytest.raises((AssertionError, Flaky)):
        run_state_machine_as_test(machine_over(case), settings=SEARCH)


def test_the_search_finds_nothing_where_nothing_is_broken(case):
    """The same search, so that a mutant is not found for another reason; a part of it, for the time it takes."""
    run_state_machine_as_test(machine_over(case), settings=settings(SEARCH, max_examples=8))

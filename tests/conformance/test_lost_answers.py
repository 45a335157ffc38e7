"""What lies between a store and its server: an answer that is lost after the commit, and a line that falls silent.

The store is opened through a proxy; what really happened is looked at past it.
"""

from __future__ import annotations

import time

import pytest
from sqlalchemy import Integer, cast, func
from tests.servers.proxy import Proxy

from haulage.core.errors import StoreUnavailable
from haulage.core.lease import Held, LeaseLost, Pulse
from haulage.core.progress import Progress
from haulage.stores.open import open_store

ANSWER_SECONDS = 2  # instead of eight, for the sake of the test


@pytest.fixture
def far(case, monkeypatch):
    """The store as it is seen through a proxy, and the proxy."""
    case.needs_opener("through")
    monkeypatch.setattr("haulage.stores.server.ANSWER_SECONDS", ANSWER_SECONDS)
    with Proxy(case.opener.port()) as proxy:
        store = open_store(case.opener.through(case.url, proxy.port))
        yield store, proxy
        store.close()


def finish(case, store, held):
    move = case.moves("finish")
    getattr(store, case.flow.name).settle(held, move, case.kit.values(move), now=case.now)


def test_a_settle_whose_answer_was_lost_was_made_and_finds_itself(case, far):
    store, proxy = far
    held = case.hold()
    proxy.lose_answer_of(b"UPDATE exports")
    with pytest.raises(StoreUnavailable):
        finish(case, store, held)
    after = case.get(held.id)

    finish(case, store, held)

    assert 1 == proxy.lost, "the fault did not happen"
    assert "ready" == after.state
    assert after == case.get(held.id)


def test_a_settle_that_lost_its_answer_and_then_its_file_to_nobody_is_told_apart_from_a_lost_lease(case, far):
    """The lease was taken away while the answer was lost: then the file is not this worker's to keep."""
    store, proxy = far
    held, lose = case.hold(), case.moves("lose")
    case.runs.sweep(lose, {}, worker="sweeper", now=case.now + 15_000)
    proxy.lose_answer_of(b"UPDATE exports")
    with pytest.raises(StoreUnavailable):
        finish(case, store, held)

    with pytest.raises(LeaseLost):
        finish(case, store, held)

    assert 1 == proxy.lost, "the fault did not happen"


def test_a_request_whose_commit_was_not_answered_is_there(case, far):
    """The door tells its client that the store did not answer; with the same idempotency key it finds the run."""
    store, proxy = far
    run = case.kit.new(tenant="north", requested_at=case.now)

    def ask():
        with store.begin() as tx:
            getattr(store, case.flow.name).add(run, tx=tx)

    proxy.lose_answer_of(b"COMMIT")
    with pytest.raises(StoreUnavailable):
        ask()

    assert 1 == proxy.lost, "the fault did not happen"
    assert run == case.get(run)


def test_a_line_that_falls_silent_is_given_up_and_a_new_one_is_made(case, far):
    store, proxy = far
    held, runs = case.hold(), getattr(store, case.flow.name)
    runs.heartbeat([(held, None)], lease_seconds=15)
    proxy.fall_silent()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        runs.heartbeat([(held, None)], lease_seconds=15)
    took = time.monotonic() - began
    proxy.heal()

    assert {held: Pulse(True, False)} == runs.heartbeat([(held, None)], lease_seconds=15)
    assert ANSWER_SECONDS * 0.9 < took < 30


def test_every_connection_of_a_broken_line_costs_one_failure_and_not_one_each(case, far):
    store, proxy = far
    runs = getattr(store, case.flow.name)
    with store.begin() as tx, store._database.read() as second, store._database.read() as third:
        assert [0, 0, 0] == [runs.waiting(tx=each) for each in (tx, second, third)]
    proxy.cut()
    failed = 0
    for _ in range(4):
        try:
            runs.get("nobody")
        except StoreUnavailable:
            failed += 1

    assert 1 >= failed, "the bell may have found it first"


def test_a_thousand_running_runs_are_one_statement_a_beat(case):
    case.needs("counters")
    runs = [case.kit.new(id=f"run-{n:04d}", tenant="north", requested_at=case.now) for n in range(1_000)]
    with case.store.begin() as tx:
        tx.execute(case.runs._insert, [{name: getattr(run, name) for name in case.runs._names} for run in runs])
        table = case.runs._table
        slot = cast(func.substr(table.c.id, 5), Integer) + 1
        held = {"state": "running", "claim_no": 1, "lease_until": case.now, "worker": "w1"}
        tx.execute(table.update().values(**held, slot=slot))
    beats = [(Held(run.id, "north", 1, "w1"), Progress("writing", n, None)) for n, run in enumerate(runs)]
    statements = case.opener.statements(case.url)
    pulses = case.runs.heartbeat(beats, lease_seconds=15, now=case.now + 1_000)
    sent = case.opener.statements(case.url) - statements

    assert {beat[0]: Pulse(True, False) for beat in beats} == pulses
    assert 999 == case.get(runs[-1]).processed
    assert case.now + 16_000 == case.get(runs[0]).lease_until
    assert sent < 20, "what the watching itself asks is in it"

"""TERM drains: nothing new is claimed, what runs may finish within the grace. INT stops at once."""

from __future__ import annotations

import signal
import time
from dataclasses import replace

import pytest
from tests.process.house import FOREVER, LIMITS, until

from haulage.core import events
from haulage.core.errors import Refused
from haulage.exports.expire import ExportSweep
from haulage.worker.supervisor import Bell, Supervisor
from haulage.worker.sweeper import Sweeper


def test_a_draining_worker_finishes_what_runs_and_claims_no_more(house):
    worker = house.worker(lanes=1, held=True)
    first = house.request("names", rows=200_000)
    house.wait_for_rows(first)
    second = house.request("names", rows=5)

    worker.signal(signal.SIGTERM)
    worker.wait_for("WorkerDraining")
    until(lambda: not house.store.workers.claiming(60))
    states = [presence.state for presence in house.store.workers.seen(60)]
    with pytest.raises(Refused) as refused:
        house.request("names", rows=6)
    house.let_builds_end()

    assert 0 == worker.end()
    assert (["draining"], "no_worker") == (states, refused.value.code)
    assert ("ready", "queued") == (house.get(first).state, house.get(second).state)
    assert [first] == [event["run"] for event in worker.events("RunClaimed")]
    house.assert_whole()


@pytest.mark.parametrize("house", [replace(LIMITS, drain_seconds=1)], indirect=True)
def test_what_does_not_finish_within_the_grace_is_stopped_and_says_so(house):
    worker = house.worker()
    run = house.request("stream", **FOREVER)
    house.wait_for_rows(run)

    began = time.monotonic()
    worker.signal(signal.SIGTERM)

    assert 0 == worker.end()
    assert 1 <= time.monotonic() - began < 30 < house.limits.build.generation_seconds
    ended = house.get(run)
    assert ("failed", "worker_stopped") == (ended.state, ended.failure_code)
    house.assert_nothing_left()


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM, signal.SIGINT]], ids=["INT", "TERM then INT"])
def test_an_interrupt_stops_at_once_even_within_a_silent_statement(house, signals):
    worker = house.worker()
    run = house.request("silent", **FOREVER)
    house.wait_for_sql(house.child())

    began = time.monotonic()
    for number in signals:
        worker.signal(number)
        worker.wait_for("WorkerDraining")

    assert 0 == worker.end()
    assert time.monotonic() - began < 30 < house.limits.drain_seconds
    assert "worker_stopped" == house.get(run).failure_code
    house.assert_nothing_left()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_worker_leaves_at_once_and_its_presence_with_it(house, number):
    worker = house.worker()
    (seen,) = house.store.workers.seen(60)

    worker.signal(number)

    assert 0 == worker.end()
    assert worker.pid == seen.pid
    assert [] == house.store.workers.seen(60)
    assert worker.events("WorkerStopped")


def test_a_killed_worker_leaves_its_presence_and_the_next_start_has_another_id(house):
    first = house.worker()
    first.kill()
    house.worker()

    ids = {presence.id for presence in house.store.workers.seen(60)}

    assert 2 == len(ids)


@pytest.mark.parametrize("house", [replace(LIMITS, drain_seconds=0.5)], indirect=True)
def test_a_claim_loop_that_breaks_ends_its_builds_in_order_and_leaves(house, monkeypatch):
    class Broken(BaseException):
        """What no loop can go on after."""

    house.pretend_a_worker()
    run = house.request("stream", **FOREVER)
    claim = house.store.exports.claim

    def break_later(*asked, **options):
        if house.get(run).state != "queued":
            raise Broken
        return claim(*asked, **options)

    monkeypatch.setattr(house.store.exports, "claim", break_later)
    seen = []
    sweeper = Sweeper(ExportSweep(house.store, house.artifacts, house.limits, seen.append), 1, seen.append)
    supervisor = Supervisor(
        house.store, house.artifacts, house.limits, sweeper, source_of=lambda _name: (f"sqlite:///{house.source}", 1),
        permit=lambda _run: None, lanes=2, version="test", observe=seen.append,
    )  # fmt: skip
    with pytest.raises(Broken):
        supervisor.run()

    assert "worker_stopped" == house.get(run).failure_code
    assert ["pretended"] == [presence.id for presence in house.store.workers.seen(60)]
    assert [seen[-1]] == [event for event in seen if isinstance(event, events.WorkerStopped)]
    house.assert_nothing_left()


def test_a_signal_handler_may_ring_the_bell_at_any_moment():
    """A thousand handlers over a waiting loop: with a lock that is not reentrant this hangs."""
    bell, rings = Bell(), []

    def ring(_number, _frame):
        rings.append(1)
        bell.ring()

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        heard = 0
        until(lambda: bell.wait(0.0001) and len(rings) > 1_000)
        heard = bell.wait(1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert heard

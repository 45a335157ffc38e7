"""Several workers on one store, private ones, and runs that may be run again."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest
from tests.process.house import FOREVER, LIMITS, until

from haulage.stores.tables import SCHEMA_VERSION, facts


@pytest.mark.parametrize("lanes", [3, 1])
def test_two_workers_share_the_slots_and_each_run_is_worked_on_once(house, lanes):
    workers = [house.worker(lanes=lanes, held=True) for _ in range(2)]
    runs = [house.request("stream", rows=100_000 + n) for n in range(6)]
    until(lambda: len(house.running()) == 2)  # and none of the two can end
    by = {run.worker for run in house.running()}
    house.let_builds_end()
    most = 2
    while house.store.exports.tally().keys() & {"queued", "running"}:
        most = max(most, len(house.running()))

    claimed = [event["run"] for worker in workers for event in worker.events("RunClaimed")]
    assert ["ready"] * 6 == [house.get(run).state for run in runs]
    assert (2, 2) == (house.limits.slots, most)
    assert lanes == 3 or len(by) == 2
    assert sorted(runs) == sorted(claimed)
    house.assert_whole()


def test_a_lane_that_becomes_free_takes_the_next_run_at_once(house):
    """And not only when it looks the next time: this one does so once an hour."""
    house.worker(lanes=1, look_seconds=3_600)
    runs = [house.request("names", rows=n + 1) for n in range(3)]

    assert ["ready"] * 3 == [house.wait(run).state for run in runs]


@pytest.mark.parametrize("house", [replace(LIMITS, lease_seconds=8)], indirect=True)
def test_a_build_of_several_leases_is_nobody_else_s_while_its_worker_beats(house):
    workers = [house.worker(), house.worker()]
    run = house.request("stream", rows=1_000_000)
    child = house.child()
    os.kill(child, signal.SIGSTOP)
    leases = 1.5 * house.limits.lease_seconds
    until(lambda: house.store.now() > house.get(run).started_at + leases * 1000)
    still = house.get(run)
    os.kill(child, signal.SIGCONT)

    ended = house.wait(run)

    def told():
        return [event["event"] for worker in workers for event in worker.events() if event.get("run") == run]

    assert ("running", "ready", 1, 1) == (still.state, ended.state, ended.claim_no, ended.attempts)
    until(lambda: "RunSettled" in told())
    assert ["RunClaimed", "RunSettled"] == told()
    house.assert_whole()


def test_a_run_whose_commit_comes_late_is_worked_on_all_the_same(house, monkeypatch):
    worker, begin = house.worker(), house.store.begin

    @contextmanager
    def late():
        with begin() as tx:
            yield tx
            time.sleep(0.5)  # the worker heard of the write, has looked several times, and found nothing

    monkeypatch.setattr(house.store, "begin", late)
    runs = [house.request("names", rows=n + 1) for n in range(2)]

    assert ["ready", "ready"] == [house.wait(run).state for run in runs]
    assert sorted(runs) == sorted(event["run"] for event in worker.events("RunClaimed"))


def test_a_private_worker_claims_its_own_run_only_and_counts_for_nobody_else(house):
    own = "01890000-0000-7000-8000-000000000001"
    house.request("names", rows=7, private_run=own)
    house.pretend_a_worker()
    other = house.request("names", rows=8)
    house.store.workers.leave("pretended")
    worker = house.worker(only_run=own)

    assert "ready" == house.wait(own).state
    assert not house.store.workers.claiming(60)
    assert [own] == [event["run"] for event in worker.events("RunClaimed")]
    assert "queued" == house.get(other).state
    worker.signal(signal.SIGTERM)
    assert 0 == worker.end()


@pytest.mark.parametrize("house", [replace(LIMITS, presence_seconds=8, abandon_seconds=0.1)], indirect=True)
def test_a_worker_that_lives_through_a_migration_to_newer_workers_claims_no_more_and_says_why(house):
    worker = house.worker()
    running = house.request("stream", **FOREVER)
    house.wait_for_rows(running)
    want_workers(house, SCHEMA_VERSION + 1)
    worker.wait_for("WorkerRefuses")
    until(lambda: not house.store.workers.claiming(60))
    house.pretend_a_worker()
    waiting = house.request("names")
    house.store.workers.leave("pretended")

    assert "install a newer haulage" in worker.events("WorkerRefuses")[0]["reason"]
    assert ["refusing"] == [each.state for each in house.store.workers.seen(60)]
    assert "workers_gone" == house.wait(waiting).failure_code  # Nobody who claims is alive.
    assert "running" == house.get(running).state  # What it holds it may finish.
    want_workers(house, SCHEMA_VERSION)
    until(lambda: house.store.workers.claiming(60))
    assert "ready" == house.wait(house.request("names")).state


def want_workers(house, oldest):
    """What a migration to a schema that older workers must not touch writes."""
    with house.store.begin() as tx:
        tx.execute(facts.update().where(facts.c.name == "min_worker").values(value=oldest))


@pytest.mark.parametrize("house", [replace(LIMITS, attempts=2)], indirect=True)
def test_a_dataset_that_says_so_is_run_again_and_not_for_ever(house):
    house.pretend_a_worker()
    run = house.request("again", **FOREVER)
    seen = []
    for _ in range(2):
        worker = house.worker()
        house.wait(run, "running")
        house.wait_for_rows(run)
        worker.kill()
        until(lambda: not house.children())
        house.sweep(after_seconds=house.limits.lease_seconds + 1)
        found = house.get(run)
        seen.append((found.state, found.failure_code, found.attempts, found.processed, house.on_disk()))

    assert [("queued", None, 1, None, []), ("failed", "worker_lost", 2)] == [seen[0], seen[1][:3]]
    assert 0 < seen[1][3]  # what the last attempt had reached stays to be seen
    house.assert_nothing_left()


def test_a_run_that_is_run_again_ends_ready_with_the_file_of_its_last_attempt(house):
    worker = house.worker(held=True)
    run = house.request("again", rows=400_000)
    house.wait_for_rows(run)
    worker.kill()
    house.let_leases_run_out()
    house.worker()

    ended = house.wait(run)

    assert ("ready", 2, 400_000) == (ended.state, ended.attempts, ended.rows)
    assert 3 == ended.claim_no  # two claims, and between them the fence that the sweep took
    house.assert_whole()


def test_a_cancel_of_a_run_that_would_be_run_again_ends_it(house):
    worker = house.worker()
    run = house.request("again", **FOREVER)
    house.wait_for_rows(run)
    house.freeze(worker)
    house.cancel(run)
    worker.kill()
    until(lambda: not house.children())

    house.sweep(after_seconds=house.limits.lease_seconds + 1)

    assert "cancelled" == house.get(run).state
    house.assert_nothing_left()

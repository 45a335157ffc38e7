"""The store locked, full, or silent after a commit: the worker waits and recovers, and no row lies about a file."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
from dataclasses import replace

import pytest
from tests.process.house import AMINA, FOREVER, LIMITS, PATIENCE_SECONDS, Bench, until

from haulage.core import events
from haulage.core.errors import StoreUnavailable
from haulage.worker import lanes


@contextlib.contextmanager
def locked(house):
    """Nobody else can write to the store."""
    with contextlib.closing(sqlite3.connect(house.store_path, isolation_level=None, timeout=60)) as other:
        other.execute("begin immediate")
        yield
        other.execute("rollback")


def test_a_claim_loop_whose_store_is_locked_backs_off_and_recovers(house):
    worker = house.worker()
    with locked(house):
        until(lambda: len([e for e in worker.events("StoreFailed") if e["where"] == "claim"]) >= 2)
    house.pretend_a_worker()
    waits = [event["wait_seconds"] for event in worker.events("StoreFailed") if event["where"] == "claim"]
    run = house.request("names")

    assert "ready" == house.wait(run).state
    assert waits[0] < waits[1] <= 5
    assert worker.process.poll() is None
    house.assert_whole()


def test_a_lock_shorter_than_the_lease_costs_a_running_build_nothing(house):
    worker = house.worker(held=True)
    run = house.request("stream", rows=100_000)
    house.wait_for_rows(run)
    with locked(house):
        worker.wait_for("StoreFailed", where="heartbeat")
    house.let_builds_end()

    assert "ready" == house.wait(run).state
    house.assert_whole()


@pytest.mark.parametrize("house", [replace(LIMITS, lease_seconds=15)], indirect=True)
def test_a_worker_that_cannot_renew_its_lease_stops_its_child_before_anybody_takes_the_run(house):
    worker = house.worker()
    run = house.request("stream", **FOREVER)
    house.wait_for_rows(run)
    with locked(house):
        over, seen_at = house.get(run).lease_until, 0
        while (now := house.store.now()) and house.children():
            seen_at = now
        worker.wait_for("LeaseWasLost", run=run)
        left = house.on_disk()

    assert seen_at < over, "the child builds on without a lease"
    assert [] == left
    assert "worker_lost" == house.wait(run).failure_code


def test_a_settle_that_the_store_does_not_take_is_tried_again(house):
    worker = house.worker(held=True)
    run = house.request("names", rows=120_000)
    house.wait_for_rows(run)
    with locked(house):
        house.let_builds_end()
        worker.wait_for("StoreFailed", where="settle")
        assert "running" == house.get(run).state

    assert "ready" == house.wait(run).state
    house.assert_whole()


class LostAnswers:
    """A store whose settle commits, and whose answer gets lost so many times."""

    def __init__(self, runs, times):
        self._runs = runs
        self.left = times
        self.settled = 0

    def __getattr__(self, name):
        return getattr(self._runs, name)

    def settle(self, held, move, values, **options):
        self._runs.settle(held, move, values, **options)
        self.settled += 1
        if self.left > 0:
            self.left -= 1
            raise StoreUnavailable("the answer was lost")


@pytest.mark.parametrize(("dataset", "expected"), [("names", "ready"), ("wrong", "failed")])
def test_a_settle_whose_answer_was_lost_finds_its_own_result(house, dataset, expected):
    runs = LostAnswers(house.store.exports, times=2)
    house.pretend_a_worker()
    run = house.request(dataset)
    with Bench(house, runs=runs) as bench:
        bench.work()

    assert (expected, 3) == (house.get(run).state, runs.settled)
    assert [] == bench.seen(events.LeaseWasLost)
    house.assert_whole()


def test_a_file_stays_when_it_cannot_be_read_whether_its_run_became_ready(house, monkeypatch):
    """The unknown commit: the row *is* ready; to discard the file on an error would break the promise of the row."""
    monkeypatch.setattr(lanes, "SETTLE_RETRY_SECONDS", 0.3)
    runs = LostAnswers(house.store.exports, times=1_000)
    house.pretend_a_worker()
    run = house.request("names")
    with Bench(house, runs=runs) as bench:
        bench.work()

    assert ("ready", True) == (house.get(run).state, runs.left < 1_000)
    assert 1 == len(bench.seen(events.Incident))
    house.assert_whole()
    assert 0 == house.sweep(after_seconds=60).orphans
    house.assert_whole()


def test_a_store_that_never_hears_of_the_end_lets_the_sweep_end_the_run(house, monkeypatch):
    monkeypatch.setattr(lanes, "SETTLE_RETRY_SECONDS", 0.3)

    class Deaf(LostAnswers):
        def settle(self, held, move, values, **options):
            raise StoreUnavailable("it does not hear")

    house.pretend_a_worker()
    run = house.request("names")
    with Bench(house, runs=Deaf(house.store.exports, 0)) as bench:
        bench.work()
    left = house.on_disk()

    house.sweep(after_seconds=60)

    assert [f"files/{run}.1"] == left
    assert "worker_lost" == house.get(run).failure_code
    house.assert_nothing_left()


def test_a_host_rule_that_breaks_fails_the_run_at_once_and_its_words_stay_in_the_log(house):
    def permit(run):
        raise LookupError("secret account 4711")

    house.pretend_a_worker()
    run = house.request("names")
    with Bench(house, permit=permit) as bench:
        bench.work()

    ended = house.get(run)
    assert ("failed", "build_failed", None) == (ended.state, ended.failure_code, ended.failure_detail)
    assert "secret account 4711" in bench.seen(events.Incident)[0].problem


def test_a_source_that_the_worker_does_not_know_fails_its_run(house):
    house.worker()
    assert "source_gone" == house.wait(house.request("unknown")).failure_code
    house.assert_nothing_left()


def test_bytes_of_a_failed_run_that_cannot_be_removed_count_until_they_are_gone(house, monkeypatch):
    monkeypatch.setattr(lanes, "REMOVE_RETRY_SECONDS", 0)

    def remove(_key):
        raise OSError(5, "EIO")

    house.pretend_a_worker()
    run = house.request("stream", **FOREVER)
    with Bench(house) as bench:
        lane = bench.claim()
        monkeypatch.setattr(house.artifacts, "remove", remove)
        lane.thread.start()
        house.wait_for_rows(run)
        os.kill(house.child(), signal.SIGKILL)
        lane.thread.join(PATIENCE_SECONDS)
    failed, used = house.get(run), house.store.exports.storage(AMINA.tenant)
    monkeypatch.undo()
    house.sweep(after_seconds=60)

    assert ("failed", "child_killed", used.stored_bytes) == (failed.state, failed.failure_code, failed.stored_bytes)
    assert used.stored_bytes > 0
    assert 0 == house.store.exports.storage(AMINA.tenant).stored_bytes
    house.assert_nothing_left()


def test_bytes_that_cannot_be_removed_keep_a_cancelled_run_from_saying_so(house, monkeypatch):
    """Only a run without bytes says cancelled; the sweep goes on where the lane gave up."""
    monkeypatch.setattr(lanes, "REMOVE_RETRY_SECONDS", 0)
    broken = []

    def remove(key):
        broken.append(key)
        raise OSError(5, "EIO")

    house.pretend_a_worker()
    run = house.request("stream", **FOREVER)
    with Bench(house) as bench:
        lane = bench.claim()
        monkeypatch.setattr(house.artifacts, "remove", remove)
        lane.thread.start()
        house.wait_for_rows(run)
        house.cancel(run)
        lane.thread.join(PATIENCE_SECONDS)
    still = house.get(run)
    failed = house.sweep(after_seconds=house.limits.lease_seconds + 1).failures
    between = house.get(run)
    monkeypatch.undo()
    house.sweep(after_seconds=60)

    assert broken
    assert ["running", "running", "cancelled"] == [still.state, between.state, house.get(run).state]
    assert [f"{run}.1: OSError"] == failed
    house.assert_nothing_left()

"""SIGSTOP and SIGCONT: whoever wakes up after its lease changes nothing and leaves nothing."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace

import pytest
from tests.process.house import BUILD, FOREVER, LIMITS, stopped, until


def test_a_supervisor_that_thaws_after_its_lease_changes_nothing_and_ends_its_child(house):
    frozen = house.worker()
    run = house.request("stream", **FOREVER)
    child = house.child()
    house.wait_for_rows(run)
    house.freeze(frozen)
    house.let_leases_run_out()
    house.worker()
    house.wait(run)
    until(lambda: house.get(run).artifact_key is None)
    taken = house.get(run)
    assert [child] == house.children()  # it works on, for a supervisor that cannot hear it

    frozen.signal(signal.SIGCONT)

    frozen.wait_for("LeaseWasLost", run=run)
    assert ("failed", "worker_lost") == (taken.state, taken.failure_code)
    assert taken == house.get(run)
    assert [] == frozen.events("RunSettled")
    house.assert_nothing_left()


def test_a_file_that_was_finished_while_its_supervisor_was_frozen_is_never_published(house):
    frozen = house.worker(held=True)
    run = house.request("names", rows=200_000)
    house.wait_for_rows(run)
    house.freeze(frozen)
    house.let_builds_end()
    until(lambda: not house.children())
    assert any(path.endswith("/part") for path in house.on_disk())  # whole, but nobody has published it
    house.sweep(after_seconds=house.limits.lease_seconds)
    taken = house.get(run)
    assert ("failed", "worker_lost") == (taken.state, taken.failure_code)

    frozen.signal(signal.SIGCONT)

    frozen.wait_for("LeaseWasLost", run=run)
    assert taken == house.get(run)
    house.assert_nothing_left()


@pytest.mark.parametrize("house", [replace(LIMITS, lease_seconds=60)], indirect=True)
def test_a_run_taken_from_a_living_worker_is_let_go_with_its_next_beat(house):
    """As by a sweep whose clock is ahead; its own clock would let the worker go on for 48 s."""
    worker = house.worker()
    run = house.request("stream", **FOREVER)
    house.wait_for_rows(run)

    began = time.monotonic()
    house.sweep(after_seconds=90)
    until(lambda: not house.children())

    assert time.monotonic() - began < 30
    worker.wait_for("LeaseWasLost", run=run)
    assert "worker_lost" == house.get(run).failure_code
    house.assert_nothing_left()


def test_a_supervisor_that_thaws_within_its_lease_goes_on_as_if_nothing_had_been(house):
    worker = house.worker(held=True)
    run = house.request("names", rows=200_000)
    house.wait_for_rows(run)
    worker.signal(signal.SIGSTOP)
    until(lambda: stopped(worker.pid))
    time.sleep(5 * house.limits.beat_seconds)  # so that some are missed

    worker.signal(signal.SIGCONT)
    house.let_builds_end()

    assert "ready" == house.wait(run).state
    house.assert_whole()


def test_a_frozen_child_is_killed_when_its_run_is_cancelled(house):
    worker = house.worker()
    run = house.request("stream", **FOREVER)
    child = house.child()
    house.wait_for_rows(run)
    os.kill(child, signal.SIGSTOP)
    until(lambda: stopped(child))

    began = time.monotonic()
    house.cancel(run)

    assert "cancelled" == house.wait(run).state
    assert house.limits.stop_seconds <= time.monotonic() - began < 30
    house.assert_nothing_left()
    assert worker.process.poll() is None


@pytest.mark.parametrize("house", [replace(LIMITS, build=replace(BUILD, generation_seconds=3))], indirect=True)
def test_a_frozen_child_does_not_outlast_the_time_of_its_build(house):
    house.worker()
    run = house.request("silent", **FOREVER)
    child = house.child()
    os.kill(child, signal.SIGSTOP)
    until(lambda: stopped(child))

    ended = house.wait(run)

    assert ("failed", "generation_timeout") == (ended.state, ended.failure_code)
    house.assert_nothing_left()


def test_while_a_child_is_frozen_its_supervisor_beats_and_progress_stands_still(house):
    house.worker()
    run = house.request("stream", **FOREVER)
    child = house.child()
    house.wait_for_rows(run)
    os.kill(child, signal.SIGSTOP)
    until(lambda: stopped(child))

    def stands_still():
        before = house.get(run)
        until(lambda: house.get(run).heartbeat_at > before.heartbeat_at + 500)
        after = house.get(run)
        return (before.processed, before.updated_at) == (after.processed, after.updated_at)

    until(stands_still)  # what was said before may still be on its way
    assert house.get(run).heartbeat_at > house.get(run).updated_at

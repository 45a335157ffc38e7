"""kill -9 of the child, of the supervisor, of both, of the whole group: every run ends, no byte stays."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest
from tests.process.house import FOREVER, LIMITS, Bench, at_a_random_moment, until

# A server of MariaDB notices with its next row that its client is gone, or when the time of the statement is over.
WHERE_A_SERVER_NOTICES = pytest.mark.parametrize("sourced_house", ["sqlite", "postgresql"], indirect=True)
SILENT = pytest.mark.parametrize("dataset", ["stream", "silent", "silent_rows"])


def started(house, dataset):
    """A worker, a run that goes on for ever, and its child in the middle of it."""
    worker = house.worker()
    run = house.request(dataset, **FOREVER)
    child = house.child()
    house.wait_for_sql(child)
    return worker, run, child


@SILENT
def test_a_killed_child_fails_its_run_and_leaves_no_byte(sourced_house, dataset):
    house = sourced_house
    worker, run, child = started(house, dataset)

    os.kill(child, signal.SIGKILL)

    ended = house.wait(run)
    assert ("failed", "child_killed", 0) == (ended.state, ended.failure_code, house.at_work())
    assert "SIGKILL" in worker.wait_for("RunSettled", run=run)["cause"]
    house.assert_nothing_left()
    assert worker.process.poll() is None


@WHERE_A_SERVER_NOTICES
@SILENT
def test_a_killed_supervisor_takes_its_child_along_even_within_a_silent_statement(sourced_house, dataset):
    house = sourced_house
    worker, run, _child = started(house, dataset)

    worker.kill()

    until(lambda: not house.children(), lambda: "the child outlived its supervisor")
    until(lambda: not house.at_work(), lambda: "a server works for a child that is dead")
    assert "running" == house.get(run).state


@WHERE_A_SERVER_NOTICES
@SILENT
def test_the_run_of_a_killed_supervisor_is_failed_by_the_next_worker(sourced_house, dataset):
    house = sourced_house
    worker, run, _child = started(house, dataset)

    worker.kill()
    house.let_leases_run_out()
    next_worker = house.worker()

    ended = house.wait(run)
    assert ("failed", "worker_lost", 1) == (ended.state, ended.failure_code, ended.attempts)
    assert "lose" == next_worker.wait_for("RunSettled", run=run)["move"]
    house.assert_nothing_left()


@pytest.mark.parametrize("victims", ["child then supervisor", "supervisor then child", "whole group"])
def test_whoever_is_killed_the_next_worker_ends_the_run_and_no_byte_is_left(house, victims):
    worker, run, child = started(house, "stream")
    house.wait_for_rows(run)
    assert house.on_disk()

    if victims == "child then supervisor":
        os.kill(child, signal.SIGKILL)
        worker.kill()
    elif victims == "supervisor then child":
        worker.signal(signal.SIGSTOP)  # so that it cannot settle what it sees
        os.kill(child, signal.SIGKILL)
        worker.kill()
    else:
        os.killpg(worker.pid, signal.SIGKILL)
        assert -signal.SIGKILL == worker.end()
    house.let_leases_run_out()
    house.worker()

    ended = house.wait(run)
    assert "failed" == ended.state
    assert ended.failure_code in {"worker_lost", "child_killed"}
    house.assert_nothing_left()


def test_workers_killed_at_random_moments_leave_nothing_that_the_sweep_does_not_end(house):
    """One house, eight deaths: between the claim, the start of the child, writing, publishing and the settle."""
    runs = []
    for seed in range(8):
        worker = house.worker()
        runs.append(house.request("names", rows=60_000 + seed))
        worker.wait_for("RunClaimed", run=runs[-1])
        at_a_random_moment(seed, 0.7)
        worker.kill()
        house.let_leases_run_out()  # or the slots would be taken
    until(lambda: not house.children(), lambda: "a child outlived its supervisor")

    house.sweep(after_seconds=60)

    ended = [house.get(run) for run in runs]
    assert {"ready", "failed"} >= {run.state for run in ended}
    assert "worker_lost" in {run.failure_code for run in ended}  # it did hit runs in the middle
    assert {None, "worker_lost"} >= {run.failure_code for run in ended}
    house.assert_whole()


@pytest.mark.parametrize("house", [replace(LIMITS, lease_seconds=2)], indirect=True)
def test_a_run_whose_lane_cannot_start_is_lost_and_not_beaten_for(house):
    """The kernel may refuse a thread: what was claimed for it is nobody's."""
    house.pretend_a_worker()
    run = house.request("names")
    with Bench(house) as bench:
        bench.claim()  # and its thread is never started
        until(lambda: house.get(run).lease_until < house.store.now())
        house.sweep()

    assert ("failed", "worker_lost") == (house.get(run).state, house.get(run).failure_code)
    house.assert_nothing_left()

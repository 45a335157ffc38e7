"""Workers on a directory store: deaths, freezes, a full volume, and two hosts that share nothing but a folder."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from tests.process.house import FOREVER, LIMITS, House, until
from tests.process.network import FarLauncher, another_host, namespace_of
from tests.process.test_disk_full import fill, small_disk  # noqa: F401 - a fixture

# A lease that nobody waits for in these tests: what ends sooner, ends because the kernel freed a lock.
PATIENT = replace(LIMITS, lease_seconds=60)


@pytest.fixture
def house(template, launcher, tmp_path, request):
    shutil.copy(template / "shop.db", tmp_path)
    built = House(tmp_path, launcher, getattr(request, "param", PATIENT), store_url=f"directory://{tmp_path}/store")
    yield built
    built.close()


def begun(house, dataset="stream"):
    worker = house.worker()
    run = house.request(dataset, **FOREVER)
    child = house.child()
    house.wait_for_rows(run) if dataset == "stream" else house.wait_for_sql(child)
    return worker, run, child


@pytest.mark.parametrize("dataset", ["stream", "silent"])
def test_the_run_of_a_killed_worker_is_ended_at_once_and_not_with_its_lease(house, dataset):
    worker, run, _child = begun(house, dataset)
    over = house.get(run).lease_until

    os.killpg(worker.pid, signal.SIGKILL)
    assert -signal.SIGKILL == worker.end()
    house.worker()

    ended = house.wait(run)
    assert ("failed", "worker_lost", 1) == (ended.state, ended.failure_code, ended.attempts)
    assert ended.finished_at < over
    until(lambda: not house.on_disk())  # a child that was just dying may have kept the sweep from it once
    house.assert_nothing_left()


def test_a_killed_supervisor_takes_its_child_along_and_the_next_worker_ends_the_run(house):
    worker, run, _child = begun(house)
    worker.kill()
    until(lambda: not house.children(), lambda: "the child outlived its supervisor")
    house.worker()

    assert "worker_lost" == house.wait(run).failure_code
    until(lambda: not house.on_disk())
    house.assert_nothing_left()


def test_a_killed_child_fails_its_run_and_its_slot_is_taken_again(house):
    worker, run, child = begun(house)
    os.kill(child, signal.SIGKILL)

    assert "child_killed" == house.wait(run).failure_code
    assert worker.process.poll() is None
    assert "ready" == house.wait(house.request("names")).state
    house.assert_whole()


def test_a_cancelled_run_whose_worker_is_killed_is_cancelled_at_once(house):
    worker, run, _child = begun(house)
    house.freeze(worker)
    house.cancel(run)
    worker.kill()
    until(lambda: not house.children())

    house.sweep()

    assert "cancelled" == house.get(run).state
    house.assert_nothing_left()


def test_a_frozen_worker_keeps_its_lock_and_loses_its_run_with_its_lease(house):
    frozen, run, child = begun(house)
    house.freeze(frozen)
    house.sweep()
    kept = house.get(run).state
    house.sweep(after_seconds=house.limits.lease_seconds + 1)
    taken = house.get(run)
    assert [child] == house.children()  # it works on, for a supervisor that cannot hear it

    frozen.signal(signal.SIGCONT)

    frozen.wait_for("LeaseWasLost", run=run)
    assert ("running", "failed", "worker_lost") == (kept, taken.state, taken.failure_code)
    assert taken == house.get(run)
    assert [] == frozen.events("RunSettled")
    house.assert_nothing_left()


def test_workers_killed_at_any_moment_leave_nothing_that_the_next_one_does_not_end(house):
    runs = []
    for turn in range(6):
        worker = house.worker()
        runs.append(house.request("names", rows=60_000 + turn))
        worker.wait_for("RunClaimed", run=runs[-1])
        time.sleep(turn * 0.12)
        worker.kill()
    until(lambda: not house.children(), lambda: "a child outlived its supervisor")

    house.sweep()
    house.sweep()

    ended = [house.get(run) for run in runs]
    assert {"ready", "failed"} >= {run.state for run in ended}
    assert {None, "worker_lost"} >= {run.failure_code for run in ended}
    assert "worker_lost" in {run.failure_code for run in ended}  # it did hit runs in the middle
    assert [] == house.store.quarantined()
    house.assert_whole()


def test_two_workers_share_the_slots_and_each_run_is_worked_on_once(house):
    workers = [house.worker(held=True) for _ in range(2)]
    runs = [house.request("stream", rows=30_000 + n) for n in range(6)]
    until(lambda: len(house.running()) == 2)  # and none of the two can end
    house.let_builds_end()
    most = 2
    while house.store.exports.tally().keys() & {"queued", "running"}:
        most = max(most, len(house.running()))

    claimed = [event["run"] for worker in workers for event in worker.events("RunClaimed")]
    assert ["ready"] * 6 == [house.get(run).state for run in runs]
    assert (2, 2) == (house.limits.slots, most)
    assert sorted(runs) == sorted(claimed)
    house.assert_whole()


@pytest.mark.root
def test_a_full_volume_is_waited_for_and_beats_go_on(template, launcher, tmp_path, small_disk):  # noqa: F811
    shutil.copy(template / "shop.db", tmp_path)
    house = House(tmp_path, launcher, PATIENT, store_url=f"directory://{small_disk}/store")
    try:
        worker = house.worker(held=True)
        run = house.request("stream", rows=100_000)
        house.wait_for_rows(run)
        ballast = small_disk / "ballast"
        fill(ballast)
        before = house.get(run).heartbeat_at
        until(lambda: house.get(run).heartbeat_at > before)  # a beat writes in its place
        house.let_builds_end()
        worker.wait_for("StoreFailed", where="settle")
        refused = worker.events("StoreFailed")[-1]["problem"]
        ballast.unlink()

        assert "No space left on device" in refused
        assert "ready" == house.wait(run).state
        assert "ready" == house.wait(house.request("names", rows=3)).state
        house.assert_whole()
    finally:
        house.close()


@pytest.mark.parametrize("ahead_seconds", [3_600, -3_600])
def test_a_worker_whose_clock_is_an_hour_off_works_and_takes_nothing_from_others(
    template,
    shimmed_launcher,
    tmp_path,
    ahead_seconds,
):
    shutil.copy(template / "shop.db", tmp_path)
    house = House(tmp_path, shimmed_launcher, LIMITS, store_url=f"directory://{tmp_path}/store")
    try:
        right = house.worker(lanes=1)
        wrong = house.worker(lanes=1, environment={"HAULAGE_SHIM_CLOCK": str(ahead_seconds)})
        minted = [int(claimer(worker).replace("-", "")[:12], 16) for worker in (right, wrong)]
        runs = [house.request("stream", rows=400_000 + n) for n in range(2)]
        ended = [house.wait(run) for run in runs]
        right.kill()
        alone = house.wait(house.request("names"))

        assert abs(minted[1] - minted[0] - ahead_seconds * 1000) < 60_000  # its clock really is off
        assert ["ready"] * 3 == [run.state for run in (*ended, alone)]
        assert {1} == {run.claim_no for run in (*ended, alone)}
        assert all(0 <= run.started_at - run.requested_at < 60_000 for run in ended)
        assert 0 <= alone.finished_at - alone.started_at < 60_000
        assert [] == [event for worker in (right, wrong) for event in worker.events("LeaseWasLost")]
        house.assert_whole()
    finally:
        house.close()


# -- two hosts ---------------------------------------------------------------------------------------------


@pytest.mark.root
def test_two_hosts_that_share_a_folder_share_its_runs_and_end_those_of_each_other(house):
    with another_host() as prefix:
        far = FarLauncher(prefix)
        try:
            here = house.worker(lanes=1, held=True)
            near, house.launcher = house.launcher, far
            there = house.worker(lanes=1, held=True)
            house.launcher = near
            assert namespace_of(here.pid) != namespace_of(there.pid)
            runs = [house.request("stream", rows=60_000 + n) for n in range(4)]
            until(lambda: len(house.running()) == 2)  # and none of the two can end, so that each host has one
            house.let_builds_end()
            assert ["ready"] * 4 == [house.wait(run).state for run in runs]
            claims = [len(worker.events("RunClaimed")) for worker in (here, there)]

            lost = house.request("stream", **FOREVER)
            house.wait_for_rows(lost)
            owner, other = (here, there) if house.get(lost).worker == claimer(here) else (there, here)
            over = house.get(lost).lease_until
            owner.kill()

            ended = house.wait(lost)
            assert 4 == sum(claims)
            assert min(claims) > 0
            assert ("failed", "worker_lost") == (ended.state, ended.failure_code)
            assert ended.finished_at < over
            assert other.wait_for("RunSettled", run=lost)
            until(lambda: not house.children())
            until(lambda: len(house.on_disk()) == 4)
            house.assert_whole()
        finally:
            for worker in house.workers:
                if worker.process.poll() is None:
                    worker.kill()
            far.close()


def claimer(worker):
    return worker.wait_for("WorkerStarted")["worker"]


@pytest.mark.root
def test_the_doctors_of_two_hosts_meet_and_find_nothing(tmp_path):
    config = tmp_path / "haulage.toml"
    config.write_text(f'store = "directory://{tmp_path}/store"\nsecret_keys = ["{"0123456789abcdef" * 4}"]\n')
    config.chmod(0o600)
    haulage = [sys.executable, "-m", "haulage"]
    subprocess.run([*haulage, "sweep", "--config", config], check=True, capture_output=True)
    with another_host() as prefix:
        command = [*haulage, "doctor", "--peer", "--json", "--config", config]
        doctors = [
            subprocess.Popen([*way, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for way in ([], prefix)
        ]
        answers = [json.loads(doctor.communicate(timeout=90)[0]) for doctor in doctors]

    for answer in answers:
        found = {(each["level"], each["subject"]) for each in answer["findings"]}
        assert {("OK", "volume"), ("OK", "peer")} <= found
        assert ("FAIL", "peer") not in found
    assert [] == list((tmp_path / "store").glob(".p*"))

"""What a command has started, when the processes above it are killed: the keeper ends it, or whoever finds its mark."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.process.house import until
from tests.process.test_commands import made_by, of_the_command

from haulage.sources import processes
from haulage.sources.processes import end_forsaken


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


KILLED = {
    "the worker": ("worker",), "the build": ("build",), "the worker and the build": ("worker", "build"),
    "the build and the worker": ("build", "worker"),
}  # fmt: skip


@pytest.mark.parametrize("killed", KILLED.values(), ids=KILLED)
def test_whoever_is_killed_nothing_of_a_command_lives_on_wherever_it_went(house, killed):
    """In its group, in a session of its own, and there also without the environment that it was started with."""
    worker = house.worker()
    run = house.request(made_by(house, "stays_without_a_mark"), format="epub")
    until(lambda: len(of_the_command(house)) == 4, lambda: str(of_the_command(house)))
    keeper, build = house.keeper_and_build()
    for each in killed:
        os.kill(worker.pid if each == "worker" else build, signal.SIGKILL)
    # No sweep and no further worker has to come for that.
    until(lambda: not of_the_command(house) and not lives(keeper), lambda: f"{of_the_command(house)} live on")
    if "worker" in killed:
        worker.end()
        house.let_leases_run_out()
        house.sweep()
        house.sweep()

    assert ("worker_lost" if "worker" in killed else "child_killed") == house.wait(run).failure_code
    house.assert_nothing_left()


def test_what_a_killed_keeper_has_kept_is_ended_before_the_run_says_that_it_failed(house):
    house.worker()
    run = house.request(made_by(house, "stays"), format="epub")
    until(lambda: len(of_the_command(house)) == 3, lambda: str(of_the_command(house)))
    keeper, _ = house.keeper_and_build()
    os.kill(keeper, signal.SIGKILL)

    assert "child_killed" == house.wait(run).failure_code
    assert [] == of_the_command(house)
    house.assert_nothing_left()


def test_what_outlived_worker_keeper_and_build_is_ended_by_the_next_worker(house):
    worker = house.worker()
    run = house.request(made_by(house, "stays"), format="epub")
    until(lambda: len(of_the_command(house)) == 3, lambda: str(of_the_command(house)))
    keeper, build = house.keeper_and_build()
    end_forsaken()  # a look of somebody else, while all is well
    assert 3 == len(of_the_command(house))
    for pid in (keeper, worker.pid, build):
        os.kill(pid, signal.SIGKILL)
    worker.end()
    house.worker()
    until(lambda: not of_the_command(house), lambda: f"{of_the_command(house)} live on")
    house.let_leases_run_out()

    assert "worker_lost" == house.wait(run).failure_code
    house.sweep()
    house.assert_nothing_left()


def test_only_a_mark_of_these_process_numbers_and_of_a_dead_keeper_ends_a_process():
    """What a container has started names numbers that mean others here."""
    ours = Path("/proc/self/ns/pid").readlink()
    us = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    marks = [f"{ours} {os.getpid()} {us}", f"pid:[1] {os.getpid()} 1", "", "x", f"{ours}", f"{ours} {os.getpid()} 1"]
    started = [subprocess.Popen(["sleep", "3600"], env={processes.MARK: mark}) for mark in marks]
    try:
        end_forsaken()

        assert [True] * 5 + [False] == [lives(each.pid) for each in started]
    finally:
        for each in started:
            each.kill()
            each.wait()

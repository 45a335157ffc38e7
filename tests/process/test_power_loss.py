"""The power is cut, and what was not synced is gone: whatever was promised before is true when it is back.

Store and artifacts lie on a disk that loses names and bytes which nobody synced (``lossy_disk.py``). One story is
told on it by real processes and written down, change by change; then the power is cut after each change, with every
kind of luck, and what survived is opened and swept. Besides, the power is cut under living workers.
HAULAGE_TEST_TIMES=20 tries more kinds of luck at each cut than a run of all tests has time for.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tests.process.house import FOREVER, LIMITS, House, until
from tests.process.lossy_disk import LossyDisk, lay_out, play
from tests.process.shimmed import Shimmed

pytestmark = pytest.mark.root

PATIENT = replace(LIMITS, lease_seconds=30)  # no lease is lost because the machine is busy
STORE, ARTIFACTS = "far/away/haulage.db", "over/there/artifacts"  # in folders that are not there before


@pytest.fixture
def disk(tmp_path):
    """The disk; needs root, /dev/fuse and libfuse, and is named when it is skipped."""
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        pytest.skip("needs root and /dev/fuse: mounts a disk that loses what was not synced")
    try:
        mounted = LossyDisk(tmp_path / "disk")
    except OSError as problem:
        pytest.skip(f"needs a disk that loses what was not synced: {problem}")
    yield mounted
    mounted.close()


@pytest.fixture
def survived(tmp_path):
    """Where what survived is laid out: in memory, since it is done hundreds of times."""
    place = tmp_path / "survived"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True)
    yield place / "disk"
    subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture
def house(disk, template, launcher, tmp_path, request):
    """A house that makes its store and its artifacts anew on the disk; its source stands on an ordinary one."""
    shutil.copy(template / "shop.db", tmp_path)
    kind, launcher = getattr(request, "param", None) or (House, "launcher")
    built = kind(tmp_path, request.getfixturevalue(launcher), PATIENT, disk.mount / STORE, disk.mount / ARTIFACTS)
    yield built
    built.close()


@dataclass
class Known:
    """What somebody was told before the cut."""

    accepted: set[str] = field(default_factory=set)
    ready: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)


def check(folder, known: Known) -> None:
    """Open what survived, let the sweep run twice, and see that it says what was promised."""
    house = House(folder, None, PATIENT, folder / STORE, folder / ARTIFACTS)
    try:
        house.sweep(after_seconds=60)
        assert [] == house.sweep(after_seconds=120).failures
        with contextlib.closing(sqlite3.connect(house.store_path)) as store:
            assert [("ok",)] == store.execute("pragma integrity_check").fetchall()
        found = {run: house.store.exports.get(run) for run in known.accepted}
        assert [] == [run for run in found if found[run] is None], "an accepted run is lost"
        assert [] == [run for run in known.ready if found[run].state != "ready"], "a ready run is not ready"
        assert [] == [run for run in known.cancelled if found[run].state != "cancelled"], "a cancelled run is not"
        house.assert_whole()
    finally:
        house.store.close()


def check_every_cut(disk, folder, seed, times=1, *, since_ready: bool = False) -> int:
    """Cut the power after each change of the disk's log, with every kind of luck; gives how many states survived."""
    known, seen = Known(), set()
    for number, (change, contents) in enumerate(play(disk.log)):
        if change[0] == "mark":
            getattr(known, change[1]).add(change[2])
        if change[1].endswith("-shm") or (since_ready and not known.ready):
            continue  # The first is made anew, whatever is in it.
        # Between two syncs there are many writes, and one chance at every fourth of them is enough.
        chances = range(max(1, int(times)) if change[0] != "write" or number % 4 == 0 or times > 1 else 0)
        for luck in ("none", "names", *((seed << 40) + (chance << 20) + number for chance in chances)):
            left = contents.survivors(luck)
            state = pickle.dumps((left, known))
            if state in seen:
                continue
            seen.add(state)
            lay_out(left, folder)
            try:
                check(folder, known)
            except BaseException as problem:
                problem.add_note(f"the power was cut after change {number}, {str(change)[:120]}, with luck {luck}")
                raise
    return len(seen)


def export(house, disk):
    """A file is built; gives its run and its worker."""
    house.pretend_a_worker()
    run = house.request("names", rows=20_000)
    disk.mark("accepted", run)
    worker = house.worker()
    house.wait(run, "ready")
    disk.mark("ready", run)
    worker.wait_for("RunSettled", run=run)
    return run, worker


def end(house, disk, worker) -> None:
    worker.signal(signal.SIGTERM)
    worker.end()
    house.store.close()
    disk.close()


def test_what_was_promised_before_the_power_was_cut_is_true_when_it_is_back(house, disk, survived, seed, times):
    _, worker = export(house, disk)
    stopped = house.request("stream", **FOREVER)
    disk.mark("accepted", stopped)
    house.wait_for_rows(stopped)
    house.cancel(stopped)
    disk.mark("cancelled", stopped)
    house.wait(stopped, "cancelled")
    end(house, disk, worker)

    assert check_every_cut(disk, survived, seed, times) > 100


@pytest.mark.parametrize("house", [(Shimmed, "shimmed_launcher")], indirect=True)
@pytest.mark.parametrize(
    ("left_out", "found"),
    [
        ("fsync /part", "is not whole"),
        ("fsync artifacts/files$", "No such file"),
        ("fsync haulage.db-wal", "a ready run is not ready"),
    ],
)
def test_a_sync_that_is_left_out_is_found_by_the_same_cuts(house, disk, survived, seed, left_out, found):
    """Without this, the test above could pass because its disk loses nothing, or because nobody looks."""
    house.rule(f"{left_out} 0 LIE")
    _, worker = export(house, disk)
    end(house, disk, worker)

    assert house.fired() > 0
    with pytest.raises((AssertionError, OSError), match=found):
        check_every_cut(disk, survived, seed, since_ready=True)


@pytest.mark.parametrize(
    ("call", "part"), [("fsync", "/part"), ("fsync", "artifacts/files"), ("rmdir", "artifacts/work/")]
)
def test_the_power_goes_under_a_living_worker_and_the_next_finds_its_run(house, disk, launcher, tmp_path, call, part):
    house.pretend_a_worker()
    run = house.request("names", rows=20_000)
    house.store.close()  # It would wait for the call that is held.
    disk.hold(call, part)
    worker = house.worker(wait=False)
    held = disk.wait_until_held()
    for pid in (worker.pid, *house.children()):
        os.kill(pid, signal.SIGKILL)
    disk.cut()
    assert -signal.SIGKILL == worker.end()
    until(lambda: not house.children())
    disk.close()
    with (
        contextlib.closing(LossyDisk(tmp_path / "disk")) as again,
        contextlib.closing(House(tmp_path, launcher, PATIENT, again.mount / STORE, again.mount / ARTIFACTS)) as after,
    ):
        after.workers += house.workers  # so that the next has a folder of its own
        after.sweep(after_seconds=60)
        after.worker()

        assert held.startswith(f"{call} /")
        assert ("failed", "worker_lost") == (after.get(run).state, after.get(run).failure_code)
        assert "ready" == after.wait(after.request("names", rows=3)).state
        after.assert_whole()

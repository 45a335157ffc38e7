"""The child that waits for a run: what it has loaded, who takes it, and that it never stays behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.process.house import BUILD, Bench, descriptors, until
from tests.process.test_child import order_for, talk

from haulage.worker import process
from haulage.worker.child import BELOW_KEEPER
from haulage.worker.spare import MEMORY_FROM, Spare
from haulage.worker.supervisor import CALM_SECONDS, LOOK_SECONDS

SOON_SECONDS = CALM_SECONDS + LOOK_SECONDS + 0.5  # after which one that may be started would be there

TOLD = (
    "; import os, sys, json; print(json.dumps({'at': os.getcwd(), 'sorts': os.environ['SQLITE_TMPDIR'],"
    " 'tmp': os.environ['TMPDIR'], 'modules': list(sys.modules)}), file=open('told', 'w'))"
)


def born_of(pid: int) -> list[int]:
    """The children of a process."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                found += [int(entry.name)] if int(parent) == pid and state != "Z" else []
    return found


def spare_of(worker) -> int:
    """The one child that waits, once it is there."""
    until(lambda: len(born_of(worker.pid)) == 1, lambda: f"{born_of(worker.pid)} are there")
    return born_of(worker.pid)[0]


@pytest.mark.parametrize("waits", [False, True], ids=["started for its run", "started before"])
def test_a_child_works_in_the_folder_of_its_run(house, tmp_path, monkeypatch, waits):
    monkeypatch.setattr(process, "START", process.BUILD + TOLD)
    order = order_for(house, tmp_path).to_json()
    child = process.Child(None if waits else order)
    if waits:
        child.give(order)

    heard = talk(child)

    assert (0, 1) == (child.reap(), heard[-1]["built"]["rows"])
    told = json.loads((tmp_path / "told").read_text())
    assert [str(tmp_path)] * 3 == [told["at"], told["sorts"], told["tmp"]]


def test_it_loads_the_drivers_before_it_is_asked_and_not_sqlite(house, tmp_path, monkeypatch):
    """SQLite would remember a folder to sort in that is not the run's."""
    look = "import sys, json, pathlib; from haulage.exports import build; read = build.BuildOrder.from_json\n"
    look += f"seen = lambda line: pathlib.Path({str(tmp_path / 'seen')!r}).write_text(json.dumps(list(sys.modules)))\n"
    look += "build.BuildOrder.from_json = staticmethod(lambda line: (seen(line), read(line))[1])\n"
    monkeypatch.setattr(process, "START", look + process.START)
    child = process.Child(loads=["sqlite", "postgresql", "mariadb", "no such thing"])
    child.give(order_for(house, tmp_path).to_json())

    heard = talk(child)

    assert (0, 1) == (child.reap(), heard[-1]["built"]["rows"])
    seen = json.loads((tmp_path / "seen").read_text())
    assert {"psycopg", "pymysql"} <= set(seen)
    assert not {"sqlite3", "_sqlite3", "numpy", "pyarrow", "sqlalchemy"} & set(seen)


def test_a_run_is_built_by_the_child_that_waits_and_another_one_waits_then(house):
    worker = house.worker(held=True)
    spare = spare_of(worker)

    run = house.request()

    assert spare == house.child()
    house.let_builds_end()
    assert "ready" == house.wait(run).state
    until(lambda: spare not in born_of(worker.pid))
    assert spare != spare_of(worker)


def test_while_every_lane_is_busy_none_waits(house):
    worker = house.worker(held=True, lanes=1)
    spare = spare_of(worker)

    house.request()

    assert spare == house.child()
    time.sleep(SOON_SECONDS)
    assert [spare] == born_of(worker.pid)
    house.let_builds_end()


def test_one_that_dies_while_it_waits_costs_no_run(house):
    worker = house.worker()
    spare = spare_of(worker)

    os.kill(spare, signal.SIGKILL)
    run = house.request()

    assert ("ready", 1) == (house.wait(run).state, house.get(run).attempts)
    assert spare != spare_of(worker)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_it_ends_with_its_supervisor(house, number):
    worker = house.worker()
    spare = spare_of(worker)

    worker.signal(number)

    assert worker.end() == (-number if number == signal.SIGKILL else 0)
    until(lambda: not Path(f"/proc/{spare}").exists(), lambda: "it outlived its supervisor")


def test_a_private_worker_has_none(house):
    house.pretend_a_worker()
    run = house.request()
    worker = house.worker(only_run=run)
    house.wait(run)
    time.sleep(SOON_SECONDS)

    assert [] == born_of(worker.pid)


@pytest.mark.parametrize("memory_bytes", [MEMORY_FROM - 1, MEMORY_FROM])
def test_a_build_of_little_memory_has_one_of_its_own(house, memory_bytes):
    dataset = house.catalogue.find("names")
    house.catalogue._datasets["names"] = replace(dataset, limits=replace(BUILD, memory_bytes=memory_bytes))
    house.pretend_a_worker()
    run = house.request()
    spare = Spare()
    with Bench(house, spare=spare) as bench:
        spare.start()
        bench.work()
        left = spare.take(MEMORY_FROM)

    assert "ready" == house.get(run).state
    assert (left is None) == (memory_bytes >= MEMORY_FROM)
    if left is not None:
        left.reap()


def test_no_descriptor_and_no_zombie_of_it_stays(house):
    house.pretend_a_worker()
    runs = [house.request(rows=rows) for rows in (1, 2)]
    spare = Spare()
    ours = born_of(os.getpid())
    with Bench(house, spare=spare) as bench:
        before = descriptors()
        for _ in runs:
            spare.start()
            spare.start()
            bench.work()
        for dies in ("one that is taken", "one that is there at the next start"):
            spare.start()
            (waits,) = set(born_of(os.getpid())) - set(ours)
            os.kill(waits, signal.SIGKILL)
            until(lambda: set(born_of(os.getpid())) == set(ours))
            if dies == "one that is taken":
                assert spare.take(MEMORY_FROM) is None
        spare.start()
        assert 1 == len(set(born_of(os.getpid())) - set(ours))
        spare.close()

        assert before == descriptors()
    assert ["ready", "ready"] == [house.get(run).state for run in runs]
    assert ours == born_of(os.getpid())
    assert not [each for each in threading.enumerate() if each.name.startswith("lane")]


@pytest.mark.parametrize("words", [[], [BELOW_KEEPER]], ids=["our code", "code of the host"])
def test_only_code_of_the_host_is_called_once_more_at_the_end(words):
    program = f"import atexit, sys; sys.argv[1:] = ['3', '4', *{words}]; atexit.register(print, 'called')\n"
    program += "from haulage.worker.child import end; end()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert ("called\n" if words else "", "") == (done.stdout, done.stderr)

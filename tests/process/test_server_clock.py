"""Database time decides: a worker whose wall clock is an hour off works as one whose clock is right (DECISIONS 6)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.conformance.cases import STORES
from tests.process.house import FOREVER, House, until
from tests.process.launcher import Launcher

from haulage.stores.open import open_store

pytestmark = pytest.mark.slow
MINUTE = 60_000
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def clock(tmp_path_factory):
    """The library that makes a clock wrong."""
    library = tmp_path_factory.mktemp("clock") / "clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, HERE / "clock.c", "-ldl"], check=True)
    return library


@pytest.fixture(params=[3_600, -3_600], ids=["an hour ahead", "an hour behind"])
def wrong(request, clock):
    """The environment of a program whose wall clock is wrong."""
    return {"LD_PRELOAD": str(clock), "HAULAGE_CLOCK_OFFSET": str(request.param)}


@pytest.fixture(params=["postgresql", "mariadb"])
def house(request, template, tmp_path, wrong):
    """A house on a server, whose workers have a wrong clock and whose doors have a right one."""
    for path in template.glob("*.db"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    launcher = Launcher(**wrong)
    built, opener = House(tmp_path, launcher), STORES[request.param]
    url = opener.url(tmp_path)
    built.store.close()
    built.store = open_store(url, built.limits)
    built.store_url = url
    yield built
    built.close()
    launcher.close()
    opener.done(url)


def test_a_worker_whose_clock_is_an_hour_off_builds_beats_and_obeys(house, wrong):
    program = [sys.executable, "-c", "import time; print(time.time())"]
    told = subprocess.run(program, env={**os.environ, **wrong}, capture_output=True, check=True, text=True).stdout
    house.worker(store=house.store_url)

    ready = house.wait(house.request("names"))
    long = house.request("stream", **FOREVER)
    begun = house.wait_for_rows(long)
    until(lambda: house.get(long).heartbeat_at > begun.started_at + 1_000)
    swept = house.sweep()  # by a clock that is right: it must not take what a wrong one renews
    beating = house.get(long)
    house.cancel(long)
    cancelled = house.wait(long)

    assert abs(float(told) - time.time()) > 3_000, "the clock is not wrong"
    assert ("ready", "running", "cancelled") == (ready.state, beating.state, cancelled.state)
    assert (0, 0) == (swept.lost, swept.overrun)
    now = house.store.now()
    instants = (ready.started_at, ready.finished_at, beating.heartbeat_at, beating.lease_until, cancelled.finished_at)
    assert [] == [instant for instant in instants if abs(instant - now) > MINUTE]
    assert int(house.limits.expiry_seconds * 1000) == ready.expires_at - ready.finished_at


@pytest.mark.parametrize("wrong", [3_600], ids=["an hour ahead"], indirect=True)
def test_a_run_of_a_dead_worker_whose_clock_was_wrong_is_found_in_time(house):
    worker = house.worker(store=house.store_url)
    run = house.request("stream", **FOREVER)
    house.wait_for_rows(run)
    worker.kill()
    until(lambda: not house.children())
    early = house.sweep().lost
    late = house.sweep(after_seconds=house.limits.lease_seconds).lost

    assert (0, 1) == (early, late)
    assert "worker_lost" == house.get(run).failure_code


def test_the_sweep_of_a_worker_whose_clock_is_wrong_takes_nothing_from_one_whose_clock_is_right(house, launcher):
    wrong, house.launcher = house.launcher, launcher
    right = house.worker(store=house.store_url, lanes=1)
    done = house.wait(house.request("names"))
    held = house.request("stream", **FOREVER)
    house.wait_for_rows(held)
    house.launcher = wrong
    other = house.worker(store=house.store_url, lanes=1)
    built = house.wait(house.request("names", rows=7))
    time.sleep(5 * house.limits.sweep_seconds)
    kept = [house.get(run) for run in (done.id, held, built.id)]
    house.cancel(held)
    house.wait(held)

    assert ["ready", "running", "ready"] == [run.state for run in kept]
    assert {1} == {run.claim_no for run in kept}
    assert [built.id] == [event["run"] for event in other.events("RunClaimed")]
    assert [] == right.events("LeaseWasLost") + other.events("LeaseWasLost") + other.events("BytesRemoved")

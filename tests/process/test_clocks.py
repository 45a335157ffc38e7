"""Every run ends: of generation, of waiting, of being left alone."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from tests.process.house import BUILD, FOREVER, LIMITS, until

from haulage.core.errors import Refused


def limits(*, generation_seconds: float = 60, **changes):
    build = replace(BUILD, generation_seconds=generation_seconds)
    return pytest.mark.parametrize("house", [replace(LIMITS, build=build, **changes)], indirect=True)


@limits(generation_seconds=4.5)
@pytest.mark.parametrize(("rows", "expected"), [
    (10**11, ("failed", "generation_timeout")),
    (1_000, ("ready", None)),
])  # fmt: skip
def test_a_build_may_take_so_long_and_no_longer(house, rows, expected):
    house.worker()
    run = house.request("silent", rows=rows)

    began = time.monotonic()
    ended = house.wait(run)

    assert expected == (ended.state, ended.failure_code)
    assert time.monotonic() - began < 30
    if ended.state == "failed":
        assert "Building the file took longer than the 4.5 s allowed." == ended.failure_detail
        house.assert_nothing_left()


@limits(slots=1, queue_seconds=5)
def test_a_run_that_waits_too_long_fails_while_the_one_before_it_goes_on(house):
    house.worker()
    first = house.request("stream", **FOREVER)
    house.wait(first, "running")
    second = house.request("names")

    ended = house.wait(second)

    assert ("failed", "queue_timeout", 0) == (ended.state, ended.failure_code, ended.attempts)
    assert "running" == house.get(first).state


@limits(slots=1)
def test_runs_that_wait_when_the_last_worker_dies_fail_with_a_code_of_their_own(house):
    worker = house.worker()
    running = house.request("stream", **FOREVER)
    house.wait(running, "running")
    waiting = house.request("names")
    worker.kill()

    house.sweep(after_seconds=house.limits.abandon_seconds - 30)
    still = house.get(waiting).state
    house.sweep(after_seconds=house.limits.abandon_seconds + 5)

    assert "queued" == still
    assert "workers_gone" == house.get(waiting).failure_code
    assert "worker_lost" == house.get(running).failure_code
    until(lambda: not house.children())
    house.assert_nothing_left()


def test_without_a_worker_alive_nothing_is_accepted(house):
    with pytest.raises(Refused) as refused:
        house.request("names")

    assert "no_worker" == refused.value.code
    house.worker()
    assert "ready" == house.wait(house.request("names")).state


@limits(expiry_seconds=1)
def test_a_file_goes_when_its_time_is_over_and_the_row_stays(house):
    house.worker()
    run = house.request("names")
    ready = house.wait(run, "ready", "expired")

    until(lambda: house.get(run).artifact_key is None, lambda: str(house.get(run)))

    expired = house.get(run)
    assert ("expired", None, ready.sha256, ready.rows) == (
        expired.state, expired.stored_bytes, expired.sha256, expired.rows,
    )  # fmt: skip
    house.assert_nothing_left()

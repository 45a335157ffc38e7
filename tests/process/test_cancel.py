"""Cancelled means cancelled: the statement stops, the bytes go, and only then the run says so."""

from __future__ import annotations

import random
import time

import pytest
from tests.process.house import FOREVER, until

from haulage.core.errors import Refused


@pytest.mark.parametrize("dataset", ["stream", "silent", "silent_rows"])
def test_a_cancel_ends_even_a_silent_statement_and_bytes_go_before_the_row_says_so(house, dataset):
    house.worker()
    run = house.request(dataset, **FOREVER)
    child = house.child()
    house.wait_for_sql(child)
    assert [] != house.on_disk()

    began = time.monotonic()
    asked = house.cancel(run)
    seen_before = []
    while (state := house.get(run).state) != "cancelled":
        seen_before.append(state)
        assert time.monotonic() < began + 30
    left, alive = house.on_disk(), house.children()

    assert ([], []) == (left, alive)
    assert {"running"} == set(seen_before)
    assert asked.cancel_requested_at is not None
    ended = house.get(run)
    assert (None, None, None) == (ended.failure_code, ended.artifact_key, ended.reserved_bytes)
    assert time.monotonic() - began < 15


def test_a_cancel_that_was_accepted_never_ends_in_a_ready_file(house):
    """Each comes a little later after one that was in time, and sooner after one that was not: they meet the settle."""
    house.worker()
    answers, delay = [], 0.1
    chance = random.Random(7)
    for attempt in range(25):
        run = house.request("names", rows=20_000 + attempt)
        until(lambda run=run: house.get(run).state != "queued", 10)
        time.sleep(delay * chance.uniform(0.7, 1.3))
        try:
            house.cancel(run)
        except Refused as refused:
            answer, expected, delay = f"too late: {refused.code}", "ready", delay / 1.3
        else:
            answer, expected, delay = "accepted", "cancelled", delay * 1.3
        assert expected == house.wait(run, seconds=6).state
        answers.append(answer)
    time.sleep(0.5)

    assert {"accepted", "too late: already_final"} == set(answers)
    assert answers.count("accepted") > 3 < len(answers) - answers.count("accepted")
    house.assert_whole()


def test_a_cancel_between_the_last_byte_and_the_settle_wins(house):
    """The store is locked while the file is published, so that the cancel stands in the row first."""
    worker = house.worker()
    run = house.request("names", rows=120_000)
    house.wait_for_rows(run)
    with house.store.begin() as tx:  # nobody else can write until this ends
        worker.wait_for("StoreFailed", where="settle")
        assert any(path.startswith("files/") for path in house.on_disk())
        house.store.exports.request_cancel(run, tx=tx)

    assert "stop" == worker.wait_for("RunSettled", run=run)["move"]  # by the lane itself, not by a sweep later
    assert "cancelled" == house.wait(run).state
    house.assert_nothing_left()


def test_a_cancel_outlives_the_worker_that_should_have_obeyed_it(house):
    worker = house.worker()
    run = house.request("stream", **FOREVER)
    house.wait_for_rows(run)
    worker.signal(19)  # SIGSTOP: it cannot hear
    house.cancel(run)
    worker.kill()
    house.worker()

    ended = house.wait(run, seconds=house.limits.lease_seconds + 3)

    assert ("cancelled", None) == (ended.state, ended.failure_code)
    house.assert_nothing_left()

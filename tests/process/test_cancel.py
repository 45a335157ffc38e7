"""Cancelled means cancelled: the statement stops, the bytes go, and only then the run says so."""

from __future__ import annotations

import random
import time

import pytest
from tests.process.house import FOREVER, until

from haulage.core.errors import Refused


@pytest.mark.parametrize("dataset", ["stream", "silent", "silent_rows"])
def test_a_cancel_ends_even_a_silent_statement_and_bytes_go_before_the_row_says_so(sourced_house, dataset):
    house = sourced_house
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
    left, alive, working = house.on_disk(), house.children(), house.at_work()

    assert ([], [], 0) == (left, alive, working)
    assert {"running"} >= set(seen_before)
    assert asked.cancel_requested_at is not None
    ended = house.get(run)
    assert (None, None, None) == (ended.failure_code, ended.artifact_key, ended.reserved_bytes)
    assert time.monotonic() - began < 30


def test_a_cancel_that_was_accepted_never_ends_in_a_ready_file(house):
    """Each comes a little later after one that was in time, and sooner after one that was not: they meet the settle."""
    house.worker()
    both = {"accepted", "too late: already_final"}
    answers, delay = [], 0.1
    chance = random.Random(7)
    for attempt in range(80):
        if attempt >= 25 and {each: answers.count(each) for each in answers if answers.count(each) > 3}.keys() == both:
            break
        run = house.request("names", rows=20_000 + attempt)
        until(lambda run=run: house.get(run).state != "queued")
        time.sleep(delay * chance.uniform(0.7, 1.3))
        try:
            house.cancel(run)
        except Refused as refused:
            answer, expected, delay = f"too late: {refused.code}", "ready", delay / 1.3
        else:
            answer, expected, delay = "accepted", "cancelled", delay * 1.3
        assert expected == house.wait(run).state
        answers.append(answer)
    time.sleep(0.5)

    assert both == set(answers)
    assert all(answers.count(each) > 3 for each in both)
    house.assert_whole()


def test_a_cancel_between_the_last_byte_and_the_settle_wins(house):
    """The store is locked while the file is published, so that the cancel stands in the row first."""
    worker = house.worker(held=True)
    run = house.request("names", rows=120_000)
    house.wait_for_rows(run)
    with house.writing() as tx:  # nobody else can write until this ends
        house.let_builds_end()
        worker.wait_for("StoreFailed", where="settle")
        assert any(path.startswith("files/") for path in house.on_disk())
        house.store.exports.request_cancel(run, tx=tx)

    assert "stop" == worker.wait_for("RunSettled", run=run)["move"]  # by the lane itself, not by a sweep later
    assert "cancelled" == house.wait(run).state
    house.assert_nothing_left()


@pytest.mark.parametrize("sourced_house", ["sqlite", "postgresql"], indirect=True)
def test_a_cancel_outlives_the_worker_that_should_have_obeyed_it(sourced_house):
    house = sourced_house
    worker = house.worker()
    run = house.request("stream", **FOREVER)
    house.wait_for_rows(run)
    house.freeze(worker)  # it cannot hear
    house.cancel(run)
    worker.kill()
    house.let_leases_run_out()
    house.worker()

    ended = house.wait(run)

    assert ("cancelled", None) == (ended.state, ended.failure_code)
    house.assert_nothing_left()

"""A row that a failing disk has damaged ends as failed, alone: other runs go on and every list answers."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest
from tests.process.house import AMINA, Bench

from haulage.exports.access import access_at_run

PLAN = "substr(plan, 1, length(plan) / 2)"
DAMAGES = {
    "a plan cut short": ("plan", PLAN),
    "a plan that is empty": ("plan", "''"),
    "a plan of other JSON": ("plan", "'{}'"),
    "a plan of NULs": ("plan", "cast(zeroblob(100) as text)"),
    "a plan with a flipped bit": ("plan", "replace(plan, '\"sql\"', '\"sql\u0022\u0022')"),
    "a plan in bytes": ("plan", "x'fffe00'"),
}


@pytest.mark.parametrize(("column", "damage"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_row_fails_alone(house, column, damage):
    house.pretend_a_worker()
    first, damaged, last = (house.request("names", rows=n) for n in (5, 6, 7))
    with contextlib.closing(sqlite3.connect(house.store_path)) as store, store:
        assert 1 == store.execute(f"update exports set {column} = {damage} where id = ?", (damaged,)).rowcount
    worker = house.worker()

    ended = [house.wait(run) for run in (first, damaged, last)]

    assert ["ready", "failed", "ready"] == [run.state for run in ended]
    assert "build_failed" == ended[1].failure_code
    assert [last, damaged, first] == [run.id for run in house.exports.list(AMINA)]
    assert worker.process.poll() is None
    house.assert_whole()


def test_a_row_that_cannot_even_be_claimed_ends_by_its_clock_and_no_worker_with_it(house):
    house.pretend_a_worker()
    damaged, last = house.request("names", rows=5), house.request("names", rows=6)
    with contextlib.closing(sqlite3.connect(house.store_path)) as store, store:
        store.execute("update exports set file_bytes = 'many' where id = ?", (damaged,))
    worker = house.worker()
    worker.wait_for("Incident")
    with house.writing() as tx:  # as if it had waited for so long
        tx.exec_driver_sql(f"update exports set claim_by = 0 where id = '{damaged}'")

    assert ("failed", "queue_timeout") == (house.wait(damaged).state, house.get(damaged).failure_code)
    assert "ready" == house.wait(last).state
    assert worker.process.poll() is None


@pytest.mark.parametrize("damage", ['{"tenant": "nor', "[]", "{}"])
def test_a_run_of_whose_requester_nothing_can_be_read_is_built_for_nobody(house, damage):
    house.pretend_a_worker()
    run = house.request("names")
    with contextlib.closing(sqlite3.connect(house.store_path)) as store, store:
        store.execute("update exports set requester = ? where id = ?", (damage, run))
    with Bench(house, permit=lambda each: access_at_run(each, house.catalogue, lambda asked: asked)) as bench:
        bench.work()

    assert ("failed", "build_failed") == (house.get(run).state, house.get(run).failure_code)
    house.assert_nothing_left()


def test_a_damaged_row_of_a_dead_worker_is_swept_like_any_other(house):
    worker = house.worker()
    run = house.request("stream", rows=10**11)
    house.wait_for_rows(run)
    worker.kill()
    with contextlib.closing(sqlite3.connect(house.store_path)) as store, store:
        store.execute(f"update exports set plan = {PLAN}, notices = '[{{' where id = ?", (run,))

    house.sweep(after_seconds=house.limits.lease_seconds + 1)

    assert ("failed", "worker_lost") == (house.get(run).state, house.get(run).failure_code)
    house.assert_nothing_left()

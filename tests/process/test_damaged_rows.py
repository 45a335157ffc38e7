"""A row that a failing disk has damaged ends as failed, alone; it names what cannot be read and tells nothing of it."""

from __future__ import annotations

import contextlib
import json
import sqlite3

import pytest
from tests.process.house import AMINA, Bench, until

from haulage.core.requester import Requester
from haulage.exports.access import access_at_run
from haulage.exports.show import show

HUSH = "hush-4711"  # stands in what is stored, and nowhere else
OTHER = {  # which is JSON all the same: every database keeps it
    "a plan that is a list": ("plan", f"'[\"{HUSH}\"]'"),
    "a plan without its query": ("plan", f"'{{\"{HUSH}\": 1}}'"),
    "a plan of no kind": ("plan", "'null'"),
    "a plan with a number of 5,000 digits": ("plan", f"'{{\"{HUSH}\": {'7' * 5_000}}}'"),
    "a requester that is a text": ("requester", f"'\"{HUSH}\"'"),
    "a requester without a name": ("requester", f'\'{{"grants": ["{HUSH}"]}}\''),
    "parameters that are a number": ("parameters", "'4711'"),
    "options that are a list": ("options", f"'[\"{HUSH}\"]'"),
    "notices that are texts": ("notices", f"'[\"{HUSH}\"]'"),
}
CUT = {  # which only a database that does not look would keep
    "a plan cut short": ("plan", f'\'{{"sql": "{HUSH}\''),
    "parameters that are empty": ("parameters", "''"),
}
DAMAGES = {
    "sqlite": OTHER
    | CUT
    | {
        "a plan of NULs": ("plan", "cast(zeroblob(100) as text)"),
        "a plan in bytes": ("plan", "x'fffe00'"),
        "a plan that is not UTF-8": ("plan", f"cast(replace(plan, 'names', '{HUSH}') || x'ff' as text)"),
        "a plan with one letter of eight bits": ("plan", "replace(plan, 'names', 'nämes')"),
        "an account that is not UTF-8": ("account", f"cast('{HUSH}' || x'ff' as text)"),
    },
    "postgresql": OTHER,
    "mariadb": OTHER,
}


def test_what_cannot_be_read_is_named_and_nothing_of_it_is_told(any_house):
    house, damages = any_house, DAMAGES[any_house.kind]
    house.pretend_a_worker()
    runs = {what: house.request("names", rows=n + 5) for n, what in enumerate([*damages, "good"])}
    for what, (column, damage) in damages.items():
        house.meddle(f"update exports set {column} = {damage} where id = '{runs[what]}'")
    worker = house.worker()

    ended = {what: house.wait(run) for what, run in runs.items()}
    worker.wait_for("RunSettled", run=runs["good"])
    listed = house.exports.list(Requester("house", "omar", frozenset({"*"})), everyone=True)
    shown = [show(run) for run in listed]

    causes = {event["run"]: event["cause"] for event in worker.events("RunSettled")}
    assert "ready" == ended.pop("good").state
    assert dict.fromkeys(damages, ("failed", "stored_unreadable")) == {
        what: (run.state, run.failure_code) for what, run in ended.items()
    }
    for what, (column, _) in damages.items():
        assert f"What was stored in {column} of this export cannot be read." == ended[what].failure_detail
        assert f"column {column}" == causes[runs[what]]
    assert set(runs.values()) == {run.id for run in listed}
    assert 1 + (house.kind == "sqlite") == [each["parameters"] for each in shown].count(None)
    told = json.dumps([shown, worker.events(), house.events], default=str) + worker.stderr.read_text()
    assert HUSH not in told
    assert [] == worker.events("Incident") + worker.events("StoreFailed")
    assert worker.process.poll() is None
    house.assert_whole()


def test_a_row_that_cannot_even_be_claimed_ends_by_its_clock_and_no_worker_with_it(house):
    house.pretend_a_worker()
    damaged, last = house.request("names", rows=5), house.request("names", rows=6)
    with contextlib.closing(sqlite3.connect(house.store_path)) as store, store:
        store.execute(f"update exports set file_bytes = '{HUSH}', generation_ms = 'x' where id = ?", (damaged,))
    worker = house.worker()
    worker.wait_for("Incident")
    with house.writing() as tx:  # as if it had waited for so long
        tx.exec_driver_sql(f"update exports set claim_by = 0 where id = '{damaged}'")

    assert ("failed", "queue_timeout") == (house.wait(damaged).state, house.get(damaged).failure_code)
    assert "ready" == house.wait(last).state
    assert f"run {damaged}: column generation_ms, file_bytes" == worker.events("Incident")[0]["problem"]
    assert HUSH not in worker.log.read_text() + worker.stderr.read_text()
    assert worker.process.poll() is None


@pytest.mark.parametrize("damage", ['{"tenant": "nor', "[]", "{}"])
def test_a_run_of_whose_requester_nothing_can_be_read_is_built_for_nobody(house, damage):
    house.pretend_a_worker()
    run = house.request("names")
    with contextlib.closing(sqlite3.connect(house.store_path)) as store, store:
        store.execute("update exports set requester = ? where id = ?", (damage, run))
    with Bench(house, permit=lambda each: access_at_run(each, house.catalogue, lambda asked: asked)) as bench:
        bench.work()

    assert ("failed", "stored_unreadable") == (house.get(run).state, house.get(run).failure_code)
    house.assert_nothing_left()


def test_a_damaged_row_of_a_dead_worker_is_swept_like_any_other(any_house):
    house = any_house
    worker = house.worker()
    run = house.request("stream", rows=10**11)
    house.wait_for_rows(run)
    worker.kill()
    house.meddle(f"update exports set plan = '[]', notices = '[1]' where id = '{run}'")
    until(lambda: not house.children())
    house.let_leases_run_out()
    house.sweep()

    assert ("failed", "worker_lost") == (house.get(run).state, house.get(run).failure_code)
    assert [run] == [each.id for each in house.exports.list(AMINA)]
    house.assert_nothing_left()

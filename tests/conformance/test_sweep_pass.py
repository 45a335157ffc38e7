"""One pass of the sweep over rows and bytes: what was due, in which order, and under which code it ends."""

from __future__ import annotations

import pytest
from tests.conformance.cases import DAY
from tests.promises import NotPromised

from haulage.artifacts.local import LocalArtifacts
from haulage.core import events
from haulage.exports.expire import ExportSweep


class House:
    """A case of exports with a folder for their bytes and a sweep of both."""

    def __init__(self, case, folder):
        self.case = case
        self.artifacts = LocalArtifacts(folder / "artifacts")
        self.artifacts.prepare()
        self.seen = []
        self.sweep = self.another_sweep()
        case.presence(now=case.now + 9 * DAY)  # Somebody always lives, but for the tests that say otherwise.

    def another_sweep(self):
        return ExportSweep(self.case.store, self.artifacts, self.case.limits, self.seen.append)

    def build(self, **changes):
        """A running run with unfinished bytes."""
        held = self.case.hold(**changes)
        self.artifacts.begin(f"{held.id}.{held.claim_no}").joinpath("part").write_bytes(b"half")
        return held

    def after(self, seconds, sweep=None):
        """A pass so many seconds after the beginning."""
        return (sweep or self.sweep).pass_once(self.case.now + int(seconds * 1000))

    def told(self):
        return [(event.move, event.state, event.code) for event in self.seen if isinstance(event, events.RunSettled)]


@pytest.fixture
def house(case, folder):
    if case.flow.name != "exports":
        raise NotPromised("the sweep of exports")
    return House(case, folder)


def test_a_pass_over_nothing_does_nothing(house):
    house.case.add()

    report = house.after(1)

    assert (0, 0, 0, 0, []) == (report.starved, report.lost, report.expired, report.orphans, report.failures)
    assert [] == house.seen


def test_a_lost_run_fails_and_leaves_no_byte(house):
    held = house.build()

    report = house.after(15)
    run = house.case.get(held.id)

    assert ("failed", "worker_lost", None) == (run.state, run.failure_code, run.artifact_key)
    assert [] == house.artifacts.keys()
    assert 1 == report.lost
    assert [("lose", "failed", "worker_lost")] == house.told()


def test_bytes_of_a_lost_run_that_cannot_be_removed_count_until_they_are_gone(house, monkeypatch):
    held = house.build()
    left = house.artifacts.size(f"{held.id}.{held.claim_no}")

    def remove(_key):
        raise OSError(5, "EIO")

    with monkeypatch.context() as broken:
        broken.setattr(house.artifacts, "remove", remove)
        house.after(15)
    between, used = house.case.get(held.id), house.case.runs.storage(held.tenant)
    house.after(20)

    assert ("failed", "worker_lost", left) == (between.state, between.failure_code, between.stored_bytes)
    assert (left, left) == (used.stored_bytes, used.tenant_bytes)
    assert left > 0
    assert (None, 0) == (house.case.get(held.id).stored_bytes, house.case.runs.storage(held.tenant).stored_bytes)


def test_a_lost_run_begins_again_as_often_as_its_dataset_says(house):
    held = house.build(attempts_max=2)
    house.after(15)
    again = house.case.get(held.id)
    house.case.claim("w2", now=house.case.now + 20_000)
    house.after(35)
    end = house.case.get(held.id)

    assert ("queued", 1, house.case.now + 165_000) == (again.state, again.attempts, again.claim_by)
    assert (None, None, None, None) == (again.started_at, again.heartbeat_at, again.finish_by, again.artifact_key)
    assert ("failed", "worker_lost", 2) == (end.state, end.failure_code, end.attempts)
    assert [("rerun", "queued", None), ("lose", "failed", "worker_lost")] == house.told()


def test_a_lost_run_that_was_cancelled_is_cancelled_and_leaves_no_byte(house):
    held = house.build()
    house.case.cancel(held.id)

    report = house.after(15)

    assert "cancelled" == house.case.get(held.id).state
    assert [] == house.artifacts.keys()
    assert (1, 0) == (report.buried, report.lost)


def test_a_cancel_that_a_beating_worker_never_obeys_is_made_and_leaves_no_byte(house):
    held = house.build(generation_ms=60_000)
    house.case.cancel(held.id)
    house.case.beat(held, now=house.case.now + 69_000)
    early = house.after(69)

    report = house.after(70)

    assert (0, 1) == (early.buried, report.buried)
    assert "cancelled" == house.case.get(held.id).state
    assert [] == house.artifacts.keys()
    assert [("halt", "cancelled", None)] == house.told()


def test_such_a_run_is_not_cancelled_before_its_bytes_are_gone(house, monkeypatch):
    held = house.build(generation_ms=60_000)
    house.case.cancel(held.id)
    house.case.beat(held, now=house.case.now + 69_000)

    def remove(_key):
        raise OSError(5, "EIO")

    with monkeypatch.context() as broken:
        broken.setattr(house.artifacts, "remove", remove)
        failed = house.after(70)
    between, left = house.case.get(held.id), house.artifacts.keys()
    house.after(86)

    assert [f"{held.id}.{held.claim_no}: OSError"] == failed.failures
    assert ("running", [f"{held.id}.{held.claim_no}"]) == (between.state, left)
    assert ("cancelled", []) == (house.case.get(held.id).state, house.artifacts.keys())


def test_a_run_over_its_time_fails_under_its_own_code(house):
    held = house.build(generation_ms=60_000)
    house.case.beat(held, now=house.case.now + 69_000)

    house.after(70)
    run = house.case.get(held.id)

    assert ("failed", "generation_timeout", None) == (run.state, run.failure_code, run.artifact_key)
    assert [] == house.artifacts.keys()


def test_a_run_that_waited_too_long_fails_under_its_own_code(house):
    run = house.case.add()
    house.after(149.999)
    before = house.case.get(run)
    house.after(150)

    assert "queued" == before.state
    assert ("failed", "queue_timeout") == (house.case.get(run).state, house.case.get(run).failure_code)


def test_a_run_that_nobody_will_claim_fails_under_its_own_code(house):
    house.case.store.workers.leave("w1")
    run = house.case.add()
    house.after(60)

    assert ("failed", "workers_gone") == (house.case.get(run).state, house.case.get(run).failure_code)
    assert [("abandon", "failed", "workers_gone")] == house.told()


def test_a_file_that_expired_goes_in_the_same_pass_and_its_row_stays(house):
    held = house.build()
    key = f"{held.id}.1"
    house.artifacts.publish(key, 4)
    house.case.settle(held, house.case.moves("finish"), bytes=4, stored_bytes=4)

    report = house.after(600)
    run = house.case.get(held.id)

    assert ("expired", None, None) == (run.state, run.artifact_key, run.stored_bytes)
    assert [] == house.artifacts.keys()
    assert (1, 1) == (report.expired, report.removed_files)


# -- when something comes in between --------------------------------------------------------------------------


def meanwhile(house, monkeypatch, act):
    """Have something happen once, while the sweep removes bytes."""
    remove, acts = house.artifacts.remove, [act]

    def remove_slowly(key):
        if acts:
            acts.pop()()
        return remove(key)

    monkeypatch.setattr(house.artifacts, "remove", remove_slowly)


def test_a_cancel_that_comes_while_bytes_are_removed_wins(house, monkeypatch):
    held = house.build()
    meanwhile(house, monkeypatch, lambda: house.case.cancel(held.id))

    house.after(15)

    assert "cancelled" == house.case.get(held.id).state
    assert [] == house.artifacts.keys()
    assert [("bury", "cancelled", None)] == house.told()


def test_a_sweep_that_was_too_slow_leaves_the_run_to_the_next_one_and_goes_on(house, monkeypatch):
    first, second = house.build(), house.build()
    other = house.another_sweep()
    meanwhile(house, monkeypatch, lambda: house.after(31, other))

    report = house.after(15)

    assert ["failed", "failed"] == [house.case.get(held.id).state for held in (first, second)]
    assert 2 == len(house.told())
    assert [] == report.failures


def test_a_slow_sweep_that_meets_a_cancel_and_another_sweep_goes_on(house, monkeypatch):
    """Both at once: the cancel makes it try the other move, and that finds the fence gone."""
    first, second = house.build(), house.build()

    def cancel_and_overtake():
        house.case.cancel(first.id)
        house.case.cancel(second.id)
        settle = house.case.runs.settle

        def overtaken(held, move, values, **options):
            if move.name == "bury":
                monkeypatch.setattr(house.case.runs, "settle", settle)
                house.after(31, house.another_sweep())
            return settle(held, move, values, **options)

        monkeypatch.setattr(house.case.runs, "settle", overtaken)

    meanwhile(house, monkeypatch, cancel_and_overtake)
    house.after(15)

    assert ["cancelled", "cancelled"] == [house.case.get(held.id).state for held in (first, second)]
    assert 2 == len(house.told())


def test_a_run_whose_bytes_stay_is_not_called_cancelled_before_they_are_gone(house, monkeypatch):
    held = house.build()
    house.case.cancel(held.id)

    def refuse(key):
        raise OSError("the disk says no")

    with monkeypatch.context() as broken:
        broken.setattr(house.artifacts, "remove", refuse)
        report = house.after(15)
        between = house.case.get(held.id)
    house.after(30)
    end = house.case.get(held.id)

    assert [f"{held.id}.1: OSError"] == report.failures[:1]
    assert ("running", f"{held.id}.1") == (between.state, between.artifact_key)
    assert ("cancelled", None) == (end.state, end.artifact_key)
    assert [] == house.artifacts.keys()

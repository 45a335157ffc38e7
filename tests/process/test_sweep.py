"""The sweep over real folders: what no row names goes, and nothing outside of them is touched."""

from __future__ import annotations

import os
import threading
from dataclasses import replace

import pytest
from tests.process.house import AMINA, LIMITS, Bench

from haulage.core import events
from haulage.core.errors import Refused, StoreUnavailable
from haulage.exports.expire import ExportSweep


def ready(house, rows=10):
    """A ready run, made without a worker process."""
    house.pretend_a_worker()
    run = house.request("names", rows=rows)
    with Bench(house) as bench:
        bench.work()
    assert "ready" == house.get(run).state
    return house.get(run)


def test_orphans_of_every_kind_are_removed_and_links_are_not_followed(house, tmp_path):
    kept = ready(house)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("precious")
    planted = []
    for folder in (house.artifacts_root / "work", house.artifacts_root / "files"):
        (folder / "a file with spaces").write_text("x")
        (folder / "sub" / "deeper").mkdir(parents=True)
        (folder / "sub" / "deeper" / "part").write_text("x")
        (folder / "sub" / "way out").symlink_to(outside)
        (folder / "link to a folder").symlink_to(outside)
        (folder / "link to a file").symlink_to(outside / "precious")
        (folder / "link to nothing").symlink_to("/nowhere")
        (folder / "' or 1=1 --").write_text("x")
        (folder / f"{kept.id}.2").write_text("x")  # of a claim that never was
        (folder / "報告.csv").write_text("x")
        os.mkfifo(folder / "pipe")
        with open(os.fsencode(folder) + b"/not \xff utf-8.1", "wb"):  # noqa: PTH123 - bytes
            pass
        (folder / "locked").mkdir(mode=0o500)
        planted += os.listdir(folder)  # noqa: PTH208 - names, also those that are no text
    planted.remove(kept.artifact_key)

    report = house.sweep()

    assert len(set(planted)) == report.orphans
    assert [] == report.failures
    assert "precious" == (outside / "precious").read_text()
    house.assert_whole()
    assert 0 == house.sweep().orphans


def test_many_orphans_are_found_past_the_first_question_to_the_store(house):
    kept = ready(house)
    for n in range(1_200):
        (house.artifacts_root / "files" / f"orphan-{n}").touch()

    assert 1_200 == house.sweep().orphans
    assert [f"files/{kept.artifact_key}"] == house.on_disk()


def test_a_sweep_does_not_take_the_folder_of_a_lane_that_just_began(house):
    """Sweeps without a pause beside ten builds: a folder is listed before the rows are read, never after."""
    house.pretend_a_worker()
    done = threading.Event()
    reports = []

    def sweep_on():
        while not done.is_set():
            reports.append(house.sweep())

    thread = threading.Thread(target=sweep_on)
    thread.start()
    try:
        found = [ready(house, rows=n + 1) for n in range(10)]
    finally:
        done.set()
        thread.join()

    assert len(reports) > 10
    assert 0 == sum(report.orphans for report in reports)
    assert 10 == len({run.sha256 for run in found})
    house.assert_whole()


class BrokenDisk:
    """Artifacts that cannot be unlinked for a while."""

    def __init__(self, artifacts):
        self._artifacts = artifacts
        self.refused = 0
        self.broken = True

    def __getattr__(self, name):
        return getattr(self._artifacts, name)

    def remove(self, key):
        if self.broken:
            self.refused += 1
            raise OSError(5, "EIO")
        return self._artifacts.remove(key)


def test_bytes_that_cannot_be_unlinked_keep_their_key_count_on_and_are_tried_again(house):
    run = ready(house)
    disk, seen = BrokenDisk(house.artifacts), []
    sweep = ExportSweep(house.store, disk, house.limits, seen.append)

    late = house.store.now() + int(house.limits.expiry_seconds * 1000) + 1_000
    first = sweep.pass_once(late)
    between, budget = house.get(run.id), house.store.exports.storage("north")
    with pytest.raises(Refused) as refused:
        house.exports.open_file(AMINA, run.id)
    disk.broken = False
    second = sweep.pass_once(late + 5_000)

    assert (1, 0, [f"{run.artifact_key}: OSError"]) == (first.expired, first.removed_files, first.failures)
    assert ("expired", run.artifact_key, run.bytes) == (between.state, between.artifact_key, between.stored_bytes)
    assert run.bytes == budget.stored_bytes
    assert "expired" == refused.value.code
    assert (1, []) == (second.removed_files, second.failures)
    assert disk.refused == len([event for event in seen if isinstance(event, events.RemovalFailed)]) >= 1
    assert (None, 0) == (house.get(run.id).artifact_key, house.store.exports.storage("north").stored_bytes)
    house.assert_nothing_left()


def test_a_lost_run_whose_bytes_cannot_be_unlinked_says_so_and_keeps_its_key(house):
    house.pretend_a_worker()
    run = house.request("names")
    with Bench(house) as bench:
        bench.claim()
    house.artifacts.begin(f"{run}.1").joinpath("part").write_bytes(b"half a file")
    disk = BrokenDisk(house.artifacts)
    sweep = ExportSweep(house.store, disk, house.limits, house.events.append)
    late = house.store.now() + 30_000

    sweep.pass_once(late)
    between = house.get(run)
    disk.broken = False
    sweep.pass_once(late + 5_000)

    assert ("failed", "worker_lost", f"{run}.1") == (between.state, between.failure_code, between.artifact_key)
    assert disk.refused
    assert None is house.get(run).artifact_key
    house.assert_nothing_left()


@pytest.mark.parametrize("how", ["removed", "cut short", "longer", "a folder", "a link"])
def test_a_file_that_is_not_the_one_promised_is_reported_lost_and_its_run_corrected(house, how, tmp_path):
    run = ready(house)
    path = house.artifacts_root / "files" / run.artifact_key
    content = path.read_bytes()
    if how == "cut short":
        os.truncate(path, len(content) - 1)
    elif how == "longer":
        path.write_bytes(content + b"x")
    else:
        path.unlink()
    if how == "a folder":
        path.mkdir()
    if how == "a link":
        (tmp_path / "elsewhere").write_bytes(content)
        path.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(Refused) as refused:
        house.exports.open_file(AMINA, run.id)

    assert "artifact_lost" == refused.value.code
    lost = house.get(run.id)
    assert ("failed", "artifact_lost", None) == (lost.state, lost.failure_code, lost.expires_at)
    house.sweep()
    house.assert_nothing_left()
    if how == "a link":
        assert content == (tmp_path / "elsewhere").read_bytes()


def test_the_whole_file_of_a_run_can_be_opened(house):
    """The same set-up as above, untouched."""
    run = ready(house)

    found, opened = house.exports.open_file(AMINA, run.id)

    with opened:
        assert (run.id, house.file_of(run)) == (found.id, opened.read())


def test_a_pass_that_the_store_refuses_counts_nothing_that_it_did_not_do(house, monkeypatch):
    house.pretend_a_worker()
    run = house.request("names")
    with Bench(house) as bench:
        bench.claim()

    def settle(*_args, **_options):
        raise StoreUnavailable("not now")

    sweep = ExportSweep(house.store, house.artifacts, house.limits, house.events.append)
    monkeypatch.setattr(house.store.exports, "settle", settle)
    late = house.store.now() + 30_000
    with pytest.raises(StoreUnavailable):
        sweep.pass_once(late)
    between = house.get(run)
    monkeypatch.undo()
    report = sweep.pass_once(late + 40_000)

    assert "running" == between.state
    assert (1, "worker_lost") == (report.lost, house.get(run).failure_code)
    assert [run] == [event.run for event in house.events if isinstance(event, events.RunSettled)]


@pytest.mark.parametrize("house", [replace(LIMITS, retention_seconds=60)], indirect=True)
def test_a_row_past_its_retention_goes_only_after_its_bytes(house):
    run = ready(house)
    disk = BrokenDisk(house.artifacts)
    sweep = ExportSweep(house.store, disk, house.limits, house.events.append)
    late = house.store.now() + int((house.limits.expiry_seconds + 3_600) * 1000)

    sweep.pass_once(late)
    sweep.pass_once(late + 3_600_000)
    kept = house.store.exports.get(run.id)
    disk.broken = False
    sweep.pass_once(late + 7_200_000)

    assert disk.refused
    assert kept is not None
    assert house.store.exports.get(run.id) is None
    house.assert_nothing_left()

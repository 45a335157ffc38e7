"""Workers whose files lie in a bucket: whatever dies or goes away, no object and no upload stays without a row."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import sqlite3
from dataclasses import asdict, replace

import pytest
from tests.objects_proxy import Proxy
from tests.process.house import AMINA, BUILD, FOREVER, LIMITS, PATIENCE_SECONDS, Bench, House, at_a_random_moment, until

from haulage.artifacts import objects
from haulage.artifacts.objects import ObjectArtifacts
from haulage.core import events
from haulage.core.errors import Refused
from haulage.core.limits import MIB
from haulage.worker import lanes, process

PART = 5 * MIB
COMPLETE = r"^POST .*\?uploadId="
CREATE = r"^POST .*\?uploads"
SOME_PARTS = {"rows": 300_000}  # of "stream": 5.7 MB, so two parts


class BucketHouse(House):
    """A house whose artifacts are objects, reached through a proxy."""

    def __init__(self, folder, launcher, place, limits=LIMITS):
        super().__init__(folder, launcher, limits)
        self.place = place
        self.proxy = Proxy(place.server.ports["s3.port"])
        self.artifacts = ObjectArtifacts(place.url, self.settings(), self.store.identity())
        self.artifacts.prepare()

    def settings(self):
        return self.place.server.settings(self.artifacts_root, endpoint=self.proxy.endpoint, part_bytes=PART)

    def worker(self, **config):
        return super().worker(artifacts=self.place.url, objects=asdict(self.settings()), **config)

    def close(self):
        super().close()
        self.proxy.close()

    def file_of(self, run):
        return self.place.objects()[run.artifact_key]

    def sent(self) -> int:
        return self.place.server.sent_bytes(self.place.prefix)

    def wait_for_a_part(self) -> None:
        """Wait until the server has a part of an upload that goes on."""
        until(lambda: self.sent() >= PART, lambda: "no part has arrived")

    def everything(self) -> tuple[list, list, list]:
        return sorted(self.place.objects()), self.place.uploads(), self.on_disk()

    def assert_whole(self) -> None:
        with contextlib.closing(sqlite3.connect(self.store_path)) as store:
            rows = store.execute("select state, artifact_key, bytes, sha256 from exports").fetchall()
        objects = self.place.objects()
        assert "running" not in {state for state, *_ in rows}
        promised = {key: (size, digest) for state, key, size, digest in rows if state == "ready"}
        assert promised == {key: (len(it), hashlib.sha256(it).hexdigest()) for key, it in objects.items()}
        assert ([], []) == (self.place.uploads(), self.on_disk())

    def assert_nothing_left(self) -> None:
        until(lambda: not self.children(), lambda: f"{self.children()} are alive")
        assert ([], [], []) == self.everything()


@pytest.fixture
def house(template, launcher, place, tmp_path):
    for path in template.glob("*.db"):
        shutil.copy(path, tmp_path)
    built = BucketHouse(tmp_path, launcher, place)
    yield built
    built.close()


@pytest.fixture
def impatient(monkeypatch):
    """A lane in this process gives up sooner what would take it half a minute."""
    monkeypatch.setattr(lanes, "REMOVE_RETRY_SECONDS", 0)
    monkeypatch.setattr(objects, "COMPLETE_SECONDS", 0.5)


def uploading(house, dataset="stream", **config):
    """A worker, a run that goes on for ever, and its child, some of whose parts have arrived."""
    worker = house.worker(**config)
    run = house.request(dataset, **FOREVER)
    child = house.child()
    house.wait_for_a_part()
    return worker, run, child


# -- what is asked of every place ------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_file_of_some_parts_is_built_and_fetched_whole(house, compression):
    house.worker()
    run = house.wait(house.request("stream", compression=compression, **SOME_PARTS))
    none = house.wait(house.request("names", format="ndjson", rows=0))

    assert ("ready", 300_000) == (run.state, run.rows)
    assert compression or run.bytes > PART
    _, opened = house.exports.open_file(AMINA, run.id)
    with opened:
        assert run.sha256 == hashlib.sha256(opened.read()).hexdigest()
    assert ("ready", 0, b"") == (none.state, none.bytes, house.file_of(none))
    house.assert_whole()


def test_a_child_that_uploads_loads_no_library_and_sees_no_keys(house, monkeypatch, tmp_path):
    seen = tmp_path / "seen"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of the worker alone")
    look = "import sys; print(*sys.modules, open('/proc/self/environ').read()"
    monkeypatch.setattr(process, "START", f"{process.BUILD}; {look}, file=open({str(seen)!r}, 'w'))")
    house.pretend_a_worker()
    run = house.request("names")
    with Bench(house) as bench:
        bench.work()

    assert "ready" == house.get(run).state
    told = seen.read_text()
    assert "haulage.artifacts.upload" in told
    assert not [
        name for name in ("botocore", "haulage.artifacts.bucket", "sqlalchemy", "haulage.config") if name in told
    ]
    assert "of the worker alone" not in told
    assert house.settings().secret_key not in told


def test_a_cancel_in_the_middle_of_an_upload_ends_it_before_the_run_says_so(house):
    _worker, run, _child = uploading(house)

    house.cancel(run)
    house.wait(run, "cancelled")

    assert ([], [], []) == house.everything()
    house.assert_nothing_left()


@pytest.mark.parametrize("over", [0, 1])
def test_a_file_may_have_its_last_byte_and_not_one_more(house, over):
    house.worker()
    size = house.wait(house.request("stream", **SOME_PARTS)).bytes
    house.limits = replace(LIMITS, build=replace(BUILD, file_bytes=size - over))
    house.catalogue._datasets["stream"] = replace(
        house.catalogue._datasets["stream"],
        limits=replace(BUILD, count_seconds=0.05, rows=10**12, file_bytes=size - over),
    )

    run = house.wait(house.request("stream", **SOME_PARTS))

    assert (("ready", None), ("failed", "bytes_exceeded"))[over] == (run.state, run.failure_code)
    house.assert_whole()


# -- who dies --------------------------------------------------------------------------------------


def test_a_killed_child_fails_its_run_and_leaves_no_upload(house):
    worker, run, child = uploading(house)

    os.kill(child, signal.SIGKILL)

    ended = house.wait(run)
    assert ("failed", "child_killed") == (ended.state, ended.failure_code)
    house.assert_nothing_left()
    assert worker.process.poll() is None


@pytest.mark.parametrize("victims", ["supervisor", "child then supervisor", "whole group"])
def test_an_upload_that_a_killed_supervisor_left_is_found_and_ended_by_the_next_worker(house, victims):
    worker, run, child = uploading(house)

    if victims == "child then supervisor":
        worker.signal(signal.SIGSTOP)  # so that it cannot settle what it sees
        os.kill(child, signal.SIGKILL)
    if victims == "whole group":
        os.killpg(worker.pid, signal.SIGKILL)
        assert -signal.SIGKILL == worker.end()
    else:
        worker.kill()
    until(lambda: not house.children(), lambda: "the child outlived its supervisor")
    assert [house.get(run).artifact_key] == house.place.uploads()
    house.let_leases_run_out()
    house.worker()

    ended = house.wait(run)
    assert ("failed", "worker_lost") == (ended.state, ended.failure_code)
    house.assert_nothing_left()


def test_another_host_ends_the_upload_and_the_folder_waits_for_its_own(house, tmp_path):
    worker, run, _child = uploading(house)
    worker.kill()
    until(lambda: not house.children())
    here = house.artifacts

    house.artifacts = ObjectArtifacts(house.place.url, replace(house.settings(), work=str(tmp_path / "other-host")))
    house.sweep(after_seconds=60)
    assert "worker_lost" == house.get(run).failure_code
    assert ([], [], [f"work/{run}.1"]) == house.everything()

    house.artifacts = here
    house.sweep()
    house.assert_nothing_left()


def test_an_upload_that_no_row_names_is_gone_after_a_sweep(house):
    """As a row that was deleted by hand, or a supervisor killed between an answer and its next line."""
    house.artifacts.upload("01890000-0000-7000-8000-000000000009.1", 1_000, 60)
    house.place.server.write(f"{house.place.prefix}files/somebody", b"x")

    report = house.sweep()

    assert 2 == report.orphans
    house.assert_nothing_left()


def test_a_frozen_supervisor_that_thaws_after_its_lease_publishes_nothing(house):
    worker = house.worker(held=True)
    run = house.request("stream", rows=1_000_000)
    house.wait_for_rows(run)
    house.freeze(worker)
    house.let_builds_end()
    until(lambda: not house.children())
    assert house.sent() > 3 * PART  # every part is there, but nobody has made an object of them
    house.sweep(after_seconds=60)
    assert "worker_lost" == house.get(run).failure_code
    house.assert_nothing_left()

    worker.signal(signal.SIGCONT)
    worker.wait_for("LeaseWasLost", run=run)

    assert "failed" == house.get(run).state
    assert [] == worker.events("RunSettled")
    house.assert_nothing_left()


def test_an_object_that_appears_after_the_sweep_took_its_run_is_discarded_by_its_own_lane(house):
    """A completion that was under way at the server while the sweep removed: the lane that asked for it knows of it."""

    class Late:
        def __getattr__(self, name):
            return getattr(house.artifacts, name)

        def publish(self, key, *size, **proof):
            house.artifacts.publish(key, *size, **proof)
            content = house.place.objects()[key]
            house.sweep(after_seconds=60)
            house.place.server.write(f"{house.place.prefix}files/{key}", content)

    house.pretend_a_worker()
    run = house.request("names")
    with Bench(house, artifacts=Late()) as bench:
        bench.work()

    assert bench.seen(events.LeaseWasLost)
    assert ("failed", "worker_lost") == (house.get(run).state, house.get(run).failure_code)
    house.assert_nothing_left()


def test_workers_killed_at_random_moments_leave_nothing_that_two_sweeps_do_not_end(house):
    runs = []
    for seed in range(5):
        worker = house.worker()
        runs.append(house.request("stream", rows=300_000 + seed))
        worker.wait_for("RunClaimed", run=runs[-1])
        at_a_random_moment(seed, 1.2)
        worker.kill()
        house.let_leases_run_out()  # or the slots would be taken
    until(lambda: not house.children(), lambda: "a child outlived its supervisor")

    house.sweep(after_seconds=60)
    house.sweep(after_seconds=60)

    assert {"ready", "failed"} >= {house.get(run).state for run in runs}
    assert "worker_lost" in {house.get(run).failure_code for run in runs}
    house.assert_whole()


# -- what is lost on the way -----------------------------------------------------------------------


@pytest.mark.parametrize("action", ["lose the request", "lose the answer"])
@pytest.mark.parametrize(
    "step", [CREATE, r"^PUT .*partNumber=2", COMPLETE, r"^HEAD "], ids=["begin", "part", "complete", "look"]
)
def test_one_lost_request_or_answer_of_a_build_changes_nothing(house, step, action):
    rule = house.proxy.rule(step, action)
    house.worker()

    run = house.wait(house.request("stream", **SOME_PARTS))

    assert (1, "ready") == (rule.fired, run.state)
    house.assert_whole()


def test_a_part_that_was_cut_in_its_middle_is_sent_again(house):
    rule = house.proxy.rule(r"^PUT .*partNumber=2", "cut", times=2)
    house.worker()

    run = house.wait(house.request("stream", **SOME_PARTS))

    assert (2, "ready") == (rule.fired, run.state)
    house.assert_whole()


def test_a_completion_whose_answer_is_never_heard_is_settled_by_a_look(house):
    """The client asks three times by itself; every answer is lost, and the object is there all the same."""
    rule = house.proxy.rule(COMPLETE, "lose the answer", times=3)
    house.worker()

    run = house.wait(house.request("names"))

    assert (3, "ready") == (rule.fired, run.state)
    house.assert_whole()


def test_a_server_that_goes_away_after_it_completed_leaves_nothing_when_it_is_back(house, impatient):
    """The answer was lost, and nothing can be asked any more: the run fails, and the object goes later."""
    rule = house.proxy.rule(COMPLETE, "lose the answer and go down")
    house.pretend_a_worker()
    run = house.request("names")
    with Bench(house) as bench:
        bench.work()

    ended = house.get(run)
    assert (1, ("failed", "storage_failed", f"{run}.1")) == (
        rule.fired,
        (ended.state, ended.failure_code, ended.artifact_key),
    )
    assert [f"{run}.1"] == list(house.place.objects())
    house.proxy.up()
    house.sweep()
    assert house.get(run).artifact_key is None
    house.assert_nothing_left()


def test_a_server_down_in_the_middle_of_an_upload_fails_the_run_and_is_cleared_when_it_is_back(house, impatient):
    house.pretend_a_worker()
    run = house.request("stream", **FOREVER)
    with Bench(house) as bench:
        lane = bench.claim()
        lane.thread.start()
        house.wait_for_a_part()
        house.proxy.down()
        lane.thread.join(PATIENCE_SECONDS)

    ended = house.get(run)
    assert ("failed", "storage_failed") == (ended.state, ended.failure_code)
    assert [ended.artifact_key] == house.place.uploads()  # the row still names what could not be removed
    assert bench.seen(events.RemovalFailed)
    house.proxy.up()
    house.sweep()
    assert house.get(run).artifact_key is None
    house.assert_nothing_left()
    assert house.worker()
    assert "ready" == house.wait(house.request("names")).state


def test_a_server_down_at_a_removal_is_asked_again_until_the_object_is_gone(house):
    house.worker()
    run = house.wait(house.request("names"))
    house.workers[0].kill()
    house.proxy.down()

    report = house.sweep(after_seconds=house.limits.expiry_seconds + 5)
    assert "expired" == house.get(run.id).state
    assert {run.artifact_key, "orphans"} == {failure.partition(":")[0] for failure in report.failures}
    assert [run.artifact_key] == list(house.place.objects())
    assert 2 == len([event for event in house.events if isinstance(event, events.RemovalFailed)])

    house.proxy.up()
    assert [] == house.sweep().failures
    assert house.get(run.id).artifact_key is None
    house.assert_nothing_left()


def test_wrong_keys_end_a_run_with_a_code_and_right_ones_clear_what_is_left(house, impatient):
    wrong = ObjectArtifacts(house.place.url, replace(house.settings(), secret_key="not that one"))
    house.pretend_a_worker()
    run = house.request("names")
    with Bench(house, artifacts=wrong) as bench:
        bench.work()

    assert ("failed", "storage_refused") == (house.get(run).state, house.get(run).failure_code)
    assert "403 SignatureDoesNotMatch" == bench.seen(events.RunSettled)[0].cause
    assert "not that one" not in str(bench.events)
    house.sweep()
    house.sweep()
    house.assert_nothing_left()


# -- behind our back -------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["removed", "truncated"])
def test_an_object_changed_behind_our_back_is_found_at_the_download(house, change):
    house.worker()
    run = house.wait(house.request("names"))
    name = f"{house.place.prefix}files/{run.artifact_key}"
    if change == "removed":
        house.place.server.delete(name)
    else:
        house.place.server.write(name, house.file_of(run)[:-1])

    with pytest.raises(Refused) as refused:
        house.exports.open_file(AMINA, run.id)

    assert ("artifact_lost", "failed") == (refused.value.code, house.get(run.id).state)
    house.sweep()
    house.sweep()
    house.assert_nothing_left()


def test_a_bucket_that_does_not_answer_costs_no_run_its_file(house):
    house.worker()
    run = house.wait(house.request("names"))
    house.proxy.down()

    with pytest.raises(Refused) as refused:
        house.exports.open_file(AMINA, run.id)
    assert ("files_unavailable", "ready") == (refused.value.code, house.get(run.id).state)

    house.proxy.up()
    _, opened = house.exports.open_file(AMINA, run.id)
    with opened:
        assert run.sha256 == hashlib.sha256(opened.read()).hexdigest()


def test_a_dataset_that_is_verified_in_full_is_read_back_from_the_bucket(house):
    house.catalogue._datasets["names"] = replace(house.catalogue._datasets["names"], verify="full")
    read = house.proxy.rule(r"^GET [^ ?]+/files/[^ ?]+ ", "pass", times=10)
    house.worker()

    run = house.wait(house.request("names"))

    assert ("ready", 1) == (run.state, read.fired)
    house.assert_whole()

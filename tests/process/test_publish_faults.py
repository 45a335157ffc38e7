"""Each call that keeps bytes, hit by each fault: afterwards a ready row has its whole file, and nothing else is left.

The first test shows that the list of calls is the truth: a new call must be added to it, and is hit like the rest.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.process.house import LIMITS, House, until
from tests.process.launcher import Launcher

# What a build does to the disk, in this order: a file is synced before it gets its name, and its folder after.
PUBLISH = [
    "mkdir work/KEY",
    "write work/KEY/part",
    "fsync work/KEY/part",
    "rename work/KEY/part",
    "fsync files",
    "rmdir work/KEY",
]
CHILD = ("write work/KEY/part", "fsync work/KEY/part")
EXPECTED = {"ENOSPC": "no_space", "EDQUOT": "no_space", "EIO": "storage_failed"}


@pytest.fixture(scope="session")
def shim(tmp_path_factory):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        assert os.environ.get("HAULAGE_TEST_ALL") != "1", "HAULAGE_TEST_ALL=1, and there is no C compiler"
        pytest.skip("no C compiler: the faults of single calls cannot be injected")
    built = tmp_path_factory.mktemp("shim") / "shim.so"
    source = Path(__file__).with_name("shim.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", built, source, "-ldl"], check=True)
    return built


@pytest.fixture(scope="session")
def shimmed_launcher(shim):
    started = Launcher(LD_PRELOAD=str(shim))
    yield started
    started.close()


class Shimmed(House):
    """A house whose workers make their calls through the shim."""

    def worker(self, **config):
        return super().worker(environment={"HAULAGE_SHIM": str(self.folder)}, **config)

    def rule(self, *rules: str) -> None:
        """From now on these go wrong."""
        written = self.folder / "rules.new"
        written.write_text("\n".join(rules))
        written.rename(self.folder / "rules")

    def calls(self, run: str | None = None) -> list[str]:
        """The calls that were made on the bytes of a run, in its short form; or all of them, as they were written."""
        lines = (self.folder / "calls").read_text().splitlines()
        if run is None:
            return lines
        made = [line.split(" ", 1)[1] for line in lines if " artifacts/" in line]
        return [re.sub(re.escape(run) + r"\.\d+", "KEY", line).replace("artifacts/", "") for line in made]

    def fired(self) -> int:
        return len([line for line in self.calls() if line.startswith("FIRED")])


@pytest.fixture
def house(template, shimmed_launcher, tmp_path):
    for path in template.glob("*.db"):
        shutil.copy(path, tmp_path)
    built = Shimmed(tmp_path, shimmed_launcher, LIMITS)
    yield built
    built.close()


def rule_for(call: str, action: str) -> str:
    operation, path = call.split(" ")
    return f"{operation} {'/part' if path.endswith('/part') else 'artifacts/' + path.removesuffix('KEY')} 1 {action}"


def test_a_build_syncs_the_file_before_it_names_it_and_the_folder_after(house):
    worker = house.worker()
    run = house.request("names")
    house.wait(run, "ready")
    worker.wait_for("RunSettled", run=run)

    assert PUBLISH == house.calls(run)


@pytest.mark.parametrize("action", ["KILL", "KILLED"])
@pytest.mark.parametrize("call", PUBLISH)
def test_killed_at_any_call_of_a_build_nothing_false_is_promised_and_nothing_is_left(house, call, action):
    house.rule(rule_for(call, action))
    worker = house.worker()
    run = house.request("names")

    if call in CHILD:
        assert "child_killed" == house.wait(run).failure_code
    else:
        assert -9 == worker.end()
        until(lambda: not house.children(), 3)
        house.sweep(after_seconds=60)
        assert ("failed", "worker_lost") == (house.get(run).state, house.get(run).failure_code)
    assert 1 == house.fired()
    house.assert_whole()


@pytest.mark.parametrize("action", ["EIO", "ENOSPC", "EDQUOT"])
@pytest.mark.parametrize("call", PUBLISH[:-1])
def test_an_error_at_any_call_of_a_build_fails_it_with_its_code_and_nothing_is_left(house, call, action):
    house.rule(rule_for(call, action))
    house.worker()
    failed = house.wait(house.request("names"))

    assert 1 == house.fired()
    assert ("failed", EXPECTED[action]) == (failed.state, failed.failure_code)
    house.assert_nothing_left()
    house.rule()
    assert "ready" == house.wait(house.request("names", rows=7)).state
    house.assert_whole()


def test_a_folder_that_does_not_go_costs_nobody_a_whole_file(house):
    house.rule("rmdir work/ 1 EIO")
    house.worker()
    run = house.wait(house.request("names"))

    assert (1, "ready") == (house.fired(), run.state)
    assert [f"files/{run.artifact_key}", f"work/{run.artifact_key}"] == house.on_disk()
    house.sweep(after_seconds=house.limits.expiry_seconds + 5)
    house.assert_nothing_left()


def test_a_short_write_is_completed(house):
    house.rule("write /part 0 SHORT")
    house.worker()

    assert "ready" == house.wait(house.request("names")).state
    assert house.fired() > 3
    house.assert_whole()


def test_a_kernel_that_lies_about_a_write_is_found_out(house):
    house.rule("write /part 1 LIE")
    house.worker()

    assert "verify_failed" == house.wait(house.request("names")).failure_code
    assert 1 == house.fired()
    house.assert_nothing_left()


def test_a_file_cut_short_between_its_end_and_its_name_is_not_published(house):
    """The child has ended, its supervisor is frozen: the moment between is made long enough to be hit."""
    worker = house.worker()
    run = house.request("names", rows=200_000)
    house.wait_for_rows(run)
    worker.signal(19)
    until(lambda: not house.children(), 20)
    part = house.artifacts_root / "work" / f"{run}.1" / "part"
    os.truncate(part, part.stat().st_size - 1)

    worker.signal(18)

    assert {"verify_failed", "worker_lost"} >= {house.wait(run).failure_code}
    house.assert_nothing_left()


def test_an_unlink_that_fails_is_tried_again_until_the_bytes_are_gone(house):
    house.rule("write /part 1 EIO", "unlink /part 1 EIO")
    house.worker()

    failed = house.wait(house.request("names"))

    assert 2 == house.fired()
    assert ("storage_failed", None) == (failed.failure_code, failed.artifact_key)
    house.assert_nothing_left()


def test_a_store_whose_disk_fails_for_a_while_neither_loses_nor_doubles_a_run(house):
    worker = house.worker()
    run = house.request("names", rows=100_000)
    house.wait_for_rows(run)
    house.rule("fsync haulage.db-wal 0 EIO")
    worker.wait_for("StoreFailed")
    until(lambda: house.fired() > 2, 10)
    house.rule()

    ended = house.wait(run)

    assert {("ready", None), ("failed", "worker_lost")} >= {(ended.state, ended.failure_code)}
    assert "ready" == house.wait(house.request("names", rows=3)).state
    house.assert_whole()

"""A full disk, of the artifacts and of the store: runs fail with their code, and all goes on when there is space."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from dataclasses import replace

import pytest
from tests.process.house import AMINA, BUILD, FOREVER, LIMITS, House, until

from haulage.core.limits import KIB, MIB
from haulage.exports.show import show_failure


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 2 MiB; needs root, and is named when it is skipped."""
    if os.geteuid() != 0:
        pytest.skip("needs root: mounts a small tmpfs")
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place]
    mounted = subprocess.run(command, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here, not even as root: {mounted.stderr}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def fill(ballast) -> None:
    """Write until there is no space left, to the last block."""
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4 * KIB)


@pytest.mark.root
def test_a_full_disk_fails_the_run_with_no_space_and_the_next_small_one_succeeds(house, small_disk):
    house.artifacts_root = small_disk / "artifacts"
    house.artifacts = type(house.artifacts)(house.artifacts_root)
    house.artifacts.prepare()
    house.worker()
    large = house.wait(house.request("stream", **FOREVER))

    assert ("failed", {"code": "no_space", "message": "The disk is full."}) == (large.state, show_failure(large))
    house.assert_nothing_left()
    assert house.artifacts.free_bytes() > MIB
    assert "ready" == house.wait(house.request("names")).state
    house.assert_whole()


def test_a_file_over_what_the_system_lets_a_process_write_is_no_space_too(house):
    """The way to see it without root: RLIMIT_FSIZE, which the child inherits from its worker."""
    house.worker(rlimits={"RLIMIT_FSIZE": 3 * MIB})
    large = house.wait(house.request("stream", **FOREVER))

    assert ("failed", "no_space") == (large.state, large.failure_code)
    house.assert_nothing_left()
    assert "ready" == house.wait(house.request("names")).state
    house.assert_whole()


@pytest.mark.root
def test_a_store_whose_disk_is_full_is_waited_for_and_the_settle_is_made_when_there_is_space(
    template, launcher, tmp_path, small_disk
):
    for path in template.glob("*.db"):
        shutil.copy(path, tmp_path if path.name == "shop.db" else small_disk)
    house = House(tmp_path, launcher, LIMITS, store_path=small_disk / "haulage.db")
    try:
        worker = house.worker()
        run = house.request("names", rows=100_000)
        house.wait_for_rows(run)
        ballast = small_disk / "ballast"
        fill(ballast)
        failed = worker.wait_for("StoreFailed")
        until(lambda: worker.events("StoreFailed")[-1]["where"] != failed["where"])
        ballast.unlink()

        ended = house.wait(run)

        assert "full" in failed["problem"]
        assert {("ready", None), ("failed", "worker_lost")} >= {(ended.state, ended.failure_code)}
        assert "ready" == house.wait(house.request("names", rows=3)).state
        house.assert_whole()
    finally:
        house.close()


@pytest.mark.root
def test_sorting_on_a_full_disk_is_no_space(house, small_disk):
    house.artifacts_root = small_disk / "artifacts"
    house.artifacts = type(house.artifacts)(house.artifacts_root)
    house.artifacts.prepare()
    house.worker()
    run = house.request("silent_rows", rows=3_000_000)

    assert "no_space" == house.wait(run).failure_code
    house.assert_nothing_left()


@pytest.mark.parametrize("house", [replace(LIMITS, build=replace(BUILD, sort_bytes=4 * MIB))], indirect=True)
def test_sorting_over_its_limit_has_a_code_of_its_own(house):
    dataset = replace(house.catalogue.find("silent_rows"), limits=None)
    house.catalogue._datasets["silent_rows"] = dataset
    house.worker()
    over = house.wait(house.request("silent_rows", rows=20_000_000))
    within = house.wait(house.request("silent_rows", rows=20_000))

    assert ("failed", "sort_space_exceeded") == (over.state, over.failure_code)
    assert "Sorting the rows needed more than the 4,194,304 bytes allowed." == over.failure_detail
    assert "ready" == within.state
    house.assert_whole()


@pytest.mark.parametrize("house", [replace(LIMITS, store_bytes=2 * MIB, build=replace(BUILD, file_bytes=2 * MIB))],
                         indirect=True)  # fmt: skip
def test_a_budget_that_is_used_up_refuses_then_fails_then_gives_way_again(house):
    house.worker()
    first = house.wait(house.request("names", rows=70_000))
    second = house.wait(house.request("names", rows=70_001))  # there is room left, but not for all of it
    house.exports.expire(AMINA, first.id)
    until(lambda: house.get(first.id).artifact_key is None)
    third = house.wait(house.request("names", rows=70_002))

    assert ("ready", True) == (first.state, MIB < first.bytes < 2 * MIB)
    assert ("failed", "storage_exceeded") == (second.state, second.failure_code)
    assert "ready" == third.state
    house.assert_whole()

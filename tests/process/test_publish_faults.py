"""Each call that keeps bytes, hit by each fault: afterwards a ready row has its whole file, and nothing else is left.

Three lists of calls are the subject: a build that is published, the removal of one that is not, and the settle in
the store. The first tests show that the first two lists are the truth: a new call must be added, and is hit too.
"""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import replace

import pytest
from tests.process.house import AMINA, FOREVER, LIMITS, stopped, until
from tests.process.shimmed import BY_CHILD, PUBLISH, REMOVE, Shimmed, rule_for

from haulage.core.errors import Refused

EXPECTED = {"ENOSPC": "no_space", "EDQUOT": "no_space", "EIO": "storage_failed"}
TIDYING = ("open work/KEY", "close work/KEY", "rmdir work/KEY")  # after the file has its name
WAL = "haulage.db-wal"
PATIENT = replace(LIMITS, lease_seconds=50)  # no lease is lost because the machine is busy


@pytest.fixture
def house(template, shimmed_launcher, tmp_path):
    for path in template.glob("*.db"):
        shutil.copy(path, tmp_path)
    built = Shimmed(tmp_path, shimmed_launcher, PATIENT)
    yield built
    built.close()


def request(house, *faults: tuple[str, str], dataset="names", **asked) -> str:
    """Ask for an export of whose build these calls will go wrong; its worker is still to be started."""
    house.pretend_a_worker()
    run = house.request(dataset, **asked)
    house.rule(*(rule_for(call, run, action) for call, action in faults))
    return run


# -- a build that is published -----------------------------------------------------------------------------


def test_a_build_syncs_the_file_before_it_names_it_and_the_folder_after(house):
    worker = house.worker()
    run = house.request("names")
    house.wait(run, "ready")
    worker.wait_for("RunSettled", run=run)

    assert PUBLISH == house.calls(run)


@pytest.mark.parametrize("action", ["KILL", "KILLED"])
@pytest.mark.parametrize("call", PUBLISH)
def test_killed_at_any_call_of_a_build_nothing_false_is_promised_and_nothing_is_left(house, call, action):
    run = request(house, (call, action))
    worker = house.worker()

    if call in BY_CHILD:
        assert "child_killed" == house.wait(run).failure_code
    else:
        assert -9 == worker.end()
        until(lambda: not house.children())
        house.sweep(after_seconds=60)
        assert ("failed", "worker_lost") == (house.get(run).state, house.get(run).failure_code)
    assert 1 == house.fired()
    house.assert_whole()


@pytest.mark.parametrize("action", ["EIO", "ENOSPC", "EDQUOT"])
@pytest.mark.parametrize("call", [call for call in PUBLISH if call not in TIDYING])
def test_an_error_at_any_call_of_a_build_fails_it_with_its_code_and_nothing_is_left(house, call, action):
    run = request(house, (call, action))
    house.worker()
    failed = house.wait(run)

    assert 1 == house.fired()
    assert ("failed", EXPECTED[action]) == (failed.state, failed.failure_code)
    house.assert_nothing_left()
    house.rule()
    assert "ready" == house.wait(house.request("names", rows=7)).state
    house.assert_whole()


@pytest.mark.parametrize("call", TIDYING)
def test_a_folder_that_does_not_go_costs_nobody_a_whole_file(house, call):
    run = request(house, (call, "EIO"))
    house.worker()
    run = house.wait(run)

    assert (1, "ready") == (house.fired(), run.state)
    assert f"files/{run.artifact_key}" == house.on_disk()[0]
    house.sweep(after_seconds=house.limits.expiry_seconds + 5)
    house.assert_nothing_left()


def test_a_short_write_is_completed(house):
    house.rule("write /part 0 SHORT", f"write {WAL} 0 SHORT")
    house.worker()

    assert "ready" == house.wait(house.request("names")).state
    assert {"/part", WAL} == {call.split()[2] for call in house.calls() if call.startswith("FIRED")}
    house.assert_whole()


def test_a_kernel_that_lies_about_a_write_is_found_out(house):
    run = request(house, ("write work/KEY/part", "LIE"))
    house.worker()

    assert "verify_failed" == house.wait(run).failure_code
    assert 1 == house.fired()
    house.assert_nothing_left()


def test_a_kernel_that_lies_about_a_folder_fails_the_build(house):
    run = request(house, ("mkdir work/KEY", "LIE"))
    house.worker()

    assert "failed" == house.wait(run).state
    assert 1 == house.fired()
    house.assert_nothing_left()


def test_a_kernel_that_lies_about_a_name_is_found_out_at_the_latest_by_who_asks_for_the_file(house):
    run = request(house, ("rename work/KEY/part", "LIE"))
    house.worker()
    house.wait(run)

    with pytest.raises(Refused) as refused:
        house.exports.open_file(AMINA, run)

    assert (1, "artifact_lost") == (house.fired(), refused.value.code)
    assert ("failed", "artifact_lost") == (house.get(run).state, house.get(run).failure_code)
    house.sweep()
    house.assert_nothing_left()


def test_a_file_cut_short_between_its_end_and_its_name_is_not_published(house):
    """The child has ended, its supervisor is frozen: the moment between is made long enough to be hit."""
    worker = house.worker(held=True)
    run = house.request("names", rows=200_000)
    house.wait_for_rows(run)
    worker.signal(signal.SIGSTOP)
    until(lambda: stopped(worker.pid))
    house.let_builds_end()
    until(lambda: not house.children())
    part = house.artifacts_root / "work" / f"{run}.1" / "part"
    os.truncate(part, part.stat().st_size - 1)

    worker.signal(signal.SIGCONT)

    assert "verify_failed" == house.wait(run).failure_code
    house.assert_nothing_left()


# -- the removal of one that is not ------------------------------------------------------------------------


def cancel_with(house, *faults):
    """Cancel a build whose removal goes wrong at these calls."""
    run = request(house, *faults, dataset="stream", **FOREVER)
    worker = house.worker()
    house.wait_for_rows(run)
    house.cancel(run)
    return worker, run


def test_a_removal_takes_the_unfinished_and_syncs_its_folder(house):
    worker, run = cancel_with(house)
    worker.wait_for("RunSettled", run=run)
    calls = house.calls(run)

    assert REMOVE == calls[calls.index("unlink work/KEY") :]


@pytest.mark.parametrize("action", ["KILL", "KILLED"])
@pytest.mark.parametrize("call", REMOVE)
def test_killed_at_any_call_of_a_removal_the_run_is_cancelled_by_the_sweep_and_nothing_is_left(house, call, action):
    worker, run = cancel_with(house, (call, action))

    assert -9 == worker.end()
    house.sweep(after_seconds=60)
    assert (1, "cancelled") == (house.fired(), house.get(run).state)
    house.assert_nothing_left()


@pytest.mark.parametrize(
    ("call", "action"),
    [(call, "EIO") for call in REMOVE if call != "unlink work/KEY"]  # which fails anyway: it is a folder
    + [(call, "LIE") for call in REMOVE if call.split()[0] not in ("open", "close")],  # whose answer is worked with
)
def test_an_error_or_a_lie_at_any_call_of_a_removal_leaves_nothing(house, call, action):
    _, run = cancel_with(house, (call, action))

    assert "cancelled" == house.wait(run).state
    assert 1 == house.fired()
    house.sweep()
    house.assert_nothing_left()


def test_an_unlink_that_fails_is_tried_again_until_the_bytes_are_gone(house):
    run = request(house, ("write work/KEY/part", "EIO"), ("unlink work/KEY/part", "EIO"))
    house.worker()

    failed = house.wait(run)

    assert 2 == house.fired()
    assert ("storage_failed", None) == (failed.failure_code, failed.artifact_key)
    house.assert_nothing_left()


# -- the settle in the store -------------------------------------------------------------------------------


@pytest.mark.parametrize(("call", "action"), [("write", "KILL"), ("fsync", "KILL"), ("fsync", "KILLED")])
def test_killed_at_any_call_of_a_settle_the_run_is_lost_without_a_file_or_ready_with_it(house, call, action):
    """From call to call, until one is hit that comes after the commit."""
    ended = []
    while "ready" not in ended:
        house.rule(f"{call} {WAL} {len(ended) + 1} {action} /part")
        worker = house.worker()
        run = house.request("names", rows=len(ended) + 1)
        assert -9 == worker.end()
        assert len(ended) + 1 == house.fired()
        until(lambda: not house.children())
        house.sweep(after_seconds=60)
        ended.append(house.get(run).state)
        house.assert_whole()

    assert len(ended) > 1
    assert {"failed", "ready"} == set(ended)


@pytest.mark.parametrize("action", ["EIO", "ENOSPC", "EDQUOT"])
@pytest.mark.parametrize("call", ["write", "fsync"])
def test_an_error_at_any_call_of_a_settle_is_survived(house, call, action):
    """SQLITE_FULL and SQLITE_IOERR of the log: the settle is made again, and a run is neither lost nor doubled."""
    worker = house.worker()
    for nth in range(1, 8 if call == "write" else 2):
        house.rule(f"{call} {WAL} {nth} {action} /part")
        run = house.request("names", rows=nth)
        assert "ready" == house.wait(run).state
        until(lambda n=nth: house.fired() == n)

    worker.wait_for("StoreFailed")
    house.assert_whole()


def test_a_store_whose_disk_fails_for_a_while_neither_loses_nor_doubles_a_run(house):
    worker = house.worker()
    run = house.request("names", rows=100_000)
    house.wait_for_rows(run)
    house.rule(f"fsync {WAL} 0 EIO")
    worker.wait_for("StoreFailed")
    until(lambda: house.fired() > 2)
    house.rule()

    ended = house.wait(run)

    assert {("ready", None), ("failed", "worker_lost")} >= {(ended.state, ended.failure_code)}
    assert "ready" == house.wait(house.request("names", rows=3)).state
    house.assert_whole()

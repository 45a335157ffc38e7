"""A worker hears from the kernel that the store was written, and where the kernel says nothing, it asks.

Its look once a second is turned off where the hint alone is the subject: then a run that is claimed was hinted at.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import sqlite3
from pathlib import Path

import pytest
from tests.process.worker_process import refuse_inotify

from haulage.stores.stir import Stir

NEVER = 3_600.0
CONTEXT = multiprocessing.get_context("fork")


@pytest.fixture
def file(tmp_path):
    """A database in WAL mode that somebody has open, as a store is: its log is there, and stays."""
    path = tmp_path / "store.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as open_elsewhere:
        open_elsewhere.execute("pragma journal_mode=wal")
        open_elsewhere.execute("create table t (a)")
        yield path


@pytest.fixture
def stir(file):
    listening = Stir(file)
    yield listening
    listening.close()


def write(path: Path, sql: str = "insert into t values (1)") -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(sql)


def in_another_process(act, *arguments) -> None:
    process = CONTEXT.Process(target=act, args=arguments)
    process.start()
    process.join(20)
    assert 0 == process.exitcode


def word(stir: Stir) -> bool:
    """Whether the kernel has something to say."""
    return bool(select.select([stir.descriptor], [], [], 0)[0])


# -- what is felt ------------------------------------------------------------------------------------------


def test_a_write_of_another_process_is_felt_once(stir, file):
    before = (word(stir), stir.felt())
    in_another_process(write, file)

    assert (False, False) == before
    assert (True, True) == (word(stir), stir.felt())
    assert (False, False) == (word(stir), stir.felt())


def test_a_reader_and_another_file_of_the_folder_are_not_felt(stir, file, tmp_path):
    write(file, "select * from t")
    (tmp_path / "other.db").write_text("x")

    assert (True, False) == (word(stir), stir.felt())


@pytest.mark.parametrize("how", ["moved over it", "removed and made anew", "moved away and back"])
def test_a_file_that_is_replaced_is_felt(stir, file, tmp_path, how):
    copy = tmp_path / "a backup"
    copy.write_bytes(file.read_bytes())
    stir.felt()
    if how == "moved over it":
        copy.replace(file)
    elif how == "moved away and back":
        file.rename(tmp_path / "elsewhere")
        away = stir.felt()
        (tmp_path / "elsewhere").rename(file)
        assert away
    else:
        file.unlink()
        gone = stir.felt()
        file.touch()
        assert gone

    assert stir.felt()


def test_events_that_the_kernel_had_to_drop_are_felt(stir, file, tmp_path):
    """What it keeps for us is limited; it then says that there was more, and not what."""
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    with (tmp_path / "a").open("wb", 0) as a, (tmp_path / "b").open("wb", 0) as b:
        for _ in range(most // 2 + 1):  # in turns, since equal ones that follow each other become one
            a.write(b"x")
            b.write(b"x")

    assert stir.felt()
    assert not stir.felt()
    write(file)
    assert stir.felt()


def test_a_folder_that_is_removed_is_felt_and_does_not_keep_anybody_busy(file, stir, tmp_path):
    for path in tmp_path.iterdir():
        path.unlink()
    tmp_path.rmdir()

    assert stir.felt()
    assert (False, False) == (word(stir), stir.felt())


# -- where the kernel says nothing -------------------------------------------------------------------------


def test_without_an_instance_there_is_no_descriptor_and_nothing_is_felt(file):
    in_another_process(_without_an_instance, file)


def _without_an_instance(file: Path) -> None:
    refuse_inotify()
    stir = Stir(file)
    write(file)
    assert (None, False) == (stir.descriptor, stir.felt())
    stir.close()


def test_a_folder_that_is_not_there_leaves_no_descriptor_open(tmp_path):
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only how many
    stirs = [Stir(tmp_path / "nowhere" / "store.db") for _ in range(20)]

    assert {None} == {stir.descriptor for stir in stirs}
    assert before == len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def test_one_that_is_closed_is_given_back_and_may_be_closed_again(file):
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only how many
    for _ in range(200):  # more than the kernel has for one user
        stir = Stir(file)
        assert stir.descriptor is not None
        stir.close()
        stir.close()
        assert (None, False) == (stir.descriptor, stir.felt())

    assert before == len(os.listdir("/proc/self/fd"))  # noqa: PTH208


# -- a worker ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inotify", [True, False])
def test_a_worker_that_never_looks_by_itself_claims_what_it_is_told_of(house, inotify):
    worker = house.worker(look_seconds=NEVER, inotify=inotify)
    runs = []
    for rows in (1, 2, 3):
        runs.append(house.request("names", rows=rows))
        assert "ready" == house.wait(runs[-1]).state

    assert (1 if inotify else 0) == instances(worker.pid)
    assert runs == [event["run"] for event in worker.events("RunClaimed")]


def instances(pid: int) -> int:
    """How many instances of inotify a process has."""
    found = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # Others come and go.
            found += str(descriptor.readlink()) == "anon_inode:inotify"
    return found

"""Which folder is a store, and which volume can keep one; its clock, and the hint that it changed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.conformance.cases import NOW, Case, Directory

from haulage.core.errors import SchemaMismatch, StoreUnavailable
from haulage.flows import FLOWS
from haulage.stores import open_store
from haulage.stores.directory import peer, volume, watcher
from haulage.stores.directory.store import directory_path, open_directory


@pytest.fixture
def case(folder):
    made = Case(Directory(), FLOWS[0], folder)
    yield made
    made.store.close()


# -- opening ------------------------------------------------------------------------------------------------


def test_a_folder_that_others_may_enter_is_refused_and_says_what_to_do(tmp_path):
    for mode in (0o750, 0o701, 0o770):
        tmp_path.chmod(mode)
        with pytest.raises(StoreUnavailable, match=f"entered by others .mode {mode:04o}.*run: chmod -R go-rwx"):
            open_store(f"directory://{tmp_path}")

    assert [] == list(tmp_path.iterdir())


@pytest.mark.root
def test_a_folder_of_another_user_is_refused_and_says_what_to_do(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root to give a folder to somebody else")
    tmp_path.chmod(0o700)
    os.chown(tmp_path, 65534, 65534)

    with pytest.raises(StoreUnavailable, match="belongs to user 65534 and this is user 0; a store has one owner"):
        open_store(f"directory://{tmp_path}")


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path):
    (tmp_path / "holiday.jpg").touch()
    tmp_path.chmod(0o700)

    with pytest.raises(SchemaMismatch, match=r"is no store of haulage, and holds holiday.jpg; name an empty folder"):
        open_store(f"directory://{tmp_path}")

    assert {"holiday.jpg", "lock"} >= {path.name for path in tmp_path.iterdir()}


def test_a_store_that_wants_newer_workers_is_refused(case):
    case.want_workers(2)

    with pytest.raises(SchemaMismatch, match="wants workers of schema 2 or newer"):
        case.open()


def test_a_fact_file_that_cannot_be_read_is_told_and_nothing_is_made_anew(case):
    path = case.store.path / "haulage.json"
    path.write_bytes(b"")

    with pytest.raises(StoreUnavailable, match=r"haulage.json: it is empty; put it back from a backup"):
        case.open()

    assert b"" == path.read_bytes()


@pytest.mark.parametrize("state", ["queued", "cancelled"])
def test_a_fact_file_that_has_vanished_from_a_store_with_runs_is_not_made_anew(case, state):
    """A new one would be another store's: its id, and the workers it wants, stood in the old one."""
    run, _ = case.bring(state)
    path = case.store.path / "haulage.json"
    whole = path.read_bytes()
    path.unlink()

    with pytest.raises(StoreUnavailable, match=r"haulage.json: it is missing, and there are runs; put it back"):
        case.open()
    assert not path.exists()
    path.write_bytes(whole)
    again = case.open()
    assert state == again.exports.get(run.id).state
    again.close()


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("directory:///srv/haulage", "/srv/haulage"),
        ("directory:./runs", "runs"),
        ("directory:///srv/ein Ordner/報告", "/srv/ein Ordner/報告"),
    ],
)
def test_a_url_names_a_folder(url, path):
    assert Path(path) == directory_path(url)


@pytest.mark.parametrize("url", ["directory:", "directory://", "directory:///", "directory:///srv?mode=ro"])
def test_a_url_that_names_no_folder_is_refused(url):
    with pytest.raises(ValueError, match=r"names no folder; write directory:///srv/haulage|takes no options"):
        directory_path(url)


def test_everything_can_be_taken_away(case):
    case.hold()
    case.store.migrate("base")

    assert case.store.schema().new
    case.store.migrate()
    assert (1, 0) == (case.store.schema().version, case.runs.waiting())


# -- the volume ---------------------------------------------------------------------------------------------


def test_a_volume_that_keeps_everything_has_no_faults(case):
    assert [] == volume.deep_faults_of(case.store.path)
    assert [] == list(case.store.path.glob(".*"))


def test_two_processes_meet_and_find_nothing(case, folder):
    place = folder / "shared"
    place.mkdir(mode=0o700)
    sides = []

    def come(name):
        side = peer.Side(place, name)
        sides.append(side.meet(20))
        side.leave()

    threads = [threading.Thread(target=come, args=(name,)) for name in ("a_1", "b_2")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [[], []] == [met.faults for met in sides]
    assert {"a, process 1", "b, process 2"} == {met.other for met in sides}
    assert [] == list(folder.glob("shared/*"))


def test_whoever_waits_for_a_host_that_does_not_come_is_told(case):
    with pytest.raises(peer.Alone, match="nobody came"):
        peer.meet(case.store.path, seconds=0.1)

    assert [] == list(case.store.path.glob(".*"))


def test_the_clock_of_the_store_is_that_of_the_volume(case, monkeypatch):
    """A host whose own clock is an hour off neither loses its lease nor takes that of another."""
    lose = case.moves("lose")
    run = case.add()
    held, _ = case.runs.claim(case.terms(only=run.id))
    monkeypatch.setattr("time.time_ns", lambda: NOW * 1_000_000)
    monkeypatch.setattr("time.time", lambda: NOW / 1000)
    here = case.open()
    lost = here.exports.sweep(lose, {}, worker="sweeper")
    here.exports.heartbeat([(held, None)], lease_seconds=15)

    assert [] == lost
    assert abs(here.now() - case.store.now()) < 5_000
    assert abs(case.get(held.id).lease_until - case.store.now() - 15_000) < 5_000
    here.close()


@pytest.mark.parametrize("kind", ["tmpfs", "nfs4", None])
def test_only_where_others_cannot_write_the_kernel_is_listened_to(case, monkeypatch, kind):
    monkeypatch.setattr("haulage.stores.directory.watcher.kind_of", lambda _path: kind)
    hint = case.store.watch()
    first = [hint.changed(), hint.changed()]
    case.add()
    second = [hint.stirred(), hint.changed(), hint.changed()]
    heard = hint.descriptor is not None
    hint.close()

    assert ([True, False], [kind == "tmpfs", True, False], kind == "tmpfs") == (first, second, heard)


def test_the_kind_of_a_volume_is_known(case):
    assert watcher.kind_of(case.store.path) in watcher.OF_THIS_HOST
    assert "proc" == watcher.kind_of(Path("/proc"))


def test_a_change_that_was_begun_and_not_ended_is_none_yet(case):
    """The writer died in between; the next one sets it right."""
    hint = case.store.watch()
    hint.changed()
    with case.store.folder.writing() as tx:
        tx.begin()
        tx.begun = False  # so that it is never ended
    begun = hint.changed()
    known = case.runs.waiting()
    case.add()

    assert (False, 0, True, 1) == (begun, known, hint.changed(), case.runs.waiting())
    hint.close()


def test_opening_without_migration_leaves_an_empty_folder_empty(tmp_path):
    folder = tmp_path / "new"
    store = open_directory(f"directory://{folder}", migrate_new=False)

    assert store.schema().new
    assert [] == list(folder.iterdir())


def test_a_store_of_files_loads_no_database(tmp_path):
    program = """
import sys, haulage
haul = haulage.Haulage.from_toml(sys.argv[1])
haul.supervisor(), haul.sweeper().pass_once(), haul.store.exports.waiting()
print([name for name in ("sqlalchemy", "alembic") if name in sys.modules])
"""
    config = tmp_path / "haulage.toml"
    config.write_text(f'store = "directory:./runs"\nsecret_keys = ["{"0123456789abcdef" * 4}"]\n')
    answer = subprocess.run([sys.executable, "-c", program, config], capture_output=True, text=True, check=True)

    assert "[]" == answer.stdout.strip()
    assert (tmp_path / "runs" / "haulage.json").exists()


def test_a_store_that_was_opened_before_a_fork_is_used_by_both(case):
    """While another thread of the parent is in the middle of a write, and the parent holds a run."""
    held = case.hold()
    inside, go_on = threading.Event(), threading.Event()

    def write_slowly():
        with case.store.begin():
            inside.set()
            go_on.wait(30)

    thread = threading.Thread(target=write_slowly)
    thread.start()
    inside.wait(30)
    threading.Timer(0.3, go_on.set).start()
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(tell)
            alive = not case.runs.leases.is_dead(case.get(held.id))  # before the parent sees what is added, and closes
            case.add(id="of-the-child")
            os.read(told, 1)  # until the parent has seen it
            os._exit(0 if alive else 1)
        except BaseException:  # noqa: BLE001 - the parent must see that it failed
            os._exit(9)
    thread.join()
    give_up = time.monotonic() + 60
    while case.get("of-the-child") is None and time.monotonic() < give_up:
        time.sleep(0.01)
    case.store.close()
    freed = case.runs.leases.is_dead(case.get(held.id))  # although the child inherited what the parent held
    os.close(tell)
    _, status = os.waitpid(child, 0)
    os.close(told)

    assert (0, True) == (os.waitstatus_to_exitcode(status), freed)
    assert "queued" == case.get("of-the-child").state

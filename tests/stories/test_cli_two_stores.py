"""One folder of artifacts is one store's: another that was given it by mistake is refused, and can adopt it."""

from __future__ import annotations

import fcntl
import shutil
import threading
from pathlib import Path

import pytest
from tests.stories.terminal import CONFIGURATION, Terminal, until

from haulage.artifacts.local import MARK, LocalArtifacts

pytestmark = pytest.mark.slow
SHARED = CONFIGURATION.replace("file:./artifacts", "file:../shared")


@pytest.fixture
def terminals(tmp_path):
    """Two houses that name one folder; the first has a finished file in it."""
    found = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        found.append(Terminal(folder).shop(configuration=SHARED))
    assert 0 == found[0].run("export", "orders").code
    return found


def files(terminal):
    return sorted(path.name for path in (terminal.folder.parent / "shared").glob("*/*"))


COMMANDS = [
    ("export", "orders"),
    ("sweep",),
    ("runs", "list"),
    ("worker",),
    ("serve", "--port", "0"),
    ("migrate", "down"),
]


@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_the_folder_of_another_store_is_refused_with_what_to_do(terminals, words):
    first, second = terminals
    second.run("migrate", "up")
    before = files(first)

    answer = second.run(*words, *(["--yes"] if words[0] == "migrate" else []))

    assert 2 == answer.code
    assert "/shared: holds the files of another store; name another folder" in answer.err
    assert "run: haulage sweep --adopt" in answer.err
    assert 1 == len(before)
    assert before == files(first)
    assert 0 == first.run("runs", "fetch", first.run("runs", "list", "--json").document["items"][0]["id"]).code


@pytest.mark.quick
def test_a_store_adopts_what_one_that_is_gone_has_left(terminals):
    first, second = terminals

    adopted = second.run("sweep", "--adopt", "--json")
    exported = second.run("export", "orders")
    back = first.run("runs", "list")

    assert (0, 1) == (adopted.code, adopted.document["orphans"])
    assert 0 == exported.code, exported.err
    assert (2, True) == (back.code, "holds the files of another store" in back.err)


def test_a_store_that_was_adopted_away_while_it_works_removes_nothing(terminals):
    first, second = terminals
    id_of_first = (first.folder.parent / "shared" / MARK).read_text()
    working = LocalArtifacts(first.folder.parent / "shared", id_of_first)
    working.prepare()
    before = working.keys()
    second.run("sweep", "--adopt")
    second.run("export", "orders")

    assert 1 == len(before)
    assert 1 == len(files(second))
    assert [] == working.keys()
    with pytest.raises(OSError, match="another store"):
        working.check()


def test_a_store_that_moved_or_was_put_back_is_still_the_same(terminals):
    first, _ = terminals
    moved = first.folder.parent / "moved"
    shutil.copytree(first.folder, moved)
    shutil.rmtree(first.folder)
    terminal = Terminal(moved)

    assert (0, "nothing was due\n") == (terminal.run("sweep").code, terminal.run("sweep").out)
    assert 1 == len(files(terminal))


def test_a_lost_mark_is_no_reason_to_take_somebodys_files(terminals):
    first, _ = terminals
    shared = first.folder.parent / "shared"
    (shared / MARK).unlink()
    refused = first.run("runs", "list")
    own = shared / "files" / "photograph.jpg"
    own.touch()
    not_adopted = first.run("sweep", "--adopt")
    own.unlink()
    adopted = first.run("sweep", "--adopt", "--json")

    assert (2, True) == (refused.code, "holds files that are not Haulage's" in refused.err)
    assert (2, True) == (not_adopted.code, "holds files that are not Haulage's" in not_adopted.err)
    assert (0, 0, 1) == (adopted.code, adopted.document["orphans"], len(files(first)))


def test_a_store_that_was_taken_down_and_up_has_its_folder_again(terminals):
    first, second = terminals
    first.run("migrate", "down", "--yes")
    first.run("migrate", "up")

    assert 0 == first.run("export", "orders").code
    assert 2 == second.run("export", "orders").code


def test_of_two_stores_that_come_at_once_one_has_the_folder(tmp_path):
    """The first has taken the mark and not written it yet, when the second comes."""
    LocalArtifacts(tmp_path).prepare()
    second, refused = LocalArtifacts(tmp_path, "2" * 16), []

    def come():
        try:
            second.prepare()
        except FileExistsError as problem:
            refused.append(problem)

    with (tmp_path / MARK).open("w") as mark:
        fcntl.flock(mark, fcntl.LOCK_EX)
        thread = threading.Thread(target=come)
        thread.start()
        until(lambda: not thread.is_alive() or waits_for(tmp_path / MARK))
        mark.write("1" * 16)
    thread.join()

    assert 1 == len(refused)
    assert "1" * 16 == (tmp_path / MARK).read_text()


def waits_for(path):
    """Say whether somebody waits for the lock of a file."""
    lines = [line for line in Path("/proc/locks").read_text().splitlines() if "->" in line]
    return any(line.split()[-3].endswith(f":{path.stat().st_ino}") for line in lines)


def test_a_mark_of_before_becomes_that_of_the_store_that_comes_first(tmp_path):
    LocalArtifacts(tmp_path / "shared").prepare()
    assert "" == (tmp_path / "shared" / MARK).read_text()
    LocalArtifacts(tmp_path / "shared", "1" * 16).prepare()

    with pytest.raises(FileExistsError):
        LocalArtifacts(tmp_path / "shared", "2" * 16).prepare()

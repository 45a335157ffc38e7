"""A directory store at each call it makes: a death, a full disk, a disk that fails, and locks that exclude nobody.

The first test shows the order that survives a power cut; the others hit every call of that list.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.conformance.conftest import make_folder
from tests.process import directory_story as story
from tests.process.house import until
from tests.process.shimmed import build_shim

from haulage.core.limits import ExportLimits
from haulage.core.ports import Query
from haulage.exports.life import ExportLife
from haulage.stores.directory.store import open_directory

NAME = re.compile(r"\.([^/]+)\.[0-9a-f]{12}\.new")
# What a request, a claim, two beats, a settle, an expiry and the end of the bytes do, in this order.
ASK = [
    "write active/HASH",
    *["write live/NEW", "fsync live/NEW", "link live/ID.json", "unlink live/NEW", "fsync live"],
    *["write keys/NEW", "fsync keys/NEW", "link keys/HASH.HASH", "unlink keys/NEW", "fsync keys"],
]
REPLACE = ["write live/NEW", "fsync live/NEW", "rename live/NEW", "fsync live"]
WORK = [
    *["write held/ID.1", "link slots/1", *REPLACE],  # the claim; a lock before the row
    *["write held/ID.1"] * 2,  # beats: nothing is synced
    *[*REPLACE, "unlink active/HASH", "unlink slots/1", "unlink held/ID.1"],  # the row before what it gives back
    *REPLACE,  # it expires
    *[*REPLACE, "mkdir ended/DAY", "fsync ended", "rename live/ID.json", "fsync ended/DAY", "fsync live"],
]


class Story:
    """The process that goes through the story, under the shim."""

    def __init__(self, library):
        self._process = subprocess.Popen(
            [sys.executable, Path(story.__file__)],
            env={**os.environ, "LD_PRELOAD": str(library)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, folder, *rules):
        """Go through it in a folder; the return code and what was said."""
        (folder / "rules").write_text("\n".join(rules))
        (folder / "calls").unlink(missing_ok=True)
        self._begin(folder, 1)
        return self._answer()

    def tell_at_once(self, folder, count, *rules):
        """Many processes ask for the same at one instant, and then claim at one; what each was answered."""
        (folder / "rules").unlink(missing_ok=True)
        (folder / "at once").touch()
        self._begin(folder, count)
        for word in ("ask", "claim"):
            until(lambda word=word: len(list(folder.glob(f"{word}-*"))) == count)
            if word == "ask":  # They are open, and were told that the volume is good.
                (folder / "rules.new").write_text("\n".join(rules))
                (folder / "rules.new").rename(folder / "rules")
            (folder / word).touch()
        return [self._answer()[1] for _ in range(count)]

    def _begin(self, folder, count):
        self._process.stdin.write(f"{count} {folder}\n")
        self._process.stdin.flush()

    def _answer(self):
        code, said = json.loads(self._process.stdout.readline())
        return code, json.loads(said) if said else []

    def close(self):
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    started = Story(build_shim(tmp_path_factory.mktemp("shim")))
    yield started
    started.close()


@pytest.fixture(scope="module")
def template():
    """An empty store, copied for each fault."""
    with make_folder() as folder:
        folder.chmod(0o700)
        open_directory(f"directory://{folder}/store").close()
        yield folder


def fresh(template, folder):
    shutil.rmtree(folder / "store", ignore_errors=True)
    shutil.copytree(template / "store", folder / "store")
    (folder / "store").chmod(0o700)


@pytest.fixture
def place(template):
    with make_folder() as folder:
        fresh(template, folder)
        yield folder


def calls(folder):
    """The calls on records, in short form; what the lock's count and the look at the volume do is left out."""
    made = []
    for line in (folder / "calls").read_text().splitlines():
        if (
            line.startswith("FIRED")
            or line.split(" ")[1] in ("open", "close", "truncate")
            or "/.probe-" in line
            or " flock " in line
            or line.endswith((" store/lock", " store"))
        ):
            continue
        short = line.split(" ", 1)[1].replace("store/", "")
        short = NAME.sub("NEW", short).replace(story.ID, "ID")
        made.append(re.sub(r"\d{4}-\d\d-\d\d", "DAY", re.sub(r"[0-9a-f]{64}", "HASH", short)))
    return made


def fired(folder):
    return sum(line.startswith("FIRED") for line in (folder / "calls").read_text().splitlines())


def test_a_record_is_synced_before_it_has_its_name_and_its_folder_after(told, place):
    assert (0, [story.ID, "done"]) == told.tell(place)
    assert ASK + WORK == calls(place)


def rules(action, kinds=("write", "fsync", "rename", "link", "unlink", "mkdir")):
    """One rule for each call of the story, that hits it and no other."""
    seen = Counter()
    for call in ASK + WORK:
        operation, path = call.split(" ")
        part = "/store/" + path.replace("NEW", ".").replace("ID", story.ID).partition("HASH")[0].replace("DAY", "")
        part = part.removesuffix("/") if operation == "fsync" and path in ("live", "keys", "ended") else part
        key = operation, part
        seen[key] += 1
        if operation in kinds:
            yield call, f"{operation} {part} {seen[key]} {action}"


def check(folder):
    """Whatever happened: nothing is torn, a run and its key are one, and everything goes on."""
    store = open_directory(f"directory://{folder}/store", ExportLimits())
    runs = store.exports.list(Query())
    kept = store.keys.find("north", "amina", "k")
    assert [] == store.quarantined()
    assert [run.id for run in runs] == ([kept.run] if kept else [])
    for path in (folder / "store").rglob("*"):  # a moment later
        if path.is_file() and path.parent.name in ("held", "slots", "active", "live", "keys"):
            then = path.stat().st_mtime - 60
            os.utime(path, (then, then))
    answer = story.ask(store, "another")  # the client tries again with the same key
    assert [answer] == [run.id for run in store.exports.list(Query())]
    assert answer == (story.ID if runs else "another")
    end(store, answer)
    store.exports.patrol.pass_once(store.exports.lives, store.exports.move_to_ended)
    left = [path for path in (folder / "store").rglob("*") if path.parent.name in ("held", "slots", "active", "live")]
    left += (folder / "store").rglob("*.new")
    assert [] == left
    store.close()


def end(store, run_id):
    """Lead a run to its end, from wherever it is: by a sweep if a dead worker holds it, else by a worker."""
    exports = store.exports
    for move in (ExportLife.lose,):
        for run in exports.sweep(move, {}, worker="sweeper"):
            held = type("H", (), {"id": run.id, "tenant": run.tenant, "claim_no": run.claim_no, "worker": "sweeper"})
            exports.settle(held, move, {"artifact_key": None})
    run = exports.get(run_id)
    if run.state == "queued":
        assert "done" == story.work(store)
    elif run.state == "ready":
        exports.move(run_id, ExportLife.expire, {})
    for run in exports.unkept():
        exports.forget_bytes(run.id, run.artifact_key)
    assert exports.get(run_id).state in ("failed", "expired")


@pytest.mark.parametrize("action", ["KILL", "KILLED"])
def test_killed_at_any_call_nothing_is_torn_lost_or_doubled(told, template, place, action):
    for call, rule in rules(action):
        fresh(template, place)
        code, _ = told.tell(place, rule)

        assert (-signal.SIGKILL, 1) == (code, fired(place)), call
        check(place)


def forgiven(call):
    """What comes after the row that counts, and is tidied up by somebody else where it fails."""
    return call.startswith(("unlink", "rename live/ID")) or "keys" in call or "ended" in call


@pytest.mark.parametrize("action", ["EIO", "ENOSPC"])
def test_an_error_at_any_call_refuses_or_is_done_without(told, template, place, action):
    for call, rule in rules(action):
        fresh(template, place)
        code, said = told.tell(place, rule)

        assert (0, 1) == (code, fired(place)), call
        assert forgiven(call) or any("refused" in word for word in said), (call, said)
        check(place)


def test_a_kernel_that_locks_nobody_out_is_found_at_the_start(told, place):
    _, said = told.tell(place, "flock store/.probe 0 LIE")

    assert all("flock excludes nobody: two had it at once; use another volume" in word for word in said)


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ("fsync store/.probe 0 EIO", "a file or its folder cannot be synced (EIO)"),
        ("link store/.probe 0 EIO", "hard links are refused (EIO)"),
        ("flock store/.probe 0 EIO", "flock is refused (EIO)"),
    ],
)
def test_a_volume_that_refuses_what_a_store_needs_is_refused(told, place, rule, wanted):
    _, said = told.tell(place, rule)

    assert all(wanted in word for word in said)
    assert [] == list((place / "store").glob(".probe*"))


def test_the_same_house_without_faults_is_accepted(told, place):
    """The same set-up as above."""
    assert (0, [story.ID, "done"]) == told.tell(place, "fsync store/nowhere 0 EIO")


def test_a_full_volume_is_told_by_its_name(told, place):
    _, said = told.tell(place, "write /store/live/. 1 ENOSPC")

    assert "No space left on device" in said[0]


@pytest.mark.parametrize("lock", ["flock store/lock 0 LIE", "flock store/nowhere 0 LIE"], ids=["no locks", "locks"])
def test_even_where_locks_exclude_nobody_one_run_is_made(told, template, place, lock):
    """As on a volume that lost its lock server after the start: names that are made once are the second guard.

    Of six that claim at one instant without locks, two have been seen to get the run: that guard is not whole.
    """
    for _ in range(6):
        fresh(template, place)
        for path in place.iterdir():
            if path.is_file():
                path.unlink()
        answers = told.tell_at_once(place, 6, lock, "flock store/held 0 LIE")
        store = open_directory(f"directory://{place}/store")
        (run,) = store.exports.list(Query())
        claims = [claimed for _, claimed in answers if claimed]

        assert {run.id} >= {asked for asked, _ in answers if asked}
        assert {run.id} == set(claims)
        assert "running" == run.state
        assert (1, 1) == (len(claims), run.claim_no) or lock == "flock store/lock 0 LIE"
        assert ("FIRED flock store/lock" in (place / "calls").read_text()) == (lock == "flock store/lock 0 LIE")
        store.close()

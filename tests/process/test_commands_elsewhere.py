"""Commands where they are seldom tried: with a bucket for their files, and by a worker that is no root."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.process.house import BUILD, Bench, until
from tests.process.test_bucket import PART, BucketHouse
from tests.process.test_commands import BOOK, made_by, of_the_command
from tests.stories.terminal import SECRET

from haulage.core import events
from haulage.core.limits import MIB

pytestmark = pytest.mark.slow

# -- a bucket --------------------------------------------------------------------------------------


@pytest.fixture
def house(template, launcher, place, tmp_path):
    for path in template.glob("*.db"):
        shutil.copy(path, tmp_path)
    built = BucketHouse(tmp_path, launcher, place)
    yield built
    built.close()


def make(house, mode, *words, **members):
    house.pretend_a_worker()
    run = house.request(made_by(house, mode, *words, **members), format="epub")
    with Bench(house) as bench:
        bench.work()
    assert [] == bench.seen(events.Incident)
    return house.get(run)


@pytest.mark.parametrize("verify", ["end", "full"])
def test_what_a_command_made_lies_in_the_bucket_whole(house, verify):
    run = make(house, "good", verify=verify)

    assert ("ready", 1_000, len(BOOK)) == (run.state, run.rows, run.bytes)
    assert BOOK == house.file_of(run)
    house.assert_whole()


def test_a_file_of_several_parts_is_sent_whole(house):
    run = make(house, "large", str(2 * PART + 1))

    assert ("ready", 2 * PART + 1) == (run.state, run.bytes)
    house.assert_whole()


def test_a_command_sees_neither_keys_nor_addresses_of_the_bucket(house):
    run = make(house, "asked")
    seen = house.file_of(run).decode()
    environment = json.loads(seen)["environment"]

    assert {"HAULAGE_KEPT_BY", "TMPDIR"} == environment.keys() - {"LC_CTYPE"}  # which Python sets for itself
    found = [word for word in (house.settings().secret_key, house.proxy.endpoint, "X-Amz", "uploadId") if word in seen]
    assert [] == found


@pytest.mark.parametrize(("mode", "code"), [("exits", "command_failed"), ("grows_for_ever", "bytes_exceeded")])
def test_a_command_that_fails_leaves_no_object_and_no_upload(house, mode, code):
    run = make(house, mode, limits=replace(BUILD, file_bytes=MIB))

    assert ("failed", code) == (run.state, run.failure_code)
    house.assert_nothing_left()


def test_a_cancel_ends_the_command_and_there_is_no_object(house):
    house.worker()
    run = house.request(made_by(house, "floods_for_ever"), format="epub")
    until(lambda: len(of_the_command(house)) == 1)
    house.cancel(run)

    assert "cancelled" == house.wait(run).state
    assert [] == of_the_command(house)
    house.assert_nothing_left()


# -- no root ---------------------------------------------------------------------------------------

NOBODY = 65534
PROGRAM = """#!/bin/sh
[ "$1" != --book=flood ] || exec yes > "$2"
mkdir -p deep/er
echo x > deep/er/x
chmod 000 deep/er deep
setsid sleep 4711 &
id -u > "$2"
printf '{"complete": true, "rows": 1}' > "$3"
"""
CONFIGURATION = f"""
secret_keys = ["{SECRET}"]
[datasets.book]
command = ["./make-book", "--book={{book}}", "{{file}}", "{{report}}"]
limits = {{file_bytes = "1 MiB"}}
[datasets.book.formats.txt]
suffix = ".txt"
media_type = "text/plain; charset=utf-8"
[datasets.book.parameters]
book = {{type = "text"}}
[datasets.book.environment]
PATH = "/usr/bin:/bin"
"""


class Ordinary:
    """A folder of a user without rights, and ``haulage`` as that user."""

    def __init__(self, folder: Path):
        self.folder = folder
        (folder / "haulage.toml").write_text(CONFIGURATION)
        (folder / "make-book").write_text(PROGRAM)
        (folder / "make-book").chmod(0o755)
        (folder / "haulage.toml").chmod(0o600)
        self.prefix: list[str] = []
        self.given: dict = {}
        self.python = sys.executable
        if os.getuid() == 0:
            self._give_up_rights()

    def _give_up_rights(self) -> None:
        """As somebody else where an interpreter can be found; else as root without any of its rights."""
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        for python in (sys.executable, f"/usr/bin/{version}"):
            try:
                subprocess.run([python, "-c", "import sqlite3"], user=NOBODY, group=NOBODY, extra_groups=[], check=True)
            except (OSError, subprocess.CalledProcessError):
                continue
            self.python, self.given = python, {"user": NOBODY, "group": NOBODY, "extra_groups": []}
            for path in (self.folder, *self.folder.iterdir()):
                os.chown(path, NOBODY, NOBODY)
            return
        if shutil.which("setpriv") is None:
            pytest.skip("no setpriv here, and no interpreter that another user can run")
        self.prefix = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]

    def run(self, *words: str) -> subprocess.CompletedProcess:
        path = os.pathsep.join(filter(None, sys.path))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HAULAGE_")}
        return subprocess.run(
            [*self.prefix, self.python, "-m", "haulage", *words], cwd=self.folder, env=kept | {"PYTHONPATH": path},
            capture_output=True, text=True, check=False, **self.given,
        )  # fmt: skip

    def daemons(self) -> list[str]:
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if (entry / "cmdline").read_bytes() == b"sleep\x004711\x00":
                    found += [entry.name] if str(self.folder) in str((entry / "cwd").readlink()) else []
        return found

    def left(self) -> list[str]:
        return [str(path) for path in (self.folder / "artifacts" / "work").rglob("*")]


@pytest.fixture
def ordinary():
    # The folder of a test may be one that only root can enter.
    with tempfile.TemporaryDirectory(prefix="haulage-test-") as folder:
        Path(folder).chmod(0o755)
        yield Ordinary(Path(folder))


def test_a_user_without_rights_runs_commands_and_removes_and_ends_what_they_leave(ordinary):
    """A folder that its owner cannot enter, and a process in a session of its own, which root would not mind."""
    good = ordinary.run("export", "book", "-p", "book=moby", "-o", "moby.txt")
    deadline = time.monotonic() + 60
    while ordinary.daemons():
        assert time.monotonic() < deadline
        time.sleep(0.05)

    assert 0 == good.returncode, good.stderr
    uid = ordinary.given.get("user", os.getuid())
    assert (f"{uid}\n", uid) == (
        (ordinary.folder / "moby.txt").read_text(),
        (ordinary.folder / "moby.txt").stat().st_uid,
    )
    assert [] == ordinary.left()


def test_a_user_without_rights_has_the_same_limits(ordinary):
    ended = ordinary.run("export", "book", "-p", "book=flood", "-o", "flood.txt", "--json")

    assert (1, "bytes_exceeded") == (ended.returncode, json.loads(ended.stdout)["failure"]["code"])
    assert not (ordinary.folder / "flood.txt").exists()
    assert [] == ordinary.left()

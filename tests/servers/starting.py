"""What both database servers of the tests need: a folder, a port, a user who is not root, and an end."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

NOBODY = 65534
START_SECONDS = 120
MEMORY = "/dev/shm"  # a commit waits for the disk; thousands of them in a test need not


def runs_as() -> int:
    """The user of a server: not root, which neither of them wants to be run by."""
    return NOBODY if os.geteuid() == 0 else -1


def make_folder(name: str, place: Path | None = None) -> Path:
    """A folder of the server's own, removed when the tests end; in memory where no place is given."""
    if place is None and os.access(MEMORY, os.W_OK):
        place = Path(MEMORY)
    folder = Path(tempfile.mkdtemp(prefix=f"haulage-{name}-", dir=place))
    if runs_as() >= 0:
        os.chown(folder, NOBODY, NOBODY)
    # The folder goes after the server: what was registered last is called first.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def prepare(command: list) -> None:
    """Run a command that makes a server's files, as the user that the server will run as."""
    user = runs_as()
    as_whom = {} if user < 0 else {"user": user, "group": user, "extra_groups": []}
    ran = subprocess.run(command, check=False, capture_output=True, text=True, cwd="/", **as_whom)
    assert ran.returncode == 0, f"{command[0]}: {ran.stdout}{ran.stderr}"


def start(command: list, ending: int, answers, log: Path) -> subprocess.Popen:
    """Start a server and wait until it answers; it ends with this process, however that ends."""
    keeper = Path(__file__).with_name("keeper.py")
    process = subprocess.Popen(
        [sys.executable, "-S", keeper, str(runs_as()), str(int(ending)), *command], stdin=subprocess.PIPE, cwd="/"
    )
    atexit.register(stop, process)
    give_up = time.monotonic() + START_SECONDS
    while not answers():
        ended = process.poll() is not None or time.monotonic() > give_up
        assert not ended, f"{command[0]}: {log.read_text()[-2000:]}"
        time.sleep(0.05)
    return process


def stop(process: subprocess.Popen) -> None:
    process.stdin.close()
    process.wait(60)


def missing(what: str) -> None:
    """Skip a test by the name of the server that is not there."""
    pytest.skip(f"{what} is not installed")

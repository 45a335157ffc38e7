"""Does a volume keep what a store needs? Locks that exclude and end with their holder, names that are taken once,
renames that are seen whole, and an answer to fsync.

``faults_of`` asks from this process at every start. ``doctor`` asks with a second process that is killed
(``deep_faults_of``), and with a second host (``peer.py``): a lock that only one host sees cannot be seen from one host.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from haulage.stores import atomic
from haulage.stores.directory.folder import try_lock

PATIENCE_SECONDS = 20.0  # for a second process to start, or to be gone
READS = 400  # of a file that is replaced all the while
HOLDER = """\
import fcntl, sys
f = open(sys.argv[1])
fcntl.flock(f, fcntl.LOCK_EX)
print('held', flush=True)
sys.stdin.read()
"""
REPLACER = """\
import os, sys
turn = 0
print('replaces', flush=True)
while True:
    turn += 1
    with open(sys.argv[1] + '.new', 'w') as f:
        f.write(str(turn % 10) * 20000)
    os.rename(sys.argv[1] + '.new', sys.argv[1])
"""


def faults_of(folder: Path) -> list[str]:
    """What this process finds wrong, as sentences."""
    with _probing(folder) as probe:
        return [*_lock_faults(probe), *_name_faults(probe), *_sync_faults(probe)]


def deep_faults_of(folder: Path) -> list[str]:
    """The same, and what shows only with a second process that is killed."""
    found = faults_of(folder)
    if not found:
        with _probing(folder) as probe:
            found = [*_death_faults(probe), *_rename_faults(probe)]
    return found


@contextmanager
def _probing(folder: Path) -> Iterator[Path]:
    """A folder of our own to try things in; a patrol finds it if we die in it."""
    probe = folder / f"{atomic.TEMPORARY}probe-{os.getpid()}-{os.urandom(4).hex()}"
    probe.mkdir(mode=0o700)
    try:
        yield probe
    finally:
        for path in probe.iterdir():
            path.unlink()
        probe.rmdir()


def _lock_faults(probe: Path) -> Iterator[str]:
    path = probe / "lock"
    path.touch(mode=0o600)
    with ExitStack() as stack:
        first, second = (os.open(path, os.O_RDWR | os.O_CLOEXEC) for _ in range(2))
        stack.callback(os.close, second)
        try:
            if not try_lock(first):
                yield "flock of a new file is refused"
            elif try_lock(second):
                yield "flock excludes nobody: two had it at once"
        except OSError as problem:
            yield f"flock is refused ({errno.errorcode.get(problem.errno or 0)})"
        finally:
            os.close(first)
        try:
            if not try_lock(second):
                yield "flock is kept although its holder let it go"
        except OSError:
            pass


def _name_faults(probe: Path) -> Iterator[str]:
    first, second, taken = probe / "first", probe / "second", probe / "taken"
    first.write_text("first")
    second.write_text("second")
    try:
        taken.hardlink_to(first)
        try:
            taken.hardlink_to(second)
            yield "a name that is taken can be taken again by a hard link"
        except FileExistsError:
            pass
        if taken.read_text() != "first":
            yield "a hard link has not the content of its file"
    except OSError as problem:
        yield f"hard links are refused ({errno.errorcode.get(problem.errno or 0)})"
    second.rename(first)
    if first.read_text() != "second" or second.exists():
        yield "a rename did not replace the file of that name"
    try:
        os.close(os.open(first, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC))
        yield "a name that is taken can be made again"
    except FileExistsError:
        pass


def _sync_faults(probe: Path) -> Iterator[str]:
    try:
        atomic.replace(probe / "synced", b"synced")
    except OSError as problem:
        yield f"a file or its folder cannot be synced ({errno.errorcode.get(problem.errno or 0)})"


def _death_faults(probe: Path) -> Iterator[str]:
    """A lock of another process is seen here, and is free as soon as that is dead."""
    path = probe / "lock"
    path.touch(mode=0o600)
    with _other(HOLDER, path) as other:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if try_lock(descriptor):
                yield "flock excludes nobody of another process"
                return
            other.send_signal(signal.SIGKILL)
            other.wait(PATIENCE_SECONDS)
            give_up = time.monotonic() + PATIENCE_SECONDS
            while not try_lock(descriptor):
                if time.monotonic() > give_up:
                    yield "flock is kept by a process that is dead"
                    return
                time.sleep(0.01)
        finally:
            os.close(descriptor)


def _rename_faults(probe: Path) -> Iterator[str]:
    """A file that another process replaces all the while is whole whenever it is read."""
    path = probe / "replaced"
    path.write_text("0" * 20_000)
    with _other(REPLACER, path):
        seen = set()
        give_up = time.monotonic() + PATIENCE_SECONDS
        for _ in range(READS):
            try:
                text = path.read_text()
            except FileNotFoundError:
                yield "a file is missing for a moment while it is replaced"
                return
            if len(text) != 20_000 or len(set(text)) != 1:
                yield "a file is seen in part while it is replaced"
                return
            seen.add(text[:1])
        while len(seen) < 2 and time.monotonic() < give_up:
            seen.add(path.read_text()[:1])
        if len(seen) < 2:
            yield "a file that another process replaces stays the old one"


@contextmanager
def _other(program: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process at work on a file, from its first word on."""
    command = [sys.executable, "-S", "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        try:
            other.stdout.readline()
            yield other
        finally:
            other.kill()

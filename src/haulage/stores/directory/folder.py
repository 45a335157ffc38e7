"""One folder that several processes, also of several hosts, write to in turn.

Whoever writes holds a flock on ``lock``; the kernel gives it back when its holder dies. The file holds a count: odd
while somebody writes, raised again when that is done. So a reader that sees the same even count before and after
knows that it saw one instant, and a watcher knows that something changed. The time at which the volume says that
``lock`` was touched is the store's clock: the same for every host that shares the volume, whatever its own says.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from haulage.core import events
from haulage.core.errors import StoreUnavailable
from haulage.stores import forks
from haulage.stores.atomic import READ_FLAGS, read, replace, sync_folder
from haulage.stores.directory.letter import VERSION, Unreadable, opened

LOCK = "lock"
FACTS = "haulage.json"
QUARANTINE = "quarantine"
BUSY_SECONDS = 0.8  # how long a writer waits for other processes: below the beat, so a beat that waits fits its second
TURN_SECONDS = 5.0  # how long a writer waits for the other threads of its process
COUNT_BYTES = 20
WORDS_BYTES = 4096  # of a word why
STALE_SECONDS = 5.0  # a name that was taken for nothing is given up when it is older: nobody is still at work on it


@dataclass(slots=True)
class Writing:
    """The right to write, as long as it is held; only the stores look inside."""

    descriptor: int
    found: int  # the count when the right was taken
    begun: bool = False
    added: dict[str, Any] = field(default_factory=dict)  # runs that are written when nothing broke
    kept: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # idempotency keys, by the run they stand for
    at_end: list[Callable[[int], None]] = field(default_factory=list)  # told the count with which it ended

    def begin(self) -> None:
        """Say that something changes from now on."""
        if not self.begun:
            self.found += 1 if self.found % 2 == 0 else 2  # It is odd where a writer died.
            _write_count(self.descriptor, self.found)
            self.begun = True

    def end(self) -> None:
        """Say that it is done."""
        if self.begun:
            self.found += 1
            _write_count(self.descriptor, self.found)
            self.begun = False
        for told in self.at_end:
            told(self.found)


class Folder:
    """The root of a store, who may write to it, and its clock."""

    def __init__(self, root: Path) -> None:
        """Name it; it must be there."""
        self.root = root
        self._lock = root / LOCK
        self._turn = threading.Lock()
        self.observe: events.Observe = events.ignore
        self.at_fork: list[Callable[[], None]] = []  # told in a forked process, before anything else happens there
        forks.watch_over(self)

    # A store may be opened before a fork (forks.py): the lock is opened at each write, so nothing of it is shared.

    def take_turn(self) -> None:
        """Wait for the other writers of this process."""
        if not self._turn.acquire(timeout=TURN_SECONDS):
            raise StoreUnavailable("too many wait to write to the store")

    def give_turn(self) -> None:
        """Let the next writer of this process go on."""
        self._turn.release()

    def close_unused(self) -> int:
        """There is nothing that a fork would share."""
        return 0

    def begin_anew(self, *, usable: bool) -> None:
        """In a forked process: nobody holds the turn, and no other thread is in the middle of anything."""
        self._turn = threading.Lock()
        for told in self.at_fork:
            told()

    @contextmanager
    def writing(self, tx: Writing | None = None) -> Iterator[Writing]:
        """The right to write, or the one that is given.

        Raises:
            StoreUnavailable: others write for too long, or the folder cannot be used.
        """
        if tx is not None:
            yield tx
            return
        self.take_turn()
        try:
            with answered():
                descriptor = self._take()
            try:  # from here on, so that a disk that does not give the count does not leave us with the lock
                with answered():
                    tx = Writing(descriptor, _read_count(descriptor))
                try:
                    yield tx
                finally:
                    with answered():
                        tx.end()
            finally:
                os.close(descriptor)
        finally:
            self.give_turn()

    def _take(self) -> int:
        """Wait for the lock; it is opened anew each time, so that no forked process shares it."""
        give_up, pause = time.monotonic() + BUSY_SECONDS, 0.0005
        while True:
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                if try_lock(descriptor) and _still_named(descriptor, self._lock):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
            if time.monotonic() > give_up:
                raise StoreUnavailable("another process is writing to the store")
            time.sleep(pause)
            pause = min(0.01, pause * 2)

    def count(self) -> int:
        """The count of changes."""
        try:
            descriptor = os.open(self._lock, READ_FLAGS)
        except FileNotFoundError:
            return 1  # Nobody has written; odd, so that nothing is taken for known.
        try:
            return _read_count(descriptor)
        finally:
            os.close(descriptor)

    def now(self, now: int | None) -> int:
        """The given instant, or the volume's clock, in milliseconds."""
        if now is not None:
            return now
        with answered():
            try:
                os.utime(self._lock)
            except FileNotFoundError:
                self._lock.touch(mode=0o600)
            return milliseconds(self._lock.stat())

    def refuse_if_newer(self) -> None:
        """See that what cannot be read is damage, and not the writing of a newer haulage.

        Raises:
            StoreUnavailable: the store has been given a later version while this process lives.
        """
        try:
            facts = opened("facts", read(self.root / FACTS)[0])
        except (OSError, Unreadable):
            return
        if facts["schema_version"] > VERSION:
            raise StoreUnavailable(
                f"the store has files of version {facts['schema_version']}, this haulage reads version {VERSION}: "
                "install a newer haulage (pip install --upgrade haulage)"
            )

    def quarantine(self, path: Path, why: str) -> None:
        """Move what is no record out of the way, whole, with a word why; the right to write is held."""
        aside, place = self.root / QUARANTINE, f"{path.parent.name}/{path.name}"
        name = f"{path.name}.{os.urandom(4).hex()}"
        replace(aside / f"{name}.why", f"{place}: {why}\n".encode())
        path.rename(aside / name)
        sync_folder(aside)
        sync_folder(path.parent)
        self.observe(events.StateQuarantined(place, why))

    def quarantined(self) -> list[str]:
        """What was moved away so far, a sentence each."""
        with answered():
            return [_words(path) for path in sorted((self.root / QUARANTINE).glob("*.why"))]

    def is_stale(self, path: Path, seconds: float = STALE_SECONDS) -> bool:
        """Say whether a name is so old that whoever took it is not still at work; one that is gone is."""
        try:
            age = self.now(None) - milliseconds(path.lstat())
        except FileNotFoundError:
            return True
        return age > seconds * 1000


@contextmanager
def answered() -> Iterator[None]:
    """Turn what the system raises into StoreUnavailable, with the name of the file and no content."""
    try:
        yield
    except OSError as problem:
        name = f"{Path(os.fsdecode(problem.filename)).name}: " if problem.filename else ""
        raise StoreUnavailable(f"{name}{problem.strerror or type(problem).__name__}") from problem


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Take a flock, if nobody else holds it."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def milliseconds(status: os.stat_result) -> int:
    """When the volume says that a file was written or touched."""
    return status.st_mtime_ns // 1_000_000


def _words(path: Path) -> str:
    try:
        words = read(path, WORDS_BYTES)[0].decode(errors="replace").strip()
    except OSError:
        words = ""
    return words or f"quarantine/{path.name}: it does not say what was wrong"


def _still_named(descriptor: int, path: Path) -> bool:
    """Say whether a file that was locked is still the one of that name, and not one that was removed."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


def _read_count(descriptor: int) -> int:
    text = os.pread(descriptor, COUNT_BYTES, 0)
    try:
        return int(text) if text else 0
    except ValueError:
        return time.time_ns() | 1  # Somebody wrote something else into it: far from every count that is known.


def _write_count(descriptor: int, count: int) -> None:
    os.pwrite(descriptor, f"{count:{COUNT_BYTES}d}".encode(), 0)

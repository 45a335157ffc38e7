"""What can stop a statement of SQLite, by name: our own limits, cells and text that need more care, and faults.

SQLite unlinks the temporary files of a sort as it opens them, so their size is read from the process's own
descriptors; a watch interrupts the statement when they, or its time, are over their limit.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from haulage.core.errors import BuildFailed
from haulage.sources.query import without_values

WATCH_SECONDS = 0.05
_CODES = {  # what SQLite's names begin with; any other is a fault of the query
    "SQLITE_BUSY": "source_locked",
    "SQLITE_LOCKED": "source_locked",
    "SQLITE_CANTOPEN": "source_unavailable",
    "SQLITE_NOTADB": "source_unavailable",
    "SQLITE_PERM": "source_unavailable",
    "SQLITE_AUTH": "source_unavailable",
    "SQLITE_READONLY": "source_unavailable",  # as a journal that only a writer could roll back
    "SQLITE_IOERR_WRITE": "storage_failed",  # nothing is written but the temporary files of a sort
    "SQLITE_IOERR": "source_unavailable",
    "SQLITE_FULL": "no_space",
    "SQLITE_NOMEM": "out_of_memory",
}


class NotText(BuildFailed):
    """The driver met text that is no UTF-8."""


class TooLarge(BuildFailed):
    """The statement met a cell, or a row on its way through a sort, over the limit that was set."""


class Interrupted(BuildFailed):
    """A statement was interrupted by one of our own watches."""


@contextmanager
def told(binds: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Turn what the driver raises into a failure with a code; its words are for the log only.

    Args:
        binds: what was bound; the log shall hold no value, neither of these nor of a row.
    """
    try:
        yield
    except (sqlite3.Error, sqlite3.Warning) as problem:
        name = getattr(problem, "sqlite_errorname", None) or ""
        code = next((code for start, code in _CODES.items() if name.startswith(start)), "source_failed")
        kind = BuildFailed
        if "Could not decode to UTF-8" in str(problem):
            kind = NotText
        elif name == "SQLITE_TOOBIG":
            kind = TooLarge
        elif name == "SQLITE_INTERRUPT":
            kind = Interrupted
        raise kind(code, cause=f"{name or type(problem).__name__}: {without_values(str(problem), binds)}") from problem
    except (OverflowError, ValueError) as problem:  # of a bind or of the SQL's own text
        raise BuildFailed("source_failed", cause=str(problem)) from problem


class Watch:
    """While it is entered, sorting may take so much space and the statement so much time, unless it is given up.

    It interrupts again and again: an interrupt that comes before the statement has begun is lost.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        sort_bytes: int | None = None,
        seconds: float | None = None,
        given_up: Callable[[], bool] | None = None,
    ) -> None:
        """What is None is not looked at."""
        self._connection = connection
        self._sort_bytes = sort_bytes
        self._until = None if seconds is None else time.monotonic() + seconds
        self._every = WATCH_SECONDS if seconds is None else max(0.001, min(WATCH_SECONDS, seconds))
        self._given_up = given_up
        self._over = False
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="watch")

    def __enter__(self) -> None:
        """Begin to look."""
        self._thread.start()

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        """End before the next statement begins, and name what ended this one when it was for its space."""
        self._done.set()
        self._thread.join()
        if self._over and isinstance(problem, BuildFailed):
            limit = f"Sorting the rows needed more than the {self._sort_bytes:,} bytes allowed."
            raise BuildFailed("sort_space_exceeded", limit) from problem

    def _watch(self) -> None:
        while not self._done.wait(self._every):
            if self._has_to_end():
                self._connection.interrupt()

    def _has_to_end(self) -> bool:
        if self._sort_bytes is not None and unlinked_bytes() > self._sort_bytes:
            self._over = True
            return True
        if self._until is not None and time.monotonic() >= self._until:
            return True
        return self._given_up is not None and self._given_up()


def unlinked_bytes() -> int:
    """Bytes of files that this process holds open and that have no name any more: SQLite's sorting."""
    total = 0
    try:
        descriptors = os.listdir("/proc/self/fd")  # noqa: PTH208 - pathlib takes 6 ms to load
    except OSError:
        return 0
    for descriptor in map(int, descriptors):
        try:
            status = os.fstat(descriptor)
        except OSError:  # as the one that listed them
            continue
        if status.st_nlink == 0 and stat.S_ISREG(status.st_mode):
            total += status.st_size
    return total

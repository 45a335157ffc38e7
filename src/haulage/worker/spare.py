"""A child that has started before its run is known: to start one and load a driver takes longer than a small file.

It has no folder, no order and no limits yet, and nothing of a run has ever been in it: each child still builds one
file and ends. The supervisor's thread starts it, since a child ends with the thread that started it, and a lane takes
it. Runs of the host's own code have no use for it: a keeper stands above those.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress

from haulage.core.limits import MIB
from haulage.worker.process import Child

MEMORY_FROM = 256 * MIB  # of a build; in less, a driver that it does not need would be missing


class Spare:
    """At most one child that waits."""

    def __init__(self, loads: Sequence[str] = ()) -> None:
        """``loads`` are the technologies of the sources whose drivers it loads."""
        self._loads = loads
        self._child: Child | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Have one, if there is none that lives. The thread that calls must live as long as the child does."""
        with self._lock:
            if self._child is not None and self._child.ended():
                self._child.reap()
                self._child = None
            if self._child is None:
                with suppress(OSError):  # A lane that can start none either says so of its run.
                    self._child = Child(loads=self._loads)

    def take(self, memory_bytes: int) -> Child | None:
        """The child that waits, if one does, for a build that may have so much memory."""
        if memory_bytes < MEMORY_FROM:
            return None
        with self._lock:
            child, self._child = self._child, None
        if child is not None and child.ended():
            child.reap()
            return None
        return child

    def close(self) -> None:
        """End it."""
        child = self.take(MEMORY_FROM)
        if child is not None:
            child.reap()

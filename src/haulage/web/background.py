"""The sweep in a web process, so that limits hold while no worker lives. Never inside a request."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from haulage.core import events
from haulage.core.errors import StoreUnavailable

PASS_SECONDS_MIN = 1.0  # at most one pass a second in a process


class SweepThread:
    """A thread that sweeps, started when it is first needed; a forked process starts its own."""

    def __init__(self, sweep: Callable[[], object], seconds: float, observe: events.Observe) -> None:
        """``sweep`` is one pass."""
        self._sweep = sweep
        self._seconds = max(PASS_SECONDS_MIN, seconds)
        self._observe = observe
        self._lock = threading.Lock()
        self._process = 0
        self._ended = threading.Event()

    def start(self) -> None:
        """Sweep from now on, if this process does not yet."""
        if self._process == os.getpid():
            return
        with self._lock:
            if self._process != os.getpid():
                self._process = os.getpid()
                threading.Thread(target=self._sweep_on, daemon=True, name="haulage sweep").start()

    def stop(self) -> None:
        """End after the pass that is under way."""
        self._ended.set()

    def _sweep_on(self) -> None:
        while not self._ended.wait(self._seconds):
            try:
                self._sweep()
            except StoreUnavailable as problem:
                self._observe(events.StoreFailed("sweep", str(problem), self._seconds))
            except Exception as problem:  # noqa: BLE001 - one bad pass must not be the last
                self._observe(events.Incident("sweep", "sweep", f"{type(problem).__name__}: {problem}"[:500]))

"""The beat: one transaction a second renews every lease of this worker, stores progress, learns of cancels.

It runs in a thread of its own, never in a loop that runs work. A lease is trusted from when the beat *began*
(``core/lease.py``); the lane that holds it looks at ``trusted_until`` by itself, so a beat that hangs in a
store that does not answer cannot keep a child alive.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from haulage.core import events
from haulage.core.errors import StoreUnavailable
from haulage.core.lease import Held, trusted_until
from haulage.core.limits import ExportLimits
from haulage.core.ports import Runs
from haulage.core.progress import Progress


@dataclass(slots=True)
class Holding:
    """What the beat and a lane know of one held run; each member has one writer."""

    held: Held
    trusted_until: float  # monotonic seconds; written by the beat
    cancel_requested: bool = False  # written by the beat
    lost: bool = False  # written by the beat
    progress: Progress | None = None  # written by the lane
    written: Progress | None = None  # written by the beat


class Heartbeat:
    """Beats for every run that this worker holds."""

    def __init__(
        self,
        runs: Runs[object],
        limits: ExportLimits,
        announce: Callable[[], None],
        observe: events.Observe,
    ) -> None:
        """``announce`` renews the worker's presence; it is called about every fifth of its limit."""
        self._runs = runs
        self._limits = limits
        self._announce = announce
        self._observe = observe
        self._holdings: dict[Held, Holding] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, daemon=True, name="heartbeat")

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def stop(self) -> None:
        """End after the beat that is under way."""
        self._ended.set()
        self._wake.set()
        self._thread.join(self._limits.lease_seconds)

    def hold(self, held: Held, began: float) -> Holding:
        """Beat for a run from now on; ``began`` is when its claim was begun."""
        holding = Holding(held, trusted_until(began, self._limits.lease_seconds))
        with self._lock:
            self._holdings[held] = holding
        return holding

    def let_go(self, held: Held) -> None:
        """Beat for it no longer."""
        with self._lock:
            self._holdings.pop(held, None)

    def progressed(self, holding: Holding, progress: Progress) -> None:
        """Have progress stored, at the next beat or sooner."""
        first = holding.progress is None or holding.progress.phase != progress.phase
        holding.progress = progress
        if first:
            self._wake.set()

    def _beat_on(self) -> None:
        limits = self._limits
        presence_due = beat_due = 0.0
        answered = True
        while not self._ended.is_set():
            now = time.monotonic()
            if now >= presence_due:
                presence_due = now + limits.presence_seconds / 5
                self._try(self._announce, "presence")
            # News waits for the next beat where the last one was not taken: a store in trouble is not asked more often.
            if now >= beat_due or (answered and self._has_news()):
                beat_due = now + limits.beat_seconds
                answered = self._try(self._beat, "heartbeat")
            waits = limits.progress_seconds if self._holdings else min(1.0, limits.beat_seconds)
            self._wake.wait(waits)
            self._wake.clear()

    def _has_news(self) -> bool:
        with self._lock:
            return any(holding.progress is not holding.written for holding in self._holdings.values())

    def _try(self, act: Callable[[], None], where: str) -> bool:
        try:
            act()
            return True
        except StoreUnavailable as problem:
            self._observe(events.StoreFailed(where, str(problem), self._limits.beat_seconds))
        except Exception as problem:  # noqa: BLE001 - without its beat a worker would lose every run it claims
            self._observe(events.Incident(where, "heartbeat", f"{type(problem).__name__}: {problem}"))
        return False

    def _beat(self) -> None:
        with self._lock:
            holdings = list(self._holdings.values())
        if not holdings:
            return
        began = time.monotonic()
        news = [(each, each.progress) for each in holdings]
        pulses = self._runs.heartbeat(
            [(each.held, progress if progress is not each.written else None) for each, progress in news],
            lease_seconds=self._limits.lease_seconds,
        )
        for holding, progress in news:
            pulse = pulses[holding.held]
            if not pulse.held:
                holding.lost = True
            else:
                holding.trusted_until = trusted_until(began, self._limits.lease_seconds)
                holding.written = progress
                holding.cancel_requested = pulse.cancel_requested

"""The loop that sweeps every few seconds and at its start. The rules of a pass belong to the flow's life."""

from __future__ import annotations

import threading

from haulage.core import events
from haulage.core.errors import BuildFailed, StoreUnavailable
from haulage.exports.expire import ExportSweep, SweepReport
from haulage.sources.processes import end_forsaken


class Sweeper:
    """Sweeps in a thread of its own until stopped."""

    def __init__(self, sweep: ExportSweep, every_seconds: float, observe: events.Observe) -> None:
        """Prepare; ``start`` begins."""
        self._sweep = sweep
        self._every_seconds = every_seconds
        self._observe = observe
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sweep_on, daemon=True, name="sweeper")

    def start(self) -> None:
        """Begin with a pass at once."""
        self._thread.start()

    def stop(self) -> None:
        """End after the pass that is under way."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(self._every_seconds)

    def pass_once(self, now: int | None = None) -> SweepReport:
        """One pass; what builds left that were killed with their keeper is ended first, so that none writes on."""
        self._end_forsaken()
        return self._sweep.pass_once(now)

    def _end_forsaken(self) -> None:
        try:
            end_forsaken()
        except (BuildFailed, OSError) as problem:
            self._observe(events.Incident("sweep", "sweep", str(problem)))

    def _sweep_on(self) -> None:
        while not self._ended.is_set():
            try:
                self.pass_once()
            except StoreUnavailable as problem:
                self._observe(events.StoreFailed("sweep", str(problem), self._every_seconds))
            except Exception as problem:  # noqa: BLE001 - one bad pass must not end all sweeping
                self._observe(events.Incident("sweep", "sweep", f"{type(problem).__name__}: {problem}"))
            self._ended.wait(self._every_seconds)

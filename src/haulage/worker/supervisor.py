"""Claims runs and gives each a lane; drains on TERM, stops at once on INT.

The claim loop looks when the store's hint says that something changed, when a lane becomes free, and at
least once a second. A store that fails makes it wait longer each time, up to five seconds, and look again.
"""

from __future__ import annotations

import math
import os
import random
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from types import FrameType
from typing import Protocol

from haulage.core import events
from haulage.core.clock import new_id
from haulage.core.errors import HaulageError, StoreUnavailable
from haulage.core.limits import ExportLimits
from haulage.core.ports import Presence, Runs, Terms, Watcher, Workers
from haulage.exports.life import ExportRun
from haulage.worker.heartbeat import Heartbeat
from haulage.worker.lanes import Bench, Lane, Workshop
from haulage.worker.spare import Spare
from haulage.worker.sweeper import Sweeper

HINT_SECONDS = 0.02  # between two looks at the hint of a store that cannot call us
NEAR_SECONDS = 0.004  # between two looks right after a write; its commit comes a little later
FADING = 4  # later looks come after a quarter of the time that has passed since the write
LOOK_SECONDS = 1.0  # without a hint the queue is looked at all the same
BACKOFF_SECONDS_MAX = 5.0
CALM_SECONDS = (
    1.0  # after the last claim, before a spare child is started: beside a build that starts it would cost time
)


class WorkerStore(Protocol):
    """What a worker needs of a store."""

    @property
    def exports(self) -> Runs[ExportRun]:
        """The export table."""

    @property
    def workers(self) -> Workers:
        """Presence."""

    def watch(self) -> Watcher:
        """A hint that something changed."""

    def refusal(self) -> str | None:
        """Why this version may not claim here; None when it may."""


class Supervisor:
    """One worker process. ``run`` blocks until it was drained or stopped."""

    def __init__(
        self,
        store: WorkerStore,
        artifacts: Workshop,
        limits: ExportLimits,
        sweeper: Sweeper,
        *,
        source_of: Callable[[str], tuple[str, float]],
        permit: Callable[[ExportRun], None],
        revision: Callable[[ExportRun], str | None] = lambda _run: None,
        lanes: int,
        version: str,
        only_run: str | None = None,
        loads: Sequence[str] = (),
        observe: events.Observe = events.ignore,
    ) -> None:
        """Every start has an id of its own, so that no restart is taken for its predecessor.

        Args:
            loads: the technologies of sources whose drivers a spare child loads.
            only_run: a private worker claims this run and no other, and counts for nobody else.
        """
        self.id = new_id()
        self.ready = threading.Event()
        self._store = store
        self._limits = limits
        self._sweeper = sweeper
        self._observe = observe
        self._lanes_max = lanes
        self._lanes: set[Lane] = set()
        self._lock = threading.Lock()
        self._bell = Bell()
        self._stirred_at = -math.inf  # monotonic seconds
        self._draining = False
        self._stopping = False
        self._refusal: str | None = None
        self._presence = Presence(
            id=self.id,
            host=socket.gethostname()[:200],
            pid=os.getpid(),
            version=version,
            state="claiming",
            lanes=lanes,
            started_at=0,
            seen_at=0,
            only_run=only_run,
        )
        self._heartbeat = Heartbeat(store.exports, limits, self._announce, observe)  # type: ignore[arg-type]  # any Runs beats
        self._spare = Spare(loads)
        self._claimed_at = time.monotonic()  # or begun to
        self._bench = Bench(
            store.exports, artifacts, limits, self._heartbeat, source_of, permit, observe, revision, self._spare
        )
        self._terms = Terms(
            worker=self.id,
            lease_seconds=limits.lease_seconds,
            slots=limits.slots,
            tenant_running=limits.tenant_running,
            store_bytes=limits.store_bytes,
            grace_seconds=limits.stop_seconds * 2,
            only=only_run,
        )

    def run(self) -> None:
        """Work until drained. In the main thread TERM drains and INT stops at once."""
        restore_signals = self._install_signals()
        try:
            self._announce_until_heard()
            self._heartbeat.start()
            self._sweeper.start()
            self._observe(events.WorkerStarted(self.id, os.getpid()))
            self.ready.set()
            try:
                self._claim_on()
            finally:  # Also when the loop itself broke: builds are ended in order, not left without a beat.
                self._wind_down()
                self._sweeper.stop()
                self._heartbeat.stop()
                self._leave()
        finally:
            restore_signals()

    def drain(self) -> None:
        """Claim no more; running builds may finish within the grace. A signal handler may call it."""
        self._draining = True
        self._bell.ring()

    def stop(self) -> None:
        """Claim no more, and end running builds now. A signal handler may call it."""
        self._stopping = True
        self.drain()

    # -- claiming ----------------------------------------------------------------------------------

    def _claim_on(self) -> None:
        watcher: Watcher | None = None
        backoff = look_at = 0.0
        rung = False
        while not self._draining:
            try:
                watcher = watcher or self._store.watch()
                if self._free() and (watcher.changed() or rung or time.monotonic() >= look_at):
                    look_at = time.monotonic() + LOOK_SECONDS
                    while self._free() and self._claim_one():
                        self._claimed_at = time.monotonic()
                backoff = 0.0
                if self._terms.only is None and self._free() and time.monotonic() > self._claimed_at + CALM_SECONDS:
                    self._spare.start()
                # Waiting can fail too: who tells of changes does it by a connection.
                rung = self._wait_for_a_change(watcher) if self._free() else self._bell.wait(LOOK_SECONDS)
            except Exception as problem:  # noqa: BLE001 - a row that a disk has damaged must not end every worker
                backoff = min(BACKOFF_SECONDS_MAX, max(0.1, backoff * 2)) * random.uniform(0.8, 1.0)  # noqa: S311 - spreads workers, guards nothing
                if isinstance(problem, StoreUnavailable):
                    self._observe(events.StoreFailed("claim", str(problem), backoff))
                else:
                    self._observe(events.Incident("claim", "supervisor", _words(problem)))
                if watcher is not None:
                    watcher.close()  # It may look at a file that is not there any more.
                watcher = None
                rung = self._bell.wait(backoff)
        if watcher is not None:
            watcher.close()

    def _wait_for_a_change(self, watcher: Watcher) -> bool:
        """Wait until another look at the hint makes sense; say whether the bell rang."""
        if watcher.descriptor is None:
            return self._bell.wait(HINT_SECONDS)
        now = time.monotonic()
        if watcher.stirred():
            self._stirred_at = now
        # A commit that was seen ends nothing: the write may have been another's, whose commit is still to come.
        gap = max(NEAR_SECONDS, (now - self._stirred_at) / FADING)
        return self._bell.wait(min(gap, LOOK_SECONDS), watcher.descriptor if gap > NEAR_SECONDS else None)

    def _free(self) -> bool:
        return not self._draining and len(self._lanes) < self._lanes_max

    def _claim_one(self) -> bool:
        began = time.monotonic()
        claimed = self._store.exports.claim(self._terms)
        if claimed is None:
            return False
        held, run = claimed
        waited = (run.started_at or 0) - run.requested_at
        self._observe(events.RunClaimed("export", run.id, held.claim_no, waited))
        lane = Lane(self._bench, held, run, began, lambda: self._freed(lane))
        with self._lock:  # so that it cannot be free again before it is known
            lane.thread.start()
            self._lanes.add(lane)
        return True

    def _freed(self, lane: Lane) -> None:
        with self._lock:
            self._lanes.discard(lane)
        self._bell.ring()

    # -- presence and the end ----------------------------------------------------------------------

    def _announce(self) -> None:
        # The store may have been migrated since; the claim itself looks again (stores/runs.py).
        refusal = self._store.refusal()
        if refusal is not None and refusal != self._refusal:
            self._observe(events.WorkerRefuses(self.id, refusal))
        self._refusal = refusal
        state = "draining" if self._draining else "claiming" if refusal is None else "refusing"
        self._store.workers.announce(replace(self._presence, state=state))

    def _announce_until_heard(self) -> None:
        wait = 0.1
        while not self._draining:
            try:
                self._announce()
            except StoreUnavailable as problem:
                self._observe(events.StoreFailed("presence", str(problem), wait))
                self._bell.wait(wait)
                wait = min(BACKOFF_SECONDS_MAX, wait * 2)
            else:
                return

    def _wind_down(self) -> None:
        """Let running builds finish within the grace, then stop them."""
        self._draining = True
        grace = 0.0 if self._stopping else self._limits.drain_seconds
        self._observe(events.WorkerDraining(self.id, grace))
        try:
            self._announce()
        except StoreUnavailable as problem:
            self._observe(events.StoreFailed("presence", str(problem), 0))
        until = time.monotonic() + grace
        while self._lanes and time.monotonic() < until and not self._stopping:
            self._bell.wait(0.1)
        with self._lock:
            lanes = list(self._lanes)
        for lane in lanes:
            lane.stop()
        for lane in lanes:
            lane.thread.join()
        self._spare.close()

    def _leave(self) -> None:
        try:
            self._store.workers.leave(self.id)
        except StoreUnavailable as problem:
            self._observe(events.StoreFailed("leave", str(problem), 0))
        self._observe(events.WorkerStopped(self.id))

    def _install_signals(self) -> Callable[[], None]:
        """In the main thread TERM drains and INT stops; gives back what undoes it."""
        if threading.current_thread() is not threading.main_thread():
            return lambda: None

        def drain(_number: int, _frame: FrameType | None) -> None:
            self.drain()

        def stop(_number: int, _frame: FrameType | None) -> None:
            self.stop()

        acts = {signal.SIGTERM: drain, signal.SIGINT: stop}
        before = {number: signal.signal(number, act) for number, act in acts.items()}

        def restore() -> None:
            for number, act in before.items():
                signal.signal(number, act)

        return restore


def _words(problem: Exception) -> str:
    """What the log may know: the message of an error that is not ours may hold what stands in a row."""
    return str(problem) if isinstance(problem, HaulageError) else type(problem).__name__


class Bell:
    """Wakes the claim loop; lanes ring it, and signal handlers.

    A pipe, not a threading.Event: the lock of an Event may be held by the very thread that a signal handler
    interrupts, and the worker would hang instead of draining. To wait at a pipe also costs half as much.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._poll = select.poll()
        self._poll.register(self._read, select.POLLIN)

    def ring(self) -> None:
        """Have the one who waits, or the next to wait, wait no longer."""
        with suppress(BlockingIOError):  # It is full of rings already.
            os.write(self._write, b".")

    def wait(self, seconds: float, other: int | None = None) -> bool:
        """Wait for a ring, and say whether there was one; rings that came together are one.

        Args:
            other: a descriptor whose word ends the wait too, without being a ring.
        """
        if other is not None:
            self._poll.register(other, select.POLLIN)
        try:
            heard = {descriptor for descriptor, _ in self._poll.poll(seconds * 1000)}
        finally:
            if other is not None:
                self._poll.unregister(other)
        if self._read not in heard:
            return False
        os.read(self._read, select.PIPE_BUF)
        return True

    def __del__(self) -> None:
        """The pipe is closed when nobody can ring any more; earlier, its numbers could be somebody else's."""
        os.close(self._read)
        os.close(self._write)

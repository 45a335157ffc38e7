"""One run from its claim to its settle, in one thread: the story of a build, told in order.

    see that it may  ->  start the child  ->  listen  ->  reap  ->  publish or remove  ->  settle

While the child works this thread never asks the store anything: what it must know of cancel and lease comes
from the heartbeat, and if that falls silent the lease's own clock ends the child.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from haulage.core import events
from haulage.core.errors import CATALOGUE, BuildFailed, HaulageError, StoreUnavailable, kind_of
from haulage.core.lease import CancelWanted, Held, LeaseLost
from haulage.core.lifecycle import Move
from haulage.core.limits import ExportLimits
from haulage.core.ports import After, Query, Runs
from haulage.core.progress import Progress
from haulage.exports.build import BuildOrder
from haulage.exports.life import ExportLife, ExportRun
from haulage.exports.offered import format_made
from haulage.exports.stored import told, unreadable
from haulage.formats import file_name, media_type
from haulage.sources import COUNT_BESIDE, end_session, scheme_of
from haulage.worker.heartbeat import Heartbeat, Holding
from haulage.worker.host import host_of
from haulage.worker.process import Child
from haulage.worker.spare import Spare

LISTEN_SECONDS = 0.1  # between two looks at cancel, lease and clock
SETTLE_RETRY_SECONDS = 60  # how long a settle is tried again when the store does not answer
REMOVE_RETRY_SECONDS = 10  # how long bytes are tried to be removed before the sweep takes that over


class Workshop(Protocol):
    """Where a lane's artifacts are made; ``artifacts.local.LocalArtifacts`` is one."""

    def begin(self, key: str) -> Path:
        """Make the folder of one build."""

    def upload(self, key: str, file_bytes: int, seconds: float) -> Mapping[str, Any] | None:
        """Where a build sends so many bytes within so many seconds; None when it writes into its folder."""

    def publish(self, key: str, expected_bytes: int, *, sha256: str | None = None, etag: str | None = None) -> None:
        """Give a verified file its final name."""

    def remove(self, key: str) -> bool:
        """Remove everything of a key."""

    def size(self, key: str) -> int:
        """Bytes that lie under a key."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What every lane of a worker works with."""

    runs: Runs[ExportRun]
    artifacts: Workshop
    limits: ExportLimits
    heartbeat: Heartbeat
    source_of: Callable[[str], tuple[str, float]]  # a source's URL and busy time; KeyError when unknown
    permit: Callable[[ExportRun], None]  # raises BuildFailed("permission_lost")
    observe: events.Observe
    revision: Callable[[ExportRun], str | None] = lambda _run: None  # of what may be seen, where code of the host says
    spare: Spare = field(default_factory=Spare)


class Stop(StrEnum):
    """Why a child is ended before it is done."""

    CANCEL = "cancel"
    LEASE = "lease"
    OVERTIME = "overtime"
    SHUTDOWN = "shutdown"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a build ended: a move to make, and what to write with it. Decided first, then acted upon."""

    move: Move
    values: Mapping[str, Any]
    cause: str | None = None
    etag: str | None = None  # what a store of objects must call the finished bytes; None lets them be read back

    @property
    def code(self) -> str | None:
        """The failure's code."""
        return self.values.get("failure_code")


class Lane:
    """Works on one held run; ``finished`` is called when the lane is free again."""

    def __init__(self, bench: Bench, held: Held, run: ExportRun, began: float, finished: Callable[[], None]) -> None:
        """``began`` is the monotonic time at which the claim was begun."""
        self._bench = bench
        self._held = held
        self._run = run
        self._began = began
        self._finished = finished
        self._shutdown = threading.Event()
        self._url = ""  # of the source
        self._revision: str | None = None  # of what may be seen, as the host said before the build
        self._session: str | None = None  # in which a server works for the child
        self._holding: Holding
        self.thread = threading.Thread(target=self._work, name=f"lane {run.id}")

    def stop(self) -> None:
        """End the child because the worker shuts down."""
        self._shutdown.set()

    def _work(self) -> None:
        bench = self._bench
        # Not before: a lane whose thread cannot start would beat for a run that nobody builds.
        self._holding = bench.heartbeat.hold(self._held, self._began)
        try:
            self._end(self._build())
        except LeaseLost:
            self._discard()
        except Exception as problem:  # noqa: BLE001 - a lane that dies silently would keep its slot
            # Whether a settle was made is not known here, so the file is left as it is, for the sweep: to discard
            # it now could take it from a run that is ready.
            bench.observe(events.Incident(self._run.id, "lane", f"{type(problem).__name__}: {problem}"))
        finally:
            bench.heartbeat.let_go(self._held)
            self._finished()

    # -- building ----------------------------------------------------------------------------------

    def _build(self) -> Outcome:
        """Run the child and decide what became of it. Whatever goes wrong in here is an outcome.

        Raises:
            LeaseLost: the run is not ours any more.
        """
        try:
            child = self._start()
            stop: Stop | None = None
            last: dict[str, Any] = {}
            try:
                stop, last = self._listen(child)
            finally:
                returned = child.reap()
                if not last:
                    self._end_session()
            return self._outcome(stop, last, returned, child.last_words)
        except BuildFailed as failed:
            return _failed(failed.code, failed.detail, failed.cause)
        except LeaseLost:
            raise
        except Exception as problem:  # noqa: BLE001 - of the host's own rules, for example
            self._bench.observe(events.Incident(self._run.id, "lane", f"{type(problem).__name__}: {problem}"))
            return _failed("build_failed", cause=type(problem).__name__)

    def _start(self) -> Child:
        bench, run = self._bench, self._run
        if damaged := unreadable(run):  # First: nobody can be asked whether one may who cannot be read.
            raise BuildFailed("stored_unreadable", told(damaged), cause=f"column {', '.join(damaged)}")
        bench.permit(run)
        self._revision = bench.revision(run)
        if not run.reserved_bytes:
            raise BuildFailed("storage_exceeded")
        host = host_of(run)
        try:
            url, busy_seconds = ("", 0.0) if host else bench.source_of(run.source)
        except KeyError:
            raise BuildFailed("source_gone", cause=run.source) from None
        assert run.artifact_key is not None
        folder = bench.artifacts.begin(run.artifact_key)
        seconds = run.generation_ms / 1000 + bench.limits.stop_seconds
        upload = bench.artifacts.upload(run.artifact_key, min(run.file_bytes, run.reserved_bytes), seconds)
        order = BuildOrder(
            source_url=url,
            busy_seconds=busy_seconds,
            folder=str(folder),
            plan=run.plan,
            format=run.format,
            options=run.options,
            compression=run.compression,
            file_bytes=run.file_bytes,
            reserved_bytes=run.reserved_bytes,
            progress_seconds=bench.limits.progress_seconds,
            upload=upload,
            seconds=seconds,
            connections=self._connections(url),
            host=host,
        )
        self._url = url
        spare = None if host else bench.spare.take(run.plan["limits"]["memory_bytes"])
        if spare is not None:
            spare.give(order.to_json())
            return spare
        try:
            return Child(order.to_json(), kept=host is not None)
        except OSError as problem:
            raise BuildFailed("build_failed", cause=f"no process could be started: {problem}") from problem

    def _connections(self, url: str) -> int:
        """How many connections to its source the build may have: one, and one for each slot that is idle."""
        wanted, slots = int(self._run.plan.get("parallel", 1)), self._bench.limits.slots
        if scheme_of(url) in COUNT_BESIDE:
            wanted = max(2, wanted)
        if wanted == 1:
            return 1
        try:
            running = len(self._bench.runs.list(Query(state=ExportLife.claim.target, limit=slots)))
        except HaulageError:  # It is only about speed.
            return 1
        return max(1, min(wanted, 1 + slots - running))

    def _listen(self, child: Child) -> tuple[Stop | None, dict[str, Any]]:
        """Follow the child until it ended; answer why it was stopped, if it was, and its last message."""
        stop: Stop | None = None
        kill_at = float("inf")
        last: dict[str, Any] = {}
        while True:
            ended = child.ended()  # asked before listening, so that nothing it said is missed
            for message in child.messages(0 if ended else LISTEN_SECONDS):
                if "phase" in message:
                    self._bench.heartbeat.progressed(self._holding, Progress(**message))
                elif "session" in message:
                    self._session = message["session"]
                else:
                    last = message
            if ended:
                return stop, last
            now = time.monotonic()
            if stop is None and not last:
                stop = self._reason_to_stop()
                if stop is not None:
                    child.signal(signal.SIGTERM)
            if kill_at == float("inf") and (stop or last or child.silent):
                # It was told to end, or has nothing more to say; a child that then does not end is ended.
                kill_at = now + self._bench.limits.stop_seconds
            if now >= kill_at:
                child.kill()

    def _reason_to_stop(self) -> Stop | None:
        now = time.monotonic()
        if self._holding.lost or now >= self._holding.trusted_until:
            return Stop.LEASE
        if self._holding.cancel_requested:
            return Stop.CANCEL
        if now >= self._began + self._run.generation_ms / 1000:
            return Stop.OVERTIME
        return Stop.SHUTDOWN if self._shutdown.is_set() else None

    def _end_session(self) -> None:
        """End what a server still does for a child that has died without a last word."""
        if self._session is None:
            return
        try:
            if end_session(self._url, self._session, self._bench.limits.stop_seconds):
                return
            why = "it does not end"
        except BuildFailed as failed:
            why = failed.cause or failed.detail
        self._bench.observe(events.Incident(self._run.id, "source", f"session {self._session}: {why}"))

    def _outcome(self, stop: Stop | None, last: dict[str, Any], returned: int, words: str) -> Outcome:
        """What a child that has ended leads to: why it was stopped counts, then what it said, then how it died."""
        if stop is Stop.LEASE:
            raise LeaseLost(self._run.id)
        if stop is Stop.CANCEL:
            return Outcome(ExportLife.stop, {})
        if stop is Stop.OVERTIME:
            seconds = self._run.generation_ms / 1000
            return _failed("generation_timeout", f"Building the file took longer than the {seconds:g} s allowed.")
        if stop is Stop.SHUTDOWN:
            return _failed("worker_stopped")
        if "built" in last:
            return self._finish(last["built"])
        if "failed" in last:
            return _failed(last["failed"], last["detail"], last["cause"])
        return _died(returned, words)

    def _finish(self, built: dict[str, Any]) -> Outcome:
        run = self._run
        fmt = format_made(run)
        return Outcome(
            ExportLife.finish,
            {
                "rows": built["rows"],
                "processed": built["rows"],
                "total": built["total"],
                "logical_count": built["logical_count"],
                "bytes": built["bytes"],
                "stored_bytes": built["bytes"],
                "sha256": built["sha256"],
                "snapshot_at": built["snapshot_at"],
                "columns": built["columns"],
                "notices": built["notices"],
                "complete": built["complete"],
                "policy_revision": self._revision or built["policy_revision"],
                "file_name": file_name(run.dataset, fmt, run.compression),
                "media_type": media_type(fmt, run.compression),
                "expires_at": After(self._bench.limits.expiry_seconds),
            },
            etag=None if run.plan.get("verify") == "full" else built["etag"],
        )

    # -- ending ------------------------------------------------------------------------------------

    def _end(self, outcome: Outcome) -> None:
        """Publish or remove, then settle. Bytes first: only a run without bytes says cancelled or failed."""
        if outcome.move is ExportLife.finish:
            try:
                key, built = self._run.artifact_key, outcome.values
                assert key is not None
                self._bench.artifacts.publish(key, built["bytes"], sha256=built["sha256"], etag=outcome.etag)
            except BuildFailed as failed:
                outcome = _failed(failed.code, failed.detail, failed.cause)
        try:
            self._settle(outcome)
        except CancelWanted:
            # The cancel came between the last look and the settle: it wins, and the file goes.
            self._settle(Outcome(ExportLife.stop, {}))

    def _settle(self, outcome: Outcome) -> None:
        bench, run = self._bench, self._run
        values = dict(outcome.values)
        if outcome.move is not ExportLife.finish:
            if self._remove():
                values["artifact_key"] = None
            elif outcome.move is ExportLife.stop:
                return  # Only a run without bytes is cancelled: the lease runs out and the sweep tries on.
            else:
                values["stored_bytes"] = bench.artifacts.size(str(run.artifact_key))  # counted until they are gone
        self._settle_until_heard(outcome.move, values)
        move = outcome.move
        bench.observe(events.RunSettled("export", run.id, move.name, move.target, outcome.code, outcome.cause))

    def _settle_until_heard(self, move: Move, values: Mapping[str, Any]) -> None:
        """Settle, again while the store does not answer: the answer may have been lost after the commit.

        Raises:
            StoreUnavailable: it did not answer for too long; whether the settle was made is not known.
        """
        give_up = time.monotonic() + SETTLE_RETRY_SECONDS
        wait = 0.05
        while True:
            try:
                self._bench.runs.settle(self._held, move, values)
            except StoreUnavailable as problem:
                if time.monotonic() >= give_up:
                    raise
                self._bench.observe(events.StoreFailed("settle", str(problem), wait))
            else:
                return
            time.sleep(wait)
            wait = min(1.0, wait * 2)

    def _remove(self) -> bool:
        """Remove the bytes; False when the sweep has to, and then the row keeps naming them."""
        assert self._run.artifact_key is not None
        give_up = time.monotonic() + REMOVE_RETRY_SECONDS
        while True:
            try:
                self._bench.artifacts.remove(self._run.artifact_key)
            except OSError as problem:
                self._bench.observe(events.RemovalFailed(self._run.artifact_key, kind_of(problem)))
                if time.monotonic() >= give_up:
                    return False
                time.sleep(0.5)
            else:
                return True

    def _discard(self) -> None:
        """The run is somebody else's: whatever this lane made goes, and nothing is written."""
        self._remove()
        self._bench.observe(events.LeaseWasLost("export", self._run.id, self._held.claim_no))


def _failed(code: str, detail: str | None = None, cause: str | None = None) -> Outcome:
    if code not in CATALOGUE:
        code, cause = "build_failed", f"unknown code {code}"
    own = detail if detail != CATALOGUE[code].sentence else None
    return Outcome(ExportLife.fail, {"failure_code": code, "failure_detail": own}, cause)


def _died(returned: int, words: str) -> Outcome:
    """Name a death that the child could not report."""
    if returned == -signal.SIGXFSZ:
        return _failed("no_space", cause="SIGXFSZ")
    if returned in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP):
        return _failed("child_killed", cause=f"{signal.Signals(-returned).name}; {words}")
    return _failed("child_crashed", cause=f"returned {returned}; {words}")

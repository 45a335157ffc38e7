"""The sweep of exports: what is due ends, what nobody promises any longer goes.

Order of rows and bytes (DECISIONS 3): a state that stops promising a file moves the row first and keeps the
key until the bytes are gone; a lost run loses its bytes first, under a fence taken for that. Orphans are
found by listing the folder first and reading the rows after it. A pass ends a bounded number of runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from haulage.core import events
from haulage.core.clock import new_id
from haulage.core.errors import ArtifactsUnavailable, kind_of
from haulage.core.lease import CancelWanted, Held, LeaseLost
from haulage.core.lifecycle import Move
from haulage.core.limits import ExportLimits
from haulage.core.ports import After, Artifacts, IdempotencyKeys, Sessions, Workers
from haulage.exports.gone import Parental, ParentRounds
from haulage.exports.life import ExportLife, ExportRun
from haulage.exports.parents import Parents

ORPHANS_ASKED = 500  # keys in one question to the store
PRESENCE_KEPT_SECONDS = 3_600  # a dead worker stays listed so long


class SweptRuns(Parental, Protocol):
    """The export table, with what only its sweep asks."""

    def unkept(self, limit: int = 100) -> list[ExportRun]:
        """Runs whose bytes nobody promises any longer."""

    def forget_bytes(self, run_id: str, key: str) -> None:
        """Record that bytes are gone."""

    def promised(self, keys: Sequence[str]) -> set[str]:
        """Which keys a row still names."""

    def abandon_waiting(self, abandon_seconds: float, *, now: int | None = None) -> list[ExportRun]:
        """Fail waiting runs for which no worker lives."""


class SweptStore(Protocol):
    """What the sweep needs of a store."""

    @property
    def exports(self) -> SweptRuns:
        """The export table."""

    @property
    def workers(self) -> Workers:
        """Presence."""

    @property
    def keys(self) -> IdempotencyKeys:
        """Idempotency keys."""

    @property
    def sessions(self) -> Sessions:
        """Sign-ins."""


@dataclass(slots=True)
class SweepReport:
    """What one pass did."""

    starved: int = 0
    abandoned: int = 0
    expired: int = 0
    lost: int = 0
    rerun: int = 0
    buried: int = 0
    overrun: int = 0
    removed_files: int = 0
    orphans: int = 0
    removed_rows: int = 0
    parents_gone: int = 0
    failures: list[str] = field(default_factory=list)


class ExportSweep:
    """One sweeper of the export table; several may run at once, over hosts."""

    def __init__(
        self,
        store: SweptStore,
        artifacts: Artifacts,
        limits: ExportLimits,
        observe: events.Observe,
        parents: Parents | None = None,
    ) -> None:
        """It has an id of its own, which stands in the rows that it takes over. ``parents`` are asked who is gone."""
        self._id = new_id()
        self._store = store
        self._artifacts = artifacts
        self._limits = limits
        self._observe = observe
        self._rounds = None if parents is None else ParentRounds(store.exports, parents, observe)

    def pass_once(self, now: int | None = None) -> SweepReport:
        """Do everything that is due, once.

        Raises:
            StoreUnavailable: the store does not answer; what was done stays done.
        """
        report = SweepReport()
        report.abandoned = self._tell(
            ExportLife.abandon, self._store.exports.abandon_waiting(self._limits.abandon_seconds, now=now)
        )
        report.starved = self._swept(ExportLife.starve, {"failure_code": "queue_timeout"}, now)
        report.expired = self._swept(ExportLife.expire, {}, now)
        for move in (ExportLife.bury, ExportLife.lose, ExportLife.overrun, ExportLife.halt):
            for run in self._store.exports.sweep(move, {}, worker=self._id, now=now):
                self._take_over(run, move, report, now)
        self._ask_for_parents(report, now)
        self._remove_unkept(report)
        report.removed_rows += self._store.exports.remove(now=now)
        self._store.keys.forget(now=now)
        self._store.sessions.forget(now=now)
        self._store.workers.forget(PRESENCE_KEPT_SECONDS, now=now)
        self._remove_orphans(report)  # last, as a place of bytes that does not answer is waited for
        return report

    def _swept(self, move: Move, values: dict[str, Any], now: int | None) -> int:
        return self._tell(move, self._store.exports.sweep(move, values, worker=self._id, now=now))

    def _tell(self, move: Move, runs: Sequence[ExportRun]) -> int:
        for run in runs:
            self._observe(events.RunSettled("export", run.id, move.name, run.state, run.failure_code))
        return len(runs)

    def _ask_for_parents(self, report: SweepReport, now: int | None) -> None:
        if self._rounds is not None:
            report.parents_gone, report.removed_rows, expired = self._rounds.pass_once(now)
            report.expired += expired

    # -- a lost run --------------------------------------------------------------------------------

    def _take_over(self, run: ExportRun, move: Move, report: SweepReport, now: int | None) -> None:
        """End a run whose fence was just taken: its bytes first, then its row."""
        held = Held(run.id, run.tenant, run.claim_no, self._id)
        gone = run.artifact_key is None or self._remove(run.artifact_key, "lost", report)
        if move in (ExportLife.bury, ExportLife.halt) and not gone:
            return  # Only a run without bytes is cancelled; the fence runs out and the next pass tries again.
        kept: dict[str, Any] = {"artifact_key": None} if gone else {}
        for ending in (self._ending(run, move), ExportLife.bury):
            try:
                if not gone and ending.target == "failed":
                    kept["stored_bytes"] = self._artifacts.size(str(run.artifact_key))  # counted until they are gone
                self._settle(held, ending, kept, report, now)
            except CancelWanted:
                if gone:
                    continue  # The cancel came while the bytes were removed, and it wins.
            except LeaseLost:
                pass  # Another sweep was faster.
            return

    def _ending(self, run: ExportRun, move: Move) -> Move:
        if move is ExportLife.lose and run.attempts < run.attempts_max:
            return ExportLife.rerun
        return move

    def _settle(self, held: Held, move: Move, kept: dict[str, Any], report: SweepReport, now: int | None) -> None:
        values: dict[str, Any] = dict(kept)
        if move is ExportLife.lose:
            values["failure_code"] = "worker_lost"
        elif move is ExportLife.overrun:
            values["failure_code"] = "generation_timeout"
        elif move is ExportLife.rerun:
            values |= {"claim_by": After(self._limits.queue_seconds), "finish_by": None, "started_at": None}
            values |= {"heartbeat_at": None, "updated_at": None}
            values |= dict.fromkeys(("processed", "total", "logical_count"))
        self._store.exports.settle(held, move, values, now=now)
        self._observe(events.RunSettled("export", held.id, move.name, move.target, values.get("failure_code")))
        report.lost += move is ExportLife.lose
        report.overrun += move is ExportLife.overrun
        report.rerun += move is ExportLife.rerun
        report.buried += move in (ExportLife.bury, ExportLife.halt)

    # -- bytes -------------------------------------------------------------------------------------

    def _remove_unkept(self, report: SweepReport) -> None:
        for run in self._store.exports.unkept():
            assert run.artifact_key is not None
            removed = self._remove(run.artifact_key, run.state, report)
            if removed is None:
                return  # It would be waited for at each of them.
            if removed:
                self._store.exports.forget_bytes(run.id, run.artifact_key)
                report.removed_files += 1

    def _remove_orphans(self, report: SweepReport) -> None:
        try:
            listed = self._artifacts.keys()
        except OSError as problem:
            self._observe(events.RemovalFailed("orphans", kind_of(problem)))
            report.failures.append(f"orphans: {kind_of(problem)}")
            return
        for start in range(0, len(listed), ORPHANS_ASKED):
            asked = listed[start : start + ORPHANS_ASKED]
            # A name that is not ASCII is no key of ours, and may not even be text that a store can be asked for.
            promised = self._store.exports.promised([key for key in asked if key.isascii()])
            for key in sorted(set(asked) - promised):
                if self._remove(key, "orphan", report):
                    report.orphans += 1

    def _remove(self, key: str, why: str, report: SweepReport) -> bool | None:
        """Remove bytes and say whether they are gone; None where the place of bytes does not answer."""
        try:
            removed = self._artifacts.remove(key)
        except OSError as problem:
            self._observe(events.RemovalFailed(key, kind_of(problem)))
            report.failures.append(f"{key}: {kind_of(problem)}")
            return None if isinstance(problem, ArtifactsUnavailable) and not problem.answered else False
        if removed:
            self._observe(events.BytesRemoved(key, why))
        return True

"""What only the exports ask of a folder: the storage budget, and bytes that wait for their removal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from haulage.core.limits import ExportLimits
from haulage.core.parents import ParentRef
from haulage.core.ports import Presence, Storage, Terms
from haulage.exports.life import ExportLife, ExportRun, S
from haulage.stores import tenants
from haulage.stores.directory.folder import Folder, Writing, answered
from haulage.stores.directory.runs import DirectoryRuns
from haulage.stores.entering import RELEASED, admitted

UNKEPT = (S.EXPIRED, S.FAILED, S.CANCELLED)  # states that promise no bytes
PROVABLE = ("artifact_key", "bytes", "sha256", "expires_at", "complete")  # what a ready run must have


class DirectoryExports(DirectoryRuns[ExportRun]):
    """The exports of a folder; implements ``exports.request.ExportRuns`` and ``exports.expire.SweptRuns``."""

    def __init__(
        self,
        folder: Folder,
        limits: ExportLimits,
        refusal: Callable[[], str | None],
        seen: Callable[[], list[Presence]],
        keep_key: Callable[[Mapping[str, Any], Writing], None],
    ) -> None:
        """``seen`` gives every presence that is kept."""
        super().__init__(
            folder,
            ExportLife,
            ExportRun,
            retention_seconds=limits.retention_seconds,
            released=RELEASED,
            refusal=refusal,
            keep_key=keep_key,
        )
        self._presences = seen

    def admit(self, run: ExportRun, rows: list[Any], terms: Terms, now: int) -> dict[str, Any] | None:
        """Reserve space and set the clocks of the build (DECISIONS 17)."""
        stored, reserved = _sums(rows)
        return admitted(run, terms, stored_bytes=stored, reserved_bytes=reserved, now=now)

    def checks(self, run: ExportRun) -> dict[str, bool]:
        """A ready run can be proved, and a parent has a kind."""
        provable = all(getattr(run, name) is not None for name in PROVABLE)
        return {
            "ready_is_provable": run.state != S.READY or provable,
            "parent_of_a_kind": (run.parent is None) == (run.parent_kind is None),
        }

    def storage(self, tenant: str, *, tx: Writing | None = None) -> Storage:
        """Bytes of finished files (also while they wait for removal) and bytes reserved."""
        with answered():
            rows = self.rows.living(tx)
        stored, reserved = _sums(rows)
        return Storage(stored, reserved, sum(row.stored_bytes or 0 for row in rows if tenants.of(row, tenant)))

    def running(self) -> int:
        """How many runs are worked on, over all tenants."""
        with answered():
            return sum(row.state == ExportLife.claim.target for row in self.rows.living())

    def tally(self) -> dict[str, int]:
        """How many runs there are in each state, over all tenants; a state without runs is left out."""
        with answered():
            states = {row.id: row.state for row in self.rows.living()}
            for day in self.ended.words():
                states |= {word.id: word.state for word in day}
        return dict(Counter(states.values()))

    def unkept(self, limit: int = 100) -> list[ExportRun]:
        """Runs whose state promises no file any more while their bytes are not known to be gone."""
        with answered():
            found = [run for run in self.rows.living() if _unkept(run)]
        return sorted(found, key=lambda run: run.finished_at or 0)[:limit]

    def forget_bytes(self, run_id: str, key: str) -> None:
        """Record that the bytes of a key are gone."""
        with answered(), self.folder.writing() as tx:
            run: Any = self.rows.find_live(run_id, tx)
            if run is not None and _unkept(run) and run.artifact_key == key:
                changes = {"artifact_key": None, "stored_bytes": None}
                self._write(run, self._changed(run, changes, counted=False), tx)

    def parents(self, *, after: tuple[str, str, str] | None = None, limit: int = 100) -> list[tuple[str, str, str]]:
        """The parents that runs belong to, as (id, kind, tenant) and in this order, after one of them."""
        with answered():
            words = [*self.rows.living(), *chain.from_iterable(self.ended.words())]
        places = {(word.parent, word.parent_kind, word.tenant) for word in words if word.parent is not None}
        return sorted(place for place in places if after is None or place > after)[:limit]

    def remove_of(self, tenant: str, parent: ParentRef, *, limit: int = 100) -> int:
        """Delete the runs of a parent that have ended and promise no bytes, before their retention is over."""
        with answered():
            words = [word for word in chain.from_iterable(self.ended.words()) if tenants.of(word, tenant)]
            due = [word for word in words if (word.parent_kind, word.parent) == parent[:2]]
            if not due:
                return 0
            with self.folder.writing() as tx:
                tx.begin()
                return sum(self.ended.remove(word) for word in sorted(due)[:limit])

    def promised(self, keys: Sequence[str]) -> set[str]:
        """Which of these keys a row still names; the others are orphans.

        Each row is asked for by its name: a list of the folder may miss one that is replaced meanwhile, and its bytes
        would be taken for nobody's. A row that the disk does not give promises what is asked for.
        """
        found = set()
        for key in keys:
            try:
                run: Any = self.rows.find_live(key.rpartition(".")[0])
            except OSError:
                found.add(key)
                continue
            if run is not None and run.artifact_key is not None:
                found.add(run.artifact_key)
        return found

    def abandon_waiting(self, abandon_seconds: float, *, now: int | None = None) -> list[ExportRun]:
        """Fail waiting runs for which no worker was seen for so long (DECISIONS 4)."""
        instant = self.folder.now(now)
        since = instant - int(abandon_seconds * 1000)
        seen = [each for each in self._presences() if each.seen_at > since and each.state != "refusing"]

        def due(run: ExportRun) -> bool:
            alive = any(each.only_run in (None, run.id) for each in seen)
            return self._allows(ExportLife.abandon, run) and run.requested_at <= since and not alive

        def make(run: ExportRun, tx: Writing) -> ExportRun:
            return self._make(run, ExportLife.abandon, {"failure_code": "workers_gone"}, instant, tx)

        return self._change_due(due, "requested_at", make, limit=100)


def _unkept(run: Any) -> bool:
    return run.artifact_key is not None and run.state in UNKEPT


def _sums(rows: list[Any]) -> tuple[int, int]:
    """Bytes of all finished files, and promised to all running builds."""
    return sum(row.stored_bytes or 0 for row in rows), sum(row.reserved_bytes or 0 for row in rows)

"""``haulage doctor --check``: every row against the life of an export, every finished file read again, and every
byte asked for its owner.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from haulage.cli.findings import Finding
from haulage.cli.keeping import digest_of
from haulage.core.errors import ArtifactsUnavailable
from haulage.core.ports import Query
from haulage.exports.life import ExportLife, ExportRun, S
from haulage.exports.stored import unreadable

if TYPE_CHECKING:
    from haulage.app import Haulage

PAGE = 200  # runs read at once
OVERDUE_MS = 60_000  # what was due so long ago has no sweep that works
NEVER = 2**63
SWEEP = "run: haulage sweep"


def rows(haul: Haulage) -> Iterator[Finding]:
    """Look for rows that no way of the life leads to, and for those that should have ended by themselves."""
    good, late, now = 0, [], haul.store.now()
    for run in _every(haul):
        if damaged := unreadable(run):
            what = f"run {run.id}: column {', '.join(damaged)} cannot be read"
            yield Finding("FAIL", "runs", what, "see what the disk of the store says; restore a backup")
            continue
        wrong = _outside_its_life(run)
        if wrong:
            yield Finding("FAIL", "runs", f"run {run.id} is {run.state}, but {wrong}", "see who else writes the store")
        good += wrong is None
        if _due_since(run) < now - OVERDUE_MS:
            late.append(run.id)
    if late:
        yield Finding("WARN", "runs", f"{len(late):,} should have ended or gone by now: {late[0]} …", SWEEP)
    yield Finding("OK", "runs", f"{good:,} rows are as the life of an export allows")


def _outside_its_life(run: ExportRun) -> str | None:
    """What is impossible about a row; its columns tell which moves were made."""
    final, cancelled = ExportLife.is_final(run.state), run.cancel_requested_at is not None
    impossible = {
        "a cancel was requested before it ended": final and cancelled and run.state != S.CANCELLED,
        "nobody requested a cancel": run.state == S.CANCELLED and not cancelled,
        "it has no end": final and run.finished_at is None,
        "it has an end": not final and run.finished_at is not None,
        "it has no reason": run.state == S.FAILED and run.failure_code is None,
        "it has a reason to fail": run.state != S.FAILED and run.failure_code is not None,
        "it holds storage": run.state != S.RUNNING and run.reserved_bytes is not None,
        "more rows were read than there are": run.total is not None and (run.processed or 0) > run.total,
        "not every row was read": run.state == S.READY and (run.processed, run.total or run.rows) != (run.rows,) * 2,
    }
    return next((what for what, so in impossible.items() if so), None)


def _due_since(run: ExportRun) -> int:
    """When the sweep should have ended a run, or removed its bytes or its row; far in the future if it need not."""
    due = [getattr(run, move.deadline) for move in ExportLife.moves_from(run.state) if move.deadline]
    if run.artifact_key is None:
        due.append(run.retain_until)
    elif run.state in (S.EXPIRED, S.FAILED, S.CANCELLED):
        due.append(max(run.finished_at or 0, run.expires_at or 0))
    return min((instant for instant in due if instant is not None), default=NEVER)


def files(haul: Haulage) -> Iterator[Finding]:
    """Read every ready file again: a row that promises a file must have exactly it."""
    good = 0
    for run in _every(haul, S.READY):
        assert run.artifact_key is not None
        try:
            opened, _ = haul.artifacts.open(run.artifact_key)
            with opened:
                digest = digest_of(opened)
        except ArtifactsUnavailable as problem:
            yield Finding("FAIL", "files", f"run {run.id}: its bytes cannot be read now: {problem}")
            continue
        except OSError as problem:
            digest = problem.strerror or "missing"
        if digest == run.sha256:
            good += 1
            continue
        today = haul.store.exports.get(run.id)
        if today is not None and today.state == S.READY:  # else it expired while we looked
            what = f"run {run.id}: its bytes are missing or not those that were written"
            yield Finding("FAIL", "files", what, "export again; a download corrects the run")
    yield Finding("OK", "files", f"{good:,} whole and as written")


def _every(haul: Haulage, state: str | None = None) -> Iterator[ExportRun]:
    """Every run, of every tenant, a page at a time."""
    before = None
    while True:
        runs = haul.store.exports.list(Query(state=state, before=before, limit=PAGE))
        yield from runs[:PAGE]
        if len(runs) <= PAGE:
            return
        before = (runs[PAGE - 1].requested_at, runs[PAGE - 1].id)


def orphans(haul: Haulage) -> Iterator[Finding]:
    """Bytes without a row; the sweep removes them, so a few seconds after one there must be none."""
    listed = haul.artifacts.keys()  # before the rows: a file made after the list is no orphan
    ownerless: list[str] = []
    for start in range(0, len(listed), PAGE):
        asked = listed[start : start + PAGE]
        # A name that is not ASCII is no key of ours, and may not even be text that a store can be asked for.
        promised = haul.store.exports.promised([key for key in asked if key.isascii()])
        ownerless += sorted(set(asked) - promised)
    for key in ownerless:
        shown = key.encode("ascii", "backslashreplace").decode()  # nor text that a terminal can be sent
        yield Finding("FAIL", "files", f"{shown} belongs to no run", SWEEP)
    if not ownerless:
        yield Finding("OK", "files", "every byte belongs to a run")

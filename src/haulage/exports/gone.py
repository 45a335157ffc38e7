"""What becomes of the exports of a parent that is not there any more; told by the host, or found out by the sweep.

What waits is cancelled at once, what runs is asked to stop, what is ready expires, and bytes go as they always do: a
build's before its run says cancelled, a file's with the sweep. Rows go when their bytes have gone: nobody but the
operator could see them, and what was deleted with its parent must not be kept for a week. Done again, nothing is left
to do. A parent that nobody can say anything about is never taken for gone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from haulage.core import events
from haulage.core.parents import ParentRef
from haulage.core.patience import Overdue
from haulage.core.ports import Query, Runs
from haulage.exports.life import ExportLife, ExportRun, S
from haulage.exports.parents import Parents, ParentUnknown

PAGE = 100  # runs of one parent that are looked at together
ASKED_AT_ONCE = 50  # parents that one pass of the sweep asks about
ASK_SECONDS = 2.0  # after which a pass asks about no more of them
HUNG_SECONDS = 30.0  # before a host that hangs is asked by the sweep again
FAILURES_MAX = 3  # of one kind in one pass: then its source is away, and the pass asks no more about it


class Parental(Runs[ExportRun], Protocol):
    """The export table, with what is asked only about parents."""

    def parents(self, *, after: tuple[str, str, str] | None = None, limit: int = 100) -> list[tuple[str, str, str]]:
        """The parents that runs belong to, as (id, kind, tenant) and in this order, after one of them."""

    def remove_of(self, tenant: str, parent: ParentRef, *, limit: int = 100) -> int:
        """Delete the runs of a parent that have ended and promise no bytes, before their retention is over."""


@dataclass(frozen=True, slots=True)
class Gone:
    """What became of the exports of a parent that is not there any more.

    Args:
        cancelled: waited, and are cancelled.
        stopping: run, and can only end cancelled.
        expired: had a file, whose bytes go with the next sweep.
    """

    cancelled: int = 0
    stopping: int = 0
    expired: int = 0


def let_go(
    runs: Runs[ExportRun], tenant: str, parent: ParentRef, observe: events.Observe, *, now: int | None = None
) -> Gone:
    """Cancel what waits or runs for a parent, and let its files expire; done again, it finds nothing to do."""
    cancelled = stopping = expired = 0
    for state in (S.QUEUED, S.RUNNING):  # a run that is claimed meanwhile is met as one or the other
        for run in _each(runs, tenant, parent, state):
            if run.cancel_requested_at is not None:
                continue
            after = runs.request_cancel(run.id, tenant=tenant, now=now)
            if after is None or after.cancel_requested_at is None:
                continue  # It ended by itself; where it has a file, it is met below.
            cancelled += after.state == S.CANCELLED
            stopping += after.state == S.RUNNING
            if after.state == S.CANCELLED:
                observe(events.RunSettled("export", run.id, ExportLife.cancel.name, after.state))
    for run in _each(runs, tenant, parent, S.READY):
        if runs.move(run.id, ExportLife.expire, {}, tenant=tenant, now=now) is not None:
            expired += 1
            observe(events.RunSettled("export", run.id, ExportLife.expire.name, S.EXPIRED))
    if cancelled or stopping or expired:
        observe(events.ParentGone("export", parent.kind, tenant, cancelled, stopping, expired))
    return Gone(cancelled, stopping, expired)


def _each(runs: Runs[ExportRun], tenant: str, parent: ParentRef, state: S) -> Iterator[ExportRun]:
    before = None
    while True:
        found = runs.list(Query(tenant=tenant, parent=parent, state=state, before=before, limit=PAGE))
        yield from found[:PAGE]
        if len(found) <= PAGE:
            return
        before = found[PAGE - 1].requested_at, found[PAGE - 1].id


class ParentRounds:
    """The sweep's part: it asks about some of the parents each time, and comes to all of them by and by."""

    def __init__(self, runs: Parental, parents: Parents, observe: events.Observe) -> None:
        """Begin anywhere."""
        self._runs = runs
        self._parents = parents
        self._observe = observe
        self._after: tuple[str, str, str] | None = None
        self._rests_until = 0.0  # monotonic seconds

    def pass_once(self, now: int | None = None) -> tuple[int, int, int]:
        """Ask about the next parents; gives how many are gone, how many rows went, and how many files expired."""
        began = time.monotonic()
        failed = dict.fromkeys(self._parents.kinds, 0)
        if not failed or began < self._rests_until:
            return 0, 0, 0
        found = self._runs.parents(after=self._after, limit=ASKED_AT_ONCE)
        gone = removed = expired = 0
        for place in found:
            id, kind, tenant = self._after = place
            if failed.get(kind, FAILURES_MAX) >= FAILURES_MAX:
                continue
            gone_now = self._is_gone(tenant, kind, id)
            failed[kind] += gone_now is None
            if gone_now:
                parent = ParentRef(kind, id)
                gone += 1
                expired += let_go(self._runs, tenant, parent, self._observe, now=now).expired
                removed += self._runs.remove_of(tenant, parent)
            if time.monotonic() - began > ASK_SECONDS or self._rests_until > began:
                return gone, removed, expired  # The next pass goes on after this one: none is passed over for ever.
        if len(found) < ASKED_AT_ONCE:
            self._after = None  # The round is over; the next pass begins another.
        return gone, removed, expired

    def _is_gone(self, tenant: str, kind: str, id: str) -> bool | None:
        """Whether it is; None where nobody can know. A host that hangs is left alone for a while."""
        try:
            return self._parents.owners(tenant, kind, id) is None
        except ParentUnknown as unknown:
            self._observe(events.ParentUnknown(kind, str(unknown)))
            if isinstance(unknown.__cause__, Overdue):
                self._rests_until = time.monotonic() + HUNG_SECONDS
            return None

"""The claim order over the runs that live: who is next, and who stands where; ``stores/queue.py`` says why so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from haulage.core.lifecycle import Move
from haulage.core.ports import Terms


class Queue:
    """The waiting runs of one kind, and who works on how many."""

    def __init__(self, claim: Move) -> None:
        """``claim`` says which state waits and which one is worked on."""
        self._waits = claim.source
        self._works = claim.target

    def waiting(self, rows: Iterable[Any]) -> list[Any]:
        """The runs that wait."""
        return [row for row in rows if row.state == self._waits]

    def next(self, rows: list[Any], terms: Terms) -> Any | None:
        """A tenant with fewer running runs first, then the older run."""
        busy = self._busy(rows)
        fit = [
            row
            for row in self.waiting(rows)
            if busy[row.tenant] < terms.tenant_running and terms.only in (None, row.id)
        ]
        return min(fit, key=lambda row: (busy[row.tenant], row.requested_at, row.id), default=None)

    def position(self, rows: list[Any], run_id: str) -> int | None:
        """The place of a run, from 1; None when it does not wait."""
        load, order = self._busy(rows), []
        for row in sorted(self.waiting(rows), key=lambda row: (row.requested_at, row.id)):
            load[row.tenant] += 1  # Claimed one after another, it has so many of its house before it.
            order.append((load[row.tenant], row.requested_at, row.id))
        ids = [each for _, _, each in sorted(order)]
        return ids.index(run_id) + 1 if run_id in ids else None

    def _busy(self, rows: Iterable[Any]) -> Counter[str]:
        return Counter(row.tenant for row in rows if row.state == self._works)

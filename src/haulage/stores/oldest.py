"""How a run is claimed where runs share nothing: no slots, no gates, no budget. Who was asked for first is next.

A claim looks from the run on that was claimed last, the *low-water* run, and so past what was left behind there: as
long as somebody holds an old snapshot, each run that was claimed is a dead entry at the front of the index, and is
looked at again. A run before it - put back, or of a claim that was taken back - is found when there is nothing behind,
and at the latest a second later.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from time import monotonic
from typing import Any

from sqlalchemy import BigInteger, Connection, Select, String, Update, bindparam, literal_column, select, tuple_, update

from haulage.core.ports import Terms
from haulage.stores.claims import Claims, asked_of, not_too_old, value_of, written
from haulage.stores.dialect import Instant
from haulage.stores.moves import guard_of
from haulage.stores.queue import in_state, still_in

FIRST = (-1, "")  # before every run
LOOK_BACK_SECONDS = 1.0


class ClaimOldest(Claims):
    """One statement where UPDATE answers rows; where it does not, a short transaction of three."""

    def _prepare(self) -> None:
        self._low_water = FIRST
        self._looked_back = 0.0
        self._answers = self._database.engine.dialect.update_returning
        look = self._claim_in_one if self._answers else self._picked
        make = self._make if self._answers else None
        self._looks = {only: self._database.prepare(partial(look, only=only), make) for only in (False, True)}
        self._by_id = self._database.prepare(
            lambda: select(*self._columns).where(self._table.c.id == bindparam("id")), self._record
        )

    def claim(self, terms: Terms, now: int | None, tx: Connection | None) -> Any | None:
        """Look from the low-water run on, then from the first."""
        instant = self._database.now(now)
        if terms.only is not None:
            return self._take({"only": terms.only}, terms, instant, tx)
        begin, at = self._low_water, monotonic()
        if at - self._looked_back >= LOOK_BACK_SECONDS:
            begin, self._looked_back = FIRST, at
        run = self._take(_from(begin), terms, instant, tx)
        if run is None and begin != FIRST:
            run = self._take(_from(FIRST), terms, instant, tx)
        if run is not None:
            self._low_water = run.requested_at, run.id
        return run

    def _take(self, which: dict[str, Any], terms: Terms, now: Instant, tx: Connection | None) -> Any | None:
        look = self._looks["only" in which]
        with self._database.write_prepared(tx, one=self._answers) as driver:
            if self._answers:
                return look.first(driver, which | asked_of(terms, now))
            found = look.first(driver, which)
            if found is None:
                return None
            admitted = self._admission.admit(found, terms, now)
            values = written(found, terms, now) | (admitted or {})
            if admitted is None or not self._write(driver, values, found.id, found.claim_no):
                return None
            return self._by_id.first(driver, {"id": found.id})

    def _picked(self, *, only: bool, columns: Sequence[str] | None = None) -> Select[Any]:
        q = self._table.alias("q")
        names = [column.name for column in self._columns] if columns is None else columns
        wanted = select(*(q.c[name] for name in names)).where(not_too_old())
        if only:
            wanted = wanted.where(q.c.id == bindparam("only"), still_in(q, self._move.source))
        else:
            begin = tuple_(bindparam("from_at", type_=BigInteger), bindparam("from_id", type_=String))
            wanted = wanted.where(in_state(q, self._move.source), tuple_(q.c.requested_at, q.c.id) >= begin)
            wanted = wanted.order_by(q.c.requested_at, q.c.id)
        return wanted.limit(literal_column("1")).with_for_update(skip_locked=True, of=q if self._answers else None)

    def _claim_in_one(self, *, only: bool) -> Update:
        run, e, now = self._picked(only=only, columns=("id",)).cte("picked"), self._table, self.now()
        fits, admitted = self._admission.admitted(e, None, now)
        return (
            update(e)
            .where(e.c.id == value_of(run.c.id), *guard_of(e, self._move), fits)
            .values(**self.claimed(now), **admitted)
            .returning(*self._told)
        )


def _from(run: tuple[int, str]) -> dict[str, Any]:
    return dict(zip(("from_at", "from_id"), run, strict=True))

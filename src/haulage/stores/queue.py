"""The claim order of a run table, once: who is next, who stands where, and which slot is free.

A tenant with fewer running runs goes first, then the older run. Claimed one after another, the n-th waiting
run of a tenant therefore has ``running + n - 1`` runs before it in its own house: that is its *load*, and
the order of all waiting runs is (load, requested_at, id).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    Integer,
    ScalarSelect,
    Select,
    String,
    Table,
    bindparam,
    func,
    literal_column,
    select,
    tuple_,
    union_all,
)

from haulage.core.lifecycle import Move
from haulage.stores import tenants
from haulage.stores.tables import gates

ONE = literal_column("1", Integer)  # to be added; bound, it would be a value more to send at every run


def in_state(table: Any, state: str) -> ColumnElement[bool]:
    """Compare with a state as a literal: a state that is bound hides the partial indexes.

    A held run has a slot, and the index of the slots finds the few that are held. Without slots the state does.
    """
    is_so = table.c.state == literal_column(f"'{state}'")
    info = getattr(table, "element", table).info
    held = info["counted"] and state in info["leased"]
    return is_so & (table.c.slot > literal_column("0")) if held else is_so  # type: ignore[no-any-return]


def still_in(table: Any, state: str) -> ColumnElement[bool]:
    """Compare the state of a row that its id leads to, in words that no index answers.

    The partial index of a state holds the id too, and seems small to a planner without statistics: it was read from
    end to end for one row, with every run that waits in it.
    """
    return table.c.state.concat(literal_column("''")) == literal_column(f"'{state}'")  # type: ignore[no-any-return]


class Queue:
    """The waiting runs of one table, and who works on how many."""

    def __init__(self, table: Table, claim: Move) -> None:
        """Bind the table; ``claim`` says which state waits and which one is worked on."""
        self._table = table
        self._waits = claim.source
        self._works = claim.target

    def next(self) -> ScalarSelect[Any]:
        """The id of the run to claim next; bound are ``tenant_running`` and nothing else.

        The oldest run of a tenant with nothing running is found at the front of the index. Only where there
        is none are the busy tenants asked, and those are at most as many as there are slots. To sort the
        queue by load instead would read all of it at every claim.
        """
        q, b, busy = self._table.alias("q"), self._table.alias("b"), self._busy()
        idle_first = (
            select(q.c.id)
            .where(in_state(q, self._waits), q.c.tenant.not_in(select(busy.c.tenant)))
            .order_by(q.c.requested_at, q.c.id)
            .limit(1)
            .scalar_subquery()
        )
        busy_first = (
            select(b.c.id)
            .select_from(b.join(busy, busy.c.tenant == b.c.tenant))
            .where(in_state(b, self._waits), busy.c.running < bindparam("tenant_running"))
            .order_by(busy.c.running, b.c.requested_at, b.c.id)
            .limit(1)
            .scalar_subquery()
        )
        return select(func.coalesce(idle_first, busy_first)).scalar_subquery()

    def only(self) -> ScalarSelect[Any]:
        """The id bound as ``only``, if that run waits and its tenant may run one more."""
        q, busy = self._table.alias("q"), self._busy()
        running = select(busy.c.running).where(busy.c.tenant == q.c.tenant).scalar_subquery()
        return (
            select(q.c.id)
            .where(q.c.id == bindparam("only"), still_in(q, self._waits))
            .where(func.coalesce(running, 0) < bindparam("tenant_running"))
            .scalar_subquery()
        )

    def position(self) -> Select[Any]:
        """The place of the run bound as ``id`` in the claim order, from 1; no row when it does not wait."""
        q, busy = self._table.alias("q"), self._busy()
        turn = func.row_number().over(partition_by=q.c.tenant, order_by=(q.c.requested_at, q.c.id))
        load = (func.coalesce(busy.c.running, 0) + turn).label("load")
        queue = (
            select(q.c.id, q.c.requested_at, load)
            .select_from(q.outerjoin(busy, busy.c.tenant == q.c.tenant))
            .where(in_state(q, self._waits))
            .cte("queue")
        )
        mine = queue.alias("mine")
        before = tuple_(queue.c.load, queue.c.requested_at, queue.c.id) <= tuple_(
            mine.c.load, mine.c.requested_at, mine.c.id
        )
        place = func.count().label("place")
        return select(place).select_from(mine.join(queue, before)).where(mine.c.id == bindparam("id"))

    def waiting(self, tenant: str | None, *, counted: bool) -> Select[Any]:
        """How many wait, of one tenant or over all; ``counted`` where gates are kept: they tell how many, not whose."""
        if tenant is None and counted:
            gated = select(func.coalesce(func.sum(gates.c.queued), 0))
            return gated.where(gates.c.flow == self._table.name, gates.c.head_at.is_not(None))
        wanted = select(func.count()).select_from(self._table).where(in_state(self._table, self._waits))
        return wanted if tenant is None else wanted.where(tenants.of(self._table.c, tenant))

    def placed(self) -> Select[Any]:
        """The same, counted by the database itself for one who does not see the others in the queue (tenants.py)."""
        counted = getattr(func, f"{self._table.name}_place")(bindparam("id", type_=String), type_=BigInteger)
        return select(counted.label("place"))

    def free_slot(self) -> ScalarSelect[Any]:
        """The smallest slot up to the number bound as ``slots`` that nobody holds: 1, or one above a held one."""
        # `slot is not null` would read the whole index, with every run that ever ended in it.
        held = self._table.alias("held")
        above = select(held.c.slot + literal_column("1")).where(held.c.slot > literal_column("0"))
        place = union_all(select(literal_column("1").label("slot")), above).subquery("place")
        other = self._table.alias("other")
        taken = select(ONE).where(other.c.slot == place.c.slot).exists()
        return select(func.min(place.c.slot)).where(place.c.slot <= bindparam("slots"), ~taken).scalar_subquery()

    def _busy(self) -> CTE:
        r = self._table.alias("r")
        running = func.count().label("running")
        # The limit keeps the few held rows a step of their own: grouped at once, they would be looked for in the index
        # by tenant, which holds every run there ever was.
        held = select(r.c.tenant).where(in_state(r, self._works)).limit(literal_column("1000000")).subquery("held")
        return select(held.c.tenant, running).group_by(held.c.tenant).cte("busy")

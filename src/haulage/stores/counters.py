"""Counters that the database keeps by itself, where many write at once: the gates of tenants and the budget.

A *gate* is a tenant's row of a flow: how many of its runs wait and run, and which waits longest. A claim looks at
gates instead of counting runs: to read who is busy from the runs takes the longer the more tenants there are
(32/s with 10,000), and a count is overtaken by the claim beside it. The *pool* is the budget: bytes of finished
files and bytes promised; on PostgreSQL a claim reads more there (pool.py).

Triggers keep them (migrations/versions/*.sql), so that no statement, ours or an operator's, passes them by;
``drift`` compares them with the runs, and must find nothing. Locks are taken in one order: run, gate, pool. A claim
never waits for a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Select, Table, case, func, literal, select, union_all

from haulage.core.lifecycle import LeaseUse, Lifecycle, Move
from haulage.stores.tables import gates, pools


def claim_of(life: type[Lifecycle]) -> Move:
    """The move that takes a run: from the state that waits to the one that works."""
    return next(move for move in life.moves.values() if move.lease is LeaseUse.TAKES)


Kept = tuple[Select[Any], Select[Any]]  # how it is, and how it is kept


def drift(connection: Connection, runs: Table, life: type[Lifecycle], beside: Sequence[Kept] = ()) -> list[str]:
    """Where the counters and the runs differ, as sentences; what is compared is read in one statement."""
    claim = claim_of(life)
    state, c = runs.c.state, runs.c
    place = func.row_number().over(partition_by=(c.tenant, state), order_by=(c.requested_at, c.id))
    waits, works = state == str(claim.source), state == str(claim.target)
    active = select(c.tenant, state, c.requested_at, c.id, place.label("place")).where(waits | works).subquery("active")
    first = (active.c.state == str(claim.source)) & (active.c.place == 1)
    counted = select(
        active.c.tenant,
        func.sum(case((active.c.state == str(claim.source), 1), else_=0)),
        func.sum(case((active.c.state == str(claim.target), 1), else_=0)),
        func.max(case((first, active.c.requested_at))),
        func.max(case((first, active.c.id))),
    ).group_by(active.c.tenant)
    kept = select(gates.c.tenant, gates.c.queued, gates.c.running, gates.c.head_at, gates.c.head_id).where(
        gates.c.flow == runs.name, (gates.c.queued != 0) | (gates.c.running != 0)
    )
    used = select(
        literal("the pool"), func.coalesce(func.sum(c.stored_bytes), 0), func.coalesce(func.sum(c.reserved_bytes), 0)
    ).select_from(runs)
    pool = select(literal("the pool"), pools.c.stored_bytes, pools.c.reserved_bytes).where(pools.c.flow == runs.name)
    pairs = [(counted, kept), (used, pool), *beside]
    return [sentence for pair in pairs for sentence in _differing(connection, *pair)]


def _differing(connection: Connection, there: Select[Any], kept: Select[Any]) -> Iterator[str]:
    sides = [select(literal(side), *rows.subquery().c) for side, rows in (("is", there), ("kept", kept))]
    found: dict[str, dict[str, set[tuple[str, ...]]]] = {"is": {}, "kept": {}}
    for side, whose, *figures in connection.execute(union_all(*sides)):
        found[side].setdefault(whose, set()).add(tuple(str(figure) for figure in figures))
    for whose in sorted({*found["is"], *found["kept"]}):
        if found["is"].get(whose) != found["kept"].get(whose):
            yield f"{whose}: kept {_told(found['kept'].get(whose))}, there is {_told(found['is'].get(whose))}"


def _told(figures: set[tuple[str, ...]] | None) -> str:
    return " and ".join(", ".join(each) for each in sorted(figures or ())) or "nothing"

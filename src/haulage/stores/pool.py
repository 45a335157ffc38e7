"""What the pool of PostgreSQL has beside the budget, so that a claim need not ask for it elsewhere.

A claim locks the pool, and each other row that it reads is a plan's start, a lock and an index more. So the triggers
keep there the slots that nobody holds, and the fact which workers may claim (v0001_counters.postgresql.sql). With the
pool locked both are as they are, and not as they were when the statement began. The unique column of slots keeps the
limit all the same; a claim that finds no slot here, or a wrong one, counts the runs (claims.ClaimInOne).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Integer, String, Table, cast, literal, literal_column, select

from haulage.stores.counters import Kept
from haulage.stores.queue import in_state
from haulage.stores.tables import facts, pools

FREE_SLOT: ColumnElement[int] = literal_column("lower(run_pools.free_slots)", Integer)  # the smallest
MIN_WORKER: ColumnElement[int] = literal_column("run_pools.min_worker", BigInteger)


def in_pool(runs: Table, works: str) -> list[Kept]:
    """How both are, and how they are kept."""
    of_flow = pools.c.flow == runs.name
    slots, oldest = literal("the slots"), literal("the oldest worker that may claim")
    free: ColumnElement[Any] = literal_column("'{[1,)}' - coalesce(range_agg(int4range(slot, slot + 1)), '{}')")
    kept: ColumnElement[Any] = literal_column("free_slots")
    kept_slots = select(slots, cast(kept, String).label("free")).select_from(pools).where(of_flow)
    kept_worker = select(oldest, MIN_WORKER.label("value")).select_from(pools).where(of_flow)
    pairs: list[Any] = [
        (select(slots, cast(free, String).label("free")).where(in_state(runs, works)), kept_slots),
        (select(oldest, facts.c.value).where(facts.c.name == "min_worker"), kept_worker),
    ]
    return pairs

"""A run that is led through its life and taken back, to see that what keeps the counters is there and works.

A dump may leave out triggers, or the routines that they call; tables alone look whole, and every request fails.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from sqlalchemy import Connection, select

from haulage.core.clock import new_id
from haulage.core.ports import Terms
from haulage.exports.life import ExportLife, ExportRun
from haulage.stores.database import CONFLICTS_MAX, Conflict, Database
from haulage.stores.exports import ExportRows
from haulage.stores.tables import gates

TENANT = "haulage doctor"
PLENTY = 30_000  # slots, so that a rehearsal fits beside those at work


class _TakenBackError(Exception):
    pass


def rehearse(database: Database, exports: ExportRows) -> str | None:
    """Say what is missing; None when nothing is.

    Raises:
        StoreUnavailable: the store does not answer, or a trigger calls what is not there.
    """
    for _ in range(CONFLICTS_MAX):
        with suppress(Conflict):
            return _once(database, exports)
    return _once(database, exports)


def _once(database: Database, exports: ExportRows) -> str | None:
    missed = None
    with suppress(_TakenBackError), database.write(tenant=TENANT) as connection:
        missed = _missed(connection, exports)
        raise _TakenBackError
    return missed


def _missed(connection: Connection, exports: ExportRows) -> str | None:
    run = ExportRun(new_id(), TENANT, str(ExportLife.initial), requested_at=0, claim_by=2**50)
    exports.add(run, tx=connection)
    if _gate(connection) != (1, 0):
        return "a run that is added is not counted: a trigger is missing"
    claimed = exports.claim(Terms(TENANT, 15, PLENTY, PLENTY, 2**60, 10, only=run.id), tx=connection)
    if claimed is None or _gate(connection) != (0, 1):
        return "a run that is claimed is not counted: a trigger is missing"
    exports.settle(claimed[0], ExportLife.fail, {"failure_code": "build_failed", "artifact_key": None}, tx=connection)
    if _gate(connection) != (0, 0):
        return "a run that ends is not counted: a trigger is missing"
    other = replace(run, id=new_id())
    exports.add(other, tx=connection)
    exports.request_cancel(other.id, tx=connection)
    return None if _gate(connection) == (0, 0) else "a run that is cancelled is not counted: a trigger is missing"


def _gate(connection: Connection) -> tuple[int, int]:
    row = connection.execute(select(gates.c.queued, gates.c.running).where(gates.c.tenant == TENANT)).first()
    return (0, 0) if row is None else (row.queued, row.running)

"""What only the export table needs: the storage budget, and bytes that wait for their removal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    String,
    bindparam,
    cast,
    func,
    literal,
    literal_column,
    null,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.sql.elements import ColumnElement

from haulage.core.limits import ExportLimits
from haulage.core.parents import ParentRef
from haulage.core.ports import Storage, Terms
from haulage.core.progress import Progress
from haulage.exports.life import ExportLife, ExportRun
from haulage.stores import tenants
from haulage.stores.database import Database, made_again
from haulage.stores.dialect import Instant
from haulage.stores.entering import RELEASED, admitted
from haulage.stores.queue import ONE, in_state
from haulage.stores.runs import SqlRuns
from haulage.stores.tables import UNKEPT, exports, pools, workers


def _sums() -> list[ColumnElement[int]]:
    """Bytes of all finished files, and promised to all running builds; each from an index of its own."""
    s, r = exports.alias("s"), exports.alias("r")
    stored = select(func.coalesce(func.sum(s.c.stored_bytes), 0)).where(s.c.stored_bytes.is_not(None))
    reserved = select(func.coalesce(func.sum(r.c.reserved_bytes), 0)).where(in_state(r, ExportLife.claim.target))
    return [stored.scalar_subquery().label("stored_all"), reserved.scalar_subquery().label("reserved_all")]


class StorageBudget:
    """Admits a claim only with room for its file (DECISIONS 17).

    A claim reserves min(file limit, what is left), freed by the UPDATE that leaves ``running``. Where only
    reservations are in the way the run waits; where finished files leave nothing it is claimed with
    nothing reserved, and its worker fails it with ``storage_exceeded``.
    """

    def figures(self) -> Sequence[ColumnElement[Any]]:
        """Bytes of finished files and promised to running builds, over all tenants."""
        return _sums()

    def admit(self, row: Any, terms: Terms, now: Instant) -> dict[str, Any] | None:
        """Reserve space and set the clocks of the build."""
        return admitted(row, terms, stored_bytes=row.stored_all, reserved_bytes=row.reserved_all, now=now)

    def weighed(self, run: Any, pool: Any) -> Sequence[ColumnElement[Any]]:
        """What would be reserved, and what is free for it."""
        left = bindparam("store_bytes", type_=BigInteger) - pool.c.stored_bytes
        room = func.greatest(literal_column("0"), func.least(run.c.file_bytes, left))
        return room.label("room"), func.greatest(literal_column("0"), left - pool.c.reserved_bytes).label("free")

    def admitted(self, run: Any, found: Any, now: ColumnElement[int]) -> tuple[ColumnElement[bool], dict[str, Any]]:
        """The same in SQL: with no room at all it is claimed too."""
        return found.c.room <= found.c.free, {
            "reserved_bytes": found.c.room,
            "attempts": run.c.attempts + ONE,
            "finish_by": now + run.c.generation_ms + bindparam("grace_ms", type_=BigInteger),
            "artifact_key": run.c.id.concat(literal_column("'.'")).concat(cast(run.c.claim_no + ONE, String)),
            **dict.fromkeys(Progress._fields, null()),
        }


class ExportRows(SqlRuns[ExportRun]):
    """The export table; implements ``exports.needs.ExportRuns``."""

    def __init__(self, database: Database, limits: ExportLimits) -> None:
        """Bind the table, its life and its record."""
        super().__init__(
            database,
            exports,
            ExportLife,
            ExportRun,
            admission=StorageBudget(),
            retention_seconds=limits.retention_seconds,
            released=RELEASED,
        )

    def storage(self, tenant: str, *, tx: Connection | None = None) -> Storage:
        """Bytes of finished files (also while they wait for removal) and bytes reserved."""
        o = exports.alias("o")
        mine = (o.c.stored_bytes.is_not(None), tenants.of(o.c, tenant))
        own = select(func.coalesce(func.sum(o.c.stored_bytes), 0)).where(*mine)
        # Those of the others are not for a tenant to see, but their sum is.
        counted = self._database.dialect.capabilities.counters
        figures = [pools.c.stored_bytes.label("stored_all"), pools.c.reserved_bytes.label("reserved_all")]
        wanted = select(*(figures if counted else _sums()), own.scalar_subquery().label("own"))
        if counted:
            wanted = wanted.where(pools.c.flow == exports.name)
        with self._database.read(tx, tenant=tenant) as connection:
            row = connection.execute(wanted).one()
        return Storage(*map(int, row))  # PostgreSQL and MariaDB add integers to a decimal

    def running(self) -> int:
        """How many runs are worked on, over all tenants."""
        wanted = select(func.count()).select_from(exports).where(in_state(exports, ExportLife.claim.target))
        with self._database.read() as connection:
            return int(connection.execute(wanted).scalar_one())

    def tally(self) -> dict[str, int]:
        """How many runs there are in each state, over all tenants; a state without runs is left out.

        It reads every row; who only asks for what is under way has ``waiting`` and ``running``.
        """
        wanted = select(exports.c.state, func.count()).group_by(exports.c.state)
        with self._database.read() as connection:
            return {row.state: row[1] for row in connection.execute(wanted)}

    @made_again
    def unkept(self, limit: int = 100) -> list[ExportRun]:
        """Runs whose state promises no file any more while their bytes are not known to be gone."""
        wanted = select(*self._columns).where(UNKEPT).order_by(exports.c.finished_at).limit(limit)
        with self._database.read() as connection:
            return [self._record(*row) for row in connection.execute(wanted)]

    def forget_bytes(self, run_id: str, key: str) -> None:
        """Record that the bytes of a key are gone."""
        statement = (
            update(exports)
            .where(exports.c.id == run_id, exports.c.artifact_key == key, UNKEPT)
            .values(artifact_key=None, stored_bytes=None)
        )
        with self._database.write() as connection:
            connection.execute(statement)

    @made_again
    def parents(self, *, after: tuple[str, str, str] | None = None, limit: int = 100) -> list[tuple[str, str, str]]:
        """The parents that runs belong to, as (id, kind, tenant) and in this order, after one of them."""
        place = [exports.c.parent, exports.c.parent_kind, exports.c.tenant]
        some = select(*place).where(exports.c.parent.is_not(None)).order_by(*place).limit(1)
        found: list[tuple[str, str, str]] = []
        with self._database.read() as connection:
            while len(found) < limit:  # From one to the next: DISTINCT would read every run of each.
                wanted = some
                if after is not None:  # The first half says nothing new; MariaDB finds no place by the second.
                    wanted = some.where(exports.c.parent >= after[0], tuple_(*place) > tuple_(*map(literal, after)))
                row = connection.execute(wanted).first()
                if row is None:
                    break
                after = (row.parent, row.parent_kind, row.tenant)
                found.append(after)
        return found

    def remove_of(self, tenant: str, parent: ParentRef, *, limit: int = 100) -> int:
        """Delete the runs of a parent that have ended and promise no bytes, before their retention is over."""
        c = exports.c
        of_it = (c.parent == parent.id) & (c.parent_kind == parent.kind) & (c.tenant == tenant)
        ended = c.retain_until.is_not(None) & c.artifact_key.is_(None)
        return self._database.forget(exports, of_it & ended, limit)

    def promised(self, keys: Sequence[str]) -> set[str]:
        """Which of these keys a row still names, as (id, claim_no); the others are orphans.

        Asked of every tenant's rows, for certain: what a tenant's transaction does not see would be removed.
        """
        ids = {key.rpartition(".")[0] for key in keys}
        wanted = select(exports.c.artifact_key).where(exports.c.id.in_(ids), exports.c.artifact_key.is_not(None))
        with self._database.read_of_all() as connection:
            return set(connection.execute(wanted).scalars())

    def abandon_waiting(self, abandon_seconds: float, *, now: int | None = None) -> list[ExportRun]:
        """Fail waiting runs for which no worker was seen for so long (DECISIONS 4)."""
        instant = self._database.now(now)
        since = instant - int(abandon_seconds * 1000)
        alive = (
            select(workers.c.id)
            .where(workers.c.seen_at > since, workers.c.state != "refusing")
            .where(or_(workers.c.only_run.is_(None), workers.c.only_run == exports.c.id))
            .exists()
        )
        values = {"failure_code": "workers_gone"}
        return self.abandon(ExportLife.abandon, values, alive=alive, before=since, now=now)

"""The seven verbs of a worker, and those of the doors, for every run table.

Overview. One class takes ``(table, life, record)``; the SQL of a move is made from the :class:`Move` itself.

    claim      queued -> running      picks, takes a slot, raises claim_no
    heartbeat  running                lease, progress in; cancel request out
    settle     running -> ...         under the fence: id, state, claim_no (and what the move wants of a cancel)
    move       any unleased move      under id and state
    sweep      what is due            makes unleased moves; takes the fence for leased ones

Rules. Every write of a worker carries the guard of its claim; a row count other than one raises LeaseLost.
A tempting wrong settle is ``where id = :id``: a run that a sweep gave away is then settled twice. Another
is to write the whole row back: it would overwrite a cancel that came in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Generic, Protocol, TypeVar

from sqlalchemy import (
    Connection,
    Delete,
    Row,
    Select,
    Table,
    Update,
    and_,
    bindparam,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    tuple_,
    union_all,
    update,
)
from sqlalchemy.sql.elements import ColumnElement

from haulage.core.lease import CancelWanted, Held, LeaseLost, Pulse
from haulage.core.lifecycle import CancelWish, LeaseUse, Lifecycle, Move
from haulage.core.ports import After, Query, Terms
from haulage.core.progress import Progress
from haulage.stores.database import Database

Run = TypeVar("Run")


class Admission(Protocol):
    """What a flow adds to a claim: figures to look at, and what to write when it is admitted."""

    def figures(self) -> Sequence[ColumnElement[Any]]:
        """Columns to select beside the candidate."""

    def admit(self, row: Row[Any], terms: Terms, now: int) -> dict[str, Any] | None:
        """Values to set at the claim, or None when the run has to wait."""


class SqlRuns(Generic[Run]):
    """One run table in a SQL database; implements ``core.ports.Runs``."""

    def __init__(
        self,
        database: Database,
        table: Table,
        life: type[Lifecycle],
        record: type[Run],
        *,
        admission: Admission,
        retention_seconds: float,
        released: Mapping[str, None],
    ) -> None:
        """Prepare the statements once; ``released`` is what a run gives back when its lease ends."""
        self.life = life
        self._database = database
        self._table = table
        self._record = record
        self._names = [field.name for field in fields(record)]  # type: ignore[arg-type]
        self._admission = admission
        self._retention_ms = int(retention_seconds * 1000)
        self._released = dict.fromkeys(released)
        self._claim = next(move for move in life.moves.values() if move.lease is LeaseUse.TAKES)
        self._pick = self._candidate()
        self._beat_statements: dict[bool, Update] = {}

    # -- what doors and workers read ---------------------------------------------------------------

    def add(self, run: Run, *, tx: Connection | None = None) -> None:
        """Insert a new run."""
        values = {name: getattr(run, name) for name in self._names}
        with self._database.write(tx) as connection:
            connection.execute(insert(self._table), values)

    def get(self, run_id: str, *, tx: Connection | None = None) -> Run | None:
        """The run of an id."""
        with self._database.read(tx) as connection:
            row = connection.execute(select(self._table).where(self._table.c.id == run_id)).first()
        return None if row is None else self._run(row)

    def list(self, query: Query, *, tx: Connection | None = None) -> list[Run]:
        """Runs, newest first; one more than ``query.limit`` when there is another page."""
        c = self._table.c
        wanted: Select[Any] = select(self._table)
        for name in ("tenant", "account", "state", "dataset"):
            if (value := getattr(query, name)) is not None:
                wanted = wanted.where(c[name] == value)
        if query.before is not None:
            wanted = wanted.where(tuple_(c.requested_at, c.id) < tuple_(*map(literal, query.before)))
        wanted = wanted.order_by(c.requested_at.desc(), c.id.desc()).limit(query.limit + 1)
        with self._database.read(tx) as connection:
            return [self._run(row) for row in connection.execute(wanted)]

    def find_active(self, active_key: str, *, tx: Connection | None = None) -> Run | None:
        """The active run of a key."""
        with self._database.read(tx) as connection:
            row = connection.execute(select(self._table).where(self._table.c.active_key == active_key)).first()
        return None if row is None else self._run(row)

    def queue_position(self, run: Run, *, tx: Connection | None = None) -> int | None:
        """The place in the claim order now, from 1; None when the run is not waiting."""
        if getattr(run, "state") != self._claim.source:  # noqa: B009 - Run is any record
            return None
        queue = self._queue()
        mine = select(queue).where(queue.c.id == getattr(run, "id")).subquery("mine")  # noqa: B009
        ahead = (
            select(func.count())
            .select_from(queue, mine)
            .where(
                tuple_(queue.c.load, queue.c.requested_at, queue.c.id)
                <= tuple_(mine.c.load, mine.c.requested_at, mine.c.id)
            )
        )
        with self._database.read(tx) as connection:
            position = connection.execute(ahead).scalar_one()
        return position or None

    def waiting(self, *, tenant: str | None = None, tx: Connection | None = None) -> int:
        """How many runs wait, over all tenants or of one."""
        c = self._table.c
        wanted = select(func.count()).where(c.state == self._claim.source)
        if tenant is not None:
            wanted = wanted.where(c.tenant == tenant)
        with self._database.read(tx) as connection:
            return int(connection.execute(wanted).scalar_one())

    # -- claiming ----------------------------------------------------------------------------------

    def claim(self, terms: Terms, *, now: int | None = None, tx: Connection | None = None) -> tuple[Held, Run] | None:
        """Take the next run that fits; None when there is none, or no slot, or it has to wait."""
        now = self._database.now(now)
        with self._database.write(tx) as connection:
            row = connection.execute(
                self._pick,
                {"slots": terms.slots, "tenant_running": terms.tenant_running, "only": terms.only},
            ).first()
            if row is None or row.free_slot is None:
                return None
            admitted = self._admission.admit(row, terms, now)
            if admitted is None:
                return None
            values = {
                "state": self._claim.target,
                "worker": terms.worker,
                "slot": row.free_slot,
                "started_at": now,
                "heartbeat_at": now,
                "updated_at": None,
                "lease_until": now + int(terms.lease_seconds * 1000),
                **admitted,
            }
            claimed = self._write(connection, self._claim, values, {"id": row.id})
        if claimed is None:
            return None
        run = self._run(claimed)
        return Held(row.id, claimed.tenant, claimed.claim_no, terms.worker), run

    def _queue(self) -> Any:  # noqa: ANN401 - a subquery
        """Waiting runs in claim order: a tenant with fewer running runs first, then age."""
        q = self._table.alias("q")
        r = self._table.alias("r")
        load = (
            select(r.c.tenant, func.count().label("running"))
            .where(r.c.state == self._claim.target)
            .group_by(r.c.tenant)
            .subquery("load")
        )
        return (
            select(q.c.id, q.c.requested_at, q.c.tenant, func.coalesce(load.c.running, 0).label("load"))
            .select_from(q.outerjoin(load, load.c.tenant == q.c.tenant))
            .where(q.c.state == self._claim.source)
            .subquery("queue")
        )

    def _candidate(self) -> Select[Any]:
        queue = self._queue()
        taken = self._table.alias("taken")
        # The smallest free slot: 1, or one above a taken slot, that is not itself taken.
        above = select(taken.c.slot + literal(1)).where(taken.c.slot.is_not(None))
        place = union_all(select(literal(1).label("slot")), above).subquery("place")
        free_slot = (
            select(func.min(place.c.slot))
            .where(place.c.slot <= bindparam("slots"))
            .where(place.c.slot.not_in(select(taken.c.slot).where(taken.c.slot.is_not(None))))
            .scalar_subquery()
            .label("free_slot")
        )
        chosen = (
            select(queue.c.id)
            .where(queue.c.load < bindparam("tenant_running"))
            .where(or_(bindparam("only", type_=self._table.c.id.type).is_(None), queue.c.id == bindparam("only")))
            .order_by(queue.c.load, queue.c.requested_at, queue.c.id)
            .limit(1)
            .scalar_subquery()
        )
        figures = self._admission.figures()
        return select(self._table, free_slot, *figures).where(self._table.c.id == chosen)

    # -- holding -----------------------------------------------------------------------------------

    def heartbeat(
        self, beats: Sequence[tuple[Held, Progress | None]], *, lease_seconds: float, now: int | None = None
    ) -> dict[Held, Pulse]:
        """Renew leases, store progress, and learn of cancels; all in one transaction."""
        if not beats:
            return {}
        now = self._database.now(now)
        pulses: dict[Held, Pulse] = {}
        with self._database.write() as connection:
            for held, progress in beats:
                values: dict[str, Any] = {
                    "b_id": held.id,
                    "b_claim": held.claim_no,
                    "b_now": now,
                    "b_lease": now + int(lease_seconds * 1000),
                }
                if progress is not None:
                    values |= {
                        "b_phase": progress.phase,
                        "b_processed": progress.processed,
                        "b_total": progress.total,
                    }
                row = connection.execute(self._beat(progress is not None), values).first()
                pulses[held] = Pulse(row is not None, row is not None and row[0] is not None)
        return pulses

    def _beat(self, with_progress: bool) -> Update:
        if with_progress not in self._beat_statements:
            c = self._table.c
            values: dict[Any, Any] = {
                c.lease_until: bindparam("b_lease"),
                c.heartbeat_at: bindparam("b_now"),
            }
            if with_progress:
                values |= {
                    c.updated_at: bindparam("b_now"),
                    c.phase: bindparam("b_phase"),
                    c.processed: bindparam("b_processed"),
                    c.total: bindparam("b_total"),
                    c.revision: c.revision + 1,
                }
            self._beat_statements[with_progress] = (
                update(self._table)
                .where(
                    c.id == bindparam("b_id"),
                    c.state == self._claim.target,
                    c.claim_no == bindparam("b_claim"),
                )
                .values(values)
                .returning(c.cancel_requested_at)
            )
        return self._beat_statements[with_progress]

    def settle(
        self,
        held: Held,
        move: Move,
        values: Mapping[str, Any],
        *,
        now: int | None = None,
        tx: Connection | None = None,
    ) -> Run:
        """Make a move that ends the lease, under its fence.

        Asked again after an answer was lost, it finds its own result and returns it.

        Raises:
            CancelWanted: the lease holds, but a cancel was requested that this move does not allow.
            LeaseLost: the run is not ours any more.
        """
        assert move.lease is LeaseUse.ENDS, f"{move.name} ends no lease"
        now = self._database.now(now)
        with self._database.write(tx) as connection:
            row = self._write(
                connection, move, self._entering(move, values, now), {"id": held.id, "claim_no": held.claim_no}
            )
            if row is None:
                row = connection.execute(select(self._table).where(self._table.c.id == held.id)).first()
                if row is None or row.claim_no != held.claim_no:
                    raise LeaseLost(held.id)
                if row.state == move.source:
                    raise CancelWanted(held.id)
                if row.state != move.target:
                    raise LeaseLost(held.id)
        return self._run(row)

    # -- moves without a lease ---------------------------------------------------------------------

    def move(
        self,
        run_id: str,
        move: Move,
        values: Mapping[str, Any],
        *,
        now: int | None = None,
        tx: Connection | None = None,
    ) -> Run | None:
        """Make a move that needs no lease; None when the run is not in the move's state."""
        assert move.lease is LeaseUse.NONE, f"{move.name} needs a lease"
        now = self._database.now(now)
        with self._database.write(tx) as connection:
            row = self._write(connection, move, self._entering(move, values, now), {"id": run_id})
        return None if row is None else self._run(row)

    def request_cancel(self, run_id: str, *, now: int | None = None, tx: Connection | None = None) -> Run | None:
        """Record a cancel: a queued run is cancelled at once, a running one is asked to stop.

        Returns the run as it is now, whatever its state; None when there is none.
        """
        c = self._table.c
        now = self._database.now(now)
        at_once = self.life.find(self.life.initial, "cancelled")
        with self._database.write(tx) as connection:
            if at_once is not None:
                values = self._entering(at_once, {"cancel_requested_at": now}, now)
                row = self._write(connection, at_once, values, {"id": run_id})
                if row is not None:
                    return self._run(row)
            # The active key goes, so that the same request right after a cancel is a new run.
            connection.execute(
                update(self._table)
                .where(c.id == run_id, c.state.in_(self.life.leased_states()), c.cancel_requested_at.is_(None))
                .values(cancel_requested_at=now, active_key=None, revision=c.revision + 1)
            )
            row = connection.execute(select(self._table).where(c.id == run_id)).first()
        return None if row is None else self._run(row)

    def sweep(
        self, move: Move, values: Mapping[str, Any], *, worker: str, now: int | None = None, limit: int = 100
    ) -> list[Run]:
        """Do what is due by a move's deadline; see ``core.ports.Runs.sweep``."""
        assert move.deadline is not None, f"{move.name} has no deadline"
        now = self._database.now(now)
        c = self._table.c
        due = and_(c.state == move.source, c[move.deadline] <= now, *self._cancel_guard(move))
        picked = select(c.id).where(due).order_by(c[move.deadline]).limit(limit)
        # An indexed look first: most passes find nothing, and then nothing is written.
        with self._database.read() as connection:
            ids = list(connection.execute(picked).scalars())
        if not ids:
            return []
        if move.lease is LeaseUse.ENDS:
            changes: dict[str, Any] = {
                "claim_no": c.claim_no + 1,
                "worker": worker,
                "lease_until": now + int(SWEEP_LEASE_SECONDS * 1000),
            }
        else:
            changes = self._entering(move, values, now) | {"state": move.target}
        with self._database.write() as connection:
            rows = connection.execute(
                update(self._table).where(c.id.in_(ids), due).values(**changes, revision=c.revision + 1).returning(*c)
            ).all()
        return [self._run(row) for row in rows]

    def abandon(
        self,
        move: Move,
        values: Mapping[str, Any],
        *,
        alive: ColumnElement[bool],
        before: int,
        now: int | None = None,
    ) -> list[Run]:
        """Make an unleased move of waiting runs, asked before an instant, for which nobody is alive."""
        c = self._table.c
        now = self._database.now(now)
        left_alone = and_(c.state == move.source, c.requested_at <= before, ~alive)
        with self._database.read() as connection:
            if connection.execute(select(c.id).where(left_alone).limit(1)).first() is None:
                return []
        with self._database.write() as connection:
            rows = connection.execute(
                update(self._table)
                .where(left_alone)
                .values(**self._entering(move, values, now), state=move.target, revision=c.revision + 1)
                .returning(*c)
            ).all()
        return [self._run(row) for row in rows]

    def remove(self, *, now: int | None = None, limit: int = 100) -> int:
        """Delete rows past their retention that promise no bytes; bytes go before rows."""
        c = self._table.c
        now = self._database.now(now)
        due = and_(c.retain_until <= now, c.artifact_key.is_(None))
        with self._database.read() as connection:
            ids = list(connection.execute(select(c.id).where(due).limit(limit)).scalars())
        if not ids:
            return 0
        statement: Delete = delete(self._table).where(c.id.in_(ids), due)
        with self._database.write() as connection:
            return connection.execute(statement).rowcount

    # -- the one place where a state changes ---------------------------------------------------------

    def _write(
        self, connection: Connection, move: Move, values: Mapping[str, Any], guard: Mapping[str, Any]
    ) -> Row[Any] | None:
        """Make one move under its guard: id, state, the fence where there is one, and the cancel."""
        c = self._table.c
        statement = update(self._table).where(c.state == move.source, *self._cancel_guard(move))
        for name, value in guard.items():
            statement = statement.where(c[name] == value)
        fence = {"claim_no": c.claim_no + 1} if move.lease is LeaseUse.TAKES else {}
        statement = statement.values(**{"state": move.target, **values}, **fence, revision=c.revision + 1)
        return connection.execute(statement.returning(*c)).first()

    def _cancel_guard(self, move: Move) -> list[ColumnElement[bool]]:
        requested = self._table.c.cancel_requested_at
        if move.cancel is CancelWish.ABSENT:
            return [requested.is_(None)]
        if move.cancel is CancelWish.REQUESTED:
            return [requested.is_not(None)]
        return []

    def _entering(self, move: Move, values: Mapping[str, Any], now: int) -> dict[str, Any]:
        """What a row holds after a move: what the lease held is given back, a final state has an end."""
        entered: dict[str, Any] = {}
        if move.lease is LeaseUse.ENDS:
            entered |= {"worker": None, "lease_until": None, "slot": None, **self._released}
        if self.life.is_final(move.target):
            entered |= {"active_key": None, "retain_until": now + self._retention_ms}
            if not self.life.is_final(move.source):
                entered["finished_at"] = now
        for name, value in values.items():
            entered[name] = now + int(value.seconds * 1000) if isinstance(value, After) else value
        return entered

    def _run(self, row: Row[Any]) -> Run:
        return self._record(**{name: getattr(row, name) for name in self._names})


SWEEP_LEASE_SECONDS = 15  # of a sweep that removes the bytes of a lost run

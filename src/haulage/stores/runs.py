"""The seven verbs of a worker, and those of the doors, for every run table.

Overview. One class takes ``(table, life, record)``; the SQL of a move is made from the :class:`Move` itself (moves.py).

    claim      queued -> running      picks (queue.py), takes a slot, raises claim_no
    heartbeat  running                lease, progress in; cancel request out
    settle     running -> ...         under the fence: id, state, claim_no (and what the move wants of a cancel)
    move       any unleased move      under id and state
    sweep      what is due            makes unleased moves; takes the fence for leased ones

Rules. Every write of a worker carries the guard of its claim; a row count other than one raises LeaseLost.
A tempting wrong settle is ``where id = :id``: a run that a sweep gave away is then settled twice. Another
is to write the whole row back: it would overwrite a cancel that came in between.

Statements are built once, and states stand in them as literals: to build one for each call takes longer than
the database does, and a state that is bound hides the partial indexes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from sqlalchemy import (
    Connection,
    Select,
    Table,
    bindparam,
    func,
    insert,
    literal,
    select,
    tuple_,
    update,
)
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.sql.elements import ColumnElement

from haulage.core.lease import CancelWanted, Held, LeaseLost, Pulse
from haulage.core.lifecycle import Actor, CancelWish, LeaseUse, Lifecycle, Move
from haulage.core.ports import After, Query, Terms
from haulage.core.progress import Progress
from haulage.stores.database import Database
from haulage.stores.dialect import driver_of
from haulage.stores.moves import beat_of, guard_of, write_of
from haulage.stores.queue import Queue, in_state
from haulage.stores.tables import SCHEMA_VERSION, facts


class Kept(Protocol):
    """What the verbs themselves read of a record, a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def id(self) -> str:
        """The run's id."""


Run = TypeVar("Run", bound=Kept)

SWEEP_LEASE_SECONDS = 15  # of a sweep that removes the bytes of a lost run


class Admission(Protocol):
    """What a flow adds to a claim: figures to look at, and what to write when it is admitted."""

    def figures(self) -> Sequence[ColumnElement[Any]]:
        """Columns to select beside the candidate's own."""

    def admit(self, row: Any, terms: Terms, now: int) -> dict[str, Any] | None:
        """Values to set at the claim, or None when the run has to wait; ``row`` holds the figures by name."""


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
        """Say how the statements are built; ``released`` is what a run gives back when its lease ends."""
        self.life = life
        self._database = database
        self._table = table
        self._record = record
        self._names = [field.name for field in fields(record)]
        self._columns = [table.c[name] for name in self._names]
        self._admission = admission
        self._retention_ms = int(retention_seconds * 1000)
        self._released = dict.fromkeys(released)
        self._claim = next(move for move in life.moves.values() if move.lease is LeaseUse.TAKES)
        self._queue = queue = Queue(table, self._claim)
        self._insert = insert(table)
        prepare = database.prepare
        self._by_id = prepare(lambda: select(*self._columns).where(table.c.id == bindparam("id")))
        self._by_key = prepare(lambda: select(*self._columns).where(table.c.active_key == bindparam("active_key")))
        self._position = prepare(queue.position)
        self._next = prepare(lambda: self._candidate(queue.next()))
        self._only = prepare(lambda: self._candidate(queue.only()))
        self._writes = {name: prepare(partial(write_of, table, move)) for name, move in life.moves.items()}
        self._beat = prepare(partial(beat_of, table, self._claim, with_progress=False))
        self._beat_with_progress = prepare(partial(beat_of, table, self._claim, with_progress=True))

    # -- what doors and workers read ---------------------------------------------------------------

    def add(self, run: Run, *, tx: Connection | None = None) -> None:
        """Insert a new run."""
        values = {column.name: getattr(run, column.name) for column in self._columns}
        with self._database.write(tx) as connection:
            connection.execute(self._insert, values)

    def get(self, run_id: str, *, tx: Connection | None = None) -> Run | None:
        """The run of an id."""
        with self._database.read_prepared(tx) as driver:
            row = self._by_id.first(driver, {"id": run_id})
        return None if row is None else self._record(*row)

    def find_active(self, active_key: str, *, tx: Connection | None = None) -> Run | None:
        """The active run of a key."""
        with self._database.read_prepared(tx) as driver:
            row = self._by_key.first(driver, {"active_key": active_key})
        return None if row is None else self._record(*row)

    def queue_position(self, run: Run, *, tx: Connection | None = None) -> int | None:
        """The place in the claim order now, from 1; None when the run is not waiting."""
        with self._database.read_prepared(tx) as driver:
            row = self._position.first(driver, {"id": run.id})
        return None if row is None else row.place or None

    def waiting(self, *, tenant: str | None = None, tx: Connection | None = None) -> int:
        """How many runs wait, over all tenants or of one."""
        wanted = select(func.count()).select_from(self._table).where(in_state(self._table, self._claim.source))
        if tenant is not None:
            wanted = wanted.where(self._table.c.tenant == tenant)
        with self._database.read(tx) as connection:
            return int(connection.execute(wanted).scalar_one())

    # -- claiming ----------------------------------------------------------------------------------

    def claim(self, terms: Terms, *, now: int | None = None, tx: Connection | None = None) -> tuple[Held, Run] | None:
        """Take the next run that fits; None when there is none, or no slot, or it has to wait."""
        asked = {"slots": terms.slots, "tenant_running": terms.tenant_running}
        with self._database.write_prepared(tx) as driver:
            now = self._database.now(now)  # not before it is our turn: a run that came meanwhile was asked for earlier
            if terms.only is None:
                row = self._next.first(driver, asked)
            else:
                row = self._only.first(driver, asked | {"only": terms.only})
            if row is None or row.free_slot is None:
                return None
            admitted = self._admission.admit(row, terms, now)
            if admitted is None:
                return None
            values = {
                "worker": terms.worker,
                "slot": row.free_slot,
                "claim_no": row.claim_no + 1,
                "started_at": now,
                "heartbeat_at": now,
                "updated_at": None,
                "lease_until": now + int(terms.lease_seconds * 1000),
                **admitted,
            }
            if not self._write(driver, self._claim, values, row.id, row.claim_no):
                return None
        # What was read and what was written make the row as it is now: nobody else writes in between.
        kept = dict(zip(self._names, row, strict=False)) | values
        kept |= {"state": self._claim.target, "revision": row.revision + 1}
        return Held(row.id, row.tenant, row.claim_no + 1, terms.worker), self._record(**kept)

    def _candidate(self, chosen: ColumnElement[Any]) -> Select[Any]:
        free_slot = self._queue.free_slot().label("free_slot")
        figures = self._admission.figures()
        # A store that was migrated may want newer workers; one that lives on must not claim, whenever it last looked.
        oldest = select(facts.c.value).where(facts.c.name == "min_worker").scalar_subquery()
        return select(*self._columns, free_slot, *figures).where(self._table.c.id == chosen, oldest <= SCHEMA_VERSION)

    # -- holding -----------------------------------------------------------------------------------

    def heartbeat(
        self, beats: Sequence[tuple[Held, Progress | None]], *, lease_seconds: float, now: int | None = None
    ) -> dict[Held, Pulse]:
        """Renew leases, store progress, and learn of cancels; all in one transaction."""
        if not beats:
            return {}
        now = self._database.now(now)
        pulses: dict[Held, Pulse] = {}
        with self._database.write_prepared() as driver:
            for held, progress in beats:
                values: dict[str, Any] = {
                    "guard_id": held.id,
                    "guard_claim_no": held.claim_no,
                    "heartbeat_at": now,
                    "lease_until": now + int(lease_seconds * 1000),
                }
                statement = self._beat
                if progress is not None:
                    statement = self._beat_with_progress
                    values |= {
                        "updated_at": now,
                        "phase": progress.phase,
                        "processed": progress.processed,
                        "total": progress.total,
                    }
                row = statement.first(driver, values)
                pulses[held] = Pulse(row is not None, row is not None and row[0] is not None)
        return pulses

    def settle(
        self,
        held: Held,
        move: Move,
        values: Mapping[str, Any],
        *,
        now: int | None = None,
        tx: Connection | None = None,
    ) -> None:
        """Make a move that ends the lease, under its fence.

        Asked again after an answer was lost, it finds its own result and is content.

        Raises:
            CancelWanted: the lease holds, but a cancel was requested that this move does not allow.
            LeaseLost: the run is not ours any more.
        """
        assert move.lease is LeaseUse.ENDS, f"{move.name} ends no lease"
        now = self._database.now(now)
        with self._database.write_prepared(tx) as driver:
            if self._write(driver, move, self._entering(move, values, now), held.id, held.claim_no):
                return
            row = self._by_id.first(driver, {"id": held.id})
            if row is None or row.claim_no != held.claim_no:
                raise LeaseLost(held.id)
            if row.state == move.source:
                assert move.cancel is CancelWish.ABSENT, f"{move.name} needs a cancel request, and there is none"
                raise CancelWanted(held.id)
            if row.state != move.target:
                raise LeaseLost(held.id)

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
        with self._database.write_prepared(tx) as driver:
            if not self._write(driver, move, self._entering(move, values, now), run_id):
                return None
            row = self._by_id.first(driver, {"id": run_id})
        return self._record(*row)

    def request_cancel(self, run_id: str, *, now: int | None = None, tx: Connection | None = None) -> Run | None:
        """Record a cancel: a queued run is cancelled at once, a running one is asked to stop.

        Returns the run as it is now, whatever its state; None when there is none.
        """
        c = self._table.c
        now = self._database.now(now)
        at_once = [
            move
            for move in self.life.moves.values()
            if move.by is Actor.REQUESTER and move.target == "cancelled" and move.lease is LeaseUse.NONE
        ]
        # The active key goes, so that the same request right after a cancel is a new run.
        wish = {"cancel_requested_at": now, "active_key": None}
        with self._database.write(tx) as connection:
            driver = driver_of(connection.connection)
            if not any(self._write(driver, move, self._entering(move, wish, now), run_id) for move in at_once):
                connection.execute(
                    update(self._table)
                    .where(c.id == run_id, c.state.in_(self.life.leased_states()), c.cancel_requested_at.is_(None))
                    .values(**wish, revision=c.revision + 1)
                )
            row = self._by_id.first(driver, {"id": run_id})
        return None if row is None else self._record(*row)

    # -- what is due -------------------------------------------------------------------------------

    def sweep(
        self, move: Move, values: Mapping[str, Any], *, worker: str, now: int | None = None, limit: int = 100
    ) -> list[Run]:
        """Do what is due by a move's deadline; see ``core.ports.Runs.sweep``."""
        assert move.deadline is not None, f"{move.name} has no deadline"
        now = self._database.now(now)
        deadline = self._table.c[move.deadline]
        due = (*guard_of(self._table, move), deadline <= now)
        if move.lease is not LeaseUse.ENDS:
            changes = self._entering(move, values, now) | {"state": move.target}
            return self._change_due(due, deadline, changes, limit)
        # Every deadline of the state is put off, or another sweep would take the fence by one of the others
        # while this one still removes bytes.
        until = now + SWEEP_LEASE_SECONDS * 1000
        put_off = {str(each.deadline): until for each in self.life.due_moves() if each.source == move.source}
        fence = {"claim_no": self._table.c.claim_no + 1, "worker": worker}
        return self._change_due(due, deadline, fence | put_off, limit)

    def abandon(
        self,
        move: Move,
        values: Mapping[str, Any],
        *,
        alive: ColumnElement[bool],
        before: int,
        now: int | None = None,
        limit: int = 100,
    ) -> list[Run]:
        """Make an unleased move of waiting runs, asked before an instant, for which nobody is alive."""
        asked = self._table.c.requested_at
        changes = self._entering(move, values, self._database.now(now)) | {"state": move.target}
        return self._change_due((*guard_of(self._table, move), asked <= before, ~alive), asked, changes, limit)

    def _change_due(
        self, due: Sequence[ColumnElement[bool]], oldest: ColumnElement[Any], changes: Mapping[str, Any], limit: int
    ) -> list[Run]:
        """Pick at most so many that are due, then change those that still are."""
        c = self._table.c
        # A look first: most passes find nothing, and then nothing is written.
        with self._database.read() as connection:
            picked = select(c.id).where(*due).order_by(oldest, c.id).limit(limit)
            ids = list(connection.execute(picked).scalars())
        if not ids:
            return []
        with self._database.write() as connection:
            rows = connection.execute(
                update(self._table)
                .where(c.id.in_(ids), *due)
                .values(**changes, revision=c.revision + 1)
                .returning(*self._columns)
            ).all()
        return [self._record(*row) for row in rows]

    def remove(self, *, now: int | None = None, limit: int = 100) -> int:
        """Delete rows past their retention that promise no bytes; bytes go before rows."""
        c = self._table.c
        due = (c.retain_until <= self._database.now(now)) & c.artifact_key.is_(None)
        return self._database.forget(self._table, due, limit)

    # -- lists; after every annotation that means the type of that name --------------------------------

    def list(self, query: Query, *, tx: Connection | None = None) -> list[Run]:
        """Runs, newest first; one more than ``query.limit`` when there is another page."""
        c = self._table.c
        wanted: Select[Any] = select(*self._columns)
        for name in ("tenant", "account", "state", "dataset"):
            if (value := getattr(query, name)) is not None:
                wanted = wanted.where(c[name] == value)
        if query.before is not None:
            wanted = wanted.where(tuple_(c.requested_at, c.id) < tuple_(*map(literal, query.before)))
        wanted = wanted.order_by(c.requested_at.desc(), c.id.desc()).limit(query.limit + 1)
        with self._database.read(tx) as connection:
            return [self._record(*row) for row in connection.execute(wanted)]

    # -- the one place where a state changes ---------------------------------------------------------

    def _write(
        self,
        driver: DBAPIConnection,
        move: Move,
        values: Mapping[str, Any],
        run_id: str,
        claim_no: int | None = None,
    ) -> bool:
        """Make one move under its guard: id, state, the fence where there is one, and the cancel."""
        written = {**values, "state": str(move.target), "guard_id": run_id}
        if move.lease is not LeaseUse.NONE:
            written["guard_claim_no"] = claim_no
        return self._writes[move.name].changed(driver, written)

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

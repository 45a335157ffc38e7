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

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from sqlalchemy import Connection, Table, bindparam, insert, select, update
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.sql.elements import ColumnElement

from haulage.core.errors import StoreUnavailable
from haulage.core.lease import CancelWanted, Held, LeaseLost, Pulse
from haulage.core.lifecycle import Actor, CancelWish, LeaseUse, Lifecycle, Move
from haulage.core.ports import Query, Terms
from haulage.core.progress import Progress
from haulage.stores.claims import Admission
from haulage.stores.counters import drift
from haulage.stores.database import Database, made_again
from haulage.stores.dialect import Instant
from haulage.stores.entering import entering
from haulage.stores.lists import listed
from haulage.stores.moves import ask_of, beat_of, guard_of, pulses_of, row_of_beat, write_of
from haulage.stores.oldest import ClaimOldest
from haulage.stores.prepared import PerTenant
from haulage.stores.queue import Queue, in_state


class Kept(Protocol):
    """What the verbs themselves read of a record, a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    id: str
    tenant: str
    state: str
    claim_no: int
    cancel_requested_at: int | None


Run = TypeVar("Run", bound=Kept)

CHANGES_MAX = 5  # how often a settle looks at a run that changed between its write and its look
SWEEP_LEASE_SECONDS = 15  # of a sweep that removes the bytes of a lost run


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
        self._retention_ms = int(retention_seconds * 1000)
        self._released = dict.fromkeys(released)
        self._claim = next(move for move in life.moves.values() if move.lease is LeaseUse.TAKES)
        self._queue = queue = Queue(table, self._claim)
        self._insert = insert(table)
        prepare, own = database.prepare, partial(PerTenant, table, database.way)
        self._by_id = own(lambda: select(*self._columns).where(table.c.id == bindparam("id")), record)
        self._by_key = own(lambda: select(*self._columns).where(table.c.active_key == bindparam("active_key")), record)
        self._position = prepare(queue.placed if database.dialect.capabilities.row_security else queue.position)
        self._writes = {name: own(partial(write_of, table, move)) for name, move in life.moves.items()}
        self._ask = own(partial(ask_of, table, life))
        self._at_once = [
            move
            for move in life.moves.values()
            if move.by is Actor.REQUESTER and move.target == "cancelled" and move.lease is LeaseUse.NONE
        ]
        claimer = database.dialect.claimer if table.info["counted"] else ClaimOldest
        self._claimer = claimer(database, table, self._claim, self._columns, record, admission, self._take)
        beats, clock = database.dialect.beats(), database.dialect.clock
        self._answers = database.engine.dialect.update_returning
        self._beat = prepare(partial(beat_of, table, self._claim, beats, clock, answers=self._answers))
        self._pulses = prepare(partial(pulses_of, table, self._claim, beats))

    # -- what doors and workers read ---------------------------------------------------------------

    @made_again
    def add(self, run: Run, *, tx: Connection | None = None) -> None:
        """Insert a new run."""
        values = {column.name: getattr(run, column.name) for column in self._columns}
        with self._database.write(tx, tenant=values["tenant"]) as connection:
            connection.execute(self._insert, values)
        self._ring(tx)

    @made_again
    def get(self, run_id: str, *, tenant: str | None = None, tx: Connection | None = None) -> Run | None:
        """The run of an id."""
        with self._database.read_prepared(tx, tenant=tenant) as driver:
            return self._by_id.first(driver, {"id": run_id}, tenant)  # type: ignore[no-any-return]

    @made_again
    def find_active(self, active_key: str, *, tenant: str | None = None, tx: Connection | None = None) -> Run | None:
        """The active run of a key."""
        with self._database.read_prepared(tx, tenant=tenant) as driver:
            return self._by_key.first(driver, {"active_key": active_key}, tenant)  # type: ignore[no-any-return]

    def queue_position(self, run: Run, *, tx: Connection | None = None) -> int | None:
        """The place in the claim order now, from 1; None when the run is not waiting."""
        with self._database.read_prepared(tx) as driver:
            row = self._position.first(driver, {"id": run.id})
        return None if row is None else row.place or None

    def waiting(self, *, tenant: str | None = None, tx: Connection | None = None) -> int:
        """How many runs wait, over all tenants or of one."""
        wanted = self._queue.waiting(tenant, counted=self._database.dialect.capabilities.counters)
        with self._database.read(tx, tenant=tenant) as connection:
            return int(connection.execute(wanted).scalar_one())

    # -- claiming ----------------------------------------------------------------------------------

    @made_again
    def claim(self, terms: Terms, *, now: int | None = None, tx: Connection | None = None) -> tuple[Held, Run] | None:
        """Take the next run that fits; None when there is none, or no slot, or it has to wait."""
        run = self._claimer.claim(terms, now, tx)
        if run is None:
            return None
        self._ring(tx)
        return Held(run.id, run.tenant, run.claim_no, terms.worker), run

    def _take(self, driver: DBAPIConnection, values: Mapping[str, Any], run_id: str, claim_no: int) -> bool:
        return self._write(driver, self._claim, values, run_id, claim_no)

    def drift(self) -> list[str]:
        """Where the counters of the database and the runs differ, as sentences; there are none where none are kept."""
        if not self._database.dialect.capabilities.counters or not self._table.info["counted"]:
            return []
        with self._database.read() as connection:
            return drift(connection, self._table, self.life, self._claimer.beside())

    # -- holding -----------------------------------------------------------------------------------

    @made_again
    def heartbeat(
        self, beats: Sequence[tuple[Held, Progress | None]], *, lease_seconds: float, now: int | None = None
    ) -> dict[Held, Pulse]:
        """Renew leases, store progress, and learn of cancels: one statement for all runs of a worker."""
        if not beats:
            return {}
        instant = self._database.now(now)
        doc = {"doc": json.dumps([row_of_beat(*beat) for beat in beats])}
        at = {"now": instant if isinstance(instant, int) else None, "lease_ms": int(lease_seconds * 1000)}
        with self._database.write_prepared(one=self._answers) as driver:
            rows = self._beat.all(driver, doc | at) if self._answers else self._pulsed(driver, doc | at)
        if any(progress is not None for _, progress in beats):
            self._ring(None)
        wishes = {(row.id, row.claim_no): row.cancel_requested_at is not None for row in rows}
        keys = {held: (held.id, held.claim_no) for held, _ in beats}
        return {held: Pulse(key in wishes, wishes.get(key, False)) for held, key in keys.items()}

    def _pulsed(self, driver: Any, values: Mapping[str, Any]) -> list[Any]:
        """Beat with a statement that answers nothing, and ask. What is claimed between the two has not beaten yet."""
        for _ in range(CHANGES_MAX):
            renewed = self._beat.changed(driver, values)
            rows = self._pulses.all(driver, {"doc": values["doc"]})
            if len(rows) <= renewed:
                break
        return rows

    @made_again
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
        entering = self._entering(move, values, self._database.now(now))
        for _ in range(CHANGES_MAX):
            with self._database.write_prepared(tx, one=True) as driver:
                if self._write(driver, move, entering, held.id, held.claim_no):
                    self._ring(tx)
                    return
                run: Run | None = self._by_id.first(driver, {"id": held.id})
            if run is None or run.claim_no != held.claim_no:
                raise LeaseLost(held.id)
            if run.state != move.source:
                if run.state == move.target:
                    return
                raise LeaseLost(held.id)
            if not move.allows_cancel(cancel_requested=run.cancel_requested_at is not None):
                assert move.cancel is CancelWish.ABSENT, f"{move.name} needs a cancel request, and there is none"
                raise CancelWanted(held.id)
            # The move could be made by now: it was read later than it was written, and somebody came between.
        raise StoreUnavailable("the run changes faster than it can be settled")

    # -- moves without a lease ---------------------------------------------------------------------

    @made_again
    def move(
        self,
        run_id: str,
        move: Move,
        values: Mapping[str, Any],
        *,
        tenant: str | None = None,
        now: int | None = None,
        tx: Connection | None = None,
    ) -> Run | None:
        """Make a move that needs no lease; None when the run is not in the move's state."""
        assert move.lease is LeaseUse.NONE, f"{move.name} needs a lease"
        entering = self._entering(move, values, self._database.now(now))
        with self._database.write_prepared(tx, tenant=tenant) as driver:
            if not self._write(driver, move, entering, run_id, tenant=tenant):
                return None
            run: Run = self._by_id.first(driver, {"id": run_id}, tenant)
        self._ring(tx)
        return run

    @made_again
    def request_cancel(
        self, run_id: str, *, tenant: str | None = None, now: int | None = None, tx: Connection | None = None
    ) -> Run | None:
        """Record a cancel: a queued run is cancelled at once, a running one is asked to stop.

        Returns the run as it is now, whatever its state; None when there is none.
        """
        # The active key goes, so that the same request right after a cancel is a new run.
        instant = self._database.now(now)
        wish: dict[str, Any] = {"cancel_requested_at": instant, "active_key": None}
        with self._database.write_prepared(tx, tenant=tenant) as driver:
            for _ in range(CHANGES_MAX):
                for move in self._at_once:
                    if self._write(driver, move, self._entering(move, wish, instant), run_id, tenant=tenant):
                        break
                else:
                    self._ask.changed(driver, wish | {"guard_id": run_id}, tenant)
                run: Run | None = self._by_id.first(driver, {"id": run_id}, tenant)
                if run is None or self.life.is_final(run.state) or run.cancel_requested_at is not None:
                    break  # Else it was running, then waiting, and each time the other was looked for.
            else:
                raise StoreUnavailable("the run changes faster than it can be cancelled")
        self._ring(tx)
        return run

    # -- what is due -------------------------------------------------------------------------------

    def sweep(
        self, move: Move, values: Mapping[str, Any], *, worker: str, now: int | None = None, limit: int = 100
    ) -> list[Run]:
        """Do what is due by a move's deadline; see ``core.ports.Runs.sweep``."""
        assert move.deadline is not None, f"{move.name} has no deadline"
        instant = self._database.now(now)
        deadline = self._table.c[move.deadline]
        due = (in_state(self._table, move.source), *guard_of(self._table, move), deadline <= instant)
        if move.lease is not LeaseUse.ENDS:
            changes = self._entering(move, values, instant) | {"state": move.target}
            return self._change_due(due, deadline, changes, limit)
        # Every deadline of the state is put off, or another sweep would take the fence by one of the others
        # while this one still removes bytes.
        until = instant + SWEEP_LEASE_SECONDS * 1000
        put_off = {str(each.deadline): until for each in self.life.due_moves() if each.source == move.source}
        fence = {"claim_no": self._table.c.claim_no + 1, "worker": worker}
        return self._change_due(due, deadline, fence | put_off, limit)

    def abandon(
        self,
        move: Move,
        values: Mapping[str, Any],
        *,
        alive: ColumnElement[bool],
        before: Instant,
        now: int | None = None,
        limit: int = 100,
    ) -> list[Run]:
        """Make an unleased move of waiting runs, asked before an instant, for which nobody is alive."""
        asked = self._table.c.requested_at
        changes = self._entering(move, values, self._database.now(now)) | {"state": move.target}
        due = (in_state(self._table, move.source), *guard_of(self._table, move), asked <= before, ~alive)
        return self._change_due(due, asked, changes, limit)

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
        # One by one where others write too: two that change many rows in another order would wait for each other.
        bundles = [ids] if self._database.dialect.in_one else [[each] for each in ids]
        changed = [run for bundle in bundles for run in self._change(bundle, due, changes)]
        self._ring(None)
        return changed

    @made_again
    def _change(
        self, ids: Sequence[str], due: Sequence[ColumnElement[bool]], changes: Mapping[str, Any]
    ) -> Sequence[Run]:
        """Change those that are still due."""
        c = self._table.c
        statement = update(self._table).values(**changes, revision=c.revision + 1)
        with self._database.write() as connection:
            if self._answers:
                rows = connection.execute(statement.where(c.id.in_(ids), *due).returning(*self._columns)).all()
            else:
                made = [each for each in ids if connection.execute(statement.where(c.id == each, *due)).rowcount]
                rows = connection.execute(select(*self._columns).where(c.id.in_(made))).all() if made else []
        return [self._record(*row) for row in rows]

    def remove(self, *, now: int | None = None, limit: int = 100) -> int:
        """Delete rows past their retention that promise no bytes; bytes go before rows."""
        c = self._table.c
        due = (c.retain_until <= self._database.now(now)) & c.artifact_key.is_(None)
        return self._database.forget(self._table, due, limit)

    # -- lists; after every annotation that means the type of that name --------------------------------

    @made_again
    def list(self, query: Query, *, tx: Connection | None = None) -> list[Run]:
        """Runs, newest first; one more than ``query.limit`` when there is another page."""
        apart = self._database.dialect.lists_held_apart
        wanted = listed(self._table, self.life, self._columns, query, held_apart=apart)
        with self._database.read(tx, tenant=query.tenant) as connection:
            return [self._record(*row) for row in connection.execute(wanted)]

    # -- the one place where a state changes ---------------------------------------------------------

    def _write(
        self,
        driver: DBAPIConnection,
        move: Move,
        values: Mapping[str, Any],
        run_id: str,
        claim_no: int | None = None,
        tenant: str | None = None,
    ) -> bool:
        """Make one move under its guard: id, state, the fence where there is one, the cancel, and whose it is."""
        written = {**values, "guard_id": run_id}
        written.pop("state", None)  # It is the move's, and stands in the statement.
        if move.lease is not LeaseUse.NONE:
            written["guard_claim_no"] = claim_no
        return self._writes[move.name].changed(driver, written, tenant) != 0

    def _ring(self, tx: Connection | None) -> None:
        if tx is None:  # Else the transaction rings when it is committed.
            self._database.ring()

    def _entering(self, move: Move, values: Mapping[str, Any], now: Instant) -> dict[str, Any]:
        """What a row holds after a move (entering.py)."""
        return entering(self.life, move, values, now=now, released=self._released, retention_ms=self._retention_ms)

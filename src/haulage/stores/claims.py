"""How a run is claimed, in the three ways of three databases; the order is that of queue.py in all of them.

    alone      SQLite: a transaction that writes is alone, so the candidate is read and then written
    in one     PostgreSQL: one statement; gate, run and pool are picked and locked in its CTEs, then the run is written
    in steps   MariaDB: the same locks in the same order, a statement each, in a short transaction

Gates and the pool are told in counters.py. A look passes over gates that are locked, so that claims of different
tenants do not wait for each other; where it finds nothing, the locks of gate and pool are waited for, and only then
is looked again: a statement that waits for a lock still sees the slots as they were before. A claim may answer
None while a run waits; the caller looks again (DECISIONS 8). Where runs share nothing, see oldest.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from types import SimpleNamespace
from typing import Any, Protocol

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Integer,
    Select,
    String,
    Table,
    Update,
    bindparam,
    func,
    literal_column,
    null,
    select,
    update,
)
from sqlalchemy.engine.interfaces import DBAPIConnection

from haulage.core.errors import StoredUnreadable
from haulage.core.lifecycle import Move
from haulage.core.ports import Terms
from haulage.core.progress import Progress
from haulage.stores.counters import Kept
from haulage.stores.database import Database, Refusal
from haulage.stores.dialect import Instant
from haulage.stores.moves import guard_of
from haulage.stores.pool import FREE_SLOT, MIN_WORKER, in_pool
from haulage.stores.queue import ONE, Queue, in_state, still_in
from haulage.stores.tables import RESULTS, SCHEMA_VERSION, facts, gates, pools

EMPTIED = ("updated_at", *Progress._fields)  # what every claim makes null
UNKNOWN = ("finished_at", "retain_until", *RESULTS)  # what a run that waits never had

Write = Callable[[DBAPIConnection, Mapping[str, Any], str, int], bool]  # the claim's move, under its guard


class Admission(Protocol):
    """What a flow adds to a claim: a look at the budget, and what to write when it is admitted."""

    def figures(self) -> Sequence[ColumnElement[Any]]:
        """``stored_all`` and ``reserved_all``, counted from the runs."""

    def admit(self, row: Any, terms: Terms, now: Instant) -> dict[str, Any] | None:
        """Values to set at the claim, or None when the run has to wait; ``row`` holds the figures by name."""

    def weighed(self, run: Any, pool: Any) -> Sequence[ColumnElement[Any]]:
        """What is found of both while they are locked; bound is ``store_bytes``."""

    def admitted(self, run: Any, found: Any, now: ColumnElement[int]) -> tuple[ColumnElement[bool], dict[str, Any]]:
        """The same as SQL: whether it is admitted, and what is set; bound is ``grace_ms``.

        ``found`` has what was weighed, where runs share a pool.
        """


class Claimer(Protocol):
    """One way to claim."""

    def claim(self, terms: Terms, now: int | None, tx: Connection | None) -> Any | None:
        """Claim a run and give its record as it is now; None when there is none, or it has to wait."""


def not_too_old() -> ColumnElement[bool]:
    """A store that was migrated may want newer workers; one that lives on must not claim, whenever it last looked."""
    oldest = select(facts.c.value).where(facts.c.name == literal_column("'min_worker'")).scalar_subquery()
    return oldest <= literal_column(str(SCHEMA_VERSION))


class Claims:
    """What every way to claim is given."""

    def __init__(
        self,
        database: Database,
        table: Table,
        claim: Move,
        columns: Sequence[Column[Any]],
        record: Callable[..., Any],
        admission: Admission,
        write: Write,
    ) -> None:
        """Keep it, and prepare the statements."""
        self._database = database
        self._table = table
        self._move = claim
        self._columns = columns
        self._record = record  # of all columns
        self._admission = admission
        self._write = write
        self._queue = Queue(table, claim)
        self._told, self._make = self._answer()
        self._prepare()

    def _prepare(self) -> None:
        raise AssertionError("each way has statements of its own")

    def _answer(self) -> tuple[list[Column[Any]], Callable[..., Any]]:
        """The columns that a claim in one statement asks for, and how their cells become a record.

        Each is work on both sides: what the claim itself writes is not asked for, nor what a run that waits never had.
        """
        known: dict[str, Any] = {"state": str(self._move.target), **dict.fromkeys(("heartbeat_at", *EMPTIED, *UNKNOWN))}
        told = [column for column in self._columns if column.name not in known]
        names = [column.name for column in told]
        places = {name: place for place, name in enumerate([*names, *known])}
        places["heartbeat_at"] = places["started_at"]
        order = itemgetter(*(places[column.name] for column in self._columns))
        rest, record = tuple(known.values()), self._record
        return told, lambda *cells: record(*order(cells + rest))

    def beside(self) -> list[Kept]:
        """What else a claim goes by that is kept beside the runs (counters.drift)."""
        return []

    def now(self) -> ColumnElement[int]:
        """The instant of a claim in one statement: what is bound, or the database's own."""
        given, clock = bindparam("now", type_=BigInteger), self._database.dialect.clock
        return given if clock is None else func.coalesce(given, clock)

    def claimed(self, now: ColumnElement[int]) -> dict[str, Any]:
        """What every claim writes, in SQL; bound are ``worker`` and ``lease_ms``."""
        c = self._table.c
        return {
            "state": literal_column(f"'{self._move.target}'"),
            "revision": c.revision + ONE,
            "worker": bindparam("worker"),
            "claim_no": c.claim_no + ONE,
            "started_at": now,
            "heartbeat_at": now,
            "updated_at": null(),
            "lease_until": now + bindparam("lease_ms", type_=BigInteger),
        }


class ClaimAlone(Claims):
    """For a database with one writer at a time."""

    def _prepare(self) -> None:
        self._names = [column.name for column in self._columns]
        self._target = str(self._move.target)
        self._next = self._database.prepare(lambda: self._candidate(self._queue.next()))
        self._only = self._database.prepare(lambda: self._candidate(self._queue.only()))

    def claim(self, terms: Terms, now: int | None, tx: Connection | None) -> Any | None:
        """Read the candidate with all that decides, and write it."""
        asked = {"slots": terms.slots, "tenant_running": terms.tenant_running}
        with self._database.write_prepared(tx) as driver:
            # Not before it is our turn: a run that came meanwhile was asked for earlier.
            instant = self._database.now(now)
            if terms.only is None:
                row = self._next.first(driver, asked)
            else:
                row = self._only.first(driver, asked | {"only": terms.only})
            if row is None or row.free_slot is None:
                return None
            try:
                admitted = self._admission.admit(row, terms, instant)
                values = None if admitted is None else written(row, terms, instant) | {"slot": row.free_slot} | admitted
            except TypeError:  # This database keeps text in a column of numbers, if a disk or a hand put it there.
                raise StoredUnreadable(f"run {row.id}: column {', '.join(self._no_numbers(row))}") from None
            if values is None or not self._write(driver, values, row.id, row.claim_no):
                return None
        # What was read and what was written make the row as it is now: nobody else writes in between.
        kept = dict(zip(self._names, row, strict=False)) | values
        kept |= {"state": self._target, "revision": row.revision + 1}
        return self._record(*[kept[name] for name in self._names])

    def _no_numbers(self, row: Any) -> list[str]:
        kept = ((column, getattr(row, column.name)) for column in self._columns if isinstance(column.type, Integer))
        return [column.name for column, value in kept if value is not None and not isinstance(value, int)]

    def _candidate(self, chosen: ColumnElement[Any]) -> Select[Any]:
        free_slot = self._queue.free_slot().label("free_slot")
        figures = self._admission.figures()
        return select(*self._columns, free_slot, *figures).where(self._table.c.id == chosen, not_too_old())


class _Gates:
    """The gate and the pool of a run table, to be locked in this order."""

    def __init__(self, database: Database, table: Table, claim: Move) -> None:
        self._table = table
        self._waits = claim.source
        prepare = database.prepare
        self._free = {only: prepare(partial(self._alone, only=only, skip=True)) for only in (False, True)}
        self._any = {only: prepare(partial(self._alone, only=only)) for only in (False, True)}
        self._pool = prepare(self._locked_pool)

    def open(self, *, only: bool, skip: bool = False) -> Select[Any]:
        """The gate that is next; bound are ``tenant_running``, and ``only`` for a private worker."""
        g = gates.c
        wanted = select(g.tenant, g.head_at, g.head_id).where(
            g.flow == self._flow(),
            g.running < bindparam("tenant_running"),
        )
        if only:
            q = self._table.alias("q")
            whose = select(q.c.tenant).where(q.c.id == bindparam("only"), still_in(q, self._waits))
            wanted = wanted.where(g.tenant == whose.scalar_subquery())
        else:
            wanted = wanted.where(g.head_at.is_not(None)).order_by(g.running, g.head_at, g.head_id)
        return wanted.limit(literal_column("1")).with_for_update(skip_locked=skip, of=gates if skip else None)

    def _alone(self, *, only: bool, skip: bool = False) -> Select[Any]:
        return self.open(only=only, skip=skip).where(not_too_old())

    def lock(self, driver: DBAPIConnection, terms: Terms, *, wait: bool = True) -> Any | None:
        """Lock the gate that is next; None when none is open."""
        asked: dict[str, Any] = {"tenant_running": terms.tenant_running}
        if terms.only is not None:
            asked["only"] = terms.only
        return (self._any if wait else self._free)[terms.only is not None].first(driver, asked)

    def lock_pool(self, driver: DBAPIConnection) -> Any:
        """Lock the pool: ``stored_all`` and ``reserved_all``."""
        return self._pool.first(driver, {})

    def _locked_pool(self) -> Select[Any]:
        figures = pools.c.stored_bytes.label("stored_all"), pools.c.reserved_bytes.label("reserved_all")
        return select(*figures).where(pools.c.flow == self._flow()).with_for_update()

    def _flow(self) -> ColumnElement[str]:
        return literal_column(f"'{self._table.name}'", String)


class ClaimInOne(Claims):
    """One statement, where UPDATE answers rows and a CTE can lock them."""

    def _prepare(self) -> None:
        self._gates = _Gates(self._database, self._table, self._move)
        self._looks = {
            (only, waited): self._database.prepare(partial(self._look, only=only, waited=waited), self._make)
            for only in (False, True)
            for waited in (False, True)
        }

    def claim(self, terms: Terms, now: int | None, tx: Connection | None) -> Any | None:
        """Look once without waiting for anybody; then, if that found nothing, with the locks in hand."""
        asked = asked_of(terms, now) | {
            "slots": terms.slots,
            "tenant_running": terms.tenant_running,
            "store_bytes": terms.store_bytes,
        }
        only = terms.only is not None
        if only:
            asked["only"] = terms.only
        if tx is None:
            try:
                with self._database.write_prepared(one=True) as driver:
                    run = self._looks[only, False].first(driver, asked)
            except Refusal:  # The pool is wrong about the slot, and the unique column kept the limit.
                run = None
            if run is not None:
                return run
        with self._database.write_prepared(tx) as driver:
            if self._gates.lock(driver, terms) is None:
                return None
            self._gates.lock_pool(driver)
            return self._looks[only, True].first(driver, asked)

    def _look(self, *, only: bool, waited: bool) -> Update:
        """Pick the gate, then the run with all that decides, each in a CTE.

        As a plain subquery with LIMIT the pick could be run more than once, and change more rows than one. Who waited
        takes the first that nobody holds; else the head is looked for by its id, past the dead entries that are at the
        front of the queue's index as long as somebody holds an old snapshot.
        """
        e, q = self._table, self._table.alias("q")
        gate = self._gates.open(only=only, skip=True).cte("gate")
        free_slot = (self._queue.free_slot() if waited else FREE_SLOT).label("free_slot")
        now, weighed = self.now().label("now"), self._admission.weighed(q, pools)
        of_flow = pools.c.flow == literal_column(f"'{e.name}'", String)
        not_older = literal_column(str(SCHEMA_VERSION)) >= MIN_WORKER
        picked = select(place_of(q), free_slot, now, *weighed).where(of_flow, not_older)
        if only:
            picked = picked.where(q.c.id == bindparam("only"), q.c.tenant == value_of(gate.c.tenant))
        elif not waited:
            picked = picked.where(q.c.id == value_of(gate.c.head_id))
        else:
            picked = picked.where(q.c.tenant == value_of(gate.c.tenant), in_state(q, self._move.source))
            picked = picked.order_by(q.c.requested_at, q.c.id).limit(literal_column("1"))
        if only or not waited:
            picked = picked.where(still_in(q, self._move.source))
        # The pool is passed over as well: who waits here writes a slot that somebody took and gives back meanwhile, and
        # waits for the one who gives it back, who waits for the gate.
        run = picked.with_for_update(skip_locked=True, of=[q, pools]).cte("picked")
        fits, admitted = self._admission.admitted(e, run, run.c.now)
        return (
            update(e)
            .where(place_of(e) == run.c.place, *guard_of(e, self._move), run.c.free_slot <= bindparam("slots"), fits)
            .values(slot=run.c.free_slot, **self.claimed(run.c.now), **admitted)
            .returning(*self._told)
        )

    def beside(self) -> list[Kept]:
        """The slots, and who may claim."""
        return in_pool(self._table, self._move.target)


class ClaimInSteps(Claims):
    """A short transaction, where UPDATE answers no rows."""

    def _prepare(self) -> None:
        database, table, claim, columns, queue = self._database, self._table, self._move, self._columns, self._queue
        self._gates = _Gates(database, table, claim)
        c = table.c

        def candidate(*, only: bool) -> Select[Any]:
            free_slot = queue.free_slot().label("free_slot")
            wanted = select(*columns, free_slot).where(c.tenant == bindparam("tenant"))
            if only:
                wanted = wanted.where(c.id == bindparam("only"), still_in(table, claim.source))
            else:
                wanted = wanted.where(in_state(table, claim.source)).order_by(c.requested_at, c.id)
            return wanted.limit(literal_column("1")).with_for_update(skip_locked=True)

        self._candidates = {only: database.prepare(partial(candidate, only=only)) for only in (False, True)}
        self._by_id = database.prepare(lambda: select(*columns).where(c.id == bindparam("id")), self._record)

    def claim(self, terms: Terms, now: int | None, tx: Connection | None) -> Any | None:
        """Lock gate, pool and run, decide, write, and read what was written."""
        instant = self._database.now(now)
        with self._database.write_prepared(tx) as driver:
            gate = self._gates.lock(driver, terms, wait=False) or self._gates.lock(driver, terms)
            if gate is None:
                return None
            pool = self._gates.lock_pool(driver)
            asked = {"tenant": gate.tenant, "slots": terms.slots}
            if terms.only is not None:
                asked["only"] = terms.only
            found = self._candidates[terms.only is not None].first(driver, asked)
            if found is None or found.free_slot is None:
                return None
            row = SimpleNamespace(**found._asdict(), **pool._asdict())
            admitted = self._admission.admit(row, terms, instant)
            if admitted is None:
                return None
            values = written(row, terms, instant) | {"slot": row.free_slot} | admitted
            if not self._write(driver, values, row.id, row.claim_no):
                return None
            return self._by_id.first(driver, {"id": row.id})


def asked_of(terms: Terms, now: Instant | None) -> dict[str, Any]:
    """What a claim in one statement binds; None is the database's own now."""
    return {
        "now": now if isinstance(now, int) else None,
        "worker": terms.worker,
        "lease_ms": int(terms.lease_seconds * 1000),
        "grace_ms": int(terms.grace_seconds * 1000),
    }


def written(row: Any, terms: Terms, now: Instant) -> dict[str, Any]:
    """What every claim writes, beside what the flow adds."""
    return {
        "worker": terms.worker,
        "claim_no": row.claim_no + 1,
        "started_at": now,
        "heartbeat_at": now,
        "updated_at": None,
        "lease_until": now + int(terms.lease_seconds * 1000),
    }


def value_of(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """The one value of a CTE's column, found before the statement that uses it looks for anything."""
    return select(column).scalar_subquery()


def place_of(table: Any) -> ColumnElement[Any]:
    """Where a row of PostgreSQL lies, for the statement that locked it: by its id it would be looked for twice.

    Nor can the planner choose to read every waiting run for a join by it. A run that was changed after the statement
    began is not found: that look answers None, as where it is locked.
    """
    return literal_column(f"{table.name}.ctid").label("place")

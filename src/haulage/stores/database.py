"""One database: transactions as arguments, its clock, and its errors as ``StoreUnavailable``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection, Delete, PoolProxiedConnection, Table, delete, event, select, tuple_
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.sql.elements import ColumnElement

from haulage.core.clock import now_ms
from haulage.core.errors import StoreUnavailable
from haulage.stores import forks
from haulage.stores.dialect import DOOR_WAIT_SECONDS, Dialect, Instant, Now, driver_of, driver_words
from haulage.stores.driving import Lent, WriteInTurn
from haulage.stores.prepared import Make, Prepared, Statement

TURN_SECONDS = DOOR_WAIT_SECONDS  # how long a writer waits for the other threads of its process
CONFLICTS_MAX = 5  # how often a transaction that met another is made again


class Conflict(StoreUnavailable):
    """Two transactions met, and the database ended this one: it may simply be made again."""


class Refusal(AssertionError):
    """A row broke a constraint: no failure of the store but a mistake of ours."""


class Database:
    """The two kinds of transaction that the stores use.

    Where the database has one writer at a time, those of one process take turns before they ask it for its lock:
    SQLite lets those that wait for it sleep and try again, and under forty at once some never meet it free
    within their time.
    """

    def __init__(self, dialect: Dialect) -> None:
        """Take what knows the database; its two engines share their connections."""
        self.dialect = dialect
        self.engine, self._writer = dialect.engines()
        self.way = dialect.way(self.engine)
        self._now = None if dialect.clock is None else Now(dialect.clock)
        self._errors: tuple[type[BaseException], ...] = (DBAPIError, *dialect.driver_errors)
        self._turn = threading.Lock()
        self._kept: tuple[PoolProxiedConnection, DBAPIConnection] | None = None
        self.spare: list[tuple[PoolProxiedConnection, DBAPIConnection]] = []  # kept between two verbs (driving.py)
        forks.watch_over(self)

    # ``tenant`` binds a transaction to a tenant, where the database can (tenants.py).

    @contextmanager
    def write(self, tx: Connection | None = None, *, tenant: str | None = None) -> Iterator[Connection]:
        """A writing transaction, or the one that is given."""
        if tx is not None:
            yield tx
            return
        turn = self._in_turn() if self.dialect.in_turn else nullcontext()
        with turn, self.answered(), self._writer.begin() as connection:
            self._bind(connection, tenant)
            yield connection

    @contextmanager
    def admit(self, tenant: str | None = None) -> Iterator[Connection]:
        """A transaction of a door: what it counts stays so until it has written, over all hosts."""
        # In turn also where the database lets many write: those of one process need not wait in it.
        with self._in_turn(), self.answered(), self._writer.begin() as connection:
            self._bind(connection, tenant)
            self.dialect.begin_admission(connection)
            yield connection
        self.ring()

    @contextmanager
    def migrate(self) -> Iterator[Connection]:
        """A transaction that changes the schema, and no other one beside it."""
        with self._in_turn(), self.answered(), self.dialect.migrator(self._writer).begin() as connection:
            self.dialect.guard_migration(connection)
            yield connection

    @contextmanager
    def read(self, tx: Connection | None = None, *, tenant: str | None = None) -> Iterator[Connection]:
        """A reading transaction, or the one that is given."""
        if tx is not None:
            yield tx
            return
        with self.answered(), self._writer.begin() if self.binds(tenant) else self.engine.connect() as connection:
            self._bind(connection, tenant)
            yield connection

    @contextmanager
    def read_of_all(self) -> Iterator[Connection]:
        """A reading transaction that sees every tenant, also where its connection was left bound to one."""
        bounds = self.dialect.bounds
        with self.answered(), self.engine.connect() if bounds is None else self._writer.begin() as connection:
            if bounds is not None:
                driver_of(connection.connection).cursor().execute(bounds.bind_none())
            yield connection

    def binds(self, tenant: str | None) -> bool:
        """Say whether a transaction has to begin, to be bound."""
        return tenant is not None and self.dialect.bounds is not None

    def _bind(self, connection: Connection, tenant: str | None) -> None:
        if tenant is not None and self.dialect.bounds is not None:
            driver = driver_of(connection.connection)
            driver.cursor().execute(self.dialect.bounds.bind(driver, tenant))

    # For verbs that run prepared statements and nothing else (driving.py).

    def write_prepared(
        self, tx: Connection | None = None, *, one: bool = False, tenant: str | None = None
    ) -> AbstractContextManager[DBAPIConnection]:
        """As ``write``, for prepared statements alone.

        Args:
            one: one statement writes, and what is read after it need not be of the same transaction.
        """
        if tx is not None:
            return nullcontext(driver_of(tx.connection))
        return WriteInTurn(self) if self.dialect.in_turn else Lent(self, begin=not one, tenant=tenant)

    def read_prepared(
        self, tx: Connection | None = None, *, tenant: str | None = None
    ) -> AbstractContextManager[DBAPIConnection]:
        """As ``read``, for one prepared statement."""
        return Lent(self, begin=False, tenant=tenant) if tx is None else nullcontext(driver_of(tx.connection))

    def own_writer(self) -> DBAPIConnection:
        """The connection of those who write in turn: to fetch one from the pool takes as long as a statement."""
        if self._kept is None:
            pooled = self.engine.raw_connection()
            self._kept = (pooled, driver_of(pooled))
        self.dialect.see_same_place()
        return self._kept[1]

    def ring(self) -> None:
        """Tell those who wait for a hint that something was committed."""
        self.dialect.ring(self.engine)

    def close(self) -> None:
        """Give every connection back."""
        self.dialect.stop_ringing()
        with self._turn:
            if self.close_unused() == 0:
                self.dialect.close()

    def close_unused(self) -> int:
        """Close every connection that nobody uses, while it is our turn; gives how many are used."""
        try:
            self.dialect.see_same_place()
        except StoreUnavailable:
            forks.keep_open((self._kept, self.engine.pool))
            self._kept = None
            self.engine.dispose(close=False)
            self._writer.pool = self.engine.pool
            return 0
        if self._kept is not None:
            self._kept[0].close()
        self._kept = None
        while self.spare:
            self.spare.pop()[0].close()
        used: int = self.engine.pool.checkedout()  # type: ignore[attr-defined]  # of a QueuePool
        self.engine.dispose()
        self._writer.pool = self.engine.pool
        return used

    def begin_anew(self, *, usable: bool) -> None:
        """In a forked process: nobody holds the turn; see ``forks.py`` for when a file is not usable."""
        self._turn = threading.Lock()
        forks.keep_open(self.spare)
        self.spare = []
        if not usable and self.dialect.in_turn:
            event.listen(self.engine, "do_connect", forks.refuse)

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        self.take_turn()
        try:
            yield
        finally:
            self.give_turn()

    def take_turn(self) -> None:
        """Wait for the other writers of this process."""
        if not self._turn.acquire(timeout=TURN_SECONDS):
            raise StoreUnavailable("too many wait to write to the store")

    def give_turn(self) -> None:
        """Let the next writer of this process go on."""
        self._turn.release()

    def forget(self, table: Table, due: ColumnElement[bool], limit: int = 1_000) -> int:
        """Delete at most so many rows that are due: a look first, so that a pass that finds nothing writes nothing."""
        key = table.primary_key.columns
        with self.read() as connection:
            found = [tuple(row) for row in connection.execute(select(*key).where(due).limit(limit))]
        if not found:
            return 0
        return self._delete(delete(table).where(tuple_(*key).in_(found), due))

    def _delete(self, statement: Delete) -> int:
        """Two sweeps may delete the same rows in another order, and meet."""
        for _ in range(CONFLICTS_MAX):
            with suppress(Conflict), self.write() as connection:
                return connection.execute(statement).rowcount
        with self.write() as connection:
            return connection.execute(statement).rowcount

    def prepare(self, build: Callable[[], Statement], make: Make = None) -> Prepared:
        """A statement to be run often; ``build`` is called when it is first run, ``make`` with the cells of a row."""
        return Prepared(build, self.way, make)

    def now(self, now: int | None) -> Instant:
        """The given instant, or the store's now: the database's own in the statement it stands in (DECISIONS 6)."""
        if now is not None:
            return now
        return self._now or now_ms()

    def read_clock(self) -> int:
        """The store's now as a number."""
        now = self.now(None)
        if isinstance(now, int):
            return now
        with self.read() as connection:
            return int(connection.execute(select(now.clock)).scalar_one())

    @contextmanager
    def answered(self) -> Iterator[None]:
        """Turn what a driver raises into StoreUnavailable, without its SQL and parameters."""
        try:
            yield
        except Exception as problem:
            answer = self.answer_to(problem)
            if answer is problem:
                raise
            raise answer from problem

    def answer_to(self, problem: BaseException) -> BaseException:
        """What a driver or the pool raised, in our words; what is not theirs stays as it is."""
        if isinstance(problem, PoolTimeout):
            return StoreUnavailable("no connection to the store was free in time")
        if not isinstance(problem, self._errors):
            return problem
        said = _of_driver(problem)
        if self.dialect.refuses(said):
            return Refusal(f"the store refused a row: {driver_words(problem)}")
        return (Conflict if self.dialect.conflicts(said) else StoreUnavailable)(driver_words(problem))


def _of_driver(problem: BaseException) -> BaseException:
    return problem.orig if isinstance(problem, DBAPIError) and problem.orig is not None else problem


class OfDatabase(Protocol):
    """What has verbs that can be made again."""

    _database: Database


Self_ = TypeVar("Self_", bound=OfDatabase)
P = ParamSpec("P")
R = TypeVar("R")


def made_again(verb: Callable[Concatenate[Self_, P], R]) -> Callable[Concatenate[Self_, P], R]:
    """Make a verb again when its transaction met another; inside the caller's transaction it is the caller's to."""

    @wraps(verb)
    def again(self: Self_, /, *args: P.args, **kwargs: P.kwargs) -> R:
        left = CONFLICTS_MAX
        while True:
            try:
                return verb(self, *args, **kwargs)
            except Conflict:
                if not left or kwargs.get("tx") is not None:
                    raise
                left -= 1

    return again

"""One database: transactions as arguments, its clock, and its errors as ``StoreUnavailable``."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from sqlalchemy import Connection, Engine, PoolProxiedConnection, Table, delete, select, tuple_
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.sql.elements import ColumnElement

from haulage.core.clock import now_ms
from haulage.core.errors import StoreUnavailable
from haulage.stores.dialect import DRIVER_ERRORS, INTEGRITY_ERRORS, begin_to_write, driver_of, driver_words
from haulage.stores.prepared import Prepared, Statement

TURN_SECONDS = 5.0  # how long a writer waits for the other threads of its process


class Database:
    """The two kinds of transaction that the stores use.

    Writers of one process take turns before they ask the database for its lock: SQLite lets those that wait for
    it sleep and try again, and under forty at once some never meet it free within their time.
    """

    def __init__(self, reader: Engine, writer: Engine) -> None:
        """Take the engines made by ``dialect.py``; they share their connections."""
        self.engine = reader
        self._writer = writer
        self._turn = threading.Lock()
        self._kept: tuple[int, PoolProxiedConnection, DBAPIConnection] | None = None  # by process

    @contextmanager
    def write(self, tx: Connection | None = None) -> Iterator[Connection]:
        """A writing transaction, or the one that is given."""
        if tx is not None:
            yield tx
            return
        self.take_turn()
        try:
            with answered(), self._writer.begin() as connection:
                yield connection
        finally:
            self.give_turn()

    @contextmanager
    def read(self, tx: Connection | None = None) -> Iterator[Connection]:
        """A reading transaction, or the one that is given."""
        if tx is not None:
            yield tx
            return
        with answered(), self.engine.connect() as connection:
            yield connection

    # For verbs that run prepared statements and nothing else: the driver's connection itself, because what
    # SQLAlchemy does around a transaction takes longer than a claim does in it.

    def write_prepared(self, tx: Connection | None = None) -> AbstractContextManager[DBAPIConnection]:
        """As ``write``, for prepared statements alone."""
        return PreparedWrite(self) if tx is None else nullcontext(driver_of(tx.connection))

    @contextmanager
    def read_prepared(self, tx: Connection | None = None) -> Iterator[DBAPIConnection]:
        """As ``read``, for one prepared statement."""
        if tx is not None:
            yield driver_of(tx.connection)
            return
        with answered():
            pooled = self.engine.raw_connection()
            try:
                yield driver_of(pooled)
            finally:
                pooled.close()

    def own_writer(self) -> DBAPIConnection:
        """The connection of those who write in turn: to fetch one from the pool takes as long as a statement."""
        if self._kept is None or self._kept[0] != os.getpid():  # A forked process must not use its parent's.
            pooled = self.engine.raw_connection()
            self._kept = (os.getpid(), pooled, driver_of(pooled))
        return self._kept[2]

    def close(self) -> None:
        """Give every connection back."""
        with self._turn:
            if self._kept is not None and self._kept[0] == os.getpid():
                self._kept[1].close()
            self._kept = None
        self.engine.dispose()

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
        with self.write() as connection:
            return connection.execute(delete(table).where(tuple_(*key).in_(found), due)).rowcount

    def prepare(self, build: Callable[[], Statement]) -> Prepared:
        """A statement to be run often; ``build`` is called when it is first run."""
        return Prepared(build, self.engine.dialect)

    def now(self, now: int | None) -> int:
        """The given instant, or the store's clock: on SQLite that is the host's (DECISIONS 6)."""
        return now_ms() if now is None else now


class PreparedWrite:
    """One writing transaction on the driver's own connection: committed at the end, rolled back when something broke.

    A class and not a generator: three nested generators took a fifth of the time of a claim.
    """

    __slots__ = ("_database", "_driver")

    def __init__(self, database: Database) -> None:
        """Take the database; the turn is taken on entering."""
        self._database = database

    def __enter__(self) -> DBAPIConnection:
        self._database.take_turn()
        try:
            with answered():
                self._driver = self._database.own_writer()
                begin_to_write(self._driver)
        except BaseException:
            self._database.give_turn()
            raise
        return self._driver

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        try:
            with answered():
                try:
                    if problem is not None:
                        raise problem
                    self._driver.commit()
                except BaseException:
                    self._driver.rollback()
                    raise
        finally:
            self._database.give_turn()


@contextmanager
def answered() -> Iterator[None]:
    """Turn what a driver raises into StoreUnavailable, without its SQL and parameters.

    A row that breaks a constraint is no failure of the store but a mistake of ours, and is told as one.
    """
    try:
        yield
    except INTEGRITY_ERRORS as problem:
        raise AssertionError(f"the store refused a row: {driver_words(problem)}") from problem
    except DRIVER_ERRORS as problem:
        raise StoreUnavailable(driver_words(problem)) from problem
    except PoolTimeout as problem:
        raise StoreUnavailable("no connection to the store was free in time") from problem

"""One database: transactions as arguments, its clock, and its errors as ``StoreUnavailable``."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from sqlalchemy import Connection, Engine, PoolProxiedConnection, Table, delete, event, select, tuple_
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.sql.elements import ColumnElement

from haulage.core.clock import now_ms
from haulage.core.errors import StoreUnavailable
from haulage.stores import forks
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
        self._kept: tuple[PoolProxiedConnection, DBAPIConnection] | None = None
        self._file: tuple[int, int] | None = None  # device and inode, once it was opened
        event.listen(reader, "do_connect", self._opening)
        event.listen(reader, "checkout", self._checked_out)
        forks.watch_over(self)

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
        if self._kept is None:
            pooled = self.engine.raw_connection()
            self._kept = (pooled, driver_of(pooled))
        self._see_same_file()
        return self._kept[1]

    def _see_same_file(self) -> None:
        """A file put in the place of the open one is another store: half of our connections would be of the old one.

        Raises:
            StoreUnavailable: it was replaced or removed; only a new start can help.
        """
        path = self.engine.url.database
        assert path is not None
        try:
            found = os.stat(path)  # noqa: PTH116 - at each claim, and a Path takes as long as the call itself
        except OSError as problem:
            raise StoreUnavailable(f"{path}: {problem.strerror}") from problem
        if self._file is None:
            self._file = (found.st_dev, found.st_ino)
        if self._file != (found.st_dev, found.st_ino):
            raise StoreUnavailable(
                f"{path} was replaced while it was open; stop everything that uses it, then start again"
            )

    def _opening(self, *_: object) -> None:
        """See to it before a connection is opened: one to another file could not be closed again."""
        if self._file is not None:
            self._see_same_file()

    def _checked_out(self, _connection: object, record: ConnectionPoolEntry, pooled: PoolProxiedConnection) -> None:
        try:
            self._see_same_file()
        except StoreUnavailable:
            # Not to be closed: SQLite would remove the log by its name, and that is the other file's by now.
            forks.keep_open(record.dbapi_connection)
            record.dbapi_connection = pooled.dbapi_connection = None  # type: ignore[misc]
            raise

    def close(self) -> None:
        """Give every connection back."""
        with self._turn:
            self.close_unused()

    def close_unused(self) -> int:
        """Close every connection that nobody uses, while it is our turn; gives how many are used."""
        try:
            self._see_same_file()
        except StoreUnavailable:
            forks.keep_open((self._kept, self.engine.pool))
            self._kept = None
            self.engine.dispose(close=False)
            self._writer.pool = self.engine.pool
            return 0
        if self._kept is not None:
            self._kept[0].close()
        self._kept = None
        used: int = self.engine.pool.checkedout()  # type: ignore[attr-defined]  # of a QueuePool
        self.engine.dispose()
        self._writer.pool = self.engine.pool
        return used

    def begin_anew(self, *, usable: bool) -> None:
        """In a forked process: nobody holds the turn; see ``forks.py`` for when it is not usable."""
        self._turn = threading.Lock()
        if not usable:
            event.listen(self.engine, "do_connect", forks.refuse)

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

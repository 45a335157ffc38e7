"""One database: transactions as arguments, its clock, and its errors as ``StoreUnavailable``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, Table, delete, literal, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.sql.elements import ColumnElement

from haulage.core.clock import now_ms
from haulage.core.errors import StoreUnavailable
from haulage.stores.dialect import WRITES


class Database:
    """An engine with the two kinds of transaction that the stores use."""

    def __init__(self, engine: Engine) -> None:
        """Take an engine made by ``dialect.py``."""
        self.engine = engine
        self._writer = engine.execution_options(**WRITES)

    @contextmanager
    def write(self, tx: Connection | None = None) -> Iterator[Connection]:
        """A writing transaction, or the one that is given."""
        if tx is not None:
            yield tx
            return
        with answered(), self._writer.begin() as connection:
            yield connection

    @contextmanager
    def read(self, tx: Connection | None = None) -> Iterator[Connection]:
        """A reading transaction, or the one that is given."""
        if tx is not None:
            yield tx
            return
        with answered(), self.engine.connect() as connection:
            yield connection

    def forget(self, table: Table, due: ColumnElement[bool]) -> int:
        """Delete what is due: an indexed look first, so that a pass that finds nothing writes nothing."""
        with self.read() as connection:
            if connection.execute(select(literal(1)).select_from(table).where(due).limit(1)).first() is None:
                return 0
        with self.write() as connection:
            return connection.execute(delete(table).where(due)).rowcount

    def now(self, now: int | None) -> int:
        """The given instant, or the store's clock: on SQLite that is the host's (DECISIONS 6)."""
        return now_ms() if now is None else now


@contextmanager
def answered() -> Iterator[None]:
    """Turn what a driver raises into StoreUnavailable, without its SQL and parameters."""
    try:
        yield
    except DBAPIError as problem:
        raise StoreUnavailable(f"{type(problem.orig).__name__}: {problem.orig}") from problem
    except PoolTimeout as problem:
        raise StoreUnavailable("no connection to the store was free in time") from problem

"""Where databases differ. A difference anywhere else is a bug.

SQLite: WAL and synchronous=FULL (a committed run survives a power cut), BEGIN IMMEDIATE for every write (a
deferred one that turns into a write fails at once instead of waiting), and a busy timeout below the beat.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, PoolProxiedConnection, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, IntegrityError

from haulage.core.errors import StoreUnavailable
from haulage.stores.stir import Stir

BUSY_TIMEOUT_MS = 800  # below the beat of 1 s, so that a beat that waits still fits its second
# What a driver raises, through SQLAlchemy and (prepared statements, BEGIN, the hint) without it.
DRIVER_ERRORS = (DBAPIError, sqlite3.Error)
INTEGRITY_ERRORS = (IntegrityError, sqlite3.IntegrityError)


_decode_json = json.JSONDecoder().raw_decode


def _read_json(text: str) -> Any:
    """What this store wrote itself: without the looks for blanks that ``json.loads`` takes most of its time for.

    What a failing disk has made unreadable is an empty object: that run fails, as its plan has no query, while an
    exception here would end the worker that claims it, and the next one, and every list that it stands in.
    """
    try:
        return _decode_json(text)[0]
    except (ValueError, TypeError, RecursionError):
        return {}


def driver_words(problem: BaseException) -> str:
    """What the driver said, without the SQL and the parameters that SQLAlchemy adds."""
    said = problem.orig if isinstance(problem, DBAPIError) else problem
    return f"{type(said).__name__}: {said}"


def sqlite_engines(url: URL) -> tuple[Engine, Engine]:
    """An engine that reads and one that writes, on one pool of connections to one SQLite file.

    Two engines, because an option that says "this transaction writes" doubles what SQLAlchemy spends on it.
    """
    reader = create_engine(
        url,
        connect_args={"timeout": BUSY_TIMEOUT_MS / 1000, "check_same_thread": False, "uri": True},
        hide_parameters=True,  # no value of a row in a traceback
        json_deserializer=_read_json,
        pool_size=4,
        max_overflow=60,
    )
    writer = create_engine(url, pool=reader.pool, hide_parameters=True, json_deserializer=_read_json)

    # Never made by a connection: a worker whose store was removed would go on in an empty one that nobody sees.
    there = f"{Path(str(url.database)).absolute().as_uri()}?mode=rw"

    def connecting(_dialect: object, _record: object, arguments: list[str], _options: object) -> None:
        arguments[:] = [there]

    def connected(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # The driver starts no transaction behind our back.
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    def begun(connection: Connection) -> None:
        connection.connection.cursor().execute("BEGIN")

    def begun_to_write(connection: Connection) -> None:
        begin_to_write(driver_of(connection.connection))

    event.listen(reader, "do_connect", connecting)
    event.listen(reader, "connect", connected)
    event.listen(reader, "begin", begun)
    event.listen(writer, "begin", begun_to_write)
    return reader, writer


def driver_of(pooled: PoolProxiedConnection) -> DBAPIConnection:
    """The driver's own connection: each call through the pool's stand-in costs as much as a bound value."""
    driver = pooled.driver_connection
    assert driver is not None
    return driver  # type: ignore[no-any-return]


def begin_to_write(driver: DBAPIConnection) -> None:
    """Begin a transaction that writes."""
    driver.cursor().execute("BEGIN IMMEDIATE")


class SqliteWatcher:
    """A hint from ``PRAGMA data_version``: it changes when another connection has committed."""

    def __init__(self, engine: Engine) -> None:
        """Take a connection of its own."""
        self._held = engine.raw_connection()
        self._stir = Stir(Path(str(engine.url.database)).absolute())
        driver: Any = self._held.driver_connection
        self._driver: sqlite3.Connection = driver
        self._seen = -1

    @property
    def descriptor(self) -> int | None:
        """What becomes readable when the file or its log is written."""
        return self._stir.descriptor

    def stirred(self) -> bool:
        """Say whether the file or its log was written since the last call."""
        return self._stir.felt()

    def changed(self) -> bool:
        """Say whether another connection may have committed since the last call (true at the first).

        Raises:
            StoreUnavailable: the file cannot be read.
        """
        try:
            version: int = self._driver.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error as problem:
            raise StoreUnavailable(driver_words(problem)) from problem
        changed, self._seen = version != self._seen, version
        return changed

    def close(self) -> None:
        """Give the connection back."""
        self._stir.close()
        self._held.close()

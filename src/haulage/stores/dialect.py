"""Where databases differ. A difference anywhere else is a bug.

SQLite: WAL and synchronous=FULL (a committed run survives a power cut), BEGIN IMMEDIATE for every write (a
deferred one that turns into a write fails at once instead of waiting), and a busy timeout below the beat.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL

BUSY_TIMEOUT_MS = 800  # below the beat of 1 s, so that a beat that waits still fits its second
WRITES = {"haulage_writes": True}  # the execution option of a transaction that writes


def sqlite_engine(url: URL) -> Engine:
    """An engine on one SQLite file, with the transactions described above."""
    engine = create_engine(
        url,
        connect_args={"timeout": BUSY_TIMEOUT_MS / 1000, "check_same_thread": False},
        pool_size=4,
        max_overflow=60,
    )

    def connected(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # The driver starts no transaction behind our back.
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    def begun(connection: Connection) -> None:
        writes = connection.get_execution_options().get("haulage_writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", begun)
    return engine


class SqliteWatcher:
    """A hint from ``PRAGMA data_version``: it changes when another connection has committed."""

    def __init__(self, engine: Engine) -> None:
        """Take a connection of its own."""
        self._held = engine.raw_connection()
        driver: Any = self._held.driver_connection
        self._driver: sqlite3.Connection = driver
        self._seen = -1

    def changed(self) -> bool:
        """Say whether another connection may have committed since the last call (true at the first)."""
        version: int = self._driver.execute("PRAGMA data_version").fetchone()[0]
        changed, self._seen = version != self._seen, version
        return changed

    def close(self) -> None:
        """Give the connection back."""
        self._held.close()

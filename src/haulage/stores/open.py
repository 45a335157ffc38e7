"""URL -> store, what it can do, and whether its schema is one this version works with.

Migrations run by themselves only on a new SQLite file; elsewhere an old schema is refused with the command
to run (DECISIONS 28).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, inspect, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from haulage.core.errors import SchemaMismatch
from haulage.core.limits import ExportLimits
from haulage.stores.database import Database, answered
from haulage.stores.dialect import SqliteWatcher, sqlite_engine
from haulage.stores.exports import ExportRows
from haulage.stores.keys import SqlKeys
from haulage.stores.sessions import SqlSessions
from haulage.stores.tables import SCHEMA_VERSION, facts
from haulage.stores.workers import SqlWorkers


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can do; asked for by capability, never by a store's name."""

    transactions: bool  # what must hold together commits together
    database_clock: bool  # its own clock decides, not the host's


@dataclass(frozen=True, slots=True)
class Schema:
    """How a store's schema compares with the one of this version; None where there is none yet."""

    version: int | None
    min_worker: int | None
    wanted: int = SCHEMA_VERSION


class Store:
    """One open store: a member per table, and the transaction that ties them together."""

    def __init__(self, url: str, limits: ExportLimits) -> None:
        """Open it without looking at its schema; ``open_store`` looks."""
        self.url = url
        self.path = sqlite_path(url)
        self._database = Database(sqlite_engine(make_url(f"sqlite:///{self.path}")))
        self.capabilities = Capabilities(transactions=True, database_clock=False)
        self.exports = ExportRows(self._database, limits)
        self.workers = SqlWorkers(self._database)
        self.keys = SqlKeys(self._database)
        self.sessions = SqlSessions(self._database)

    def begin(self) -> AbstractContextManager[Connection]:
        """A writing transaction to pass to the verbs."""
        return self._database.write()

    def now(self) -> int:
        """The store's clock, in milliseconds."""
        return self._database.now(None)

    def watch(self) -> SqliteWatcher:
        """A hint that something changed."""
        with answered():
            return SqliteWatcher(self._database.engine)

    def schema(self) -> Schema:
        """Read which schema the store has."""
        with self._database.read() as connection:
            if not inspect(connection).has_table(facts.name):
                return Schema(None, None)
            kept = {row.name: row.value for row in connection.execute(select(facts))}
        return Schema(kept.get("schema_version"), kept.get("min_worker"))

    def migrate(self, target: str = "head") -> None:
        """Bring the schema to a version: ``head``, ``base``, or a revision."""
        from haulage.stores.migrations.run import migrate  # noqa: PLC0415 - Alembic takes half a second

        with self._database.write() as connection:
            migrate(connection, target)

    def close(self) -> None:
        """Give every connection back."""
        self._database.engine.dispose()


def sqlite_path(url: str) -> Path:
    """The file of a SQLite URL.

    Raises:
        ValueError: the URL is not one, with what to write instead.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ValueError(f"{url!r} is no URL; write sqlite:///haulage.db") from None
    if parsed.get_backend_name() != "sqlite" or not parsed.database or parsed.database == ":memory:":
        raise ValueError(f"{url!r} is no store of this version; write sqlite:///haulage.db")
    return Path(parsed.database)


def open_store(url: str, limits: ExportLimits | None = None, *, migrate_new: bool = True) -> Store:
    """Open a store and see that its schema fits.

    Args:
        url: ``sqlite:///path``; a new file gets its schema at once.
        limits: retention and storage budget; defaults when None.
        migrate_new: False leaves a new file empty, for ``haulage migrate``.

    Raises:
        SchemaMismatch: the schema is older or newer than this version; the message says what to do.
        StoreUnavailable: the file cannot be opened.
        ValueError: the URL names no store.
    """
    path = sqlite_path(url)
    new = not path.exists() or path.stat().st_size == 0
    if new and not path.exists():
        # Nobody else may read requests and their parameters.
        with _mode_of_ours():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
    store = Store(url, limits or ExportLimits())
    if not migrate_new:
        return store
    schema = store.schema()
    if schema.version is None and new:
        store.migrate()
        return store
    if schema.version is None or schema.version < SCHEMA_VERSION:
        store.close()
        raise SchemaMismatch(
            f"the store has schema {schema.version or 0}, this version works with {SCHEMA_VERSION}; "
            "back the store up and run: haulage migrate up"
        )
    return store


@contextmanager
def _mode_of_ours() -> Iterator[None]:
    old = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(old)

"""URL -> store, what it can do, and whether its schema is one this version works with.

Migrations run by themselves only on a new SQLite file; elsewhere an old schema is refused with the command
to run (DECISIONS 28).
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, inspect, select, update
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from haulage.core.errors import SchemaMismatch, StoreUnavailable
from haulage.core.limits import ExportLimits
from haulage.stores.database import Database, answered
from haulage.stores.dialect import SqliteWatcher, sqlite_engines
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
    new: bool = False  # nothing is in the store at all


class Store:
    """One open store: a member per table, and the transaction that ties them together."""

    def __init__(self, url: str, limits: ExportLimits) -> None:
        """Open it without looking at its schema; ``open_store`` looks."""
        self.url = url
        self.path = sqlite_path(url)
        self._database = Database(*sqlite_engines(URL.create("sqlite", database=str(self.path.absolute()))))
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
            tables = inspect(connection).get_table_names()
            if facts.name not in tables:
                return Schema(None, None, new=not tables)
            kept = {row.name: row.value for row in connection.execute(select(facts))}
        return Schema(kept.get("schema_version"), kept.get("min_worker"))

    def check(self) -> None:
        """Write a page, durably: a lock alone is had on a full disk too.

        Raises:
            StoreUnavailable: nothing can be written.
        """
        with self._database.write() as connection:
            connection.execute(update(facts).values(value=facts.c.value))

    def refusal(self) -> str | None:
        """Why a worker of this version may not claim here; None when it may."""
        with self._database.read() as connection:
            kept = {row.name: row.value for row in connection.execute(select(facts))}
        return _too_old(Schema(kept.get("schema_version"), kept.get("min_worker")))

    def identity(self) -> str:
        """Which store this is, wherever it lies; it marks what is the store's own. Nothing without a schema."""
        if self.schema().version is None:
            return ""
        with self._database.read() as connection:
            kept = connection.execute(select(facts.c.value).where(facts.c.name == "store_id")).scalar()
        return "" if kept is None else f"{kept:016x}"

    def migrate(self, target: str = "head") -> None:
        """Bring the schema to a version: ``head``, ``base``, or a revision."""
        from haulage.stores.migrations.run import migrate  # Alembic takes half a second

        with self._database.write() as connection:
            migrate(connection, target)

    def close(self) -> None:
        """Give every connection back."""
        self._database.close()


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
    if parsed.query:
        raise ValueError(f"{url!r}: a store takes no options after a question mark")
    return Path(parsed.database)


def open_store(url: str, limits: ExportLimits | None = None, *, migrate_new: bool = True) -> Store:
    """Open a store and see that its schema fits.

    Args:
        url: ``sqlite:///path``; a new file gets its schema at once.
        limits: retention and storage budget; defaults when None.
        migrate_new: False leaves a new file empty and asks for no schema, for ``haulage migrate``.

    Raises:
        SchemaMismatch: the schema is older than this version, or wants newer workers; the message says what to do.
        StoreUnavailable: the file cannot be opened.
        ValueError: the URL names no store.
    """
    _make_private(sqlite_path(url))
    store = Store(url, limits or ExportLimits())
    try:
        if migrate_new:
            _fit(store)
    except BaseException:
        store.close()
        raise
    return store


def _make_private(path: Path) -> None:
    """Make a new file, and its folder, for the owner alone: nobody else may read what was asked for."""
    try:
        if not path.exists():
            _make_folder(path.parent)
            path.touch(mode=0o600)
    except OSError as problem:
        raise StoreUnavailable(f"{path}: {problem.strerror}") from problem


def _make_folder(folder: Path) -> None:
    """Make a folder and what is missing above it, so that a power cut takes none of it back.

    SQLite syncs the folder that its file stands in, and nobody but us those above.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in missing:
        descriptor = os.open(each.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _fit(store: Store) -> None:
    """Give a new store its schema, and refuse one that this version does not work with."""
    schema = store.schema()
    if schema.new:
        store.migrate()
        schema = store.schema()
    if schema.version is None:
        raise SchemaMismatch(
            f"{store.path} is a database, but no store of haulage; name another file in store, or, to put our tables "
            "beside those in it, run: haulage migrate up"
        )
    if schema.version < SCHEMA_VERSION:
        raise SchemaMismatch(
            f"the store has schema {schema.version}, this version works with {SCHEMA_VERSION}; "
            "back the store up and run: haulage migrate up"
        )
    if (refusal := _too_old(schema)) is not None:
        raise SchemaMismatch(refusal)


def _too_old(schema: Schema) -> str | None:
    if schema.min_worker is None or schema.min_worker <= SCHEMA_VERSION:
        return None
    return (
        f"the store has schema {schema.version} and wants workers of schema {schema.min_worker} or newer; "
        f"this version works with {SCHEMA_VERSION}: install a newer haulage (pip install --upgrade haulage)"
    )

"""URL -> store, what it can do, and whether its schema is one this version works with.

Migrations run by themselves only on a new SQLite file; elsewhere an old schema is refused with the command
to run (DECISIONS 28).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path

from sqlalchemy import Connection, delete, insert, inspect, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from haulage.config.faults import shown
from haulage.core.errors import SchemaMismatch, StoreInvalid
from haulage.core.limits import ExportLimits
from haulage.core.ports import Watcher
from haulage.stores.database import Database
from haulage.stores.dialect import Dialect
from haulage.stores.exports import ExportRows
from haulage.stores.keys import SqlKeys
from haulage.stores.mariadb import MariaDB
from haulage.stores.postgresql import PostgreSQL
from haulage.stores.rehearsal import rehearse
from haulage.stores.schema import SCHEMA_VERSION, Schema, too_old
from haulage.stores.sessions import SqlSessions
from haulage.stores.sqlite import Sqlite
from haulage.stores.tables import facts
from haulage.stores.tenants import Role
from haulage.stores.workers import SqlWorkers


class Store:
    """One open store: a member per table, and the transaction that ties them together."""

    def __init__(self, url: str, limits: ExportLimits) -> None:
        """Open it without looking at its schema; ``open_store`` looks."""
        self.url = url
        dialect = dialect_of(url)
        self.place = dialect.place
        self.capabilities = dialect.capabilities
        self.makes_itself = dialect.makes_itself
        dialect.prepare_place()
        self._database = Database(dialect)
        self.exports = ExportRows(self._database, limits)
        self.workers = SqlWorkers(self._database)
        self.keys = SqlKeys(self._database)
        self.sessions = SqlSessions(self._database)

    def begin(self, *, tenant: str | None = None) -> AbstractContextManager[Connection]:
        """A writing transaction to pass to the verbs; over all hosts one at a time. For one tenant, or for all."""
        return self._database.admit(tenant)

    def now(self) -> int:
        """The store's clock, in milliseconds."""
        return self._database.read_clock()

    def watch(self) -> Watcher:
        """A hint that something changed."""
        with self._database.answered():
            return self._database.dialect.watch(self._database.engine)

    def schema(self) -> Schema:
        """Read which schema the store has."""
        with self._database.read() as connection:
            if not inspect(connection).has_table(facts.name):
                return Schema(None, None, new=not inspect(connection).get_table_names())
            kept = {row.name: row.value for row in connection.execute(select(facts))}
        return Schema(kept.get("schema_version"), kept.get("min_worker"))

    def elsewhere(self) -> list[str]:
        """Schemas of the same database that have our tables, whether this user's search_path names them or not."""
        if not self.capabilities.row_security:
            return []
        with self._database.read() as connection:
            found = inspect(connection)
            return [name for name in found.get_schema_names() if found.has_table(facts.name, schema=name)]

    def check(self) -> str | None:
        """Write, durably: a lock alone is had on a full disk too, and a value that stays the same may not be written.

        Where the database counts by itself, a run is led through its life and taken back; says what is missing.

        Raises:
            StoreUnavailable: nothing can be written.
        """
        with self._database.write() as connection:
            connection.execute(insert(facts).values(name="check", value=0))
            connection.execute(delete(facts).where(facts.c.name == "check"))
        return rehearse(self._database, self.exports) if self.capabilities.counters and not self.one_tenant else None

    def refusal(self) -> str | None:
        """Why a worker of this version may not claim here; None when it may."""
        with self._database.read() as connection:
            kept = {row.name: row.value for row in connection.execute(select(facts))}
        return too_old(Schema(kept.get("schema_version"), kept.get("min_worker")))

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

        with self._database.migrate() as connection:
            migrate(connection, target)

    def make_roles(self) -> None:
        """Make the roles that a store is entered as, where the database itself keeps tenants apart."""
        bounds = self._database.dialect.bounds
        assert bounds is not None, "asked for by capability"
        with self._database.migrate() as connection:
            bounds.make_roles(connection)

    def role(self) -> Role | None:
        """As whom it is entered; None where the database keeps no tenants apart."""
        bounds = self._database.dialect.bounds
        if bounds is None:
            return None
        with self._database.read() as connection:
            return bounds.role(connection)

    @cached_property
    def one_tenant(self) -> bool:
        """Say whether this role acts for one tenant at a time, and so neither claims nor sweeps."""
        role = self.role()
        return role is not None and role.one_tenant

    def close(self) -> None:
        """Give every connection back."""
        self._database.close()


def _of_file(url: URL) -> Dialect:
    if not url.database or url.database == ":memory:":
        raise ValueError("it names no file")
    if url.query:
        raise ValueError("a store in a file takes no options after a question mark")
    return Sqlite(Path(url.database))


def _of_database(kind: Callable[[URL], Dialect]) -> Callable[[URL], Dialect]:
    def made(url: URL) -> Dialect:
        if not url.database:
            raise ValueError("it names no database")
        # Else the end of a password is looked up as the name of a host, and told as the place of the store.
        if "@" in f"{url.host}{url.database}":
            raise ValueError("there is more than one @ in it; in a password write %40, and %2F for a /")
        return kind(url)

    return made


# One line a kind of store; the driver, if it is named at all, is the one that the file of that kind is written for.
KINDS: dict[str, Callable[[URL], Dialect]] = {
    "sqlite": _of_file,
    "postgresql": _of_database(PostgreSQL),
    "postgresql+psycopg": _of_database(PostgreSQL),
    "mariadb": _of_database(MariaDB),
    "mariadb+pymysql": _of_database(MariaDB),
}
EXAMPLES = "sqlite:///haulage.db, postgresql://user@host/database or mariadb://user@host/database"


def dialect_of(url: str) -> Dialect:
    """What knows the database of a URL.

    Raises:
        StoreUnavailable: its driver is not installed; with what to install.
        StoreInvalid: the URL is not one, with what to write instead; also a ``ValueError``.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise _invalid(url, f"is no URL; write {EXAMPLES}") from None
    if parsed.drivername not in KINDS:
        raise _invalid(url, f"is no store of this version; write {EXAMPLES}")
    try:
        return KINDS[parsed.drivername](parsed)
    except ValueError as problem:
        raise _invalid(url, f"cannot be used: {problem}; write {EXAMPLES}") from None


def _invalid(url: str, why: str) -> StoreInvalid:
    return StoreInvalid([f"store = {shown(url)} {why}"])


def open_store(url: str, limits: ExportLimits | None = None, *, migrate_new: bool = True) -> Store:
    """Open a store and see that its schema fits.

    Args:
        url: ``sqlite:///path``, whose new file gets its schema at once, ``postgresql://…`` or ``mariadb://…``.
        limits: retention and storage budget; defaults when None.
        migrate_new: False leaves a new file empty and asks for no schema, for ``haulage migrate``.

    Raises:
        SchemaMismatch: the schema is older than this version, or wants newer workers; the message says what to do.
        StoreUnavailable: it cannot be opened, or its driver is not installed.
        StoreInvalid: the URL names no store; also a ``ValueError``.
    """
    store = Store(url, limits or ExportLimits())
    try:
        if migrate_new:
            _fit(store)
    except BaseException:
        store.close()
        raise
    return store


def _fit(store: Store) -> None:
    """Give a new store its schema, and refuse one that this version does not work with."""
    schema = store.schema()
    if schema.new and store.makes_itself:
        store.migrate()
        schema = store.schema()
    if schema.version is None and (elsewhere := store.elsewhere()):
        raise SchemaMismatch(
            f"{store.place} has tables of haulage in the schema {' and '.join(elsewhere)}, and none where the "
            "search_path of this user looks; set it for the user, or in store: ?options=-csearch_path%3DSCHEMA. "
            "For a store of its own run: haulage migrate up"
        )
    if schema.new:
        raise SchemaMismatch(f"the store {store.place} has no tables of haulage yet; run: haulage migrate up")
    if schema.version is None:
        raise SchemaMismatch(
            f"{store.place} is a database, but no store of haulage; name another in store, or, to put our tables "
            "beside those in it, run: haulage migrate up"
        )
    if schema.version < SCHEMA_VERSION:
        raise SchemaMismatch(
            f"the store has schema {schema.version}, this version works with {SCHEMA_VERSION}; "
            "back the store up and run: haulage migrate up"
        )
    if (refusal := too_old(schema)) is not None:
        raise SchemaMismatch(refusal)

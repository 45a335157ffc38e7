"""SQLite as a store: one file, one host.

WAL and synchronous=FULL (a committed run survives a power cut), BEGIN IMMEDIATE for every write (a deferred one
that turns into a write fails at once instead of waiting), and a busy timeout below the beat. A transaction that
writes is alone, so nothing in it has to be locked; its clock is the host's.
"""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, PoolProxiedConnection, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.sql.elements import ColumnElement

from haulage.core.errors import StoreUnavailable
from haulage.exports.stored import UnreadableText
from haulage.stores import dialect, forks
from haulage.stores.atomic import make_folder
from haulage.stores.claims import ClaimAlone
from haulage.stores.dialect import Way, driver_of, driver_words
from haulage.stores.schema import Capabilities
from haulage.stores.stir import Stir

NOT_UTF8 = "Could not decode to UTF-8"
_decode_json = json.JSONDecoder().raw_decode


def _read_json(text: str) -> Any:
    """What this store wrote itself: without the looks for blanks that ``json.loads`` takes most of its time for.

    As it was written it is ASCII: whatever is not was damaged, also where it is JSON still. A column here holds what it
    is given, so it need not even be text.
    """
    try:
        return _decode_json(text)[0] if str.isascii(text) else dialect.DAMAGED
    except dialect.UNREADABLE:
        return dialect.DAMAGED


def _read_text(stored: bytes) -> str:
    """A text, or what stands for one that is none; to read every text so makes a claim a quarter slower."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return UnreadableText()


class Sqlite:
    """Implements ``dialect.Dialect``."""

    capabilities = Capabilities(transactions=True, database_clock=False)
    driver_errors: tuple[type[BaseException], ...] = (sqlite3.Error,)
    clock: ColumnElement[int] | None = None
    in_turn = True
    in_one = True
    lists_held_apart = False
    bounds = None
    makes_itself = True
    claimer = ClaimAlone  # read the candidate, then write it: nobody comes between

    def __init__(self, path: Path) -> None:
        """Name the file."""
        self.path = path
        self._path = str(path.absolute())
        self.place = str(path)
        self._file: tuple[int, int] | None = None  # device and inode, once it was opened
        self._damaged = False  # a text was met that is not UTF-8; from then on texts are read with care

    def engines(self) -> tuple[Engine, Engine]:
        """Two engines, because an option that says "this transaction writes" doubles what SQLAlchemy spends on it."""
        url = URL.create("sqlite", database=self._path)
        reader = create_engine(
            url,
            connect_args={"timeout": dialect.BUSY_TIMEOUT_MS / 1000, "check_same_thread": False, "uri": True},
            hide_parameters=True,  # no value of a row in a traceback
            json_deserializer=_read_json,
            pool_size=4,
            max_overflow=60,
        )
        writer = create_engine(url, pool=reader.pool, hide_parameters=True, json_deserializer=_read_json)

        # Never made by a connection: a worker whose store was removed would go on in an empty one that nobody sees.
        there = f"{Path(self._path).as_uri()}?mode=rw"

        def connecting(_dialect: object, _record: object, arguments: list[str], _options: object) -> None:
            if self._file is not None:
                self.see_same_place()  # before it is opened: one to another file could not be closed again
            arguments[:] = [there]

        def connected(connection: sqlite3.Connection, _record: object) -> None:
            connection.isolation_level = None  # The driver starts no transaction behind our back.
            for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
                connection.execute(f"PRAGMA {pragma}")

        def begun(connection: Connection) -> None:
            connection.connection.cursor().execute("BEGIN")

        def begun_to_write(connection: Connection) -> None:
            self.begin(driver_of(connection.connection))

        event.listen(reader, "do_connect", connecting)
        event.listen(reader, "connect", connected)
        event.listen(reader, "checkout", self._checked_out)
        event.listen(reader, "begin", begun)
        event.listen(writer, "begin", begun_to_write)
        return reader, writer

    def way(self, engine: Engine) -> Way:
        """As SQLAlchemy and the driver do."""
        return Way(engine.dialect)

    def see_same_place(self) -> None:
        """A file put in the place of the open one is another store: half of our connections would be of the old one.

        Raises:
            StoreUnavailable: it was replaced or removed; only a new start can help.
        """
        path = self._path
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

    def _checked_out(self, connection: Any, record: ConnectionPoolEntry, pooled: PoolProxiedConnection) -> None:
        if self._damaged:
            connection.text_factory = _read_text
        try:
            self.see_same_place()
        except StoreUnavailable:
            # Not to be closed: SQLite would remove the log by its name, and that is the other file's by now.
            forks.keep_open(record.dbapi_connection)
            record.dbapi_connection = pooled.dbapi_connection = None  # type: ignore[misc]
            raise

    def hung_up(self, driver: DBAPIConnection) -> bool:
        """There is nobody at the other end."""
        return False

    def begin(self, driver: DBAPIConnection, tenant: str | None = None) -> None:
        """Begin a transaction that writes."""
        if self._damaged:
            driver.text_factory = _read_text
        driver.cursor().execute("BEGIN IMMEDIATE")

    def begin_admission(self, connection: Connection) -> None:
        """Nothing: whoever writes is alone."""

    def refuses(self, problem: BaseException) -> bool:
        """Say whether the row broke a constraint."""
        return isinstance(problem, sqlite3.IntegrityError)

    def conflicts(self, problem: BaseException) -> bool:
        """Only where a text was met that is not UTF-8: from then on texts are read with care, and stop nobody.

        The driver's complaint is an error of the whole statement, a claim or a list, whatever else that found.
        """
        met = isinstance(problem, sqlite3.OperationalError) and NOT_UTF8 in str(problem)
        self._damaged = self._damaged or met
        return met

    def beats(self) -> str:
        """JSON as rows (https://www.sqlite.org/json1.html)."""
        return (
            "select json_extract(value, '$.id') as id, json_extract(value, '$.claim_no') as claim_no,"
            " json_extract(value, '$.news') as news, json_extract(value, '$.phase') as phase,"
            " json_extract(value, '$.processed') as processed, json_extract(value, '$.total') as total,"
            " json_extract(value, '$.logical_count') as logical_count"
            " from json_each(:doc)"
        )

    def prepare_place(self) -> None:
        """Make a new file, and its folder, for the owner alone: nobody else may read what was asked for."""
        try:
            if not self.path.exists():
                make_folder(self.path.parent)  # SQLite syncs the folder that its file stands in, and nobody those above
                self.path.touch(mode=0o600)
        except OSError as problem:
            raise StoreUnavailable(f"{self.path}: {problem.strerror}") from problem

    def migrator(self, writer: Engine) -> Engine:
        """One that waits for another migration: who makes a new store takes longer than any other writer."""
        engine = create_engine(writer.url, pool=writer.pool, hide_parameters=True)

        def begun(connection: Connection) -> None:
            driver = driver_of(connection.connection)
            driver.cursor().execute(f"PRAGMA busy_timeout = {dialect.MIGRATION_WAIT_SECONDS * 1000}")
            try:
                self.begin(driver)
            finally:
                driver.cursor().execute(f"PRAGMA busy_timeout = {dialect.BUSY_TIMEOUT_MS}")

        event.listen(engine, "begin", begun)
        return engine

    def guard_migration(self, connection: Connection) -> None:
        """Nothing: whoever writes is alone."""

    def watch(self, engine: Engine) -> SqliteWatcher:
        """The kernel's word and ``PRAGMA data_version``."""
        return SqliteWatcher(engine)

    def ring(self, engine: Engine) -> None:
        """Nothing: the file itself tells."""

    def stop_ringing(self) -> None:
        """Nothing rings."""

    def close(self) -> None:
        """Nothing is open: whatever stands there by the next time is the store."""
        self._file = None


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

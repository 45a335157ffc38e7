"""PostgreSQL as a store.

Every connection is in autocommit: a verb of one statement is one round trip, and a transaction begins where ours
does. READ COMMITTED. A statement that waits for a lock gives up below the beat; a transaction whose client fell
silent is ended by the server; a server that falls silent is given up by the client. The plans are pinned: no
statistics lead a claim to read a whole table.

Behind a proxy that pools *transactions* (``?proxy=transaction`` in the URL) nothing may outlive one: no settings of
the session, no prepared statements, no LISTEN. The hint is then a question asked again and again.
"""

from __future__ import annotations

import math
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Connection, Engine, NullPool, create_engine, func, literal_column, text
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.sql.elements import ColumnElement

from haulage.core.errors import StoreUnavailable
from haulage.core.ports import Watcher
from haulage.stores import dialect, server
from haulage.stores.claims import ClaimInOne
from haulage.stores.dialect import DOOR_WAIT_SECONDS, Way, driver_of, driver_words
from haulage.stores.row_security import RowSecurity
from haulage.stores.schema import Capabilities
from haulage.stores.server import PollWatcher

if TYPE_CHECKING:
    from haulage.stores.patience import PatientConnection

CHANNEL = "haulage"
RING_SECONDS = 0.05  # between two rings of one process: what came meanwhile rings once
MIGRATION_LOCK = 0x6861756C616765  # a number of our own: "haulage"
UNASKED = 3  # how often it is read from a connection that nobody uses; one that has still more to say is given up
CONFLICTS = ("40P01", "40001")  # deadlock detected, could not serialize
PLANS = ("enable_seqscan", "enable_bitmapscan", "enable_sort", "enable_hashjoin", "enable_mergejoin")


class PostgreSQL:
    """Implements ``dialect.Dialect``."""

    capabilities = Capabilities(transactions=True, database_clock=True, counters=True, row_security=True)
    # Of the statement: unlike that of the moment it can be compared by an index, unlike now() it moves on in a
    # transaction.
    clock: ColumnElement[int] | None = literal_column(
        "(date_part('epoch', statement_timestamp()) * 1000)::bigint", BigInteger
    )
    in_turn = False
    in_one = False
    lists_held_apart = True
    makes_itself = False
    claimer = ClaimInOne
    bounds = RowSecurity()

    def __init__(self, url: URL) -> None:
        """Take the address, and see that the driver is there."""
        server.need("psycopg", "postgresql")
        import psycopg

        self.driver_errors: tuple[type[BaseException], ...] = (psycopg.Error,)
        self._refusals = (psycopg.IntegrityError, psycopg.DataError)
        self.place = server.place_of(url)
        proxy = url.query.get("proxy")
        if proxy not in (None, "transaction"):
            raise ValueError("proxy in the URL of a store is either left out or transaction")
        self._pooled = proxy is not None
        self._url = url.set(drivername="postgresql+psycopg").difference_update_query(["proxy"])
        self._bell: Bell | None = None

    def engines(self) -> tuple[Engine, Engine]:
        """One engine, told apart by who begins a transaction."""
        reader = create_engine(
            self._url,
            creator=self._connect,
            hide_parameters=True,
            pool_reset_on_return=None,  # Every transaction is ended where it was begun.
            **server.POOL,
        )
        writer = reader.execution_options()
        server.begin_by(writer, self.begin, self.driver_errors)
        server.leave_those_hung_up(reader, self.hung_up)
        return reader, writer

    def way(self, engine: Engine) -> Way:
        """In its own words, ``$1`` for the first value, and by libpq itself."""
        from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

        from haulage.stores.pq import PqCursor

        own = PGDialect_psycopg(dbapi=engine.dialect.dbapi, paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]
        return Way(own, PqCursor)

    def _connect(self) -> PatientConnection:
        from psycopg.conninfo import make_conninfo
        from psycopg.types.json import set_json_loads

        from haulage.stores.patience import PatientConnection

        settings = {
            "lock_timeout": dialect.BUSY_TIMEOUT_MS,
            "statement_timeout": server.STATEMENT_SECONDS * 1000,
            "idle_in_transaction_session_timeout": server.IDLE_SECONDS * 1000,
            "client_connection_check_interval": 1000,
            "jit": "off",
            "plan_cache_mode": "force_generic_plan",
            **dict.fromkeys(PLANS, "off"),
            "haulage.tenant": "",  # whatever was set for the role or the database: only a transaction has a tenant
        }
        # As parts, not as a URL: libpq refuses one with a blank in it, and tells the password in its error.
        given: dict[str, Any] = self._url.translate_connect_args(username="user", database="dbname")
        given |= {name: value if isinstance(value, str) else ",".join(value) for name, value in self._url.query.items()}
        more: dict[str, Any] = {}
        if not self._pooled:
            wanted = [given.pop("options", ""), *(f"-c {name}={value}" for name, value in settings.items())]
            more["options"] = " ".join(filter(None, wanted))
        connection = PatientConnection.connect(
            make_conninfo(**given),
            autocommit=True,
            prepare_threshold=None,  # The driver lets all go when it rolls back, those of pq.py too.
            application_name="haulage",
            client_encoding="utf8",  # whatever the database keeps its text in
            connect_timeout=server.CONNECT_SECONDS,
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=3,
            tcp_user_timeout=server.ANSWER_SECONDS * 1000,
            **more,
        )
        connection.answer_seconds = server.ANSWER_SECONDS
        connection.known = None if self._pooled else {}
        set_json_loads(dialect.read_json, connection)
        return connection

    def see_same_place(self) -> None:
        """Nothing: a connection knows where it leads."""

    def hung_up(self, driver: DBAPIConnection) -> bool:
        """What it says unasked, of a setting that changed, is read; after its last words comes the end."""
        connection: PatientConnection = driver  # type: ignore[assignment]
        try:
            for _ in range(UNASKED):
                if not connection.has_words():
                    return False
                connection.pgconn.consume_input()
        except self.driver_errors:
            pass
        return True

    def begin(self, driver: DBAPIConnection, tenant: str | None = None) -> None:
        """Begin a transaction; behind a proxy its settings come with it."""
        words = "begin" if tenant is None else f"begin; {self.bounds.bind(driver, tenant)}"
        if self._pooled:
            words += f"; {self.bounds.bind_none()}" if tenant is None else ""  # Somebody may have left another one.
            words += f"; set local lock_timeout = {dialect.BUSY_TIMEOUT_MS}"
            words += f"; set local idle_in_transaction_session_timeout = {server.IDLE_SECONDS * 1000}"
        driver.cursor().execute(words)

    def begin_admission(self, connection: Connection) -> None:
        """Lock the row that every door locks first."""
        wait = (
            f"set local lock_timeout = {DOOR_WAIT_SECONDS * 1000:.0f};"
            f" set local statement_timeout = {DOOR_WAIT_SECONDS * 1000 + 1000:.0f}"
        )
        words = f"{wait}; select value from haulage_facts where name = 'admission' for update"
        driver_of(connection.connection).cursor().execute(words)

    def refuses(self, problem: BaseException) -> bool:
        """A row broke a constraint, or does not fit its columns."""
        return isinstance(problem, self._refusals)

    def conflicts(self, problem: BaseException) -> bool:
        """A deadlock, or two that cannot be put in a row."""
        return getattr(problem, "sqlstate", None) in CONFLICTS

    def beats(self) -> str:
        """JSON as rows."""
        return (
            "select * from json_to_recordset(cast(:doc as json)) as document"
            "(id text, claim_no bigint, news bigint, phase text, processed bigint, total bigint,"
            " logical_count bigint)"
        )

    def prepare_place(self) -> None:
        """Nothing: the database is made by its owner."""

    def migrator(self, writer: Engine) -> Engine:
        """Without a limit of time on either side."""

        def connect() -> PatientConnection:
            connection = self._connect()
            connection.answer_seconds = math.inf
            return connection

        engine = create_engine(self._url, creator=connect, hide_parameters=True, poolclass=NullPool)
        server.begin_by(engine, self.begin, self.driver_errors)
        return engine

    def guard_migration(self, connection: Connection) -> None:
        """Take the lock that every migration takes."""
        connection.execute(text(f"set local lock_timeout = {dialect.MIGRATION_WAIT_SECONDS * 1000}"))
        connection.execute(text("set local statement_timeout = 0"))
        if (connection.dialect.server_version_info or ()) >= (17,):
            connection.execute(text("set local transaction_timeout = 0"))
        connection.execute(text(f"select pg_advisory_xact_lock({MIGRATION_LOCK})"))

    def watch(self, engine: Engine) -> Watcher:
        """LISTEN on a connection of its own; behind a proxy, ask."""
        if self._pooled:
            return PollWatcher(engine, func.exports_progress())
        return ListenWatcher(self._connect())

    def ring(self, engine: Engine) -> None:
        """NOTIFY soon, once for all that rings until then."""
        if self._pooled:
            return
        if self._bell is None:
            self._bell = Bell(engine)
        self._bell.ring()

    def close(self) -> None:
        """Nothing is kept."""

    def stop_ringing(self) -> None:
        """Ring what was not rung yet."""
        if self._bell is not None:
            self._bell.close()
            self._bell = None


class ListenWatcher:
    """A hint from LISTEN: its descriptor is readable when somebody rang."""

    def __init__(self, connection: PatientConnection) -> None:
        """Listen on a connection that nobody else uses."""
        self._connection = connection
        connection.execute(f"listen {CHANNEL}")
        self._rung = True

    @property
    def descriptor(self) -> int | None:
        """The connection's own."""
        return self._connection.fileno()

    def stirred(self) -> bool:
        """A ring comes after its commit, so there is nothing to wait for."""
        self._hear()
        return False

    def changed(self) -> bool:
        """Say whether somebody rang since the last call (true at the first).

        Raises:
            StoreUnavailable: the connection is lost.
        """
        self._hear()
        rung, self._rung = self._rung, False
        return rung

    def _hear(self) -> None:
        import psycopg

        try:
            socket = self._connection.pgconn
            socket.consume_input()
            while socket.notifies() is not None:
                self._rung = True
        except psycopg.Error as problem:
            raise StoreUnavailable(driver_words(problem)) from problem

    def close(self) -> None:
        """Listen no longer."""
        self._connection.close()


class Bell:
    """Sends NOTIFY from a thread of its own, at most once in so long; never in the transaction that rings.

    There it would take a lock over the whole server at the commit: requests fell from 15,200 to 4,100 a second.
    """

    def __init__(self, engine: Engine) -> None:
        """Nothing runs before the first ring."""
        self._engine = engine
        self._wanted = threading.Event()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def ring(self) -> None:
        """Ring soon."""
        if not self._wanted.is_set():  # Else it is rung after this, and what is told was committed before.
            self._wanted.set()
        if self._thread is None or not self._thread.is_alive():  # A forked process starts its own.
            with self._lock:
                if self._thread is None or not self._thread.is_alive():
                    self._thread = threading.Thread(target=self._ring_on, daemon=True, name="haulage bell")
                    self._thread.start()

    def close(self) -> None:
        """Ring what is wanted, and end."""
        self._ended.set()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(server.ANSWER_SECONDS)

    def _ring_on(self) -> None:
        while self._wanted.wait():
            ended = self._ended.is_set()
            self._wanted.clear()
            # A hint that is lost is found by the poll behind it.
            with suppress(Exception), self._engine.connect() as connection:
                # Nobody has to wait for the disk: what is told was committed before.
                words = f"begin; set local synchronous_commit = off; notify {CHANNEL}; commit"
                driver_of(connection.connection).cursor().execute(words)
            if ended:
                return
            self._ended.wait(RING_SECONDS)

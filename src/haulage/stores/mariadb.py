"""MariaDB as a store, from 10.6 on (it passes over locked rows).

READ COMMITTED; no UPDATE answers rows; no index leaves rows out; text is compared byte by byte. A statement that
waits for a lock gives up after a second, and a transaction whose client fell silent is ended by the server. The
driver counts matched rows, not changed ones (SQLAlchemy sees to that).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Connection, Engine, NullPool, create_engine, event, literal_column, text
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.sql.elements import ColumnElement

from haulage.core.errors import StoreUnavailable
from haulage.stores import dialect, server
from haulage.stores.claims import ClaimInSteps
from haulage.stores.dialect import DOOR_WAIT_SECONDS, Way
from haulage.stores.schema import Capabilities
from haulage.stores.server import PollWatcher

OLDEST = (10, 6)
DEADLOCK, CHECK_FAILED = 1213, 4025  # the numbers of errors
SETTINGS = (
    "time_zone = '+00:00'",
    "tx_isolation = 'READ-COMMITTED'",
    "innodb_lock_wait_timeout = 1",
    "lock_wait_timeout = 1",
    f"max_statement_time = {server.STATEMENT_SECONDS}",
    f"idle_transaction_timeout = {server.IDLE_SECONDS}",
)


class MariaDB:
    """Implements ``dialect.Dialect``."""

    capabilities = Capabilities(transactions=True, database_clock=True, schema_transactions=False, counters=True)
    # Of the statement, not of the moment it is computed; and not of the session's time zone.
    clock: ColumnElement[int] | None = literal_column(
        "timestampdiff(microsecond, '1970-01-01', utc_timestamp(3)) div 1000", BigInteger
    )
    in_turn = False
    in_one = False
    lists_held_apart = False
    bounds = None
    makes_itself = False
    claimer = ClaimInSteps

    def __init__(self, url: URL) -> None:
        """Take the address, and see that the driver is there."""
        server.need("pymysql", "mariadb")
        import pymysql

        self.driver_errors: tuple[type[BaseException], ...] = (pymysql.MySQLError,)
        self._refusals = (pymysql.IntegrityError, pymysql.DataError)
        self.place = server.place_of(url)
        self._url = url.set(drivername="mariadb+pymysql")

    def _connect(self, _dialect: object, _record: object, places: list[Any], options: dict[str, Any]) -> Any:
        """As SQLAlchemy does, but what stands in the URL and cannot be used is told like a server that says no."""
        import pymysql

        if "password" in options:
            options["password"] = options["password"].encode()  # else the driver makes it Latin-1
        try:
            return pymysql.connect(*places, **options)
        except (OSError, TypeError, ValueError) as problem:  # of a certificate, an unknown option, a number
            raise _unusable(problem) from problem

    def engines(self) -> tuple[Engine, Engine]:
        """One engine, told apart by who begins a transaction."""
        reader = self._engine(server.ANSWER_SECONDS, *SETTINGS, **server.POOL)
        writer = reader.execution_options()
        server.begin_by(writer, self.begin, self.driver_errors)
        server.leave_those_hung_up(reader, self.hung_up)
        return reader, writer

    def _engine(self, answer_seconds: float | None, *settings: str, **pool: Any) -> Engine:
        try:
            engine = create_engine(
                self._url,
                connect_args={
                    "autocommit": True,
                    "charset": "utf8mb4",
                    "connect_timeout": server.CONNECT_SECONDS,
                    "read_timeout": answer_seconds,
                    "write_timeout": answer_seconds,
                    "init_command": f"set {', '.join(settings)}",
                },
                hide_parameters=True,
                json_deserializer=dialect.read_json,
                pool_reset_on_return=None,  # Every transaction is ended where it was begun.
                **pool,
            )
        except ValueError as problem:  # of an option that should be a number
            raise _unusable(problem) from problem
        event.listen(engine, "do_connect", self._connect)
        return engine

    def migrator(self, writer: Engine) -> Engine:
        """Without a limit of time on either side."""
        settings = (f"lock_wait_timeout = {dialect.MIGRATION_WAIT_SECONDS}", "max_statement_time = 0")
        return self._engine(None, *settings, poolclass=NullPool)

    def way(self, engine: Engine) -> Way:
        """As SQLAlchemy and the driver do."""
        return Way(engine.dialect)

    def see_same_place(self) -> None:
        """Nothing: a connection knows where it leads."""

    def hung_up(self, driver: DBAPIConnection) -> bool:
        """It says nothing unasked but that it ends."""
        socket = driver._sock  # noqa: SLF001 - the driver gives no other way to it
        return socket is None or server.is_readable(socket.fileno())

    def begin(self, driver: DBAPIConnection, tenant: str | None = None) -> None:
        """Begin a transaction that writes."""
        with driver.cursor() as cursor:  # type: ignore[attr-defined]
            cursor.execute("start transaction")

    def begin_admission(self, connection: Connection) -> None:
        """Lock the row that every door locks first."""
        wait = f"set statement innodb_lock_wait_timeout = {DOOR_WAIT_SECONDS:g}, max_statement_time = 0 for "
        connection.execute(text(f"{wait} select value from haulage_facts where name = 'admission' for update"))

    def refuses(self, problem: BaseException) -> bool:
        """A row broke a constraint; a check that failed comes as if the server had."""
        return isinstance(problem, self._refusals) or (bool(problem.args) and problem.args[0] == CHECK_FAILED)

    def conflicts(self, problem: BaseException) -> bool:
        """A deadlock: the server ended this transaction so that the other could go on."""
        return bool(problem.args) and problem.args[0] == DEADLOCK

    def beats(self) -> str:
        """JSON as rows."""
        return (
            "select id, claim_no, news, phase, processed, total, logical_count from json_table(:doc, '$[*]' columns ("
            " id varchar(36) path '$.id', claim_no bigint path '$.claim_no', news bigint path '$.news',"
            " phase varchar(32) path '$.phase', processed bigint path '$.processed', total bigint path '$.total',"
            " logical_count bigint path '$.logical_count'"
            ")) as document"
        )

    def prepare_place(self) -> None:
        """Nothing: the database is made by its owner."""

    def guard_migration(self, connection: Connection) -> None:
        """Take the lock that every migration takes; it is given back with the connection.

        Raises:
            StoreUnavailable: another migration runs, or the server is too old.
        """
        if (found := connection.dialect.server_version_info or ())[:2] < OLDEST:
            raise StoreUnavailable(f"MariaDB {'.'.join(map(str, found))} is too old; {OLDEST[0]}.{OLDEST[1]} is needed")
        lock = text(f"select get_lock('haulage migrate', {dialect.MIGRATION_WAIT_SECONDS})")
        if not connection.execute(lock).scalar():
            raise StoreUnavailable("another migration of this store runs")

    def watch(self, engine: Engine) -> PollWatcher:
        """Ask again and again."""
        return PollWatcher(engine)

    def ring(self, engine: Engine) -> None:
        """Nobody can be told."""

    def close(self) -> None:
        """Nothing is kept."""

    def stop_ringing(self) -> None:
        """Nothing rings."""


def _unusable(problem: Exception) -> StoreUnavailable:
    return StoreUnavailable(f"an option of its URL cannot be used: {problem}")

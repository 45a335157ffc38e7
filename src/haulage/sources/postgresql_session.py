"""One session of PostgreSQL: connected, in one read-only transaction, its statements cancelled, its errors told.

Statements go by the extended protocol, in which the server itself refuses two of them in one text. The first
thing in the transaction is a savepoint's worth of settings; what fails, or is cancelled, is rolled back to it,
and the snapshot goes on. Everything set is set for the transaction alone, so a proxy that pools transactions
may stand between.
"""

from __future__ import annotations

import math
import re
import select
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from haulage.core.errors import BuildFailed
from haulage.sources.address import address_of, unread_url
from haulage.sources.postgresql_asked import Asked
from haulage.sources.postgresql_copy import LOOK_SECONDS, Copying
from haulage.sources.query import needed, without_values

if TYPE_CHECKING:
    import psycopg
    from psycopg.pq.abc import PGresult

CONNECT_SECONDS = 5
CANCEL_SECONDS = 2  # for the server to take a cancel
STATEMENT_SECONDS = 60  # of a statement at a door; a build says its own
JOIN_SECONDS = 2  # for another connection to enter a snapshot: a proxy may have none to give
MILLISECONDS_MAX = 2**31 - 1  # of a limit, as the server takes it: 24 days
GONE_SECONDS = 0.5  # between two looks of the server whether its client is still there
PATIENCE = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 20_000}
SPELLING = {  # of values, whatever the role or the database is set to
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "synchronize_seqscans": "off",  # rows of a table in the same order each time, while nobody writes
}
_CODES = {  # what a SQLSTATE begins with; any other is a fault of the query
    "08": "source_unavailable",  # connection
    "28": "source_unavailable",  # who may enter
    "3D": "source_unavailable",  # no such database
    "53300": "source_unavailable",  # too many connections
    "57P": "source_unavailable",  # shut down, or starting
    "55P03": "source_locked",
    "53400": "sort_space_exceeded",  # temp_file_limit of the server
}
_NAMES_IN_QUOTES = ("08", "25", "28", "3D", "42", "53", "55", "57")  # classes that quote names and never a value


def driver() -> Any:
    """The driver, or what to install."""
    return needed("psycopg", "postgresql")


def connect(url: str, name: str) -> psycopg.Connection:
    """A connection that the server shows under this name.

    Raises:
        BuildFailed: ``source_unavailable``; the cause never holds the password.
    """
    psycopg = driver()
    given = {"connect_timeout": CONNECT_SECONDS, **PATIENCE, **_parts(url)}
    given |= {"client_encoding": "UTF8", "application_name": name, "autocommit": True}
    try:
        return psycopg.connect(**given)  # type: ignore[no-any-return]
    except psycopg.Error as problem:
        words = " ".join(str(problem).split())
        if password := str(given.get("password") or ""):
            words = words.replace(password, "…")
        raise BuildFailed("source_unavailable", cause=words) from None  # its chain would hold the password


def _parts(url: str) -> dict[str, Any]:
    """What a URL says, as parts: libpq refuses one with a blank in the password, and tells it in its error."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    user, password, host, place = address_of(url, "postgresql")
    try:
        given = dict(conninfo_to_dict(f"postgresql://{host}{place and '/'}{place}"))
    except ProgrammingError:
        raise unread_url("postgresql") from None
    if not re.fullmatch("[0-9,]*", str(given.get("port", ""))):
        raise unread_url("postgresql")  # it is part of a password, which the driver would tell
    return given | {key: value for key, value in (("user", user), ("password", password)) if value}


class Session:
    """A connection in a read transaction."""

    def __init__(
        self,
        connection: psycopg.Connection,
        busy_seconds: float,
        seconds: float,
        *,
        shares: bool = False,
        joins: Session | None = None,
    ) -> None:
        """Begin the transaction.

        Args:
            busy_seconds: how long a lock is waited for.
            seconds: how long one statement may take.
            shares: others will join its snapshot.
            joins: the session whose snapshot is taken instead of one of its own.
        """
        from psycopg.pq import Escaping

        self._connection = connection
        self.link = connection.pgconn
        self._escaping = Escaping(self.link)
        self._seconds = seconds
        self._entered: Mapping[str, str] = {}
        self.name = connection.info.get_parameters().get("application_name", "")
        self.encoding = connection.info.parameter_status("server_encoding")
        limit = str(min(math.ceil(seconds * 1000), MILLISECONDS_MAX))
        limits = {
            "statement_timeout": limit,
            "idle_in_transaction_session_timeout": limit,
            "lock_timeout": str(min(math.ceil(busy_seconds * 1000), MILLISECONDS_MAX)),
        }
        if connection.info.server_version >= 140_000:
            limits["client_connection_check_interval"] = str(int(GONE_SECONDS * 1000))
        if self.encoding == "SQL_ASCII":  # else the server would refuse to send what is no text
            limits["client_encoding"] = "SQL_ASCII"
        self._begin(math.inf if joins is None else JOIN_SECONDS)
        if joins is not None:
            self.execute(f"set transaction snapshot {self.literal(joins.shared)}")
        # The snapshot is taken by this statement, after its own time: all that was committed by then is in it.
        now = "(extract(epoch from pg_catalog.statement_timestamp()) * 1000)::bigint"
        shared = "pg_catalog.pg_export_snapshot()" if shares else "''"
        first = self.execute(f"select pg_catalog.pg_backend_pid(), {now}, {shared}, {self._set(SPELLING | limits)}")
        self.pid, self.began = (int(first.get_value(0, column) or 0) for column in (0, 1))
        self.shared: str = (first.get_value(0, 2) or b"").decode()
        if joins is not None and self.instant() != joins.instant():
            raise BuildFailed("source_unavailable", cause="the connection is to another server")
        self.execute("savepoint haulage")

    def _begin(self, seconds: float) -> None:
        """Begin the transaction. One who waits for a connection of a proxy cannot be cancelled there, only leave."""
        began = time.monotonic()
        with self.told(None):
            self.link.send_query_params(b"begin isolation level repeatable read read only", None)
            ready = select.poll()
            ready.register(self.link.socket, select.POLLIN)
            while self.link.is_busy():
                if time.monotonic() - began >= seconds:
                    raise BuildFailed("source_unavailable", cause="there is no further connection")
                ready.poll(LOOK_SECONDS * 1000)
                self.link.consume_input()
            result = self.result()
        self.good(result, None, began)

    def instant(self) -> bytes | None:
        """What the server sees and since when it runs: of several behind one URL, each numbers its own snapshots."""
        seen = "pg_catalog.txid_current_snapshot()"
        return self.execute(f"select concat(pg_catalog.pg_postmaster_start_time(), ' ', {seen})").get_value(0, 0)

    def enter(self, settings: Mapping[str, str]) -> None:
        """Set what the host's own row security goes by, for this transaction."""
        if settings != self._entered:
            self.run(f"select {self._set(settings)}")
            self._entered = settings

    def _set(self, settings: Mapping[str, str]) -> str:
        calls = [
            f"pg_catalog.set_config({self.literal(key)}, {self.literal(value)}, true)"
            for key, value in settings.items()
        ]
        return ", ".join(calls) or "1"

    def literal(self, text: str) -> str:
        """A text as a literal of SQL, as the server's own library quotes it."""
        if "\0" in text:
            raise BuildFailed("source_failed", cause="a bound text holds NUL, which no text of PostgreSQL can")
        try:
            return bytes(self._escaping.escape_literal(text.encode())).decode()
        except UnicodeEncodeError:
            raise BuildFailed("source_failed", cause="a bound text is not Unicode") from None

    # -- statements --------------------------------------------------------------------------------

    def run(
        self,
        sql: str,
        binds: Mapping[str, Any] | None = None,
        seconds: float | None = None,
        given_up: Callable[[], bool] | None = None,
    ) -> PGresult:
        """Run a statement to its end, and give its rows.

        Raises:
            Interrupted: it took longer than ``seconds``, or ``given_up`` said so.
        """
        if seconds is None and given_up is None:
            return self.execute(sql, binds)
        asked = Asked(self, sql, binds, seconds, given_up)
        ready = select.poll()
        ready.register(self.link.socket, select.POLLIN)
        while not asked.done():
            ready.poll(LOOK_SECONDS * 1000)
        return asked.result()

    def copy(self, sql: str, binds: Mapping[str, Any] | None = None) -> Generator[tuple[int, bytes], None, int]:
        """What a COPY sends, in bounded pieces of whole rows; its count comes at the end.

        Closed before its end, it ends the statement in the database.
        """
        copying = self.copying(sql, binds)
        try:
            while copying.count is None:
                held, piece = copying.take(wait=True)
                if held:
                    yield held, piece
        finally:
            copying.close()
        return copying.count

    def copying(self, sql: str, binds: Mapping[str, Any] | None = None) -> Copying:
        """The same, for one who has several to read."""
        return Copying(self, sql, binds)

    @property
    def descriptor(self) -> int:
        """What becomes readable when the server has sent something."""
        return self.link.socket

    def cancel(self) -> None:
        """Have the database end the statement that is running; from any thread."""
        with suppress(driver().Error):  # The connection is gone, and with it the statement.
            self._connection.cancel_safe(timeout=CANCEL_SECONDS)

    def execute(self, sql: str, binds: Mapping[str, Any] | None = None) -> PGresult:
        """Run a statement."""
        began = time.monotonic()
        with self.told(binds):
            result = self.link.exec_params(sql.encode(), None)
        return self.good(result, binds, began)

    def good(
        self, result: PGresult | None, binds: Mapping[str, Any] | None, began: float, *, copies: bool = False
    ) -> PGresult:
        """A result, unless it is an error."""
        from psycopg.pq import DiagnosticField, ExecStatus

        expected = (ExecStatus.COPY_OUT,) if copies else (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
        if result is not None and result.status in expected:
            return result
        state = words = None
        if result is not None:
            state = result.error_field(DiagnosticField.SQLSTATE)
            words = result.error_field(DiagnosticField.MESSAGE_PRIMARY)
        self.back()
        overdue = time.monotonic() - began >= self._seconds
        raise failure((state or b"").decode(), (words or b"").decode(errors="replace"), binds, overdue=overdue)

    def result(self) -> PGresult | None:
        """The last result of what was sent; an error counts more than what came after it."""
        last = self.link.get_result()
        while (after := self.link.get_result()) is not None:
            last = last if last is not None and last.error_message else after
        return last

    def told(self, binds: Mapping[str, Any] | None) -> _Told:
        """Within it, what the driver raises is a failure with a code."""
        return _Told(driver().Error, binds)

    def back(self) -> None:
        """Make the transaction usable again after an error; what was set since is forgotten by the server too."""
        self._entered = {}
        with suppress(driver().Error):
            self.link.exec_params(b"rollback to savepoint haulage", None)


class _Told:
    """Turns what the driver raises into a failure with a code; its words are for the log only."""

    def __init__(self, kind: type[Exception], binds: Mapping[str, Any] | None) -> None:
        self._kind = kind
        self._binds = binds

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        if isinstance(problem, self._kind):
            state = getattr(problem, "sqlstate", None) or "08006"  # without one, the connection broke
            raise failure(state, " ".join(str(problem).split()), self._binds) from problem


def failure(state: str, words: str, binds: Mapping[str, Any] | None = None, *, overdue: bool = False) -> BuildFailed:
    """What the server says, as a failure; without values of rows, of binds, and of what a function raises."""
    state = state or "08006"
    words = without_values(words, binds)
    if state.startswith("P0"):
        words = "raised by a function of the database"
    elif not state.startswith(_NAMES_IN_QUOTES):
        words = re.sub('".*"', '"…"', words, flags=re.DOTALL)
    if state == "57014" and overdue:
        return BuildFailed("generation_timeout", cause=f"{state}: {words}")
    code = next((code for start, code in _CODES.items() if state.startswith(start)), "source_failed")
    return BuildFailed(code, cause=f"{state}: {words}")


def end_session(url: str, session: str, seconds: float) -> bool:
    """End what is left of the sessions of a client that is dead; says whether they are gone.

    A process may serve another client by now, so the name that it goes by must be the same, too.
    """
    pids, _, name = session.partition(" ")
    connection = connect(url, "haulage")
    try:
        until = time.monotonic() + seconds
        alive = "from pg_catalog.pg_stat_activity where pid = any(%s) and application_name = %s and state is not null"
        asked = ([int(pid) for pid in pids.split(",")], name)
        connection.execute(f"select pg_catalog.pg_terminate_backend(pid) {alive}", asked)
        while connection.execute(f"select 1 {alive}", asked).fetchone():
            if time.monotonic() >= until:
                return False
            time.sleep(LOOK_SECONDS)
    except driver().Error as problem:
        raise failure(problem.sqlstate or "", " ".join(str(problem).split())) from problem
    finally:
        connection.close()
    return True

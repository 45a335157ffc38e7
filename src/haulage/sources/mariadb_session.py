"""One session of MariaDB or MySQL: connected, in one read-only transaction, its statements killed, its errors told.

Values come as the server spells them: the driver's own conversions are switched off. What is set about that is set for
the session, which is ours alone. A server does not notice by itself that its client is gone in the middle of a silent
statement; who ends a build has to kill it, and ``max_statement_time`` is the last resort.
"""

from __future__ import annotations

import math
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from haulage.core.errors import BuildFailed
from haulage.sources.address import address_of, unread_url
from haulage.sources.query import needed, without_values

if TYPE_CHECKING:
    import pymysql
    from pymysql.cursors import Cursor

CONNECT_SECONDS = 5
STATEMENT_SECONDS = 60  # of a statement at a door; a build says its own
SECONDS_MAX = 31_536_000  # of a limit, as the server takes it: a year
AGAIN_SECONDS = 0.5  # between two kills of one statement: one that comes before it has begun finds nothing
BINARY = 63  # the character set of what is no text
LOOK_SECONDS = 0.05  # between two looks whether a statement is to be ended
IN_A_URL = ("unix_socket", "ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_cert", "ssl_verify_identity")
_CODES = {
    "source_unavailable": (
        1040,
        1042,
        1043,
        1044,
        1045,
        1049,
        1053,
        1129,
        1130,
        1203,
        1226,
        1698,
        2002,
        2003,
        2006,
        2013,
    ),
    "source_locked": (1205, 1213),
    "generation_timeout": (1969, 3024),
    "sort_space_exceeded": (1021, 1114),
}
_NAMES_IN_QUOTES = (1044, 1045, 1046, 1049, 1051, 1052, 1054, 1060, 1109, 1142, 1143, 1146, 1305, 1356, 1370)
_INTERRUPTED = 1317


class Interrupted(BuildFailed):
    """A statement was killed."""


def driver() -> Any:
    """The driver, or what to install."""
    return needed("pymysql", "mariadb")


def connect(url: str) -> pymysql.Connection[Any]:
    """A connection whose rows are not held, and whose values are as the server spells them.

    Raises:
        BuildFailed: ``source_unavailable``; the cause never holds the password.
    """
    pymysql = driver()
    from pymysql.cursors import SSCursor

    given = _parts(url)
    try:
        return pymysql.connect(  # type: ignore[no-any-return]
            **{"connect_timeout": CONNECT_SECONDS, **given},
            charset="utf8mb4",
            autocommit=True,
            conv={},
            cursorclass=SSCursor,
        )
    except (pymysql.Error, OSError, RuntimeError) as problem:
        words = " ".join(map(str, problem.args))
        if password := str(given.get("password") or ""):
            words = words.replace(password, "…")
        raise BuildFailed("source_unavailable", cause=words) from None  # its chain would hold the password


def _parts(url: str) -> dict[str, Any]:
    user, password, host, place = address_of(url, "mariadb")
    database, _, query = place.partition("?")
    name, colon, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
    options = dict(parse_qsl(query))
    if (colon and not port.isdecimal()) or set(options) - set(IN_A_URL):
        raise unread_url("mariadb")
    given: dict[str, Any] = {
        "host": (name if colon else host).strip("[]") or "localhost",
        "port": int(port) if colon else 3306,
        "user": user or None,
        "password": password,
        "database": unquote(database) or None,
    }
    truths = {name: value in ("1", "true") for name, value in options.items() if name.startswith("ssl_verify")}
    return given | options | truths


class Session:
    """A connection in a read transaction."""

    def __init__(self, url: str, connection: pymysql.Connection[Any], busy_seconds: float, seconds: float) -> None:
        """Begin the transaction.

        Args:
            url: to come by a second way, when a statement is to be killed.
            connection: of our own.
            busy_seconds: how long a lock is waited for.
            seconds: how long one statement may take.
        """
        self._url = url
        self._connection = connection
        seconds = min(seconds, SECONDS_MAX)
        busy, most = max(1, math.ceil(min(busy_seconds, SECONDS_MAX))), math.ceil(seconds)
        settings = {
            "time_zone": "'+00:00'",
            "lock_wait_timeout": busy,
            "innodb_lock_wait_timeout": busy,
            "net_write_timeout": most,
            "sql_select_limit": 2**64 - 1,
        }
        version = connection.get_server_info()  # type: ignore[no-untyped-call]  # the stubs say nothing of it
        if "MariaDB" in str(version):
            # At its default a recursion ends after a thousand steps, with rows missing and no error.
            settings |= {"max_statement_time": seconds, "max_recursive_iterations": 2**32 - 1}
        else:  # where it ends with one
            settings |= {"max_execution_time": math.ceil(seconds * 1000), "cte_max_recursion_depth": 2**32 - 1}
        self.run("set session " + ", ".join(f"{name} = {value}" for name, value in settings.items()))
        self.run("set session transaction isolation level repeatable read")
        # All that was committed by this instant is in the snapshot, which is taken after it.
        asked = "select connection_id(), cast(unix_timestamp(now(3)) * 1000 as unsigned), host"
        ((number, began, host),) = self.run(f"{asked} from information_schema.processlist where id = connection_id()")
        self.run("start transaction with consistent snapshot, read only")
        self.number, self.host, self.began = int(number), str(host), int(began)

    def literal(self, text: str) -> str:
        """A text as a literal of SQL, as the driver quotes it for this server's mode."""
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BuildFailed("source_failed", cause="a bound text is not Unicode") from None
        return str(self._connection.escape(text))

    def run(
        self,
        sql: str,
        binds: Mapping[str, Any] | None = None,
        seconds: float | None = None,
        given_up: Callable[[], bool] | None = None,
    ) -> list[tuple[Any, ...]]:
        """Run a statement to its end, and give its rows.

        Raises:
            Interrupted: it took longer than ``seconds``, or ``given_up`` said so.
        """
        with self._watched(seconds, given_up), self.running(sql, binds) as cursor, told(binds):
            return list(cursor.fetchall())

    def described(self, sql: str, binds: Mapping[str, Any] | None = None) -> Sequence[tuple[str, int, int, int, bool]]:
        """The columns of a statement that is not run: name, type, length, scale, whether it is bytes.

        It is only prepared, which the driver has no verb for. Not even ``limit 0`` or EXPLAIN keep MySQL from working
        out the one row of a sum inside of another query.
        """
        from pymysql.constants.COMMAND import COM_STMT_CLOSE, COM_STMT_PREPARE
        from pymysql.protocol import FieldDescriptorPacket

        connection: Any = self._connection
        with told(binds):
            connection._execute_command(COM_STMT_PREPARE, sql)  # noqa: SLF001
            _, number, columns, gaps = struct.unpack_from("<BIHH", connection._read_packet().get_all_data())  # noqa: SLF001
            for _ in range(gaps + bool(gaps)):  # each ``?``, for which the statement itself will be refused
                connection._read_packet()  # noqa: SLF001
            fields = [connection._read_packet(FieldDescriptorPacket) for _ in range(columns)]  # noqa: SLF001
            if columns:
                connection._read_packet()  # noqa: SLF001 - that this was all
            connection._execute_command(COM_STMT_CLOSE, struct.pack("<I", number))  # noqa: SLF001 - has no answer
        return [(each.name, each.type_code, each.length, each.scale, each.charsetnr == BINARY) for each in fields]

    @contextmanager
    def running(self, sql: str, binds: Mapping[str, Any] | None = None) -> Iterator[Cursor]:
        """A statement whose rows are still to come; left before the last of them, it is killed."""
        cursor = self._connection.cursor()
        with told(binds):
            cursor.execute(sql)
        try:
            yield cursor
        finally:
            result = cursor._result  # noqa: SLF001 - there is no other way to know
            if result is not None and result.unbuffered_active:
                self.kill()
                with suppress(driver().Error):  # It ends with the last row or by the kill.
                    while cursor.fetchmany(1_000):
                        pass
            with suppress(driver().Error):
                cursor.close()

    def kill(self) -> None:
        """Have the server end the statement that is running; from any thread."""
        with suppress(BuildFailed, driver().Error), closing(connect(self._url)) as other, other.cursor() as cursor:
            cursor.execute(f"kill query {self.number}")

    @contextmanager
    def _watched(self, seconds: float | None, given_up: Callable[[], bool] | None) -> Iterator[None]:
        if seconds is None and given_up is None:
            yield
            return
        until, done = math.inf if seconds is None else time.monotonic() + seconds, threading.Event()

        def watch() -> None:
            wait = LOOK_SECONDS
            while not done.wait(wait):
                if time.monotonic() >= until or (given_up is not None and given_up()):
                    self.kill()
                    wait = AGAIN_SECONDS

        thread = threading.Thread(target=watch, daemon=True, name="watch")
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


@contextmanager
def told(binds: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Turn what the driver raises into a failure with a code; its words are for the log, without values."""
    errors = driver().Error
    try:
        yield
    except errors as problem:
        number = problem.args[0] if problem.args and isinstance(problem.args[0], int) else 0
        words = " ".join(map(str, problem.args[1:])) or type(problem).__name__
        if number in _NAMES_IN_QUOTES:  # its quotes hold names
            words = words.replace("'", '"')
        words = f"{number}: {without_values(words, binds)}"
        if number == _INTERRUPTED:
            raise Interrupted("source_failed", cause=words) from problem
        broken = "source_unavailable" if number == 0 else "source_failed"
        raise BuildFailed(next((code for code, of in _CODES.items() if number in of), broken), cause=words) from problem


def end_session(url: str, session: str, seconds: float) -> bool:
    """End what is left of a session whose client is dead; says whether it is gone."""
    number, _, host = session.partition(" ")
    with closing(connect(url)) as connection, connection.cursor() as cursor, told():
        until = time.monotonic() + seconds
        alive = f"select id from information_schema.processlist where id = {int(number)} and host = %s"
        while cursor.execute(alive, (host,)) is not None and cursor.fetchall():
            with suppress(driver().Error):  # gone meanwhile
                cursor.execute(f"kill connection {int(number)}")
            if time.monotonic() >= until:
                return False
            time.sleep(LOOK_SECONDS)
    return True

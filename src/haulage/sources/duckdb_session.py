"""One connection to a file of DuckDB: opened for reading only, its statements interrupted, its errors told.

The engine runs in this process. It reaches no file but its own, loads no extension, and sorts in a folder of this
process, which is the run's own where a build reads. An error ends its transaction, so another one is begun; nobody can
have written meanwhile.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from zlib import crc32

from haulage.core.errors import BuildFailed
from haulage.sources.query import needed, without_values

if TYPE_CHECKING:
    import duckdb

STATEMENT_SECONDS = 60  # of a statement at a door; a build says its own
LOOK_SECONDS = 0.05  # between two looks whether a statement is to be ended, or a lock is gone
_CLOSED = {  # what SQL of a dataset cannot reach: files, the network, variables of this program, and other code
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
}
_GIVEN = {
    "threads": "1",  # with several, groups come in another order each time; and a slot is one processor
    "memory_limit": "64MiB",  # of buffers: what is over goes into the temporary folder; twice that and a Parquet
    # file of a large sort do not fit into the 512 MiB of address space that a build has by default
}
_OF_NAMES = ("BinderException", "CatalogException", "ParserException", "PermissionException", "NotImplementedException")
_WITHOUT_ROWS = (*_OF_NAMES, "IOException")  # errors whose words hold no value of a row


class Interrupted(BuildFailed):
    """A statement was ended because its time was over, or nobody waits for it any more."""


def driver() -> Any:
    """The driver, or what to install."""
    return needed("duckdb", "duckdb")


def connect(path: str, settings: Mapping[str, str], busy_seconds: float) -> duckdb.DuckDBPyConnection:
    """A connection to a file, as soon as nobody has it open for writing.

    Raises:
        BuildFailed: ``source_locked`` when that took too long, ``source_unavailable``.
    """
    duckdb = driver()
    path = os.path.abspath(path)  # noqa: PTH100 - pathlib takes 6 ms to load
    given = _GIVEN | _CLOSED | {"temp_directory": _folder_of(path)} | dict(settings)
    until = time.monotonic() + busy_seconds
    while True:
        try:
            return duckdb.connect(path, read_only=True, config=given)  # type: ignore[no-any-return]
        except duckdb.Error as problem:
            words = " ".join(str(problem).split("\n")[0].split())
            # The second: this very process has it open for writing.
            is_locked = "Could not set lock" in words or "different configuration" in words
            if is_locked and time.monotonic() < until:
                time.sleep(LOOK_SECONDS)
                continue
            code = "source_locked" if is_locked else "source_unavailable"
            raise BuildFailed(code, cause=f"{type(problem).__name__}: {words}") from problem


def _folder_of(path: str) -> str:
    """Where it sorts; one for each process and file, since two must not meet there."""
    parent = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - as Python has it; the engine makes a folder in it
    return f"{parent}/haulage-{os.getpid()}-{crc32(path.encode()):08x}.tmp"


class Session:
    """A connection in a read transaction, in which now() is one instant."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, seconds: float) -> None:
        """Begin the transaction; ``seconds`` are how long one statement may take."""
        self._connection = connection
        self._seconds = seconds
        self._sort_bytes: int | None = None
        with self._told():
            # What text of instants depends on.
            connection.execute("set TimeZone = 'UTC'; set Calendar = 'gregorian'")
            connection.execute("begin transaction read only")
        # The file is locked against writers, so all that was committed by now is in it.
        self.began = time.time_ns() // 1_000_000

    def limit(self, sort_bytes: int | None) -> None:
        """How large the temporary files may become."""
        if sort_bytes is not None and sort_bytes != self._sort_bytes:
            with self._told():
                self._connection.execute(f"set max_temp_directory_size = '{sort_bytes}B'")
            self._sort_bytes = sort_bytes

    def interrupt(self) -> None:
        """End the statement that is running; from any thread."""
        with suppress(driver().Error):  # closed meanwhile
            self._connection.interrupt()

    # -- statements --------------------------------------------------------------------------------

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
        with self._told(binds), Watch(self, self._seconds, seconds, given_up):
            return self._entered(sql).fetchall()

    def types(self, sql: str, binds: Mapping[str, Any] | None = None) -> list[Any]:
        """The types of a statement's columns."""
        with self._told(binds), Watch(self, self._seconds):
            return [entry[1] for entry in self._entered(sql).description or ()]

    def rows(self, sql: str, binds: Mapping[str, Any], most: int) -> Generator[list[tuple[Any, ...]], None, None]:
        """The rows of a statement as they come, so many at a time at most; closed, it goes no further."""
        with self._told(binds), Watch(self, self._seconds):
            fetch = self._entered(sql).fetchmany
            size = 16  # soon the first of a slow statement; more of them are fetched faster
            while rows := fetch(size):
                yield rows
                size = min(most, size * 2)

    def _entered(self, sql: str) -> duckdb.DuckDBPyConnection:
        """Begin the one statement of a text."""
        found = self._connection.extract_statements(sql)
        if len(found) != 1:  # a PIVOT without its values is two: the first makes a type of them
            raise BuildFailed(
                "source_failed", cause="DuckDB takes it for several statements; name the values of a PIVOT"
            )
        return self._connection.execute(found[0])

    @contextmanager
    def _told(self, binds: Mapping[str, Any] | None = None) -> Iterator[None]:
        """Turn what the driver raises into a failure with a code; its words are for the log only."""
        try:
            yield
        except driver().Error as problem:
            self._back()
            raise failure(problem, binds) from problem
        except BuildFailed:
            self._back()
            raise
        except UnicodeEncodeError as problem:
            raise BuildFailed("source_failed", cause="a text of the query is not Unicode") from problem

    def _back(self) -> None:
        """Begin the transaction again: an error has ended it."""
        with suppress(driver().Error):
            self._connection.execute("rollback")
        with suppress(driver().Error):
            self._connection.execute("begin transaction read only")


def failure(problem: Exception, binds: Mapping[str, Any] | None = None) -> BuildFailed:
    """What the engine says, as a failure; without values of rows and of binds."""
    kind, words = type(problem).__name__, str(problem)
    if kind == "OutOfMemoryException":
        if "max_temp_directory_size" in words:
            return BuildFailed("sort_space_exceeded", "Sorting the rows needed more space than allowed.", cause=kind)
        return BuildFailed("out_of_memory", cause=" ".join(words.partition("\n")[0].split()))
    if kind == "InterruptException":
        return BuildFailed("source_failed", cause="the statement was ended")
    if kind == "IOException":
        code = "no_space" if "No space left" in words else "source_unavailable"
        return BuildFailed(code, cause=f"{kind}: {without_values(words.partition(chr(10))[0], binds)}")
    if kind == "OutOfRangeException" and "Overflow in HUGEINT addition" in words:
        return BuildFailed("source_failed", cause="integer overflow: a sum has more than 38 digits")
    if kind in _WITHOUT_ROWS:
        # What comes after the first line is the text of the statement.
        return BuildFailed("source_failed", cause=f"{kind}: {without_values(words.partition(chr(10))[0], binds)}")
    return BuildFailed("source_failed", cause=f"{kind}: of a value; what it says of it is not told here")


class Watch:
    """While it is entered, a statement may take so much time, unless it is given up.

    It interrupts again and again: an interrupt that comes before the statement has begun is lost.
    """

    def __init__(
        self,
        session: Session,
        limit: float,
        seconds: float | None = None,
        given_up: Callable[[], bool] | None = None,
    ) -> None:
        """Over the limit a statement fails; after ``seconds`` it is only not waited for any more."""
        began = time.monotonic()
        self._session = session
        self._limit = began + limit
        self._until = None if seconds is None else began + seconds
        self._every = LOOK_SECONDS if seconds is None else max(0.001, min(LOOK_SECONDS, seconds))
        self._given_up = given_up
        self._why: BuildFailed | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="watch")

    def __enter__(self) -> None:
        """Begin to look."""
        self._thread.start()

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        """End before the next statement begins, and say why this one was ended, if it was."""
        self._done.set()
        self._thread.join()
        if self._why is not None and isinstance(problem, driver().InterruptException):
            raise self._why from problem

    def _watch(self) -> None:
        while not self._done.wait(self._every):
            now = time.monotonic()
            if now >= self._limit:
                self._why = self._why or BuildFailed("generation_timeout", cause="the statement took too long")
            elif (self._until is not None and now >= self._until) or (self._given_up is not None and self._given_up()):
                self._why = self._why or Interrupted("source_failed", cause="the statement was ended")
            if self._why is not None:
                self._session.interrupt()

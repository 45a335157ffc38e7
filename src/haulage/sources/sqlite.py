"""SQLite as a source: opened read-only, one read transaction for count and rows.

The query of the operator is wrapped once: ``select columns from (query) where visible order by …``. Column
names come from the query itself before the wrap; the order stands outside of it. SQLite has a type per value,
not per column, so a column's type is None unless the dataset declares it.

Sorting writes temporary files into the run's own folder (SQLITE_TMPDIR). SQLite unlinks them as it opens
them, so their size is read from the process's own descriptors; a watch thread interrupts the statement when
it is over its limit.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from haulage.core.binds import rewrite_names, without_terminator
from haulage.core.catalogue import Column
from haulage.core.errors import BuildFailed
from haulage.core.ports import Reading

BATCH_ROWS = 256  # smaller ones stay in the cache of the processor: 1,000 took a third longer
BATCH_BYTES = 1024 * 1024  # what one batch should hold, by the size of the rows before it
WATCH_SECONDS = 0.25


def open_source(url: str, busy_seconds: float = 5) -> SqliteSource:
    """A source from ``sqlite:///path`` (four slashes for an absolute path)."""
    return SqliteSource(Path(url.removeprefix("sqlite:///")), busy_seconds)


class SqliteSource:
    """One SQLite database; implements ``core.ports.Source``."""

    def __init__(self, path: Path, busy_seconds: float) -> None:
        """Remember where it is; nothing is opened."""
        self._path = path
        self._busy_seconds = busy_seconds

    @contextmanager
    def snapshot(self) -> Iterator[SqliteSnapshot]:
        """Open one read transaction; see ``core.ports.Source``."""
        with told():
            connection = sqlite3.connect(
                f"{self._path.absolute().as_uri()}?mode=ro",
                uri=True,
                timeout=self._busy_seconds,
                isolation_level=None,
                check_same_thread=False,
            )
        try:
            with told():
                connection.execute("PRAGMA query_only = ON")
                connection.execute("BEGIN")
                # The transaction begins with its first read, not with BEGIN.
                connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            at = time.time_ns() // 1_000_000
            yield SqliteSnapshot(connection, at)
        finally:
            connection.close()

    def check(self, reading: Reading) -> list[str]:
        """Prepare a query; every problem as a sentence for the operator."""
        try:
            with self.snapshot() as snapshot:
                problems = snapshot.problems(reading)
        except BuildFailed as failed:
            return [f"{failed.detail} ({failed.cause})" if failed.cause else failed.detail]
        return problems


class SqliteSnapshot:
    """One read transaction; implements ``core.ports.Snapshot``."""

    def __init__(self, connection: sqlite3.Connection, at: int) -> None:
        """Take a connection in a read transaction."""
        self._connection = connection
        self.at: int | None = at
        self._replaced: Counter[str] = Counter()

    @property
    def notices(self) -> Mapping[str, int]:
        """Texts that were no UTF-8 and were mended, by code."""
        return self._replaced

    # -- what will be written --------------------------------------------------------------------

    def columns(self, reading: Reading) -> tuple[Column, ...]:
        """The columns that will be written, named by the query itself; duplicates become ``a_2``."""
        return tuple(column for column, _ in self._chosen(reading))

    def _chosen(self, reading: Reading) -> list[tuple[Column, str]]:
        """The columns with the name that the wrapped query gives each."""
        inside = self._inside(reading)
        by_key = dict(zip(_own_names(inside, reading.sql), inside, strict=True))
        wanted = reading.columns or tuple(key for key in by_key if key not in reading.hidden)
        chosen = []
        for key in wanted:
            if key not in by_key or key in reading.hidden:
                raise BuildFailed("source_failed", cause=f"the query has no column {key!r} to write")
            header, kind = reading.declared.get(key, (key, None))
            chosen.append((Column(key, header, kind), by_key[key]))
        if not chosen:
            raise BuildFailed("source_failed", cause="every column of the query is hidden")
        headers = unique_names([column.header for column, _ in chosen])
        return [
            (Column(column.key, header, column.type), name)
            for (column, name), header in zip(chosen, headers, strict=True)
        ]

    def _inside(self, reading: Reading) -> list[str]:
        """The names that the query's columns have inside the wrap; LIMIT 0 keeps it from running."""
        sql = f"select * from (\n{self._bare(reading)}) limit 0"
        with told():
            cursor = self._connection.execute(sql, self._binds(sql, reading))
            names = [str(entry[0]) for entry in cursor.description or ()]
            cursor.close()
        return names

    def _bare(self, reading: Reading) -> str:
        return _listed(without_terminator(reading.sql), reading)

    def _wrapped(self, reading: Reading, what: str, *, ordered: bool) -> str:
        sql = f"select {what} from (\n{self._bare(reading)}) as haulage_query"
        if reading.visible:
            sql += f"\nwhere (\n{_listed(reading.visible, reading)}\n)"
        if ordered and reading.order:
            sql += "\norder by " + ", ".join(map(_order_term, reading.order))
        return sql

    def _binds(self, sql: str, reading: Reading) -> dict[str, Any]:
        binds: dict[str, Any] = {}
        for name, value in reading.binds.items():
            kind = reading.types.get(name)
            if isinstance(value, list | tuple):
                binds |= {f"{name}_{index}": _adapted(item, kind) for index, item in enumerate(value)}
            else:
                binds[name] = _adapted(value, kind)
        return binds

    def problems(self, reading: Reading) -> list[str]:
        """What is wrong with a query, or will be, as sentences."""
        found = []
        mode = self._connection.execute("PRAGMA journal_mode").fetchone()[0]
        if mode != "wal":
            found.append(
                f"the database is in journal mode {mode!r}: its writers and our reader block each other; "
                "run PRAGMA journal_mode=WAL on it once"
            )
        try:
            sql = self._wrapped(reading, "*", ordered=True)
            with told():
                self._connection.execute("EXPLAIN " + sql, self._binds(sql, reading)).close()
            known = _own_names(self._inside(reading), reading.sql)
            self.columns(reading)
        except BuildFailed as failed:
            return [*found, f"the query fails: {failed.cause or failed.detail}"]
        found += [f"hidden: the query has no column {name!r}" for name in reading.hidden if name not in known]
        found += [f"columns: the query has no column {name!r}" for name in reading.declared if name not in known]
        return found

    # -- counting and reading --------------------------------------------------------------------

    def count(self, reading: Reading, seconds: float) -> int | None:
        """Rows that will be written, or None when counting took longer than ``seconds``."""
        sql = self._wrapped(reading, "count(*)", ordered=False)
        timer = threading.Timer(seconds, self._connection.interrupt)
        timer.daemon = True
        timer.start()
        try:
            with told():
                row = self._connection.execute(sql, self._binds(sql, reading)).fetchone()
        except _Interrupted:
            return None
        finally:
            timer.cancel()
            timer.join()  # A late interrupt must not hit the statement after this one.
        return int(row[0])

    def batches(self, reading: Reading, sort_bytes: int | None = None) -> Iterator[Sequence[tuple[Any, ...]]]:
        """The rows, in batches bounded by number and by the size of what came before.

        Text that is no UTF-8 stops the driver in the middle of a batch. The same statement is then run again
        in the same read transaction with a decoder that mends it, after the rows already given.
        """
        names = ", ".join(_quoted(name) for _, name in self._chosen(reading))
        sql = self._wrapped(reading, names, ordered=True)
        given = 0
        with self._sorting_watched(sort_bytes):
            try:
                for batch in self._fetched(sql, reading, skip=0):
                    yield batch
                    given += len(batch)
            except _NotText:
                self._connection.text_factory = self._mended
                yield from self._fetched(sql, reading, skip=given)

    def _fetched(self, sql: str, reading: Reading, *, skip: int) -> Iterator[Sequence[tuple[Any, ...]]]:
        with told():
            cursor = self._connection.execute(sql, self._binds(sql, reading))
        while skip:
            with told():
                skip -= len(cursor.fetchmany(min(skip, BATCH_ROWS)))
        size = 16  # A first look at how large the rows are.
        while True:
            with told():
                batch = cursor.fetchmany(size)
            if not batch:
                return
            yield batch
            size = _next_size(batch)

    def _mended(self, raw: bytes) -> str:
        try:
            # A lone surrogate stays one character here; the encoder replaces and counts it.
            return raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            self._replaced["text_replaced"] += 1
            return raw.decode("utf-8", "replace")

    @contextmanager
    def _sorting_watched(self, sort_bytes: int | None) -> Iterator[None]:
        if sort_bytes is None:
            yield
            return
        done = threading.Event()

        def watch() -> None:
            while not done.wait(WATCH_SECONDS):
                if unlinked_bytes() > sort_bytes:
                    self._connection.interrupt()

        thread = threading.Thread(target=watch, daemon=True, name="sort space")
        thread.start()
        try:
            yield
        except _Interrupted:
            limit = f"Sorting the rows needed more than the {sort_bytes:,} bytes allowed."
            raise BuildFailed("sort_space_exceeded", limit) from None
        finally:
            done.set()
            thread.join()


class _NotText(Exception):  # noqa: N818 - a signal inside this file
    """The driver met text that is no UTF-8."""


class _Interrupted(Exception):  # noqa: N818 - a signal inside this file
    """A statement was interrupted by one of our own watches."""


@contextmanager
def told() -> Iterator[None]:
    """Turn what the driver raises into a failure with a code; its words are for the log only."""
    try:
        yield
    except sqlite3.Error as problem:
        name = getattr(problem, "sqlite_errorname", "") or ""
        if "Could not decode to UTF-8" in str(problem):
            raise _NotText from problem
        if name == "SQLITE_INTERRUPT" or str(problem) == "interrupted":
            raise _Interrupted from problem
        raise BuildFailed(_code_of(name, problem), cause=f"{name or type(problem).__name__}: {problem}") from problem
    except OverflowError as problem:
        raise BuildFailed("source_failed", cause=str(problem)) from problem


def _code_of(name: str, problem: sqlite3.Error) -> str:
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return "source_locked"
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_NOTADB", "SQLITE_PERM", "SQLITE_AUTH")):
        return "source_unavailable"
    if name.startswith("SQLITE_FULL"):
        return "no_space"
    if name.startswith("SQLITE_NOMEM"):
        return "out_of_memory"
    if name.startswith("SQLITE_IOERR"):
        return "source_unavailable"
    if not name and "unable to open" in str(problem):
        return "source_unavailable"
    return "source_failed"


def _own_names(inside: Sequence[str], sql: str) -> list[str]:
    """The query's own names: inside a wrap SQLite writes a second ``a`` as ``a:1``; here it is ``a_2``."""
    seen: set[str] = set()
    own = []
    for name in inside:
        base, colon, number = name.rpartition(":")
        renamed = colon and number.isdigit() and base.lower() in seen and name not in sql
        own.append(base if renamed else name)
        seen.add(own[-1].lower())
    return unique_names(own)


def unique_names(names: Sequence[str]) -> list[str]:
    """Names without duplicates: ``a, a`` becomes ``a, a_2`` (DECISIONS 18)."""
    taken: set[str] = set(names)
    seen: set[str] = set()
    unique = []
    for name in names:
        candidate, number = name, 2
        while candidate in seen or (candidate != name and candidate in taken):
            candidate, number = f"{name}_{number}", number + 1
        seen.add(candidate)
        unique.append(candidate)
    return unique


def unlinked_bytes() -> int:
    """Bytes of files that this process holds open and that have no name any more: SQLite's sorting."""
    total = 0
    try:
        descriptors = os.listdir("/proc/self/fd")
    except OSError:
        return 0
    for descriptor in descriptors:
        try:
            if os.readlink(f"/proc/self/fd/{descriptor}").endswith(" (deleted)"):
                total += os.stat(int(descriptor)).st_size
        except OSError:
            continue
    return total


def _next_size(batch: Sequence[tuple[Any, ...]]) -> int:
    looked = batch[:: max(1, len(batch) // 16)]
    size = sum(len(cell) if isinstance(cell, str | bytes) else 8 for row in looked for cell in row)
    return max(1, min(BATCH_ROWS, BATCH_BYTES * len(looked) // max(1, size)))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _order_term(term: str) -> str:
    name, _, direction = term.partition(" ")
    return f"{_quoted(name)} {direction}".rstrip()


def _listed(sql: str, reading: Reading) -> str:
    """Write a list parameter as one bind per value: ``in (:names)`` becomes ``in (:names_0, :names_1)``."""

    def replace(name: str) -> str:
        value = reading.binds.get(name)
        if not isinstance(value, list | tuple):
            return f":{name}"
        return ", ".join(f":{name}_{index}" for index in range(len(value))) or "null"

    return rewrite_names(sql, replace)


def _adapted(value: Any, kind: str | None) -> Any:  # noqa: ANN401 - a bind
    """A bound value as SQLite compares it: numbers as numbers, instants in SQLite's own text form."""
    if isinstance(value, str) and kind == "decimal":
        number = Decimal(value)
        return int(number) if number == number.to_integral_value() and abs(number) < 2**63 else float(number)
    if isinstance(value, str) and kind == "timestamp":
        moment = datetime.fromisoformat(value).astimezone(UTC)
        return moment.strftime("%Y-%m-%d %H:%M:%S") + (f".{moment.microsecond:06d}" if moment.microsecond else "")
    return int(value) if isinstance(value, bool) else value

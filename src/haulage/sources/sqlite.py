"""SQLite as a source: opened read-only, one read transaction for count and rows.

The query is wrapped as ``query.py`` says. SQLite has a type per value, not per column, so a column's type is
None unless the dataset declares it. Sorting writes temporary files into the run's own folder (SQLITE_TMPDIR);
``sqlite_watch.py`` keeps them within their limit.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from haulage.core.binds import rewrite_identifiers
from haulage.core.errors import BuildFailed
from haulage.core.reading import IF_FIT, Column, Reading, unique_names
from haulage.sources.grouping import Spoken, Sum, Value, grouped_reading
from haulage.sources.query import (
    WRAP,
    Name,
    bare,
    checked,
    chosen,
    columns_of,
    mended,
    order_by,
    quoted,
    unknown_names,
    wrapped,
)
from haulage.sources.sqlite_binds import binds_of, in_backquotes, listed
from haulage.sources.sqlite_outside import Made, Outside
from haulage.sources.sqlite_sums import EXACT_NAME, EXACT_SUM, NUMBER_SUM, WIDE_SUM, teach_sums
from haulage.sources.sqlite_watch import Interrupted, NotText, TooLarge, Watch, told

if TYPE_CHECKING:
    from haulage.core.grouping import Question
    from haulage.core.source import Batches
    from haulage.sources.advice import Advice
    from haulage.sources.sqlite_beside import BesideStream

BATCH_ROWS = 256  # smaller ones stay in the cache of the processor: 1,000 took a third longer
BATCH_BYTES = 1024 * 1024  # what one batch should hold
LOOKED_ROWS = 4  # of a batch, to see how large its rows are: to look at all would take as long as to read them
SIZED = (str, bytes)
CELL_BYTES = 64 * 1024  # of a cell for which rows need not be fetched one by one
RANDOM = frozenset(("random", "randomblob"))  # functions that answer otherwise each time
SILENT = frozenset(("printf", "format"))  # functions that are NULL, and no error, where they are over a limit


def open_source(url: str, busy_seconds: float = 5, **_of_servers: Any) -> SqliteSource:
    """A source from ``sqlite:///path`` (four slashes for an absolute path)."""
    return SqliteSource(url.removeprefix("sqlite:///"), busy_seconds)


class SqliteSource:
    """One SQLite database; implements ``core.source.Source``."""

    def __init__(self, path: str, busy_seconds: float) -> None:
        """Remember where it is; nothing is opened."""
        self._path = os.path.abspath(path)  # noqa: PTH100 - pathlib takes 6 ms to load
        escaped = self._path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        self._uri = f"file://{escaped}?mode=ro"
        self._busy_seconds = busy_seconds
        self._open: list[sqlite3.Connection] = []

    @contextmanager
    def snapshot(self) -> Iterator[SqliteSnapshot]:
        """Open one read transaction; see ``core.source.Source``."""
        with ExitStack() as closed:
            with told():
                outside = Outside(closed.enter_context(closing(self._connect())), self._path, self._uri)
                connection = closed.enter_context(closing(self._connect()))
            closed.callback(outside.end_readers)
            self._open.append(connection)
            closed.callback(self._open.remove, connection)
            with told():
                connection.execute("PRAGMA query_only = ON")
                connection.execute("BEGIN")
                # The snapshot is that of the first read, not of BEGIN: all that was committed by now is in it.
                at = time.time_ns() // 1_000_000
                connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            yield SqliteSnapshot(connection, at, outside)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(
            self._uri, uri=True, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False
        )

    def cancel(self) -> None:
        """Interrupt the statements that run now; see ``core.source.Source``."""
        for connection in self._open.copy():
            with suppress(sqlite3.Error):  # closed meanwhile
                connection.interrupt()

    def check(self, reading: Reading) -> list[str]:
        """Prepare a query; every problem as a sentence for the operator."""
        return checked(self, reading)


class SqliteSnapshot:
    """One read transaction; implements ``core.source.Snapshot``."""

    session = None
    has_sets = False

    def __init__(self, connection: sqlite3.Connection, at: int, outside: Outside | None = None) -> None:
        """Take a connection in a read transaction, and what stands outside of it."""
        self._connection = connection
        self._outside = outside
        self.at: int | None = at
        self._replaced: Counter[str] = Counter()
        self._carefully = False  # fetch row by row: cells are large, or rows cannot be asked for a second time

    @property
    def notices(self) -> Mapping[str, int]:
        """Texts that were no UTF-8 and were mended, by code."""
        return self._replaced

    # -- what will be written --------------------------------------------------------------------

    def columns(self, reading: Reading) -> tuple[Column, ...]:
        """The columns that will be written, named by the query itself; duplicates become ``a_2``."""
        return columns_of(reading, chosen(reading, self._names(reading)))

    def _names(self, reading: Reading) -> list[Name]:
        """Every column of the query; LIMIT 0 keeps it from running."""
        self._teach(reading)
        sql = f"select * from (\n{listed(bare(reading), reading)}\n) limit 0"
        with told(reading.binds):
            cursor = self._connection.execute(sql, binds_of(reading))
            inside = [str(entry[0]) for entry in cursor.description or ()]
            cursor.close()
        own = _own_names(inside, reading.sql)
        return [Name(*names) for names in zip(unique_names(own), own, inside, strict=True)]

    def _wrapped(self, reading: Reading, what: str, bound: Callable[[str], str] | None = None) -> str:
        self._teach(reading)
        self._refuse_text_in_double_quotes(reading)
        names = self._names(reading) if reading.blanked else ()
        return wrapped(reading, what, bound or (lambda sql: listed(sql, reading)), names)

    def grouped(self, reading: Reading, question: Question) -> Reading:
        """The groups of a reading; see ``core.source.Snapshot``."""
        collated = " collate binary" if self._has_collations(reading) else ""

        def key(name: Name) -> Value:
            return Value(f"{WRAP}.{quoted(name.inside)}{collated}")

        def number(name: Name) -> Sum:
            is_decimal = reading.declared.get(name.key, ("", None))[1] == "decimal"
            call = EXACT_SUM if is_decimal else WIDE_SUM if question.exact else NUMBER_SUM
            return Sum(f"{WRAP}.{quoted(name.inside)}", call)

        spoken = Spoken(lambda what: self._wrapped(reading, what, str), key, number, key)
        return grouped_reading(reading, self._names(reading), question, spoken)

    def _has_collations(self, reading: Reading) -> bool:
        """Whether any text might be compared otherwise than by its bytes; to say that it is not takes a while a row."""
        with told():
            (found,) = self._connection.execute("SELECT max(sql LIKE '%collate%') FROM sqlite_schema").fetchone()
        return bool(found) or "collate" in reading.sql.lower()

    def _teach(self, reading: Reading) -> None:
        if EXACT_NAME in reading.sql:  # groups of this snapshot, or of another
            teach_sums(self._connection)

    def _refuse_text_in_double_quotes(self, reading: Reading) -> None:
        """Refuse a name in double quotes that is no column: SQLite takes it for text, and ``"tenat" <> :a`` is true.

        In backquotes it is a name and nothing else. Such a statement is only prepared: the headers of columns without a
        name are as they are written. Python 3.11 cannot switch this off, and in views of the host it is not ours to.
        """
        if '"' not in "".join((reading.sql, reading.visible or "", *reading.blanked.values())):
            return
        names = self._names(reading) if reading.blanked else ()
        sql = rewrite_identifiers(wrapped(reading, "*", lambda sql: listed(sql, reading), names), in_backquotes)
        try:
            with told(reading.binds):
                self._connection.execute("EXPLAIN " + sql, binds_of(reading)).close()
        except BuildFailed as failed:
            if "no such column" in (failed.cause or ""):  # what else is wrong is told of the statement itself
                raise BuildFailed("source_failed", cause=f"{failed.cause}; write text in single quotes") from failed

    def problems(self, reading: Reading) -> list[str]:
        """What is wrong with a query, or will be, as sentences."""
        found = []
        with told():
            (mode,) = self._connection.execute("PRAGMA journal_mode").fetchone()
        if mode != "wal":
            found.append(
                f"the database is in journal mode {mode!r}: its writers and our reader block each other; "
                "run PRAGMA journal_mode=WAL on it once"
            )
        try:
            names = self._names(reading)
            sql = self._wrapped(reading, "*") + order_by(reading, names)
            with told(reading.binds):
                self._connection.execute("EXPLAIN " + sql, binds_of(reading)).close()
            chosen(reading, names)
        except BuildFailed as failed:
            return [*found, f"the query fails: {failed.cause or failed.detail}"]
        return found + unknown_names(reading, names)

    def advice(self, reading: Reading) -> list[Advice]:
        """What indexes a query lacks; see ``advice.Advises``."""
        from haulage.sources.advice import advised
        from haulage.sources.sqlite_advice import SqliteFacts

        names = self._names(reading)
        sql = self._wrapped(reading, "*") + order_by(reading, names)
        with told(reading.binds):
            return advised(reading, names, SqliteFacts(self._connection, sql, binds_of(reading)), quoted)

    # -- counting and reading --------------------------------------------------------------------

    def count(
        self,
        reading: Reading,
        seconds: float,
        sort_bytes: int | None = None,
        given_up: Callable[[], bool] | None = None,
    ) -> int | None:
        """Rows that will be written, or None when counting took longer than ``seconds`` or was given up."""
        sql = self._wrapped(reading, "count(*)")
        meanwhile = self._meanwhile(reading, given_up)
        try:
            with Watch(self._connection, sort_bytes, seconds, meanwhile), told(reading.binds):
                row = self._connection.execute(sql, binds_of(reading)).fetchone()
        except Interrupted:
            return None
        if self._outside is not None:
            self._outside.total, self._outside.sort_bytes = int(row[0]), sort_bytes
        return int(row[0])

    def batches(self, reading: Reading, sort_bytes: int | None = None) -> Batches:
        """The rows, in batches bounded by number and by size.

        Rows are fetched many at a time as long as cells are small, and text is decoded by the driver as long as
        it is UTF-8. Where that ends, in the middle of a batch, the same statement is run again in the same read
        transaction, in the slower way, from after the rows already given. A statement that would not give the
        same rows again, because it draws lots, is run in the slower way from the first row on.
        """
        names = self._names(reading)
        shown = ", ".join(quoted(name.inside) for name in chosen(reading, names))
        sql = self._wrapped(reading, shown) + order_by(reading, names)
        called = self._called(sql, reading)
        if not RANDOM.isdisjoint(called):
            self._carefully = True
            self._connection.text_factory = self._mended
        # A constant that is over the limit becomes NULL too, without a word.
        if not SILENT.isdisjoint(called) or max(len(sql), self._longest_view()) > CELL_BYTES:
            self._carefully = True
        any_length = self._connection.getlimit(sqlite3.SQLITE_LIMIT_LENGTH)
        if not self._carefully:
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, CELL_BYTES)
        given = 0
        try:
            with Watch(self._connection, sort_bytes):
                while True:
                    try:
                        for batch in self._fetched(sql, reading, given):
                            yield batch
                            given += len(batch)
                    except NotText:
                        self._connection.text_factory = self._mended
                    except TooLarge:
                        if self._carefully:
                            raise
                        self._carefully = True
                        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, any_length)
                    else:
                        return
        finally:  # What is read next in this snapshot may have large cells where this had none.
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, any_length)

    def stream(self, reading: Reading, profile: str) -> BesideStream | None:
        """The rows as lines by other processes (``sqlite_beside.py``), if the file can be begun anew."""
        if profile not in IF_FIT or self._outside is None:
            return None
        made = self._made(reading, IF_FIT[profile])
        return None if made is None else self._outside.stream(self._connection, made)

    def _made(self, reading: Reading, line_end: str) -> Made | None:
        """The statement of the rows for another reader; None where our encoder would change what it gives."""
        names = self._names(reading)
        shown = chosen(reading, names)
        if reading.limit is not None or any(reading.declared.get(name.key, "")[1:] == ("decimal",) for name in shown):
            return None
        columns = [quoted(name.inside) for name in shown]
        ordered = order_by(reading, names)

        def sql(more: str) -> str:
            return self._wrapped(reading, ", ".join(columns) + more) + ordered

        return Made(sql, columns, binds_of(reading), line_end)

    def _meanwhile(self, reading: Reading, given_up: Callable[[], bool] | None) -> Callable[[], bool] | None:
        """What is asked while rows are counted."""
        if self._outside is None or not reading.as_text:
            return given_up
        try:
            made = self._made(reading, "")
            return given_up if made is None else self._outside.meanwhile(self._connection, made, given_up)
        except BuildFailed:  # the count says what it is
            return given_up

    def _longest_view(self) -> int:
        """How long the SQL of the longest view is, and with it every constant in one."""
        with told():
            (longest,) = self._connection.execute("SELECT max(length(sql)) FROM sqlite_schema").fetchone()
        return longest or 0

    def _called(self, sql: str, reading: Reading) -> set[str | None]:
        """The functions that a statement calls, itself or in a view."""
        called: set[str | None] = set()

        def note(action: int, _first: str | None, function: str | None, *_where: str | None) -> int:
            if action == sqlite3.SQLITE_FUNCTION:
                called.add(function)
            return sqlite3.SQLITE_OK

        self._connection.set_authorizer(note)
        try:
            with told(reading.binds):
                self._connection.execute("EXPLAIN " + sql, binds_of(reading)).close()
        finally:
            self._connection.set_authorizer(None)
        return called

    def _fetched(self, sql: str, reading: Reading, skip: int) -> Batches:
        if self._outside is not None:
            self._outside.end_readers()  # begun for lines that nobody asked for: of another dialect, or for a bucket
        with told(reading.binds):
            cursor = self._connection.execute(sql, binds_of(reading))
            try:
                for _ in islice(cursor, skip):
                    pass
                yield from _row_by_row(cursor) if self._carefully else _many_at_once(cursor)
            finally:
                cursor.close()  # Its sorting gives back its space before the statement is run again.

    def _mended(self, raw: bytes) -> str:
        text, replaced = mended(raw)
        self._replaced["text_replaced"] += replaced
        return text


def _own_names(inside: Sequence[str], sql: str) -> list[str]:
    """The query's own names: inside a wrap SQLite numbers them, and writes a second ``a`` as ``a:1``."""
    own: list[str] = []
    numbered: dict[str, str] = {}  # what SQLite puts its numbers to -> the name that had it first
    for name in inside:
        stem = _stem(name)
        first = numbered.get(stem.lower())
        if first is None or stem == name or name in sql:
            own.append(name)
        else:
            own.append(stem if stem.lower() == first.lower() else first)
        numbered.setdefault(_stem(own[-1]).lower(), own[-1])
    return own


def _stem(name: str) -> str:
    stem, _, number = name.rpartition(":")
    return stem if number.isdecimal() else name


# -- rows ------------------------------------------------------------------------------------------


def _many_at_once(cursor: sqlite3.Cursor) -> Batches:
    size = 16  # A first look at how large the rows are.
    while batch := cursor.fetchmany(size):
        yield batch
        looked = batch[:: max(1, len(batch) // LOOKED_ROWS)]
        size = max(1, min(BATCH_ROWS, BATCH_BYTES * len(looked) // max(1, sum(map(_size, looked)))))


def _row_by_row(cursor: sqlite3.Cursor) -> Batches:
    batch: list[tuple[Any, ...]] = []
    size = 0
    for row in cursor:
        batch.append(row)
        size += _size(row)
        if size >= BATCH_BYTES or len(batch) == BATCH_ROWS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _size(row: tuple[Any, ...]) -> int:
    return sum(len(cell) if type(cell) in SIZED else 8 for cell in row)

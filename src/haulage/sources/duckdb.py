"""DuckDB as a source: a file of it, opened for reading only, in this process.

While anybody has the file open for reading DuckDB lets nobody write to it, so what is read is of one instant, and a
transaction that an error has ended is begun again without another one. Text of every value whose Python one would be
another is made by the engine (``duckdb_types.py``); values are put into the SQL as literals, which have the type of
what they are compared with, as texts that DuckDB binds have not. ``duckdb_session.py`` holds the connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from haulage.core.errors import BuildFailed
from haulage.core.reading import Column, Reading, unique_names
from haulage.sources.duckdb_lines import LineStream, field, line_of
from haulage.sources.duckdb_session import STATEMENT_SECONDS, Interrupted, Session, connect
from haulage.sources.duckdb_types import Kind, Reader, kind_of, read, sized
from haulage.sources.grouping import SUMMED, Spoken, Sum, Value, grouped_reading, not_summed
from haulage.sources.query import (
    WRAP,
    Name,
    bare,
    checked,
    chosen,
    columns_of,
    order_by,
    quoted,
    unknown_names,
    unquoted,
    with_values,
    wrapped,
)

if TYPE_CHECKING:
    from haulage.core.grouping import Question
    from haulage.core.source import Batches

BATCH_ROWS = 256
BATCH_BYTES = 1024 * 1024
SETTINGS = ("threads", "memory_limit")  # of DuckDB, that may follow the path


def open_source(url: str, busy_seconds: float = 5, *, seconds: float | None = None, **_of_others: Any) -> DuckdbSource:
    """A source from ``duckdb:///path`` (four slashes for an absolute path); ``?threads=2`` and its kin may follow."""
    return DuckdbSource(url, busy_seconds, STATEMENT_SECONDS if seconds is None else seconds)


class DuckdbSource:
    """One file of DuckDB; implements ``core.source.Source``."""

    def __init__(self, url: str, busy_seconds: float, seconds: float) -> None:
        """Remember where it is; nothing is opened."""
        self._path, _, settings = url.removeprefix("duckdb:///").partition("?")
        self._settings = dict(parse_qsl(settings, keep_blank_values=True))
        self._busy_seconds = busy_seconds
        self._seconds = seconds
        self._open: list[Session] = []

    @contextmanager
    def snapshot(self) -> Iterator[DuckdbSnapshot]:
        """Open one read transaction; see ``core.source.Source``."""
        if unknown := [name for name in self._settings if name not in SETTINGS]:
            why = f"{unknown[0]!r} in its URL is none of {', '.join(SETTINGS)}"
            raise BuildFailed("source_unavailable", cause=why)
        with closing(connect(self._path, self._settings, self._busy_seconds)) as connection:
            session = Session(connection, self._seconds)
            self._open.append(session)
            try:
                yield DuckdbSnapshot(session)
            finally:
                self._open.remove(session)

    def cancel(self) -> None:
        """Interrupt the statements that run now; see ``core.source.Source``."""
        for session in self._open.copy():
            session.interrupt()

    def check(self, reading: Reading) -> list[str]:
        """Prepare a query; every problem as a sentence for the operator."""
        return checked(self, reading)


class DuckdbSnapshot:
    """One read transaction; implements ``core.source.Snapshot``."""

    session = None
    has_sets = False  # it takes 2 MiB for each set, and has 64

    def __init__(self, session: Session) -> None:
        """Take a session in a read transaction."""
        self._session = session
        self._known: tuple[Reading, dict[Name, Kind]] | None = None
        self.at: int | None = session.began
        self._replaced: Counter[str] = Counter()

    @property
    def notices(self) -> Mapping[str, int]:
        """What could not stand in lines that the engine built, by code."""
        return self._replaced

    # -- what will be written --------------------------------------------------------------------

    def columns(self, reading: Reading) -> tuple[Column, ...]:
        """The columns that will be written, named by the query itself; duplicates become ``a_2``."""
        kinds = self._kinds(reading)
        known = {name.key: (kind.type, kind.native) for name, kind in kinds.items()}
        foreign = {name.key for name, kind in kinds.items() if kind.foreign}
        return columns_of(reading, chosen(reading, list(kinds)), known, foreign)

    def _kinds(self, reading: Reading) -> dict[Name, Kind]:
        """Every column of the query and what its type is; LIMIT 0 keeps it from running."""
        if self._known is None or self._known[0] != reading:
            sql = self._bound(reading)(bare(reading))
            # Inside a wrap DuckDB names a second `a` otherwise; only its own description has both.
            own = [str(row[0]) for row in self._session.run(f"describe\n{sql}", reading.binds)]
            keys = unique_names(own)
            names = [Name(key, name, key) for key, name in zip(keys, own, strict=True)]
            listed = ", ".join(map(quoted, keys))
            types = self._session.types(f"select * from (\n{sql}\n) as {WRAP} ({listed}) limit 0", reading.binds)
            self._known = reading, dict(zip(names, map(kind_of, types), strict=True))
        return self._known[1]

    def _wrapped(self, reading: Reading, what: str, bound: Callable[[str], str] | None = None) -> str:
        names = list(self._kinds(reading))
        listed = ", ".join(quoted(name.inside) for name in names)
        return wrapped(reading, what, bound or self._bound(reading), names, f"{WRAP} ({listed})")

    def grouped(self, reading: Reading, question: Question) -> Reading:
        """The groups of a reading; see ``core.source.Snapshot``."""
        kinds = self._kinds(reading)

        def key(name: Name) -> Value:
            kind, column = kinds[name], f"{WRAP}.{quoted(name.inside)}"
            if kind.id in ("varchar", "enum") and kind.type is None:
                # A column may have a collation, by which a and A are one; an enum sorts by its place in the type.
                return Value(f'{column}::varchar collate "binary"')
            return Value(kind.written(column) if kind.foreign or kind.type == "json" else column)

        def number(name: Name) -> Sum:
            kind, column = kinds[name], f"{WRAP}.{quoted(name.inside)}"
            if kind.type not in SUMMED:
                raise not_summed(name, kind.type or kind.native)
            if kind.type == "float":
                return Sum(f"{column}::double")
            if question.exact and kind.id == "decimal":
                scale = kind.native.partition(",")[2].rstrip(")").strip()
                return Sum(f"replace({column}::varchar, '.', '')::bignum", f"sum({{}})::varchar || 'e-{scale}'")
            # The engine adds uhugeint up as floats, and other whole numbers up to 38 digits.
            return Sum(f"{column}::bignum" if question.exact or kind.id == "uhugeint" else column)

        spoken = Spoken(lambda what: self._wrapped(reading, what, str), key, number, key)
        return grouped_reading(reading, list(kinds), question, spoken)

    def _selected(self, reading: Reading) -> tuple[str, list[Kind]]:
        """The query of the rows, and the kinds of its columns."""
        kinds = self._kinds(reading)
        shown = chosen(reading, list(kinds))
        written = ", ".join(kinds[name].written(f"{WRAP}.{quoted(name.inside)}") for name in shown)
        sql = self._wrapped(reading, written) + order_by(reading, list(kinds), f"{WRAP}.")
        return sql, [kinds[name] for name in shown]

    def problems(self, reading: Reading) -> list[str]:
        """What is wrong with a query, or will be, as sentences."""
        try:
            sql, _ = self._selected(reading)
            self._session.run(f"explain {sql}", reading.binds)
        except BuildFailed as failed:
            return [f"the query fails: {failed.cause or failed.detail}"]
        return unknown_names(reading, list(self._kinds(reading)))

    # -- counting and reading --------------------------------------------------------------------

    def count(
        self,
        reading: Reading,
        seconds: float,
        sort_bytes: int | None = None,
        given_up: Callable[[], bool] | None = None,
    ) -> int | None:
        """Rows that will be written, or None when counting took longer than ``seconds`` or was given up."""
        self._session.limit(sort_bytes)
        try:
            ((count,),) = self._session.run(self._wrapped(reading, "count(*)"), reading.binds, seconds, given_up)
        except Interrupted:
            return None
        return int(count)

    def batches(self, reading: Reading, sort_bytes: int | None = None) -> Batches:
        """The rows, in batches bounded by number and by size."""
        self._session.limit(sort_bytes)
        sql, kinds = self._selected(reading)
        readers = [kind.reader(as_text=reading.as_text) for kind in kinds]
        wide = [place for place, kind in enumerate(kinds) if kind.is_wide]
        with closing(self._session.rows(sql, reading.binds, BATCH_ROWS)) as fetched:
            for rows in fetched:
                for batch in sized(rows, wide, BATCH_BYTES):
                    yield _read(batch, readers)

    def stream(self, reading: Reading, profile: str) -> LineStream | None:
        """The rows as lines of CSV that the engine builds; None for another profile, and where it would not write ours.

        Bytes are base64 in our files, with a notice that counts them; documents with fractions are mended here.
        """
        if profile != "csv":
            return None
        kinds = self._kinds(reading)
        shown = chosen(reading, list(kinds))
        fields = []
        for name in shown:
            kind, declared = kinds[name], reading.declared.get(name.key, ("", None))[1]
            written = field(kind, f"{WRAP}.{quoted(name.inside)}", alone=len(shown) == 1)
            if written is None or (kind.type == "float" and declared == "decimal"):
                return None
            fields.append(written)
        sql = self._wrapped(reading, line_of(fields)) + order_by(reading, list(kinds), f"{WRAP}.")
        return LineStream(self._session, sql, reading.binds, self._replaced)

    def _bound(self, reading: Reading) -> Callable[[str], str]:
        return with_values(reading, _literal)


def _read(rows: Sequence[tuple[Any, ...]], readers: Sequence[Reader | None]) -> Sequence[tuple[Any, ...]]:
    if not any(readers):
        return rows
    columns = zip(readers, zip(*rows, strict=True), strict=True)
    return list(zip(*[cells if reader is None else read(cells, reader) for reader, cells in columns], strict=True))


def _literal(value: Any, kind: str | None) -> str:
    """A bound value as SQL. Text has the type of what it is compared with, as a bare word in quotes has."""
    if (plain := unquoted(value, kind)) is not None:
        return plain
    if "\0" in str(value):  # it would end the statement
        raise BuildFailed("source_failed", cause="a bound text holds NUL")
    word = {"date": "date ", "timestamp": "timestamptz "}.get(kind or "", "")
    return word + "'" + str(value).replace("'", "''") + "'"

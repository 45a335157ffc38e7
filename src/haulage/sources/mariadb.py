"""MariaDB and MySQL as a source: one read-only transaction with a consistent snapshot of its InnoDB tables.

Every value is as the server spells it, but for what it spells badly: a FLOAT loses digits in text, and so comes as a
DOUBLE whose digits are cut again to those of a FLOAT; a TIMESTAMP is an instant, and gets its zone; BIT is a number.
``mariadb_session.py`` holds the connection.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from haulage.core.errors import BuildFailed
from haulage.core.reading import Column, Reading, unique_names
from haulage.sources.blanking import conditions
from haulage.sources.grouping import SUMMED, Spoken, Sum, Value, grouped_reading, not_summed
from haulage.sources.mariadb_lines import (
    SHORT_BYTES,
    LineStream,
    instant_field,
    line_of,
    many_rows,
    plain_field,
    rows_loading,
    text_field,
)
from haulage.sources.mariadb_session import STATEMENT_SECONDS, Interrupted, Session, connect, driver, end_session, told
from haulage.sources.query import (
    WRAP,
    Name,
    bare,
    checked,
    chosen,
    columns_of,
    order_by,
    seen,
    unknown_names,
    unquoted,
    with_values,
)

if TYPE_CHECKING:
    from haulage.core.grouping import Question
    from haulage.core.source import Batches, Stream
    from haulage.sources.advice import Advice

__all__ = ["driver", "end_session", "open_source"]

BATCH_ROWS = 256
BATCH_BYTES = 1024 * 1024
LINE_BYTES = 8 * 1024 * 1024  # that a line of a stream may have: a few of them are held at once
UTF8 = ("utf8mb4", "utf8mb3", "utf8", "ascii")  # character sets whose bytes are those of UTF-8
_TYPES = {  # by the number of the protocol: ours, and the server's name
    0: ("decimal", "decimal"),
    1: ("integer", "tinyint"),
    2: ("integer", "smallint"),
    3: ("integer", "int"),
    4: ("float", "float"),
    5: ("float", "double"),
    7: ("timestamp", "timestamp"),
    8: ("integer", "bigint"),
    9: ("integer", "mediumint"),
    10: ("date", "date"),
    11: (None, "time"),
    12: ("timestamp", "datetime"),
    13: ("integer", "year"),
    14: ("date", "date"),
    16: ("integer", "bit"),
    245: ("json", "json"),
    246: ("decimal", "decimal"),
}
_FLOAT, _TIMESTAMP, _BIT, _VECTOR, _JSON = 4, 7, 16, 242, 245
_CAST = {_FLOAT: "cast({} as double)", _VECTOR: "cast({} as binary)"}  # which the driver would take for ASCII

Reader = Callable[[Any], Any]  # of one cell that is not NULL


def open_source(url: str, busy_seconds: float = 5, *, seconds: float | None = None, **_of_others: Any) -> MariadbSource:
    """A source from ``mariadb://user:password@host:port/database``; this server shows no name of ours."""
    return MariadbSource(url, busy_seconds, STATEMENT_SECONDS if seconds is None else seconds)


class MariadbSource:
    """One database; implements ``core.source.Source``."""

    def __init__(self, url: str, busy_seconds: float, seconds: float) -> None:
        """Remember where it is; nothing is connected."""
        self._url = url
        self._busy_seconds = busy_seconds
        self._seconds = seconds
        self._open: list[Session] = []

    @contextmanager
    def snapshot(self) -> Iterator[MariadbSnapshot]:
        """Open one read transaction; see ``core.source.Source``."""
        driver()
        with closing(connect(self._url)) as connection:
            session = Session(self._url, connection, self._busy_seconds, self._seconds)
            self._open.append(session)
            try:
                yield MariadbSnapshot(session)
            finally:
                self._open.remove(session)

    def check(self, reading: Reading) -> list[str]:
        """Prepare a query; every problem as a sentence for the operator."""
        return checked(self, reading)

    def cancel(self) -> None:
        """Kill the statements that run now; see ``core.source.Source``."""
        for session in self._open.copy():
            session.kill()


class Kind(NamedTuple):
    """One column's type: the protocol's number of it, how long and how exact it is, and whether it is bytes."""

    number: int
    length: int
    scale: int
    is_binary: bool

    @property
    def known(self) -> tuple[str | None, str | None]:
        """Our type and the server's name of it."""
        ours, theirs = _TYPES.get(self.number, ("bytes" if self.is_binary else None, None))
        if self.number == 246:  # its length counts the sign and the point too
            theirs = f"decimal({self.length - 1 - (self.scale > 0)},{self.scale})"
        return ours, theirs

    @property
    def is_made_here(self) -> bool:
        """Say whether a line that the server builds would not have what we write."""
        return self.number in (_FLOAT, _BIT) or self.known[0] == "bytes"

    @property
    def is_text(self) -> bool:
        """Say whether it may be empty, or need quotes."""
        return self.number not in _TYPES or self.number == _JSON

    def field(self, column: str) -> str:
        """The SQL of this column as a field of a line."""
        if self.is_text:
            return text_field(column)
        return instant_field(column) if self.number == _TIMESTAMP else plain_field(column)

    def whole(self, column: str) -> str:
        """The SQL of this column as a field of its own, with all that belongs to it."""
        return f"concat({column}, '+00')" if self.number == _TIMESTAMP else column

    def written(self, column: str) -> str:
        """The SQL of this column as it comes."""
        return _CAST.get(self.number, "{}").format(column)

    def reader(self, *, as_text: bool) -> Reader | None:
        """What makes a value of a cell; None where it stays as it comes."""
        ours, _ = self.known
        if self.number == _BIT:
            return (lambda cell: str(int.from_bytes(cell))) if as_text else int.from_bytes
        if self.number == _TIMESTAMP:
            return lambda cell: f"{cell}+00"
        if self.number == _FLOAT:
            return _single if as_text else lambda cell: float(_single(cell))
        if as_text:
            return None
        readers: dict[str, Reader] = {"integer": int, "float": float, "decimal": _decimal}
        return readers.get(ours or "")


WHOLE = Kind(8, 20, 0, is_binary=True)  # a whole number


class MariadbSnapshot:
    """One read transaction; implements ``core.source.Snapshot``."""

    has_sets = False

    def __init__(self, session: Session) -> None:
        """Take a session in a read transaction."""
        self._session = session
        self._replaced: Counter[str] = Counter()
        self._known: tuple[Reading, dict[Name, Kind]] | None = None
        self._bits: list[Name] = []  # of them, those with a condition
        self._counted = 0
        self.at: int | None = session.began
        self.session: str | None = f"{session.number} {session.host}"

    @property
    def notices(self) -> Mapping[str, int]:
        """What could not stand in lines that the server built, by code."""
        return self._replaced

    # -- what will be written --------------------------------------------------------------------

    def columns(self, reading: Reading) -> tuple[Column, ...]:
        """The columns that will be written, named by the query itself; duplicates become ``a_2``."""
        kinds = self._kinds(reading)
        return columns_of(reading, chosen(reading, list(kinds)), {name.key: kind.known for name, kind in kinds.items()})

    def _kinds(self, reading: Reading) -> dict[Name, Kind]:
        """Every column of the query and its type."""
        if self._known is None or self._known[0] != reading:
            sql = self._bound(reading)(bare(reading))
            try:
                described = self._session.described(f"select * from (\n{sql}\n) as {WRAP}", reading.binds)
            except BuildFailed as failed:
                if not (failed.cause or "").startswith("1060:"):
                    raise
                described = self._session.described(sql, reading.binds)  # two of one name have no place in a wrap
            own = [name for name, *_ in described]
            keys = unique_names(own)
            names = [Name(key, name, key) for key, name in zip(keys, own, strict=True)]
            kinds = dict(zip(names, [Kind(*entry[1:]) for entry in described], strict=True))
            self._bits = [name for name in conditions(reading, names) if kinds[name].number == _BIT]
            kinds |= dict.fromkeys(self._bits, WHOLE)  # as a condition leaves them
            self._known = reading, kinds
        return self._known[1]

    def _wrapped(self, reading: Reading, what: str, bound: Callable[[str], str] | None = None) -> str:
        names, bound = list(self._kinds(reading)), bound or self._bound(reading)
        sql, named = f"(\n{bound(bare(reading))}\n)", ""
        if all(name.own == name.inside for name in names):
            query = f"{sql} as {WRAP}"
        else:
            query, listed = WRAP, ", ".join(_quoted(name.inside) for name in names)
            named = f"with {WRAP} ({listed}) as {sql} "
        return f"{named}select {what} from {seen(reading, query, bound, names, _quoted, self._bits)}"

    def grouped(self, reading: Reading, question: Question) -> Reading:
        """The groups of a reading; see ``core.source.Snapshot``. Text is of one group with the same bytes only."""
        kinds = self._kinds(reading)
        texts = [name for name, kind in kinds.items() if kind.is_text and not kind.is_binary]
        as_utf8 = self._in_utf8(reading, texts)

        def key(name: Name) -> Value:
            column = f"{WRAP}.{_quoted(name.inside)}"
            if name not in texts:
                return Value(column)
            text = column if name in as_utf8 else f"convert({column} using utf8mb4)"
            return Value(f"cast({text} as binary)", "convert({} using utf8mb4)")

        def number(name: Name) -> Sum:
            kind, column = kinds[name], f"{WRAP}.{_quoted(name.inside)}"
            if kind.known[0] not in SUMMED:
                raise not_summed(name, kind.known[0] or kind.known[1])
            return Sum(f"{column} + 0" if kind.number == _BIT else kind.written(column))

        spoken = Spoken(lambda what: self._wrapped(reading, what, str), key, number, key)
        return grouped_reading(reading, list(kinds), question, spoken)

    def _in_utf8(self, reading: Reading, texts: Sequence[Name]) -> set[Name]:
        """Columns whose bytes are UTF-8 as they are: to convert them takes a sixth of the time of a grouping."""
        if not texts:
            return set()
        asked = ", ".join(f"charset({WRAP}.{_quoted(name.inside)})" for name in texts)
        nothing = f"select * from (\n{self._wrapped(reading, '*')}\n) as {WRAP} limit 0"
        sql = f"select {asked} from (select 1 as one) as haulage_one left join (\n{nothing}\n) as {WRAP} on true"
        (found,) = self._session.run(sql, reading.binds)
        return {name for name, charset in zip(texts, found, strict=True) if charset in UTF8}

    def _selected(self, reading: Reading) -> tuple[str, list[Kind]]:
        """The query of the rows, and the kinds of its columns."""
        kinds = self._kinds(reading)
        shown = chosen(reading, list(kinds))
        written = ", ".join(kinds[name].written(f"{WRAP}.{_quoted(name.inside)}") for name in shown)
        order = order_by(reading, list(kinds), f"{WRAP}.", _quoted)
        return self._wrapped(reading, written) + order, [kinds[name] for name in shown]

    def problems(self, reading: Reading) -> list[str]:
        """What is wrong with a query, or will be, as sentences."""
        try:
            self._session.described(self._selected(reading)[0], reading.binds)
        except BuildFailed as failed:
            return [f"the query fails: {failed.cause or failed.detail}"]
        return unknown_names(reading, list(self._kinds(reading)))

    def advice(self, reading: Reading) -> list[Advice]:
        """What indexes a query lacks; see ``advice.Advises``."""
        from haulage.sources.advice import advised
        from haulage.sources.mariadb_advice import MariadbFacts

        sql, _ = self._selected(reading)
        facts = MariadbFacts(self._session, sql, reading.binds)
        return advised(reading, list(self._kinds(reading)), facts, _quoted)

    # -- counting and reading --------------------------------------------------------------------

    def count(
        self,
        reading: Reading,
        seconds: float,
        sort_bytes: int | None = None,
        given_up: Callable[[], bool] | None = None,
    ) -> int | None:
        """Rows that will be written, or None when counting took longer than ``seconds`` or was given up."""
        meanwhile = rows_loading() if given_up is None else nullcontext()  # At a door no rows are read.
        try:
            with meanwhile:
                ((count,),) = self._session.run(self._wrapped(reading, "count(*)"), reading.binds, seconds, given_up)
        except Interrupted:
            return None
        self._counted = int(count)
        return self._counted

    def batches(self, reading: Reading, sort_bytes: int | None = None) -> Batches:
        """The rows, in batches bounded by number and by size. Sorting is in the space of the server."""
        sql, kinds = self._selected(reading)
        readers = [kind.reader(as_text=reading.as_text) for kind in kinds]
        with self._session.running(sql, reading.binds) as cursor:
            batch: list[tuple[Any, ...]] = []
            size = 0
            while True:
                with told(reading.binds):
                    row = cursor.fetchone()
                if row is None:
                    break
                batch.append(row)
                size += sum([len(cell) for cell in row if cell is not None])
                if size >= BATCH_BYTES or len(batch) == BATCH_ROWS:
                    yield _read(batch, readers)
                    batch, size = [], 0
            if batch:
                yield _read(batch, readers)

    def stream(self, reading: Reading, profile: str) -> Stream | None:
        """The rows as lines that the server builds, or we of many rows; None for another profile, and where it cannot.

        It has neither the digits of a FLOAT nor a base64 of bytes that is ours, and a line that is longer than its
        ``max_allowed_packet`` it makes NULL.
        """
        kinds = self._kinds(reading)
        shown = [(kinds[name], f"{WRAP}.{_quoted(name.inside)}") for name in chosen(reading, list(kinds))]
        if profile != "csv" or any(kind.is_made_here for kind, _ in shown):
            return None
        ((most,),) = self._session.run("select @@max_allowed_packet")
        longest = sum(kind.length + len(" +00,") for kind, _ in shown)
        if longest >= min(int(most), LINE_BYTES):
            return None
        short = longest < SHORT_BYTES
        texts = [kind.is_text for kind, _ in shown]
        order = order_by(reading, list(kinds), f"{WRAP}.", _quoted)
        if short and len(texts) > 1 and (rows := many_rows(self._counted)) is not None:
            row = rows.row_of([kind.whole(column) for kind, column in shown])
            sql = self._wrapped(reading, row) + order
            return cast("Stream", rows.RowStream(self._session, sql, reading.binds, len(texts), self._replaced))
        line = line_of([kind.field(column) for kind, column in shown], short=short)
        sql = self._wrapped(reading, line) + order
        return LineStream(self._session, sql, reading.binds, texts, self._replaced, short=short)

    def _bound(self, reading: Reading) -> Callable[[str], str]:
        return with_values(reading, self._literal)

    def _literal(self, value: Any, kind: str | None) -> str:
        """A bound value as SQL; an instant in UTC, which is the zone of the session."""
        if (plain := unquoted(int(value) if isinstance(value, bool) else value, kind)) is not None:
            return plain
        if kind == "timestamp":
            from datetime import UTC, datetime

            moment = datetime.fromisoformat(value).astimezone(UTC).replace(tzinfo=None)
            return f"timestamp({self._session.literal(moment.isoformat(' '))})"
        text = self._session.literal(str(value))
        return f"date({text})" if kind == "date" else text


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _read(rows: list[tuple[Any, ...]], readers: Sequence[Reader | None]) -> Sequence[tuple[Any, ...]]:
    if not any(readers):
        return rows
    columns = [
        cells if read is None else [None if cell is None else read(cell) for cell in cells]
        for read, cells in zip(readers, zip(*rows, strict=True), strict=True)
    ]
    return list(zip(*columns, strict=True))


def _decimal(text: str) -> Any:
    from decimal import Decimal  # takes 2 ms to load

    return Decimal(text)


def _single(text: str) -> str:
    """The fewest digits that are this FLOAT and no other; it came as a DOUBLE, with digits that mean nothing."""
    wanted = struct.pack("f", float(text))
    for digits in range(6, 10):
        found = f"{float(text):.{digits}g}"
        if struct.pack("f", float(found)) == wanted:
            return found
    return text

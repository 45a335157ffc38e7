"""PostgreSQL as a source: one read-only REPEATABLE READ transaction for count and rows.

Rows come by COPY: the server itself makes text of every value, by the type's own output function, which is the
truth of it; one row at a time is held here, whatever its size; its plan may be a parallel one; and the command's
tag counts exactly. As FORMAT csv the bytes go into a file as they are (``stream``); as FORMAT text they are split
into rows (``postgresql_rows.py``). Both read the same columns, so both write the same.

Values are put into the SQL as literals that the server's own library quotes, since a COPY takes none beside it.
``postgresql_session.py`` holds the connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from haulage.core.errors import BuildFailed
from haulage.core.reading import Column, Reading, unique_names
from haulage.sources.grouping import Spoken, Sum, Value, grouped_reading
from haulage.sources.postgresql_asked import Counting, Interrupted
from haulage.sources.postgresql_grouping import key_of, ordered, summed
from haulage.sources.postgresql_parallel import ALONE, Rows, asks_the_clock, in_order, parts_of, plan_of
from haulage.sources.postgresql_rows import Kind, batches_of, kind_of
from haulage.sources.postgresql_session import STATEMENT_SECONDS, Session, connect, driver, end_session
from haulage.sources.postgresql_text import copied_as, copied_name
from haulage.sources.query import (
    WRAP,
    Name,
    bare,
    checked,
    chosen,
    columns_of,
    order_by,
    order_term,
    quoted,
    unknown_names,
    unquoted,
    with_values,
    wrapped,
)

if TYPE_CHECKING:
    from haulage.core.grouping import Question
    from haulage.core.source import Batches
    from haulage.sources.advice import Advice

__all__ = ["driver", "end_session", "open_source"]

COUNTED_FIRST = 100_000  # rows that the server expects; more are counted beside, where they can be
Further: TypeAlias = tuple[Callable[[], Session], Callable[[], None]]


def open_source(
    url: str,
    busy_seconds: float = 5,
    *,
    seconds: float | None = None,
    name: str = "haulage",
    connections: int = 1,
    readers: int | None = None,
) -> PostgresqlSource:
    """A source from ``postgresql://user:password@host:port/database``, or with what else libpq takes in a URL."""
    seconds = STATEMENT_SECONDS if seconds is None else seconds
    return PostgresqlSource(url, busy_seconds, seconds, name, connections, readers or connections)


class PostgresqlSource:
    """One PostgreSQL database; implements ``core.source.Source``."""

    def __init__(
        self, url: str, busy_seconds: float, seconds: float, name: str, connections: int, readers: int
    ) -> None:
        """Remember where it is; nothing is connected.

        Args:
            url: where it is.
            busy_seconds: how long a lock is waited for.
            seconds: how long one statement may take.
            name: what the server shows of us.
            connections: at most, in all.
            readers: over how many of them rows are read, where that can be.
        """
        self._url = url
        self._busy_seconds = busy_seconds
        self._seconds = seconds
        self._name = name[:63]  # as the server would cut it
        self._connections = connections
        self._readers = min(readers, connections)
        self._open: list[Session] = []

    @contextmanager
    def snapshot(self) -> Iterator[PostgresqlSnapshot]:
        """Open one read transaction, and others that see the same; see ``core.source.Source``."""
        driver()
        with ExitStack() as entered:
            sessions = [self._first(entered)]
            try:
                while len(sessions) < self._readers:
                    sessions.append(self._enter(entered, joins=sessions[0]))
            except BuildFailed:  # One connection will do: the server, or a proxy, may have no other to give.
                del sessions[1:]
            further = None
            if len(sessions) < self._connections and sessions[0].shared:
                own = entered.enter_context(ExitStack())
                further = partial(self._enter, own, joins=sessions[0]), own.close
            snapshot = PostgresqlSnapshot(sessions, self._readers, further)
            try:
                yield snapshot
            finally:
                snapshot.close()

    def _first(self, entered: ExitStack) -> Session:
        """The session whose snapshot the others see; alone where it may not be shared."""
        if self._connections > 1:
            try:
                return self._enter(entered, shares=True)
            except BuildFailed as failed:
                if failed.code != "source_failed":
                    raise
        return self._enter(entered)

    def _enter(self, entered: ExitStack, **how: Any) -> Session:
        with ExitStack() as connected:
            connection = connected.enter_context(closing(connect(self._url, self._name)))
            session = Session(connection, self._busy_seconds, self._seconds, **how)
            self._open.append(session)
            connected.callback(self._open.remove, session)
            entered.push(connected.pop_all())
        return session

    def check(self, reading: Reading) -> list[str]:
        """Prepare a query; every problem as a sentence for the operator."""
        return checked(self, reading)

    def cancel(self) -> None:
        """Cancel the statements that run now; see ``core.source.Source``."""
        for session in self._open.copy():
            session.cancel()


class PostgresqlSnapshot:
    """One read transaction; implements ``core.source.Snapshot``."""

    has_sets = True

    def __init__(self, sessions: list[Session], wanted: int, further: Further | None) -> None:
        """Take the sessions that see it, of the so many that were wanted; the first does all but reading rows.

        Args:
            further: enters one more, that counts, and gives it back; None where there may be none.
        """
        session = sessions[0]
        self._session = session
        self._sessions = sessions
        self._wanted = wanted
        self._further = further
        self._counting: Counting | None = None
        self._known: tuple[Reading, dict[Name, Kind]] | None = None
        self._replaced: Counter[str] = Counter()
        self.at: int | None = session.began
        self.session: str | None = None
        self._say_sessions(sessions)

    def _say_sessions(self, sessions: Iterable[Session]) -> None:
        self.session = f"{','.join(str(each.pid) for each in sessions)} {self._session.name}"

    def close(self) -> None:
        """End what is still under way."""
        if self._counting is not None:
            self._counting.close()

    @property
    def notices(self) -> Mapping[str, int]:
        """Texts of a database without an encoding that were mended; and whether one connection had to do."""
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
            self._session.enter(reading.session)
            sql = f"select * from (\n{self._bound(reading)(bare(reading))}\n) as {WRAP} limit 0"
            found = self._session.run(sql, reading.binds)
            own = [(found.fname(at) or b"").decode(errors="replace") for at in range(found.nfields)]
            kinds = self._types([(found.ftype(at), found.fmod(at)) for at in range(found.nfields)])
            keys = unique_names(own)
            names = [Name(key, name, key) for key, name in zip(keys, own, strict=True)]
            self._known = reading, dict(zip(names, kinds, strict=True))
        return self._known[1]

    def _types(self, types: list[tuple[int, int]]) -> list[Kind]:
        listed = ", ".join(f"({place}, {oid}::oid, {mod})" for place, (oid, mod) in enumerate(types))
        if not listed:
            return []
        found = self._session.run(
            "select asked.oid, pg_catalog.format_type(asked.oid, asked.mod), known.typcategory"
            f" from (values {listed}) as asked (place, oid, mod)"
            " left join pg_catalog.pg_type as known on known.oid = asked.oid order by asked.place"
        )
        rows = [[(found.get_value(row, at) or b"").decode() for at in range(3)] for row in range(found.ntuples)]
        return [kind_of(int(oid), native, category) for oid, native, category in rows]

    def _wrapped(self, reading: Reading, what: str, bound: Callable[[str], str] | None = None) -> str:
        kinds, wrap = self._kinds(reading), WRAP
        if any(name.own != name.inside for name in kinds):
            wrap += f" ({', '.join(quoted(name.inside) for name in kinds)})"
        return wrapped(reading, what, bound or self._bound(reading), list(kinds), wrap)

    def grouped(self, reading: Reading, question: Question) -> Reading:
        """The groups of a reading; see ``core.source.Snapshot``. Sums of whole numbers and decimals are numeric."""
        kinds = self._kinds(reading)

        def value(name: Name) -> tuple[Kind, str, str | None]:
            declared = reading.declared.get(name.key, ("", None))[1]
            return kinds[name], f"{WRAP}.{quoted(name.inside)}", declared

        spoken = Spoken(
            rows=lambda what: self._wrapped(reading, what, str),
            key=lambda name: Value(key_of(*value(name))),
            number=lambda name: Sum(summed(name, *value(name))),
            ordered=lambda name: ordered(*value(name)),
        )
        return grouped_reading(reading, list(kinds), question, spoken)

    def _selected(self, reading: Reading) -> tuple[Rows, list[Kind]]:
        """The query of the rows, and the kinds of its columns."""
        kinds = self._kinds(reading)
        shown = chosen(reading, list(kinds))
        declared = {name.key: reading.declared.get(name.key, ("", None))[1] for name in shown}
        written = [
            f"{kinds[name].written(f'{WRAP}.{quoted(name.inside)}', declared[name.key])} as {copied_name(place)}"
            for place, name in enumerate(shown)
        ]
        # A bare name in the order would be that of a column as it is written, as text, and past every index.
        order, leading, look = order_by(reading, list(kinds), f"{WRAP}."), None, ""
        if reading.order:
            name, direction = order_term(reading.order[0], list(kinds))
            leading = f"{WRAP}.{quoted(name.inside)}", direction
            look = self._wrapped(reading, leading[0]) + "\nlimit 0"
        select = self._wrapped(reading, ", ".join(written))
        has_condition = bool(reading.visible) and not reading.blanked  # that is further inside
        return Rows(select, has_condition, order, leading, look), [kinds[name] for name in shown]

    def problems(self, reading: Reading) -> list[str]:
        """What is wrong with a query, or will be, as sentences."""
        try:
            rows, _ = self._selected(reading)
            self._session.run(f"explain {rows.whole}", reading.binds)
        except BuildFailed as failed:
            return [f"the query fails: {failed.cause or failed.detail}"]
        return unknown_names(reading, list(self._kinds(reading)))

    def advice(self, reading: Reading) -> list[Advice]:
        """What indexes a query lacks; see ``advice.Advises``."""
        from haulage.sources.advice import advised
        from haulage.sources.postgresql_advice import PostgresqlFacts

        rows, _ = self._selected(reading)
        facts = PostgresqlFacts(self._session, rows.whole, reading.binds)
        return advised(reading, list(self._kinds(reading)), facts, quoted)

    # -- counting and reading --------------------------------------------------------------------

    def count(
        self,
        reading: Reading,
        seconds: float,
        sort_bytes: int | None = None,
        given_up: Callable[[], bool] | None = None,
    ) -> int | None:
        """Rows that will be written, or None when counting took longer than ``seconds`` or was given up."""
        try:
            self._session.enter(reading.session)
            found = self._session.run(self._wrapped(reading, "count(*)"), reading.binds, seconds, given_up)
        except Interrupted:
            return None
        return int(found.get_value(0, 0) or 0)

    def counting(self, reading: Reading, seconds: float) -> Counting | None:
        """Count beside the reading of the rows, over a further connection or the last that would read them.

        Few rows are counted first: a connection takes longer to come.
        """
        if self._further is None and len(self._sessions) == 1:
            return None
        try:
            self._session.enter(reading.session)
            plan = plan_of(self._session, self._wrapped(reading, "*"))
            if plan["Plan Rows"] < COUNTED_FIRST or asks_the_clock(plan):
                return None
            enter, over = self._further or (self._sessions.pop, None)
            session = enter()
            self._say_sessions([*self._sessions, session])
            session.enter(reading.session)
        except BuildFailed:  # What is wrong with the query, to count it first will say.
            return None
        again = partial(self.count, reading, seconds)
        sql = self._wrapped(reading, "count(*)")
        self._counting = Counting(session, sql, reading.binds, seconds, over=over, again=again)
        return self._counting

    def batches(self, reading: Reading, sort_bytes: int | None = None) -> Batches:
        """The rows, in batches bounded by number and by size. Sorting is in the space of the server."""
        rows, kinds = self._selected(reading)
        with closing(self._copied(reading, rows, "")) as pieces:
            yield from batches_of(pieces, [kind.reader(as_text=reading.as_text) for kind in kinds], self._replaced)

    def _copied(self, reading: Reading, rows: Rows, how: str) -> Generator[tuple[int, bytes], None, int]:
        """What COPY sends of the rows, over several connections where that can be."""
        parts = self._parts(reading, rows) if self._wanted > 1 else [rows.whole]
        self._session.enter(reading.session)
        statements = [f"copy (\n{part}\n) to stdout{how}" for part in parts]
        if len(statements) == 1:
            return self._session.copy(statements[0], reading.binds)
        return in_order(self._sessions, statements, reading.binds, self._freed)

    def _freed(self) -> list[Session]:
        """The session that has counted, once, if it is to read rows."""
        session = None if self._counting is None else self._counting.freed()
        if session is None:
            return []
        self._counting = None
        with suppress(BuildFailed):
            session.run(ALONE)
            return [session]
        return []

    def _parts(self, reading: Reading, rows: Rows) -> list[str]:
        readers = len(self._sessions) + (self._counting is not None and self._further is None)
        found = parts_of(self._sessions, rows, reading.session, readers) if readers > 1 else None
        if found is None:
            self._replaced["parallel_not_used"] += 1
        if found is None or len(found) == 1:
            self._session.back()  # to a plan that the server itself may run in parallel
        return found or [rows.whole]

    def stream(self, reading: Reading, profile: str) -> CopyStream | None:
        """The rows as text that the server makes (``postgresql_text.py``); None where it would write otherwise.

        A database without an encoding may hold what is no text.
        """
        if self._session.encoding == "SQL_ASCII":
            return None
        rows, kinds = self._selected(reading)
        declared = [kind for _, kind in reading.declared.values()]
        how = copied_as(profile, kinds, [each for each in declared if each is not None])
        if how is None:
            return None
        return CopyStream(lambda: self._copied(reading, rows, f" ({how})"))

    def _bound(self, reading: Reading) -> Callable[[str], str]:
        return with_values(reading, self._literal)

    def _literal(self, value: Any, kind: str | None) -> str:
        """A bound value as SQL. Text has no type of its own, so that it is compared with whatever it stands beside."""
        if (plain := unquoted(value, kind)) is not None:
            return plain
        cast = {"date": "::date", "timestamp": "::timestamptz"}.get(kind or "", "")
        return self._session.literal(str(value)) + cast


class CopyStream:
    """CSV as the server makes it; implements ``core.source.Stream``."""

    def __init__(self, copied: Callable[[], Generator[tuple[int, bytes], None, int]]) -> None:
        """Remember what copies."""
        self._copied = copied
        self.rows = 0

    def chunks(self) -> Generator[bytes, None, None]:
        """Whole rows, in bounded pieces."""
        with closing(self._copied()) as pieces:
            while True:
                try:
                    held, piece = next(pieces)
                except StopIteration as end:
                    # What the command's tag says; lines would be more where text has line ends.
                    self.rows = end.value
                    break
                self.rows += held
                yield piece
        yield b""

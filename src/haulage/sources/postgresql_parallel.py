"""One query over several connections that see one snapshot: split into parts, read at once, given in their order.

    parts_of   the statements that together are the query, or None where that cannot be shown
    in_order   their rows, one part after the other, while the other connections read ahead

Where the rows have an order, a part is a range of the leading column's values, and its bounds come from a sample of
that column. Where they have none and the query reads one table from its start to its end, a part is a range of the
table's pages. Neither changes a word of the operator's query: the one is a condition on its wrap, the other puts the
part of the table in the place of the table, as a CTE of the same name. What the bounds are decides how even the parts
are and never which rows they hold: the first has no lower bound, the last no upper one, and NULLs are a part too.

Whether a query can be split is read off the server's plans. A plan that only reads, joins and sorts gives each row
whether or not others are wanted; one that adds up, numbers, limits or removes duplicates does not. The parts together
may cost little more than the whole, or each of them would run all of it. Of pages, the plan must be the scan of these
pages alone, with the very columns and conditions of the plan of the whole: so a view that has the name of its table
cannot be passed by.
"""

from __future__ import annotations

import json
import math
import re
import select
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from haulage.core.errors import BuildFailed
from haulage.sources.postgresql_copy import FEW_BYTES, LOOK_SECONDS, MORE_SECONDS
from haulage.sources.query import quoted

if TYPE_CHECKING:
    from haulage.sources.postgresql_copy import Copying
    from haulage.sources.postgresql_session import Session

MIB = 1024 * 1024
PART_BYTES = (
    16 * MIB
)  # of all the parts that are read ahead, as the table keeps them; each statement costs the server ms
PARTS_MAX = 4_096
AHEAD_BYTES = 24 * MIB  # what is read ahead of the part that is being given: so many parts, and the next meanwhile
GIVEN_BYTES = MIB // 2  # of it at once, before it is seen whether a connection has ended its part or has much to give
COST_MAX = 1.5  # of all parts, in whole queries
LOOKED_AT = 8  # plans of parts
SAMPLE_PAGES = 1_000  # of the table, and four for each part
SAMPLE_SECONDS = 5
ALONE = "select pg_catalog.set_config('max_parallel_workers_per_gather', '0', true)"
ROW_BY_ROW = {
    *("Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Heap Scan", "Bitmap Index Scan", "BitmapAnd", "BitmapOr"),
    *("Nested Loop", "Hash Join", "Merge Join", "Hash", "Materialize", "Memoize"),
    *("Append", "Merge Append", "Sort", "Incremental Sort", "Result"),
}  # fmt: skip

CLOCK = re.compile(
    r"\b(now|(transaction|statement)_timestamp)\(\)|\b(CURRENT_(DATE|TIME)|LOCALTIME)", re.IGNORECASE
).search
Plan = Mapping[str, Any]


class Rows(NamedTuple):
    """The query of the rows, in the pieces that a part changes.

    Args:
        select: the wrapped query with its condition, if it has one; ``order`` comes after it.
        leading: the first column of the order as the wrap has it, and its direction; None without an order.
        look: a query that gives this column and no row.
    """

    select: str
    has_condition: bool
    order: str
    leading: tuple[str, str] | None = None
    look: str = ""

    @property
    def whole(self) -> str:
        """All of it."""
        return self.select + self.order

    def within(self, condition: str) -> str:
        """The rows for which this is true."""
        joint = " and " if self.has_condition else "\nwhere "
        return f"{self.select}{joint}({condition}){self.order}"


def parts_of(sessions: Sequence[Session], rows: Rows, settings: Mapping[str, str], readers: int) -> list[str] | None:
    """The statements of a query, in the order of their rows: one for few rows, None where it cannot be split.

    Afterwards each session holds the locks of its tables, so that nobody who waits for one can come between.
    """
    few = False
    with suppress(BuildFailed):  # Where the query itself is at fault, one connection will say so.
        for session in sessions:
            session.enter(settings)
            session.run(ALONE)
        whole = plan_of(sessions[0], rows.whole)
        few = _size(whole) < PART_BYTES
        part_bytes = PART_BYTES / max(1, readers - 1)  # else some would wait for room
        splits = _by_pages if rows.leading is None else _by_values
        parts = None if asks_the_clock(whole) else splits(sessions[0], rows, whole, part_bytes)
        if parts is not None:
            for session in sessions[1:]:
                plan_of(session, parts[0])
            return parts
    return [rows.whole] if few else None  # A session that has failed has forgotten its settings, too.


def plan_of(session: Session, sql: str) -> Plan:
    """What the server would do."""
    told = session.run(f"explain (verbose, format json)\n{sql}").get_value(0, 0)
    plan: Plan = json.loads(told or b"")[0]["Plan"]
    return plan


def asks_the_clock(plan: Plan) -> bool:
    """Whether rows depend on when the transaction began: each connection's began at another instant."""
    return CLOCK(json.dumps(plan)) is not None


def _size(plan: Plan) -> float:
    """Bytes of the rows, as far as the server knows."""
    size: float = plan["Plan Rows"] * plan["Plan Width"]
    return size


def _nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)


# -- ranges of pages -------------------------------------------------------------------------------------


def _by_pages(session: Session, rows: Rows, whole: Plan, part_bytes: float) -> list[str] | None:
    if whole["Node Type"] != "Seq Scan":
        return None
    schema, name, alias = (quoted(whole[each]) for each in ("Schema", "Relation Name", "Alias"))
    found = session.run(f"select {_measures(session.literal(f'{schema}.{name}') + '::pg_catalog.regclass')}")
    pages, page_bytes = (float(found.get_value(0, at) or 0) for at in (0, 1))
    bounds = range(0, math.ceil(pages), max(1, int(part_bytes / page_bytes)))[1:]
    if not bounds:
        return [rows.whole]

    def part(condition: str) -> str:
        return f"with {name} as (select * from {schema}.{name} as {alias} where {condition})\n{rows.whole}"

    parts = [part(condition) for condition in _ranges("ctid", [f"'({page},0)'::tid" for page in bounds])]
    plan = plan_of(session, parts[len(parts) // 2])
    same = all(plan.get(each) == whole.get(each) for each in ("Schema", "Relation Name", "Output", "Filter"))
    return parts if same and plan["Node Type"] == "Tid Range Scan" and "Plans" not in plan else None


def _measures(table: str) -> str:
    """How many pages a table has, and bytes for each of them, with those of its long values; of all partitions."""
    tree = "(select sum({}) from pg_catalog.pg_partition_tree({}) where isleaf)"
    pages, size = (
        f"coalesce({tree.format(f'pg_catalog.{each}(relid)', table)}, pg_catalog.{each}({table}))"
        for each in ("pg_relation_size", "pg_table_size")
    )
    in_pages = f"({pages} / pg_catalog.current_setting('block_size')::numeric)"
    return f"{in_pages}, greatest(1, {size} / greatest(1, {in_pages}))"


def _ranges(column: str, bounds: Sequence[str]) -> list[str]:
    """Conditions that hold for a value one at a time, in rising order."""
    low = ["", *(f"{column} >= {bound}" for bound in bounds)]
    high = [*(f"{column} < {bound}" for bound in bounds), ""]
    return [" and ".join(filter(None, pair)) or "true" for pair in zip(low, high, strict=True)]


# -- ranges of values ------------------------------------------------------------------------------------


def _by_values(session: Session, rows: Rows, whole: Plan, part_bytes: float) -> list[str] | None:
    assert rows.leading is not None
    column, direction = rows.leading
    if not _row_by_row(whole):
        return None
    leads = _leads(session, rows.look)
    if leads is None:
        return None
    wanted = min(PARTS_MAX, math.ceil(_size(whole) * leads.long / part_bytes))
    bounds = _bounds(session, leads, wanted) if wanted > 1 else []
    if not bounds:
        return [rows.whole] if wanted <= 1 else None
    words = direction.lower().split()
    ranges, empty = _ranges(column, bounds), f"{column} is null"
    if "desc" in words:
        ranges.reverse()
    first = "first" in words or ("desc" in words and "last" not in words)
    parts = [rows.within(each) for each in ([empty, *ranges] if first else [*ranges, empty])]
    looked_at = parts[:: math.ceil(len(parts) / LOOKED_AT)]
    plans = [plan_of(session, each) for each in looked_at]
    cost = sum(plan["Total Cost"] for plan in plans) / len(plans) * len(parts)
    return parts if all(map(_row_by_row, plans)) and cost <= COST_MAX * whole["Total Cost"] else None


def _row_by_row(plan: Plan) -> bool:
    return all(node["Node Type"] in ROW_BY_ROW for node in _nodes(plan))


class _Column(NamedTuple):
    """A column of a table, as SQL writes it; the table's pages, and how many times larger long values make it."""

    table: str
    name: str
    type: str
    pages: float
    long: float


def _leads(session: Session, look: str) -> _Column | None:
    """The column of a table that a column of the query is; None where it is none."""
    found = session.run(look)
    table, number, kind, measure = (each(0) for each in (found.ftable, found.ftablecol, found.ftype, found.fmod))
    known = session.run(
        "select c.oid::pg_catalog.regclass, pg_catalog.quote_ident(a.attname),"
        f" pg_catalog.format_type({kind}, {measure}), {_measures('c.oid')}, pg_catalog.current_setting('block_size')"
        " from pg_catalog.pg_class as c join pg_catalog.pg_attribute as a on a.attrelid = c.oid"
        f" where c.oid = {table} and a.attnum = {number} and c.relkind in ('r', 'm', 'p')"
    )
    if not known.ntuples:
        return None
    name, column, type_, *numbers = ((known.get_value(0, at) or b"").decode() for at in range(6))
    pages, page_bytes, block_bytes = map(float, numbers)
    return _Column(name, column, type_, pages, max(1.0, page_bytes / block_bytes))


def _bounds(session: Session, column: _Column, parts: int) -> list[str]:
    """Values that cut a column into about even parts, as SQL, by a sample of its table."""
    share = min(100.0, 100 * max(SAMPLE_PAGES, 4 * parts) / max(1.0, column.pages))
    cuts = ", ".join(f"{cut / parts:.6f}" for cut in range(1, parts))
    cut = f"pg_catalog.unnest(percentile_disc(array[{cuts}]) within group (order by {column.name}))"
    sample = f"select distinct {cut} as cut from {column.table} tablesample system ({share:.6f}) repeatable (1)"
    sql = f"select cut::text from ({sample}) as s where cut is not null order by s.cut"
    found = session.run(sql, seconds=SAMPLE_SECONDS)
    texts = ((found.get_value(row, 0) or b"").decode() for row in range(found.ntuples))
    return [f"{session.literal(text)}::{column.type}" for text in texts]


# -- reading them ----------------------------------------------------------------------------------------


class _Part:
    """A part that is being read, or has been and waits for its turn."""

    def __init__(self, session: Session, copying: Copying) -> None:
        self.session = session
        self.copying = copying
        self.pieces: deque[tuple[int, bytes]] = deque()

    def wanted(self, first: _Part, ahead: int) -> bool:
        """Whether more of it is to be taken."""
        return self.copying.count is None and (ahead < AHEAD_BYTES or (self is first and not self.pieces))


def in_order(
    sessions: Sequence[Session],
    statements: Iterable[str],
    binds: Mapping[str, Any],
    joining: Callable[[], Sequence[Session]] = tuple,
) -> Generator[tuple[int, bytes], None, int]:
    """What these COPYs send, as ``Session.copy`` gives it; their counts together come at the end.

    Those that are ``joining`` have done what they had to do before.
    One thread reads them all: the servers' processes do the work, and what they have sent waits in the sockets.
    """
    free, waiting, parts = list(sessions), deque(statements), deque[_Part]()
    ahead = count = 0
    try:
        while waiting or parts:
            free += joining()
            while free and waiting and ahead < AHEAD_BYTES:
                session = free.pop()
                parts.append(_Part(session, session.copying(waiting.popleft(), binds)))
            first, given = parts[0], 0
            while first.pieces and given < GIVEN_BYTES:
                held, piece = first.pieces.popleft()
                ahead -= len(piece)
                given += len(piece)
                yield held, piece
            if first.copying.count is not None and not first.pieces:
                count += first.copying.count
                parts.popleft()
                continue
            came, ended = given, False
            wanted = [part for part in parts if part.wanted(first, ahead)]
            for part in wanted:
                held, piece = part.copying.take(wait=False)
                if held:
                    part.pieces.append((held, piece))
                    ahead += len(piece)
                    came += len(piece)
                if part.copying.count is not None:
                    free.append(part.session)
                    ended = True
            if came < FEW_BYTES and not ended:
                _wait_for(part.session for part in wanted)
    finally:
        for part in parts:
            part.copying.close()
    return count


def _wait_for(sessions: Iterable[Session]) -> None:
    ready = select.poll()
    for session in sessions:
        ready.register(session.descriptor, select.POLLIN)
    if ready.poll(LOOK_SECONDS * 1000):
        time.sleep(MORE_SECONDS)

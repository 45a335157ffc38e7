"""Which indexes a query lacks: advice to review, with its reason. Nothing is read, made or changed.

A statement is given where the plan reads every row of a large table, or sorts all of it, and where neither an index
that is there nor the start of one would serve. Wrong advice is worse than none: what no index serves is told without a
statement, and where the database can be asked (SQLite), an index that its plan would not use is not advised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from haulage.core.reading import Reading
from haulage.sources.conditions import Condition, Origin, Query, Unread
from haulage.sources.indexes import Facts, Field, Index, Table, Term
from haulage.sources.query import WRAP, Name, bare, order_term

if TYPE_CHECKING:
    from haulage.core.source import Source

NO_INDEXES = (
    "no index is advised: DuckDB keeps the least and the greatest value of each part of a column (zone maps),"
    " and so passes over most of what a condition leaves out"
)
UNORDERED = "no index is advised for its order: it is not that of columns of one table which is read by itself"
ROWS_MIN = 5_000  # of a table: a smaller one is read as fast without an index
DISTINCT_MIN = 4  # values of a column: with fewer an index finds too much to be used
SETS = {"equal", "same", "among"}  # conditions after which other columns may follow in an index


class Advice(NamedTuple):
    """One thing that a query lacks.

    Args:
        table: as it is shown; None where it is about the query.
        rows: of that table, as far as the database knows.
        reason: what is so.
        statement: what would change it, to be reviewed; None where nothing would, or nobody knows.
    """

    table: str | None
    rows: int | None
    reason: str
    statement: str | None = None


class Sorted(NamedTuple):
    """One term of the order: where it comes from, and its direction."""

    origin: Origin
    descending: bool
    nulls: str


@runtime_checkable
class Advises(Protocol):
    """A snapshot that knows the indexes of its source."""

    def advice(self, reading: Reading) -> list[Advice]:
        """What a query lacks.

        Raises:
            BuildFailed: the source does not answer what it is asked.
        """


def advice_of(source: Source, reading: Reading) -> list[Advice]:
    """What a query on a source lacks.

    Raises:
        BuildFailed: the source cannot be read, or does not answer.
    """
    with source.snapshot() as snapshot:
        if isinstance(snapshot, Advises):
            return snapshot.advice(reading)
    return [Advice(None, None, NO_INDEXES)]


def advised(reading: Reading, names: Sequence[Name], facts: Facts, quoted: Callable[[str], str]) -> list[Advice]:
    """What a query lacks, as far as it is understood."""
    columns = ", ".join(quoted(name.inside) for name in names)
    sql = f"select * from (\n{bare(reading)}\n) as {WRAP} ({columns})"
    if reading.visible:
        sql += f"\nwhere (\n{reading.visible}\n)"
    try:
        query = Query(sql, facts.dialect, facts.table, facts.fold)
        conditions, outputs = query.conditions(), query.outputs()
    except Unread as unread:
        return [Advice(None, None, f"passed over: {unread}")]
    found = [Advice(None, None, f"{name} is passed over: it is no table that this user sees") for name in query.missing]
    read = [table for table, aliases in query.tables() if facts.reads_all(table, aliases)]
    found += [Advice(table.name, None, "nobody knows its size: run ANALYZE") for table in read if table.rows is None]
    large = {table.name for table in read if (table.rows or 0) >= ROWS_MIN}
    order = _order(reading, names, outputs)
    origins = [*(each.origin for each in conditions), *(each.origin for each in order)]
    uses = {origin.use: origin.table for origin in origins if origin is not None}
    for use, table in uses.items():
        if table.name in large:
            own = [each for each in conditions if each.origin is not None and each.origin.use == use]
            whole = order if order and all(each.origin.use == use for each in order) else []
            found += _of_table(table, own, whole, reading, facts)
    if large:
        found += [Advice(None, None, _passed(each, each.why)) for each in conditions if each.origin is None]
        if reading.order and not order and facts.sorts():
            found.append(Advice(None, None, UNORDERED))
    return list(dict.fromkeys(found))


def _order(reading: Reading, names: Sequence[Name], outputs: Sequence[Origin | None]) -> list[Sorted]:
    """Where each term of the order comes from; nothing where one of them is no column of a table."""
    found = []
    for term in reading.order:
        name, direction = order_term(term, names)
        place = names.index(name)
        origin = outputs[place] if place < len(outputs) else None
        if origin is None:
            return []
        words = direction.lower().split()
        found.append(Sorted(origin, "desc" in words, words[-1] if "nulls" in words else ""))
    return found


# -- one table ---------------------------------------------------------------------------------------


def _of_table(
    table: Table, conditions: Sequence[Condition], order: Sequence[Sorted], reading: Reading, facts: Facts
) -> Iterator[Advice]:
    say = _Saying(table)
    if table.bars:
        if conditions:
            yield say(f"reads {say.rows} to find those of {_texts(conditions)}; {table.bars}")
        return
    fit: list[Condition] = []
    for each in conditions:
        if why := _unfit(each, table, reading, facts):
            yield say(_passed(each, why))
        else:
            fit.append(each)
    always = [each for each in fit if not each.optional]
    equal = [each for each in always if each.kind in ("equal", "same")]
    if always:
        yield from _always(table, always, order, facts, say)
    elif order and facts.sorts():
        yield from _sorting(table, order, facts, say)
    for each in fit:
        if each.optional:
            yield from _optional(table, each, equal, facts, say)


class _Saying:
    """Sentences about one table."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.rows = f"about {table.rows:,} rows"

    def __call__(self, reason: str, statement: str | None = None) -> Advice:
        if statement and self._table.remark:
            reason += f"; {self._table.remark}"
        return Advice(self._table.name, self._table.rows, reason, statement)


def _unfit(each: Condition, table: Table, reading: Reading, facts: Facts) -> str:
    assert each.origin is not None, "of this table"
    field = table.columns[each.origin.column]
    if each.function and not facts.functions:
        return f"{each.function}() of a column can be in no index here; index a generated column"
    kind = reading.types.get(each.bound) if each.bound else None
    return field.bars or facts.unfit(field, kind, each.kind or "")


def _always(
    table: Table, always: Sequence[Condition], order: Sequence[Sorted], facts: Facts, say: _Saying
) -> Iterator[Advice]:
    """What finds the rows by the conditions that every request has, and gives their order if one index can do both."""
    sets = _once(_term(each) for each in always if each.kind in SETS)
    found = {term.column for term in sets if term.function is None}
    ranges = [
        term for term in _once(_term(each) for each in always if each.kind not in SETS) if term.column not in found
    ]
    lead = {term.column for term in sets or ranges}
    if any(not index.only and _leads(index, sets or ranges, lead) for index in table.indexes):
        return
    named = [each for each in always if _term(each) in sets or _term(each) in ranges[:1]]
    reason = f"reads {say.rows} to find those of {_texts(named)}"
    values = [table.columns[term.column].distinct for term in sets]
    known = [value for value in values if value is not None]
    if sets and len(known) == len(values) and prod(known) < DISTINCT_MIN:
        few = f"{prod(known):,.0f} different value{'s' * (prod(known) != 1)}"
        yield say(f"{reason}; with only {few} an index would find too many of them")
        return
    in_order = [] if any(each.kind == "among" for each in always) else _in_order(order, sets)
    if ranges and in_order and in_order[0].column != ranges[0].column:
        in_order = []
    first = (sets or ranges)[0]
    if not facts.keeps_order(None if first.function else table.columns[first.column]):
        in_order = []
    both = in_order if _indexable(table, in_order) else []
    terms = [*sets, *(both or ranges[:1])]
    if both and facts.sorts():
        reason += f", and sorts them by {_listed(both, table)}"
    if not sets and facts.finds_most(table):
        reason += "; with the values here it finds most of them, so an index serves only those that find fewer"
    yield from _checked(table, _without_identity(table, terms), facts, say, reason, sorts=bool(both))


def _sorting(table: Table, order: Sequence[Sorted], facts: Facts, say: _Saying) -> Iterator[Advice]:
    """What would give the order of a table that is read whole."""
    terms = _in_order(order, [])
    reason = f"sorts {say.rows} by {_listed(terms, table)}"
    columns = [term.column for term in terms]
    if any(not index.only and _begins(_whole(index, table), columns) for index in table.indexes):
        return
    if not _indexable(table, terms):
        yield say(f"{reason}; not every column of it can be in an index")
    elif why := facts.rather_sorts(table, table.columns[columns[0]]):
        yield say(f"{reason}; {why}")
    else:
        yield from _checked(table, _without_identity(table, terms), facts, say, reason, finds=False, sorts=True)


def _optional(
    table: Table, each: Condition, equal: Sequence[Condition], facts: Facts, say: _Saying
) -> Iterator[Advice]:
    """What finds the rows by a condition that counts only where something is given."""
    reason = f"reads {say.rows} also where a request makes this count: {_texts([each])}"
    if facts.optional:
        yield say(f"{reason}; {facts.optional}")
        return
    before = _once(_term(one) for one in equal)
    term = _term(each)
    field, known = table.columns[term.column], [table.columns[one.column].distinct for one in before]
    if any(value is not None and (table.rows or 0) / value < ROWS_MIN for value in known):
        return  # an index on the other conditions leaves few rows
    if term.column in {one.column for one in before} or (field.distinct or DISTINCT_MIN) < DISTINCT_MIN:
        return
    terms = [*before, term]
    wanted = {one.column for one in terms}
    if any(not index.only and _leads(index, [term], {term.column}) for index in table.indexes):
        return
    if any(not index.only and wanted == set(index.columns[: len(wanted)]) for index in table.indexes):
        return
    yield from _checked(table, terms, facts, say, reason)


def _checked(
    table: Table,
    terms: Sequence[Term],
    facts: Facts,
    say: _Saying,
    reason: str,
    *,
    finds: bool = True,
    sorts: bool = False,
) -> Iterator[Advice]:
    """A statement, unless there is an index that only needs mending, or the plan would not use a new one."""
    columns = [term.column for term in terms]
    for index in table.indexes:
        if index.only and _begins(_whole(index, table), columns):
            yield say(f"{reason}; the index {index.name} might serve, but {index.only}", index.mended or None)
            return
    if why := facts.refuses(table, terms, finds=finds, sorts=sorts):
        yield say(f"{reason}; {why}")
    else:
        yield say(reason, facts.statement(table, terms))


# -- columns and indexes -----------------------------------------------------------------------------


def _term(each: Condition) -> Term:
    assert each.origin is not None, "of a table"
    return Term(each.origin.column, each.function, pattern=each.kind == "prefix")


def _once(terms: Iterable[Term]) -> list[Term]:
    return list(dict.fromkeys(terms))


def _in_order(order: Sequence[Sorted], fixed: Sequence[Term]) -> list[Term]:
    """The order as columns of an index, without those that have one value; read backwards where all of it descends."""
    still = {term.column for term in fixed if term.function is None}
    terms = _once(Term(each.origin.column, None, each.descending, each.nulls) for each in order)
    terms = [term for term in terms if term.column not in still]
    if terms and all(term.descending and not term.nulls for term in terms):
        return [Term(term.column) for term in terms]
    return terms


def _indexable(table: Table, terms: Sequence[Term]) -> bool:
    return not any(table.columns[term.column].bars or table.columns[term.column].tail for term in terms)


def _without_identity(table: Table, terms: Sequence[Term]) -> list[Term]:
    """Without what every index of the table ends with by itself: of the primary key, what it has not yet."""
    for size in range(1, len(terms)):
        begun = {term.column for term in terms[:size]}
        if list(terms[size:]) == [Term(column) for column in table.identity if column not in begun]:
            return list(terms[:size])
    return list(terms)


def _whole(index: Index, table: Table) -> tuple[str | None, ...]:
    return (*index.columns, *table.identity)


def _begins(columns: Sequence[str | None], wanted: Sequence[str]) -> bool:
    return list(columns[: len(wanted)]) == list(wanted)


def _leads(index: Index, terms: Sequence[Term], lead: set[str]) -> bool:
    """Say whether an index begins with one of these."""
    first = index.columns[0] if index.columns else None
    if first is not None:
        return first in lead and any(term.column == first and term.function is None for term in terms)
    wanted = {f"{term.function}{term.column}".lower() for term in terms if term.function}
    return any(_plain(function) in wanted for function in index.functions)


def _plain(function: str) -> str:
    """``lower((name)::text)`` as ``lowername``."""
    return re.sub(r'::[\w ]+|[()"`\s]', "", function).lower()


def _listed(terms: Sequence[Term], table: Table) -> str:
    return ", ".join(shown(table.columns[term.column], term) for term in terms)


def shown(field: Field, term: Term) -> str:
    """A term of an index as SQL has it in every database; long texts and patterns are theirs to add."""
    text = f"{term.function}({field.written})" if term.function else field.written
    return text + (" DESC" if term.descending else "") + (f" NULLS {term.nulls.upper()}" if term.nulls else "")


def _passed(each: Condition, why: str) -> str:
    return f"no index is advised for {_texts([each])}: {why}"


def _texts(conditions: Sequence[Condition]) -> str:
    return " and ".join(each.text + (" (visible)" if each.visible else "") for each in conditions)

"""What a query asks of which column of which table: its conditions on bound names, and where its order comes from.

A parser reads the query in its wrap, with the names still in it. A column is followed through subqueries, views and
``with`` to the table that has it, as long as the database may look there too: not through what groups, limits or
numbers rows. What is not understood has no column and a reason instead; nothing is guessed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from sqlglot import exp, parse
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope

from haulage.sources.indexes import Table, Word

logging.getLogger("sqlglot").setLevel(logging.CRITICAL)  # what it does not understand is told as advice
VIEWS_MAX = 50  # in one query, one within the other: more than that is no query but a mistake
FOLLOWED = "what it compares is made of several columns, of values or of another query"
GROUPED = "the rows are grouped, limited, numbered or put together before it"
_RANGES = exp.GT | exp.GTE | exp.LT | exp.LTE
_UNSERVED: dict[type[exp.Expr], str] = {
    exp.NEQ: "it says what is not wanted",
    exp.Not: "it says what is not wanted",
    exp.NullSafeNEQ: "it says what is not wanted",
    exp.ILike: "it ignores case",
}

Find = Callable[[Sequence[Word]], Table | None]
Fold = Callable[[str, bool], str]  # a name, and whether it stands in quotes, as the database compares it


class Unread(Exception):
    """The query is not understood; says why."""


class Origin(NamedTuple):
    """A column of a table, as one query uses it."""

    table: Table
    column: str
    use: int  # which of several readings of one table


class Condition(NamedTuple):
    """One comparison with something bound.

    Args:
        text: as it is shown.
        kind: ``equal``, ``same`` (NULL too), ``among``, ``range``, ``prefix``; None where no index can serve it.
        origin: the column; None where it could not be followed.
        why: it has no kind, or no origin.
        function: what the column stands in.
        bound: the name that it is compared with, where it is a name and nothing more.
        optional: it counts only where something is given, as ``(:p is null or column = :p)``.
        visible: it stands in the condition around the query.
    """

    text: str
    kind: str | None
    origin: Origin | None = None
    why: str = ""
    function: str | None = None
    bound: str | None = None
    optional: bool = False
    visible: bool = False


class Query:
    """One parsed query."""

    def __init__(self, sql: str, dialect: str, find: Find, fold: Fold) -> None:
        """Parse it, with the queries of views in place of the views.

        Raises:
            Unread: the parser does not understand it.
        """
        self._find, self._fold, self._dialect = find, fold, dialect
        self._tables: dict[int, Table | None] = {}
        try:
            self._tree = self._parsed(sql)
            self._open_views()
            self._scopes = traverse_scope(self._tree)
        except (SqlglotError, RecursionError, ValueError) as problem:
            first = str(problem).partition("\n")[0].partition(". Line")[0]
            raise Unread(f"the query is not understood by the parser ({first})") from problem
        self.missing = sorted({node.sql() for node, table in self._used() if table is None})

    def _parsed(self, sql: str) -> exp.Expr:
        found = [each for each in parse(sql, read=self._dialect) if each is not None]
        if len(found) != 1 or not isinstance(found[0], exp.Query):
            raise Unread("the query is no select")
        return found[0]

    def _open_views(self) -> None:
        for _ in range(VIEWS_MAX):
            views = [(node, table) for node, table in self._used() if table is not None and table.view]
            if not views:
                return
            for node, table in views:
                alias = exp.TableAlias(this=exp.to_identifier(node.alias_or_name, quoted=True))
                if columns := node.args.get("alias") and node.args["alias"].args.get("columns"):
                    alias.set("columns", columns)
                inner = self._parsed(table.view or "")
                node.replace(exp.Subquery(this=inner, alias=alias))
        raise Unread("its views are too many")

    def _used(self) -> Iterator[tuple[exp.Table, Table | None]]:
        """Every table of the query and what the database knows of it; the name of a ``with`` is none."""
        named = {self._fold(each.alias, _is_quoted(each.args["alias"].this)) for each in self._tree.find_all(exp.CTE)}
        for node in self._tree.find_all(exp.Table):
            inner = node.this
            if isinstance(node.parent, exp.Table):
                continue  # the name of an index that is asked for
            if isinstance(inner, exp.Identifier) and (node.db or self._fold(node.name, inner.quoted) not in named):
                if id(node) not in self._tables:
                    path = [Word(each.name, _is_quoted(each)) for each in (node.args.get("db"), inner) if each]
                    self._tables[id(node)] = self._find(path)
                yield node, self._tables[id(node)]

    def tables(self) -> list[tuple[Table, set[str]]]:
        """Every table that it reads, with the names that it has in the query."""
        found: dict[str, tuple[Table, set[str]]] = {}
        for node, table in self._used():
            if table is not None:
                found.setdefault(table.name, (table, set()))[1].add(node.alias_or_name)
        return list(found.values())

    # -- columns -----------------------------------------------------------------------------------

    def outputs(self) -> list[Origin | None]:
        """Where each column of the result comes from; nothing where an index cannot give the result its order.

        So it is where several tables are read: which of them comes first is for the database to choose.
        """
        way = list(self._way())
        outputs = self._outputs(self._scopes[-1])
        if outputs is None or len(way[-1].selected_sources) != 1 or not all(map(_keeps_order, way)):
            return []
        return [origin for _, origin in outputs]

    def _way(self) -> Iterator[Scope]:
        """The scopes from the outermost into the one that reads more than one thing, or a table."""
        scope: Scope | None = self._scopes[-1]
        while scope is not None:
            yield scope
            sources = [source for _, source in scope.selected_sources.values()]
            scope = sources[0] if len(sources) == 1 and isinstance(sources[0], Scope) else None

    def _outputs(self, scope: Scope) -> list[tuple[str, Origin | None]] | None:
        """Columns of one select by name; None where it is none, or a star in it hides what they are."""
        if not isinstance(scope.expression, exp.Select):
            return None
        found: list[tuple[str, Origin | None]] = []
        for each in scope.expression.selects:
            star = each if isinstance(each, exp.Star) else each.this if isinstance(each, exp.Column) else None
            if isinstance(star, exp.Star):
                every = self._starred(scope, star, each.table if isinstance(each, exp.Column) else "")
                if every is None:
                    return None
                found += every
                continue
            inner = each.unalias()
            origin = self.origin(scope, inner) if isinstance(inner, exp.Column) else None
            name = self._fold(each.alias_or_name, _is_quoted(each.args.get("alias") or inner.this))
            found.append((name, origin if isinstance(origin, Origin) else None))
        return found

    def _starred(self, scope: Scope, star: exp.Star, alias: str) -> list[tuple[str, Origin | None]] | None:
        joins = scope.expression.find_all(exp.Join)  # which show a column of both sides once
        if any(star.args.values()) or any(join.args.get("using") or join.method == "NATURAL" for join in joins):
            return None
        found: list[tuple[str, Origin | None]] = []
        for name in scope.selected_sources:
            if not alias or self._fold(name, False) == self._fold(alias, False):
                columns = self._columns(scope, name)
                if columns is None:
                    return None
                found += columns
        return found

    def _columns(self, scope: Scope, name: str) -> list[tuple[str, Origin | None]] | None:
        """Columns of one thing that a select reads."""
        node, source = scope.selected_sources[name]
        renamed = [self._fold(each.name, each.quoted) for each in _renamed(node, source)]
        if isinstance(source, Scope):
            outputs = self._outputs(source)
            if outputs is None:
                return None
            if source.is_cte and self._is_kept(source):
                outputs = [(key, None) for key, _ in outputs]
        else:
            table = self._tables.get(id(source))
            if table is None:
                return None
            outputs = [(key, Origin(table, key, id(source))) for key in table.columns]
        if not renamed:
            return outputs
        if len(renamed) != len(outputs):
            return None
        return [(key, origin) for key, (_, origin) in zip(renamed, outputs, strict=True)]

    def _is_kept(self, scope: Scope) -> bool:
        """Say whether a ``with`` may be made once and kept, so that nobody looks through it."""
        cte = scope.expression.parent
        if not isinstance(cte, exp.CTE) or cte.args.get("materialized"):
            return True
        return sum(each.name.lower() == cte.alias.lower() for each in self._tree.find_all(exp.Table)) > 1

    def origin(self, scope: Scope, column: exp.Column) -> Origin | str:
        """The table's column that a column is, or why that is not known."""
        key = self._fold(column.name, _is_quoted(column.this))
        wanted = self._fold(column.table, False) if column.table else None
        near = [name for name in scope.selected_sources if wanted is None or self._fold(name, False) == wanted]
        found: list[tuple[str, Origin | None]] = []
        for name in near:
            columns = self._columns(scope, name)
            if columns is None:
                return GROUPED if isinstance(scope.selected_sources[name][1], Scope) else FOLLOWED
            found += [(name, origin) for each, origin in columns if each == key]
        if len(found) != 1:
            return FOLLOWED
        name, origin = found[0]
        _, source = scope.selected_sources[name]
        if isinstance(source, Scope) and not _looks_through(source):
            return GROUPED
        return FOLLOWED if origin is None else origin

    # -- conditions --------------------------------------------------------------------------------

    def conditions(self) -> list[Condition]:
        """Every condition on something bound, from the outermost select inwards."""
        found: list[Condition] = []
        for scope in reversed(self._scopes):
            if isinstance(scope.expression, exp.Select):
                visible = scope is self._scopes[-1]
                found += [
                    self._condition(scope, each)._replace(visible=visible)
                    for each in _asked(scope.expression)
                    if _names(each)
                ]
        return [each for each in found if each.kind is not None or each.why]

    def _condition(self, scope: Scope, whole: exp.Expr) -> Condition:
        either = _parts(whole, exp.Or)
        on_columns = [each for each in either if _has_column(each)]
        text = " ".join(whole.unnest().sql(comments=False).split())
        if not on_columns:
            return Condition(text, None)  # a switch for all rows
        if len(on_columns) > 1:
            return Condition(text, None, why="one of several conditions is enough")
        optional = len(either) > 1
        kind, side, other, why = _comparison(on_columns[0])
        if on_columns[0].find(exp.Collate):
            return Condition(text, None, why="it compares by an order of its own (collate)")
        if kind is None or side is None:
            return Condition(text, None, why=why)
        function = "lower" if isinstance(side, exp.Lower) else "upper" if isinstance(side, exp.Upper) else None
        column = side.this if function else side
        if not isinstance(column, exp.Column):
            return Condition(text, None, why="it compares what is made of a column, not the column itself")
        origin = self.origin(scope, column)
        if isinstance(origin, str):
            return Condition(text, None, why=origin)
        bound = other.name if isinstance(other, exp.Placeholder) else None
        return Condition(text, kind, origin, function=function, bound=bound, optional=optional)


class Comparison(NamedTuple):
    """Of what has a column with what has none; without a kind there is a reason."""

    kind: str | None
    side: exp.Expr | None = None
    other: exp.Expr | None = None
    why: str = ""


def _comparison(each: exp.Expr) -> Comparison:
    if isinstance(each, exp.Between):
        free = not _has_column(each.args["low"]) and not _has_column(each.args["high"])
        return Comparison("range", each.this.unnest()) if free else Comparison(None, why=FOLLOWED)
    if isinstance(each, exp.In):
        return Comparison("among", each.this.unnest())
    if isinstance(each, exp.Like):
        return _likeness(each)
    if isinstance(each, exp.EQ | exp.NullSafeEQ | _RANGES):
        return _two_sides(each)
    said = next((why for kind, why in _UNSERVED.items() if isinstance(each, kind)), "it is no comparison with a value")
    return Comparison(None, why=said)


def _two_sides(each: exp.Binary) -> Comparison:
    left, right = each.left.unnest(), each.right.unnest()
    if _has_column(left) == _has_column(right):
        return Comparison(None, why="it compares columns with one another")
    side, other = (left, right) if _has_column(left) else (right, left)
    if isinstance(each, _RANGES):
        return Comparison("range", side, other)
    if isinstance(each, exp.NullSafeEQ):
        return Comparison("same", side, other)
    return Comparison("among" if isinstance(other, exp.Any) else "equal", side, other)


def _likeness(each: exp.Like) -> Comparison:
    """``like :p || '%'`` begins with what is given; of a pattern that is given whole nobody knows how it begins."""
    pattern = each.expression.unnest()
    first = next(iter(pattern.expressions), pattern) if isinstance(pattern, exp.Concat) else pattern
    while isinstance(first, exp.DPipe):
        first = first.left.unnest()
    if _has_column(pattern):
        return Comparison(None, why=FOLLOWED)
    if isinstance(first, exp.Literal) and first.name.startswith(("%", "_")):
        return Comparison(None, why="its pattern begins with a wildcard")
    if first is pattern:
        return Comparison(None, why="its pattern may begin with a wildcard")
    return Comparison("prefix", each.this.unnest())


def _asked(select: exp.Select) -> Iterator[exp.Expr]:
    """What rows have to fulfil, one by one. Where one side of a join stays whole, only what is asked of the other."""
    where = select.args.get("where")
    if where is not None:
        yield from _parts(where.this, exp.And)
    for join in select.args.get("joins") or ():
        if on := join.args.get("on"):
            sides = {join.this.alias_or_name} if join.side == "LEFT" else set()
            for each in _parts(on, exp.And):
                if not join.side or {column.table for column in each.find_all(exp.Column)} <= sides:
                    yield each


def _parts(whole: exp.Expr, by: type[exp.Connector]) -> list[exp.Expr]:
    inner = whole.unnest()
    if isinstance(inner, by):
        return [*_parts(inner.left, by), *_parts(inner.right, by)]
    return [inner]


def _own(whole: exp.Expr) -> Iterator[exp.Expr]:
    """What stands in an expression, but not in a query within it."""
    yield from whole.walk(prune=lambda node: isinstance(node, exp.Query))


def _names(whole: exp.Expr) -> list[str]:
    """What is bound in a condition; of a query in it only where it says which values a column may have."""
    deep = whole.walk() if isinstance(whole, exp.In) else _own(whole)
    return [node.name for node in deep if isinstance(node, exp.Placeholder)]


def _has_column(whole: exp.Expr) -> bool:
    return any(isinstance(node, exp.Column | exp.Query) for node in _own(whole))


def _is_quoted(name: object) -> bool:
    name = name.this if isinstance(name, exp.TableAlias) else name
    return isinstance(name, exp.Identifier) and bool(name.args.get("quoted"))


def _renamed(node: Any, source: exp.Expr | Scope) -> Sequence[exp.Identifier]:
    """The names that columns get where they are read: ``as t (a, b)``; with a ``with`` it says so itself."""
    if isinstance(source, Scope) and isinstance(source.expression.parent, exp.CTE | exp.Subquery):
        named = source.expression.parent.args.get("alias")
    else:
        named = node.args.get("alias")
    return named.args.get("columns") or () if isinstance(named, exp.TableAlias) else ()


def _looks_through(scope: Scope) -> bool:
    """Say whether a condition on the result may be asked of the rows that go into it."""
    select = scope.expression
    if not isinstance(select, exp.Select):
        return False
    distinct = select.args.get("distinct")
    return not (
        any(select.args.get(part) for part in ("limit", "offset", "fetch", "group", "having", "qualify"))
        or (distinct is not None and distinct.args.get("on"))
        or any(isinstance(node, exp.Window | exp.AggFunc) for each in select.selects for node in _own(each))
    )


def _keeps_order(scope: Scope) -> bool:
    return _looks_through(scope) and not scope.expression.args.get("distinct")

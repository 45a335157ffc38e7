"""What MariaDB or MySQL knows of the tables of a query, and its plan: information_schema and EXPLAIN."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from haulage.core.errors import BuildFailed
from haulage.sources.advice import shown
from haulage.sources.indexes import Field, Index, Table, Term, Word, named
from haulage.sources.mariadb_session import Session

OCTETS_MAX = 1_020  # of a column that is in an index whole, as varchar(255) is: three of them are its limit
PREFIX = 191  # characters of a long text in an index: of four bytes each, for older servers too
TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set")
LONG = ("tinytext", "text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob")
NO_TEXTS = ("integer", "decimal", "boolean", "date", "timestamp")  # types of parameters
_CONDITION = re.compile(r'^(\s*"\w+": )"(.*)"(,?)$', re.MULTILINE)  # a member that is a text, on a line of its own
NO_INDEX = ("geometry", "point", "linestring", "polygon", "json")
DESCENDS = (10, 8)  # of MariaDB; before, the word was read and forgotten

_FIELD, _PLACE = "column_name, data_type, character_octet_length", "order by ordinal_position"


def quoted(name: str) -> str:
    """A name as an identifier."""
    return "`" + name.replace("`", "``") + "`"


def _read_plan(text: str) -> Any:
    """A plan; the server writes names and texts with quotation marks into it as they are, which is no JSON.

    Raises:
        BuildFailed: ``source_failed`` where it cannot be read all the same.
    """
    try:
        return json.loads(text)
    except ValueError:
        mended = _CONDITION.sub(lambda line: f"{line[1]}{json.dumps(line[2])}{line[3]}", text)
    try:
        return json.loads(mended)
    except ValueError as problem:
        raise BuildFailed("source_failed", cause="the plan that the server gives cannot be read") from problem


class MariadbFacts:
    """See ``indexes.Facts``."""

    dialect = "mysql"
    functions = False
    optional = ""  # values are literals here, so the optimizer leaves out what they decide

    def __init__(self, session: Session, sql: str, binds: Mapping[str, Any]) -> None:
        """Ask for the plan of a query as it runs."""
        self._session = session
        with suppress(BuildFailed):  # MySQL 9 has another one; a server without the word has none
            session.run("set session explain_json_format_version = 1")
        ((plan,),) = session.run(f"explain format=json {sql}", binds)
        self._plan = _read_plan(str(plan))
        ((own, version),) = session.run("select database(), version()")
        self._own = str(own or "")
        numbers = [int(each) for each in re.findall(r"\d+", str(version))[:2]]
        self._descends = "MariaDB" not in str(version) or tuple(numbers) >= DESCENDS
        self._read = {str(node.get("table_name", "")).lower() for node in _tables(self._plan) if _reads_all(node)}
        self._names: dict[str, set[str]] = {}

    def fold(self, name: str, quoted: bool) -> str:
        """Columns and aliases are the same in all letters; a table is asked for as it is written."""
        return name.lower()

    def table(self, path: Sequence[Word]) -> Table | None:
        """From what this user may see."""
        schema, name = path[-2].text if len(path) > 1 else self._own, path[-1].text
        try:
            return self._table(schema, name)
        except BuildFailed:
            return None

    def _asked(self, what: str, of: str, schema: str, name: str, order: str = "") -> list[tuple[Any, ...]]:
        where = f"table_schema = {self._session.literal(schema)} and table_name = {self._session.literal(name)}"
        return self._session.run(f"select {what} from information_schema.{of} where {where} {order}")

    def _table(self, schema: str, name: str) -> Table | None:
        found = self._asked("table_name, table_rows, table_type, engine", "tables", schema, name)
        if not found:
            return None
        own, rows, kind, engine = found[0]
        table = Table(str(own) if schema == self._own else f"{schema}.{own}", f"{quoted(schema)}.{quoted(str(own))}")
        if kind == "VIEW":
            ((view,),) = self._asked("view_definition", "views", schema, name)
            return table._replace(view=str(view)) if view else None  # it is not shown to everybody
        fields = {str(each[0]).lower(): _field(*each) for each in self._asked(_FIELD, "columns", schema, name, _PLACE)}
        indexes = self._indexes(schema, name)
        primary = next((index.columns for index in indexes if index.name == "PRIMARY"), ())
        return table._replace(
            rows=None if rows is None else int(rows),
            columns=fields,
            indexes=indexes,
            identity=tuple(column for column in primary if column) if engine == "InnoDB" else (),
            bars="" if kind == "BASE TABLE" else "it is no table that can have an index",
        )

    def _indexes(self, schema: str, name: str) -> list[Index]:
        what, order = "index_name, column_name, index_type", "order by index_name, seq_in_index"
        try:
            rows = self._asked(f"{what}, ignored", "statistics", schema, name, order)
        except BuildFailed:  # another server, or an older one: it has none that are ignored, or they are named so
            rows = [(*row, "NO") for row in self._asked(what, "statistics", schema, name, order)]
        columns: dict[str, list[str | None]] = {}
        ignored = {str(row[0]) for row in rows if row[3] == "YES"}
        for index, column, kind, _ in rows:
            if kind in ("BTREE", "HASH", "RTREE"):
                columns.setdefault(str(index), []).append(str(column).lower() if column else None)
        only = "it is ignored"
        return [Index(each, tuple(of), only if each in ignored else "") for each, of in columns.items()]

    def reads_all(self, table: Table, aliases: Collection[str]) -> bool:
        """The plan names tables as the query does."""
        return not self._read.isdisjoint(alias.lower() for alias in aliases)

    def finds_most(self, table: Table) -> bool:
        """It guesses where it has no index."""
        return False

    def sorts(self) -> bool:
        """Say whether the outermost select sorts."""
        return any("filesort" in node or node.get("using_filesort") is True for node in _outermost(self._plan))

    def rather_sorts(self, table: Table, first: Field) -> str:
        """It reads the rows by an index in order only where that is the primary key, or has all columns."""
        return "MariaDB would rather sort than read all rows by an index"

    def keeps_order(self, first: Field | None) -> bool:
        """They come as they stand in the index."""
        return True

    def unfit(self, field: Field, bound: str | None, kind: str) -> str:
        """What makes another type of the column before it compares."""
        if field.type in TEXTS and bound in NO_TEXTS:
            return f"a column of the type {field.type} is compared with no text"
        if field.type in ("enum", "set") and kind not in ("equal", "same", "among"):
            return f"a column of the type {field.type} has another order in an index"
        if kind == "prefix" and field.type not in TEXTS:
            return f"the column is no text but {field.type}"
        return ""

    def statement(self, table: Table, terms: Sequence[Term]) -> str:
        """With a name, which must be given here."""
        name = quoted(named(table, terms, [index.name for index in table.indexes]))
        fields = [table.columns[term.column] for term in terms]
        listed = [
            shown(field._replace(written=field.written + field.tail), term)
            for field, term in zip(fields, terms, strict=True)
        ]
        return f"{table.how} {name} ON {table.written} ({', '.join(listed)})"

    def refuses(self, table: Table, terms: Sequence[Term], *, finds: bool, sorts: bool) -> str:
        """What this server cannot make; to try is not possible in a transaction that only reads."""
        if any(term.descending for term in terms) and not self._descends:
            return "this server has no index that ascends and descends"
        return ""


def _tables(node: Any) -> Iterator[Mapping[str, Any]]:
    """Every table of a plan."""
    if isinstance(node, list):
        for each in node:
            yield from _tables(each)
    elif isinstance(node, dict):
        if "table_name" in node:
            yield node
        for each in node.values():
            yield from _tables(each)


def _outermost(node: Any) -> Iterator[Mapping[str, Any]]:
    """What stands in a plan, but not in a table that is made first."""
    if isinstance(node, list):
        for each in node:
            yield from _outermost(each)
    elif isinstance(node, dict):
        yield node
        for name, each in node.items():
            if name not in ("materialized", "subqueries", "materialized_from_subquery", "query_specifications"):
                yield from _outermost(each)


def _reads_all(node: Mapping[str, Any]) -> bool:
    return str(node.get("access_type", "")).lower() in ("all", "index")


def _field(name: Any, kind: Any, octets: Any) -> Field:
    kind = str(kind).lower()
    bars = f"a column of the type {kind} can be in no such index" if kind in NO_INDEX else ""
    is_long = kind in LONG or int(octets or 0) > OCTETS_MAX
    return Field(quoted(str(name)), kind, bars, tail=f"({PREFIX})" if is_long else "")

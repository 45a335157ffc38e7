"""What SQLite knows of the tables of a query, and its plan.

An index is tried before it is advised: in a database in memory that has the tables, the statistics and no row of the
source. Its planner sees there what it would see in the source, so that its answer is the truth and not a guess.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

from haulage.sources.advice import shown
from haulage.sources.indexes import Field, Index, Table, Term, Word, named
from haulage.sources.query import quoted

OPTIONAL = "SQLite uses no index for a condition that may be left out; a Python dataset can write its query without it"
_USING = re.compile(" USING (?!AUTOMATIC )| VIRTUAL TABLE ")
_STEP = re.compile(r"(SCAN|SEARCH) (?:TABLE )?(.+?)(?: AS (.+?))?(?: USING .*| VIRTUAL TABLE .*)?", re.DOTALL)


class SqliteFacts:
    """See ``indexes.Facts``."""

    dialect = "sqlite"
    functions = True
    optional = OPTIONAL

    def __init__(self, connection: sqlite3.Connection, sql: str, binds: Mapping[str, Any]) -> None:
        """Ask for the plan of a query as it runs."""
        self._connection, self._sql, self._binds = connection, sql, binds
        self._plan = self._planned(connection)
        self._schema = connection.execute("select type, name, tbl_name, sql from sqlite_schema").fetchall()
        self._sizes = self._known_sizes()
        # For max() it says SEARCH of a table that it reads whole.
        read = [step for step in self._plan if step.startswith("SCAN ") or not _USING.search(step)]
        steps = [found for found in map(_STEP.fullmatch, read) if found]
        self._scanned = {(found[3] or found[2]).lower() for found in steps}

    def _planned(self, connection: sqlite3.Connection) -> list[str]:
        return [str(row[3]) for row in connection.execute(f"explain query plan {self._sql}", self._binds)]

    def _known_sizes(self) -> dict[str, int]:
        """Rows by table, as the last ANALYZE has counted them."""
        sizes: dict[str, int] = {}
        with suppress(sqlite3.Error):  # nobody has run it
            for table, stat in self._connection.execute("select tbl, stat from sqlite_stat1"):
                first = str(stat).partition(" ")[0]
                if first.isdecimal():
                    sizes[str(table).lower()] = max(int(first), sizes.get(str(table).lower(), 0))
        return sizes

    def fold(self, name: str, quoted: bool) -> str:
        """All letters are the same."""
        return name.lower()

    def table(self, path: Sequence[Word]) -> Table | None:
        """From the schema of the one database."""
        if len(path) > 1 and path[0].text.lower() != "main":
            return None
        wanted = path[-1].text.lower()
        found = [row for row in self._schema if row[0] in ("table", "view") and row[1].lower() == wanted]
        if not found:
            return None
        kind, name, _, sql = found[0]
        table = Table(name, quoted(name))
        if kind == "view":
            return table._replace(view=_body(sql))
        if sql.lower().split()[1] == "virtual":
            return table._replace(bars="it is a virtual table", rows=0)
        columns = self._connection.execute(
            "select name, type, pk, hidden from pragma_table_xinfo(?)", (name,)
        ).fetchall()
        fields = {row[0].lower(): Field(quoted(row[0]), row[1]) for row in columns if row[3] != 1}
        keys = [row[0].lower() for row in sorted(columns, key=lambda row: row[2]) if row[2]]
        has_rowid = self._has_rowid(name)
        own = [row for row in columns if row[2] and row[1].upper() == "INTEGER"]
        identity = tuple(keys) if not has_rowid or (len(keys) == 1 and own) else ()
        indexes = [*self._indexes(name), *([Index("of the primary key", identity)] if identity else [])]
        rows = self._sizes.get(name.lower()) or (self._last(name) if has_rowid else None)
        return table._replace(rows=rows, columns=fields, indexes=indexes, identity=identity)

    def _has_rowid(self, name: str) -> bool:
        try:
            self._connection.execute(f"explain select rowid from {quoted(name)}").close()
        except sqlite3.Error:
            return False
        return True

    def _last(self, name: str) -> int:
        """The largest number of a row, found without reading rows: there are about as many."""
        (last,) = self._connection.execute(f"select max(rowid) from {quoted(name)}").fetchone()
        return last or 0

    def _indexes(self, table: str) -> Iterator[Index]:
        made = {row[1]: row[3] or "" for row in self._schema if row[0] == "index"}
        for name, partial in self._connection.execute("select name, partial from pragma_index_list(?)", (table,)):
            columns = self._connection.execute("select cid, name from pragma_index_info(?)", (name,)).fetchall()
            only = "it has rows only where its own condition holds" if partial else ""
            functions = tuple(re.findall(r"(?:lower|upper)\s*\([^()]*\)", made.get(name, ""), re.IGNORECASE))
            yield Index(name, tuple(each and each.lower() for _, each in columns), only, functions=functions)

    def reads_all(self, table: Table, aliases: Collection[str]) -> bool:
        """The plan names tables as the query does."""
        return not self._scanned.isdisjoint(alias.lower() for alias in aliases)

    def finds_most(self, table: Table) -> bool:
        """It guesses."""
        return False

    def sorts(self) -> bool:
        """Say whether all terms of the order are sorted. One that only puts ties in order is none."""
        return _sorts(self._plan)

    def rather_sorts(self, table: Table, first: Field) -> str:
        """That is tried."""
        return ""

    def keeps_order(self, first: Field | None) -> bool:
        """They come as they stand in the index."""
        return True

    def unfit(self, field: Field, bound: str | None, kind: str) -> str:
        """That is tried."""
        return ""

    def statement(self, table: Table, terms: Sequence[Term]) -> str:
        """With a name, which must be given here."""
        name = quoted(named(table, terms, [row[1] for row in self._schema]))
        listed = ", ".join(shown(table.columns[term.column], term) for term in terms)
        return f"{table.how} {name} ON {table.written} ({listed})"

    def refuses(self, table: Table, terms: Sequence[Term], *, finds: bool, sorts: bool) -> str:
        """Try it where there is no row."""
        name = named(table, terms, [row[1] for row in self._schema])
        why = "the plan would not use an index for that"
        try:
            with self._copied() as copy:
                if self._planned(copy) != self._plan:
                    return "an index cannot be tried: the tables by themselves have another plan"
                copy.execute(self.statement(table, terms))
                plan = self._planned(copy)
        except sqlite3.Error as problem:
            return f"an index cannot be tried ({problem})"
        used = [step for step in plan if re.search(rf"USING (COVERING )?INDEX {re.escape(name)}\b", step)]
        found = bool(used) and (not finds or any(step.startswith("SEARCH") for step in used))
        return why if not found or (sorts and _sorts(plan)) else ""

    @contextmanager
    def _copied(self) -> Iterator[sqlite3.Connection]:
        """The schema and the statistics in memory, without what only other programs can open."""
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
            for kind in ("table", "index", "view"):
                for each, name, _, sql in self._schema:
                    if each == kind and sql and not name.lower().startswith("sqlite_"):
                        with suppress(sqlite3.Error):
                            copy.execute(sql)
            if any(row[1] == "sqlite_stat1" for row in self._schema):
                copy.execute("analyze")
                rows = self._connection.execute("select tbl, idx, stat from sqlite_stat1").fetchall()
                copy.executemany("insert into sqlite_stat1 values (?, ?, ?)", rows)
                copy.execute("analyze sqlite_schema")
            yield copy


def _sorts(plan: Sequence[str]) -> bool:
    return "USE TEMP B-TREE FOR ORDER BY" in plan


def _body(sql: str) -> str | None:
    """The query of a view, with the names that the view gives its columns."""
    from sqlglot import exp, parse_one

    made = parse_one(sql, read="sqlite")
    if not isinstance(made, exp.Create) or not isinstance(made.expression, exp.Query):
        return None
    body = made.expression.sql("sqlite")
    if isinstance(made.this, exp.Schema):
        names = ", ".join(quoted(each.name) for each in made.this.expressions)
        return f"select * from ({body}) as haulage_view ({names})"
    return body

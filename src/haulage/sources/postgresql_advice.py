"""What PostgreSQL knows of the tables of a query, and its plan: catalogue and EXPLAIN only, nothing is run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from haulage.core.errors import BuildFailed
from haulage.sources.advice import shown
from haulage.sources.indexes import Field, Index, Table, Term, Word
from haulage.sources.postgresql_session import Session
from haulage.sources.query import quoted

WIDTH_MAX = 500  # bytes of a value on average: an entry of an index has at most 2,704
FOLLOWS_MIN = 0.9  # how much rows have to lie in an order for the planner to read all of them by its index
SCATTERED = "the rows lie in another order, so to read them by an index may take longer than to sort"
MOST = 0.5  # of the rows of a table: where fewer are left, they are sorted and not found by an index on the order
WHOLE = ("smallint", "integer", "bigint")
TEXTS = ("text", "character varying", "name")
ONE_BY_ONE = {"Gather", "Gather Merge", "Limit", "Subquery Scan", "Result", "ProjectSet", "LockRows"}
FOREIGN = "it is no table of this server: look at the indexes where it is"

_TABLE = """
select json_build_object(
  'oid', c.oid, 'kind', c.relkind, 'schema', n.nspname, 'name', c.relname,
  'written', pg_catalog.concat(pg_catalog.quote_ident(n.nspname), '.', pg_catalog.quote_ident(c.relname)),
  'seen', pg_catalog.pg_table_is_visible(c.oid), 'rows', c.reltuples,
  'view', case when c.relkind = 'v' then pg_catalog.pg_get_viewdef(c.oid) end)
from pg_catalog.pg_class as c join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
where c.oid = pg_catalog.to_regclass({name})"""
_FIELDS = """
select coalesce(json_agg(json_build_object(
  'name', a.attname, 'written', pg_catalog.quote_ident(a.attname), 'type', pg_catalog.format_type(base.oid, null),
  'sorts', base.typtype in ('e', 'r') or base.oid = 1043 or exists (
    select from pg_catalog.pg_opclass as o join pg_catalog.pg_am as m on m.oid = o.opcmethod
    where m.amname = 'btree' and o.opcdefault and o.opcintype = base.oid),
  'distinct', s.n_distinct, 'follows', abs(s.correlation), 'width', s.avg_width) order by a.attnum), '[]')
from pg_catalog.pg_class as c join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
join pg_catalog.pg_attribute as a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
join pg_catalog.pg_type as t on t.oid = a.atttypid
join pg_catalog.pg_type as base on base.oid = case when t.typtype = 'd' then t.typbasetype else t.oid end
left join pg_catalog.pg_stats as s on s.schemaname = n.nspname and s.tablename = c.relname and s.attname = a.attname
  and s.inherited = (c.relkind = 'p')
where c.oid = {oid}"""
_INDEXES = """
select coalesce(json_agg(json_build_object(
  'name', i.indexrelid::regclass::text, 'valid', i.indisvalid and i.indisready,
  'partial', pg_catalog.pg_get_expr(i.indpred, i.indrelid), 'functions', pg_catalog.pg_get_expr(i.indexprs, i.indrelid),
  'columns', (
    select json_agg(a.attname order by k.place)
    from unnest(i.indkey::int2[]) with ordinality as k (number, place)
    left join pg_catalog.pg_attribute as a on a.attrelid = i.indrelid and a.attnum = k.number
    where k.place <= i.indnkeyatts)) order by i.indexrelid), '[]')
from pg_catalog.pg_index as i where i.indrelid = {oid}"""
_PARTS = """
select coalesce(json_agg(json_build_array(n.nspname, c.relname)), '[]')
from pg_catalog.pg_partition_tree({oid}) as part
join pg_catalog.pg_class as c on c.oid = part.relid join pg_catalog.pg_namespace as n on n.oid = c.relnamespace"""


class PostgresqlFacts:
    """See ``indexes.Facts``."""

    dialect = "postgres"
    functions = True
    optional = ""  # values are literals here, so the planner leaves out what they decide

    def __init__(self, session: Session, sql: str, binds: Mapping[str, Any]) -> None:
        """Ask for the plan of a query as it runs."""
        self._session = session
        self._plan = self._asked(f"explain (verbose, format json) {sql}", binds)[0]["Plan"]
        self._scanned: Counter[tuple[str, str]] = Counter()
        for node, times in _nodes(self._plan):
            if _reads_all(node):
                self._scanned[node.get("Schema", ""), node["Relation Name"]] += int(node["Plan Rows"] * times)
        self._places: dict[str, set[tuple[str, str]]] = {}

    def _asked(self, sql: str, binds: Mapping[str, Any] | None = None) -> Any:
        found = self._session.run(sql, binds)
        return json.loads((found.get_value(0, 0) or b"null").decode()) if found.ntuples else None

    def fold(self, name: str, quoted: bool) -> str:
        """As the server does it."""
        return name if quoted else name.lower()

    def table(self, path: Sequence[Word]) -> Table | None:
        """From the catalogue, which everybody may read; statistics only of what this role may."""
        written = ".".join(quoted(self.fold(*word)) for word in path)
        try:
            found = self._asked(_TABLE.format(name=self._session.literal(written)))
        except BuildFailed:  # a schema that this role may not enter
            return None
        if found is None:
            return None
        shown_as = found["name"] if found["seen"] else f"{found['schema']}.{found['name']}"
        table = Table(shown_as, found["written"], view=found["view"], how="CREATE INDEX CONCURRENTLY")
        if table.view:
            return table
        oid = int(found["oid"])
        if found["kind"] == "p":
            self._places[table.name] = {(part[0], part[1]) for part in self._asked(_PARTS.format(oid=oid))}
            remark = "it is partitioned: this locks it while it works; or make one of each partition and attach them"
            table = table._replace(how="CREATE INDEX", remark=remark)
        else:
            self._places[table.name] = {(found["schema"], found["name"])}
        if found["kind"] not in ("r", "p", "m") or found["schema"] in ("pg_catalog", "information_schema"):
            table = table._replace(bars=FOREIGN)
        rows = int(found["rows"]) if found["kind"] == "r" and found["rows"] > 0 else self._planned(table)
        fields = {each["name"]: _field(each, rows) for each in self._asked(_FIELDS.format(oid=oid))}
        indexes = [_index(each) for each in self._asked(_INDEXES.format(oid=oid))]
        return table._replace(rows=rows, columns=fields, indexes=indexes)

    def _planned(self, table: Table) -> int | None:
        """Rows as the planner counts them, where nobody has run ANALYZE; None where this role may not read it."""
        try:
            return int(self._asked(f"explain (format json) select from {table.written}")[0]["Plan"]["Plan Rows"])
        except BuildFailed:
            return None

    def reads_all(self, table: Table, aliases: Collection[str]) -> bool:
        """By a scan of it, or of one of its partitions."""
        return not self._places.get(table.name, set()).isdisjoint(self._scanned)

    def finds_most(self, table: Table) -> bool:
        """By what a scan is expected to give."""
        found = sum(self._scanned[place] for place in self._places.get(table.name, ()))
        return found >= (table.rows or 0) * MOST

    def sorts(self) -> bool:
        """Say whether what comes last is a sort. One that only puts ties in order is none."""
        return bool(self._last()["Node Type"] == "Sort")

    def _last(self) -> Mapping[str, Any]:
        """The last step of the plan that does more than pass rows on."""
        node: Mapping[str, Any] = self._plan
        while node["Node Type"] in ONE_BY_ONE and len(node.get("Plans", ())) == 1:
            node = node["Plans"][0]
        return node

    def rather_sorts(self, table: Table, first: Field) -> str:
        """A page is read for each row where rows lie in another order."""
        left = int(self._last()["Plan Rows"])
        if left < (table.rows or 0) * MOST:
            return f"only about {left:,} of them are left then"
        if first.follows is None:
            return "whether an index would spare that, nobody knows before ANALYZE"
        return "" if first.follows >= FOLLOWS_MIN else SCATTERED

    def keeps_order(self, first: Field | None) -> bool:
        """Only where they lie together; else their pages are read in another order, and the rows sorted after that."""
        return first is not None and (first.follows or 0) >= FOLLOWS_MIN

    def unfit(self, field: Field, bound: str | None, kind: str) -> str:
        """What casts the column, or has no operator in an index."""
        if kind == "same":
            return "PostgreSQL has none for is not distinct from"
        if kind == "prefix" and field.type not in TEXTS:
            return f"the column is no text but {field.type}"
        if bound == "decimal" and field.type in WHOLE:
            return "it makes the column a numeric first; declare the parameter as integer"
        return ""

    def statement(self, table: Table, terms: Sequence[Term]) -> str:
        """The server gives the index its name."""
        listed = [
            shown(table.columns[term.column], term) + (" text_pattern_ops" if term.pattern else "") for term in terms
        ]
        return f"{table.how} ON {table.written} ({', '.join(listed)})"

    def refuses(self, table: Table, terms: Sequence[Term], *, finds: bool, sorts: bool) -> str:
        """Nothing can be tried in a read-only transaction."""
        return ""


def _nodes(plan: Mapping[str, Any], times: float = 1) -> Iterator[tuple[Mapping[str, Any], float]]:
    """Every step, and how many processes do it: the numbers of a step that is done by several are those of one."""
    yield plan, times
    if workers := plan.get("Workers Planned"):
        times = workers + max(0, 1 - 0.3 * workers)  # as the server reckons with the process that gathers
    for each in plan.get("Plans", ()):
        yield from _nodes(each, times)


def _reads_all(node: Mapping[str, Any]) -> bool:
    kind = str(node["Node Type"])
    by_order = kind in ("Index Scan", "Index Only Scan") and "Index Cond" not in node
    return "Relation Name" in node and (kind in ("Seq Scan", "Foreign Scan") or by_order)


def _field(each: Mapping[str, Any], rows: int | None) -> Field:
    bars = "" if each["sorts"] else f"a column of the type {each['type']} can be in no such index"
    if (each["width"] or 0) > WIDTH_MAX:
        bars = "its values are too long for one"
    distinct = each["distinct"] or None  # 0 says that nobody knows
    if distinct is not None and distinct < 0:  # a part of the rows
        distinct = None if rows is None else -distinct * rows
    return Field(each["written"], each["type"], bars, distinct, each["follows"])


def _index(each: Mapping[str, Any]) -> Index:
    only = mended = ""
    if each["partial"]:
        only = f"it has rows only where {each['partial']}"
    if not each["valid"]:
        only, mended = "it is not valid", f"REINDEX INDEX CONCURRENTLY {each['name']}"
    functions = (each["functions"],) if each["functions"] else ()
    return Index(each["name"], tuple(each["columns"]), only, mended, functions)

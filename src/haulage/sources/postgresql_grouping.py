"""Values of PostgreSQL by which rows are grouped, that are summed, and of which the least is looked for.

Rows are of one group where the export would write the same value. So text is compared byte by byte, whatever its
collation; a numeric without a scale loses the zeros at its end; and types that call different values equal, as
intervals do, are grouped by the text that is written.
"""

from __future__ import annotations

from haulage.sources.grouping import SUMMED, not_summed
from haulage.sources.postgresql_rows import Kind
from haulage.sources.query import Name

_COLLATED = ("text", "character", "name")  # so begin the names of the types that can have another collation
_AS_THEY_ARE = ("integer", "boolean", "date", "timestamp", "bytes")


def key_of(kind: Kind, column: str, declared: str | None) -> str:
    """A value by which rows are grouped."""
    if kind.type in _AS_THEY_ARE or kind.native == "uuid":
        return column
    if kind.type == "decimal":
        return _numeric(kind, column)
    if kind.type == "float":
        if declared == "decimal":
            return f"trim_scale({kind.written(column, declared)})"
        return f"case when {column} = 0 then '0' else {column} end"  # there is a zero below zero
    if kind.native.startswith(_COLLATED):
        return f'{column} collate "C"'
    return f'({kind.written(column, declared)})::text collate "C"'


def summed(name: Name, kind: Kind, column: str, declared: str | None) -> str:
    """A number that is summed: a real is added up with all the digits it has."""
    if kind.type not in SUMMED:
        raise not_summed(name, kind.type or kind.native)
    if kind.type == "float":
        return kind.written(column, declared) if declared == "decimal" else f"{column}::double precision"
    return column


def ordered(kind: Kind, column: str, declared: str | None) -> str:
    """A value that has a place in an order; what is neither number nor day is ordered as text."""
    if kind.type in ("integer", "date", "timestamp"):
        return column
    if kind.type in ("decimal", "float"):
        return key_of(kind, column, declared)
    if kind.native.startswith(_COLLATED):
        return f'{column} collate "C"'
    return f'({kind.written(column, declared)})::text collate "C"'


def _numeric(kind: Kind, column: str) -> str:
    return f"trim_scale({column})" if kind.native == "numeric" else column

"""Values of PostgreSQL by which rows are grouped, that are summed, and of which the least is looked for.

Rows are of one group where the export would write the same value. So text is compared byte by byte, whatever its
collation; a numeric without a scale loses the zeros at its end; and types that call different values equal, as
intervals do, are grouped by the text that is written.
"""

from __future__ import annotations

from haulage.sources.grouping import SUMMED, Value, not_summed
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
    return _text(kind, column, declared)


def summed(name: Name, kind: Kind, column: str, declared: str | None) -> str:
    """A number that is summed: a real is added up with all the digits it has."""
    if kind.type not in SUMMED:
        raise not_summed(name, kind.type or kind.native)
    if kind.type == "float":
        return kind.written(column, declared) if declared == "decimal" else f"{column}::double precision"
    return column


def ordered(kind: Kind, column: str, declared: str | None) -> Value:
    """A value that has a place in an order; what is neither number nor day is ordered as text.

    Booleans and bytes have no least value before version 18; as text they have the same order.
    """
    if kind.type in ("integer", "date", "timestamp"):
        return Value(column)
    if kind.type in ("decimal", "float"):
        return Value(key_of(kind, column, declared))
    if kind.type == "boolean":
        return Value(f'{column}::text collate "C"', "{}::boolean")
    if kind.type == "bytes":
        return Value(f"pg_catalog.encode({column}, 'hex') collate \"C\"", "pg_catalog.decode({}, 'hex')")
    if kind.native.startswith(_COLLATED):
        return Value(f'{column} collate "C"')
    return Value(_text(kind, column, declared))


def _text(kind: Kind, column: str, declared: str | None) -> str:
    """What is written of a value: the cast of an address has a mask that its output has not."""
    if kind.native == "inet":
        return f'pg_catalog.abbrev({column}) collate "C"'
    return f'({kind.written(column, declared)})::text collate "C"'


def _numeric(kind: Kind, column: str) -> str:
    return f"trim_scale({column})" if kind.native == "numeric" else column

"""Types of DuckDB: what each is to a file, and how its values come out of the engine unchanged.

The driver gives a day of infinity as one of the year 9999, an interval with months of thirty days, a FLOAT with digits
that mean nothing; so all of those are texts that the engine makes. Lists, structs, maps and unions become JSON. That
of the engine writes ``1.5`` for ``1.50`` and a bare NaN, so leaves of such types come as text in it, and lose their
quotes here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from haulage.sources.query import quoted

_INTEGERS = (
    *("tinyint", "smallint", "integer", "bigint", "hugeint"),
    *("utinyint", "usmallint", "uinteger", "ubigint", "uhugeint"),
)
_TYPES = dict.fromkeys((*_INTEGERS, "bignum"), "integer") | {
    "boolean": "boolean",
    "decimal": "decimal",
    "float": "float",
    "double": "float",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_s": "timestamp",
    "timestamp_ms": "timestamp",
    "timestamp_ns": "timestamp",
    "timestamp with time zone": "timestamp",
    "blob": "bytes",
}
_AS_THEY_COME = frozenset((*_INTEGERS, "boolean", "double", "varchar", "blob"))
_NESTED = frozenset(("list", "array", "struct", "map", "union"))
_WIDE = _NESTED | {"varchar", "blob", "bit", "bignum", "variant", "geometry"}  # as long as one likes
_FITTING = frozenset(("varchar", "enum", "uuid", "time"))  # text, or what formats have types for by its name
_UNQUOTED = frozenset(("decimal", "float", "double"))  # in JSON they come as text, and are numbers
_NON_FINITE = {"inf": '"Infinity"', "-inf": '"-Infinity"', "nan": '"NaN"'}

Reader = Callable[[Any], Any]  # of one cell that is not NULL


class Kind(NamedTuple):
    """One column's type, as the engine names and nests it; ``cast`` is what a document is cast to before it is JSON."""

    id: str
    type: str | None
    native: str
    cast: str | None = None
    mend: Reader | None = None

    @property
    def is_wide(self) -> bool:
        """Say whether a cell may be of any length."""
        return self.id in _WIDE

    @property
    def foreign(self) -> bool:
        """Say whether it is text to a file, but of a type that is more than that: intervals, bits, places."""
        return self.type is None and self.id not in _FITTING

    def written(self, column: str) -> str:
        """The SQL of this column as it comes."""
        if self.cast is not None:
            return f"to_json({column}::{self.cast})::varchar"
        return column if self.id in _AS_THEY_COME else f"{column}::varchar"

    def reader(self, *, as_text: bool) -> Reader | None:
        """What makes a value of a cell; None where it stays as it comes."""
        if self.mend is not None:
            return self.mend
        if self.id == "float":
            return float
        if as_text:
            return None
        readers: dict[str, Reader] = {"decimal": _decimal, "bignum": int}
        return readers.get(self.id)


def kind_of(described: Any) -> Kind:
    """What a type is to a file.

    Args:
        described: as the driver has it, with an ``id`` and ``children``.
    """
    name, native = str(described.id), str(described)
    if name in _NESTED and not _has_rows_without_names(described):
        mends = _needs_mending(described)
        return Kind(name, "json", native, _cast(described) if mends else native, _mend(described) if mends else None)
    if native == "JSON":
        return Kind(name, "json", native)
    small = native if name == "enum" else native.lower()  # labels are not ours to change
    return Kind(name, _TYPES.get(name), small)


def read(cells: Sequence[Any], reader: Reader) -> list[Any]:
    """A column, by its reader."""
    return [None if cell is None else reader(cell) for cell in cells]


def sized(rows: list[tuple[Any, ...]], wide: Sequence[int], most: int) -> Iterator[list[tuple[Any, ...]]]:
    """Rows in pieces whose cells, at these places, are together no longer than so many bytes, or one row."""
    if sum(sum(map(len, filter(None, [row[place] for row in rows]))) for place in wide) <= most:
        yield rows
        return
    piece: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        length = sum(len(row[place] or "") for place in wide)
        if piece and size + length > most:
            yield piece
            piece, size = [], 0
        piece.append(row)
        size += length
    yield piece


# -- documents -------------------------------------------------------------------------------------


def _children(described: Any) -> dict[str, Any]:
    """The types inside of one; without the tag of a union, and the length of an array."""
    hidden = ("size",) if described.id == "array" else ("",)
    return {name: child for name, child in described.children if name not in hidden}


def _is_leaf(described: Any) -> bool:
    return described.id not in _NESTED


def _has_rows_without_names(described: Any) -> bool:
    """``row(1, 'x')``: JSON has no names for its members, and no type can be written of it."""
    if _is_leaf(described):
        return False
    if described.id == "struct" and any(not name for name, _ in described.children):
        return True
    return any(map(_has_rows_without_names, _children(described).values()))


def _needs_mending(described: Any) -> bool:
    if _is_leaf(described):
        return described.id in _UNQUOTED or str(described) == "JSON"
    return any(map(_needs_mending, _children(described).values()))


def _cast(described: Any) -> str:
    """The same type with text in the place of what JSON of the engine would change."""
    if _is_leaf(described):
        return "varchar" if _needs_mending(described) else str(described)
    children = {name: _cast(child) for name, child in _children(described).items()}
    if described.id == "list":
        return f"{children['child']}[]"
    if described.id == "array":
        return f"{children['child']}[{dict(described.children)['size']}]"
    if described.id == "map":
        return f"map({children['key']}, {children['value']})"
    return f"{described.id}({', '.join(f'{quoted(name)} {child}' for name, child in children.items())})"


def _mend(described: Any) -> Reader:
    """What takes the quotes off those texts again: JSON in, JSON out, the digits of every number as they were."""
    from json import JSONDecoder
    from json.encoder import encode_basestring as text_of

    # Members come as pairs: a name may be there twice but for its case.
    decoder = JSONDecoder(object_pairs_hook=_Members, parse_int=_Digits, parse_float=_Digits)
    write = _writer(described, text_of)
    return lambda cell: write(decoder.decode(cell))


class _Members(list[tuple[str, Any]]):
    """Members of an object in their order."""


class _Digits(str):
    """A number as it is written."""

    __slots__ = ()


def _writer(described: Any, text_of: Callable[[str], str]) -> Reader:
    """What writes a value of a type, as decoded, as JSON."""
    if _is_leaf(described):
        if described.id in _UNQUOTED:
            return lambda value: "null" if value is None else _NON_FINITE.get(value, value)
        if str(described) == "JSON":
            return lambda value: "null" if value is None else value
        return lambda value: _plain(value, text_of)
    writers = {name: _writer(child, text_of) for name, child in _children(described).items()}
    if described.id in ("list", "array"):
        item = writers["child"]
        return lambda value: "null" if value is None else "[" + ",".join(map(item, value)) + "]"

    by_name = (lambda _: writers["value"]) if described.id == "map" else writers.__getitem__

    def members(value: Any) -> str:
        if value is None:
            return "null"
        return "{" + ",".join([f"{text_of(name)}:{by_name(name)(item)}" for name, item in value]) + "}"

    return members


def _plain(value: Any, text_of: Callable[[str], str]) -> str:
    if isinstance(value, _Digits):
        return str(value)
    if isinstance(value, str):
        return text_of(value)
    return {None: "null", True: "true", False: "false"}[value]


def _decimal(text: str) -> Any:
    from decimal import Decimal  # takes 2 ms to load

    return Decimal(text)

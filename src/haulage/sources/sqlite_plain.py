"""Which statements of SQLite find rows and compute nothing, and how another reader's mistakes are made to show."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from haulage.sources.sqlite_outside import Made

LOOKED_ROWS = 128  # to see of what type the columns are, and how large the rows
FIRST, ROWS = "FIRST", "ROWS"  # no parameter has a capital
# What moves through tables and indexes and compares; anything else computes.
MOVING = """
    Init Transaction Goto Halt Noop Explain OpenRead ReopenIdx Rewind Last Next Prev Rowid IdxRowid Column ResultRow
    RealAffinity Affinity DeferredSeek SeekGE SeekGT SeekLE SeekLT SeekRowid SeekScan SeekHit NotExists IdxGE IdxGT
    IdxLE IdxLT Lt Le Gt Ge Eq Ne ElseEq IsNull NotNull If IfNot And Or Not IsTrue Integer Int64 String8 Null Variable
    MustBeInt OffsetLimit IfPos DecrJumpZero Copy SCopy Once OpenEphemeral MakeRecord IdxInsert Found NotFound
    NoConflict NullRow IfNullRow BeginSubrtn Gosub Return CursorHint ColumnsUsed IfNoHope
"""
MOVES = frozenset(MOVING.split())
WRITING = "Rowid IdxRowid Integer Int64 String8 Null Variable Copy SCopy And Or Not IsTrue"
WRITES = frozenset(WRITING.split())


class Plan(NamedTuple):
    """How the readers read."""

    sql: str
    binds: Mapping[str, Any]
    kinds: Sequence[str]
    row_bytes: int
    line_end: str


def is_plain(connection: sqlite3.Connection, made: Made) -> bool:
    """Whether a statement computes nothing; one that cannot be prepared is not plain."""
    try:
        operations = connection.execute("EXPLAIN " + made.sql(""), made.binds).fetchall()
    except (sqlite3.Error, OverflowError, ValueError):
        return False
    return {operation[1] for operation in operations} <= MOVES


def planned(connection: sqlite3.Connection, made: Made) -> Plan | None:
    """The statement with what shows values that the driver would change in silence; None where it is not plain."""
    (encoding,) = connection.execute("PRAGMA encoding").fetchone()
    part = f"\nlimit :{ROWS} offset :{FIRST}"
    operations = connection.execute("EXPLAIN " + made.sql("") + part, {**made.binds, ROWS: 1, FIRST: 1}).fetchall()
    sure = _affinities(connection, operations)
    if sure is None or encoding != "UTF-8":
        return None
    rows = connection.execute(made.sql("") + f"\nlimit {LOOKED_ROWS}", made.binds).fetchall()
    kinds = [_kind(cells) for cells in zip(*rows, strict=True)]
    if not rows or None in kinds:
        return None
    shown = [_shown(*each) for each in zip(made.columns, kinds, sure, strict=True)]
    guard = " or ".join(filter(None, shown))
    more = f", case when {guard} then 'x' end" if guard else ", null"
    size = sum(len(str(cell)) + 1 for row in rows for cell in row) // len(rows)
    return Plan(made.sql(more) + part, made.binds, [kind or "" for kind in kinds], size, made.line_end)


def _kind(cells: Sequence[Any]) -> str | None:
    found = {int: "integer", float: "real", str: "text"}
    types = set(map(type, cells)) - {type(None)}
    if not types:
        return "integer"  # as the driver has it
    return found.get(types.pop()) if len(types) == 1 else None


def _shown(column: str, kind: str | None, affinity: str) -> str:
    """What is true where the driver would change a value: a float or bytes in texts, an integer in floats."""
    if kind == "text":
        return f"{column} >= x''" if affinity == "text" else f"typeof({column}) in ('real', 'blob')"
    return f"typeof({column}) = 'integer'" if kind == "real" and affinity != "real" else ""


def _affinities(connection: sqlite3.Connection, operations: Sequence[tuple[Any, ...]]) -> list[str] | None:
    """Of each column of the result real, text, or nothing where it is not sure; None if something is computed."""
    if not {operation[1] for operation in operations} <= MOVES:
        return None
    results = [(first, count) for _, name, first, count, *_ in operations if name == "ResultRow"]
    if len(results) != 1:
        return None
    # With a number of columns it is a table with rowids; the places in any other are those of an index.
    roots = {
        cursor: root
        for _, name, cursor, root, database, columns, *_ in operations
        if name == "OpenRead" and not database and str(columns).isdecimal()
    }
    first, count = results[0]
    return [_affinity(connection, operations, roots, register) for register in range(first, first + count)]


def _affinity(
    connection: sqlite3.Connection, operations: Sequence[tuple[Any, ...]], roots: Mapping[int, int], register: int
) -> str:
    writers = [
        operation
        for operation in operations
        if (operation[1] == "Column" and operation[4] == register)
        or (operation[1] in WRITES and register in (*range(operation[3], sum(operation[3:5]) + 1), operation[4]))
        or (operation[1] == "Affinity" and register in range(operation[2], sum(operation[2:4])))
    ]
    if len(writers) != 1 or writers[0][1] != "Column":
        return ""
    if any(name == "RealAffinity" and place == register for _, name, place, *_ in operations):
        return "real"
    _, _, cursor, column, *_ = writers[0]
    return "text" if column in _texts_of(connection, roots.get(cursor)) else ""


def _texts_of(connection: sqlite3.Connection, root: int | None) -> list[int]:
    """Which columns of a table have the affinity of text: no number stands in them."""
    found = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage = ?", (root,)
    ).fetchall()
    if len(found) != 1:
        return []
    columns = connection.execute("SELECT type, hidden FROM pragma_table_xinfo(?)", (found[0][0],)).fetchall()
    if any(hidden for _, hidden in columns):  # their places in a row are others
        return []
    kinds = [kind.upper() for kind, _ in columns]
    return [
        place
        for place, kind in enumerate(kinds)
        if "INT" not in kind and any(word in kind for word in ("CHAR", "CLOB", "TEXT"))
    ]

"""What a build reads and what it measured: the values that go into a source and come out of a sink.

Apart from ports.py, and named tuples instead of dataclasses, because every child of a run loads this file and
a user waits for it: a dataclass takes a millisecond to define, and the module it comes from fifteen to load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

TAIL_BYTES = 64  # of a finished file, read back to see that it ends as its format ends
# How a source and an encoder speak of cells that are JSON already (the profile ``json_fields``): with quotes but for
# the types that have none in JSON, ``null``, and a control character behind each but the last of a row.
BARE = ("integer", "decimal", "float", "boolean")
CELL_END = "\x01"
# Profiles of CSV lines whose stream may find, in the middle, that it cannot (``Unfit``), and how their lines end.
IF_FIT = {"csv if fit": "\n", "csv with crlf if fit": "\r\n"}


class Column(NamedTuple):
    """One column of a file.

    Args:
        key: the name that the query gives it.
        header: what stands in the file.
        type: declared or known type; None where the source has one per value, as SQLite does.
        native: the source's own name of its type (``numeric(12,2)``), for formats that have such types too.
        foreign: it comes as text, but is of a type that no format has, as an interval; ``written_as_text`` names it.
        visible: as declared: a condition over the columns of the query; where it is not true the cell is NULL.
    """

    key: str
    header: str
    type: str | None = None
    native: str | None = None
    foreign: bool = False
    visible: str | None = None


class Reading(NamedTuple):
    """One query as a source gets it: the operator's SQL, how it is wrapped, and what is bound."""

    sql: str
    binds: Mapping[str, Any]  # as JSON holds them; a list is for ``in (:name)``
    types: Mapping[str, str]  # the declared type of a bound name, where it is a parameter
    visible: str | None
    hidden: tuple[str, ...]
    order: tuple[str, ...]
    columns: tuple[str, ...] | None  # None: every column that is not hidden, in the query's order
    declared: Mapping[str, tuple[str, str | None]]  # key -> header, type
    session: Mapping[str, str] = MappingProxyType({})  # what is set in the database for this transaction
    blanked: Mapping[str, str] = MappingProxyType({})  # key -> under which condition its cells are there, else NULL
    limit: int | None = None  # rows at most, for one who looks at the first
    as_text: bool = False  # numbers as the source itself spells them: for a format in which all is text


class Measured(NamedTuple):
    """What a sink counted on the way."""

    size: int
    sha256: str
    tail: bytes  # the last bytes on the disk, at most TAIL_BYTES
    etag: str | None = None  # what a store of objects must say of it, if it names bytes by their digest


def unique_names(names: Sequence[str]) -> list[str]:
    """Names without duplicates: ``a, a`` becomes ``a, a_2`` (DECISIONS 18)."""
    taken: set[str] = set(names)
    seen: set[str] = set()
    unique = []
    for name in names:
        candidate, number = name, 2
        while candidate in seen or (candidate != name and candidate in taken):
            candidate, number = f"{name}_{number}", number + 1
        seen.add(candidate)
        unique.append(candidate)
    return unique

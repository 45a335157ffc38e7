"""What a database says of a table: its size, its columns, its indexes. What ``advice.py`` decides by."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from typing import NamedTuple, Protocol

NAME_MAX = 56  # characters of a name of ours: every database takes it, and a number after it


class Field(NamedTuple):
    """One column.

    Args:
        written: its name as SQL has it, in quotes where it needs them.
        type: the database's own name of its type.
        bars: why it cannot be in an index; empty where it can.
        distinct: how many values it has, as far as that is known.
        follows: how much the rows lie in its order, from 0 to 1; None where that is not known, or does not matter.
        tail: what has to follow the name in an index for conditions, as the length of a long text.
    """

    written: str
    type: str = ""
    bars: str = ""
    distinct: float | None = None
    follows: float | None = None
    tail: str = ""


class Index(NamedTuple):
    """One index that is there.

    Args:
        columns: by key; None is an expression. What every index ends with stands here too.
        only: why it does not serve every query, as it has a condition, or is broken.
        mended: what would make a broken one serve.
    """

    name: str
    columns: tuple[str | None, ...]
    only: str = ""
    mended: str = ""
    functions: tuple[str, ...] = ()  # its expressions, as the database writes them


class Table(NamedTuple):
    """One table, or a view.

    Args:
        name: as it is shown, with its schema where that is not the usual one.
        written: as SQL has it.
        rows: as far as the database knows without reading it.
        columns: by the key that names are compared with.
        view: its query, where it is a view.
        bars: why it can have no index.
        identity: what every index ends with by itself: the primary key, in databases that do so.
        how: how an index of it is made, before ``on``.
        remark: what to think of before one is made.
    """

    name: str
    written: str
    rows: int | None = None
    columns: Mapping[str, Field] = {}
    indexes: Sequence[Index] = ()
    view: str | None = None
    bars: str = ""
    identity: tuple[str, ...] = ()
    how: str = "CREATE INDEX"
    remark: str = ""


class Term(NamedTuple):
    """One column of an index to be made, with the function around it and the direction."""

    column: str
    function: str | None = None
    descending: bool = False
    nulls: str = ""  # "first" or "last", where the order says so
    pattern: bool = False  # it is to serve "begins with"


class Word(NamedTuple):
    """One name of a query."""

    text: str
    quoted: bool


class Facts(Protocol):
    """What one database knows; asked for one query at a time."""

    dialect: str  # the parser's name of its SQL
    functions: bool  # an index may hold what a function makes of a column
    optional: str  # why an optional condition can use no index; empty where it can

    def fold(self, name: str, quoted: bool) -> str:
        """A name as the database compares it."""

    def table(self, path: Sequence[Word]) -> Table | None:
        """A table by its name, as a query writes it, with its schema before it if it has one."""

    def reads_all(self, table: Table, aliases: Collection[str]) -> bool:
        """Say whether the plan reads every row of a table, which the query has under these names."""

    def finds_most(self, table: Table) -> bool:
        """Say whether the plan expects that most rows of a table stay, by the values that it was asked with."""

    def sorts(self) -> bool:
        """Say whether the plan sorts the result."""

    def rather_sorts(self, table: Table, first: Field) -> str:
        """Why a whole table is sorted rather than read by an index that begins so; empty if it is read."""

    def keeps_order(self, first: Field | None) -> bool:
        """Say whether rows found by this column (None: what a function makes of one) would come in an index's order."""

    def unfit(self, field: Field, bound: str | None, kind: str) -> str:
        """Why no index on a column serves a comparison with a value of this declared type; empty if one does."""

    def statement(self, table: Table, terms: Sequence[Term]) -> str:
        """What makes an index."""

    def refuses(self, table: Table, terms: Sequence[Term], *, finds: bool, sorts: bool) -> str:
        """Why such an index cannot be made, or would not find the rows, or give their order, as it should.

        Empty also where that cannot be tried.
        """


def named(table: Table, terms: Sequence[Term], taken: Collection[str]) -> str:
    """A name for an index that is not taken."""
    words = [table.name, *(term.column for term in terms)]
    stem = re.sub(r"\W+", "_", "_".join(words)).strip("_").lower()[:NAME_MAX]
    known = {name.lower() for name in taken}
    if stem not in known:
        return stem
    return next(name for name in (f"{stem}_{number}" for number in count(2)) if name not in known)

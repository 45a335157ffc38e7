"""One database: transactions as arguments, its clock, and its errors as ``StoreUnavailable``."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Dialect, Engine, Select, Table, UpdateBase, delete, select, tuple_
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement

from haulage.core.clock import now_ms
from haulage.core.errors import StoreUnavailable
from haulage.stores.dialect import DRIVER_ERRORS, INTEGRITY_ERRORS, driver_words


class Database:
    """The two kinds of transaction that the stores use."""

    def __init__(self, reader: Engine, writer: Engine) -> None:
        """Take the engines made by ``dialect.py``; they share their connections."""
        self.engine = reader
        self._writer = writer

    @contextmanager
    def write(self, tx: Connection | None = None) -> Iterator[Connection]:
        """A writing transaction, or the one that is given."""
        if tx is not None:
            yield tx
            return
        with answered(), self._writer.begin() as connection:
            yield connection

    @contextmanager
    def read(self, tx: Connection | None = None) -> Iterator[Connection]:
        """A reading transaction, or the one that is given."""
        if tx is not None:
            yield tx
            return
        with answered(), self.engine.connect() as connection:
            yield connection

    def forget(self, table: Table, due: ColumnElement[bool], limit: int = 1_000) -> int:
        """Delete at most so many rows that are due: a look first, so that a pass that finds nothing writes nothing."""
        key = table.primary_key.columns
        with self.read() as connection:
            found = [tuple(row) for row in connection.execute(select(*key).where(due).limit(limit))]
        if not found:
            return 0
        with self.write() as connection:
            return connection.execute(delete(table).where(tuple_(*key).in_(found), due)).rowcount

    def prepare(self, statement: Select[Any] | UpdateBase) -> Prepared:
        """A statement to be run often."""
        return Prepared(statement, self.engine.dialect)

    def now(self, now: int | None) -> int:
        """The given instant, or the store's clock: on SQLite that is the host's (DECISIONS 6)."""
        return now_ms() if now is None else now


class Prepared:
    """A statement with one result row, compiled once and run on the driver's own cursor.

    ``Connection.execute`` spends 100 us on each run of a statement that SQLite answers in 20, and a claim
    with its settle has three of them. Values are bound and read through the same types as there.
    """

    def __init__(self, statement: Select[Any] | UpdateBase, dialect: Dialect) -> None:
        """Keep the statement; what an UPDATE sets are the names it is first run with."""
        self._statement = statement
        self._dialect = dialect
        self._forms: dict[tuple[str, ...], _Form] = {}

    def first(self, connection: Connection, values: Mapping[str, Any]) -> Any:
        """Run it and read its row, or None when there is none."""
        names = tuple(values)
        form = self._forms.get(names)
        if form is None:
            form = self._forms[names] = _form_of(self._statement, self._dialect, names)
        cursor = connection.connection.cursor()
        try:
            cursor.execute(form.sql, form.bound(values))
            row = cursor.fetchone()
        finally:
            cursor.close()
        if row is None:
            return None
        return form.row(*[value if read is None else read(value) for read, value in zip(form.reads, row, strict=True)])


Convert = Callable[[Any], Any] | None


@dataclass(frozen=True, slots=True)
class _Form:
    """A statement in the words of one driver."""

    sql: str
    binds: tuple[tuple[str, Convert], ...]  # in the order of the statement
    constants: Mapping[str, Any]  # what the statement brings itself, such as a LIMIT
    reads: tuple[Convert, ...]
    row: Callable[..., Any]  # makes the named tuple
    by_position: bool

    def bound(self, values: Mapping[str, Any]) -> Sequence[Any] | Mapping[str, Any]:
        given = {**self.constants, **values}
        if self.by_position:
            return [given[name] if write is None else write(given[name]) for name, write in self.binds]
        return {name: given[name] if write is None else write(given[name]) for name, write in self.binds}


def _form_of(statement: Select[Any] | UpdateBase, dialect: Dialect, names: Sequence[str]) -> _Form:
    compiled = statement.compile(dialect=dialect, column_keys=list(names))
    assert isinstance(compiled, SQLCompiler)
    binds = {name: bind.type.dialect_impl(dialect).bind_processor(dialect) for name, bind in compiled.binds.items()}
    columns = statement.selected_columns if isinstance(statement, Select) else statement.exported_columns
    return _Form(
        sql=compiled.string,
        binds=tuple((name, binds[name]) for name in compiled.positiontup or binds),
        constants={name: value for name, value in compiled.params.items() if value is not None},
        reads=tuple(column.type.dialect_impl(dialect).result_processor(dialect, None) for column in columns),
        row=namedtuple("Row", [str(column.key) for column in columns]),  # noqa: PYI024 - its names come from the statement
        by_position=compiled.positional,
    )


@contextmanager
def answered() -> Iterator[None]:
    """Turn what a driver raises into StoreUnavailable, without its SQL and parameters.

    A row that breaks a constraint is no failure of the store but a mistake of ours, and is told as one.
    """
    try:
        yield
    except INTEGRITY_ERRORS as problem:
        raise AssertionError(f"the store refused a row: {driver_words(problem)}") from problem
    except DRIVER_ERRORS as problem:
        raise StoreUnavailable(driver_words(problem)) from problem
    except PoolTimeout as problem:
        raise StoreUnavailable("no connection to the store was free in time") from problem

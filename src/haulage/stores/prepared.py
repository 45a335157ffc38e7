"""Statements that run often: compiled once by SQLAlchemy, run on the driver's own cursor.

``Connection.execute`` spends 100 microseconds on each run of a statement that SQLite answers in 20, and a
claim with its settle has three of them. Values are bound and read through the same types as there.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from sqlalchemy import Dialect, Select, Table, Update, UpdateBase, bindparam, null
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.sql.compiler import SQLCompiler

from haulage.stores import tenants
from haulage.stores.dialect import Now, Way

Statement = Select[Any] | UpdateBase
Convert = Callable[[Any], Any] | None  # of a value on its way into or out of the driver
Make = Callable[..., Any] | None


class Prepared:
    """A statement that reads one row, or changes one."""

    def __init__(self, build: Callable[[], Statement], way: Way, make: Make = None) -> None:
        """Keep how it is built, until it is first run; what an UPDATE sets are the names it is run with.

        Args:
            make: what becomes of the cells of a row; without it they are a named tuple.
        """
        self._build = build
        self._make = make
        self._dialect, self._cursor = way
        self._forms: dict[tuple[object, ...], _Form] = {}  # by the names it was run with, and the kinds of their values

    def changed(self, driver: DBAPIConnection, values: Mapping[str, Any]) -> int:
        """Run it and say how many rows it changed."""
        form = self._form(values)
        cursor = self._cursor(driver)
        try:
            cursor.execute(form.sql, form.bound(values))
            return int(cursor.rowcount)
        finally:
            cursor.close()

    def first(self, driver: DBAPIConnection, values: Mapping[str, Any]) -> Any:
        """Run it and read its row, or None when there is none."""
        form = self._form(values)
        cursor = self._cursor(driver)
        try:
            cursor.execute(form.sql, form.bound(values))
            row = cursor.fetchone()
        finally:
            cursor.close()
        if row is None:
            return None
        values_read = list(row)
        for place, read in form.reads:
            values_read[place] = read(values_read[place])
        return form.row(*values_read)

    def all(self, driver: DBAPIConnection, values: Mapping[str, Any]) -> list[Any]:
        """Run it and read its rows, whose values need no conversion."""
        form = self._form(values)
        cursor = self._cursor(driver)
        try:
            cursor.execute(form.sql, form.bound(values))
            return [form.row(*row) for row in cursor.fetchall()]
        finally:
            cursor.close()

    def _form(self, values: Mapping[str, Any]) -> _Form:
        key = (*values, *map(type, values.values()))
        form = self._forms.get(key)
        if form is None:
            form = self._forms[key] = _form_of(self._build(), self._dialect, values, self._make)
        return form


class PerTenant:
    """A statement in two forms: over all tenants, and over one of them."""

    def __init__(self, table: Table, way: Way, build: Callable[[], Any], make: Make = None) -> None:
        """Build neither before it is first run."""
        self._every = Prepared(build, way, make)
        self._one = Prepared(lambda: build().where(tenants.of(table.c, bindparam(tenants.OF_TENANT))), way, make)

    def changed(self, driver: DBAPIConnection, values: Mapping[str, Any], tenant: str | None = None) -> int:
        """Run it and say how many rows it changed."""
        if tenant is None:
            return self._every.changed(driver, values)
        return self._one.changed(driver, {**values, tenants.OF_TENANT: tenant})

    def first(self, driver: DBAPIConnection, values: Mapping[str, Any], tenant: str | None = None) -> Any:
        """Run it and read its row, or None when there is none."""
        if tenant is None:
            return self._every.first(driver, values)
        return self._one.first(driver, {**values, tenants.OF_TENANT: tenant})


@dataclass(frozen=True, slots=True)
class _Form:
    """A statement in the words of one driver."""

    sql: str
    binds: tuple[tuple[str, str, Convert], ...]  # in the order of the statement: its name there, and that of its value
    constants: Mapping[str, Any]  # what the statement brings itself, such as a LIMIT
    reads: tuple[tuple[int, Callable[[Any], Any]], ...]  # only of the columns that have to be converted
    row: Callable[..., Any]  # what becomes of the cells
    by_position: bool

    def bound(self, values: Mapping[str, Any]) -> Sequence[Any] | Mapping[str, Any]:
        given = {**self.constants, **values} if self.constants else values
        if self.by_position:
            return [given[name] if write is None else write(given[name]) for _, name, write in self.binds]
        return {bind: given[name] if write is None else write(given[name]) for bind, name, write in self.binds}


def _form_of(statement: Statement, dialect: Dialect, values: Mapping[str, Any], make: Make) -> _Form:
    offsets = {}  # of those values that are the database's own now: by the name of the bind
    names = []
    for name, value in values.items():
        if isinstance(value, Now):
            assert isinstance(statement, Update), f"{name}: only what an UPDATE sets can be the database's own now"
            offsets[f"after_{name}"] = name
            statement = statement.values({name: value.bound_as(f"after_{name}")})
        elif value is None and isinstance(statement, Update) and name in statement.table.c:
            statement = statement.values({name: null()})
        else:
            names.append(name)
    compiled = statement.compile(dialect=dialect, column_keys=names)
    assert isinstance(compiled, SQLCompiler)
    # SQLAlchemy passes over a name that it knows nothing of; a misspelt column would be lost without a word.
    types = {name: bind.type.dialect_impl(dialect) for bind, name in compiled.bind_names.items()}
    unknown = {*names, *offsets} - set(types)
    assert not unknown, f"not in the statement: {unknown}"
    writes: dict[str, Convert] = {name: type.bind_processor(dialect) for name, type in types.items()}
    writes |= dict.fromkeys(offsets, attrgetter("offset_ms"))
    columns = statement.selected_columns if isinstance(statement, Select) else statement.exported_columns
    reads = [column.type.dialect_impl(dialect).result_processor(dialect, None) for column in columns]
    return _Form(
        sql=compiled.string,
        binds=tuple((bind, offsets.get(bind, bind), writes[bind]) for bind in compiled.positiontup or writes),
        constants={name: value for name, value in compiled.params.items() if value is not None},
        reads=tuple((place, read) for place, read in enumerate(reads) if read is not None),
        # Its names come from the statement.
        row=make or namedtuple("Row", [str(column.key) for column in columns]),  # noqa: PYI024
        by_position=compiled.positional,
    )

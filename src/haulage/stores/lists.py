"""Which runs a list shows, newest first.

PostgreSQL writes an entry into every index of a table whenever a row changes a column that any of them asks about, and
a claim changes the state. So the two indexes of lists leave out the runs that a worker holds (``tables.py``), which
are few and found by their slots; a list is then made of two parts, each from its own index. SQLite and MariaDB write
only into those indexes whose columns change, and have every run in them.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, Table, literal, literal_column, select, tuple_, union_all
from sqlalchemy.sql.elements import ColumnElement

from haulage.core.lifecycle import Lifecycle
from haulage.core.ports import Query
from haulage.stores import tenants
from haulage.stores.queue import in_state


def listed(table: Table, life: type[Lifecycle], columns: list[Any], query: Query, *, held_apart: bool) -> Select[Any]:
    """The statement of a list; it reads one run more than ``query.limit`` when there is another page."""
    wanted = select(*columns).where(*_asked(table, query))
    if not held_apart or query.parent is not None:  # In the index of parents are all of them.
        return _newest(wanted, table.c, query)
    held = sorted(life.leased_states())
    ways = {state: in_state(table, state) for state in held if query.state in (None, state)}
    parts = [_newest(wanted.where(way), table.c, query) for way in ways.values()]
    if query.state not in held:
        parts.append(_newest(wanted.where(*_unheld(table, held)), table.c, query))
    if len(parts) == 1:
        return parts[0]
    both = union_all(*parts).subquery("both")
    return _newest(select(*both.c), both.c, query)


def _asked(table: Table, query: Query) -> list[ColumnElement[bool]]:
    c = table.c
    asked = [] if query.tenant is None else [tenants.of(c, query.tenant)]
    given = {name: getattr(query, name) for name in ("account", "state", "dataset")}
    asked += [c[name] == value for name, value in given.items() if value is not None]
    if query.parent is not None:
        asked += [c.parent == query.parent.id, c.parent_kind == query.parent.kind]
    if query.parentless:
        asked.append(c.parent.is_(None))
    if query.before is not None:
        asked.append(tuple_(c.requested_at, c.id) < tuple_(*map(literal, query.before)))
    return asked


def _unheld(table: Table, held: list[str]) -> list[ColumnElement[bool]]:
    """In the words of the indexes, or a planner does not see that they answer it."""
    return [table.c.state != literal_column(f"'{state}'") for state in held]


def _newest(wanted: Select[Any], c: Any, query: Query) -> Select[Any]:
    return wanted.order_by(c.requested_at.desc(), c.id.desc()).limit(query.limit + 1)

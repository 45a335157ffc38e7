"""Where databases differ, as one interface: sqlite.py, postgresql.py and mariadb.py. A difference elsewhere is a bug.

Above this line nobody asks for a database by name. What differs in *time*: where the database's clock decides
(``clock``), an instant of now is a :class:`Now`, an expression that the database computes in the very statement
that uses it (DECISIONS 6); where the host's clock decides it is a number.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, NamedTuple, Protocol, TypeAlias

import sqlalchemy
from sqlalchemy import BigInteger, Connection, Engine, PoolProxiedConnection, bindparam, literal
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.elements import ColumnElement

from haulage.core.ports import Watcher
from haulage.stores.schema import Capabilities
from haulage.stores.tenants import Bounds

BUSY_TIMEOUT_MS = 800  # below the beat of 1 s, so that a beat that waits still fits its second
MIGRATION_WAIT_SECONDS = 10  # how long a migration waits for another one
DOOR_WAIT_SECONDS = 5.0  # how long a request waits for those before it


@dataclass(frozen=True, slots=True)
class Now:
    """The database's own now, some milliseconds later or earlier, in whatever statement it stands."""

    clock: ColumnElement[int]
    offset_ms: int = 0

    def __add__(self, milliseconds: int) -> Now:
        return Now(self.clock, self.offset_ms + milliseconds)

    def __sub__(self, milliseconds: int) -> Now:
        return self + -milliseconds

    def __clause_element__(self) -> ColumnElement[int]:
        """What SQLAlchemy puts in its place."""
        return self.clock + literal(self.offset_ms, BigInteger)

    def bound_as(self, name: str) -> ColumnElement[int]:
        """The same with its offset bound by name, for a prepared statement."""
        return self.clock + bindparam(name, type_=BigInteger)


Instant: TypeAlias = int | Now
DAMAGED = object()  # what a stored text is read as that is no JSON; tables.py says what becomes of it
UNREADABLE = (ValueError, TypeError, RecursionError)  # what a reader of JSON says of it


def read_json(text: str | bytes) -> Any:
    """What a store wrote, or ``DAMAGED``: an exception here would end each worker that claims it, and every list."""
    try:
        return json.loads(text)
    except UNREADABLE:
        return DAMAGED


class Way(NamedTuple):
    """How prepared statements are put into words, and run."""

    dialect: sqlalchemy.Dialect
    cursor: Callable[[Any], Any] = methodcaller("cursor")  # of the driver's connection


class Dialect(Protocol):
    """What one kind of database does in its own way."""

    capabilities: Capabilities
    driver_errors: tuple[type[BaseException], ...]  # of the driver itself, beside SQLAlchemy's
    clock: ColumnElement[int] | None  # milliseconds; None where the host's clock is the store's
    in_turn: bool  # writers of one process take turns, on a connection of their own
    in_one: bool  # a sweep changes all it found in one transaction
    lists_held_apart: bool  # the indexes of lists leave out what a worker holds (lists.py)
    makes_itself: bool  # a new one gets its schema when it is first opened
    place: str  # the store as messages name it, without credentials

    @property
    def bounds(self) -> Bounds | None:
        """How the database itself keeps tenants apart (tenants.py), where it does."""

    def engines(self) -> tuple[Engine, Engine]:
        """An engine that reads and one that writes, on one pool."""

    def way(self, engine: Engine) -> Way:
        """How prepared statements are put into words, and run."""

    def see_same_place(self) -> None:
        """See that what is open is still what is there.

        Raises:
            StoreUnavailable: another store was put in its place.
        """

    def hung_up(self, driver: DBAPIConnection) -> bool:
        """Say whether the server has closed a connection that nobody uses; it is not asked, so that costs nothing."""

    def begin(self, driver: DBAPIConnection, tenant: str | None = None) -> None:
        """Begin a transaction that writes; it is bound to the tenant where the database keeps them apart."""

    def begin_admission(self, connection: Connection) -> None:
        """Let no other door decide until this transaction ends."""

    def refuses(self, problem: BaseException) -> bool:
        """Say whether the row broke a constraint."""

    def conflicts(self, problem: BaseException) -> bool:
        """Say whether two transactions met and this one may simply be made again."""

    def beats(self) -> str:
        """A SELECT of the beats in the JSON bound as ``doc``: id, claim_no, news, and what ``Progress`` tells."""

    @property
    def claimer(self) -> Any:
        """How a run is claimed (claims.py)."""

    def prepare_place(self) -> None:
        """Make the place of a store that may not be there yet.

        Raises:
            StoreUnavailable: it cannot be made.
        """

    def migrator(self, writer: Engine) -> Engine:
        """An engine whose statements may take as long as they need."""

    def guard_migration(self, connection: Connection) -> None:
        """Let no other migration run beside this one.

        Raises:
            StoreUnavailable: another one runs, or the server is too old.
        """

    def watch(self, engine: Engine) -> Watcher:
        """A hint that something changed."""

    def ring(self, engine: Engine) -> None:
        """Tell those who wait for a hint, where they are told."""

    def stop_ringing(self) -> None:
        """Ring what was not rung yet, and end what rings."""

    def close(self) -> None:
        """Nothing is open any more."""


def driver_of(pooled: PoolProxiedConnection) -> DBAPIConnection:
    """The driver's own connection: each call through the pool's stand-in costs as much as a bound value."""
    driver = pooled.driver_connection
    assert driver is not None
    return driver  # type: ignore[no-any-return]


def driver_words(problem: BaseException) -> str:
    """What the driver said, without the SQL and the parameters that SQLAlchemy adds, and without the row.

    PostgreSQL's detail of a refused row is all that stands in it; SQLite tells the text that it cannot decode.
    """
    said = problem.orig if isinstance(problem, DBAPIError) else problem
    primary = getattr(getattr(said, "diag", None), "message_primary", None)
    # After the words: the text that SQLite cannot decode, or where in a function of ours it was said.
    words = str(primary or said).partition(" with text ")[0].partition("\nCONTEXT:")[0]
    return f"{type(said).__name__}: {words}"

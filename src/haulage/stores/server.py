"""What PostgreSQL and MariaDB have in common as stores: an address, a driver that may be missing, many writers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from importlib.util import find_spec
from select import POLLIN, poll
from typing import Any

from sqlalchemy import Connection, Engine, event, func, select
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, DisconnectionError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.sql.elements import ColumnElement

from haulage.core.errors import StoreUnavailable
from haulage.stores.dialect import driver_of, driver_words
from haulage.stores.queue import in_state
from haulage.stores.tables import exports, pools

POOL: dict[str, Any] = {"pool_size": 8, "max_overflow": 56, "pool_timeout": 5, "pool_use_lifo": True}
CONNECT_SECONDS = 5
STATEMENT_SECONDS = 5  # of the server, for one statement
ANSWER_SECONDS = 8  # of the client: a server that does not even say that a statement took too long is gone
IDLE_SECONDS = 10  # of a transaction whose client says nothing more: it holds locks that others wait for
POLL_SECONDS = 0.2  # between two questions whether something changed, where nobody tells; jittered


def need(module: str, extra: str) -> None:
    """See that a driver is there.

    Raises:
        StoreUnavailable: with what to install.
    """
    if find_spec(module) is None:
        raise StoreUnavailable(f"{module} not found; install the {extra} extra: pip install 'haulage[{extra}]'")


def begin_by(engine: Engine, begin: Callable[[DBAPIConnection], None], errors: tuple[type[BaseException], ...]) -> None:
    """Begin each transaction of an engine in this way.

    What is raised there SQLAlchemy knows nothing of: it gives the connection back to the pool, broken as it is, and who
    takes one next gets the same again, until the process ends.
    """

    def begun(connection: Connection) -> None:
        pooled = connection.connection
        driver = driver_of(pooled)
        try:
            begin(driver)
        except errors as problem:
            if engine.dialect.is_disconnect(problem, driver, None):  # type: ignore[arg-type]
                # The others of the pool went to the same server; each of them would fail once.
                engine.pool._invalidate(pooled, problem)  # noqa: SLF001 - what SQLAlchemy does itself
            connection.invalidate(problem)
            raise

    event.listen(engine, "begin", begun)


def is_readable(descriptor: int) -> bool:
    """Say whether words of the server, or its end, wait to be read: a look at the socket, and no round trip."""
    if descriptor < 0:
        return True
    sockets = poll()
    sockets.register(descriptor, POLLIN)
    return bool(sockets.poll(0))


def leave_those_hung_up(engine: Engine, hung_up: Callable[[DBAPIConnection], bool]) -> None:
    """Have the pool connect anew in place of a connection that a server, at its restart or after a while, has closed.

    Each that waits in the pool would fail once, however much later: one request a connection.
    """

    def look(driver: DBAPIConnection, _record: object, _pooled: object) -> None:
        if hung_up(driver):
            raise DisconnectionError

    event.listen(engine, "checkout", look)


def place_of(url: URL) -> str:
    """A store as messages name it: where it is, not who enters."""
    host = f"{url.host or 'localhost'}:{url.port}" if url.port else url.host or "localhost"
    return f"{url.get_backend_name()}://{host}/{url.database or ''}"


class PollWatcher:
    """A hint for those whom nobody tells: the pool counts changes of state, the held rows those of their progress."""

    descriptor = None

    def __init__(self, engine: Engine, progress: ColumnElement[int] | None = None) -> None:
        """Ask with connections of the pool; ``progress`` counts that of every tenant, where we cannot see it all."""
        self._engine = engine
        held = select(func.coalesce(func.sum(exports.c.revision), 0)).where(in_state(exports, "running"))
        counted = held.scalar_subquery() if progress is None else progress
        self._question = select(func.coalesce(func.sum(pools.c.changes), 0), counted)
        self._seen: tuple[Any, ...] | None = None
        self._next = 0.0

    def stirred(self) -> bool:
        """Nobody says anything."""
        return False

    def changed(self) -> bool:
        """Say whether something changed since the last call (true at the first); asked at most every so often.

        Raises:
            StoreUnavailable: the store does not answer.
        """
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + POLL_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311 - spreads askers
        try:
            with self._engine.connect() as connection:
                seen = tuple(connection.execute(self._question).one())
        except (DBAPIError, PoolTimeout) as problem:
            raise StoreUnavailable(driver_words(problem)) from problem
        changed, self._seen = seen != self._seen, seen
        return changed

    def close(self) -> None:
        """It holds nothing."""

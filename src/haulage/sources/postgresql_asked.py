"""A statement of PostgreSQL that is not waited for, and the count that runs so beside the reading of the rows."""

from __future__ import annotations

import math
import select
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from haulage.core.errors import BuildFailed
from haulage.sources.postgresql_copy import LOOK_SECONDS

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

    from haulage.sources.postgresql_session import Session


class Interrupted(BuildFailed):
    """A statement was ended because its time was over, or nobody waits for it any more."""


class Asked:
    """A statement that runs while its session is looked at from time to time."""

    def __init__(
        self,
        session: Session,
        sql: str,
        binds: Mapping[str, Any] | None,
        seconds: float | None = None,
        given_up: Callable[[], bool] | None = None,
    ) -> None:
        """Begin it; after so many seconds, or when ``given_up`` says so, it is ended."""
        self._session = session
        self._binds = binds
        self._began = time.monotonic()
        self._until = math.inf if seconds is None else self._began + seconds
        self._given_up = given_up
        self._ended = False
        with session.told(binds):
            session.link.send_query_params(sql.encode(), None)

    def done(self) -> bool:
        """Look whether its answer is here."""
        link = self._session.link
        with self._session.told(self._binds):
            link.consume_input()
            if not link.is_busy():
                return True
            if not self._ended and (time.monotonic() >= self._until or (self._given_up and self._given_up())):
                self._ended = True
                self._session.cancel()
        return False

    def result(self) -> PGresult:
        """Its rows, once it is done.

        Raises:
            Interrupted: it was ended.
        """
        with self._session.told(self._binds):
            result = self._session.result()
        if self._ended:
            self._session.back()
            raise Interrupted("source_failed", cause="the statement was ended")
        return self._session.good(result, self._binds, self._began)


class Counting:
    """A count in a session of its own; implements ``core.source.Counting``. Any thread may look.

    What goes wrong in it is no matter of the build's: a lock may be waited for that the other sessions already hold.
    Then the rows are counted when they have been read.
    """

    def __init__(
        self,
        session: Session,
        sql: str,
        binds: Mapping[str, Any] | None,
        seconds: float,
        *,
        over: Callable[[], None] | None,
        again: Callable[[], int | None],
    ) -> None:
        """Begin it.

        Args:
            session: that sees what is read.
            sql: which counts.
            binds: whose values no error may tell.
            seconds: how long it may take.
            over: gives the session back as soon as it has counted; None where it is to read rows then.
            again: counts in the session of the rows, once it is free.
        """
        self._session = session
        self._asked = Asked(session, sql, binds, seconds)
        self._over = over
        self.again = again
        self._lock = threading.Lock()
        self._is_over = False
        self._has_failed = False
        self._total: int | None = None

    def done(self) -> bool:
        """Look whether it has counted."""
        with self._lock:
            if not self._is_over:
                self._look()
            return self._is_over and not self._has_failed

    def _look(self) -> None:
        try:
            if not self._asked.done():
                return
            self._total = int(self._asked.result().get_value(0, 0) or 0)
        except Interrupted:
            pass
        except BuildFailed:
            self._has_failed = True
        self._is_over = True
        if self._over is not None:
            self._over()

    def total(self) -> int | None:
        """Wait for it, after the last row."""
        while not self.done() and not self._is_over:
            ready = select.poll()
            ready.register(self._session.descriptor, select.POLLIN)
            ready.poll(LOOK_SECONDS * 1000)
        return self.again() if self._has_failed else self._total

    def freed(self) -> Session | None:
        """The session, once it has counted."""
        return self._session if self._over is None and self.done() and self._total is not None else None

    def close(self) -> None:
        """End it, if it is not over."""
        if not self.done() and not self._is_over:
            self._session.cancel()

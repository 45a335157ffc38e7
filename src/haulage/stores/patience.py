"""A connection to PostgreSQL that does not wait for ever for an answer.

With statement_timeout, keepalives and tcp_user_timeout set, a client still hangs when what lies between accepts
its bytes and brings none back. The driver waits in steps of a tenth of a second; at each of them is looked at the
clock here. Only imported where psycopg is installed.
"""

from __future__ import annotations

import math
import select
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

if TYPE_CHECKING:
    from haulage.stores.pq import Known

R = TypeVar("R")


class PatientConnection(psycopg.Connection[Any]):
    """Gives up, and is closed, when the server says nothing for too long."""

    answer_seconds: float = math.inf
    known: dict[str, Known] | None = None  # the statements of pq.py; None where none may be prepared
    _ears: select.poll | None = None

    def wait(self, gen: Generator[Any, Any, R], *args: Any, **kwargs: Any) -> R:
        """Wait as the driver does, but not longer."""
        try:
            return super().wait(_bounded(gen, time.monotonic() + self.answer_seconds), *args, **kwargs)
        except NoAnswer:
            raise self.given_up() from None

    def has_words(self, milliseconds: float | None = 0) -> bool:
        """Say whether words of the server, or its end, wait to be read: a look at the socket, and no round trip.

        Raises:
            psycopg.OperationalError: the connection is closed.
        """
        socket = self.pgconn.socket  # Asked each time: when it is closed its number may be that of another one.
        if self._ears is None:
            self._ears = select.poll()
            self._ears.register(socket, select.POLLIN)
        return bool(self._ears.poll(milliseconds))

    def wait_until(self, instant: float, what: int = select.POLLIN) -> None:
        """Wait until it can be read or, if that is said, written.

        Raises:
            NoAnswer: it was neither until then.
        """
        milliseconds = None if instant == math.inf else max(0, instant - time.monotonic()) * 1000
        if what == select.POLLIN:
            ready = self.has_words(milliseconds)
        else:
            both = select.poll()
            both.register(self.pgconn.socket, what)
            ready = bool(both.poll(milliseconds))
        if not ready:
            raise NoAnswer

    def given_up(self) -> psycopg.OperationalError:
        """Close it: an answer that comes later would be taken for that of the next statement."""
        self.close()
        return psycopg.OperationalError(f"no answer within {self.answer_seconds:g} s")


class NoAnswer(Exception):
    """The server said nothing for too long."""


def _bounded(gen: Generator[Any, Any, R], until: float) -> Generator[Any, Any, R]:
    """The steps of the driver, with a look at the clock at each."""
    try:
        step = next(gen)
        while True:
            ready = yield step
            if time.monotonic() > until and not ready:
                raise NoAnswer
            step = gen.send(ready)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]

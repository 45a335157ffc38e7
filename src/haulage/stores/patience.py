"""A connection to PostgreSQL that does not wait for ever for an answer.

With statement_timeout, keepalives and tcp_user_timeout set, a client still hangs when what lies between accepts
its bytes and brings none back. The driver waits in steps of a tenth of a second; at each of them is looked at the
clock here. Only imported where psycopg is installed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg

R = TypeVar("R")


class PatientConnection(psycopg.Connection[Any]):
    """Gives up, and is closed, when the server says nothing for too long."""

    answer_seconds: float = math.inf

    def wait(self, gen: Generator[Any, Any, R], *args: Any, **kwargs: Any) -> R:
        """Wait as the driver does, but not longer."""
        try:
            return super().wait(_bounded(gen, time.monotonic() + self.answer_seconds), *args, **kwargs)
        except _NoAnswer:
            self.close()
            raise psycopg.OperationalError(f"no answer within {self.answer_seconds:g} s") from None


class _NoAnswer(Exception):
    pass


def _bounded(gen: Generator[Any, Any, R], until: float) -> Generator[Any, Any, R]:
    """The steps of the driver, with a look at the clock at each."""
    try:
        step = next(gen)
        while True:
            ready = yield step
            if time.monotonic() > until and not ready:
                raise _NoAnswer
            step = gen.send(ready)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]

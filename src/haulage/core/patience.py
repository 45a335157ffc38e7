"""Calls into code of the host, which may never come back: given up after a while, and never so many that they pile up.

A thread cannot be ended from outside. One whose call was given up goes on until the call ends by itself; while many
such threads are there, the next call is refused at once instead of adding another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from haulage.core.errors import HaulageError

HUNG_MAX = 32  # calls of this process that were given up and have not ended


class Overdue(HaulageError):
    """Code of the host did not answer in time."""

    code = "host_silent"


class Call:
    """One call of the host's code, to be run in whatever thread."""

    _lock = threading.Lock()
    _hung: set[Call] = set()  # noqa: RUF012 - of the process

    def __init__(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> None:
        """Take what is to be called.

        Raises:
            Overdue: so many calls hang already that this one would only join them.
        """
        self._refuse_more()
        self._function, self._arguments, self._named = function, arguments, named
        self._running = self._given_up = False

    def __call__(self) -> Any:
        """Make it."""
        with self._lock:
            self._refuse_more()  # It may have waited for its thread while others began to hang.
            self._running = True
            self._count()
        try:
            return self._function(*self._arguments, **self._named)
        finally:
            with self._lock:
                self._running = False
                self._hung.discard(self)

    def give_up(self) -> None:
        """Wait no longer for it; while it runs it counts as hanging."""
        with self._lock:
            self._given_up = True
            self._count()

    def _refuse_more(self) -> None:
        if len(self._hung) >= HUNG_MAX:
            raise Overdue("waits for others that have not ended")

    def _count(self) -> None:
        if self._running and self._given_up:
            self._hung.add(self)


def within(seconds: float, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
    """What a function of the host answers, or whatever it raises.

    Raises:
        Overdue: it took longer, or too many calls hang.
    """
    call = Call(function, *arguments, **named)
    answers: list[Any] = []
    raised: list[Exception] = []

    def run() -> None:
        try:
            answers.append(call())
        except BaseException as problem:  # noqa: BLE001 - told where it was asked for; nobody sees it here
            raised.append(problem if isinstance(problem, Exception) else RuntimeError(repr(problem)))

    thread = threading.Thread(target=copy_context().run, args=(run,), daemon=True, name="haulage host")
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not answers:
        call.give_up()
        raise Overdue(f"took longer than {seconds:g} s")
    return answers[0]

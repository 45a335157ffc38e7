"""A store that was opened before a fork: parent and child go on, each by connections of its own.

A connection to SQLite must not be carried over a fork, not even unused. Locks are not inherited, and what SQLite
knows of them is: the child would hold none of those that it believes in, also by connections that it opens itself.
When the parent ends, it then takes the log away as the last user, with every commit that the child makes from then
on. So all are closed before the fork, once the writers are done. A child that was forked while another thread used
one is told so instead of losing what it writes.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Never, Protocol

from haulage.core.errors import StoreUnavailable


class Shared(Protocol):
    """What is asked of a database."""

    def take_turn(self) -> None:
        """Wait for the writers of this process."""

    def give_turn(self) -> None:
        """Let the next writer go on."""

    def close_unused(self) -> int:
        """Close every connection that nobody uses; gives how many are used."""

    def begin_anew(self, *, usable: bool) -> None:
        """Go on in a forked process."""


_known: weakref.WeakSet[Any] = weakref.WeakSet()
_kept_open: list[object] = []
_forking = threading.local()  # what the thread that forks has found before it


def watch_over(database: Shared) -> None:
    """Have its connections closed before each fork of this process."""
    _known.add(database)


def keep_open(what: object) -> None:
    """Keep connections that must neither be used nor closed as long as this process lives."""
    _kept_open.append(what)


def refuse(*_: object) -> Never:
    """Open no connection in a process that cannot have one.

    Raises:
        StoreUnavailable: always.
    """
    raise StoreUnavailable("this process was forked while its parent used the store; open the store after the fork")


def _before() -> None:
    _forking.held, _forking.quiet = [], True
    for database in list(_known):
        try:
            database.take_turn()
        except StoreUnavailable:  # Somebody writes for very long.
            _forking.quiet = False
        else:
            _forking.held.append(database)
            _forking.quiet = database.close_unused() == 0 and _forking.quiet


def _after_in_parent() -> None:
    for database in _forking.held:
        database.give_turn()


def _after_in_child() -> None:
    for database in list(_known):  # Two may be of one file, and then each of them is spoilt by the other's use.
        database.begin_anew(usable=_forking.quiet)


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)

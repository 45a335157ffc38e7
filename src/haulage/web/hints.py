"""One thread per process that asks the store whether something changed, and wakes the streams that wait.

A hint says "look", never what changed: it may come twice, and several changes may come as one. The thread
lives while a stream waits and ends with the last one, so a process without streams asks nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from haulage.core import events
from haulage.core.errors import Refused
from haulage.core.ports import Watcher

LOOK_SECONDS = 0.25  # between two looks at the store
SILENT_SECONDS = 2.0  # before the next look at a store that did not answer


class Hints:
    """The waiting streams of this process, at most so many of one session."""

    def __init__(self, watch: Callable[[], Watcher], streams_max: int, observe: events.Observe) -> None:
        """``watch`` opens the store's own hint; it is called in the thread that uses it."""
        self._watch = watch
        self._streams_max = streams_max
        self._observe = observe
        self._lock = threading.RLock()  # a signal handler may come in while this very thread holds it
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._of_session: Counter[str] = Counter()
        self._watching = False
        self.ended = False

    def end(self) -> None:
        """Let every stream end: a server that shuts down would wait for them. May be called by a signal handler."""
        self.ended = True
        self._wake()

    @contextmanager
    def listening(self, session: str) -> Iterator[asyncio.Event]:
        """An event that is set when something may have changed, for one stream of a session.

        Raises:
            Refused: ``too_many_streams``.
        """
        event = asyncio.Event()
        with self._lock:
            if self._of_session[session] >= self._streams_max:
                raise Refused("too_many_streams", retry_after=5)
            self._of_session[session] += 1
            self._waiting[event] = asyncio.get_running_loop()
            if not self._watching:
                self._watching = True
                threading.Thread(target=self._look_on, daemon=True, name="haulage hints").start()
        try:
            yield event
        finally:
            with self._lock:
                del self._waiting[event]
                self._of_session[session] -= 1
                if not self._of_session[session]:
                    del self._of_session[session]

    def _look_on(self) -> None:
        pause = threading.Event()
        watcher: Watcher | None = None
        while self._still_wanted():
            seconds = LOOK_SECONDS
            try:
                watcher = watcher or self._watch()
                changed = watcher.changed()
            except Exception as problem:  # noqa: BLE001 - a thread that dies would leave every stream deaf
                self._observe(events.StoreFailed("hints", f"{type(problem).__name__}: {problem}", SILENT_SECONDS))
                _close(watcher)
                watcher = None
                changed, seconds = True, SILENT_SECONDS  # Unknown is a reason to look.
            if changed:
                self._wake()
            pause.wait(seconds)
        _close(watcher)

    def _still_wanted(self) -> bool:
        with self._lock:
            self._watching = bool(self._waiting)
            return self._watching

    def _wake(self) -> None:
        with self._lock:
            for event, loop in list(self._waiting.items()):
                with suppress(RuntimeError):  # A loop that was closed without its streams.
                    loop.call_soon_threadsafe(event.set)


def _close(watcher: Watcher | None) -> None:
    if watcher is not None:
        with suppress(Exception):  # It may be what failed.
            watcher.close()

"""How often a client may guess a key: a pause after each miss, and a minute's rest after ten."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from haulage.core.errors import Refused

MISSES_MAX = 10  # within REST_SECONDS
REST_SECONDS = 60
PAUSE_SECONDS = 0.25  # before a miss is answered
CLIENTS_MAX = 4_096  # remembered at once; the oldest is forgotten


class Attempts:
    """Misses by client address, in this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, pause_seconds: float = PAUSE_SECONDS) -> None:
        """``clock`` counts seconds."""
        self.pause_seconds = pause_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._misses: OrderedDict[str, list[float]] = OrderedDict()

    def admit(self, client: str) -> None:
        """Let a client try.

        Raises:
            Refused: ``too_many_attempts``, with the seconds to wait.
        """
        with self._lock:
            recent = self._recent(client)
            if len(recent) >= MISSES_MAX:
                wait = int(recent[0] + REST_SECONDS - self._clock()) + 1
                raise Refused("too_many_attempts", retry_after=wait)

    def failed(self, client: str) -> None:
        """Count a miss."""
        with self._lock:
            self._misses[client] = [*self._recent(client), self._clock()]
            self._misses.move_to_end(client)
            while len(self._misses) > CLIENTS_MAX:
                self._misses.popitem(last=False)

    def succeeded(self, client: str) -> None:
        """Forget the misses of a client that holds a key."""
        with self._lock:
            self._misses.pop(client, None)

    def _recent(self, client: str) -> list[float]:
        since = self._clock() - REST_SECONDS
        return [at for at in self._misses.get(client, ()) if at > since]

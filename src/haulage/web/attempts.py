"""How often a client may guess a key, as a bearer or at the sign-in: a pause after each miss, a rest after ten.

A client is an address, and one network of IPv6, which a single guesser can have whole. While it rests, a key that was
right from there before still counts, so that a program with an old key does not shut out the others of its host.
Many addresses together can take no more than the places to pause in; a right key never waits for one.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from haulage.core.errors import Refused

MISSES_MAX = 10  # within REST_SECONDS
REST_SECONDS = 60
PAUSE_SECONDS = 0.25  # before a miss is answered
PAUSES_MAX = 256  # misses that wait for their answer at once; above, they are answered without
CLIENTS_MAX = 4_096  # remembered at once; the oldest is forgotten
NETWORK_BITS = 64  # of IPv6


class Attempts:
    """Misses by client, in this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, pause_seconds: float = PAUSE_SECONDS) -> None:
        """``clock`` counts seconds."""
        self.pause_seconds = pause_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._misses: OrderedDict[str, list[float]] = OrderedDict()
        self._right: OrderedDict[tuple[str, bytes], None] = OrderedDict()
        self._pauses = 0

    def admit(self, address: str, key: str) -> None:
        """Let a client try a key.

        Raises:
            Refused: ``too_many_attempts``, with the seconds to wait.
        """
        client = _client(address)
        with self._lock:
            recent = self._recent(client)
            if len(recent) >= MISSES_MAX and (client, _digest(key)) not in self._right:
                wait = int(recent[0] + REST_SECONDS - self._clock()) + 1
                raise Refused("too_many_attempts", retry_after=wait)

    def failed(self, address: str, key: str) -> None:
        """Count a miss."""
        client = _client(address)
        with self._lock:
            self._right.pop((client, _digest(key)), None)
            self._misses[client] = [*self._recent(client), self._clock()]
            self._misses.move_to_end(client)
            while len(self._misses) > CLIENTS_MAX:
                self._misses.popitem(last=False)

    def succeeded(self, address: str, key: str) -> None:
        """Remember that a key is right. The misses stay: who holds one key could else guess others for ever."""
        known = (_client(address), _digest(key))
        with self._lock:
            self._right[known] = None
            self._right.move_to_end(known)
            while len(self._right) > CLIENTS_MAX:
                self._right.popitem(last=False)

    def take_back(self, address: str) -> None:
        """Count one miss less: it was counted before it was known, and was none."""
        client = _client(address)
        with self._lock:
            if misses := self._misses.get(client):
                misses.pop()

    async def pause(self) -> None:
        """Let a miss wait for its answer."""
        if self._pauses >= PAUSES_MAX:
            return
        self._pauses += 1
        try:
            await asyncio.sleep(self.pause_seconds)
        finally:
            self._pauses -= 1

    def _recent(self, client: str) -> list[float]:
        since = self._clock() - REST_SECONDS
        return [at for at in self._misses.get(client, ()) if at > since]


def _client(address: str) -> str:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((found, NETWORK_BITS), strict=False))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogatepass")).digest()

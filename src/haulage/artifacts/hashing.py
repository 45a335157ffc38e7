"""SHA-256 of a file in the making: beside whoever makes its bytes, once there are many and a second processor."""

from __future__ import annotations

import hashlib
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a small file needs none
    from queue import SimpleQueue

ALONE_BYTES = 16 * 1024 * 1024  # before a thread is worth it
WAITING = 2  # pieces for the thread, at most
LARGE = 1024 * 1024  # bytes of a piece that does not wait: it would be held together with the next


class Sum:
    """What ``hashlib`` gives; called by one thread."""

    def __init__(self) -> None:
        """Begin."""
        self._sum = hashlib.sha256()
        self._seen = 0
        self._waiting = 0
        self._todo: SimpleQueue[bytes | None] | None = None  # None ends the thread
        self._done: SimpleQueue[None] | None = None

    def __del__(self) -> None:
        """Nobody asks any more."""
        if self._todo is not None:
            self._todo.put(None)

    def update(self, data: bytes) -> None:
        """Add bytes; they may be hashed a while later, and must not be changed."""
        if self._todo is not None and len(data) <= LARGE:
            self._wait(WAITING - 1)
            self._waiting += 1
            self._todo.put(data)
            return
        self._wait(0)
        self._sum.update(data)
        self._seen += len(data)
        if self._todo is None and self._seen >= ALONE_BYTES and (os.cpu_count() or 1) > 1:
            self._start()

    def digest(self) -> bytes:
        """Of all that was added."""
        self._wait(0)
        return self._sum.digest()

    def _wait(self, most: int) -> None:
        while self._waiting > most and self._done is not None:
            self._done.get()
            self._waiting -= 1

    def _start(self) -> None:
        from queue import SimpleQueue

        todo: SimpleQueue[bytes | None] = SimpleQueue()
        done: SimpleQueue[None] = SimpleQueue()
        thread = threading.Thread(target=_hash, args=(self._sum, todo, done), daemon=True, name="hash")
        try:
            thread.start()
        except RuntimeError:  # There may be no further thread; then it is done here, as before.
            self._seen = 0
        else:
            self._todo, self._done = todo, done


def _hash(summed: hashlib._Hash, todo: SimpleQueue[bytes | None], done: SimpleQueue[None]) -> None:
    while (data := todo.get()) is not None:
        summed.update(data)
        del data
        done.put(None)

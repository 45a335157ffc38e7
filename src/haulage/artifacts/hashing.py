"""SHA-256 of a file in the making: beside whoever makes its bytes, once there are many and a second processor."""

from __future__ import annotations

import hashlib
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a small file needs none
    from queue import SimpleQueue

    Pieces = SimpleQueue[list[bytes] | None]  # None ends the thread

ALONE_BYTES = 16 * 1024 * 1024  # before a thread is worth it
AT_ONCE = 1024 * 1024  # bytes for the thread, which is woken for each of these; larger pieces do not wait for it


class Sum:
    """What ``hashlib`` gives; called by one thread. As much waits for the other as is gathered here for it."""

    def __init__(self) -> None:
        """Begin."""
        self._sum = hashlib.sha256()
        self._seen = 0
        self._gathered: list[bytes] = []
        self._size = 0
        self._is_busy = False
        self._todo: Pieces | None = None
        self._done: SimpleQueue[BaseException | None] | None = None

    def __del__(self) -> None:
        """Nobody asks any more."""
        if self._todo is not None:
            self._todo.put(None)

    def update(self, data: bytes) -> None:
        """Add bytes; they may be hashed a while later, and must not be changed."""
        if self._todo is None or len(data) > AT_ONCE:
            self._finish()
            self._sum.update(data)
            self._seen += len(data)
            if self._todo is None and self._seen >= ALONE_BYTES and (os.cpu_count() or 1) > 1:
                self._start()
            return
        self._gathered.append(data)
        self._size += len(data)
        if self._size >= AT_ONCE:
            self._wait()
            self._todo.put(self._gathered)
            self._is_busy, self._gathered, self._size = True, [], 0

    def digest(self) -> bytes:
        """Of all that was added."""
        self._finish()
        return self._sum.digest()

    def _finish(self) -> None:
        self._wait()
        for piece in self._gathered:
            self._sum.update(piece)
        self._gathered, self._size = [], 0

    def _wait(self) -> None:
        if self._is_busy and self._done is not None:
            problem = self._done.get()
            self._is_busy = False
            if problem is not None:
                raise problem

    def _start(self) -> None:
        from queue import SimpleQueue

        todo: Pieces = SimpleQueue()
        done: SimpleQueue[BaseException | None] = SimpleQueue()
        thread = threading.Thread(target=_hash, args=(self._sum, todo, done), daemon=True, name="hash")
        try:
            thread.start()
        except RuntimeError:  # There may be no further thread; then it is done here, as before.
            self._seen = 0
        else:
            self._todo, self._done = todo, done


def _hash(summed: hashlib._Hash, todo: Pieces, done: SimpleQueue[BaseException | None]) -> None:
    """Say of each load that it is done, or why not: whoever adds bytes would else wait for ever."""
    while (pieces := todo.get()) is not None:
        try:
            for piece in pieces:
                summed.update(piece)
        except BaseException as problem:  # noqa: BLE001 - it is raised where the bytes are added
            done.put(problem)
            return
        del pieces, piece
        done.put(None)

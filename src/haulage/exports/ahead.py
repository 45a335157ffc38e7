"""Reading ahead: what a server sends is received in a thread, while what came before is encoded and written.

The driver, the encoders in C, the hash and the disk all let other threads of Python run meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from queue import Queue
from typing import TypeVar

AHEAD = 2  # pieces that wait; each is bounded by the source

Piece = TypeVar("Piece")


def ahead(pieces: Generator[Piece, None, None], stop: Callable[[], None]) -> Generator[Piece, None, None]:
    """The same pieces, made in a thread that is gone when this ends or is closed.

    Args:
        pieces: used, and closed, by that thread alone.
        stop: ends what it waits for, from another thread; called only when this is closed before the end.
    """
    waiting: Queue[tuple[Piece | None, BaseException | None]] = Queue(AHEAD)
    closed = False

    def make() -> None:
        problem: BaseException | None = None
        try:
            for piece in pieces:
                waiting.put((piece, None))
                if closed:
                    break
            pieces.close()
        except BaseException as raised:  # noqa: BLE001 - it is raised where the pieces are taken
            problem = raised
        waiting.put((None, problem))

    thread = threading.Thread(target=make, daemon=True, name="ahead")
    thread.start()
    ended = False
    try:
        while True:
            piece, problem = waiting.get()
            if piece is None:
                ended = True
                if problem is not None:
                    raise problem
                return
            yield piece
    finally:
        if not ended:
            closed = True
            stop()
            while waiting.get()[0] is not None:
                pass
        thread.join()

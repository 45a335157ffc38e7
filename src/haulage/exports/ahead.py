"""Reading ahead: what a server sends is received in a thread, while what came before is encoded and written.

The driver, the encoders in C, the hash and the disk all let other threads of Python run meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from queue import Empty, Queue

AHEAD = 8  # pieces that wait: what is read as columns is gathered from as many, and must be here when it is
SILENT_SECONDS = 0.2  # for a thread that is told to end, before what it waits for is ended
LARGE = 256 * 1024  # bytes of a piece that is done with before the next is received, so that they do not add up

Piece = tuple[int, bytes]  # rows and their text


def ahead(pieces: Generator[Piece, None, None], stop: Callable[[], None]) -> Generator[Piece, None, None]:
    """The same pieces, made in a thread that is gone when this ends or is closed.

    Args:
        pieces: used, and closed, by that thread alone.
        stop: ends what it waits for, from another thread; called only when this is closed before the end.
    """
    maker = _Maker(pieces)
    maker.start()
    try:
        while (piece := maker.taken()) is not None:
            yield piece
            del piece
            maker.waiting.task_done()
    finally:
        if not maker.has_ended:
            maker.end(stop)
        maker.join()


class _Maker(threading.Thread):
    """What makes the pieces; behind the last one waits None, or what was raised."""

    def __init__(self, pieces: Generator[Piece, None, None]) -> None:
        super().__init__(daemon=True, name="ahead")
        self.waiting: Queue[Piece | BaseException | None] = Queue(AHEAD)
        self.has_ended = False
        self._pieces = pieces
        self._is_wanted = True

    def run(self) -> None:
        problem: BaseException | None = None
        try:
            self._make()
            self._pieces.close()
        except BaseException as raised:  # noqa: BLE001 - it is raised where the pieces are taken
            problem = raised
        self.waiting.put(problem)

    def _make(self) -> None:
        for piece in self._pieces:
            is_large = len(piece[1]) > LARGE
            self.waiting.put(piece)
            del piece
            if is_large:
                self.waiting.join()
            if not self._is_wanted:
                return

    def taken(self) -> Piece | None:
        """The next piece, or None after the last."""
        piece = self.waiting.get()
        if isinstance(piece, tuple):
            return piece
        self.has_ended = True
        if piece is not None:
            raise piece
        return None

    def end(self, stop: Callable[[], None]) -> None:
        """Have it make no more; the piece that was taken last is not said to be done yet.

        It ends the statement by itself, but for one that is silent: a second cancel could meet what comes after it.
        """
        self._is_wanted = False
        self.waiting.task_done()
        while True:
            try:
                if not isinstance(self.waiting.get(timeout=SILENT_SECONDS), tuple):
                    return
            except Empty:
                stop()
            else:
                self.waiting.task_done()

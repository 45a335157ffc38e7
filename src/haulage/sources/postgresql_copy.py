"""A COPY of PostgreSQL that sends; postgresql_session.py has the connection that it runs in.

Rows are read from the socket in large pieces (postgresql_wire.py), or where that cannot be one by one by the driver.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING, Any

from haulage.core.errors import BuildFailed
from haulage.sources.postgresql_wire import PIECE_BYTES, Wire
from haulage.sources.query import needed

if TYPE_CHECKING:
    from haulage.sources.postgresql_session import Session

READS_SOCKETS = sys.platform == "linux"
LOOK_SECONDS = 0.05  # between two looks at a connection that is silent, and whether its statement is to be ended
FEW_BYTES = PIECE_BYTES // 2  # are a piece for which more is waited, once
MORE_SECONDS = 0.001  # so long: a server sends 8 KiB at once, and to wake up for each of them costs both sides
AGAIN_SECONDS = 0.5  # after which a cancel is sent again: one that comes before its statement has begun is lost
ROWS = 64  # that the driver gives between two looks at their size
LARGE = 2_048  # bytes of a row after which their size is looked at, too


class Copying:
    """A COPY that sends. The driver is never asked to wait: while it waits for a row no other thread runs, not even the
    one that is to cancel, and nobody reads what other connections have sent.
    """

    def __init__(self, session: Session, sql: str, binds: Mapping[str, Any] | None) -> None:
        """Begin."""
        self._session = session
        self._link = session.link
        self._binds = binds
        self._begun = False
        self._running = True
        self._closed = False
        self._began = time.monotonic()
        self._ready = select.poll()
        self._ready.register(self._link.socket, select.POLLIN)
        self._few = False
        self._taken = 0
        self._wire: Wire | None = None
        self.count: int | None = None  # what the command's tag says, once it has ended
        with session.told(binds):
            self._link.send_query_params(sql.encode(), None)
            if READS_SOCKETS and not self._link.ssl_in_use and not self._link.flush():
                self._wire = Wire(self._link.socket)

    def take(self, *, wait: bool) -> tuple[int, bytes]:
        """How many rows, and these: those that are here, or with ``wait`` at least one. Then comes the count.

        They are about ``PIECE_BYTES``, or one row that is larger.
        """
        if wait and self._few:
            time.sleep(MORE_SECONDS)
        with self._session.told(self._binds):
            held, piece = self._come()
            while wait and not held and self._running:
                self._ready.poll(LOOK_SECONDS * 1000)
                held, piece = self._come()
        self._few = len(piece) < FEW_BYTES
        self._taken += held
        if not self._running:  # at once: who reads several lets the connection go on with something else
            self._end()
        return held, piece

    def _come(self) -> tuple[int, bytes]:
        """What is here."""
        if self._wire is None:
            return self._by_driver()
        try:
            found = self._wire.take()
        except BuildFailed:
            self._running = False
            raise
        if self._wire.ended:
            self._begun = self._wire.begun
            self._running = not self._begun  # else the driver sees what there is instead of rows
            self._wire.close()
            self._wire = None
        return found

    def _by_driver(self) -> tuple[int, bytes]:
        """Rows are gathered right here and in one buffer: to hand each of them on takes as long as all the rest."""
        if not self._begun and not self._begin():
            return 0, b""
        buffer, held = BytesIO(), 0
        write, get = buffer.write, self._link.get_copy_data
        while buffer.tell() < PIECE_BYTES:
            for number in range(1, ROWS + 1):
                length, row = get(1)
                if not length:
                    self._link.consume_input()
                    length, row = get(1)
                if length <= 0:
                    self._running = length == 0
                    return held + number - 1, buffer.getvalue()
                write(row)
                if length > LARGE:
                    break
            held += number
        return held, buffer.getvalue()

    def _begin(self) -> bool:
        """See whether the server has begun to send, which it says with its first rows."""
        self._link.consume_input()
        if self._link.is_busy():
            return False
        result = self._link.get_result()
        self._running, self._begun = False, True  # if it is an error
        self._session.good(result, self._binds, self._began, copies=True)
        self._running = True
        return True

    def _end(self) -> None:
        with self._session.told(self._binds):
            result = self._session.result()
        count = self._session.good(result, self._binds, self._began).command_tuples or 0
        if count != self._taken:  # A message is a row; what stands among them, the driver takes for their end.
            cause = f"08P01: the server counts {count:,} rows and {self._taken:,} came"
            raise BuildFailed("source_unavailable", cause=cause)
        self.count = count

    def close(self) -> None:
        """End a statement that nobody reads any more; one that has sent all, or an error, need not be cancelled."""
        if self._closed or self.count is not None:
            return
        self._closed = True
        error = needed("psycopg", "postgresql").Error
        with suppress(error, BuildFailed):
            due = 0.0
            while self._running:
                if time.monotonic() >= due:
                    self._session.cancel()
                    due = time.monotonic() + AGAIN_SECONDS
                if not self._come()[0]:
                    self._ready.poll(LOOK_SECONDS * 1000)
        if self._wire is not None:
            self._wire.close()
        with suppress(error):
            self._session.result()
        self._session.back()

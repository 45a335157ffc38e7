"""A COPY of PostgreSQL that sends; postgresql_session.py has the connection that it runs in."""

from __future__ import annotations

import select
import time
from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING, Any

from haulage.sources.query import needed

if TYPE_CHECKING:
    from haulage.sources.postgresql_session import Session

LOOK_SECONDS = 0.05  # between two looks at a connection that is silent, and whether its statement is to be ended


class Copying:
    """A COPY that sends.

    Rows are gathered right here and in one buffer, and their sizes are not added up: to hand each of them on, or to
    keep a list, takes as long as all the rest. The driver is never asked to wait: while it waits for a row no other
    thread runs, not even the one that is to cancel, and nobody reads what other connections have sent.
    """

    def __init__(self, session: Session, sql: str, binds: Mapping[str, Any] | None, *, rows: int, large: int) -> None:
        """Begin; a piece is of so many rows, or ends with a row of so many bytes."""
        self._session = session
        self._link = session.link
        self._binds = binds
        self._rows = rows
        self._large = large
        self._begun = False
        self._running = True
        self._closed = False
        self._began = time.monotonic()
        self._ready = select.poll()
        self._ready.register(self._link.socket, select.POLLIN)
        self.count: int | None = None  # what the command's tag says, once it has ended
        with session.told(binds):
            self._link.send_query_params(sql.encode(), None)

    def take(self, *, wait: bool) -> tuple[int, bytes]:
        """How many rows, and these: those that are here, or with ``wait`` a whole piece. Then comes the count."""
        if not self._running:
            self._end()
            return 0, b""
        if not self._begun and not self._begin(wait):
            return 0, b""
        buffer = BytesIO()
        write, get, held = buffer.write, self._link.get_copy_data, 0
        with self._session.told(self._binds):
            for number in range(1, self._rows + 1):
                length, row = get(1)
                if not length:
                    length, row = self._more(wait)
                if length <= 0:
                    self._running = length == 0
                    break
                write(row)
                held = number
                if length > self._large:
                    break
        return held, buffer.getvalue()

    def _begin(self, wait: bool) -> bool:
        """See whether the server has begun to send, which it says with its first rows."""
        with self._session.told(self._binds):
            self._link.consume_input()
            while self._link.is_busy():
                if not wait:
                    return False
                self._ready.poll(LOOK_SECONDS * 1000)
                self._link.consume_input()
            result = self._link.get_result()
        self._running, self._begun = False, True  # if it is an error
        self._session.good(result, self._binds, self._began, copies=True)
        self._running = True
        return True

    def _more(self, wait: bool) -> tuple[int, memoryview]:
        while True:
            self._link.consume_input()
            found = self._link.get_copy_data(1)
            if found[0] or not wait:
                return found
            self._ready.poll(LOOK_SECONDS * 1000)

    def _end(self) -> None:
        with self._session.told(self._binds):
            result = self._session.result()
        self.count = self._session.good(result, self._binds, self._began).command_tuples or 0

    def close(self) -> None:
        """End a statement that nobody reads any more; one that has sent all, or an error, need not be cancelled."""
        if self._closed or self.count is not None:
            return
        self._closed = True
        error = needed("psycopg", "postgresql").Error
        if self._running:
            self._running = False
            self._session.cancel()
            with suppress(error):
                if not self._begun:
                    self._link.get_result()
                while self._link.get_copy_data(0)[0] >= 0:
                    pass
        with suppress(error):
            self._session.result()
        self._session.back()

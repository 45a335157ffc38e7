"""A cursor for the prepared statements of PostgreSQL: libpq and nothing between.

The driver's own cursor takes 70 microseconds for each statement, to find out what the values are, whether the
statement is prepared and what comes back. Of ours that is known. Only imported where psycopg is installed.
"""

from __future__ import annotations

import json
import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import DataError
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from psycopg.types.json import Json

from haulage.stores.dialect import UNREADABLE, read_json
from haulage.stores.patience import NoAnswer, PatientConnection

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

Read = Callable[[bytes], Any]

_decode_json = json.JSONDecoder().raw_decode


def read_document(text: str) -> Any:
    """As ``read_json``, without the looks for blanks that it takes half of its time for: ours has none around it."""
    try:
        value, end = _decode_json(text)
    except UNREADABLE:
        return read_json(text)
    return value if end == len(text) else read_json(text)


READS: dict[int, Read] = {  # by the number that PostgreSQL has for a type; what is not here is text
    16: b"t".__eq__,
    20: int,
    21: int,
    23: int,
    114: lambda cell: {} if cell == b"{}" else [] if cell == b"[]" else read_document(cell.decode()),
}
DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


def write_value(value: Any) -> bytes | None:
    """A value as text; its type is that of the place where it stands in the statement.

    Raises:
        psycopg.DataError: as the driver's own cursor does.
    """
    if value is None:
        return None
    kind = value.__class__
    if kind is int:
        return b"%d" % value
    if kind is not str:
        value = json.dumps(value.obj) if isinstance(value, Json) else str(value)
    written: bytes = value.encode()
    if b"\0" in written:  # libpq would take it for the end.
        raise DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return written


@dataclass(slots=True)
class Known:
    """A statement that a connection has run."""

    name: bytes
    reads: list[Read]
    prepared: bool = False


class PqCursor:
    """What ``prepared.py`` asks of a cursor."""

    __slots__ = ("_connection", "_next", "_reads", "_result", "rowcount")

    def __init__(self, connection: PatientConnection) -> None:
        """Take a connection that nobody else uses meanwhile."""
        self._connection = connection

    def execute(self, sql: str, values: Sequence[Any]) -> None:
        """Run a statement with ``$1`` for its first value.

        Raises:
            psycopg.Error: what the server or the connection says.
        """
        known = self._connection.known
        pgconn, bound = self._connection.pgconn, [write_value(value) for value in values]
        statement = None if known is None else known.get(sql)
        if known is None or statement is None:  # Prepared when it comes back, if it may be.
            pgconn.send_query_params(sql.encode(), bound)
            self._result = self._answer(pgconn)
            self._reads = [READS.get(self._result.ftype(at), bytes.decode) for at in range(self._result.nfields)]
            if known is not None:
                known[sql] = Known(f"haulage{len(known)}".encode(), self._reads)
        else:
            if not statement.prepared:
                pgconn.send_prepare(statement.name, sql.encode())
                self._answer(pgconn)
                statement.prepared = True
            pgconn.send_query_prepared(statement.name, bound)
            self._result, self._reads = self._answer(pgconn), statement.reads
        self.rowcount = self._result.command_tuples or 0
        self._next = 0

    def _answer(self, pgconn: PGconn) -> PGresult:
        """Wait for it, but not for ever (patience.py)."""
        results = []
        try:
            until = time.monotonic() + self._connection.answer_seconds
            while pgconn.flush():
                self._connection.wait_until(until, select.POLLIN | select.POLLOUT)
                pgconn.consume_input()  # A server that answers while it is sent to would else wait for us.
            while True:
                while pgconn.is_busy():
                    self._connection.wait_until(until)
                    pgconn.consume_input()
                if (result := pgconn.get_result()) is None:
                    break
                results.append(result)
        except NoAnswer:
            raise self._connection.given_up() from None
        except BaseException:  # Somebody wants this thread to end.
            self._connection.close()
            raise
        result = results[0]  # There is another one where the server ends the connection.
        if result.status not in DONE:
            raise error_from_result(result, self._connection.info.encoding)
        return result

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row."""
        if self._next >= self._result.ntuples:
            return None
        get, row = self._result.get_value, self._next
        self._next += 1
        cells = enumerate(self._reads)
        return tuple([None if (cell := get(row, place)) is None else read(cell) for place, read in cells])

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All that are left."""
        return list(iter(self.fetchone, None))

    def close(self) -> None:
        """Nothing is open: every answer was read whole."""

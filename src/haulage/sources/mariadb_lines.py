"""CSV that the server of MariaDB builds itself: each row is one text, a line of the file.

The driver needs a while for each column of each row; a line is read past it, straight from the connection, which
is seven times as fast. Each field is written as our encoder writes it: quoted where it must be and nowhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from haulage.core.errors import BuildFailed
from haulage.sources.mariadb_session import told

if TYPE_CHECKING:
    from haulage.sources.mariadb_session import Session

CHUNK_ROWS = 1_024  # so that progress is told of a slow query too
CHUNK_BYTES = 256 * 1024
WHOLE_PACKET = 0xFFFFFF  # a row that is longer goes on in the next packet
NULL, TWO_BYTES, THREE_BYTES, EIGHT_BYTES, ERROR = 0xFB, 0xFC, 0xFD, 0xFE, 0xFF  # what a text begins with
SKIPPED = {TWO_BYTES: 3, THREE_BYTES: 4, EIGHT_BYTES: 9}  # its length, when that takes more than one byte
MARKS = "concat('[\",', char(10 using utf8mb4), char(13 using utf8mb4), ']')"  # for which a field is quoted
REPLACEMENT = "\ufffd".encode()


def plain_field(column: str) -> str:
    """A number or a day: no mark of CSV is in its text."""
    return f"ifnull({column}, '')"


def instant_field(column: str) -> str:
    """A TIMESTAMP with its zone."""
    return f"ifnull(concat({column}, '+00'), '')"


def text_field(column: str, *, alone: bool) -> str:
    r"""Text: compared byte for byte, and by its length, as trailing blanks count for nothing in a comparison.

    Args:
        column: the text.
        alone: it is the only field of its line, where a bare ``\.`` is quoted too.
    """
    text = f"convert({column} using utf8mb4) collate utf8mb4_bin"
    marked = f"{text} regexp {MARKS}"  # six times as fast as to look for one of them
    end_of_data = "concat(char(92 using utf8mb4), '.')"
    if alone:
        marked += f" or (char_length({column}) = 2 and locate({end_of_data}, {text}))"
    quoted = f"concat('\"', replace({text}, '\"', '\"\"'), '\"')"
    empty = f"when char_length({column}) = 0 then '\"\"'"
    return f"case when {column} is null then '' {empty} when {marked} then {quoted} else {text} end"


def line_of(fields: Sequence[str]) -> str:
    """A line. Not by ``concat_ws``, which leaves a field out that has become too long for the server."""
    return "concat(" + ", ',', ".join(fields) + ")" if len(fields) > 1 else fields[0]


class LineStream:
    """The lines of one query; implements ``core.ports.Stream``."""

    def __init__(self, session: Session, sql: str, binds: Mapping[str, Any], replaced: Counter[str]) -> None:
        """Remember what to ask; ``replaced`` counts what no text of a file can hold."""
        self._session = session
        self._sql = sql
        self._binds = binds
        self._replaced = replaced
        self.rows = 0

    def chunks(self) -> Generator[bytes, None, None]:
        """Whole rows, in bounded pieces."""
        with self._session.running(self._sql, self._binds) as cursor, closing(self._lines(cursor)) as lines:
            gathered: list[bytes] = []
            size = 0
            for line in lines:
                gathered.append(line)
                size += len(line)
                if size >= CHUNK_BYTES or len(gathered) == CHUNK_ROWS:
                    yield self._chunk(gathered)
                    gathered.clear()
                    size = 0
            if gathered:
                yield self._chunk(gathered)

    def _chunk(self, lines: list[bytes]) -> bytes:
        self.rows += len(lines)
        lines.append(b"")
        chunk = b"\n".join(lines)
        if b"\0" in chunk:
            self._replaced["text_replaced"] += chunk.count(b"\0")
            chunk = chunk.replace(b"\0", REPLACEMENT)
        return chunk

    def _lines(self, cursor: Any) -> Generator[bytes, None, None]:
        """What the server sends after the description of its one column, until it says that this was all."""
        result, read = cursor._result, cursor.connection._rfile.read  # noqa: SLF001 - the driver has no other way
        ended = False
        try:
            while True:
                row = _packet(read)
                first = row[0]
                if first == NULL:
                    why = "a row is longer than max_allowed_packet of the server"
                    raise BuildFailed("source_failed", cause=why)
                if first == ERROR or (first == EIGHT_BYTES and len(row) < 9):
                    ended = True
                    break
                yield row[SKIPPED.get(first, 1) :]
        finally:
            if not ended:
                self._session.kill()
                with suppress(BuildFailed):
                    while not _is_end(_packet(read)):
                        pass
            result.unbuffered_active, result.connection = False, None
        if first == ERROR:
            with told(self._binds):
                from pymysql.err import raise_mysql_exception

                raise_mysql_exception(row)


def _is_end(packet: bytes) -> bool:
    return packet[0] == ERROR or (packet[0] == EIGHT_BYTES and len(packet) < 9)


def _packet(read: Any) -> bytes:
    """One packet of the protocol: its length in three bytes, a number, and what is in it."""
    whole: bytes = b""
    while True:
        try:
            head = read(4)
            size = head[0] | head[1] << 8 | head[2] << 16
            data: bytes = read(size)
        except (OSError, IndexError) as problem:
            raise BuildFailed("source_unavailable", cause="the connection to the server broke") from problem
        if len(data) < size:
            raise BuildFailed("source_unavailable", cause="the connection to the server broke")
        if size < WHOLE_PACKET and not whole:
            return data
        whole += data
        if size < WHOLE_PACKET:
            return whole

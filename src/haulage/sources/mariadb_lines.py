"""CSV whose lines come whole from the server of MariaDB: each row is one text, its fields with a byte between them.

The driver needs a while for each column of each row. So a row is one column, it is read past the driver, straight from
the connection and many at once, and what has to be quoted is looked for in many rows at once. The bytes between fields
and for NULL are none of UTF-8, as which every text comes: no value can hold them, and none can be taken for them.
"""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from haulage.core.errors import BuildFailed
from haulage.formats.arrow import LEAST_MEMORY, allowed_memory
from haulage.sources.mariadb_session import told

if TYPE_CHECKING:
    from haulage.sources.mariadb_session import Session

PIECE_BYTES = 128 * 1024  # of the connection; as it comes, so that progress is told of a slow query too
HEAD_BYTES = 4  # of a packet: its length in three bytes, and a number
WHOLE_PACKET = 0xFFFFFF  # a row that is longer goes on in the next packet
NULL, TWO_BYTES, THREE_BYTES, EIGHT_BYTES, ERROR = 0xFB, 0xFC, 0xFD, 0xFE, 0xFF  # what a text begins with
SKIPPED = {TWO_BYTES: 3, THREE_BYTES: 4, EIGHT_BYTES: 9}  # its length, when that takes more than one byte
BETWEEN, NOTHING = b"\xff", b"\xfe"  # between two fields; a text that is NULL
EMPTY = b"\xfc"  # a text without a character, once it is found
LAST = b"\xfd"  # what ends a short line, as a field of its own
ROWS_FROM = 200_000  # to load numpy takes as long as it saves on so many
MANY_SECONDS = 0.08  # what takes longer to be counted is many rows, mostly
SHORT_BYTES = 60_000  # of a line: in the head of its packet are never the bytes that end the one before it
AS_CSV = bytes.maketrans(BETWEEN, b",")
REPLACEMENT = "\ufffd".encode()
QUOTED = re.compile(b'[",\\n\\r]').search  # finds for what a field is quoted


def plain_field(column: str) -> str:
    """A number or a day: no mark of CSV is in its text, and it is never empty."""
    return f"ifnull({column}, '')"


def instant_field(column: str) -> str:
    """A TIMESTAMP with its zone."""
    return f"ifnull(concat({column}, '+00'), '')"


def text_field(column: str) -> str:
    """Text of any character set, as the bytes of UTF-8."""
    return f"ifnull(cast(convert({column} using utf8mb4) as binary), x'{NOTHING.hex()}')"


def line_of(fields: Sequence[str], *, short: bool) -> str:
    """A line; ``concat`` would need a seventh more of the server's time."""
    return f"concat_ws(x'{BETWEEN.hex()}', " + ", ".join([*fields, f"x'{LAST.hex()}'"][: len(fields) + short]) + ")"


class LineStream:
    """The lines of one query; implements ``core.source.Stream``."""

    def __init__(
        self,
        session: Session,
        sql: str,
        binds: Mapping[str, Any],
        texts: list[bool],
        replaced: Counter[str],
        *,
        short: bool = False,
    ) -> None:
        """Remember what to ask.

        Args:
            texts: for each column whether it is text, which may be empty, or need quotes.
            replaced: counts what no text of a file can hold.
            short: every line is shorter than SHORT_BYTES, and says where it ends.
        """
        self._session = session
        self._sql = sql
        self._binds = binds
        self._texts = texts
        self._replaced = replaced
        self._short = short
        self.rows = 0

    def chunks(self) -> Generator[bytes, None, None]:
        """Whole rows, in bounded pieces."""
        kind = ShortLines if self._short else Packets
        with closing(received(self._session, self._sql, self._binds, kind)) as pieces:
            for lines in pieces:
                self.rows += len(lines)
                yield self._chunk(lines)

    def _chunk(self, lines: list[bytes]) -> bytes:
        whole = BETWEEN.join(lines)
        # No line has more of them: as many as there have to be in all are as many as there have to be in each.
        if whole.count(BETWEEN) != len(lines) * len(self._texts) - 1:
            raise BuildFailed("source_failed", cause="the server left a field out of a line")
        if self._texts == [True]:
            chunk = b"\n".join(map(_alone, lines))
        elif True in self._texts:
            chunk = self._marked(lines, whole)
        else:
            chunk = b"\n".join(lines)
        chunk = chunk.translate(AS_CSV)
        for mark, text in ((NOTHING, b""), (EMPTY, b'""')):
            if mark in chunk:
                chunk = chunk.replace(mark, text)
        if b"\0" in whole:
            self._replaced["text_replaced"] += chunk.count(b"\0")
            chunk = chunk.replace(b"\0", REPLACEMENT)
        return chunk + b"\n"

    def _marked(self, lines: list[bytes], whole: bytes) -> bytes:
        """The same lines with the quotes that they need."""
        if BETWEEN * 2 in whole or whole.startswith(BETWEEN) or whole.endswith(BETWEEN):
            lines = [self._with_empty_texts(line) for line in lines]
        if b'"' in whole or b"\r" in whole or b"\n" in whole:
            return b"\n".join([_line_with_quotes(line) if QUOTED(line) else line for line in lines])
        chunk = b"\n".join(lines)
        return _with_commas_quoted(chunk, first=self._texts[0], last=self._texts[-1]) if b"," in whole else chunk

    def _with_empty_texts(self, line: bytes) -> bytes:
        """A line whose empty texts are marked; an empty number is NULL and stays as it is."""
        fields = line.split(BETWEEN)
        for at, is_text in enumerate(self._texts):
            if is_text and not fields[at]:
                fields[at] = EMPTY
        return BETWEEN.join(fields)


def received(
    session: Session, sql: str, binds: Mapping[str, Any], kind: Callable[[Any], Packets]
) -> Generator[list[bytes], None, None]:
    """What a query answers, read past the driver; left before the end, the query is ended.

    Raises:
        BuildFailed: as ``Snapshot.batches``.
    """
    with session.running(sql, binds) as cursor:
        result = cursor._result  # type: ignore[attr-defined]  # noqa: SLF001 - the driver has no other way
        packets = kind(cursor.connection._rfile)  # type: ignore[attr-defined]  # noqa: SLF001
        try:
            while not packets.ended:
                if lines := packets.lines():
                    yield lines
        finally:
            if not packets.ended:
                session.kill()
                with suppress(BuildFailed):
                    packets.drain()
            result.unbuffered_active, result.connection = False, None
        if packets.error is not None:
            with told(binds):
                from pymysql.err import raise_mysql_exception

                raise_mysql_exception(packets.error)


def _line_with_quotes(line: bytes) -> bytes:
    return BETWEEN.join(map(_quoted, line.split(BETWEEN)))


def _alone(text: bytes) -> bytes:
    r"""A text that is the only field of its line, where a bare ``\.`` is quoted too."""
    return {b"": EMPTY, b"\\.": b'"\\."'}.get(text) or _quoted(text)


def _quoted(field: bytes) -> bytes:
    return b'"' + field.replace(b'"', b'""') + b'"' if QUOTED(field) else field


def _with_commas_quoted(chunk: bytes, *, first: bool, last: bool) -> bytes:
    """Lines in which commas are all that is to be quoted: in a third of the time that one by one would take.

    Args:
        first: a comma may be in the first field of a line.
        last: in the last.
    """
    pieces: list[bytes] = []  # in turns what stands between fields with commas, and such a field
    find, find_last = chunk.find, chunk.rfind
    done, at, size = 0, find(b","), len(chunk)
    while at >= 0:
        start = find_last(BETWEEN, done, at) + 1
        if first:
            start = max(start, find_last(b"\n", done, at) + 1)
        end = find(BETWEEN, at)
        if end < 0:
            end = size
        if last and (line_end := find(b"\n", at, end)) >= 0:
            end = line_end
        pieces += (chunk[done:start], chunk[start:end])
        done, at = end, find(b",", end)
    pieces.append(chunk[done:])
    return b'"'.join(pieces)


class Packets:
    """The packets of rows of one text, until the server says that this was all, or why there are no more."""

    def __init__(self, file: Any) -> None:
        """Read from the connection's file."""
        self._file = file
        self._rest = b""
        self.ended = False
        self.error: bytes | None = None

    def lines(self) -> list[bytes]:
        """What has come by now, one line at least if there is one."""
        data = self._rest + self._read(self._file.read1, PIECE_BYTES)
        lines: list[bytes] = []
        at, come = 0, len(data)
        while at + HEAD_BYTES < come:
            end = at + HEAD_BYTES + (data[at] | data[at + 1] << 8 | data[at + 2] << 16)
            if end > come:  # so is a packet that another one continues: it is longer than what is looked at
                break
            first = data[at + HEAD_BYTES]
            if first < NULL:
                lines.append(data[at + 5 : end])
            elif first == TWO_BYTES:
                lines.append(data[at + 7 : end])
            elif self._is_row(data[at + HEAD_BYTES : end]):
                lines.append(_text(data[at + HEAD_BYTES : end]))
            at = end
        self._rest = data[at:]
        if not lines and not self.ended:
            packet = self._packet()
            if self._is_row(packet):
                lines.append(_text(packet))
        return lines

    def drain(self) -> None:
        """Read on to the end, and keep nothing."""
        while not self.ended:
            self.lines()

    def _is_row(self, packet: bytes) -> bool:
        if packet[0] == ERROR:
            self.error = packet
        elif packet[0] != EIGHT_BYTES or len(packet) >= SKIPPED[EIGHT_BYTES]:
            return True
        self.ended = True
        return False

    def _packet(self) -> bytes:
        """The next packet, waited for; one that is as long as can be goes on in another."""
        whole = b""
        while True:
            head = self._take(HEAD_BYTES)
            size = head[0] | head[1] << 8 | head[2] << 16
            whole += self._take(size)
            if size < WHOLE_PACKET:
                return whole

    def _take(self, size: int) -> bytes:
        taken, self._rest = self._rest[:size], self._rest[size:]
        if len(taken) < size:
            taken += self._read(self._file.read, size - len(taken))
        if len(taken) < size:
            raise BuildFailed("source_unavailable", cause="the connection to the server broke")
        return taken

    def _read(self, read: Callable[[int], bytes], size: int) -> bytes:
        try:
            data = read(size)
        except OSError as problem:
            raise BuildFailed("source_unavailable", cause="the connection to the server broke") from problem
        if not data:
            raise BuildFailed("source_unavailable", cause="the connection to the server broke")
        return data


class ShortLines(Packets):
    """Packets of short lines that say where they end: so they are split in one go, and need not be measured."""

    def lines(self) -> list[bytes]:
        """What has come by now; there may be nothing whole."""
        data = self._rest + self._read(self._file.read1, PIECE_BYTES)
        *packets, rest = data.split(BETWEEN + LAST)
        self._rest = rest
        if len(rest) > HEAD_BYTES and rest[HEAD_BYTES] not in (*range(NULL), TWO_BYTES):
            self._is_row(self._packet())
        return [packet[5:] if packet[HEAD_BYTES] < NULL else packet[7:] for packet in packets]


def _text(packet: bytes) -> bytes:
    """The line in a packet."""
    if packet[0] == NULL:
        raise BuildFailed("source_failed", cause="a row is longer than max_allowed_packet of the server")
    return packet[SKIPPED.get(packet[0], 1) :]


def many_rows(counted: int) -> Any:
    """What joins the fields of so many rows at once; None where it does not pay, or cannot be had."""
    return None if counted < ROWS_FROM else _rows_loaded()


@contextmanager
def rows_loading() -> Iterator[None]:
    """Load what many rows need, while it is found out that they are many."""
    loading = threading.Timer(MANY_SECONDS, _rows_loaded)
    loading.daemon = True
    loading.start()
    try:
        yield
    finally:
        loading.cancel()


def _rows_loaded() -> Any:
    """The same, of however many."""
    if allowed_memory() < LEAST_MEMORY:
        return None
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the stack of each counts as memory
    try:
        from haulage.sources import mariadb_rows
    except ImportError:
        return None
    return mariadb_rows

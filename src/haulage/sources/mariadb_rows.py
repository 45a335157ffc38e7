"""CSV out of the rows of MariaDB as they come, taken apart and joined many at once by numpy.

A server needs a third more of its time to join the fields of a line itself (``mariadb_lines.py``), and is what all
waits for. In its protocol each field follows the byte of its length. So where the n-th fields of many rows begin is
known from where the ones before them do, and those very bytes become the commas. What is put in their places until
all is known, and what is to be left out, are bytes that UTF-8 has not, as which every text comes.
"""

from __future__ import annotations

import select
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from haulage.core.errors import BuildFailed
from haulage.sources.mariadb_lines import (
    BETWEEN,
    EIGHT_BYTES,
    ERROR,
    HEAD_BYTES,
    LAST,
    NULL,
    REPLACEMENT,
    TWO_BYTES,
    Packets,
    received,
)

if TYPE_CHECKING:
    from haulage.sources.mariadb_session import Session

    Places: TypeAlias = np.ndarray[Any, np.dtype[np.intp]]
    Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]

PIECE_BYTES = 256 * 1024  # of the connection
ENOUGH_BYTES = 128 * 1024  # to be taken apart at once, if they come soon
SOON_MILLISECONDS = 5
END = BETWEEN + LAST  # a field after the last one: where a row ends is seen without measuring it
_ROW_END = bytes([len(END)]) + END
_LEFT_OUT, _COMMA, _LINE_END = 0xF9, 0xFF, 0xFB
_OPENS, _CLOSES, _BOTH, _CLOSED_LINE = 0xFE, 0xFD, 0xFC, 0xFA  # a comma with the quotes after, before and around it
_QUOTE, _QUOTE_TWICE = 0x22, 0xF8
_FOREIGN = 0xF5  # to UTF-8, and all above
_OPENED = np.arange(256, dtype=np.uint8)
_OPENED[[_LEFT_OUT, _COMMA]] = _QUOTE, _OPENS
_CLOSED = np.arange(256, dtype=np.uint8)
_CLOSED[[_COMMA, _OPENS, _LINE_END]] = _CLOSES, _BOTH, _CLOSED_LINE
_PLAIN = bytes.maketrans(bytes([_COMMA, _LINE_END]), b",\n")
_WRITTEN = {_OPENS: b',"', _CLOSES: b'",', _BOTH: b'","', _CLOSED_LINE: b'"\n', _QUOTE_TWICE: b'""'}


def row_of(fields: Sequence[str]) -> str:
    """The SQL of a row that ends with a mark."""
    return ", ".join([*fields, f"x'{END.hex()}'"])


class RowStream:
    """The rows of one query; implements ``core.source.Stream``."""

    def __init__(
        self, session: Session, sql: str, binds: Mapping[str, Any], fields: int, replaced: Counter[str]
    ) -> None:
        """Remember what to ask.

        Args:
            fields: of a row; at least two, as there are rules of its own for a field that is alone.
            replaced: counts what no text of a file can hold.
        """
        self._session = session
        self._sql = sql
        self._binds = binds
        self._fields = fields
        self._replaced = replaced
        self.rows = 0

    def chunks(self) -> Generator[bytes, None, None]:
        """Whole rows, in bounded pieces."""
        with closing(received(self._session, self._sql, self._binds, _whole_rows)) as pieces:
            for (packets,) in pieces:
                yield self._chunk(packets)

    def _chunk(self, packets: bytes) -> bytes:
        chunk = bytearray(packets)
        piece = _Piece(chunk, self._fields)
        self.rows += piece.rows
        piece.mark()
        signs = [sign for sign in b',"\n\r' if sign in chunk]
        if signs or piece.empty:
            piece.quote(signs)
        made = chunk.translate(_PLAIN, bytes([_LEFT_OUT]))
        if signs or piece.empty:
            for code, text in _WRITTEN.items():
                if code in made:
                    made = made.replace(bytes([code]), text)
        if 0 in made:
            self._replaced["text_replaced"] += made.count(0)
            made = made.replace(b"\0", REPLACEMENT)
        return bytes(made)


class _Piece:
    """Packets of some rows, changed where they are."""

    def __init__(self, packets: bytearray, fields: int) -> None:
        """Find where each field begins.

        Raises:
            BuildFailed: a row has more or fewer fields than it should.
        """
        self._bytes: Bytes = np.frombuffer(packets, np.uint8)
        self._long: list[Places] = []  # where fields begin whose length takes three bytes
        self.empty: list[Places] = []  # which fields of all are texts without a character
        ends = np.flatnonzero(self._bytes == _ROW_END[2])
        ends = ends[self._bytes[ends - 1] == _ROW_END[1]] - 2  # rows are short: no length has these two
        self.rows = len(ends)
        self._places: Places = np.empty((fields + 1, self.rows), np.intp)  # of the bytes of the lengths
        at = np.concatenate(([HEAD_BYTES], ends[:-1] + len(_ROW_END) + HEAD_BYTES))
        for field in range(fields):
            self._places[field] = at
            at = self._after(at, field)
        if not np.array_equal(at, ends):
            raise BuildFailed("source_failed", cause="the server left a field out of a row")
        self._places[-1] = at

    def _after(self, at: Places, field: int) -> Places:
        """Where the next field of each row begins."""
        lengths = self._bytes[at]
        if not lengths.all():
            self.empty.append(np.flatnonzero(lengths == 0) * len(self._places) + field)
        if lengths.max() < NULL:
            return at + lengths + 1
        sizes = lengths.astype(np.intp)
        sizes[lengths == NULL] = 0
        if TWO_BYTES in lengths:
            chosen = lengths == TWO_BYTES
            long = at[chosen]
            low, high = (self._bytes[long + after].astype(np.intp) for after in (1, 2))
            sizes[chosen] = 2 + low + 256 * high
            self._long.append(long)
        return at + sizes + 1

    def mark(self) -> None:
        """Put in place what will stand between the fields.

        Raises:
            BuildFailed: some text is no UTF-8.
        """
        self._bytes[self._places[1:-1]] = _COMMA
        self._bytes[self._places[-1]] = _LINE_END
        left_out = [*(self._places[0] - before for before in range(HEAD_BYTES + 1)), self._places[-1] + 1]
        left_out += [self._places[-1] + 2, *(long + after for long in self._long for after in (1, 2))]
        for places in left_out:
            self._bytes[places] = _LEFT_OUT
        put = sum(map(len, left_out)) + self.rows * (len(self._places) - 1)
        if np.count_nonzero(self._bytes >= _FOREIGN) != put:
            raise BuildFailed("source_failed", cause="the server sent text that is no UTF-8")

    def quote(self, signs: Sequence[int]) -> None:
        """Change what stands around fields that have one of the signs, or are empty texts."""
        width = len(self._places)
        begins = self._places.T.ravel()
        fields = self.empty.copy()
        for sign in signs:
            found = np.flatnonzero(self._bytes == sign)
            fields.append(np.searchsorted(begins, found) - 1)
            if sign == _QUOTE:
                self._bytes[found] = _QUOTE_TWICE
        quoted = np.zeros(len(begins), np.bool_)
        quoted[np.concatenate(fields)] = True
        which = np.flatnonzero(quoted)
        marks = np.full(len(begins), _COMMA, np.uint8)
        marks[0::width], marks[width - 1 :: width] = _LEFT_OUT, _LINE_END
        marks[which] = _OPENED[marks[which]]
        marks[which + 1] = _CLOSED[marks[which + 1]]
        self._bytes[begins] = marks


class WholeRows(Packets):
    """Packets of short rows, each of which says where it ends: as many as have come, in one piece."""

    def __init__(self, file: Any, more: Callable[[], bool]) -> None:
        """Read from the connection's file; ``more`` says whether more of it is there, or comes soon."""
        super().__init__(file)
        self._more = more

    def lines(self) -> list[bytes]:
        """What has come by now as one text; there may be nothing whole."""
        data = self._rest + self._come()
        whole = data.rfind(_ROW_END) + len(_ROW_END)
        if whole < len(_ROW_END):
            whole = 0
        self._rest = data[whole:]
        # The first field of a row that goes on is never so long.
        if len(self._rest) > HEAD_BYTES and self._rest[HEAD_BYTES] in (EIGHT_BYTES, ERROR):
            self._is_row(self._packet())
        return [data[:whole]] if whole else []

    def _come(self) -> bytes:
        """Some bytes, and those that come soon after them; a slow query does not wait for many."""
        data = self._read(self._file.read1, PIECE_BYTES)
        while len(data) < ENOUGH_BYTES and self._more():
            data += self._read(self._file.read1, PIECE_BYTES)
        return data


def _whole_rows(file: Any) -> WholeRows:
    """Those of a connection; of one that is encrypted some may have come that are not to be seen from outside."""
    waiting = select.poll()
    waiting.register(file, select.POLLIN)
    decrypted = getattr(file.raw._sock, "pending", lambda: 0)  # noqa: SLF001 - there is no other way to know
    return WholeRows(file, lambda: bool(decrypted() or waiting.poll(SOON_MILLISECONDS)))

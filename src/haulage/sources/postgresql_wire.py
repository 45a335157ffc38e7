"""Rows of a COPY out of the connection's own socket: the driver has a call for each of them, and that takes longest.

What a server sends is messages: a letter, four bytes of length that count themselves, and the content. Those of the
rows, and of what comes before and between them, are taken here. The first one of any other kind is left where it is,
in the socket, for the driver, which has sent the statement and waits for its end: so errors, the tag with the count
and the state of the connection stay its own. Whether a connection can be read so is seen from its first bytes: where
they are not what must come first, as on one that is encrypted, nothing is taken and the driver reads it all.
"""

from __future__ import annotations

import os
import socket
import struct
from io import BytesIO

from haulage.core.errors import BuildFailed

PIECE_BYTES = 128 * 1024  # at once; more does not stay near the processor
LINE_MAX = 2_048  # bytes of a row that is found by its line end; others are found by their length
WALKED = 16  # pieces that are read by their lengths at once, where one could not be read by its lines
_FIRST = b"1\0\0\0\x04"  # the statement is parsed
_BEFORE = b"12nH"  # parsed, bound, has no columns, will copy
_ASIDE = b"NSA"  # notices, settings, what was notified: at any time
_ROW, _START, _SETTING = b"dHS"
_AFTER = b"cE"  # all is copied, or an error: for the driver
_LENGTH = struct.Struct(">I").unpack_from
_HEADS = [b""] * 5 + [b"d" + (size - 1).to_bytes(4, "big") for size in range(5, LINE_MAX)]  # by the size of a message


class Wire:
    """What one COPY sends, from the statement on."""

    def __init__(self, descriptor: int) -> None:
        """Take a connection whose statement has left, and of whose answer the driver has read nothing."""
        self._socket = socket.socket(fileno=os.dup(descriptor))  # so that it can be closed
        self._socket.setblocking(False)
        self._passed = bytearray(PIECE_BYTES)
        self._is_known = False
        self._rest = b""  # of a message that is not whole yet
        self._long: BytesIO | None = None  # a row that is larger than a piece
        self._missing = 0  # of a message that is larger than a piece
        self._walked = 0
        self.begun = False  # the server has said that it will copy
        self.ended = False  # what comes now is for the driver

    def take(self) -> tuple[int, bytes]:
        """How many rows, and these, of those that are here: about a piece, or one that is larger."""
        if self._missing:
            return self._more()
        came = self._come(PIECE_BYTES - len(self._rest), socket.MSG_PEEK)
        if not came or not (self._is_known or self._knows(came)):
            return 0, b""
        data = self._rest + came if self._rest else came
        rows, text, read = self._read(data)
        # What has come of the next message stays in the socket, until there is nothing before it.
        rest = b"" if read or self.ended else data
        taken = (read or len(rest)) - len(self._rest)
        while taken:  # nothing is copied where the kernel can pass over it
            taken -= self._socket.recv_into(self._passed, taken, socket.MSG_TRUNC)
        self._rest = rest
        if len(self._rest) >= 5 and (size := _LENGTH(self._rest, 1)[0] + 1) > PIECE_BYTES:
            if self._rest[0] == _ROW:
                self._long = BytesIO()
                self._long.write(self._rest[5:])
            self._missing, self._rest = size - len(self._rest), b""
        return rows, text

    def close(self) -> None:
        """Leave the socket to the driver."""
        self._socket.close()

    def _come(self, size: int, how: int = 0) -> bytes:
        """What is here, at most so much. A connection that is lost ends, as the driver finds out and says."""
        try:
            came = self._socket.recv(size, how)
        except BlockingIOError:
            return b""
        except OSError:
            came = b""
        self.ended = not came
        return came

    def _knows(self, came: bytes) -> bool:
        """Whether the answer begins as it must; until the first bytes are here, nobody knows."""
        self._is_known = came.startswith(_FIRST)
        self.ended = not _FIRST.startswith(came[:5])
        return self._is_known

    def _more(self) -> tuple[int, bytes]:
        """Go on with a message that is larger than a piece."""
        while self._missing and (came := self._come(min(self._missing, PIECE_BYTES))):
            self._missing -= len(came)
            if self._long is not None:
                self._long.write(came)
        if self._missing or self._long is None:
            return 0, b""
        row, self._long = self._long, None
        return 1, row.getvalue()

    # -- messages ----------------------------------------------------------------------------------------

    def _read(self, data: bytes) -> tuple[int, bytes, int]:
        """The rows in these messages, and how much of it is read: all whole messages, or up to one for the driver."""
        count, text, read = 0, b"", 0
        if self._walked:
            self._walked -= 1
        elif self.begun:
            found = _lines(data)
            if found is None:
                self._walked = WALKED
            else:
                count, text, read = found
        rows: list[bytes] = []
        read = self._walk(data, read, rows)
        if rows:
            count, text = count + len(rows), text + b"".join(rows)
        return count, text, read

    def _walk(self, data: bytes, at: int, rows: list[bytes]) -> int:
        """From one message to the next."""
        end = len(data)
        while at < end:
            kind = data[at]
            if kind != _ROW and self._is_for_driver(kind):
                self.ended = True
                break
            if end - at < 5:
                break
            (size,) = _LENGTH(data, at + 1)
            after = at + 1 + size
            if size < 4:
                raise _garbled(f"a message of {size} bytes")
            if after > end:
                break
            if kind == _ROW:
                rows.append(data[at + 5 : after])
            else:
                self._see(kind, data[at + 5 : after])
            at = after
        if rows and not self.begun:
            raise _garbled("rows before it began to copy")
        return at

    def _is_for_driver(self, kind: int) -> bool:
        if kind in _ASIDE:
            return False
        if not self.begun:
            return kind not in _BEFORE
        if kind not in _AFTER:  # The driver would pass over the rows behind it without a word.
            raise _garbled(f"{chr(kind)!r} among the rows")
        return True

    def _see(self, kind: int, content: bytes) -> None:
        if kind == _START:
            if content[:1] != b"\0":
                raise _garbled("rows that are no text")
            self.begun = True
        elif kind == _SETTING and content.startswith(b"client_encoding\0"):
            # The driver goes by it when it quotes a literal, and does not see it here.
            raise BuildFailed("source_failed", cause="the query changes client_encoding")


def _lines(data: bytes) -> tuple[int, bytes, int] | None:
    """The same where each row is one line, in a third of the time; None where one is not, or not by its length.

    What stands before each line is compared with what must stand before one of its size. So the first line is the
    first message, what comes after it the second one, and so on: there is nothing that could be cut wrongly.
    """
    heads, read = _HEADS, data.rfind(b"\n") + 1
    try:
        lines = [line.removeprefix(heads[len(line)]) for line in BytesIO(data)]  # quicker than map with its functions
    except IndexError:
        return None
    if read < len(data):
        lines.pop()  # the rest
    text = b"".join(lines)
    return (len(lines), text, read) if len(text) == read - 5 * len(lines) else None


def _garbled(what: str) -> BuildFailed:
    return BuildFailed("source_unavailable", cause=f"08P01: the server sent {what}")

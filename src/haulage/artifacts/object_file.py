"""One finished object, read like a file."""

from __future__ import annotations

import io
from typing import Any

from haulage.artifacts.bucket import Bucket, Refusal

READ_TRIES = 3  # of one piece, when a connection breaks


class ObjectFile(io.RawIOBase):
    """One object, read from where one wants to; a broken connection is made again, a changed object is an end."""

    def __init__(self, bucket: Bucket, name: str, size: int, etag: str) -> None:
        """As it was measured."""
        super().__init__()
        self._bucket = bucket
        self._name = name
        self._size = size
        self._etag = etag
        self._at = 0
        self._stream: Any = None

    def readable(self) -> bool:
        """It is all that one can do."""
        return True

    def seekable(self) -> bool:
        """One can also begin elsewhere."""
        return True

    def tell(self) -> int:
        """Where the next byte comes from."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go on from another byte."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence] + offset
        if start != self._at:
            self._let_go()
            self._at = start
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Some bytes; none at the end, and none where the object is not the one that was opened.

        Raises:
            ArtifactsUnavailable: the server does not answer, also when asked again.
        """
        wanted = min(len(buffer), self._size - self._at)
        for left in reversed(range(READ_TRIES if wanted > 0 else 0)):
            try:
                data = self._read(wanted)
            except Refusal as refusal:
                self._let_go()
                if not left or not refusal.worth_another_try:
                    raise
            else:
                buffer[: len(data)] = data
                self._at += len(data)
                return len(data)
        return 0

    def _read(self, wanted: int) -> bytes:
        """Some bytes from here on; none where the object has gone or is another."""
        try:
            if self._stream is None:
                self._stream = self._bucket.get(self._name, self._at, self._etag)
        except FileNotFoundError:
            return b""
        except Refusal as refusal:
            if refusal.status in (412, 416):
                return b""
            raise
        return self._bucket.read(self._stream, wanted)

    def close(self) -> None:
        """Give the connection back."""
        self._let_go()
        super().close()

    def _let_go(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

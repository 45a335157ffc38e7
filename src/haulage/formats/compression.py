"""Whole files made smaller. A compressed file is a file of its own: own suffix, own media type, own digest.

The same input gives the same bytes: no name and no time goes into a header. Both kinds carry a checksum of
the content, so a reader notices a damaged file by itself.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

DEFLATE_LEVEL = 1  # level 6 is a third of the speed and would be the slowest part of an export by far
GZIP_WINDOW = 31  # 15 bits of window, and 16 asks zlib for the gzip header and trailer with time 0
PIECE_BYTES = 64 * 1024  # what ISA-L makes of data depends on the pieces that it gets, so it gets them of one size
ZSTD_LEVEL = 3  # zstd's own default, faster than any source


class Compressor(Protocol):
    """One compressed file in the making."""

    def compress(self, data: bytes) -> bytes:
        """Take more of the file, give what is ready."""

    def finish(self) -> bytes:
        """Give the rest. Nothing may follow."""


class Compression(NamedTuple):  # defined ten times as fast as a dataclass, and each child waits for it
    """One way to make a file smaller.

    Args:
        missing: None when it can be used here, else what to install.
        open: starts a file.
    """

    name: str
    suffix: str
    media_type: str
    missing: Callable[[], str | None]
    open: Callable[[], Compressor]


class _Stream(Protocol):
    def compress(self, data: bytes | memoryview, /) -> bytes: ...

    def flush(self) -> bytes: ...


def _stream(window: int) -> _Stream:
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.compressobj(DEFLATE_LEVEL, zlib.DEFLATED, window)
    stream: _Stream = isal_zlib.compressobj(DEFLATE_LEVEL, isal_zlib.DEFLATED, window)
    return stream


class Deflate:
    """A deflate stream, by ISA-L where it is installed (the ``fast`` extra) and by the standard library otherwise."""

    __slots__ = ("_stream", "_waiting")

    def __init__(self, window: int) -> None:
        self._stream = _stream(window)
        self._waiting = b""

    def compress(self, data: bytes) -> bytes:
        data = self._waiting + data
        whole = len(data) - len(data) % PIECE_BYTES
        view = memoryview(data)
        self._waiting = bytes(view[whole:])
        pieces = [view[at : at + PIECE_BYTES] for at in range(0, whole, PIECE_BYTES)]
        return b"".join(map(self._stream.compress, pieces))

    def finish(self) -> bytes:
        return self._stream.compress(self._waiting) + self._stream.flush()


class Zstd:
    """A Zstandard file of one frame, by the standard library from 3.14 on and its backport before."""

    __slots__ = ("_stream",)

    def __init__(self) -> None:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd

        parameter = zstd.CompressionParameter
        self._stream = zstd.ZstdCompressor(
            options={parameter.compression_level: ZSTD_LEVEL, parameter.checksum_flag: 1}
        )

    def compress(self, data: bytes) -> bytes:
        return self._stream.compress(data)

    def finish(self) -> bytes:
        return self._stream.flush()


def _zstd_missing() -> str | None:
    try:
        Zstd()
    except ImportError:
        return "pip install 'haulage[zstd]'"
    return None


COMPRESSIONS: Mapping[str, Compression] = MappingProxyType(
    {
        "gzip": Compression("gzip", ".gz", "application/gzip", lambda: None, lambda: Deflate(GZIP_WINDOW)),
        "zstd": Compression("zstd", ".zst", "application/zstd", _zstd_missing, Zstd),
    }
)

"""A ZIP archive that is written from front to back, as a format inside of one needs it (xlsx.py).

An entry's sizes and checksum stand after its bytes (a data descriptor, flag bit 3), since nobody can go back to its
header. What does not fit into 32 bits is written in ZIP64, there and in the directory at the end, and only then: some
readers take an archive that is ZIP64 without need for a damaged one. No clock goes into the file.
"""

from __future__ import annotations

import zlib
from struct import pack

from haulage.formats.compression import Deflate

BARE_WINDOW = -15  # 15 bits, and no header or trailer around the stream
LARGEST_32 = 0xFFFFFFFF  # this and more needs ZIP64
ELSEWHERE = 0xFFFFFFFF  # stands where a number of 32 bits would, when it is written in ZIP64
DAY_ONE = 0x21  # 1980-01-01, the first day that ZIP knows; the time is 0
VERSION, VERSION_64 = 20, 45  # of the specification that a reader has to know
SIZES_BEHIND, UTF_8 = 0x0008, 0x0800  # flags
DEFLATED = 8


class Archive:
    """One archive in the making: ``entry``, then ``write`` as often as needed, for each; ``end``."""

    def __init__(self) -> None:
        """Start empty."""
        self._at = 0  # bytes given out so far
        self._directory: list[bytes] = []
        self._open: _Entry | None = None

    def entry(self, name: str) -> bytes:
        """Close the entry before, and begin another."""
        closed = self._close()
        self._open = _Entry(name.encode("ascii"), self._at)
        return closed + self._given(self._open.header())

    def write(self, data: bytes) -> bytes:
        """More of the open entry."""
        assert self._open is not None, "an entry is begun before it is written"
        return self._given(self._open.write(data))

    def end(self) -> tuple[bytes, bytes]:
        """What is left, and of it what the whole archive ends with."""
        rest = self._close()
        directory, at, entries = b"".join(self._directory), self._at, len(self._directory)
        wide = b""
        assert entries < 0xFFFF, "a workbook has a few"
        if at >= LARGEST_32 or len(directory) >= LARGEST_32:
            where = at + len(directory)
            wide = pack(
                "<IQHHIIQQQQ", 0x06064B50, 44, VERSION_64, VERSION_64, 0, 0, entries, entries, len(directory), at
            )
            wide += pack("<IIQI", 0x07064B50, 0, where, 1)
        small = (entries, _short(len(directory)), _short(at))
        last = pack("<IHHHHIIH", 0x06054B50, 0, 0, small[0], *small, 0)
        return rest + self._given(directory + wide + last), last

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        entry, self._open = self._open, None
        rest = self._given(entry.finish())
        self._directory.append(entry.listed())
        return rest

    def _given(self, data: bytes) -> bytes:
        self._at += len(data)
        return data


class _Entry:
    """One file of an archive."""

    def __init__(self, name: bytes, at: int) -> None:
        self._name = name
        self._at = at  # where its header is
        self._stream = Deflate(BARE_WINDOW)
        self._checksum = 0
        self._size = 0
        self._packed = 0

    def header(self) -> bytes:
        fixed = (VERSION, SIZES_BEHIND | UTF_8, DEFLATED, 0, DAY_ONE, 0, 0, 0, len(self._name), 0)
        return pack("<IHHHHHIIIHH", 0x04034B50, *fixed) + self._name

    def write(self, data: bytes) -> bytes:
        self._checksum = zlib.crc32(data, self._checksum)
        self._size += len(data)
        return self._counted(self._stream.compress(data))

    def finish(self) -> bytes:
        rest = self._counted(self._stream.finish())
        sizes = "<IIQQ" if self._is_large() else "<IIII"
        return rest + pack(sizes, 0x08074B50, self._checksum, self._packed, self._size)

    def listed(self) -> bytes:
        """Its line in the directory."""
        sizes = (self._size, self._packed) if self._is_large() else ()
        wide = (*sizes, self._at) if self._at >= LARGEST_32 else sizes
        extra = pack(f"<HH{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
        packed, size = (ELSEWHERE, ELSEWHERE) if sizes else (self._packed, self._size)
        version = VERSION_64 if wide else VERSION
        start = pack("<IHHHHHH", 0x02014B50, version, version, SIZES_BEHIND | UTF_8, DEFLATED, 0, DAY_ONE)
        start += pack("<IIIHH", self._checksum, packed, size, len(self._name), len(extra))
        return start + pack("<HHHII", 0, 0, 0, 0, _short(self._at)) + self._name + extra

    def _counted(self, packed: bytes) -> bytes:
        self._packed += len(packed)
        return packed

    def _is_large(self) -> bool:
        return self._size >= LARGEST_32 or self._packed >= LARGEST_32


def _short(number: int) -> int:
    return number if number < LARGEST_32 else ELSEWHERE

"""Files that are whole or not there: a temporary name, fsync, rename, fsync of the folder.

replace    the new content takes the place of the old one at one instant
create     the name is taken by exactly one of those who try, with its content
mark       a name that only says that it is taken; not worth a sync
Fixed      a small record that is written again and again in its place, without a rename
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a planted link or pipe is no file of ours
NEW_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
NO_FILE = (errno.ELOOP, errno.ENXIO)  # what an open answers of a link, and of a socket
TEMPORARY = "."  # how a temporary name begins; nothing that counts begins so


def replace(path: Path, data: bytes) -> None:
    """Give a file this content, durably; a reader sees the old one or the new one, never a part."""
    with _written(path, data) as part:
        part.rename(path)
    sync_folder(path.parent)


def create(path: Path, data: bytes) -> None:
    """Make a file with this content, durably.

    Raises:
        FileExistsError: the name is taken.
    """
    with _written(path, data) as part:
        path.hardlink_to(part)  # A rename would replace what another made meanwhile.
        part.unlink()
    sync_folder(path.parent)


def mark(path: Path, text: str) -> None:
    """Take a name. It is the second of two guards, the row is the first: a power cut may lose it.

    Raises:
        FileExistsError: the name is taken.
    """
    descriptor = os.open(path, NEW_FLAGS, 0o600)
    try:
        _write_all(descriptor, text.encode())
    except BaseException:
        path.unlink()
        raise
    finally:
        os.close(descriptor)


def read(path: Path, bytes_max: int = 1 << 26) -> tuple[bytes, os.stat_result]:
    """All of a file, and what it was when it was opened; a folder, a pipe or a link has no content.

    Raises:
        OSError: it is not there, or cannot be read.
    """
    try:
        descriptor = os.open(path, READ_FLAGS)
    except OSError as problem:
        if problem.errno not in NO_FILE:
            raise
        return b"", path.lstat()
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return b"", status
        pieces, left = [], bytes_max
        while left and (piece := os.read(descriptor, min(left, 1 << 20))):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces), status
    finally:
        os.close(descriptor)


def sync(path: Path) -> None:
    """Have a file and its name on the disk."""
    descriptor = os.open(path, READ_FLAGS)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_folder(path.parent)


def make_folder(folder: Path) -> None:
    """Make a folder and what is missing above it, so that a power cut takes none of it back."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in missing:
        sync_folder(each.parent)


def sync_folder(folder: Path) -> None:
    """Have the names of a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _written(path: Path, data: bytes) -> Iterator[Path]:
    """A temporary file beside the path, with its content on the disk; it goes when something breaks."""
    part = path.with_name(f"{TEMPORARY}{path.name}.{os.urandom(6).hex()}.new")
    descriptor = os.open(part, NEW_FLAGS, 0o600)
    try:
        try:
            _write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        yield part
    except BaseException:
        with suppress(OSError):  # It has its name, or the patrol removes it.
            part.unlink()
        raise


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


class Fixed:
    """A record in a file, in two places of fixed size that are written in turn.

    A write cut short spoils one place, and the other still holds what was there before; a reader who comes in the
    middle takes that too. Each place carries a number and a checksum, so a spoilt one is known.
    """

    def __init__(self, place_bytes: int) -> None:
        """Say how large a place is."""
        self.place_bytes = place_bytes

    def write(self, descriptor: int, values: Mapping[str, Any]) -> None:
        """Write the record; only one may write at a time."""
        turn = self._latest(descriptor)[0] + 1
        text = json.dumps(values, separators=(",", ":"))
        line = f"{turn:016d} {_digest(turn, text)} {text}".encode()
        assert len(line) < self.place_bytes, f"a record of {len(line)} bytes is too large"
        os.pwrite(descriptor, line.ljust(self.place_bytes - 1) + b"\n", turn % 2 * self.place_bytes)

    def read(self, descriptor: int) -> dict[str, Any] | None:
        """The record as it was last written; None where there is none."""
        return self._latest(descriptor)[1]

    def _latest(self, descriptor: int) -> tuple[int, dict[str, Any] | None]:
        data = os.pread(descriptor, 2 * self.place_bytes, 0)
        places = (self._place(data[start : start + self.place_bytes]) for start in (0, self.place_bytes))
        return max(places, key=lambda place: place[0])

    def _place(self, data: bytes) -> tuple[int, dict[str, Any] | None]:
        try:
            turn, digest, text = data.decode().rstrip().split(" ", 2)
            if digest == _digest(int(turn), text):
                return int(turn), json.loads(text)
        except ValueError:
            pass
        return 0, None


def _digest(turn: int, text: str) -> str:
    return hashlib.sha256(f"{turn} {text}".encode()).hexdigest()[:16]

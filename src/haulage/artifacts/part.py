"""The file of a build in the making; the child of a run writes it, and loads no more of this folder."""

from __future__ import annotations

import errno
import hashlib
import os

from haulage.artifacts.hashing import Sum
from haulage.core.errors import BuildFailed
from haulage.core.reading import TAIL_BYTES, Measured

READ_BYTES = 1024 * 1024  # at once, when a file is read back
WRITE_OUT_BYTES = 16 * 1024 * 1024  # after so many more the kernel is asked to begin
PART = "part"  # its name in the folder of its build


class PartFile:
    """Where a build writes: counts, hashes and limits on the way. Implements ``core.ports.Sink``."""

    rewinds = True

    def __init__(self, folder: str, *, file_bytes: int, reserved_bytes: int) -> None:
        """Create the file; it must not exist yet."""
        self._allowed = Allowed(file_bytes, reserved_bytes)
        self._bytes = 0
        self._written_out = 0
        self._hash = Sum()
        with writing():
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(f"{folder}/{PART}", flags, 0o600)

    def rewind(self) -> None:
        """Begin anew, with an empty file."""
        with writing():
            os.ftruncate(self._descriptor, 0)
            os.lseek(self._descriptor, 0, os.SEEK_SET)
        self._bytes = self._written_out = 0
        self._hash = Sum()

    def write(self, data: bytes) -> None:
        """Write all of it, or fail before the first byte that is over a limit is written."""
        self._allowed.refuse(self._bytes + len(data))
        with writing():
            left = memoryview(data)
            while left:
                left = left[os.write(self._descriptor, left) :]
        self._hash.update(data)
        self._bytes += len(data)
        if self._bytes - self._written_out >= WRITE_OUT_BYTES:
            begin_writing_out(self._descriptor, self._written_out, self._bytes - self._written_out)
            self._written_out = self._bytes

    def finish(self, *, reread: bool = False) -> Measured:
        """Flush to the disk; the size and the last bytes are then read back from it, or all of them."""
        with writing():
            os.fsync(self._descriptor)
            size = os.fstat(self._descriptor).st_size
            tail = os.pread(self._descriptor, TAIL_BYTES, max(0, size - TAIL_BYTES))
            same = not reread or self._read_back() == self._hash.digest()
            os.close(self._descriptor)
        if size != self._bytes:
            raise BuildFailed("verify_failed", cause=f"{size} bytes on disk instead of {self._bytes}")
        if not same:
            raise BuildFailed("verify_failed", cause="the bytes on disk are not the bytes written")
        return Measured(self._bytes, self._hash.digest().hex(), tail)

    def _read_back(self) -> bytes:
        # What the cache holds is dropped first, so that the disk answers.
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        hashed, at = hashlib.sha256(), 0
        while piece := os.pread(self._descriptor, READ_BYTES, at):
            hashed.update(piece)
            at += len(piece)
        return hashed.digest()


def begin_writing_out(descriptor: int, start: int, size: int) -> None:
    """Have the kernel begin to write these bytes to the disk, and do not wait: the sync at the end has little left.

    It promises nothing, and a system that does not have it loses nothing: what counts is that sync.
    """
    import ctypes  # a small file does without

    SYNC_FILE_RANGE_WRITE = 2  # noqa: N806 - its name in sync_file_range(2)
    call = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if call is not None:
        call(descriptor, ctypes.c_int64(start), ctypes.c_int64(size), SYNC_FILE_RANGE_WRITE)


class Allowed:
    """How large a file may become: as its dataset says, and as was reserved for it."""

    def __init__(self, file_bytes: int, reserved_bytes: int) -> None:
        """The smaller of the two counts."""
        self._file_bytes = file_bytes
        self._bytes = min(file_bytes, reserved_bytes)

    def refuse(self, size: int) -> None:
        """Fail before the first byte that is over a limit goes anywhere."""
        if size <= self._bytes:
            return
        if self._bytes < self._file_bytes:
            raise BuildFailed("storage_exceeded", "The space left for finished files is too small for this file.")
        raise BuildFailed("bytes_exceeded", f"The file would be larger than the {self._file_bytes:,} bytes allowed.")


class writing:  # noqa: N801 - reads as a sentence: ``with writing():``
    """Turn what the system raises while bytes are written into a failure with a code."""

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        """Name a full disk; everything else is a storage that failed."""
        if not isinstance(problem, OSError):
            return
        full = problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        cause = errno.errorcode.get(problem.errno or 0, type(problem).__name__)
        raise BuildFailed("no_space" if full else "storage_failed", cause=cause) from problem

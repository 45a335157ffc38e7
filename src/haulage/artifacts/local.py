"""Bytes in a folder of this host.

    root/work/KEY/part      what a build writes, and beside it what its source needs for sorting
    root/files/KEY          a finished file

A key is a run's id and the claim's number, so no two claims share a name. A finished file was written under
``work``, synced, renamed, and both folders were synced: after a power cut it is whole or not there.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from pathlib import Path
from typing import BinaryIO

from haulage.core.errors import BuildFailed
from haulage.core.ports import Measured

TAIL_BYTES = 64


def artifacts_path(url: str) -> Path:
    """The folder of a ``file:`` URL.

    Raises:
        ValueError: the URL names no local folder, with what to write instead.
    """
    scheme, _, rest = url.partition(":")
    if scheme != "file" or not rest.lstrip("/"):
        raise ValueError(f"{url!r} is no place for artifacts of this version; write file:./artifacts")
    return Path("/" + rest.lstrip("/")) if rest.startswith("//") else Path(rest)


class LocalArtifacts:
    """Implements ``core.ports.Artifacts`` on one folder, which only its owner may read."""

    def __init__(self, root: Path) -> None:
        """Name the folder; ``prepare`` makes it."""
        self.root = root
        self._work = root / "work"
        self._files = root / "files"

    def prepare(self) -> None:
        """Make the folders.

        Raises:
            OSError: they cannot be made.
        """
        for folder in (self.root, self._work, self._files):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def begin(self, key: str) -> Path:
        """Make the folder of one build and give it.

        Raises:
            BuildFailed: ``no_space`` or ``storage_failed``.
        """
        folder = self._work / _known(key)
        with writing():
            self.prepare()
            folder.mkdir(mode=0o700)
            _sync_folder(self._work)
        return folder

    def publish(self, key: str, expected_bytes: int) -> None:
        """Give a verified file its final name, durably; see ``core.ports.Artifacts``."""
        part = self._work / _known(key) / "part"
        with writing():
            if part.stat().st_size != expected_bytes:
                raise BuildFailed("verify_failed", cause="the size on disk is not the size written")
            part.rename(self._files / key)
            _sync_folder(self._files)
            shutil.rmtree(self._work / key)
            _sync_folder(self._work)

    def remove(self, key: str) -> bool:
        """Remove everything of a key. The unfinished goes first: a rename that comes too late fails."""
        work, file = self._work / _known(key), self._files / key
        found = os.path.lexists(work) or os.path.lexists(file)
        if work.is_dir() and not work.is_symlink():
            shutil.rmtree(work)
        else:
            work.unlink(missing_ok=True)
        file.unlink(missing_ok=True)
        if found:
            _sync_folder(self._work)
            _sync_folder(self._files)
        return found

    def open(self, key: str) -> tuple[BinaryIO, int]:
        """A finished file and its size, measured on the open descriptor; a planted link is not followed."""
        descriptor = os.open(self._files / _known(key), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        opened = os.fdopen(descriptor, "rb", buffering=0)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            opened.close()
            raise FileNotFoundError(errno.ENOENT, "not a file")
        return opened, status.st_size  # type: ignore[return-value]  # a raw file reads bytes too

    def keys(self) -> list[str]:
        """Every name that bytes lie under; a name that is no key is an orphan like any other."""
        found: set[str] = set()
        for folder in (self._work, self._files):
            try:
                found.update(os.listdir(folder))
            except FileNotFoundError:
                continue
        return sorted(found)

    def check(self) -> None:
        """See that a file can be written and synced here."""
        self.prepare()
        probe = self.root / f".probe-{os.getpid()}"
        try:
            with probe.open("xb") as file:
                file.write(b"haulage")
                file.flush()
                os.fsync(file.fileno())
        finally:
            probe.unlink(missing_ok=True)

    def free_bytes(self) -> int:
        """Bytes that the disk still has for us."""
        status = os.statvfs(self.root)
        return status.f_bavail * status.f_frsize


class PartFile:
    """Where a build writes: counts, hashes and limits on the way. Implements ``core.ports.Sink``."""

    def __init__(self, folder: Path, *, file_bytes: int, reserved_bytes: int) -> None:
        """Create the file; it must not exist yet."""
        self._file_bytes = file_bytes
        self._allowed = min(file_bytes, reserved_bytes)
        self._bytes = 0
        self._hash = hashlib.sha256()
        self._tail = b""
        with writing():
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(folder / "part", flags, 0o600)

    def write(self, data: bytes) -> None:
        """Write all of it, or fail before the first byte that is over a limit is written."""
        if self._bytes + len(data) > self._allowed:
            if self._allowed < self._file_bytes:
                raise BuildFailed("storage_exceeded", "The space left for finished files is too small for this file.")
            raise BuildFailed(
                "bytes_exceeded", f"The file would be larger than the {self._file_bytes:,} bytes allowed."
            )
        with writing():
            left = memoryview(data)
            while left:
                left = left[os.write(self._descriptor, left) :]
        self._hash.update(data)
        self._bytes += len(data)
        self._tail = (self._tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]

    def finish(self) -> Measured:
        """Flush to the disk; the size and the last bytes are then read back from it."""
        with writing():
            os.fsync(self._descriptor)
            size = os.fstat(self._descriptor).st_size
            os.close(self._descriptor)
        if size != self._bytes:
            raise BuildFailed("verify_failed", cause=f"{size} bytes on disk instead of {self._bytes}")
        return Measured(self._bytes, self._hash.hexdigest(), self._tail)


class writing:  # noqa: N801 - reads as a sentence: ``with writing():``
    """Turn what the system raises while bytes are written into a failure with a code."""

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        """Name a full disk; everything else is a storage that failed."""
        if not isinstance(problem, OSError):
            return
        full = problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise BuildFailed(
            "no_space" if full else "storage_failed", cause=f"{errno.errorcode.get(problem.errno or 0)}"
        ) from problem


def _known(key: str) -> str:
    if not key or key in (".", "..") or "/" in key or "\0" in key:
        message = f"{key!r} is no key"
        raise ValueError(message)
    return key


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Bytes in a folder of this host.

    root/work/KEY/part      what a build writes, and beside it what its source needs for sorting
    root/files/KEY          a finished file
    root/.haulage           says of which store everything under work and files is: that one may remove it

A key is a run's id and the claim's number, so no two claims share a name. A finished file was written under
``work``, synced, renamed, and the folder it stands in was synced: after a power cut it is whole or not there.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from itertools import count, pairwise
from pathlib import Path
from typing import BinaryIO, TypeAlias

from haulage.artifacts.part import PART, writing
from haulage.core.errors import BuildFailed

MARK = ".haulage"
INSIDE = "lies inside the artifacts of another store, whose sweep would remove it; name another place"
MIB = 1024 * 1024
BURIED = (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENAMETOOLONG)  # what a locked or a deep folder answers
STRAYS_NAMED = 10
FREE_SHARE = 0.1  # of the disk; less is worth a word
Examined: TypeAlias = tuple[str, str, str]  # OK, WARN or FAIL; what was found; what to do
KEY = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.[0-9]+")  # a run's id and a claim's number


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

    def __init__(self, root: Path, owner: str = "") -> None:
        """Name the folder; ``prepare`` makes it. ``owner`` is the id of the store whose files these are."""
        self.place = str(root)
        self.root = root.absolute()  # A child works in a folder of its own and must find it all the same.
        self._owner = owner
        self._mark = self.root / MARK
        self._work = self.root / "work"
        self._files = self.root / "files"

    def prepare(self, *, adopt: bool = False) -> None:
        """Make the folders that are missing, and mark them as this store's.

        The sweep removes what no run names. It must not be let loose on somebody's own files, nor on those of a
        store that was given the same folder by mistake.

        Args:
            adopt: take over what another store has left, for good.

        Raises:
            OSError: they cannot be made, or they are not ours.
        """
        marked = self._marked()
        if self._is_ours(marked) and self._work.is_dir() and self._files.is_dir():
            return
        if marked is None and self._holds_others(adopt=adopt):
            raise self._refusal("holds files that are not Haulage's; name an empty folder")
        if marked is None and self._lies_in_anothers():
            raise self._refusal(INSIDE)
        missing = [folder for folder in (self.root, *self.root.parents) if not folder.exists()]
        for folder in (self.root, self._work, self._files):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write_mark(adopt=adopt)
        # A file is only as durable as the folders that it stands in.
        for folder in (self.root, self.root.parent, *(each.parent for each in missing[1:])):
            _sync_folder(folder)

    def there(self) -> bool:
        """Say whether there is anything yet that could be taken away."""
        return self.root.is_dir()

    def release(self) -> None:
        """Take the mark away; whoever names the empty folder next may have it."""
        self._mark.unlink(missing_ok=True)
        _sync_folder(self.root)

    def _marked(self) -> str | None:
        """Whose the folder is: the id of a store, nothing of a mark without one, None without a mark."""
        try:
            return self._mark.read_bytes().decode(errors="replace").strip()
        except FileNotFoundError:
            return None

    def _is_ours(self, marked: str | None) -> bool:
        return marked is not None and (not self._owner or marked == self._owner)

    def _write_mark(self, *, adopt: bool) -> None:
        descriptor = os.open(self._mark, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "r+", errors="replace") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # Two stores may be opened for the first time at once.
            marked = file.read().strip()
            if self._is_ours(marked):
                return
            if marked and not adopt:
                raise self._refusal(
                    "holds the files of another store; name another folder in artifacts, "
                    "or, if that store is gone for good, run: haulage sweep --adopt"
                )
            file.seek(0)
            file.truncate()
            file.write(self._owner)
            file.flush()
            os.fsync(file.fileno())

    def _holds_others(self, *, adopt: bool) -> bool:
        """Say whether something lies there that is not ours; who adopts may have lost the mark, but not the names."""
        names = [path.name for folder in (self._work, self._files) if folder.is_dir() for path in folder.iterdir()]
        return any(not adopt or not KEY.fullmatch(name) for name in names)

    def _lies_in_anothers(self) -> bool:
        """Say whether another store's sweep would take us for bytes of nobody."""
        chain = (self.root, *self.root.parents)
        return any(
            inner.name in (self._work.name, self._files.name) and (outer / MARK).exists()
            for inner, outer in pairwise(chain)
        )

    def _refusal(self, problem: str) -> OSError:
        return FileExistsError(errno.EEXIST, problem, str(self.root))

    def begin(self, key: str) -> Path:
        """Make the folder of one build and give it.

        Raises:
            BuildFailed: ``no_space`` or ``storage_failed``.
        """
        folder = self._work / known(key)
        with writing():
            self.prepare()
            folder.mkdir(mode=0o700)
        return folder

    def publish(self, key: str, expected_bytes: int, *, sha256: str | None = None, etag: str | None = None) -> None:
        """Give a verified file its final name, durably; see ``core.ports.Artifacts``."""
        part = self._work / known(key) / PART
        with writing():
            if part.stat().st_size != expected_bytes:
                raise BuildFailed("verify_failed", cause="the size on disk is not the size written")
            part.rename(self._files / key)
            _sync_folder(self._files)
        with suppress(OSError):
            _remove_tree(self._work / key)  # What stays there goes with the key.

    def remove(self, key: str) -> bool:
        """Remove everything of a key. The unfinished goes first: a rename that comes too late fails."""
        found = [_remove_entry(folder / known(key)) for folder in (self._work, self._files)]
        return any(found)

    def size(self, key: str) -> int:
        """Bytes that lie under a key; what cannot be looked at counts nothing."""
        found = 0
        for folder in (self._work, self._files):
            entry = folder / known(key)
            for path in (entry, *entry.rglob("*")):
                with suppress(OSError):
                    status = path.lstat()
                    found += status.st_size if stat.S_ISREG(status.st_mode) else 0
        return found

    def open(self, key: str) -> tuple[BinaryIO, int]:
        """A finished file and its size, measured on the open descriptor; a planted link is not followed.

        Raises:
            FileNotFoundError: it is gone.
            OSError: nobody can know that now: it cannot be opened, or the whole folder is not there.
        """
        # Without O_NONBLOCK a planted pipe would keep us waiting for a writer.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(self._files / known(key), flags)
        except FileNotFoundError:
            if not self._mark.exists():  # A disk that is not mounted has lost no file.
                raise OSError(errno.ENODEV, "the folder of files is not there", str(self.root)) from None
            raise
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise FileNotFoundError(errno.ENOENT, "not a file")
        return os.fdopen(descriptor, "rb", buffering=0), status.st_size

    def upload(self, key: str, file_bytes: int, seconds: float) -> None:
        """Nothing: a build writes into its folder."""

    def link(self, key: str, *, disposition: str, media_type: str) -> None:
        """Nothing: files are served from here."""

    def keys(self) -> list[str]:
        """Every name that bytes lie under; a name that is no key is an orphan like any other."""
        if self._marked() and not self._is_ours(self._marked()):
            return []  # Another store has adopted the folder meanwhile: nothing here is ours to remove.
        found: set[str] = set()
        for folder in (self._work, self._files):
            try:
                found.update(os.listdir(folder))  # noqa: PTH208 - names are all that is wanted
            except FileNotFoundError:
                continue
        return sorted(found)

    def check(self) -> None:
        """See that a file can be written, synced and given its place here."""
        self.prepare()
        name = f"probe-{os.urandom(8).hex()}"  # where the sweep finds what a crash leaves
        probe, placed = self._work / name, self._files / name
        try:
            with probe.open("xb") as file:
                file.write(b"haulage")
                file.flush()
                os.fsync(file.fileno())
            probe.rename(placed)
        finally:
            probe.unlink(missing_ok=True)
            placed.unlink(missing_ok=True)

    def free_bytes(self) -> int:
        """Bytes that the disk still has for us."""
        status = os.statvfs(self.root)
        return status.f_bavail * status.f_frsize

    def examine(self, still_bytes: int) -> Iterator[Examined]:
        """A file written, and the room on the disk; for ``haulage doctor``.

        Args:
            still_bytes: what the budget may still take.
        """
        try:
            self.check()
        except OSError as problem:
            what = f"no file can be written to {self.root}: {problem.strerror}"
            yield "FAIL", what, "let this user write there, or name another folder"
            return
        yield "OK", "a file can be written", ""
        yield from strays(os.listdir(self.root), {MARK, self._work.name, self._files.name})  # noqa: PTH208 - names
        disk = shutil.disk_usage(self.root)
        if disk.free < still_bytes:
            what = f"the disk has {disk.free // MIB:,} MiB free, the budget may still take {still_bytes // MIB:,} MiB"
            yield "WARN", what, "make room, or lower limits.exports.store_bytes"
        elif disk.free < disk.total * FREE_SHARE:
            yield "WARN", f"only {disk.free // MIB:,} MiB of the disk are free", "make room"


def strays(found: Iterable[str], ours: Container[str]) -> Iterator[Examined]:
    """Names beside those that are ours: they may be somebody's, so no sweep removes them."""
    names = sorted(name.encode("ascii", "backslashreplace").decode() for name in found if name not in ours)
    for name in names[:STRAYS_NAMED]:
        yield "WARN", f"{name} is none of Haulage's files, and no sweep removes it", "if nobody needs it, remove it"
    if (more := len(names) - STRAYS_NAMED) > 0:
        yield "WARN", f"{more:,} more lie beside it", "keep nothing else in this place"


def known(key: str) -> str:
    if not key or key in (".", "..") or "/" in key or "\0" in key:
        message = f"{key!r} is no key"
        raise ValueError(message)
    return key


def _remove_entry(path: Path) -> bool:
    """Remove a name, whatever it stands for, durably; say whether it was there. A link is not followed."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError:
        if path.is_symlink() or not path.is_dir():
            raise
        _remove_tree(path)
    _sync_folder(path.parent)
    return True


def _remove_tree(folder: Path) -> None:
    """Remove a folder with all that a build has left in it, also what a command has locked or buried."""
    try:
        shutil.rmtree(folder)
    except RecursionError:
        _unearth(folder)
    except OSError as problem:
        if problem.errno not in BURIED:
            raise
        _unearth(folder)


def _unearth(folder: Path) -> None:
    """The same for folders that are locked, or so deep that a path or a stack does not hold them.

    What lies in a folder of it is moved up and met there, so no path grows long and nothing calls itself. A link is not
    followed.
    """
    folder.chmod(0o700)
    names = (folder / f"{os.urandom(8).hex()}-{number}" for number in count())
    while entries := list(folder.iterdir()):
        for entry in entries:
            if entry.is_symlink() or not entry.is_dir():
                entry.unlink()
                continue
            entry.chmod(0o700)
            for inner in list(entry.iterdir()):
                if inner.is_dir() and not inner.is_symlink():
                    inner.chmod(0o700)  # or its own user could not move it
                inner.rename(next(names))
            entry.rmdir()
    folder.rmdir()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

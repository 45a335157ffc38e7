"""Taking a finished file out of the artifact store: whole and proven under its final name, or not at all.

``-o FILE`` writes a new file, ``-o FOLDER`` keeps the run's own name in it, ``-o -`` writes to standard output. What a
link points to is meant where a link is named; into a pipe or a device the bytes are written, as every tool does.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from haulage.cli.terminal import Fault
from haulage.core.errors import ArtifactsUnavailable, Refused
from haulage.exports.life import ExportRun

if TYPE_CHECKING:
    from haulage.app import Haulage

CHUNK_BYTES = 1024 * 1024


STANDARD_OUTPUT = "-"
ALSO_STANDARD_OUTPUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
PART_BYTES = 100  # of a file's name in that of its part, which must not be too long where the name itself is not


class Keeper(Protocol):
    """Where a file goes."""

    def save(self, haul: Haulage, run: ExportRun) -> str:
        """Take the file of a ready run out, and say where it is."""


def destination(text: str, *, force: bool) -> Keeper:
    """What stands behind ``-o``.

    Raises:
        Fault: the file is there, or its folder is not, or it cannot be a file.
    """
    if text == STANDARD_OUTPUT:
        if sys.stdout is None:
            raise Fault("-o -: standard output is closed; name a file")
        return StandardOutput()
    try:
        # Asked by its name: where the kernel follows no link of somebody else, we do not either.
        mode = os.stat(text).st_mode  # noqa: PTH116 - a slash at its end counts
    except FileNotFoundError:
        mode = stat.S_IFREG
    except OSError as problem:
        raise Fault(f"{text} cannot be written: {problem.strerror}; name another with -o") from problem
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        return Device(text)
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise Fault(f"{text} is neither a file nor a folder; name another with -o")
    return Destination(text, force=force)


def place_meant(_context: object, _parameter: object, text: str | None) -> str | None:
    """What an option ``-o`` means: standard output has more names than one."""
    return STANDARD_OUTPUT if text in ALSO_STANDARD_OUTPUT else text


class StandardOutput:
    """``-o -``: the bytes go to the next program, after they were compared with their SHA-256."""

    def save(self, haul: Haulage, run: ExportRun) -> str:
        """Write the file to standard output.

        Raises:
            Refused: the file has gone, or its bytes are not those that were written; then nothing is written.
        """
        _write_whole(haul, run, sys.stdout.buffer)
        return "standard output"


class Device:
    """A pipe or a device: the bytes are written into it. Nothing is replaced, so nothing needs to be forced."""

    def __init__(self, text: str) -> None:
        """Remember which."""
        self._text = text

    def save(self, haul: Haulage, run: ExportRun) -> str:
        """Write the file into it; a pipe waits for a reader.

        Raises:
            Refused: as for standard output.
            Fault: it cannot be written.
        """
        try:
            with open(os.open(self._text, os.O_WRONLY), "wb") as target:  # noqa: PTH123 - it is never made
                _write_whole(haul, run, target)
        except ArtifactsUnavailable as problem:
            raise Refused("files_unavailable") from problem
        except OSError as problem:
            raise Fault(f"{self._text} cannot be written: {problem.strerror}") from problem
        return self._text


def _write_whole(haul: Haulage, run: ExportRun, target: BinaryIO) -> None:
    kept, source = haul.exports.open_file(haul.operator, run.id)
    with source:
        if digest_of(source) != kept.sha256:
            raise haul.exports.mislay(kept, "its SHA-256 is another")
        source.seek(0)
        while chunk := source.read(CHUNK_BYTES):
            target.write(chunk)
    target.flush()


class Destination:
    """A file or folder."""

    def __init__(self, text: str | Path, *, force: bool) -> None:
        """Refuse at once what would be refused after the build.

        Raises:
            Fault: the file is there, or its folder is not.
        """
        path = Path(text)
        if path.is_symlink() and force and not path.is_dir():
            path = Path(os.path.realpath(path))  # the link stays, and what it points to is replaced
        self._path = path
        self._force = force
        # Path drops the slash, but who wrote it meant a folder.
        folder = path if path.is_dir() or str(text).endswith("/") else path.parent
        if not folder.is_dir():
            raise Fault(f"there is no folder {folder}; make it, or name another with -o")
        if not os.access(folder, os.W_OK):
            raise Fault(f"the folder {folder} cannot be written; name another with -o")
        if not path.is_dir():
            self._refuse_existing(path)

    def save(self, haul: Haulage, run: ExportRun) -> str:
        """Copy a ready file under a temporary name, compare its SHA-256, and give it its own name.

        Raises:
            Refused: the file has gone, or its bytes are not those that were written.
            Fault: it cannot be written here.
        """
        path = self._path / str(run.file_name) if self._path.is_dir() else self._path
        self._refuse_existing(path)
        part = path.with_name(f".{os.fsdecode(os.fsencode(path.name)[:PART_BYTES])}.{secrets.token_hex(4)}.part")
        kept, source = haul.exports.open_file(haul.operator, run.id)
        try:
            with source, part.open("xb") as target:
                digest = _copy(source, target)
            if digest != kept.sha256:
                raise haul.exports.mislay(kept, "its SHA-256 is another")
            self._name(part, path)
        except ArtifactsUnavailable as problem:
            raise Refused("files_unavailable") from problem
        except OSError as problem:
            raise Fault(f"{path} cannot be written: {problem.strerror}") from problem
        finally:
            part.unlink(missing_ok=True)
        _sync(path.parent)
        return str(path)

    def _name(self, part: Path, path: Path) -> None:
        if self._force:
            part.replace(path)
            return
        try:
            # A link fails where the name is taken; a rename would replace what came there meanwhile.
            path.hardlink_to(part)
        except FileExistsError:
            self._refuse_existing(path)
        except OSError as problem:
            if problem.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                raise
            self._refuse_existing(path)
            part.rename(path)

    def _refuse_existing(self, path: Path) -> None:
        if not os.path.lexists(path):
            return
        if not self._force:
            raise Fault(f"{path} is there already; choose another name, or replace it with --force")
        # By the name that a run has in a folder, nobody has asked for what else may have been put there.
        if not path.is_file() or path.is_symlink():
            raise Fault(f"{path} is no file that could be replaced; choose another name")


def digest_of(file: BinaryIO) -> str:
    """The SHA-256 of what is left of a file."""
    digest = hashlib.sha256()
    while chunk := file.read(CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def _copy(source: BinaryIO, target: BinaryIO) -> str:
    digest = hashlib.sha256()
    while chunk := source.read(CHUNK_BYTES):
        digest.update(chunk)
        target.write(chunk)
    target.flush()
    os.fsync(target.fileno())
    return digest.hexdigest()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

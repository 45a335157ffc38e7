"""Taking a finished file out of the artifact store: whole and proven under its final name, or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from haulage.cli.terminal import Fault
from haulage.exports.life import ExportRun

if TYPE_CHECKING:
    from haulage.app import Haulage

CHUNK_BYTES = 1024 * 1024


class Destination:
    """The ``-o FILE`` of an export."""

    def __init__(self, path: Path, *, force: bool) -> None:
        """Refuse at once what would be refused after the build.

        Raises:
            Fault: the file is there, or its folder is not.
        """
        self._path = path
        self._force = force
        folder = path if path.is_dir() else path.parent
        if not folder.is_dir():
            raise Fault(f"there is no folder {folder}")
        if not os.access(folder, os.W_OK):
            raise Fault(f"the folder {folder} cannot be written")
        if not path.is_dir():
            self._refuse_existing(path)

    def save(self, haul: Haulage, run: ExportRun) -> Path:
        """Copy a ready file under a temporary name, compare its SHA-256, and give it its own name.

        Raises:
            Refused: the file has gone, or its bytes are not those that were written.
            Fault: it cannot be written here.
        """
        path = self._path / str(run.file_name) if self._path.is_dir() else self._path
        self._refuse_existing(path)
        part = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}.part")
        kept, source = haul.exports.open_file(haul.operator, run.id)
        try:
            with source, part.open("xb") as target:
                digest = _copy(source, target)
            if digest != kept.sha256:
                raise haul.exports.mislay(kept, "its SHA-256 is another")
            self._name(part, path)
        except OSError as problem:
            raise Fault(f"{path} cannot be written: {problem.strerror}") from problem
        finally:
            part.unlink(missing_ok=True)
        _sync(path.parent)
        return path

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
        if os.path.lexists(path) and not self._force:
            raise Fault(f"{path} is there already; choose another name, or replace it with --force")


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

"""Word from the kernel that a file is being written (inotify(7)), so that nobody has to ask again and again.

It comes with the write, a little before the commit, and only from this host: a hint to look closely for a
moment. Where the kernel has no inotify there is no descriptor, and the store is asked in short turns instead.
"""

from __future__ import annotations

import ctypes
import os
import struct
from contextlib import suppress
from pathlib import Path

IN_MODIFY, IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE = 0x2, 0x40, 0x80, 0x100, 0x200
WRITTEN = IN_MODIFY | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO  # a file may also be put in its place
IN_NONBLOCK, IN_CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
HEAD = struct.Struct("iIII")  # watch, mask, cookie, length of the name after it
READ_BYTES = 65_536


class Stir:
    """Listens to the files of one folder whose names begin with that of a database."""

    def __init__(self, file: Path) -> None:
        """Begin to listen; ``descriptor`` is None where that cannot be."""
        self.descriptor: int | None = None
        self._name = os.fsencode(file.name)
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            descriptor = library.inotify_init1(IN_NONBLOCK | IN_CLOEXEC)
            if descriptor < 0:
                return
            if library.inotify_add_watch(descriptor, os.fsencode(file.parent), WRITTEN) < 0:
                os.close(descriptor)
                return
            self.descriptor = descriptor

    def felt(self) -> bool:
        """Say whether one of the files was written or replaced since the last call, or the kernel lost count."""
        felt = False
        while self.descriptor is not None:
            try:
                data = os.read(self.descriptor, READ_BYTES)
            except BlockingIOError:
                break
            at = 0
            while at < len(data):
                *_, length = HEAD.unpack_from(data, at)
                name = data[at + HEAD.size : at + HEAD.size + length].rstrip(b"\0")
                felt = felt or name.startswith(self._name) or not name
                at += HEAD.size + length
        return felt

    def close(self) -> None:
        """Listen no longer."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

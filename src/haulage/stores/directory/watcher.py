"""The hint that a folder changed: its count of changes, and word from the kernel where the volume is of this host."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from haulage.stores.directory.folder import LOCK, Folder, answered
from haulage.stores.stir import Stir

# The kernel tells only what this host writes; on a volume that others write to as well one has to ask.
OF_THIS_HOST = {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "tmpfs", "overlay", "jfs"}


class DirectoryWatcher:
    """Implements ``core.ports.Watcher``."""

    def __init__(self, folder: Folder) -> None:
        """Begin to watch."""
        self._folder = folder
        self._stir = Stir(folder.root / LOCK) if kind_of(folder.root) in OF_THIS_HOST else None
        self._seen = -1

    @property
    def descriptor(self) -> int | None:
        """What becomes readable when somebody of this host writes; None where others may, too."""
        return None if self._stir is None else self._stir.descriptor

    def stirred(self) -> bool:
        """Say whether somebody began or ended to write since the last call."""
        return self._stir is not None and self._stir.felt()

    def changed(self) -> bool:
        """Say whether a change was ended since the last call (true at the first)."""
        with answered():
            count = self._folder.count() // 2  # An odd one is of a change that is being made.
        changed, self._seen = count != self._seen, count
        return changed

    def close(self) -> None:
        """Watch no longer."""
        if self._stir is not None:
            self._stir.close()


def kind_of(path: Path) -> str | None:
    """The kind of file system that a folder lies on; None where the system does not say."""
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            words = line.split()
            if words[2] == wanted:
                return words[words.index("-") + 1]
    return None

"""A disk that loses what was not synced when its power is cut: a file system of our own, mounted with FUSE.

``python lossy_disk.py MOUNT KEPT LOG`` is the disk, ``LossyDisk`` the side of the tests, ``Contents`` what both
know: what is there, and what would survive. Every change is written to LOG, so that a test can play it again
(``play``) and cut the power after each of them. KEPT is an ordinary folder: what is in it is on the disk when it
is mounted, and what survived a cut is put there.

The disk is as bad as it may be: a file's bytes and its name are two things, and each is lost unless *it* was synced
(fsync(2): "calling fsync() does not necessarily ensure that the entry in the directory … has also reached disk").
"""

from __future__ import annotations

import errno
import os
import pickle
import random
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = 4_096
BLOCKS = 1 << 20


class File:
    """Bytes, and those of them that were synced."""

    def __init__(self, data: bytes = b""):
        self.data = bytearray(data)
        self.synced = bytes(data)


class Folder:
    """Names, and those of them that were synced."""

    def __init__(self) -> None:
        self.names: dict[str, File | Folder] = {}
        self.synced: dict[str, File | Folder] = {}


class Contents:
    """A tree of folders and files; each change is a method, named as the call that makes it."""

    def __init__(self, kept: Path | None = None):
        self.root = Folder()
        if kept is not None:
            _load(self.root, kept)

    def find(self, path: str) -> Any:
        found: Any = self.root
        for name in filter(None, path.split("/")):
            if not isinstance(found, Folder) or name not in found.names:
                raise OSError(errno.ENOENT, path)
            found = found.names[name]
        return found

    def place(self, path: str) -> tuple[Folder, str]:
        folder, _, name = path.rpartition("/")
        return self.find(folder), name

    def create(self, path: str) -> None:
        folder, name = self.place(path)
        folder.names[name] = File()

    def mkdir(self, path: str) -> None:
        folder, name = self.place(path)
        if name in folder.names:
            raise OSError(errno.EEXIST, path)
        folder.names[name] = Folder()

    def write(self, path: str, at: int, data: bytes) -> None:
        file = self.find(path)
        file.data.extend(bytes(max(0, at - len(file.data))))
        file.data[at : at + len(data)] = data

    def truncate(self, path: str, size: int) -> None:
        file = self.find(path)
        file.data[size:] = bytes(max(0, size - len(file.data)))

    def rename(self, path: str, to: str) -> None:
        node = self.find(path)
        folder, name = self.place(to)
        folder.names[name] = node
        self.unlink(path)

    def unlink(self, path: str) -> None:
        folder, name = self.place(path)
        del folder.names[name]

    def rmdir(self, path: str) -> None:
        if self.find(path).names:
            raise OSError(errno.ENOTEMPTY, path)
        self.unlink(path)

    def fsync(self, path: str) -> None:
        node = self.find(path)
        node.synced = dict(node.names) if isinstance(node, Folder) else bytes(node.data)

    def survivors(self, luck: str | int) -> dict[str, Any]:
        """What a cut leaves, as names with bytes or names: what was not synced survives by ``luck``.

        Args:
            luck: ``none`` of it; the ``names`` alone, without their bytes; or by chance, with this seed.
        """
        return _survivors(self.root, luck, random.Random(luck))


def _survivors(folder: Folder, luck: str | int, chance: random.Random) -> dict[str, Any]:
    left: dict[str, Any] = {}
    for name in sorted(folder.names.keys() | folder.synced.keys()):
        new = luck == "names" or (luck != "none" and chance.random() < 0.5)
        node = (folder.names if new else folder.synced).get(name)
        if isinstance(node, Folder):
            left[name] = _survivors(node, luck, chance)
        elif node is not None:
            left[name] = node.synced if isinstance(luck, str) else _some_pages(node, chance)
    return left


def _some_pages(file: File, chance: random.Random) -> bytes:
    size = len(chance.choice([file.data, file.synced]))
    pages = (chance.choice([file.data, file.synced])[at : at + PAGE].ljust(PAGE, b"\0") for at in range(0, size, PAGE))
    return b"".join(bytes(page) for page in pages)[:size]


def _load(folder: Folder, path: Path) -> None:
    for entry in path.iterdir():
        node = Folder() if entry.is_dir() else File(entry.read_bytes())
        if isinstance(node, Folder):
            _load(node, entry)
        folder.names[entry.name] = folder.synced[entry.name] = node


def lay_out(tree: dict[str, Any], path: Path) -> None:
    """Put a tree into a folder, in the place of what was there."""
    if path.exists():
        shutil.rmtree(path)
    path.mkdir(parents=True)
    for name, node in tree.items():
        if isinstance(node, dict):
            lay_out(node, path / name)
        else:
            (path / name).write_bytes(node)


def play(log: Path) -> Iterator[tuple[tuple, Contents]]:
    """Make the changes of a log again; after each, the change and what is on the disk then. Marks change nothing."""
    contents = Contents()
    with log.open("rb") as file:
        while file.peek(1):
            change = pickle.load(file)
            if change[0] != "mark":
                getattr(contents, change[0])(*change[1:])
            yield change, contents


class LossyDisk:
    """The side of the tests: mounts the disk, marks moments in its log, and cuts its power."""

    def __init__(self, folder: Path):
        self.mount = folder / "mount"
        self.kept = folder / "kept"
        self.log = folder / "changes"
        for each in (self.mount, self.kept):
            each.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, __file__, self.mount, self.kept, self.log]
        with (folder / "errors").open("w+") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
            if self._answer() != "mounted":
                errors.seek(0)
                self.close()
                raise OSError(errno.ENODEV, f"it cannot be mounted: {errors.read()[-300:]}")

    def mark(self, *what: object) -> None:
        """Note in the log that something is known now, by somebody for whom it must stay true."""
        self._tell("mark", *what)
        assert "marked" == self._answer()

    def hold(self, operation: str, part: str) -> None:
        """Let no change happen from the next such call on, whose path holds this part."""
        self._tell("hold", operation, part)
        assert "holding" == self._answer()

    def wait_until_held(self) -> str:
        """The call that is held."""
        return self._answer()

    def cut(self) -> None:
        """Cut the power: what survived is in ``kept``, and every call fails from now on."""
        self._tell("cut")
        assert "cut" == self._answer()

    def close(self) -> None:
        """Unmount it, whoever still has files open there."""
        if self._process.stdin.closed:
            return
        subprocess.run(["umount", "-l", self.mount], capture_output=True, check=False)
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()

    def _tell(self, *words: object) -> None:
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def _answer(self) -> str:
        return self._process.stdout.readline().strip()


class Disk:
    """The operations of FUSE. One thread, so that a call that is held holds every other."""

    use_ns = True

    def __init__(self, kept: Path, log: Path):
        self._contents = Contents(kept)
        self._kept = kept
        self._log = log.open("ab")
        self._lock = threading.Lock()
        self._wanted: tuple[str, str] | None = None
        self._cut = threading.Event()

    # -- control -----------------------------------------------------------------------------------

    def init(self, _path: str) -> None:
        say("mounted")
        threading.Thread(target=self._obey, daemon=True).start()

    def _obey(self) -> None:
        for line in sys.stdin:
            order, *words = line.split()
            if order == "mark":
                self._note("mark", *words)
                say("marked")
            elif order == "hold":
                self._wanted = (words[0], words[1])
                say("holding")
            elif order == "cut":
                lay_out(self._contents.survivors("none"), self._kept)
                self._cut.set()
                say("cut")
        os._exit(0)  # whatever is still mounted

    def _note(self, *change: object) -> None:
        with self._lock:
            pickle.dump(change, self._log)
            self._log.flush()

    def _change(self, operation: str, path: str, *rest: Any) -> int:
        if self._wanted is not None and self._wanted[0] == operation and self._wanted[1] in path:
            say(f"{operation} {path}")
            self._cut.wait()
        self._powered()
        getattr(self._contents, operation)(path, *rest)
        self._note(operation, path, *rest)
        return 0

    def _powered(self) -> None:
        if self._cut.is_set():
            raise OSError(errno.EIO, "there is no power")

    # -- calls -------------------------------------------------------------------------------------

    def getattr(self, path: str, _fh: int | None = None) -> dict[str, int]:
        self._powered()
        node = self._contents.find(path)
        if isinstance(node, Folder):
            return {"st_mode": stat.S_IFDIR | 0o700, "st_nlink": 2}
        return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1, "st_size": len(node.data)}

    def readdir(self, path: str, _fh: int) -> list[str]:
        self._powered()
        return [".", "..", *self._contents.find(path).names]

    def read(self, path: str, size: int, at: int, _fh: int) -> bytes:
        self._powered()
        return bytes(self._contents.find(path).data[at : at + size])

    def statfs(self, _path: str) -> dict[str, int]:
        return {"f_bsize": PAGE, "f_frsize": PAGE, "f_blocks": BLOCKS, "f_bavail": BLOCKS, "f_namemax": 255}

    def create(self, path: str, _mode: int, _fi: object = None) -> int:
        return self._change("create", path)

    def mkdir(self, path: str, _mode: int) -> int:
        return self._change("mkdir", path)

    def write(self, path: str | None, data: bytes, at: int, _fh: int) -> int:
        if path is not None:  # The kernel writes mapped pages back also after their file was unlinked.
            self._change("write", path, at, data)
        return len(data)

    def truncate(self, path: str, size: int, _fh: int | None = None) -> int:
        return self._change("truncate", path, size)

    def rename(self, path: str, to: str) -> int:
        return self._change("rename", path, to)

    def unlink(self, path: str) -> int:
        return self._change("unlink", path)

    def rmdir(self, path: str) -> int:
        return self._change("rmdir", path)

    def fsync(self, path: str, _datasync: int, _fh: int) -> int:
        return self._change("fsync", path)

    def fsyncdir(self, path: str, _datasync: int, _fh: int) -> int:
        return self._change("fsync", path)

    def chmod(self, _path: str, _mode: int) -> int:
        return 0

    def utimens(self, _path: str, _times: object = None) -> int:
        return 0


def say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    import mfusepy

    mount, kept, log = sys.argv[1:]
    mfusepy.FUSE(Disk(Path(kept), Path(log)), mount, foreground=True, nothreads=True, hard_remove=True, fsname="lossy")

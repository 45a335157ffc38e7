"""The files of claims: who lives, when it last beat, and which slot it has.

    held/ID.CLAIM_NO   made by exactly one claim; its process holds a flock on it until the run is settled
    slots/N            the same file under the number of its slot, made by a hard link: a slot has one holder

A beat writes a small record in its place and never the run itself. When a process dies the kernel gives its flock
back, so its run is known to be lost at once. A frozen one keeps it: then the time in the record decides.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from haulage.core.progress import Progress
from haulage.stores.atomic import NEW_FLAGS, NO_FILE, READ_FLAGS, Fixed
from haulage.stores.directory.folder import Folder, try_lock

RECORD = Fixed(512)
BEATEN = ("heartbeat_at", "lease_until", "updated_at", *Progress._fields)  # what a beat writes
OPEN_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


class Leases:
    """The claims of a store; it keeps open those that this process holds."""

    def __init__(self, folder: Folder) -> None:
        """Bind the folder."""
        self._folder = folder
        self.held = folder.root / "held"
        self.slots = folder.root / "slots"
        self._mine: dict[str, int] = {}
        self._lock = threading.Lock()
        folder.at_fork.append(self._begin_anew)

    def _begin_anew(self) -> None:
        """A forked process holds nothing, and must not keep its parent's claims alive."""
        self._lock = threading.Lock()
        self.close()

    # -- taking and giving back; the right to write is held --------------------------------------------

    def take(self, run: Any) -> bool:
        """Make the file of a claim and lock it; False when somebody else is about to claim the same."""
        name = _name(run)
        path = self.held / name
        try:
            descriptor = os.open(path, NEW_FLAGS, 0o600)
        except FileExistsError:
            # Somebody died between this and the row; or the locks of this volume are none, and the file is the guard.
            if not self._folder.is_stale(path):
                return False
            path.unlink()
            descriptor = os.open(path, NEW_FLAGS, 0o600)
        try:
            RECORD.write(descriptor, _beaten(run))
            try_lock(descriptor)
        except BaseException:
            os.close(descriptor)
            path.unlink()
            raise
        with self._lock:
            self._mine[name] = descriptor
            for gone in [each for each, mine in self._mine.items() if os.fstat(mine).st_nlink == 0]:
                os.close(self._mine.pop(gone))  # Somebody else ended that claim, and nobody came back to it.
        return True

    def take_slot(self, run: Any) -> bool:
        """Give a claim its slot, which no row holds; False when somebody else is about to take it."""
        slot = self.slots / str(run.slot)
        held = self.held / _name(run)
        for _ in range(2):
            try:
                slot.hardlink_to(held)
            except FileExistsError:
                if not self._folder.is_stale(slot):
                    return False
                slot.unlink(missing_ok=True)
            else:
                return True
        return False

    def pass_on(self, before: Any, after: Any) -> None:
        """Let a fence that was taken anew have the slot of the claim before it."""
        slot = self.slots / str(after.slot)
        slot.unlink(missing_ok=True)
        slot.hardlink_to(self.held / _name(after))
        self._forget(before)

    def give_back(self, run: Any) -> None:
        """Remove the names of a claim that has ended, and let its lock go."""
        held, slot = self.held / _name(run), self.slots / str(run.slot)
        with suppress(FileNotFoundError):
            if os.path.samestat(slot.stat(), held.stat()):  # A slot that was given to another stays.
                slot.unlink()
        self._forget(run)

    def _forget(self, run: Any) -> None:
        (self.held / _name(run)).unlink(missing_ok=True)
        self.let_go(run.id, run.claim_no)

    def let_go(self, run_id: str, claim_no: int) -> None:
        """Let the lock of a claim go that is not ours any more."""
        with self._lock:
            descriptor = self._mine.pop(f"{run_id}.{claim_no}", None)
            if descriptor is not None:
                os.close(descriptor)

    def close(self) -> None:
        """Let every lock go."""
        with self._lock:
            for descriptor in self._mine.values():
                os.close(descriptor)
            self._mine.clear()

    # -- beating and looking ----------------------------------------------------------------------------

    def beat(self, run: Any) -> None:
        """Write what a beat changed of a run."""
        with self._open(run, OPEN_FLAGS) as descriptor:
            RECORD.write(descriptor, _beaten(run))

    def seen(self, run: Any) -> Any | None:
        """The run with what its claim last wrote; None where the file of the claim is not there."""
        try:
            with self._open(run, READ_FLAGS) as descriptor:
                record = RECORD.read(descriptor) if _is_file(descriptor) else None
        except FileNotFoundError:
            return None
        except OSError as problem:
            if problem.errno not in NO_FILE:
                raise
            record = None
        if record is None:
            return run  # Spoilt: the row itself has the lease as it was at the claim.
        revision = max(run.revision, record.pop("revision"))
        return replace(run, **record, revision=revision)

    def is_dead(self, run: Any) -> bool:
        """Say whether the process of a claim has ended; without a file that is not known, and the lease decides."""
        try:
            with self._open(run, READ_FLAGS, own=False) as descriptor:
                return _is_file(descriptor) and try_lock(descriptor, shared=True)
        except OSError as problem:
            if problem.errno not in (errno.ENOENT, *NO_FILE):
                raise
            return False

    def _open(self, run: Any, flags: int, *, own: bool = True) -> _Opened:
        name = _name(run)
        with self._lock:
            # A copy of our own: another thread may close it meanwhile.
            if own and name in self._mine:
                return _Opened(os.dup(self._mine[name]))
        return _Opened(os.open(self.held / name, flags))

    def listed(self) -> Iterator[tuple[Path, str]]:
        """Every claim's file and every slot, with the ID.CLAIM_NO that it stands for."""
        for entry in sorted(self.held.iterdir()):
            yield entry, entry.name
        for entry in sorted(self.slots.iterdir()):
            yield entry, ""


class _Opened:
    """A descriptor for the length of a ``with``."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *problem: object) -> None:
        os.close(self._descriptor)


def _is_file(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)


def _name(run: Any) -> str:
    return f"{run.id}.{run.claim_no}"


def _beaten(run: Any) -> dict[str, Any]:
    return {name: getattr(run, name) for name in BEATEN if hasattr(run, name)} | {"revision": run.revision}

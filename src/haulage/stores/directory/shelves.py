"""The small things beside the runs: idempotency keys, sign-ins, and who works. One file each."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from haulage.core.errors import StoreUnavailable
from haulage.core.ports import LINK, KeptKey, Presence, SignIn
from haulage.stores.atomic import NEW_FLAGS, NO_FILE, READ_FLAGS, TEMPORARY, Fixed, create, sync_folder
from haulage.stores.directory.folder import Folder, Writing, answered
from haulage.stores.directory.letter import Unreadable, read_letter, sealed
from haulage.stores.directory.live import ID

PRESENCE = Fixed(2048)
NO_PRESENCE = "it is no file"


def hashed(*words: str) -> str:
    """A name for a file that stands for words which may hold any character."""
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


class Shelf:
    """Records that are made once and never changed, by a name that may hold any character."""

    def __init__(self, folder: Folder, name: str, kind: str) -> None:
        """Bind a folder below the store's."""
        self.folder = folder
        self.place = folder.root / name
        self._kind = kind
        self._ends: dict[str, int] = {}  # file name to expires_at, of those that were read

    def listed(self) -> list[Path]:
        """Every record's file."""
        return [path for path in self.place.iterdir() if not path.name.startswith(TEMPORARY)]

    def find(self, path: Path, tx: Writing | None = None) -> dict[str, Any] | None:
        """A record; what is none is moved away."""
        try:
            return read_letter(self._kind, path)[0]
        except FileNotFoundError:
            return None
        except Unreadable:
            self.folder.refuse_if_newer()
        with suppress(StoreUnavailable), self.folder.writing(tx):  # Others write: the next look finds it again.
            try:
                return read_letter(self._kind, path)[0]
            except FileNotFoundError:
                return None
            except Unreadable as problem:
                self.folder.quarantine(path, str(problem))
        return None

    def put(self, path: Path, record: Mapping[str, Any], tx: Writing, *, now: int) -> None:
        """Write a record; one whose time is over makes room, another is never written over."""
        before = self.find(path, tx)
        if before is not None and before["expires_at"] <= now:
            self.remove(path)
        try:
            create(path, sealed(self._kind, record))
        except FileExistsError:
            raise AssertionError(f"the store refused a row: {self._kind}") from None

    def remove(self, path: Path) -> None:
        """Remove a record, for good."""
        path.unlink(missing_ok=True)
        sync_folder(self.place)

    def forget(self, now: int) -> int:
        """Remove records whose time is over; each is read once for that."""
        with answered():
            names = {path.name for path in self.listed()}
            self._ends = {name: end for name, end in self._ends.items() if name in names}
            for name in names - set(self._ends):
                record = self.find(self.place / name)
                if record is not None:
                    self._ends[name] = record["expires_at"]
            due = [name for name, end in self._ends.items() if end <= now]
            if not due:
                return 0
            removed = 0
            with self.folder.writing() as tx:
                for name in due:
                    record = self.find(self.place / name, tx)
                    if record is not None and record["expires_at"] <= now:
                        self.remove(self.place / name)
                        removed += 1
                    del self._ends[name]
        return removed


class DirectoryKeys:
    """Idempotency keys; implements ``core.ports.IdempotencyKeys``.

    A key that is kept with a new run stands in the run's own file: both are there, or neither. The file here is made
    after it, and where a death came between the two, the runs that live are asked.
    """

    def __init__(self, folder: Folder, with_runs: Callable[[Writing | None], list[dict[str, Any]]]) -> None:
        """``with_runs`` gives the keys that came with the runs that live."""
        self._shelf = Shelf(folder, "keys", "key")
        self._with_runs = with_runs

    def find(
        self, tenant: str, account: str, key: str, *, now: int | None = None, tx: Writing | None = None
    ) -> KeptKey | None:
        """What a key stands for, unless it is too old."""
        with answered():
            name = [tenant, account, key]
            record = self._shelf.find(self._path(name), tx)
            now = self._shelf.folder.now(now)
            for kept in [*([record] if record is not None else []), *self._with_runs(tx)]:
                if kept["name"] == name and kept["expires_at"] > now:
                    return KeptKey(kept["body_hash"], kept["run"])
        return None

    def keep(
        self,
        tenant: str,
        account: str,
        key: str,
        kept: KeptKey,
        *,
        seconds: float,
        now: int | None = None,
        tx: Writing | None = None,
    ) -> None:
        """Remember a key; one that was too old is written anew."""
        with answered(), self._shelf.folder.writing(tx) as writing:
            now = self._shelf.folder.now(now)
            name = [tenant, account, key]
            record = {"name": name, "body_hash": kept.body_hash, "run": kept.run, "made_at": now}
            record["expires_at"] = now + int(seconds * 1000)
            if kept.run in writing.added:
                writing.kept[kept.run] = record  # Written with the run, when nothing broke.
            else:
                self._shelf.put(self._path(name), record, writing, now=now)

    def write_kept(self, tx: Writing) -> None:
        """Make the files of the keys that were written with their runs."""
        with suppress(OSError):  # The run has its key, so it is found all the same, and the run was accepted.
            for record in tx.kept.values():
                self.write_one(record, tx)

    def write_one(self, record: Mapping[str, Any], tx: Writing) -> None:
        """Make the file of a key that was written with its run, if there is none yet."""
        path = self._path(record["name"])
        before = self._shelf.find(path, tx)
        if before is None or before["expires_at"] <= record["made_at"]:
            self._shelf.put(path, record, tx, now=record["made_at"])

    def held(
        self, tenant: str, account: str, *, at_most: int, now: int | None = None, tx: Writing | None = None
    ) -> tuple[int, int | None]:
        """How many keys of an account are remembered, counted up to a number, and when the first of them is not."""
        with answered():
            mine = list(self._shelf.place.glob(f"{hashed(tenant, account)}.*"))
            if len(mine) < at_most:
                return len(mine), None
            # Now it matters that some of them are only not swept yet.
            now = self._shelf.folder.now(now)
            ends = [record["expires_at"] for path in mine if (record := self._shelf.find(path, tx)) is not None]
        still = [end for end in ends if end > now]
        return len(still), min(still, default=None)

    def _path(self, name: list[str]) -> Path:
        """The file of a key; its name begins with its account, whose keys are counted."""
        return self._shelf.place / f"{hashed(*name[:2])}.{hashed(*name)}"

    def forget(self, *, now: int | None = None) -> int:
        """Remove keys that are too old."""
        return self._shelf.forget(self._shelf.folder.now(now))


class DirectorySessions:
    """Sign-ins of browsers; implements ``core.ports.Sessions``. Only hashes of secrets are kept."""

    def __init__(self, folder: Folder) -> None:
        """Bind the folder."""
        self._shelf = Shelf(folder, "sessions", "session")

    def open(self, sign_in: SignIn, *, at_most: int | None = None, now: int | None = None) -> None:
        """Remember a sign-in; of a key's sign-ins only so many stay, those that end last, and this one."""
        with answered(), self._shelf.folder.writing() as tx:
            self._shelf.put(self._path(sign_in.id), asdict(sign_in), tx, now=self._shelf.folder.now(now))
            if at_most is not None:
                found = (self._shelf.find(path, tx) for path in self._shelf.listed())
                signed = [SignIn(**record) for record in found if record is not None]
                others = [
                    each
                    for each in signed
                    if each.key_name == sign_in.key_name and each.id != sign_in.id and not each.id.startswith(LINK)
                ]
                for surplus in sorted(others, key=lambda each: (-each.expires_at, each.id))[at_most - 1 :]:
                    self._shelf.remove(self._path(surplus.id))

    def _path(self, session_id: str) -> Path:
        return self._shelf.place / hashed(session_id)

    def find(self, session_id: str, *, now: int | None = None) -> SignIn | None:
        """A sign-in that has not ended."""
        with answered():
            record = self._shelf.find(self._path(session_id))
            if record is None or record["expires_at"] <= self._shelf.folder.now(now):
                return None
        return SignIn(**record)

    def close(self, session_id: str) -> None:
        """End a sign-in at once."""
        with answered(), self._shelf.folder.writing():
            self._shelf.remove(self._path(session_id))

    def take(self, session_id: str, *, now: int | None = None) -> SignIn | None:
        """Find a sign-in and end it, for a link that works once."""
        with answered(), self._shelf.folder.writing() as tx:
            path = self._path(session_id)
            record = self._shelf.find(path, tx)
            if record is None or record["expires_at"] <= self._shelf.folder.now(now):
                return None
            self._shelf.remove(path)
        return SignIn(**record)

    def forget(self, *, now: int | None = None) -> int:
        """Remove sign-ins that have ended."""
        return self._shelf.forget(self._shelf.folder.now(now))


class DirectoryWorkers:
    """Presence: a small record for each worker, renewed in its place. Implements ``core.ports.Workers``."""

    def __init__(self, folder: Folder) -> None:
        """Bind the folder."""
        self._folder = folder
        self._place = folder.root / "workers"

    def announce(self, presence: Presence, *, now: int | None = None) -> None:
        """Write or renew a worker's presence."""
        with answered(), self._folder.writing():
            seen = self._folder.now(now)
            assert ID.fullmatch(presence.id), "an id that can be no file's name"
            path = self._place / presence.id
            before = self._read(path)
            if before is None:
                self._make_room(path)
                descriptor = os.open(path, NEW_FLAGS, 0o600)
                written = replace(presence, started_at=seen, seen_at=seen)
            else:
                descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                written = replace(before, state=presence.state, seen_at=seen)
            try:
                PRESENCE.write(descriptor, asdict(written))
            finally:
                os.close(descriptor)

    def leave(self, worker: str) -> None:
        """Remove it at a clean exit."""
        with answered(), self._folder.writing():
            if ID.fullmatch(worker):
                (self._place / worker).unlink(missing_ok=True)

    def seen(self, within_seconds: float, *, now: int | None = None) -> list[Presence]:
        """Workers seen within so many seconds, the longest living first."""
        since = self._folder.now(now) - int(within_seconds * 1000)
        found = [presence for presence in self.all() if presence.seen_at >= since]
        return sorted(found, key=lambda presence: presence.started_at)

    def claiming(self, within_seconds: float, *, now: int | None = None, tx: Writing | None = None) -> bool:
        """Say whether a worker that claims for everybody was seen within so many seconds."""
        seen = self.seen(within_seconds, now=now)
        return any(presence.state == "claiming" and presence.only_run is None for presence in seen)

    def forget(self, older_than_seconds: float, *, now: int | None = None) -> int:
        """Remove presences of workers that died long ago."""
        before = self._folder.now(now) - int(older_than_seconds * 1000)
        old = [presence.id for presence in self.all() if presence.seen_at < before]
        with answered():
            strange = self._strange()
        if not old and not strange:
            return 0
        removed = 0
        with answered(), self._folder.writing():
            for path in self._strange() if strange else ():
                self._folder.quarantine(path, NO_PRESENCE)
            for worker in old:
                presence = self._read(self._place / worker)
                if presence is not None and presence.seen_at < before:
                    (self._place / worker).unlink()
                    removed += 1
        return removed

    def all(self) -> list[Presence]:
        """Every presence that is kept; one that cannot be read is nobody's, until its worker renews it."""
        with answered():
            found = [self._read(path) for path in self._place.iterdir()]
        return [presence for presence in found if presence is not None]

    def _strange(self) -> list[Path]:
        """What is no file, so no worker made it."""
        with os.scandir(self._place) as entries:
            return [Path(entry.path) for entry in entries if not entry.is_file(follow_symlinks=False)]

    def _make_room(self, path: Path) -> None:
        """A record that cannot be read goes; what is no file at all is moved away for somebody to look at."""
        try:
            regular = stat.S_ISREG(path.lstat().st_mode)
        except FileNotFoundError:
            return
        if regular:
            path.unlink()
        else:
            self._folder.quarantine(path, NO_PRESENCE)

    def _read(self, path: Path) -> Presence | None:
        try:
            descriptor = os.open(path, READ_FLAGS)
        except OSError as problem:
            if problem.errno in (errno.ENOENT, *NO_FILE):
                return None
            raise
        try:
            record = PRESENCE.read(descriptor) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
        finally:
            os.close(descriptor)
        return None if record is None or record.get("id") != path.name else Presence(**record)

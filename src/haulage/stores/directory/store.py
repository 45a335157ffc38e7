"""A store without a database: one folder on a volume that several hosts may share.

    haulage.json     which version the files have, and which workers may claim
    lock             who writes, how often it was written, and the clock
    live/            runs that wait, are worked on, are ready, or whose bytes are not known to be gone
    ended/DAY/       the others, by the day on which they were asked for
    held/  slots/    claims: who lives, when it last beat, which slot it has
    active/          which keys are taken by an active run
    keys/ sessions/ workers/    idempotency keys, sign-ins, presence
    quarantine/      files that are no records, each with a word why

Read ``folder.py`` first, then ``runs.py``.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from haulage.core import events
from haulage.core.errors import SchemaMismatch, StoreUnavailable
from haulage.core.limits import ExportLimits
from haulage.stores.atomic import TEMPORARY, create, make_folder, read, replace, sync_folder
from haulage.stores.directory.exports import DirectoryExports
from haulage.stores.directory.folder import FACTS, LOCK, QUARANTINE, Folder, Writing, answered
from haulage.stores.directory.letter import VERSION, Unreadable, opened, sealed
from haulage.stores.directory.shelves import DirectoryKeys, DirectorySessions, DirectoryWorkers
from haulage.stores.directory.volume import faults_of
from haulage.stores.directory.watcher import DirectoryWatcher
from haulage.stores.schema import MIN_WORKER, Capabilities, Schema, too_old

FOLDERS = ("live", "ended", "held", "slots", "active", "keys", "sessions", "workers", QUARANTINE)
SCHEME = "directory:"


class DirectoryStore:
    """One open store: a member per kind of record, and the right to write that ties them together."""

    capabilities = Capabilities(transactions=False, database_clock=False, frees_the_dead=True)
    makes_itself = True  # a new one gets its version when it is first opened

    def __init__(self, url: str, limits: ExportLimits) -> None:
        """Open it without looking at its version; ``open_directory`` looks."""
        self.url = url
        self.path = directory_path(url)
        self.place = str(self.path)
        self.folder = folder = Folder(self.path)
        self.workers = DirectoryWorkers(folder)
        self.keys = DirectoryKeys(folder, self._keys_with_runs)
        self.sessions = DirectorySessions(folder)
        self.exports = DirectoryExports(folder, limits, self.refusal, self.workers.all, self.keys.write_one)

    def _keys_with_runs(self, tx: Writing | None) -> list[dict[str, Any]]:
        return self.exports.live.keys(tx)

    @contextmanager
    def begin(self, *, tenant: str | None = None) -> Iterator[Writing]:
        """The right to write, to pass to the verbs; each of them looks whose run it is.

        New runs and the keys that stand for them are written at the end, when nothing broke; every other verb writes
        at once, and what it wrote stays (there is no shared transaction: ``capabilities.transactions``).
        """
        with self.folder.writing() as tx:
            yield tx
            self.exports.write_added(tx)
            self.keys.write_kept(tx)

    def now(self) -> int:
        """The store's clock, in milliseconds: the time that the volume gives a file that is touched."""
        return self.folder.now(None)

    def watch(self) -> DirectoryWatcher:
        """A hint that something changed."""
        return DirectoryWatcher(self.folder)

    def schema(self) -> Schema:
        """Read which version the store has."""
        with answered():
            try:
                facts = opened("facts", read(self.path / FACTS)[0])
            except FileNotFoundError:
                if self._has_runs():  # Whose version, and whose files, nobody knows any more.
                    raise self._without_facts("it is missing, and there are runs") from None
                return Schema(None, None, wanted=VERSION, new=not self._others())
            except Unreadable as problem:
                raise self._without_facts(str(problem)) from problem
        return Schema(facts["schema_version"], facts["min_worker"], wanted=VERSION)

    def check(self) -> None:
        """Write a file anew, durably: a lock alone is had on a full volume too.

        Raises:
            StoreUnavailable: nothing can be written.
        """
        with answered(), self.folder.writing():
            data, _ = read(self.path / FACTS)
            try:
                opened("facts", data)  # What is none is not written again.
            except Unreadable as problem:
                raise StoreUnavailable(f"{FACTS}: {problem}") from problem
            replace(self.path / FACTS, data)

    def refusal(self) -> str | None:
        """Why a worker of this version may not claim here; None when it may."""
        return too_old(self.schema())

    def identity(self) -> str:
        """Which store this is, wherever it lies; it marks what is the store's own. Nothing without a version."""
        with answered(), suppress(FileNotFoundError):
            kept = opened("facts", read(self.path / FACTS)[0]).get("store_id")
            return "" if kept is None else f"{kept:016x}"
        return ""

    one_tenant = False

    def make_roles(self) -> None:
        """There are none: whoever owns the folder."""
        raise AssertionError("asked for by capability")

    def role(self) -> None:
        """None: a folder keeps no tenants apart by itself."""

    def quarantined(self) -> list[str]:
        """What was moved to ``quarantine`` because it was no record, a sentence each."""
        return self.folder.quarantined()

    def migrate(self, target: str = "head") -> None:
        """Make the store, or with ``base`` take everything of it away."""
        with answered(), self.folder.writing() as tx:
            tx.begin()
            for name in FOLDERS:
                if target == "base":
                    shutil.rmtree(self.path / name, ignore_errors=True)
                else:
                    (self.path / name).mkdir(mode=0o700, exist_ok=True)
            sync_folder(self.path)
            if target == "base":
                (self.path / FACTS).unlink(missing_ok=True)
            elif not (self.path / FACTS).exists():
                facts = {"schema_version": VERSION, "min_worker": MIN_WORKER, "store_id": secrets.randbits(63)}
                create(self.path / FACTS, sealed("facts", facts))

    def _without_facts(self, why: str) -> StoreUnavailable:
        do = "put it back from a backup, or from another store of this version"
        return StoreUnavailable(f"{self.path / FACTS}: {why}; {do}")

    def _has_runs(self) -> bool:
        return any(any((self.path / name).glob(found)) for name, found in (("live", "*.json"), ("ended", "*/*.json")))

    def _others(self) -> list[str]:
        """What lies in the folder and is not ours; others may be making the store at this moment."""
        with os.scandir(self.path) as entries:
            names = [entry.name for entry in entries]
        ours = (f"{TEMPORARY}probe-", f"{TEMPORARY}{FACTS}.")
        return sorted(name for name in names if name not in (LOCK, FACTS, *FOLDERS) and not name.startswith(ours))

    def close(self) -> None:
        """Let every claim go that this process holds."""
        self.exports.leases.close()


def directory_path(url: str) -> Path:
    """The folder of a ``directory:`` URL.

    Raises:
        ValueError: the URL names no folder, with what to write instead.
    """
    rest = url.removeprefix(SCHEME)
    if rest == url or not rest.strip("/"):
        raise ValueError(f"{url!r} names no folder; write directory:///srv/haulage")
    if "?" in rest:
        raise ValueError(f"{url!r}: a store takes no options after a question mark")
    return Path("/" + rest.lstrip("/")) if rest.startswith("//") else Path(rest)


def open_directory(
    url: str,
    limits: ExportLimits | None = None,
    *,
    migrate_new: bool = True,
    observe: events.Observe = events.ignore,
) -> DirectoryStore:
    """Open the store of a folder, and see that the folder can be one.

    Raises:
        SchemaMismatch: the files are of another version, or the store wants newer workers; the message says what to do.
        StoreUnavailable: the folder cannot be used: not by this user, or its volume does not keep what a store needs.
        ValueError: the URL names no folder.
    """
    path = directory_path(url)
    _make_private(path)
    store = DirectoryStore(url, limits or ExportLimits())
    store.folder.observe = observe
    if not migrate_new:
        return store
    with answered():
        if faults := faults_of(path):
            what = f"the volume of {path} cannot keep a store: {'; '.join(faults)}"
            raise StoreUnavailable(f"{what}; use another volume, or a database")
    schema = store.schema()
    if schema.new:
        store.migrate()
        schema = store.schema()
    if schema.version is None:
        found = ", ".join(store._others()[:3])  # noqa: SLF001 - of this module
        raise SchemaMismatch(f"{path} is no store of haulage, and holds {found}; name an empty folder in store")
    if schema.version < VERSION:
        raise SchemaMismatch(f"the files of {path} are of version {schema.version}; run: haulage migrate up")
    if (refusal := too_old(schema)) is not None:
        raise SchemaMismatch(refusal)
    return store


def _make_private(path: Path) -> None:
    """Make a new folder for its owner alone, and refuse one that others own or may enter."""
    try:
        make_folder(path)
        status = path.stat()
    except OSError as problem:
        raise StoreUnavailable(f"{path}: {problem.strerror}") from problem
    if status.st_uid != os.geteuid():
        what = f"{path} belongs to user {status.st_uid} and this is user {os.geteuid()}"
        raise StoreUnavailable(f"{what}; a store has one owner: run every worker and the web as that user")
    if stat.S_IMODE(status.st_mode) & 0o077:
        what = f"{path} can be entered by others (mode {stat.S_IMODE(status.st_mode):04o})"
        raise StoreUnavailable(f"{what}; run: chmod -R go-rwx {path}")

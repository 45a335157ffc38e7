"""The runs that something is still expected of: one file each in ``live``, and what this process knows of them.

A file is read once and again when it was replaced. Who holds the right to write, and finds the count of changes that
it knows, reads nothing at all. What is not a run is moved to ``quarantine`` with a word why; the others go on.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from haulage.core.errors import StoreUnavailable
from haulage.stores.atomic import TEMPORARY, create, replace
from haulage.stores.directory.folder import Folder, Writing
from haulage.stores.directory.letter import Unreadable, read_letter, sealed

Run = TypeVar("Run")
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")  # what may be a file's name; every id of ours is one
SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class Kept(Generic[Run]):
    """One file: the run, and the idempotency key that came with it, if one did."""

    run: Run
    key: dict[str, Any] | None
    status: tuple[int, ...]  # of the file; another one is another content
    more: Mapping[str, Any]  # what a newer haulage wrote about the run, and only it knows what to do with


def status_of(status: os.stat_result) -> tuple[int, ...]:
    """What is different once a file was replaced or written."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class RunFiles(Generic[Run]):
    """How a run is read from a file and written into one."""

    def __init__(self, folder: Folder, record: Callable[..., Run], names: Iterable[str], tuples: Iterable[str]) -> None:
        """``tuples`` are the fields that JSON gives back as lists."""
        self.folder = folder
        self._record = record
        self._names = tuple(names)
        self._tuples = tuple(tuples)

    def read(self, path: Path) -> Kept[Run]:
        """The run in a file.

        Raises:
            FileNotFoundError: there is none.
            Unreadable: it is no run, or that of another id.
        """
        found, status = read_letter("run", path)
        values, key = found.get("run"), found.get("key")
        if not isinstance(values, dict):
            raise Unreadable("it holds no run")
        if f"{values.get('id')}{SUFFIX}" != path.name:
            raise Unreadable("it is the run of another id")
        more = {name: values.pop(name) for name in set(values) - set(self._names)}
        for name in self._tuples:
            if values.get(name) is not None:
                values[name] = tuple(values[name])
        try:
            run = self._record(**values)
        except TypeError:
            raise Unreadable("it lacks what every run has") from None
        return Kept(run, key, status_of(status), more)

    def write(
        self, path: Path, run: Run, key: dict[str, Any] | None, more: Mapping[str, Any], *, new: bool
    ) -> Kept[Run]:
        """Write a run durably; a new one never takes the place of another."""
        values = {name: getattr(run, name) for name in self._names} | dict(more)
        record = {"run": values} if key is None else {"run": values, "key": key}
        (create if new else replace)(path, sealed("run", record))
        return Kept(run, key, status_of(path.stat()), more)


class Live(Generic[Run]):
    """The files of ``live``."""

    def __init__(self, files: RunFiles[Run]) -> None:
        """Bind the folder."""
        self._files = files
        self._folder = files.folder
        self.place = files.folder.root / "live"
        self._known: dict[str, Kept[Run]] = {}
        self._count = -1  # of changes, when all of it was known
        self._fresh: Writing | None = None
        self._mutex = threading.Lock()
        self._folder.at_fork.append(self._begin_anew)

    def _begin_anew(self) -> None:
        self._mutex, self._count, self._fresh = threading.Lock(), -1, None

    def path(self, run_id: str) -> Path:
        """The file of an id, which must be one."""
        return self.place / f"{run_id}{SUFFIX}"

    def find(self, run_id: str, tx: Writing | None = None) -> Kept[Run] | None:
        """One run, read from the disk; what cannot be read is no run, and is moved away."""
        if not ID.fullmatch(run_id):
            return None
        path = self.path(run_id)
        try:
            return self._files.read(path)
        except FileNotFoundError:
            pass
        except Unreadable:
            self._remove_unreadable([path], tx)
        self.drop(run_id)  # Somebody's hand was at it, whatever was known.
        return None

    def rows(self, tx: Writing | None = None) -> list[Kept[Run]]:
        """Every run of one instant, as far as others let us; exactly where the right to write is held."""
        for _ in range(3):
            with self._mutex:
                if tx is not None and (self._fresh is tx or self._count == tx.found):
                    self._follow(tx)
                    return list(self._known.values())
                before = self._folder.count()
                if tx is None and before == self._count:
                    return list(self._known.values())
                unreadable = self._read_all()
                if tx is not None:
                    self._follow(tx)
                elif before % 2 == 0 and before == self._folder.count():
                    self._count = before
                else:
                    self._count = -1
                whole = tx is not None or self._count >= 0
            if unreadable:
                try:
                    self._remove_unreadable(unreadable, tx)
                except StoreUnavailable:
                    self._forget_count()  # What is known is not all, and the next look must find the same.
                    raise
            if whole:
                break
        with self._mutex:
            return list(self._known.values())

    def _follow(self, tx: Writing) -> None:
        """From now on this process knows what it writes itself; nobody else writes meanwhile."""
        if self._fresh is not tx:
            self._fresh = tx
            tx.at_end.append(self._end)

    def _end(self, count: int) -> None:
        with self._mutex:
            self._count, self._fresh = count if self._fresh is not None else -1, None

    def _forget_count(self) -> None:
        with self._mutex:
            self._count, self._fresh = -1, None

    def _read_all(self) -> list[Path]:
        """Read what is new, forget what is gone; gives the files that are no runs."""
        found: dict[str, Kept[Run]] = {}
        unreadable = []
        with os.scandir(self.place) as entries:
            for entry in entries:
                if entry.name.startswith(TEMPORARY):
                    continue
                run_id = entry.name.removesuffix(SUFFIX)
                known = self._known.get(run_id)
                try:
                    if known is None or known.status != status_of(entry.stat(follow_symlinks=False)):
                        known = self._files.read(Path(entry.path))
                except FileNotFoundError:
                    continue
                except Unreadable:
                    unreadable.append(Path(entry.path))
                    continue
                except OSError:
                    if known is None:
                        continue  # The disk refuses one file: it is no run for now, and the others go on.
                found[run_id] = known
        self._known = found
        return unreadable

    def _remove_unreadable(self, paths: Iterable[Path], tx: Writing | None) -> None:
        """Look again with the right to write, so that nobody is at work on it, and move away what is no run."""
        self._folder.refuse_if_newer()
        try:
            with self._folder.writing(tx) as held:
                for path in paths:
                    try:
                        self._files.read(path)
                    except FileNotFoundError:
                        continue
                    except Unreadable as problem:
                        held.begin()
                        self._folder.quarantine(path, str(problem))
        except StoreUnavailable:
            if tx is not None:
                raise
            # Others write; the next look finds it again.

    # -- writing; the right to write is held ------------------------------------------------------------

    def put(self, run: Run, key: dict[str, Any] | None, tx: Writing, *, new: bool = False) -> None:
        """Write a run durably."""
        run_id: str = run.id  # type: ignore[attr-defined]  # every record has one
        assert ID.fullmatch(run_id), "an id that can be no file's name"
        tx.begin()
        more = {} if new else self._more_of(run_id)
        try:
            kept = self._files.write(self.path(run_id), run, key, more, new=new)
        except BaseException:
            self._forget_count()  # It may have been written all the same: what is known is read again.
            raise
        with self._mutex:
            self._known[run_id] = kept

    def _more_of(self, run_id: str) -> Mapping[str, Any]:
        """What is to be kept of what stands in the file, without being known here."""
        path = self.path(run_id)
        with self._mutex:
            known = self._known.get(run_id)
        try:
            if known is not None and known.status == status_of(path.stat()):
                return known.more
            return self._files.read(path).more
        except (FileNotFoundError, Unreadable):
            return {}

    def key_of(self, run_id: str) -> dict[str, Any] | None:
        """The idempotency key that came with a run, which was read a moment ago."""
        with self._mutex:
            kept = self._known.get(run_id)
        return None if kept is None else kept.key

    def keys(self, tx: Writing | None = None) -> list[dict[str, Any]]:
        """Every idempotency key that came with a run that lives."""
        return [kept.key for kept in self.rows(tx) if kept.key is not None]

    def drop(self, run_id: str) -> None:
        """Forget a run whose file is not there any more."""
        with self._mutex:
            self._known.pop(run_id, None)

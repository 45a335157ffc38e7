"""The runs that have ended and promise no bytes: ``ended/DAY/ID.json``, by the day on which they were asked for.

Nothing changes them any more, so this process reads each once for its lists and keeps the few words that lists ask
for. They are out of the way of everything that looks at the runs that live.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from haulage.core.errors import StoreUnavailable
from haulage.stores.atomic import TEMPORARY, sync_folder
from haulage.stores.directory.folder import Writing
from haulage.stores.directory.letter import Unreadable
from haulage.stores.directory.live import ID, SUFFIX, Kept, RunFiles

Run = TypeVar("Run")


class Word(NamedTuple):
    """What lists and the end of retention ask of a run."""

    requested_at: int
    id: str
    tenant: str
    account: str
    state: str
    dataset: str
    parent_kind: str | None
    parent: str | None
    retain_until: int | None


def word_of(run: object) -> Word:
    """The word of a run."""
    values: list[Any] = [getattr(run, name, "") for name in Word._fields]
    return Word(*values)


class Ended(Generic[Run]):
    """The files of ``ended``."""

    def __init__(self, files: RunFiles[Run]) -> None:
        """Bind the folder."""
        self._files = files
        self._folder = files.folder
        self.place = files.folder.root / "ended"
        self._words: dict[str, dict[str, Word]] = {}  # by day and file name
        self._mutex = threading.Lock()
        self._folder.at_fork.append(self._begin_anew)

    def _begin_anew(self) -> None:
        self._mutex = threading.Lock()

    def take(self, path: Path, requested_at: int) -> None:
        """Move the file of a run here, by one rename: it is never in both places. The right to write is held."""
        day = self.place / day_of(requested_at)
        if not day.is_dir():
            day.mkdir(mode=0o700)
            sync_folder(self.place)
        path.rename(day / path.name)
        sync_folder(day)
        sync_folder(path.parent)

    def find(self, run_id: str, tx: Writing | None = None) -> Kept[Run] | None:
        """One run; its id tells the day on which it was asked for, but not for certain."""
        if not ID.fullmatch(run_id):
            return None
        days = self.days()
        guess = _day_of_id(run_id)
        for day in sorted(days, key=lambda day: (day != guess, day)):
            path = self.place / day / f"{run_id}{SUFFIX}"
            try:
                return self._files.read(path)
            except FileNotFoundError:
                continue
            except Unreadable:
                self._quarantine([path], tx)
                return None
        return None

    def days(self) -> list[str]:
        """The days of which there are runs, the newest first."""
        with os.scandir(self.place) as entries:
            return sorted((entry.name for entry in entries if entry.is_dir(follow_symlinks=False)), reverse=True)

    def words(self, *, until: int | None = None) -> Iterator[list[Word]]:
        """What there is, day by day, the newest first; only days that began before an instant, if one is given."""
        days = self.days()
        with self._mutex:
            for gone in set(self._words) - set(days):
                del self._words[gone]
        for day in days:
            if until is None or day <= day_of(until):
                yield self._of_day(day)

    def _of_day(self, day: str) -> list[Word]:
        folder = self.place / day
        try:
            names = [name for name in os.listdir(folder) if not name.startswith(TEMPORARY)]  # noqa: PTH208 - names
        except FileNotFoundError:
            return []
        with self._mutex:
            known = self._words.setdefault(day, {})
        found, unreadable = {}, []
        for name in names:
            word = known.get(name)
            if word is None:
                try:
                    word = word_of(self._files.read(folder / name).run)
                except Unreadable:
                    unreadable.append(folder / name)
                    continue
                except OSError:
                    continue  # Removed meanwhile, or the disk refuses this one.
            found[name] = word
        with self._mutex:
            self._words[day] = found
        if unreadable:
            self._quarantine(unreadable, None)
        return list(found.values())

    def _quarantine(self, paths: list[Path], tx: Writing | None) -> None:
        self._folder.refuse_if_newer()
        with (
            suppress(StoreUnavailable),
            self._folder.writing(tx) as held,
        ):  # Others write: the next look finds it again.
            for path in paths:
                try:
                    self._files.read(path)
                except FileNotFoundError:
                    continue
                except Unreadable as problem:
                    held.begin()
                    self._folder.quarantine(path, str(problem))

    def remove(self, word: Word) -> bool:
        """Delete a run; say whether it was there. The right to write is held."""
        day = self.place / day_of(word.requested_at)
        try:
            (day / f"{word.id}{SUFFIX}").unlink()
        except FileNotFoundError:
            return False
        sync_folder(day)
        with suppress(OSError):  # It is not empty yet.
            day.rmdir()
        return True


def day_of(instant: int) -> str:
    """The day of an instant in UTC."""
    return datetime.fromtimestamp(instant // 1000, UTC).date().isoformat()


def _day_of_id(run_id: str) -> str | None:
    """The day that stands in a UUIDv7."""
    try:
        return day_of(int(run_id.replace("-", "")[:12], 16))
    except (ValueError, OverflowError, OSError):
        return None

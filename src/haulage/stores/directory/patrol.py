"""Tidies up what a death between two steps leaves behind: temporary names, claims, slots and keys of nobody.

Everything that counts is in the rows, so nothing here is waited for. A pass looks first, and takes the right to write
only when there is something to do; what is young may belong to somebody who is still at work.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from haulage.stores.atomic import TEMPORARY
from haulage.stores.directory.actives import Actives
from haulage.stores.directory.folder import FACTS, STALE_SECONDS, Folder, answered
from haulage.stores.directory.rows import Rows

EVERY_SECONDS = 30.0
PROBE_SECONDS = 600.0  # longer than any look at the volume takes (volume.py)
SHELVES = ("keys", "sessions", "workers", "quarantine")


class Patrol:
    """One for each store that is open."""

    def __init__(self, folder: Folder, rows: Rows[Any], actives: Actives) -> None:
        """Bind what is looked through."""
        self._folder = folder
        self._rows = rows
        self._actives = actives
        self._shelves = [folder.root / name for name in SHELVES]
        self._next = 0.0  # monotonic seconds

    def pass_now_and_then(self, lives: Any, move_to_ended: Any) -> None:
        """A pass, unless the last one was a moment ago."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + EVERY_SECONDS
            self.pass_once(lives, move_to_ended)

    def pass_once(self, lives: Any, move_to_ended: Any) -> int:
        """Tidy up; gives how many names went or were put where they belong.

        Args:
            lives: says whether a run belongs in ``live``.
            move_to_ended: puts one away that does not; a death between two renames left it.
        """
        with answered():
            if not any(True for _ in self._leftovers()) and all(map(lives, self._rows.living())):
                return 0
            done = 0
            with self._folder.writing() as tx:
                for path in self._leftovers():
                    with suppress(OSError):  # One that does not go, or went by itself, keeps nobody from the others.
                        shutil.rmtree(path) if path.is_dir() else path.unlink()
                        done += 1
                for run in self._rows.living(tx):
                    if not lives(run):
                        tx.begin()
                        move_to_ended(run, tx)
                        done += 1
        return done

    def _leftovers(self) -> Iterator[Path]:
        rows = {run.id: run for run in self._rows.living()}
        claims = {f"{run.id}.{run.claim_no}" for run in rows.values() if run.lease_until is not None}
        slots = {str(run.slot) for run in rows.values()}
        keys = {self._actives.path(run.active_key).name for run in rows.values() if run.active_key is not None}
        for folder, known in ((self._rows.leases.held, claims), (self._rows.leases.slots, slots)):
            yield from self._stale(folder, known)
        yield from self._stale(self._actives.place, keys)
        live = self._rows.live.place
        days = [self._rows.ended.place / day for day in self._rows.ended.days()]
        for folder in (live, *days, *self._shelves):
            for path in folder.glob(f"{TEMPORARY}*"):
                if self._folder.is_stale(path):
                    yield path
        for name, seconds in ((f"{TEMPORARY}probe-*", PROBE_SECONDS), (f"{TEMPORARY}{FACTS}.*", STALE_SECONDS)):
            for path in self._folder.root.glob(name):
                if self._folder.is_stale(path, seconds):
                    yield path

    def _stale(self, folder: Path, known: set[str]) -> Iterator[Path]:
        for path in folder.iterdir():
            if path.name not in known and self._folder.is_stale(path):
                yield path

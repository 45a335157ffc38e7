"""Do two hosts see the same locks, names and files? ``haulage doctor --peer`` runs on both, and they meet in a folder.

    both     say hello, and find each other
    first    holds the lock          second   must be refused, and get it once it is let go; then the other way round
    both     try to make one name    exactly one may
    first    replaces a file         second   must see the new content, whole
    second   writes in place         first    must see that the file was written (a beat)

They talk by files only, each written under a temporary name: a step of mine is ``NAME.STEP``.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from haulage.core.clock import now_ms
from haulage.stores import atomic
from haulage.stores.directory.folder import milliseconds, try_lock

Found = TypeVar("Found")
PLACE = f"{atomic.TEMPORARY}peer"
MEET_SECONDS = 60.0  # how long one waits for the other to come
STEP_SECONDS = 15.0  # how long one waits for a step of the other; a volume may show a file late
PAUSE_SECONDS = 0.02
OLD_SECONDS = 120.0  # what an earlier meeting left behind


class Alone(Exception):
    """The other did not come, or went away."""


@dataclass(slots=True)
class Met:
    """What one side found out."""

    other: str  # host and process
    faults: list[str] = field(default_factory=list)
    skew_ms: int = 0  # this host's clock, less the volume's


def meet(folder: Path, *, seconds: float = MEET_SECONDS) -> Met:
    """Wait for another host, and try the volume with it.

    Raises:
        Alone: nobody came, or the other side ended in the middle.
        OSError: the volume refused something.
    """
    place = folder / PLACE
    place.mkdir(mode=0o700, exist_ok=True)
    side = Side(place, f"{socket.gethostname()[:60].replace('.', '-')}_{os.getpid()}")
    try:
        return side.meet(seconds)
    finally:
        side.leave()


class Side:
    """One of the two."""

    def __init__(self, place: Path, name: str) -> None:
        """Name this side; the names decide who is the first."""
        self._place = place
        self._me = name
        self._other = ""
        self._lock = place / "lock"

    def meet(self, seconds: float) -> Met:
        """Find the other one and go through every step."""
        self._say("hello", str(now_ms()))
        skew = now_ms() - milliseconds((self._place / f"{self._me}.hello").stat())
        self._other = self._until(self._find_other, seconds, "nobody came")
        met = Met(self._other.replace("_", ", process "), skew_ms=skew)
        self._lock.touch(mode=0o600)
        first = self._me < self._other
        self._ready("ready")
        for turn in ("a", "b"):
            holds = first == (turn == "a")
            met.faults += self._hold(turn) if holds else self._try(turn)
        met.faults += self._name()
        met.faults += self._replaced(writes=first)
        met.faults += self._beaten(writes=not first)
        self._ready("done")
        self._say("bye", "yes")
        return met

    # -- the steps ----------------------------------------------------------------------------------

    def _hold(self, turn: str) -> list[str]:
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CLOEXEC)
        try:
            if not try_lock(descriptor):
                self._say(f"{turn}-held", "no")
                return ["flock is refused although nobody holds it"]
            self._say(f"{turn}-held", "yes")
            self._hear(f"{turn}-tried")
        finally:
            os.close(descriptor)
        self._say(f"{turn}-released", "yes")
        self._hear(f"{turn}-over")
        return []

    def _try(self, turn: str) -> list[str]:
        if self._hear(f"{turn}-held") != "yes":
            return []
        found = []
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CLOEXEC)
        try:
            if try_lock(descriptor):
                found.append("flock is not shared: this host got a lock that the other one holds")
            self._say(f"{turn}-tried", "yes")
            self._hear(f"{turn}-released")
            with suppress(Alone):
                self._until(lambda: try_lock(descriptor), STEP_SECONDS, "")
                return found
            found.append("flock stays with the other host although it let it go")
        finally:
            os.close(descriptor)
            self._say(f"{turn}-over", "yes")
        return found

    def _name(self) -> list[str]:
        try:
            atomic.mark(self._place / "name", self._me)
            mine = "made"
        except FileExistsError:
            mine = "taken"
        self._say("name", mine)
        if {mine, self._hear("name")} != {"made", "taken"}:
            return ["a name was made by both hosts, or by none"]
        return []

    def _replaced(self, *, writes: bool) -> list[str]:
        path = self._place / "replaced"
        if writes:
            atomic.replace(path, b"before" * 4_000)
            self._say("before", "yes")
            self._hear("before-seen")
            atomic.replace(path, b"after!" * 4_000)
            self._say("after", "yes")
            return []
        self._hear("before")
        path.read_bytes()
        self._say("before-seen", "yes")
        self._hear("after")
        give_up, seen = time.monotonic() + STEP_SECONDS, b""
        while seen != b"after!" * 4_000:
            seen = path.read_bytes()
            if seen not in (b"before" * 4_000, b"after!" * 4_000):
                return ["a file was seen in part while the other host replaced it"]
            if time.monotonic() > give_up:
                return ["a file that the other host replaced stays the old one"]
        return []

    def _beaten(self, *, writes: bool) -> list[str]:
        path = self._place / "beaten"
        if writes:
            atomic.mark(path, "0")
            self._say("mark", "yes")
            self._hear("mark-seen")
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.pwrite(descriptor, b"1", 0)
            finally:
                os.close(descriptor)
            self._say("beat", "yes")
            return []
        self._hear("mark")
        path.read_bytes()
        self._say("mark-seen", "yes")
        self._hear("beat")
        with suppress(Alone):
            self._until(lambda: path.read_bytes() == b"1", STEP_SECONDS, "")
            return []
        return ["what the other host writes into a file is not seen here: a living worker would be taken for dead"]

    # -- talking ------------------------------------------------------------------------------------

    def _find_other(self) -> str:
        for path in sorted(self._place.glob("*.hello")):
            name = path.name.removesuffix(".hello")
            with suppress(FileNotFoundError):
                age = (self._place / f"{self._me}.hello").stat().st_mtime - path.stat().st_mtime
                if name != self._me and age < OLD_SECONDS:
                    return name
        return ""

    def _ready(self, step: str) -> None:
        self._say(step, "yes")
        self._hear(step)

    def _say(self, step: str, word: str) -> None:
        atomic.replace(self._place / f"{self._me}.{step}", word.encode())

    def _hear(self, step: str) -> str:
        path = self._place / f"{self._other}.{step}"
        return self._until(lambda: path.read_text() if path.exists() else "", STEP_SECONDS, f"{self._other} went away")

    def _until(self, look: Callable[[], Found], seconds: float, why: str) -> Found:
        give_up = time.monotonic() + seconds
        while not (found := look()):
            if time.monotonic() > give_up:
                raise Alone(why)
            time.sleep(PAUSE_SECONDS)
        return found

    def leave(self) -> None:
        """Remove what is mine; but the last word stays until the other one has heard it, who then removes it all."""
        bye = (self._place / f"{self._me}.bye").exists()
        last = not bye or (self._place / f"{self._other}.bye").exists()
        for path in self._place.glob(f"{self._me}.*"):
            if last or path.suffix not in (".done", ".bye"):
                path.unlink(missing_ok=True)
        if last and (bye or not any(self._place.glob("*.hello"))):
            for path in self._place.iterdir():
                path.unlink(missing_ok=True)
            with suppress(OSError):
                self._place.rmdir()

"""``haulage doctor`` on a directory store: what its volume keeps, also with another host, and what was moved aside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from haulage.cli.findings import Finding

if TYPE_CHECKING:
    from haulage.stores import AnyStore

CLOCK_STEP_MS = 1_000  # a host whose clock differs more is worth a word


def volume(folder: Path) -> Iterator[Finding]:
    """Try the volume from this host, with a second process that is killed."""
    from haulage.stores.directory.volume import deep_faults_of

    try:
        faults = deep_faults_of(folder)
    except OSError as problem:
        faults = [f"{problem.strerror or type(problem).__name__}"]
    for fault in faults:
        yield Finding("FAIL", "volume", fault, "keep the store on another volume, or in a database")
    if not faults:
        yield Finding("OK", "volume", "flock, hard links, rename and fsync hold, and a killed process frees its lock")


def peer(folder: Path, seconds: float) -> Iterator[Finding]:
    """Try the volume together with another host that runs the same."""
    from haulage.cli.terminal import say
    from haulage.stores.directory.peer import Alone, meet

    say(f"waiting {seconds:g} s for: haulage doctor --peer on another host that shares {folder}")
    try:
        met = meet(folder, seconds=seconds)
    except Alone as problem:
        yield Finding("FAIL", "peer", str(problem), "run haulage doctor --peer on two hosts within a minute")
        return
    except OSError as problem:
        yield Finding("FAIL", "peer", f"{problem.strerror or type(problem).__name__}", "see the volume's mount options")
        return
    for fault in met.faults:
        yield Finding(
            "FAIL", "peer", f"with {met.other}: {fault}", "mount the volume with shared locks, or use a database"
        )
    if not met.faults:
        yield Finding("OK", "peer", f"with {met.other}: locks, names, renames and beats are seen by both")
    if abs(met.skew_ms) > CLOCK_STEP_MS:
        what = f"this host's clock is {met.skew_ms:,} ms from the volume's, which decides"
        yield Finding("WARN", "clock", what, "see the time service")


def quarantined(store: AnyStore) -> Iterator[Finding]:
    """Files that were no records, which the store moved aside."""
    for sentence in getattr(store, "quarantined", list)():
        do = "look at it in quarantine; put a good copy back, or remove it and its .why"
        yield Finding("WARN", "store", sentence, do)

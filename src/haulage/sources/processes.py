"""What a build has started ends with it: found below a process that lives, or by the mark of one that is dead.

Code of the host starts what it likes, in whatever session. What loses its parent is adopted by the keeper of the build
(``worker/keeper.py``), and ends as one of its descendants. Where the keeper itself was killed, nobody is above it any
more; then it is known by a mark in its environment that names the keeper.
"""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from haulage.core.errors import BuildFailed

MARK = "HAULAGE_KEPT_BY"  # namespace of process numbers, number of the keeper, and when that began
END_SECONDS = 10  # how long processes are ended that do not end
NAP_SECONDS = 0.005  # between two looks at what is left


def end_descendants(grace_seconds: float) -> None:
    """Wait for a moment until everything below us has ended, then end it. What lost its parent is ours: see prctl.

    Raises:
        BuildFailed: something does not end.
    """
    _end(lambda: _descendants(os.getpid()), grace_seconds)
    reap()


def end_forsaken() -> None:
    """End what carries the mark of a keeper that lives no more.

    Raises:
        BuildFailed: something does not end.
    """
    _end(_forsaken, 0)


def mark_of(keeper: int) -> str:
    """What a process carries in its environment that lives no longer than this one."""
    return f"{_namespace()} {keeper} {_began(keeper)}"


def reap() -> None:
    """Reap every child that has ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _end(look: Callable[[], Sequence[int]], grace_seconds: float) -> None:
    began = time.monotonic()
    while left := look():
        waited = time.monotonic() - began
        if waited >= grace_seconds:
            for pid in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        if waited > grace_seconds + END_SECONDS:
            raise BuildFailed("command_failed", cause=f"processes that do not end: {len(left)}")
        time.sleep(NAP_SECONDS)
        reap_those(left)


def reap_those(pids: Sequence[int]) -> None:
    """Reap of these what is ours and has ended: another thread may have children of its own."""
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def unlinked_bytes(device: int) -> int:
    """What everything below us has in files of a device that have no name any more, or never had one."""
    sizes: dict[int, int] = {}  # by the number of the file: several may have it open
    for pid in _descendants(os.getpid()):
        with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as found:
            for entry in found:
                with suppress(OSError):
                    status = entry.stat()
                    if status.st_dev == device and status.st_nlink == 0 and stat.S_ISREG(status.st_mode):
                        sizes[status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


def _descendants(ancestor: int) -> Sequence[int]:
    """Every process below one that has not ended."""
    parents = {pid: (int(parent), state) for pid in _all() for state, parent, *_ in [_stat(pid)] if parent}
    found: list[int] = []
    below = {ancestor}
    while below:
        below = {pid for pid, (parent, _) in parents.items() if parent in below}
        found += [pid for pid in below if parents[pid][1] != b"Z"]
    return found


def _forsaken() -> Sequence[int]:
    ours, us = _namespace(), os.getpid()
    found = []
    for pid in _all():
        namespace, _, keeper = _mark(pid).rpartition("]")
        if pid != us and f"{namespace}]" == ours and not _is(keeper) and _stat(pid)[0] not in (b"", b"Z"):
            found.append(pid)
    return found


def _mark(pid: int) -> str:
    """The mark of a process, as far as we may look; empty when it has none."""
    with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - pathlib takes 6 ms to load
        for line in file.read().split(b"\0"):
            if line.startswith(MARK.encode() + b"="):
                return line.decode("utf-8", "replace").partition("=")[2]
    return ""


def _is(keeper: str) -> bool:
    """Say whether that keeper lives: its number may be another's by now."""
    number, _, began = keeper.strip().partition(" ")
    return not number.isdigit() or (_began(int(number)) == began and _stat(int(number))[0] != b"Z")


def _namespace() -> str:
    """Numbers of processes mean something only in here; ``pid:[…]``."""
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - pathlib takes 6 ms to load
    return "unknown"


def _began(pid: int) -> str:
    fields = _stat(pid)
    return fields[19].decode() if len(fields) > 19 else ""


def _all() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - names are all that is wanted


def _stat(pid: int) -> list[bytes]:
    """Of its line after the name: state, parent, …; empty texts where there is no such process."""
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib takes 6 ms to load
        return file.read().rpartition(b")")[2].split()
    return [b"", b""]

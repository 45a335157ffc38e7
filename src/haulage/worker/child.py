"""The process that builds one file; ``process.py`` starts it, its order is the first line of its input.

It loads what it needs before it reads the order, so that one that was started before its run was known has done so.

It knows nothing of the queue and imports no store. It dies with its supervisor, also in the middle of a
silent statement: a thread waits on the lifeline pipe, whose other end the supervisor holds, and kills the
whole process group at its end. Where code of the host runs in it, a keeper above it does that (``keeper.py``).
TERM keeps its default and ends the process at once, whatever it is doing; only where a server works for us does a
thread tell it first to stop.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from haulage.core.ports import Sink
    from haulage.core.progress import Progress
    from haulage.core.source import Source
    from haulage.exports.build import BuildOrder, Built

MIB = 1024 * 1024
ROOM = 4 * MIB  # of memory: a build that has less left can load or start nothing more
BELOW_KEEPER = "kept"  # the word for a build that a keeper stands above


def main() -> None:
    """Build what the order says; the result is the last line of the report pipe."""
    lifeline, report = map(int, sys.argv[1:3])
    _die_when_told()
    if BELOW_KEEPER in sys.argv[3:]:
        from haulage.worker.keeper import fork_below_keeper

        fork_below_keeper(lifeline, report)
    else:
        _die_with_parent(lifeline)
    # After the lifeline: loading the builder takes most of the start.
    from haulage.core.errors import BuildFailed
    from haulage.exports.build import BuildOrder

    _load(word for word in sys.argv[3:] if word != BELOW_KEEPER)

    def tell(message: dict[str, object]) -> None:
        line = json.dumps(message).encode() + b"\n"
        while line:
            line = line[os.write(report, line) :]

    def progressed(progress: Progress) -> None:
        tell(progress._asdict())

    def entered(session: str) -> None:
        tell({"session": session})

    try:
        order = BuildOrder.from_json(sys.stdin.readline())
        _work_in(order.folder)
        by_command = "command" in order.plan
        built = _built_by_command(order, progressed) if by_command else _built(order, progressed, entered)
        tell({"built": built._asdict()})
    except BuildFailed as failed:
        tell({"failed": failed.code, "detail": failed.detail, "cause": failed.cause})
    except MemoryError:
        tell({"failed": "out_of_memory", "detail": None, "cause": "MemoryError"})
    except Exception as problem:  # noqa: BLE001 - whatever it was, the run must end with a code
        code = "out_of_memory" if _is_full() else "build_failed"
        tell({"failed": code, "detail": None, "cause": f"{type(problem).__name__}: {problem}"[:500]})


def end() -> None:
    """End, and take nothing apart: that takes longer than a small file. Only code of the host may count on it."""
    if BELOW_KEEPER not in sys.argv[3:]:
        sys.stderr.flush()
        os._exit(0)


def _built(order: BuildOrder, progressed: Callable[[Progress], None], entered: Callable[[str], None]) -> Built:
    """From rows of a source, by our encoders."""
    from haulage.exports.build import build
    from haulage.sources import SERVERS, open_source, scheme_of

    source: Source
    if order.host is not None:
        from haulage.sources import pages  # only such a child loads code of the host

        source = pages.open_source(order.host, order.plan["pages"])
    else:
        if order.format != "csv":
            # pyarrow would load it in vain, and 14 MiB with it
            sys.modules.setdefault("numpy", None)  # type: ignore[arg-type]
        name = f"haulage {os.path.basename(order.folder)}"  # noqa: PTH119 - pathlib takes 6 ms to load
        many = {"connections": order.connections, "readers": int(order.plan.get("parallel", 1))}
        source = open_source(order.source_url, order.busy_seconds, seconds=order.seconds, name=name, **many)
    if scheme_of(order.source_url) in SERVERS or order.format == "parquet":  # ctypes takes 10 ms to load
        _settle_memory()
    _limit(order)
    if scheme_of(order.source_url) in SERVERS:
        _cancel_when_told(source)
    return build(order, source, _sink(order), progressed, entered)


def _load(schemes: Iterable[str]) -> None:
    """Load what the sources of these technologies need; whatever cannot be loaded, the build will say."""
    from haulage.sources import load

    for scheme in schemes:
        with suppress(Exception):
            load(scheme)


def _work_in(folder: str) -> None:
    """Make the run's own folder that in which we work, and keep what is put aside; SQLite sorts there."""
    os.chdir(folder)
    os.environ["TMPDIR"] = os.environ["SQLITE_TMPDIR"] = folder


def _built_by_command(order: BuildOrder, progressed: Callable[[Progress], None]) -> Built:
    """By a program of the operator's."""
    from haulage.artifacts.part import Allowed
    from haulage.exports.deliver import deliver
    from haulage.sources.command import Command

    assert order.host is not None
    command = Command(
        order.folder,
        order.plan["command"],
        order.host,
        allowed_bytes=min(order.file_bytes, order.reserved_bytes),
        refuse_bytes=Allowed(order.file_bytes, order.reserved_bytes).refuse,
        scratch_bytes=order.plan["limits"]["sort_bytes"],
    )
    _limit(order)
    return deliver(order, command, _sink(order), progressed)


def _sink(order: BuildOrder) -> Sink:
    """A file in the child's folder, or an upload; only a child that uploads loads what speaks HTTP."""
    if order.upload is None:
        from haulage.artifacts.part import PartFile

        return PartFile(order.folder, file_bytes=order.file_bytes, reserved_bytes=order.reserved_bytes)
    from haulage.artifacts.upload import Upload

    return Upload(order.upload, file_bytes=order.file_bytes, reserved_bytes=order.reserved_bytes)


def _die_when_told() -> None:
    """TERM ends us by its default, whatever the program that started the supervisor had done with it."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _die_with_parent(lifeline: int) -> None:
    def wait_for_the_end() -> None:
        with suppress(OSError):
            os.read(lifeline, 1)
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.stack_size(MIB)  # The usual 8 MiB of each thread would count as memory.
    threading.Thread(target=wait_for_the_end, daemon=True, name="lifeline").start()
    # Beside it the kernel's own: it fires when the thread that started us ends, which outlives us.
    with suppress(Exception):
        import ctypes  # loaded after the lifeline holds

        PR_SET_PDEATHSIG = 1  # noqa: N806 - its name in prctl(2)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _cancel_when_told(source: Source) -> None:
    """At TERM have the server cancel our statement, and end.

    It is told by a thread: a handler in Python would wait until the driver's call in the main thread returns. What
    we have no time for, the supervisor does, and in the end the server finds that its client is gone.
    """
    told, tells = os.pipe()
    os.set_blocking(tells, False)

    def wait_for_a_signal() -> None:
        while os.read(told, 1)[0] != signal.SIGTERM:
            pass
        source.cancel()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait_for_a_signal, daemon=True, name="cancel").start()
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    signal.set_wakeup_fd(tells)


def _settle_memory() -> None:
    """Have large blocks given back as soon as they are free, and no address space taken in advance for each thread."""
    M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # noqa: N806 - their names in mallopt(3)
    with suppress(Exception):  # it is glibc's
        import ctypes

        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, 4 * MIB)
        mallopt(M_TRIM_THRESHOLD, 8 * MIB)  # else what each piece needs is given back and taken again
        mallopt(M_ARENA_MAX, 1)


def _is_full() -> bool:
    """Say whether so little memory is left that whatever went wrong is likely to have wanted more.

    What cannot be loaded, started or opened for want of memory says so in many ways: a module that lacks a name, a
    thread that cannot be started, a library that cannot be mapped.
    """
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    return allowed != resource.RLIM_INFINITY and _address_space() + ROOM > allowed


def _address_space() -> int:
    """What is used of it now; nothing where the system does not say so."""
    try:
        statm = os.open("/proc/self/statm", os.O_RDONLY)
    except OSError:
        return 0
    try:
        return int(os.read(statm, 64).split()[0]) * resource.getpagesize()
    finally:
        os.close(statm)


def _limit(order: BuildOrder) -> None:
    """Set the outer fences: address space, and the size of one file.

    The second lies so far above both limits counted elsewhere that those are always met first.

    Raises:
        MemoryError: we are larger already. Told before there is a limit, while there is memory to tell it with.
    """
    limits = order.plan["limits"]
    if _address_space() > limits["memory_bytes"]:
        raise MemoryError
    largest = max(order.file_bytes + MIB, limits["sort_bytes"] + 256 * MIB)
    for kind, value in ((resource.RLIMIT_AS, limits["memory_bytes"]), (resource.RLIMIT_FSIZE, largest)):
        _, hard = resource.getrlimit(kind)
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (allowed, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

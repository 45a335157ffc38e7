"""The keeper of a build that runs code of the host: a process that does nothing, so that nothing outlives the build.

::

    supervisor ── lifeline ──> keeper ── forks ──> build ──> the command, or what a page function starts …

It leads the group, and is what the supervisor knows as its child. It adopts whatever below it loses its parent. When
the build has ended, however it did, or when the supervisor has (the lifeline says so), it ends everything below it, and
ends itself as the build did. Code of the host has no hold on it: none runs in here, no limit of the build is its own,
and TERM is not for it. If it is killed itself, the build dies with it, and what the build had started is found by its
mark, by the lane that waited for it or by the next sweep (``sources/processes.py``).
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
from contextlib import suppress

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # their names in prctl(2)


def fork_below_keeper(lifeline: int, report: int) -> None:
    """Go on as the build; the process that called becomes its keeper and does not return from here."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # of the whole group: only the build ends by it
    keeper = os.getpid()
    build = os.fork()
    if build:
        _keep(build, lifeline, report)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(lifeline)
    from haulage.sources.processes import MARK, mark_of

    os.environ[MARK] = mark_of(keeper)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _keep(build: int, lifeline: int, report: int) -> None:
    status: int | None = None
    try:
        os.chdir("/")
        os.close(report)  # its end is the build's
        os.close(0)
        status = _wait(build, lifeline)
        from haulage.core.errors import BuildFailed
        from haulage.sources.processes import end_descendants

        with suppress(BuildFailed):  # What does not end even so is no reason to stay.
            end_descendants(0)
    finally:
        _end_as(status)


def _wait(build: int, lifeline: int) -> int | None:
    """Until the build has ended; gives how, or None when the supervisor has ended before."""
    told, tells = os.pipe()
    os.set_blocking(told, False)
    os.set_blocking(tells, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(tells, warn_on_full_buffer=False)
    poll = select.poll()
    for descriptor in (told, lifeline):
        poll.register(descriptor, select.POLLIN)
    while True:
        with suppress(BlockingIOError):
            os.read(told, select.PIPE_BUF)
        with suppress(ChildProcessError):
            while (reaped := os.waitpid(-1, os.WNOHANG))[0]:
                if reaped[0] == build:
                    return reaped[1]
        if any(descriptor == lifeline for descriptor, _ in poll.poll()):
            return None


def _end_as(status: int | None) -> None:
    """As the build did, so that the supervisor sees how that was; by KILL when it did not end by itself."""
    code = -signal.SIGKILL if status is None else os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError, ValueError):
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)

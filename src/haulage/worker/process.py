"""One child process: started in its own group, heard over a pipe, ended by TERM, then KILL, then reaped.

It may be started before there is anything to build (``spare.py``), and is given its order then.

Ours and theirs of the four pipes::

    order    -->  standard input   one line, written as it is read, so that no order is too long for a pipe
    report   <--  a descriptor     one line of JSON a message
    words    <--  standard error   the last of them are kept for the log
    lifeline -->  a descriptor     nothing is ever written; its end tells the child that we are gone
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from haulage.sources.processes import end_forsaken
from haulage.worker.child import BELOW_KEEPER

BUILD = "from haulage.worker.child import end, main; main()"  # as -c, since -m takes 5 ms more to find it
START = BUILD + "; end()"
STDERR_KEPT = 4_096  # bytes of a child's last words, for the log
PIPE_BYTES = 65_536  # what a pipe holds: one read empties the pipe of a child that has ended
CLOSING_SECONDS = 0.002  # between two looks at a child that has closed its report and is about to end
KEEPER_SECONDS = 15  # that a keeper has to end what it keeps: above END_SECONDS of sources/processes.py
PACKAGES = str(Path(__file__).resolve().parents[2])  # where haulage lies
KEPT = ("PATH", "LD_LIBRARY_PATH", "LANG", "TZ", "VIRTUAL_ENV")
KEPT_PREFIXES = ("LC_", "PYTHON")


class Child:
    """A child process, and our ends of the pipes to it."""

    def __init__(self, order: str | None = None, *, kept: bool = False, loads: Sequence[str] = ()) -> None:
        """Start it; its order is one line. The thread that starts it must live as long as it does.

        Args:
            order: what it builds; None for one that waits for ``give``.
            kept: it runs code of the host, so what we see as the child is the keeper of the build (``keeper.py``).
            loads: the technologies of sources whose drivers it loads while it waits.

        Raises:
            OSError: no process could be started.
        """
        self._selector = selectors.DefaultSelector()
        self._kept = kept
        self._kill_at: float | None = None  # monotonic seconds, of a keeper that was told to end all
        self._order = b""
        self._line = b""
        self._last_words = b""
        with ExitStack() as theirs, ExitStack() as ours:
            ours.callback(self._selector.close)
            self._lifeline = ours.enter_context(ExitStack())
            lifeline_end, _ = _pipe(theirs, self._lifeline)
            order_end, self._order_in = _pipe(theirs, ours)
            self._report, report_end = _pipe(ours, theirs)
            words, words_end = _pipe(ours, theirs)
            words_of_start = [str(lifeline_end), str(report_end), *([BELOW_KEEPER] if kept else loads)]
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", START, *words_of_start],
                stdin=order_end,
                stdout=subprocess.DEVNULL,
                stderr=words_end,
                pass_fds=(lifeline_end, report_end),
                process_group=0,
                env=environment_of_child(),
                cwd="/",
            )
            self._ours = ours.pop_all()
        os.set_blocking(self._order_in, False)
        self._selector.register(self._report, selectors.EVENT_READ, self._hear_report)
        self._selector.register(words, selectors.EVENT_READ, self._hear_words)
        if order is not None:
            self.give(order)

    def give(self, order: str) -> None:
        """Give one that waits its order, once."""
        self._order = order.encode()
        self._selector.register(self._order_in, selectors.EVENT_WRITE, self._write_order)

    @property
    def pid(self) -> int:
        """Its process id, which is also its group's."""
        return self._process.pid

    def messages(self, seconds: float) -> list[dict[str, Any]]:
        """What it says within so many seconds; it is not waited for any longer, and its order goes on its way."""
        heard: list[dict[str, Any]] = []
        for key, _ in self._selector.select(min(seconds, CLOSING_SECONDS) if self.silent else seconds):
            handle: Callable[[int], list[dict[str, Any]]] = key.data
            heard += handle(key.fd)
        return heard

    @property
    def silent(self) -> bool:
        """Say whether it closed its report, which it does by ending."""
        return self._report not in self._selector.get_map()

    def ended(self) -> bool:
        """Say whether it has ended; it is not reaped yet, so its number cannot be taken by another."""
        with suppress(ChildProcessError):
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return True

    def signal(self, number: int) -> None:
        """Send a signal to its whole group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """End it and all that it started; a keeper has a while for that, and is ended itself when that is over."""
        now = time.monotonic()
        if self._kept and self._kill_at is None:
            self._lifeline.close()
            self._kill_at = now + KEEPER_SECONDS
        elif self._kill_at is None or now >= self._kill_at:
            self.signal(signal.SIGKILL)

    def reap(self) -> int:
        """End what is left of it, reap it and close the pipes; gives its return code."""
        while self._kept and not self.ended():
            self.kill()
            time.sleep(CLOSING_SECONDS)
        self.signal(signal.SIGKILL)
        code = self._process.wait()
        self._ours.close()
        if self._kept and code < 0:  # Perhaps it was the keeper that was killed.
            end_forsaken()
        return code

    @property
    def last_words(self) -> str:
        """The last line it wrote to its standard error, for the log."""
        lines = self._last_words.decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else ""

    # -- the pipes ---------------------------------------------------------------------------------

    def _write_order(self, descriptor: int) -> list[dict[str, Any]]:
        try:
            self._order = self._order[os.write(descriptor, self._order) :]
        except BrokenPipeError:  # A child that died at once is found by its exit.
            self._order = b""
        if not self._order:
            self._selector.unregister(descriptor)
        return []

    def _hear_report(self, descriptor: int) -> list[dict[str, Any]]:
        data = os.read(descriptor, PIPE_BYTES)
        if not data:
            self._selector.unregister(descriptor)
        *lines, self._line = (self._line + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def _hear_words(self, descriptor: int) -> list[dict[str, Any]]:
        data = os.read(descriptor, PIPE_BYTES)
        if not data:
            self._selector.unregister(descriptor)
        self._last_words = (self._last_words + data)[-STDERR_KEPT:]
        return []


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """A pipe, whose two ends are closed with the one and with the other."""
    read, write = os.pipe()
    reader.callback(os.close, read)
    writer.callback(os.close, write)
    return read, write


def environment_of_child() -> dict[str, str]:
    """A child gets none of our secrets, and finds what we find although it works in another folder."""
    kept = {name: value for name, value in os.environ.items() if name in KEPT or name.startswith(KEPT_PREFIXES)}
    # Our own package comes last: it may have been found through the folder that we were started in.
    path = [*filter(None, kept.get("PYTHONPATH", "").split(os.pathsep)), PACKAGES]
    kept["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, path))
    return kept | {"MALLOC_ARENA_MAX": "1"}  # one arena keeps the address space within its limit

"""One child process: started in its own group, heard over a pipe, ended by TERM, then KILL, then reaped."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

STDERR_KEPT = 4_096  # bytes of a child's last words, for the log
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "SYSTEMROOT")


class Child:
    """A child process and the three pipes to it: order in, report and last words out; and its lifeline."""

    def __init__(self, order: str, folder: str) -> None:
        """Start it. The thread that starts it must live as long as the child does.

        Raises:
            OSError: no process could be started.
        """
        lifeline_end, self._lifeline = os.pipe()
        self._report, report_end = os.pipe()
        environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        # SQLite sorts in the run's own folder; one malloc arena keeps the address space within its limit.
        environment |= {"SQLITE_TMPDIR": folder, "TMPDIR": folder, "MALLOC_ARENA_MAX": "1"}
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "haulage.worker.child", str(lifeline_end), str(report_end)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(lifeline_end, report_end),
                process_group=0,
                env=environment,
                cwd=folder,
            )
        except OSError:
            os.close(self._lifeline)
            os.close(self._report)
            raise
        finally:
            os.close(lifeline_end)
            os.close(report_end)
        assert self._process.stdin is not None
        assert self._process.stderr is not None
        self._words = self._process.stderr
        self._last_words = b""
        self._buffer = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._report, selectors.EVENT_READ, "report")
        self._selector.register(self._words, selectors.EVENT_READ, "words")
        with suppress(BrokenPipeError):  # A child that died at once is found by its exit.
            self._process.stdin.write(order.encode())
            self._process.stdin.close()

    @property
    def pid(self) -> int:
        """Its process id, which is also its group's."""
        return self._process.pid

    def messages(self, seconds: float) -> Iterator[dict[str, Any]]:
        """What it says within so many seconds, without waiting longer."""
        for key, _ in self._selector.select(seconds):
            data = os.read(key.fd, 65_536)
            if not data:
                self._selector.unregister(key.fileobj)
            elif key.data == "words":
                self._last_words = (self._last_words + data)[-STDERR_KEPT:]
            else:
                *lines, self._buffer = (self._buffer + data).split(b"\n")
                for line in lines:
                    yield json.loads(line)

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

    def reap(self) -> int:
        """End what is left of its group, reap it and close the pipes; gives its return code."""
        self.signal(signal.SIGKILL)
        code = self._process.wait()
        self._selector.close()
        for descriptor in (self._lifeline, self._report):
            os.close(descriptor)
        self._words.close()
        return code

    @property
    def last_words(self) -> str:
        """The last line it wrote to its standard error, for the log."""
        lines = self._last_words.decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else ""

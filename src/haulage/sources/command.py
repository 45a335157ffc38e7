"""An external command that builds a file, run by the child of a run, in a private folder of that run.

    work/KEY/command/            0700; the command works here and may leave what it wants; it goes with the run
        request.json             what was asked, and by whom
        file                     what the command makes
        report.json              what it says of it (``exports/report.py``)

The command gets its words without a shell, an empty standard input, and no more of an environment than is declared. It
is in the child's process group, and what it starts and leaves is adopted by the child and ended with it, also what went
into a session of its own (``processes.py``). Its files are measured while it writes; a limit of the kernel stops a file
at the last byte.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import selectors
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType
from typing import Any

from haulage.core.commands import filled
from haulage.core.errors import BuildFailed
from haulage.exports.report import REPORT_BYTES
from haulage.sources.processes import MARK, end_descendants, unlinked_bytes
from haulage.sources.query import without_bound

FOLDER, FILE, REPORT, REQUEST = "command", "file", "report.json", "request.json"
LOOK_SECONDS = 0.05  # between two looks at what it has written
UNLINKED_SECONDS = 0.25  # between two looks at what it has in files without a name, which take longer
GRACE_SECONDS = 0.5  # between the TERM that its group gets and our end of whatever is left
WORDS_BYTES = 4_096  # of what it says, kept for the log
READ_BYTES = 1024 * 1024
ENTRIES, DEPTH = 100_000, 64  # of its folder: what cannot be measured cannot be limited
TMPDIR = "TMPDIR"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # their names in prctl(2)


class Made:
    """What a command has left; implements ``exports.deliver.Made``."""

    def __init__(self, descriptor: int, report: bytes) -> None:
        """Take the open file."""
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        self.report = report

    def chunks(self) -> Iterator[bytes]:
        """The file, in bounded pieces."""
        while piece := os.read(self._descriptor, READ_BYTES):
            yield piece


class Command:
    """One run of a command; implements ``exports.deliver.Maker``."""

    def __init__(
        self,
        folder: str,
        command: Mapping[str, Any],
        host: Mapping[str, Any],
        *,
        allowed_bytes: int,
        refuse_bytes: Callable[[int], None],
        scratch_bytes: int,
    ) -> None:
        """Take what the plan has frozen and the worker knows; nothing is started.

        Args:
            folder: the run's own.
            command: ``arguments`` of the plan.
            host: ``environment`` and ``request`` of the worker.
            allowed_bytes: how large the file may become.
            refuse_bytes: fails with the code of that limit for a size that is over it.
            scratch_bytes: how much the command may write besides.
        """
        self._folder = f"{folder}/{FOLDER}"
        self._command = command
        self._host = host
        self._allowed, self._refuse_bytes = allowed_bytes, refuse_bytes
        self._scratch_bytes = scratch_bytes
        self._words = b""
        self._unlinked, self._unlinked_at = 0, 0.0
        self._libc = ctypes.CDLL(None)  # loaded before the fork

    @contextmanager
    def made(self) -> Iterator[Made]:
        """Run the command and open what it made; see ``exports.deliver.Maker``."""
        os.mkdir(self._folder, 0o700)  # noqa: PTH102 - pathlib takes 6 ms to load
        inside = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            self._write_request(inside)
            with self._ending_all():
                self._refuse(self._run())
            descriptor = self._opened(inside, FILE)
            if descriptor is None:
                raise BuildFailed("command_failed", cause="it ended well and left no file")
            try:
                self._refuse_bytes(os.fstat(descriptor).st_size)
                yield Made(descriptor, self._report(inside))
            finally:
                os.close(descriptor)
        finally:
            os.close(inside)

    # -- what it gets ------------------------------------------------------------------------------

    def _write_request(self, inside: int) -> None:
        request = self._host["request"] | {"limits": {"bytes": self._allowed, **self._host["request"]["limits"]}}
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(REQUEST, flags, 0o600, dir_fd=inside), "w") as file:
            json.dump(request, file)

    def _arguments(self) -> list[str]:
        request = self._host["request"]
        names = {"file": FILE, "report": REPORT, "request": REQUEST}
        paths = {place: f"{self._folder}/{name}" for place, name in names.items()}
        above = {"parent": request["parent"]} if "parent" in request else {}
        values = {**request["parameters"], **above, **paths, "folder": self._folder, "format": request["format"]}
        first, *others = self._command["arguments"]
        return [first, *filled(others, values)]

    def _environment(self) -> dict[str, str]:
        mark = {MARK: os.environ[MARK]} if MARK in os.environ else {}
        return {TMPDIR: self._folder, **self._host["environment"], **mark}

    # -- running -----------------------------------------------------------------------------------

    def _run(self) -> int:
        """The command from its start to its end; gives its return code."""
        arguments = self._arguments()
        try:
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=self._environment(),
                umask=0o077,
                preexec_fn=self._confine,  # noqa: PLW1509 - the one other thread of this process waits in a read
            )
        except (OSError, ValueError, subprocess.SubprocessError) as problem:
            cause = f"{arguments[0]} cannot be started: {getattr(problem, 'strerror', None) or problem}"
            raise BuildFailed("command_failed", cause=cause) from problem
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector, process.stdout as said:
            os.set_blocking(said.fileno(), False)
            selector.register(said, selectors.EVENT_READ)
            look_at = 0.0
            while True:
                ended = process.poll()  # asked before listening, so that its last words are heard
                self._hear(selector, 0 if ended is not None else LOOK_SECONDS)
                if ended is not None:
                    return ended
                if time.monotonic() >= look_at:
                    self._measure()
                    look_at = time.monotonic() + LOOK_SECONDS

    def _confine(self) -> None:
        """Between fork and exec: it dies with us, and none of its files becomes larger than ours may be by a byte."""
        self._libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        most = max(self._allowed, REPORT_BYTES) + 1
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    def _hear(self, selector: selectors.BaseSelector, seconds: float) -> None:
        """One look at what it says: a flood is read, and all but its end forgotten."""
        for key, _ in selector.select(seconds):
            try:
                data = os.read(key.fd, WORDS_BYTES * 16)
            except BlockingIOError:
                continue
            if not data:
                selector.unregister(key.fileobj)
            self._words = (self._words + data)[-WORDS_BYTES:]

    @contextmanager
    def _ending_all(self) -> Iterator[None]:
        """Nothing of it outlives this, however it ends; told to end, we end what it started before ourselves."""
        self._libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        before = signal.signal(signal.SIGTERM, _end_at_once)
        try:
            yield
        finally:
            end_descendants(0)
            signal.signal(signal.SIGTERM, before)

    # -- judging -----------------------------------------------------------------------------------

    def _measure(self) -> None:
        size = scratch = entries = 0
        left = [(self._folder, 0)]
        try:
            while left:
                folder, depth = left.pop()
                for path, status in _entries(folder):
                    entries += 1
                    if depth == 0 and path == f"{folder}/{FILE}":
                        size = status.st_size
                    elif stat.S_ISDIR(status.st_mode):
                        left.append((path, depth + 1))
                    else:
                        scratch += status.st_blocks * 512
                    if entries > ENTRIES or depth > DEPTH:
                        raise BuildFailed("command_failed", cause="it made more files or folders than are counted")
        except OSError as problem:
            cause = f"its folder cannot be looked at: {problem.strerror}"
            raise BuildFailed("command_failed", cause=cause) from problem
        self._refuse_bytes(size)
        if time.monotonic() >= self._unlinked_at:
            self._unlinked = unlinked_bytes(os.stat(self._folder).st_dev)  # noqa: PTH116 - pathlib takes 6 ms to load
            self._unlinked_at = time.monotonic() + UNLINKED_SECONDS
        if scratch + self._unlinked > self._scratch_bytes:
            detail = f"The command used more than the {self._scratch_bytes:,} bytes allowed for temporary files."
            raise BuildFailed("sort_space_exceeded", detail)

    def _refuse(self, code: int) -> None:
        """A command that ended otherwise than well; one of its files may have met the kernel's limit."""
        self._measure()
        if code == -signal.SIGXFSZ:
            self._refuse_bytes(self._allowed + 1)
        if code == 0:
            return
        how = signal.Signals(-code).name if code < 0 else f"exit {code}"
        raise BuildFailed("command_failed", cause=f"{how}; {self._last_words()}")

    def _last_words(self) -> str:
        lines = self._words.decode("utf-8", "replace").strip().splitlines()
        return without_bound(lines[-1] if lines else "", self._host["request"]["parameters"])[:300]

    def _report(self, inside: int) -> bytes:
        descriptor = self._opened(inside, REPORT)
        if descriptor is None:
            raise BuildFailed("report_invalid", cause="it left no report")
        with os.fdopen(descriptor, "rb") as file:
            return file.read(REPORT_BYTES + 1)

    @staticmethod
    def _opened(inside: int, name: str) -> int | None:
        """A file that the command itself made: no link to another one, no pipe, no device."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, dir_fd=inside)
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise BuildFailed("command_failed", cause=f"its {name} cannot be opened: {problem.strerror}") from problem
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_uid == os.geteuid():
            return descriptor
        os.close(descriptor)
        raise BuildFailed("command_failed", cause=f"its {name} is no file of its own")


def _entries(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """What lies in a folder now; what goes while we look is not there."""
    with suppress(FileNotFoundError), _scanned(folder) as found:
        for entry in found:
            with suppress(FileNotFoundError):
                yield entry.path, entry.stat(follow_symlinks=False)


def _scanned(folder: str) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
    try:
        return os.scandir(folder)
    except PermissionError:
        os.chmod(folder, 0o700)  # noqa: PTH101 - a folder that it has locked hides nothing from us
        return os.scandir(folder)


# -- ending ----------------------------------------------------------------------------------------


def _end_at_once(_number: int, _frame: FrameType | None) -> None:
    """At TERM, which the command has got too: it has a moment to end by itself."""
    with suppress(BuildFailed):
        end_descendants(GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)

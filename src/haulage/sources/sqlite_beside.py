"""CSV of many rows of SQLite by processes beside ours: each reads a part of them in the same snapshot.

::

    build (sqlite3) ── count, proof ──> file
      ├── reader (ADBC) ── first rows, through a pipe ──┘ │
      └── reader (ADBC) ── other rows, through a file ────┘

Only for statements that find rows and compute nothing: what another version of SQLite makes of a value may be another
value. That both see one snapshot is proved: a connection that stands outside of all transactions saw no commit between
the beginning of ours and that of theirs. Whatever is otherwise than it looked ends this with ``Unfit``, and the file is
written from its first row by the general way.
"""

from __future__ import annotations

import json
import os
import select
import sqlite3
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, suppress

from haulage.formats.format import Unfit
from haulage.sources.sqlite_outside import Made, Outside
from haulage.sources.sqlite_plain import FIRST, ROWS, Plan, planned
from haulage.sources.sqlite_reader import BEGUN, HEAD_BYTES

BATCH_ROWS, BATCH_BYTES = 16_384, 2 * 1024 * 1024
BEGIN_SECONDS = 20  # for a reader to begin
NAP_SECONDS = 0.005  # while a file grows
PIPE_BYTES = 1024 * 1024
READERS = 2
FIRST_SHARE = 0.46  # of the rows: what the second has read is still to be hashed when the first has ended
# The memory of a batch is not given back and taken again for the next one.
MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 * 1024 * 1024), "MALLOC_TRIM_THRESHOLD_": str(64 * 1024 * 1024)}
F_SETPIPE_SZ = 1031  # its name in fcntl(2)
START = "from haulage.sources.sqlite_reader import main; main()"


def beside(outside: Outside, connection: sqlite3.Connection, made: Made) -> BesideStream | None:
    """The rows as lines; None where they could not be written exactly."""
    if not _is_installed():
        return None
    try:
        plan = planned(connection, made)
    except (sqlite3.Error, OverflowError, ValueError):  # the general way says what it is
        return None
    if plan is None:
        return None
    total = outside.total or 0
    # The half of a file may be too large to wait in another.
    is_small = outside.sort_bytes is None or total * plan.row_bytes // 2 <= outside.sort_bytes
    return BesideStream(outside, plan, total, _cores() if is_small else 1)


def begin_early(outside: Outside) -> None:
    """Start readers for a statement that is plain, while its rows are counted: so they have begun when that is done."""
    if _cores() == READERS and _is_installed():
        with suppress(Unfit):
            for place in range(READERS):
                outside.readers.append(started(outside, is_first=not place))


def started(outside: Outside, *, is_first: bool) -> Reader:
    """A reader that begins."""
    try:
        reader = Reader(is_first=is_first)
    except (OSError, subprocess.SubprocessError) as problem:
        raise Unfit("no process could be started") from problem
    try:
        reader.begin(outside.uri)
    except Unfit:
        reader.end()
        raise
    return reader


def _cores() -> int:
    return min(READERS, len(os.sched_getaffinity(0)))


def _is_installed() -> bool:
    from importlib.util import find_spec

    return all(find_spec(name) is not None for name in ("adbc_driver_sqlite", "numpy", "orjson", "pyarrow"))


class BesideStream:
    """The lines of all readers, one after the other; implements ``core.source.Stream``."""

    def __init__(self, outside: Outside, plan: Plan, total: int, readers: int) -> None:
        """Remember what to read."""
        self._outside = outside
        self.plan = plan
        self._total = total
        self._readers = readers
        self.rows = 0

    def chunks(self) -> Generator[bytes, None, None]:
        """Whole rows, in bounded pieces.

        Raises:
            Unfit: there is something that only the general way writes as it should.
        """
        with ExitStack() as ended:
            ended.callback(self._outside.end_readers)
            readers = self._outside.readers
            while len(readers) < self._readers:
                readers.append(started(self._outside, is_first=not readers))
            first, *others = readers = readers[: self._readers]
            for reader in readers:
                reader.wait_begun()
            if not self._outside.is_unchanged():
                raise Unfit("somebody has committed")
            share = int(self._total * FIRST_SHARE) if others else self._total
            first.ask(self.plan, 0, share)
            for reader in others:
                reader.ask(self.plan, share, self._total - share)
            while readers:
                while piece := readers[0].piece():
                    self.rows += piece[0]
                    if self.rows > self._total or any(reader.has_failed() for reader in readers[1:]):
                        raise Unfit("other rows than were counted")
                    yield piece[1]  # type: ignore[misc]
                    del piece
                readers.pop(0)
            if self.rows != self._total:
                raise Unfit("other rows than were counted")


class Reader:
    """One process, with the pipe or the file that it writes."""

    def __init__(self, *, is_first: bool) -> None:
        self._is_file = not is_first
        self._place = 0
        if is_first:
            self._from, out = os.pipe()
            with suppress(OSError):
                import fcntl

                fcntl.fcntl(out, F_SETPIPE_SZ, PIPE_BYTES)
        else:
            self._from = _unlinked()
            out = os.dup(self._from)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", START, str(out)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=(out,),
                env=os.environ | MEMORY,
            )
        except BaseException:
            os.close(self._from)
            raise
        finally:
            os.close(out)

    def begin(self, uri: str) -> None:
        self._tell(uri)

    def wait_begun(self) -> None:
        assert self._process.stdout is not None
        said = self._process.stdout.fileno()
        if not select.select([said], [], [], BEGIN_SECONDS)[0] or os.read(said, len(BEGUN)) != BEGUN:
            raise Unfit("a reader did not begin")

    def ask(self, plan: Plan, first: int, rows: int) -> None:
        """Have it read so many rows."""
        batch = max(1, min(BATCH_ROWS, BATCH_BYTES // max(1, plan.row_bytes)))
        binds = {f":{name}": value for name, value in {**plan.binds, FIRST: first, ROWS: rows}.items()}
        self._tell({"sql": plan.sql, "binds": binds, "kinds": plan.kinds, "batch": batch, "line_end": plan.line_end})

    def _tell(self, what: object) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(what).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as problem:
            raise Unfit("a reader has ended") from problem

    def has_failed(self) -> bool:
        """Say whether it has ended, and not well."""
        return self._process.poll() not in (None, 0)

    def piece(self) -> tuple[int, bytearray] | None:
        """Rows and their lines; None at the end.

        Raises:
            Unfit: it has ended before.
        """
        head = self._read(HEAD_BYTES)
        rows, size = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")
        return (rows, self._read(size)) if rows else None

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        left = memoryview(data)
        while left:
            has_ended = self._is_file and self._process.poll() is not None  # asked before: it may write its last
            read = os.preadv(self._from, [left], self._place) if self._is_file else os.readv(self._from, [left])
            self._place += read
            left = left[read:]
            if read == 0 and has_ended is self._is_file:
                raise Unfit("a reader has ended")
            if read == 0:
                time.sleep(NAP_SECONDS)
        return data

    def end(self) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()
        self._process.wait()
        os.close(self._from)


def _unlinked() -> int:
    """A file without a name, in the folder of the run."""
    folder = os.environ.get("SQLITE_TMPDIR", ".")
    path = f"{folder}/beside-{os.getpid()}-{time.monotonic_ns()}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(path)  # noqa: PTH108 - pathlib takes 6 ms to load
    return descriptor

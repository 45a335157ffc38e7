"""What stands outside of the transaction of a snapshot of SQLite, to prove what others see (``sqlite_beside.py``)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from sqlite3 import Connection, Error
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from haulage.sources.sqlite_beside import BesideStream, Reader

ROWS_FROM = 300_000  # to start the readers takes as long as they save on so many


class Made(NamedTuple):
    """A statement as it is asked for, with the names of its columns as they stand in it."""

    sql: Callable[[str], str]  # of a column more, or of none
    columns: Sequence[str]
    binds: Mapping[str, Any]
    line_end: str


class Outside:
    """A connection without a transaction; made before that of the snapshot begins."""

    def __init__(self, outside: Connection, path: str, uri: str) -> None:
        """Take the connection that stands outside."""
        self._path = path
        self.uri = uri
        self._outside = outside
        self._file = self._named()
        self._version = self._now()
        self.total: int | None = None  # of rows, as counted in the snapshot
        self.sort_bytes: int | None = None  # what may lie in files meanwhile
        self.readers: list[Reader] = []  # that have been started, the first of them with a pipe

    def _now(self) -> int:
        (version,) = self._outside.execute("PRAGMA data_version").fetchone()
        return int(version)

    def stream(self, connection: Connection, made: Made) -> BesideStream | None:
        """The rows as lines by processes beside ours; None where there are few, or where those could not be exact."""
        if (self.total or 0) < ROWS_FROM or len(made.columns) < 2:
            return None
        from haulage.sources.sqlite_beside import beside  # loads what starts processes

        return beside(self, connection, made)

    def meanwhile(
        self, connection: Connection, made: Made, given_up: Callable[[], bool] | None
    ) -> Callable[[], bool] | None:
        """What is asked while rows are counted: if that takes a while there are many, and who reads them may begin."""
        from haulage.sources.sqlite_plain import is_plain

        if len(made.columns) < 2 or not is_plain(connection, made):
            return given_up
        begun: list[bool] = []

        def asked() -> bool:
            if not begun:
                from haulage.sources.sqlite_beside import begin_early

                begun.append(True)
                with suppress(Exception):  # the count goes on, whatever it was
                    begin_early(self)
            return given_up is not None and given_up()

        return asked

    def end_readers(self) -> None:
        """End those that run."""
        while self.readers:
            self.readers.pop().end()

    def is_unchanged(self) -> bool:
        """Whether nobody has committed since before our transaction began."""
        with suppress(Error):
            return self._now() == self._version and None is not self._file == self._named()
        return False

    def _named(self) -> tuple[int, int] | None:
        """Which file has the name now: another one may take it."""
        with suppress(OSError):
            status = os.stat(self._path)  # noqa: PTH116 - pathlib takes 6 ms to load
            return status.st_dev, status.st_ino
        return None

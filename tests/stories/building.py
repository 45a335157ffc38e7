"""A yard where builds are made in this process: a source, a folder for parts, and the way from a dataset to bytes.

``Yard`` has SQLite as its source; ``PostgresqlYard`` has PostgreSQL, and the rest is the same.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from pathlib import Path

from tests.servers import postgresql

from haulage.artifacts.part import PartFile
from haulage.core.catalogue import Dataset
from haulage.core.requester import Requester
from haulage.exports.build import BuildOrder, Built, build
from haulage.exports.grouping import NOT_GROUPED, grouped_of
from haulage.exports.parameters import resolve_parameters
from haulage.exports.plan import freeze
from haulage.exports.reading import reading_of
from haulage.formats import FORMATS, resolve_options
from haulage.sources import open_source
from haulage.sources.postgresql import PostgresqlSnapshot
from haulage.sources.sqlite import SqliteSnapshot

AMINA = Requester("north", "amina")
AS_OF = 1_790_000_000_000
PLENTY = {"rows": 10**9, "count_seconds": 10, "sort_bytes": 10**9, "memory_bytes": 10**9}
PLENTY |= {"groups": 10**6, "pivot_columns": 1_000}


class Yard:
    """One SQLite source and everything that a child has, without being one."""

    snapshot_class: type = SqliteSnapshot
    begin = "begin immediate"
    lot = "abs(random()) % 2"  # true for every other row, another one each time

    def __init__(self, folder: Path, *script: str):
        self.folder = folder
        self.progress: list = []
        self._numbers = itertools.count()
        self._make()
        with self.writer() as source:
            for statement in script:
                source.execute(statement)

    def _make(self) -> None:
        self.path = self.folder / "shop.db"
        self.url = f"sqlite:///{self.path}"
        with self.writer() as source:
            source.execute("pragma journal_mode=wal")

    def close(self) -> None:
        """The folder goes with its test."""

    @contextlib.contextmanager
    def writer(self):
        """A connection that may write; every statement is committed at once."""
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None, timeout=60)) as source:
            yield source

    def order(self, dataset: Dataset, *, format="csv", compression=None, columns=None, options=None, limits=None,
              file_bytes=10**9, reserved_bytes=10**9, busy_seconds=0.2, grouping=NOT_GROUPED,
              **parameters) -> BuildOrder:  # fmt: skip
        resolved = resolve_parameters(dataset, parameters)
        grouped = grouped_of(dataset, grouping, columns)
        columns = columns if grouped is None else None
        plan = freeze(dataset, dataset.sql, resolved, AMINA, AS_OF, columns, None, grouped)
        plan["limits"] = PLENTY | (limits or {})
        folder = self.folder / f"build-{next(self._numbers)}"
        folder.mkdir()
        settled = resolve_options(FORMATS[format], options or {})
        limits = (file_bytes, reserved_bytes)
        order = BuildOrder(
            self.url, busy_seconds, str(folder), plan, format, settled, compression, *limits, progress_seconds=0
        )
        return BuildOrder.from_json(order.to_json())  # as it comes out of the pipe

    def build(self, dataset: Dataset, *, source=None, **asked) -> tuple[Built, bytes]:
        """Build, and give what was measured and what stands in the file."""
        order = self.order(dataset, **asked)
        sink = PartFile(order.folder, file_bytes=order.file_bytes, reserved_bytes=order.reserved_bytes)
        self.progress = []
        built = build(order, source or open_source(order.source_url, order.busy_seconds), sink, self.progress.append)
        return built, Path(order.folder, "part").read_bytes()

    def text(self, sql: str, **asked) -> str:
        """The CSV of a query."""
        return self.build(query(sql), **asked)[1].decode()

    def problems(self, dataset: Dataset, **parameters) -> list[str]:
        """What a check of a dataset says to its operator."""
        resolved = resolve_parameters(dataset, parameters)
        reading = reading_of(freeze(dataset, dataset.sql, resolved, AMINA, AS_OF, None))
        return open_source(self.url, 0.2).check(reading)


class PostgresqlYard(Yard):
    """The same with a database of PostgreSQL."""

    snapshot_class = PostgresqlSnapshot
    begin = "begin"
    lot = "random() < 0.5"
    names = itertools.count()

    def _make(self) -> None:
        self._server, self._database = postgresql.server(), f"yard{next(self.names)}"
        self._server.execute("postgres", f"create database {self._database}")
        self.url = self._server.url(self._database)

    @contextlib.contextmanager
    def writer(self):
        """A connection that may write; every statement is committed at once."""
        with contextlib.closing(self._server.connect(self._database)) as source:
            yield source

    def close(self) -> None:
        """Drop the database, whoever is still in it."""
        self._server.execute("postgres", f"drop database {self._database} with (force)")


YARDS = {"sqlite": Yard, "postgresql": PostgresqlYard}


def query(sql: str, **members) -> Dataset:
    """A dataset of this query."""
    return Dataset("q", "shop", sql=sql, formats=("csv", "json", "ndjson"), **members)

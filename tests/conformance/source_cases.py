"""The sources that the conformance file leads through its tests: how each is made, and what a test does past it.

What differs is asked by capability: ``typed`` (a column has one type), ``server`` (statements run in another process).
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3

from tests.servers import postgresql

from haulage.sources import open_source


class Sqlite:
    typed = False
    snapshot = True
    server = False
    silent = "with recursive n(i) as (select 1 union all select i + 1 from n) select sum(i) as total from n"
    wide = "hex(zeroblob({} / 2))"  # text of so many characters

    def __init__(self, folder):
        self.url = f"sqlite:///{folder}/source.db"
        self.execute("pragma journal_mode=wal")
        self.execute("create table marks (mark integer, secret text)")

    def execute(self, sql, *values):
        path = self.url.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as source:
            return source.execute(sql, values).fetchall()

    def open(self, **of_servers):
        return open_source(self.url, **of_servers)

    def close(self):
        pass


class Postgresql:
    typed = True
    snapshot = True
    server = True
    silent = "select sum(a) as total from generate_series(1, 1000000) as a, generate_series(1, 1000000) as b"
    wide = "repeat('x', {})"
    names = itertools.count()

    def __init__(self, folder):
        self._server = postgresql.server()
        self._database = f"source{next(self.names)}"
        self._server.execute("postgres", f"create database {self._database}")
        self.execute("create table marks (mark integer, secret text)")
        self.url = self._server.url(self._database)

    def execute(self, sql, *values):
        return self._server.execute(self._database, sql, values)

    def open(self, **of_servers):
        return open_source(self.url, **of_servers)

    def working(self) -> int:
        """How many of our statements run in the database, by what the server itself says."""
        asked = "select count(*) from pg_stat_activity where datname = current_database() and state = 'active'"
        return self.execute(asked + " and pid <> pg_backend_pid() and application_name like 'haulage%'")[0][0]

    def close(self):
        self._server.execute("postgres", f"drop database {self._database} with (force)")


CASES = {"sqlite": Sqlite, "postgresql": Postgresql}

"""The sources that the conformance file leads through its tests: how each is made, and what a test does past it.

What differs is asked by capability: ``typed`` (a column has one type), ``server`` (statements run in another process).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sqlite3
import tempfile
from pathlib import Path

import duckdb
import pytest
from tests.servers import mariadb, mysql, postgresql

from haulage.sources import open_source

RECURSION = "with recursive n(i) as (select 1 union all select i + 1 from n) select i from n"


def in_double_quotes(name):
    return '"' + name.replace('"', '""') + '"'


class Sqlite:
    quoted = staticmethod(in_double_quotes)
    typed = False
    snapshot = True
    server = False
    endless = RECURSION  # rows at once, and no end to them
    silent = "with recursive n(i) as (select 1 union all select i + 1 from n) select sum(i) as total from n"
    wide = "hex(zeroblob({} / 2))"  # text of so many characters
    breaks = "abs(case when i = 4000 then -9223372036854775808 else i end)"  # an error at that row
    tells = "json_extract(secret, '$.a')"  # an error that quotes the value

    def __init__(self, folder):
        self.url = f"sqlite:///{folder}/source.db"
        self.execute("pragma journal_mode=wal")
        self.execute("create table marks (mark integer, secret text)")

    def execute(self, sql, *values):
        path = self.url.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as source:
            return source.execute(sql, values).fetchall()

    def meanwhile(self, sql) -> bool:
        """Write while a snapshot is open; says whether that could be done."""
        self.execute(sql)
        return True

    def open(self, **of_servers):
        return open_source(self.url, **of_servers)

    def close(self):
        pass


class Postgresql:
    quoted = staticmethod(in_double_quotes)
    typed = True
    snapshot = True
    server = True
    endless = RECURSION
    silent = "select sum(a) as total from generate_series(1, 1000000) as a, generate_series(1, 1000000) as b"
    wide = "repeat('x', {})"
    breaks = "100 / (4000 - i)"
    tells = "cast(secret as integer)"
    names = itertools.count()

    def __init__(self, folder):
        self._server = postgresql.server()
        self._database = f"source{next(self.names)}"
        self._server.execute("postgres", f"create database {self._database}")
        self.execute("create table marks (mark integer, secret text)")
        self.url = self._server.url(self._database)

    def execute(self, sql, *values):
        return self._server.execute(self._database, sql, values)

    def meanwhile(self, sql) -> bool:
        self.execute(sql)
        return True

    def open(self, **of_servers):
        return open_source(self.url, **of_servers)

    def working(self) -> int:
        """How many of our statements run in the database, by what the server itself says."""
        asked = "select count(*) from pg_stat_activity where datname = current_database() and state = 'active'"
        return self.execute(asked + " and pid <> pg_backend_pid() and application_name like 'haulage%'")[0][0]

    def close(self):
        self._server.execute("postgres", f"drop database {self._database} with (force)")


class Mariadb:
    servers = mariadb
    quoted = staticmethod(lambda name: "`" + name.replace("`", "``") + "`")
    typed = True
    snapshot = True
    server = True
    endless = "select seq as i from seq_1_to_100000000000"  # a recursion is made whole before its first row comes
    silent = "select sum(a.seq * b.seq) as total from seq_1_to_1000000 as a, seq_1_to_1000000 as b"
    wide = "repeat('x', {})"
    breaks = "exp(case when i = 4000 then 100000 else 1 end)"
    tells = "exp(100000 + (secret = 'hush_4711'))"
    names = itertools.count()

    def __init__(self, folder):
        self._server = self.servers.server()
        self._database = f"source{next(self.names)}"
        self._server.execute(None, f"create database {self._database}")
        self.execute("create table marks (mark integer, secret text)")
        self.url = self._server.url(self._database)

    def execute(self, sql, *values):
        return self._server.execute(self._database, sql)

    def meanwhile(self, sql) -> bool:
        self.execute(sql)
        return True

    def open(self, **of_servers):
        return open_source(self.url, **of_servers)

    def working(self) -> int:
        asked = f"select count(*) from information_schema.processlist where db = '{self._database}'"
        return self._server.execute(None, asked + " and command = 'Query'")[0][0]

    def close(self):
        self._server.execute(None, f"drop database {self._database}")


class NamedMysql(Mariadb):
    """The same room under its other name."""

    def __init__(self, folder):
        super().__init__(folder)
        self.url = self.url.replace("mariadb+pymysql:", "mysql:")


class Mysql(Mariadb):
    """The other server, where there is one."""

    servers = mysql
    # Found by an index, for a hash of all of them would be made before the first row.
    endless = "select /*+ no_bnl() */ a.i from numbers as a" + " join numbers as {} using (one)" * 3
    endless = endless.format(*"bcd")
    silent = f"select sum(i) as total from ({endless}) as many"

    def __init__(self, folder):
        super().__init__(folder)
        self.execute("create table numbers (i integer, one integer not null default 1, key (one))")
        self.execute("insert into numbers (i) values " + ", ".join(f"({n})" for n in range(1_000)))


class Duckdb:
    quoted = staticmethod(in_double_quotes)
    typed = True
    snapshot = True
    server = False
    endless = "select i from range(100000000000) as numbers (i)"  # a recursion gives no row before its end
    silent = "select sum(a.i * b.i) as total from range(1000000) as a (i), range(1000000) as b (i)"
    wide = "repeat('x', {})"
    breaks = "cast(case when i = 4000 then 'x' else '1' end as integer)"
    tells = "cast(secret as integer)"

    def __init__(self, folder):
        self.path = folder / "source.duckdb"
        self.url = f"duckdb:///{self.path}"
        self.path.write_bytes(self._empty())

    @staticmethod
    @functools.cache
    def _empty() -> bytes:
        """A file with the table, made once: that takes longer than most of the tests."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "source.duckdb")
            with duckdb.connect(path) as source:
                source.execute("create table marks (mark integer, secret text)")
            return path.read_bytes()

    def execute(self, sql, *values):
        with duckdb.connect(self.path) as source:
            return source.execute(sql, values).fetchall()

    def meanwhile(self, sql) -> bool:
        """Nobody writes to a file that is read; that another process cannot either is in test_duckdb_source.py."""
        with pytest.raises(duckdb.ConnectionException):
            self.execute(sql)
        return False

    def open(self, **of_servers):
        return open_source(self.url, **of_servers)

    def close(self):
        pass


CASES = {
    "sqlite": Sqlite,
    "postgresql": Postgresql,
    "mariadb": Mariadb,
    "mysql": Mysql if mysql.PROGRAM else NamedMysql,
    "duckdb": Duckdb,
}

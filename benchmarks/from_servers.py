"""The figures of sources on servers, PostgreSQL and MariaDB; data_plane.py runs them, on the servers of the tests."""

from __future__ import annotations

import filecmp
import functools
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import closing

from first import QUERY, Setting, build_once
from lineitem import MARIADB, make_postgresql
from lines import against, figure
from tests.servers import mariadb, postgresql

SETTLE_SECONDS, FEW_PAGES = 120, 8
POOL_BYTES = 1024 * 1024 * 1024  # of MariaDB's pages: the tests' 64 MiB would make every figure one of the disk
MEMORY_ROWS = (3_000_000, 30_000_000)  # ten times as many rows in the same memory
TABLE_ROWS = 3_000_000  # of a table, at most; more are read of one by a statement that gives each of its rows ten times
TEN = " union all ".join(f"select {number}" for number in range(10))


@functools.cache
def postgresql_server() -> postgresql.PostgreSQL:
    """With room for the table: with the 32 MB of the tests, who copies pages for it would work beside every figure."""
    place = postgresql.programs()
    if place is None:
        raise SystemExit("these figures need PostgreSQL")
    return postgresql.PostgreSQL(place, "shared_buffers=1GB")


def postgresql_table(rows: int) -> str:
    """A table of so many rows in a server that is started for these figures; gives its URL."""
    server, name = postgresql_server(), f"lineitem{rows}"
    if not server.execute("postgres", f"select 1 from pg_database where datname = '{name}'"):
        server.execute("postgres", f"create database {name}")
        with closing(server.connect(name)) as connection:
            make_postgresql(connection, rows)
    return server.url(name)


def mariadb_table(rows: int) -> str:
    """The same in a server of MariaDB."""
    server, name = mariadb.server(), f"lineitem{rows}"
    if not server.execute(None, f"select 1 from information_schema.schemata where schema_name = '{name}'"):
        server.execute(None, f"set global innodb_buffer_pool_size = {POOL_BYTES}")
        server.execute(None, f"create database {name} character set utf8mb4")
        server.execute(name, *(statement.format(rows=rows) for statement in MARIADB))
        _settle(server)
    return server.url(name)


def many(table: Callable[[int], str], rows: int) -> tuple[str, str]:
    """The URL and the query of so many rows, for which no disk need have room."""
    if rows <= TABLE_ROWS:
        return table(rows), QUERY
    return table(rows // 10), f"{QUERY} cross join ({TEN}) as ten"


def _settle(server: mariadb.MariaDB) -> None:
    """Wait until the server has written what it was given: it would do that beside the first figures."""
    server.execute(None, "set global innodb_max_dirty_pages_pct = 0")
    dirty = "select variable_value from information_schema.global_status where variable_name = '{}'"
    until = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < until:
        if int(server.execute(None, dirty.format("innodb_buffer_pool_pages_dirty"))[0][0]) <= FEW_PAGES:
            return
        time.sleep(0.2)


def mariadb_csv(setting: Setting) -> None:
    """CSV from MariaDB, through the driver that is pure Python, against the server's own client in batch mode."""
    url, rows = mariadb_table(setting.rows), setting.rows
    place = [f"--port={mariadb.server().port}", "--host=127.0.0.1", "--user=root", f"--database=lineitem{rows}"]
    command = ["mariadb", "--no-defaults", *place, "--batch", "--quick", f"--execute={QUERY}"]
    if shutil.which("mariadb") is None:
        raise SystemExit("mariadb_csv needs the mariadb command: apt-get install mariadb-client-core")

    def ours() -> float:
        seconds, _, file = build_once(setting, url, QUERY, 2**40)
        shutil.rmtree(file.parent)
        return seconds

    def peer() -> float:
        target = setting.folder / "peer.tsv"
        began = time.perf_counter()
        with target.open("wb") as out:
            subprocess.run(command, stdout=out, check=True)
        seconds = time.perf_counter() - began
        target.unlink()
        return seconds

    against("mariadb_csv", setting.times, ours, peer, called=f"mariadb --batch --quick, {rows:,} rows", target=0.9)


def postgresql_csv(setting: Setting) -> None:
    """CSV from PostgreSQL against the server's own COPY through psql, both with a header and as a file on the disk."""
    _against_psql(setting, "postgresql_csv", setting.rows, connections=1, target=0.95)
    _against_psql(setting, "postgresql_csv", setting.rows * 10 // 3, connections=1, target=1)


def postgresql_csv_two_connections(setting: Setting) -> None:
    """The same over two connections that see one snapshot: the bytes must be those of psql, too."""
    _against_psql(setting, "postgresql_csv_two_connections", setting.rows, connections=2, target=1.4)


def _against_psql(setting: Setting, name: str, rows: int, *, connections: int, target: float) -> None:
    url, sql = postgresql_table(rows), QUERY  # not ``many``: a cross join is counted by one process
    copied = setting.folder / "peer.csv"
    command = [postgresql.programs() / "psql", "-q", "-X", url.replace("+psycopg", ""), "-c",
               f"\\copy ({sql}) to '{copied}' with (format csv, header)"]  # fmt: skip

    def ours() -> float:
        seconds, _, file = build_once(setting, url, sql, 2**40, connections=connections)
        shutil.rmtree(file.parent)
        return seconds

    def peer() -> float:
        began = time.perf_counter()
        subprocess.run(command, check=True)
        seconds = time.perf_counter() - began
        copied.unlink()
        return seconds

    _, _, file = build_once(setting, url, sql, 2**40, connections=connections)
    subprocess.run(command, check=True)
    if not filecmp.cmp(file, copied, shallow=False):
        raise SystemExit(f"{name}: the two files differ")
    shutil.rmtree(file.parent)
    against(name, setting.times, ours, peer, called=f"psql \\copy, {rows:,} rows", target=target)


def postgresql_peak_rss_mib(setting: Setting) -> None:
    """The child's peak memory with rows of PostgreSQL, at few and at ten times as many."""
    peak_rss_mib(setting, "postgresql_peak_rss_mib", postgresql_table)


def mariadb_peak_rss_mib(setting: Setting) -> None:
    """The same with rows of MariaDB."""
    peak_rss_mib(setting, "mariadb_peak_rss_mib", mariadb_table)


def peak_rss_mib(setting: Setting, name: str, table: Callable[[int], str]) -> None:
    for rows in MEMORY_ROWS:
        _, peak, file = build_once(setting, *many(table, rows), 2**40)
        shutil.rmtree(file.parent)
        figure(
            name,
            peak,
            "MiB",
            peer=f"limit at {rows:,} rows",
            peer_value=100,
            ratio=100 / peak,
            target=1,
            runs=[peak],
        )

"""The figures of Parquet and NDJSON from PostgreSQL; data_plane.py runs them, on a server of the tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from first import QUERY, Setting, build_once
from from_servers import MEMORY_ROWS, many, postgresql_table
from lines import alternating, figure, median
from tests.servers import postgresql

from haulage.worker import process

# The extension is published for one version of DuckDB, which need not be the one that the tests have.
EXTENSION = "duckdb-extension-postgres-scanner>=1.5,<1.6"
SCAN = """
import glob, sys, duckdb
url, target, libraries = sys.argv[1:]
(extension,) = glob.glob(f"{libraries}/*/extensions/*/postgres_scanner.duckdb_extension")
db = duckdb.connect(config={"allow_unsigned_extensions": True, "autoinstall_known_extensions": False})
db.execute("set enable_progress_bar = false")
db.execute(f"load '{extension}'; attach '{url}' as pg (type postgres, read_only)")
db.execute(f"copy (select * from pg.lineitem) to '{target}' (format parquet, compression zstd)")
"""
# Where the extension cannot be had: the server's own CSV, read by DuckDB with the types that it is told.
PIPE = """
import sys, duckdb
target, kinds = sys.argv[1:]
csv = f"read_csv('/dev/stdin', header = false, columns = {kinds})"
duckdb.execute("set enable_progress_bar = false")
duckdb.execute(f"copy (select * from {csv}) to '{target}' (format parquet, compression zstd)")
"""
WITHOUT_ARROW = "import sys; sys.modules['pyarrow'] = None; "
LARGE_CELLS = "select i, repeat(md5(i::text), 320 * 1024) as cell from generate_series(1, 20) as i"


def plain(url: str) -> str:
    """The URL as other programs know it."""
    return url.replace("+psycopg", "")


def timed(command: list[str], source: list[str] | None = None) -> float:
    """Seconds of a program, with another one's output as its input."""
    began = time.perf_counter()
    if source is None:
        subprocess.run(command, check=True)
    else:
        with subprocess.Popen(source, stdout=subprocess.PIPE) as from_server:
            subprocess.run(command, stdin=from_server.stdout, check=True)
    return time.perf_counter() - began


def scan(setting: Setting, url: str) -> tuple[str, Callable[[], float]]:
    """DuckDB's own scan of PostgreSQL to a file, and what it is called."""
    target, place = setting.folder / "peer.parquet", setting.folder / "duckdb"
    python = place / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
    done = subprocess.run([python, "-m", "pip", "install", "--quiet", EXTENSION], capture_output=True, check=False)
    if done.returncode == 0:
        (libraries,) = place.glob("lib/*/site-packages")
        command = [str(python), "-c", SCAN, plain(url), str(target), str(libraries)]
        return "DuckDB's postgres scan, zstd", lambda: timed(command)
    psql = [
        str(postgresql.programs() / "psql"),
        "-q",
        "-X",
        plain(url),
        "-c",
        f"\\copy ({QUERY}) to stdout (format csv)",
    ]
    listed = ["BIGINT", *["INTEGER"] * 3, *["DECIMAL(15,2)"] * 4, *["VARCHAR"] * 2, *["DATE"] * 3, *["VARCHAR"] * 3]
    kinds = str(
        dict(zip(QUERY.removeprefix("select ").removesuffix(" from lineitem").split(", "), listed, strict=True))
    )
    command = [sys.executable, "-c", PIPE, str(target), kinds]
    return "psql \\copy into DuckDB, zstd (its scan could not be had)", lambda: timed(command, psql)


def postgresql_parquet(setting: Setting) -> None:
    """Parquet from PostgreSQL; the sums of both files are compared first."""
    url = postgresql_table(setting.rows)
    name, peer = scan(setting, url)
    _, _, file = build_once(setting, url, QUERY, 2**40, "parquet")
    peer()
    if sums(file) != sums(setting.folder / "peer.parquet"):
        raise SystemExit("postgresql_parquet: the two files differ")
    shutil.rmtree(file.parent)
    compared(setting, "postgresql_parquet", url, "parquet", peer, f"{name}, {setting.rows:,} rows", 0.6)


def sums(file: Path) -> tuple[object, ...] | None:
    """What two files of the same rows have in common, exact decimals among them."""
    import duckdb

    asked = "count(*), sum(l_orderkey), sum(l_extendedprice), sum(l_tax), max(l_shipdate), min(l_comment), sum(hash("
    asked += "l_comment, l_discount, l_commitdate, l_shipmode))"
    return duckdb.execute(f"select {asked} from read_parquet('{file}')").fetchone()


def postgresql_ndjson(setting: Setting) -> None:
    """NDJSON from PostgreSQL with the ``fast`` extra, against the server's own objects."""
    ndjson(setting, "postgresql_ndjson", 2.2)


def postgresql_ndjson_plain(setting: Setting) -> None:
    """The same without Arrow."""
    with started_with(WITHOUT_ARROW):
        ndjson(setting, "postgresql_ndjson_plain", 1.0)


@contextmanager
def started_with(first: str) -> Iterator[None]:
    """Children that run this before anything else."""
    whole = process.START
    process.START = first + whole
    try:
        yield
    finally:
        process.START = whole


def ndjson(setting: Setting, label: str, target: float) -> None:
    """The two files are compared first: for such rows the server writes the very same."""
    url, file = postgresql_table(setting.rows), setting.folder / "peer.ndjson"
    copy = f"\\copy (select row_to_json(t) from ({QUERY}) as t) to '{file}'"
    command = [str(postgresql.programs() / "psql"), "-q", "-X", plain(url), "-c", copy]
    _, _, ours = build_once(setting, url, QUERY, 2**40, "ndjson")
    timed(command)
    subprocess.run(["cmp", ours, file], check=True)
    shutil.rmtree(ours.parent)
    peer = f"row_to_json through psql, {setting.rows:,} rows"
    compared(setting, label, url, "ndjson", lambda: timed(command), peer, target)
    file.unlink()


def compared(
    setting: Setting, label: str, url: str, format: str, peer: Callable[[], float], name: str, target: float
) -> None:
    """Measure whole builds and a peer in turns, and print the figure."""

    def ours() -> float:
        seconds, _, file = build_once(setting, url, QUERY, 2**40, format)
        shutil.rmtree(file.parent)
        return seconds

    mine, theirs = alternating(setting.times, ours, peer)
    ratio = median(theirs) / median(mine)
    figure(label, median(mine), "s", peer=name, peer_value=median(theirs), ratio=ratio, target=target, runs=mine)


def columnar_peak_rss_mib(setting: Setting) -> None:
    """The child's peak memory, at few and at ten times as many rows, and with cells of 10 MB."""
    asked = [(*many(postgresql_table, rows), f"{rows:,} rows") for rows in MEMORY_ROWS]
    for url, sql, what in [(asked[0][0], LARGE_CELLS, "cells of 10 MB"), *asked]:
        for format, first, limit in (("parquet", "", 250), ("ndjson", "", 250), ("ndjson", WITHOUT_ARROW, 100)):
            with started_with(first):
                _, peak, file = build_once(setting, url, sql, 2**40, format)
            shutil.rmtree(file.parent)
            peer = f"limit of {format}{' without Arrow' if first else ''}, {what}"
            figure(
                "columnar_peak_rss_mib",
                peak,
                "MiB",
                peer=peer,
                peer_value=limit,
                ratio=limit / peak,
                target=1,
                runs=[peak],
            )

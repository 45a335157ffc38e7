"""The same snapshot and request give the same file, whichever process makes it, when, and where.

Each of two processes makes every file of every source; between them lie another seed of hashes, another zone, another
language, another folder, more than a year, and another size of a write.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from tests.servers import mariadb, postgresql
from tests.stories.server_values import DUCKDB, MARIADB, POSTGRESQL

from haulage.formats import FORMATS

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PROGRAM = "from tests.process.every_file import main; main()"
HERE = {"PYTHONHASHSEED": "1", "TZ": "UTC", "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}
THERE = {"PYTHONHASHSEED": "4711", "TZ": "Pacific/Chatham", "LC_ALL": "de_DE.UTF-8", "LANG": "tr_TR.UTF-8",
         "OMP_NUM_THREADS": "4", "PGTZ": "Asia/Kolkata", "PGDATESTYLE": "German"}  # fmt: skip
SQLITE = ["1", "9223372036854775807", "0.1", "1e300", "-0.0", "9e999", "''", "'=1+1'", "'a' || char(13) || 'b'",
          "cast(x'61ff62' as text)", "x'00ff'", "null", "'2026-01-31 23:30:00'", "hex(zeroblob(5000))"]  # fmt: skip


def sources(folder):
    """Of each its nasty values in three rows, one of them nothing but NULL."""
    with sqlite3.connect(folder / "shop.db") as source:
        source.execute("pragma journal_mode=wal")
    duckdb.connect(folder / "shop.duckdb").close()
    server, other = postgresql.server(), mariadb.server()
    server.execute("postgres", "drop database if exists same_bytes")
    server.execute("postgres", "create database same_bytes")
    other.execute(None, "create database if not exists same_bytes character set utf8mb4")
    made = "select n.i, {} from (select 1 as i union all select 2 union all select 3) as n"

    def sql(values):
        cells = [f"case when n.i <> 2 then {value} end as v{number}" for number, value in enumerate(values)]
        return made.format(", ".join(cells))

    return {
        "sqlite": (f"sqlite:///{folder}/shop.db", sql(SQLITE)),
        "duckdb": (f"duckdb:///{folder}/shop.duckdb", sql([each.sql for each in DUCKDB])),
        "postgresql": (server.url("same_bytes"), sql([each.sql for each in POSTGRESQL])),
        "mariadb": (other.url("same_bytes"), sql([each.sql for each in MARIADB])),
        "pages": ("", ""),
    }


def begin(folder, asked, environment, **given):
    """The program at work, which takes and gives JSON."""
    folder.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "TZ", "PYTHON"))}
    begun = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             env=kept | environment | {"PYTHONPATH": str(ROOT)}, cwd=folder)  # fmt: skip
    begun.stdin.write(json.dumps({"sources": asked, "folder": str(folder)} | given))
    begun.stdin.close()
    return begun


def test_the_same_snapshot_and_request_give_the_same_bytes(tmp_path):
    asked = sources(tmp_path)
    at = 1_790_000_000_000
    working = [
        begin(tmp_path / "one", asked, HERE, at=at, later=0),
        begin(tmp_path / "other", asked, THERE, at=at, later=40_000_000),
    ]
    one, other = [json.loads(each.stdout.read()) for each in working]
    assert [0, 0] == [each.wait() for each in working]
    moved = begin(tmp_path / "moved", asked, HERE, at=at + 1, later=0, formats=["xlsx", "parquet"])
    later = json.loads(moved.stdout.read())

    assert 0 == moved.wait()
    assert {name.split()[1] for name in one} == set(FORMATS)
    assert {name.split()[0] for name in one} == set(asked)
    assert [] == [name for name in one if one[name] != other[name]]
    # The one exception: the instant of its snapshot stands in a file of Parquet.
    assert {"parquet"} == {name.split()[1] for name in later if one[name] != later[name]}
    assert (
        len(set(one.values())) > len(one) * 2 / 3
    )  # of equal files, as of two ways to say nothing else, there are few

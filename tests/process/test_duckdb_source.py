"""A child whose rows come from DuckDB: it is light, stays within its memory, and ends with all that it sorted."""

from __future__ import annotations

import contextlib
import signal
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from tests.process.house import BUILD, FOREVER, Bench, until
from tests.process.test_child import HEAVY, order_for, talk

from haulage.core import events
from haulage.core.limits import MIB
from haulage.worker import process

ROWS = 150_000
SILENT = "select sum(a.i * b.i) as total from range(1000000) as a (i), range(1000000) as b (i)"
SORTING = "select i, 'a text of some length ' || i as t from range(1000000000) as n (i)"


@pytest.fixture(scope="module")
def source_url(tmp_path_factory):
    """A file that is only read."""
    path = tmp_path_factory.mktemp("source") / "names.duckdb"
    with duckdb.connect(path) as source:
        columns = "i, 'name ' || i as name, (i * 0.37)::decimal(15, 2) as x, null::date as nothing"
        source.execute(f"create table names as select {columns} from range({ROWS}) as n (i)")
    return f"duckdb:///{path}"


def peak_of(child: process.Child) -> tuple[int, list[dict]]:
    """The most memory that it had, and what it said."""
    peak, heard = 0, []
    while not (child.silent and child.ended()):
        heard += child.messages(0.01)
        with contextlib.suppress(OSError, StopIteration):
            status = Path(f"/proc/{child.pid}/status").read_text().splitlines()
            peak = max(peak, int(next(line for line in status if line.startswith("VmHWM")).split()[1]) * 1024)
    assert 0 == child.reap(), child.last_words
    return peak, heard


@pytest.mark.parametrize(
    ("format", "options"),
    [("csv", {"dialect": "exact"}), ("ndjson", {"numbers": "number"}), ("parquet", {"codec": "zstd"})],
)
def test_a_sorted_file_is_made_in_bounded_memory_and_space(house, source_url, tmp_path, format, options):
    """With the usual limit of address space, into which the engine and pyarrow have to fit together."""
    folder = tmp_path / "run"
    folder.mkdir()
    order = order_for(house, folder, "from names", format=format, options=options, source_url=source_url)
    plan = dict(order.plan) | {"order": ["name desc"], "order_fixed": True}
    peak, heard = peak_of(process.Child(order._replace(plan=plan).to_json()))

    assert ROWS == heard[-1]["built"]["rows"], heard
    assert [] == heard[-1]["built"]["notices"]
    assert 30 * MIB < peak < 250 * MIB
    assert ["part"] == [path.name for path in folder.iterdir()]


def test_the_child_loads_the_driver_and_nothing_of_ours_that_is_heavy(house, source_url, tmp_path, monkeypatch):
    monkeypatch.setattr(
        process, "START", process.BUILD + "; import sys; print(*sys.modules, file=open('modules', 'w'))"
    )
    child = process.Child(order_for(house, tmp_path, source_url=source_url).to_json())
    assert 1 == talk(child)[-1]["built"]["rows"]
    child.reap()

    loaded = (tmp_path / "modules").read_text().split()
    heavy = [name for name in HEAVY if name not in ("dataclasses", "inspect", "pathlib", "shutil", "decimal")]
    assert "duckdb" in loaded
    assert [] == [name for name in loaded if name.startswith((*heavy, "pandas", "numpy", "pyarrow"))]
    assert "haulage.sources.sqlite" not in loaded


@pytest.mark.parametrize("sql", [SILENT, SORTING], ids=["silent", "sorting"])
def test_a_cancel_ends_a_statement_and_removes_what_it_has_sorted(house, source_url, sql):
    house.source_url = source_url
    order = () if sql == SILENT else ("t desc",)
    known = house.catalogue.find("silent")
    house.catalogue._datasets["silent"] = replace(known, sql=sql, order=order, limits=replace(BUILD, rows=10**12))
    house.pretend_a_worker()
    run = house.request("silent", **FOREVER)
    with Bench(house) as bench:
        lane = bench.claim()
        lane.thread.start()
        folder = Path(f"/proc/{house.child()}/cwd").readlink()
        until(lambda: sql == SILENT or any(path.is_file() for path in folder.rglob("duckdb_temp_*")))
        house.cancel(run)
        until(lambda: house.get(run).state == "cancelled")
        lane.thread.join(60)

    assert [] == bench.seen(events.Incident)
    assert not folder.exists()
    house.assert_nothing_left()


def test_at_TERM_the_child_ends_at_once_in_the_middle_of_a_silent_statement(house, source_url, tmp_path):  # noqa: N802
    child = process.Child(order_for(house, tmp_path, SILENT, source_url=source_url).to_json())
    until(lambda: [message for message in child.messages(0.05) if message.get("phase") == "counting"])
    child.signal(signal.SIGTERM)
    until(child.ended)

    assert -signal.SIGTERM == child.reap()

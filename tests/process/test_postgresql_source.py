"""A child whose rows come from PostgreSQL: whoever ends it, and however, the server works for nobody afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from tests.process.conftest import sessions_of_builds
from tests.process.house import DATASETS, FOREVER, ON_POSTGRESQL, Bench, until
from tests.process.test_child import HEAVY, order_for, talk
from tests.servers import postgresql
from tests.servers.proxy import Proxy

from haulage.core import events
from haulage.core.limits import MIB
from haulage.formats import FORMATS, resolve_options
from haulage.worker import process

ROWS = 2_000_000  # so many that they are seen to become more
SILENT = "select sum(i) as total from (select generate_series(1, 100000000000) as i) as n"
# As if the server never looked whether its client is still there: before version 14 it does not.
BLIND = "from haulage.sources import postgresql_session; postgresql_session.GONE_SECONDS = 3600; " + process.START


@pytest.fixture
def sourced_house(request, postgresql_source, house):
    """A house whose source is PostgreSQL."""
    house.source_url = postgresql_source
    for each in DATASETS:
        house.catalogue._datasets[each.name] = replace(each, sql=ON_POSTGRESQL.get(each.name, each.sql))
    house.at_work = sessions_of_builds
    return house


@contextlib.contextmanager
def child_of(house, folder, sql, **changes):
    """A child in the middle of its work."""
    order = order_for(house, folder, sql, source_url=house.source_url, **changes)
    child = process.Child(order.to_json())
    try:
        yield child
    finally:
        child.reap()


def test_at_TERM_the_child_itself_has_its_statement_cancelled(sourced_house, tmp_path, monkeypatch):  # noqa: N802
    monkeypatch.setattr(process, "START", BLIND)
    with child_of(sourced_house, tmp_path, SILENT) as child:
        until(lambda: not child.messages(0.01) and sessions_of_builds("active"))  # its order goes meanwhile
        child.signal(signal.SIGTERM)
        until(child.ended)
        until(lambda: not sessions_of_builds(), lambda: "the statement runs on")


@pytest.mark.parametrize("format", ["ndjson", "parquet"])
def test_at_TERM_in_the_middle_of_the_rows_too(sourced_house, tmp_path, monkeypatch, format):  # noqa: N802
    """They are received in a thread of their own."""
    monkeypatch.setattr(process, "START", BLIND)
    sql = "select i, repeat('x', 500) as t from (select generate_series(1, 1000000000) as i) as n"
    options = resolve_options(FORMATS[format], {})
    order = order_for(sourced_house, tmp_path, sql)
    plan = order.plan | {"limits": order.plan["limits"] | {"count_seconds": 0}}
    with child_of(sourced_house, tmp_path, sql, plan=plan, format=format, options=options, file_bytes=10**12,
                  reserved_bytes=10**12) as child:  # fmt: skip
        until(lambda: any(told.get("processed") for told in child.messages(0.1)))
        child.signal(signal.SIGTERM)
        until(child.ended)
        until(lambda: not sessions_of_builds(), lambda: "the statement runs on")


@pytest.mark.parametrize("ending", ["killed", "frozen and cancelled", "too long"])
def test_the_supervisor_ends_what_a_server_still_does_for_a_child_that_cannot(sourced_house, monkeypatch, ending):
    house = sourced_house
    monkeypatch.setattr(process, "START", BLIND)
    house.pretend_a_worker()
    run = house.request("silent", **FOREVER)
    with Bench(house) as bench:
        lane = bench.claim()
        lane.thread.start()
        until(lambda: sessions_of_builds("active"))
        child = house.child()
        if ending != "killed":
            os.kill(child, signal.SIGSTOP)
        if ending == "frozen and cancelled":
            house.cancel(run)
        if ending == "too long":
            lane._began -= 3_600  # as if it had
        if ending == "killed":
            os.kill(child, signal.SIGKILL)
        until(lambda: house.get(run).state != "running")
        left = sessions_of_builds()
        lane.thread.join(60)

    expected = {"killed": ("failed", "child_killed"), "too long": ("failed", "generation_timeout")}
    ended = house.get(run)
    assert (expected.get(ending, ("cancelled", None)), 0) == ((ended.state, ended.failure_code), left)
    assert [] == bench.seen(events.Incident)
    house.assert_nothing_left()


def test_a_server_that_can_not_be_asked_is_told_and_the_run_ends_all_the_same(sourced_house):
    house = sourced_house
    house.pretend_a_worker()
    with Proxy(postgresql.server().port) as between, Bench(house) as bench:
        house.source_url = house.source_url.replace(f":{postgresql.server().port}/", f":{between.port}/")
        run = house.request("silent", **FOREVER)
        lane = bench.claim()
        lane.thread.start()
        until(lambda: sessions_of_builds("active"))
        os.kill(house.child(), signal.SIGSTOP)
        between._listener.shutdown(socket.SHUT_RDWR)  # before the close, or it goes on for who waits in it
        between.cut()
        house.cancel(run)
        until(lambda: house.get(run).state == "cancelled")
        lane.thread.join(60)

    (told,) = bench.seen(events.Incident)
    assert "source" == told.where
    until(lambda: not sessions_of_builds(), lambda: "the server did not find out by itself")


def test_the_child_loads_the_bare_driver_and_nothing_else_that_is_heavy(sourced_house, tmp_path, monkeypatch):
    monkeypatch.setattr(
        process, "START", process.BUILD + "; import sys; print(*sys.modules, file=open('modules', 'w'))"
    )
    with child_of(sourced_house, tmp_path, "select 1 as a") as child:
        assert 1 == talk(child)[-1]["built"]["rows"]

    loaded = (tmp_path / "modules").read_text().split()
    heavy = [name for name in HEAVY if name not in ("dataclasses", "inspect", "pathlib", "shutil", "decimal")]
    assert "psycopg" in loaded
    assert [] == [name for name in loaded if name.startswith(tuple(heavy)) or name == "haulage.sources.sqlite"]


def test_many_columns_of_text_have_room_in_a_row_group(sourced_house, tmp_path):
    """Each takes as much as all of a block while it is read, and gives it back: the gaps must not add up."""
    columns = ", ".join(f"md5((i + {place})::text) as c{place}" for place in range(150))
    sql, options = f"select {columns} from generate_series(1, 4000) as i", {"codec": "none"}

    with child_of(sourced_house, tmp_path, sql, format="parquet", options=options) as child:
        heard = talk(child)

    assert 4_000 == heard[-1].get("built", heard[-1])["rows"]


@pytest.mark.parametrize("format", ["csv", "json"])
def test_rows_that_suddenly_become_huge_do_not_become_as_much_memory(sourced_house, tmp_path, format):
    big = "case when i > 1000 then repeat('x', 10000000) else 'x' end"
    sql = f"select i, {big} as big from generate_series(1, 1010) as i"
    options = {"dialect": "exact"} if format == "csv" else {"numbers": "number"}
    peak = 0
    with child_of(sourced_house, tmp_path, sql, format=format, options=options) as child:
        heard = []
        while not child.ended():
            heard += child.messages(0.01)
            with contextlib.suppress(OSError, StopIteration):
                status = Path(f"/proc/{child.pid}/status").read_text().splitlines()
                peak = max(peak, int(next(line for line in status if line.startswith("VmHWM")).split()[1]) * 1024)
        heard += child.messages(0)

    assert 1_010 == heard[-1]["built"]["rows"]
    assert 20 * MIB < peak < 150 * MIB


def test_progress_of_a_stream_of_the_server_is_what_stands_in_the_file(sourced_house):
    house = sourced_house
    dataset = house.catalogue.find("names")
    sql = "select i, 'name ' || i as name from generate_series(1, :rows) as i"
    house.catalogue._datasets["names"] = replace(dataset, sql=sql, key=("i",))
    house.worker()
    run = house.request("names", rows=ROWS)
    seen = []
    while (now := house.get(run)).state in ("queued", "running"):
        lines = None
        if seen and now.processed == seen[-1][0]:
            continue
        with contextlib.suppress(FileNotFoundError):  # read after the row
            lines = max(0, (house.artifacts_root / "work" / f"{run}.1" / "part").read_bytes().count(b"\n") - 1)
        seen.append((now.processed, now.total, lines))
    done = house.get(run)

    measured = [processed for processed, _total, _lines in seen if processed is not None]
    assert sorted(measured) == measured
    assert len(set(measured)) > 2
    assert all(processed <= ROWS for processed in measured)
    totals = [total for processed, total, _lines in seen if processed is not None]  # counted first, or beside
    assert [ROWS] == list(dict.fromkeys(totals[totals.count(None) :]))
    assert all(processed <= lines for processed, _total, lines in seen if None not in (processed, lines))
    assert ("ready", ROWS, ROWS) == (done.state, done.rows, done.total)
    house.assert_whole()

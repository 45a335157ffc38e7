"""A child with several connections to PostgreSQL: as many as slots are idle, and none is left, however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import replace

import pytest
from tests.process.conftest import sessions_of_builds
from tests.process.house import Bench, until
from tests.process.test_child import order_for
from tests.process.test_postgresql_source import BLIND, SILENT, child_of
from tests.servers import postgresql

from haulage.core import events
from haulage.core.errors import StoreUnavailable
from haulage.worker import process

COUNTS_FEW_BESIDE = "from haulage.sources import postgresql; postgresql.COUNTED_FIRST = 1; "
ROWS = 20_000
SLOW = "select id, b, slowly() as s from large"  # takes minutes, of which the count takes none
SLOWLY = """create function slowly(seconds float default 0.01) returns text language plpgsql stable as $$
    begin perform pg_sleep(seconds); return 'late'; end $$"""
STALLED = "select id, b, slowly(case when id = 3000 then 3600 else 0 end) as s from large"


@pytest.fixture(scope="module")
def large(postgresql_source):
    """A table of 40 MiB in the database that the builds read."""
    database = postgresql_source.rpartition("/")[2]
    server = postgresql.server()
    server.execute(database, "create table large (id integer primary key, b text)")
    server.execute(database, f"insert into large select i, repeat('x', 1900) from generate_series(1, {ROWS}) as i")
    server.execute(database, "vacuum analyze large")
    server.execute(database, SLOWLY)
    yield postgresql_source
    server.execute(database, "drop table large")
    server.execute(database, "drop function slowly")


@pytest.fixture
def parallel_house(house, large):
    house.source_url = large
    house.at_work = sessions_of_builds
    for name, sql in (("names", SLOW + " where id <= :rows"), ("stream", SLOW + " where id <= :rows")):
        dataset = house.catalogue.find(name)
        house.catalogue._datasets[name] = replace(dataset, sql=sql, key=("id",), parallel=3)
    house.pretend_a_worker()
    return house


@contextlib.contextmanager
def working(house, **changes):
    """A lane whose child is in the middle of its rows, with the run's id."""
    run = house.request("names", rows=ROWS)
    with Bench(house, **changes) as bench:
        lane = bench.claim()
        lane.thread.start()
        yield bench, lane, run
        lane.thread.join(60)


@pytest.mark.parametrize("reads", ["in parts", "while it counts"])
@pytest.mark.parametrize("ending", ["killed", "frozen and cancelled", "cancelled"])
def test_however_a_child_ends_all_its_sessions_do(parallel_house, monkeypatch, ending, reads):
    house = parallel_house
    if ending != "cancelled":
        monkeypatch.setattr(process, "START", BLIND)
    if reads == "while it counts":
        monkeypatch.setattr(process, "START", COUNTS_FEW_BESIDE + process.START)
        known = house.catalogue.find("names")
        sql = "select id, b from large where id <= :rows and slowly(id * 0 + 0.01) = 'late'"
        house.catalogue._datasets["names"] = replace(known, sql=sql, parallel=1)
    with working(house) as (bench, _lane, run):
        until(lambda: sessions_of_builds("active") == 2)
        if ending == "killed":
            os.kill(house.child(), signal.SIGKILL)
        if ending == "frozen and cancelled":
            os.kill(house.child(), signal.SIGSTOP)
        if ending != "killed":
            house.cancel(run)
        until(lambda: house.get(run).state != "running")
        left = sessions_of_builds()

    ended = house.get(run)
    expected = ("failed", "child_killed") if ending == "killed" else ("cancelled", None)
    assert (expected, 0) == ((ended.state, ended.failure_code), left)
    assert [] == bench.seen(events.Incident)
    house.assert_nothing_left()


def test_at_TERM_the_child_itself_has_every_statement_cancelled(parallel_house, tmp_path, monkeypatch):  # noqa: N802
    monkeypatch.setattr(process, "START", BLIND)
    plan = order_for(parallel_house, tmp_path, SLOW).plan | {"parallel": 3}
    with child_of(parallel_house, tmp_path, SLOW, plan=plan, connections=3) as child:
        until(lambda: not child.messages(0.01) and sessions_of_builds("active") == 3)
        child.signal(signal.SIGTERM)
        until(child.ended)
        until(lambda: not sessions_of_builds(), lambda: "a statement runs on")


@pytest.mark.parametrize("connections", [1, 2])
@pytest.mark.parametrize("sql", [SILENT, STALLED])
def test_at_TERM_rows_that_do_not_come_are_cancelled_as_well(parallel_house, tmp_path, monkeypatch, sql, connections):  # noqa: N802
    """While the driver waits for a row no other thread may have to wait for the driver."""
    monkeypatch.setattr(process, "START", BLIND)
    plan = order_for(parallel_house, tmp_path, sql).plan | {"parallel": connections}
    plan["limits"]["count_seconds"] = 0.01 if sql == SILENT else 60
    sleeps = "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and application_name like 'haulage %'"
    with child_of(parallel_house, tmp_path, sql, plan=plan, connections=connections, seconds=3600) as child:
        until(lambda: any(each.get("phase") == "writing" for each in child.messages(0.05)))
        if sql == SILENT:
            until(lambda: sessions_of_builds("active"))
        else:
            until(lambda: postgresql.server().execute("postgres", sleeps) == [(1,)])
        child.signal(signal.SIGTERM)
        until(child.ended)
        until(lambda: not sessions_of_builds(), lambda: "the statement runs on")


@pytest.mark.parametrize(("busy", "connections"), [(0, 2), (1, 1)])
def test_as_many_connections_are_taken_as_slots_are_idle(parallel_house, busy, connections):
    """Of two slots; three connections are wanted."""
    house = parallel_house
    others = [house.request("stream", rows=1) for _ in range(busy)]
    with Bench(house) as bench:
        for _ in others:
            bench.claim()  # and not worked on: it has a slot all the same
        with working(house) as (_, _lane, run):
            until(lambda: sessions_of_builds("active") == connections)
            assert connections == sessions_of_builds()
            house.cancel(run)
    assert "cancelled" == house.get(run).state


def test_a_store_that_does_not_answer_costs_only_speed(parallel_house):
    house = parallel_house

    class Silent:
        """A table of runs that cannot be listed."""

        def __getattr__(self, name):
            return getattr(house.store.exports, name)

        def list(self, *_):
            raise StoreUnavailable("no answer")

    with working(house, runs=Silent()) as (_, _lane, run):
        until(lambda: sessions_of_builds("active") == 1)
        assert 1 == sessions_of_builds()
        house.cancel(run)
    assert "cancelled" == house.get(run).state

"""Several connections that see one snapshot: the same bytes as over one, or one and a notice; and one outcome."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import replace
from itertools import pairwise

import pytest
from tests.servers import pgbouncer
from tests.stories.building import PostgresqlYard, query
from tests.stories.terminal import until
from tests.stories.test_postgresql_source import NASTY, rows_for, server_says

from haulage.core.errors import BuildFailed
from haulage.core.reading import Reading
from haulage.core.requester import Requester
from haulage.sources import end_session, open_source, postgresql, postgresql_parallel, postgresql_session

pytestmark = pytest.mark.slow
NOT_USED = {"code": "parallel_not_used"}
ORDERS = (
    """create table orders (id integer primary key, kind integer, name text, total numeric, at timestamptz, tag text)"""
)
FILL = """insert into orders select i, case when i % 5 = 0 then null when i % 3 = 0 then 1 else i % 40 end,
    'name ' || i % 97, i / 7.0, timestamptz '2024-01-01' + i * interval '1 min', repeat(chr(65 + i % 26), i % 50)
    from generate_series(1, 6000) as i"""


@pytest.fixture
def split(monkeypatch):
    """As if a part were one page of a table; knows how many statements each build took."""
    monkeypatch.setattr(postgresql_parallel, "PART_BYTES", 8_192)
    monkeypatch.setattr(postgresql_parallel, "COST_MAX", 20)  # each of so small parts costs a look into the index
    taken = []
    in_order = postgresql.in_order

    def counted(sessions, statements, binds, joining):
        taken.append(len(statements))
        return in_order(sessions, statements, binds, joining)

    monkeypatch.setattr(postgresql, "in_order", counted)
    return taken


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Orders, many of them deleted again, so that pages are not full and some are empty."""
    made = PostgresqlYard(tmp_path_factory.mktemp("parallel"))
    with made.writer() as source:
        source.execute(ORDERS)
        source.execute(FILL)
        source.execute("delete from orders where id between 1000 and 2500 or id % 11 = 0")
        source.execute("create index on orders (kind)")
        source.execute("create index on orders (name)")
        source.execute("create index on orders (at)")
        source.execute("create index on orders (total)")
        source.execute("create table kinds (kind integer primary key, label text)")
        source.execute("insert into kinds select i, 'label ' || i from generate_series(0, 39) as i")
        source.execute("create view listed as select id, name from orders where id % 2 = 0")
        source.execute("vacuum analyze")
    yield made
    made.close()


@pytest.fixture
def yard(tmp_path):
    made = PostgresqlYard(tmp_path)
    yield made
    made.close()


def over(yard, connections, dataset, **asked):
    source = open_source(yard.url, 0.2, connections=connections, name="haulage parallel.1")
    return yard.build(dataset, source=source, **asked)


def same_bytes(yard, dataset, **asked):
    """What one connection and what three make of it, which is the same; gives the notices of the three."""
    one, expected = yard.build(dataset, **asked)
    many, content = over(yard, 3, dataset, **asked)

    assert expected == content
    assert (one.rows, one.total, one.sha256) == (many.rows, many.total, many.sha256)
    return [notice for notice in many.notices if notice not in one.notices]


# -- the same bytes ------------------------------------------------------------------------------------

WITHOUT_AN_ORDER = {
    "all of it": query("select * from orders"),
    "some columns": query("select name, id + 1 as next from orders"),
    "a condition": query("select id, tag from orders where tag <> '' and id % 7 > 1"),
    "an alias": query("select o.id, o.name from orders as o where o.id % 3 = 1"),
    "visible rows": query("select id, kind from orders", visible="kind > 3 or kind is null", hidden=("kind",)),
}
WITH_AN_ORDER = {
    "a key": query("select * from orders", key=("id",)),
    "backwards": query("select * from orders", order=("id desc",)),
    "NULLs last": query("select kind, id from orders", order=("kind",), key=("id",)),
    "NULLs first": query("select kind, id from orders", order=("kind nulls first",), key=("id",)),
    "backwards, NULLs first": query("select kind, id from orders", order=("kind desc",), key=("id",)),
    "backwards, NULLs last": query("select kind, id from orders", order=("kind DESC NULLS LAST",), key=("id",)),
    "ties": query("select id, name from orders", order=("name desc",), key=("id",)),
    "numbers": query("select total, id from orders", order=("total",), key=("id",)),
    "instants": query("select id, at from orders", order=("at desc",), key=("id",), visible="id <> 77"),
    "a renamed column": query("select id as number, tag from orders where tag <> 'B'", key=("number",)),
    "the second of two of one name": query("select kind as a, id as a from orders", key=("a_2",)),
    "a join": query(
        "select o.id, k.label from orders as o left join kinds as k on k.kind = o.kind", key=("id",)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT_AN_ORDER)
def test_pages_of_a_table_come_as_they_do_over_one_connection(kept, split, name):
    assert [] == same_bytes(kept, WITHOUT_AN_ORDER[name])
    assert split[0] > 10


@pytest.mark.parametrize("name", WITH_AN_ORDER)
def test_ranges_of_values_come_in_their_order(kept, split, name):
    assert [] == same_bytes(kept, WITH_AN_ORDER[name])
    assert split[0] > 5


FORMATS = ({"compression": "gzip"}, {"format": "json"}, {"format": "ndjson"}, {"format": "parquet"}, {"format": "xlsx"},
           {"options": {"dialect": "excel"}})  # fmt: skip


@pytest.mark.parametrize("asked", FORMATS)
def test_every_format_can_be_read_so(kept, split, asked):
    one, expected = kept.build(WITH_AN_ORDER["a key"], **asked)
    many, content = over(kept, 2, WITH_AN_ORDER["a key"], **asked)

    assert one._replace(snapshot_at=None, bytes=0, sha256="") == many._replace(snapshot_at=None, bytes=0, sha256="")
    assert expected == content or asked == {"format": "parquet"}  # which has the instant of the snapshot in it
    assert split


def test_every_type_of_value_comes_the_same_in_every_part(yard, split):
    columns = ", ".join(f'"{name}" {kind}' for name, (kind, *_) in NASTY.items())
    with yard.writer() as source:
        source.execute("create type pair as (a integer, b text)")
        source.execute("create type mood as enum ('ok', 'so, so')")
        source.execute("create domain positive as integer check (value > 0)")
        source.execute(f"create table nasty (at integer primary key, {columns})")
        for at in range(9):
            values = [literals[at] if at < len(literals) else "null" for _, *literals in NASTY.values()]
            source.execute(f"insert into nasty values ({at}, {', '.join(values)})")
        for _ in range(6):
            source.execute("insert into nasty select at + (select max(at) + 1 from nasty), "
                           + ", ".join(f'"{name}"' for name in NASTY) + " from nasty")  # fmt: skip
        source.execute("vacuum analyze nasty")
    names = ", ".join(f'"{name}"' for name in NASTY)

    assert [] == same_bytes(yard, query(f"select {names} from nasty"))
    assert [] == same_bytes(yard, query(f"select at, {names} from nasty", key=("at",)))
    assert [parts > 1 for parts in split] == [True, True]


TYPES = ("small", "large", "exact", "double", "words", "padded", "day", "instant", "span", "id", "mood", "truth",
         "range", "bits", "address")  # fmt: skip


def test_a_column_of_any_type_can_lead_the_order(yard, split):
    """With NaN, infinities, NULLs, '' and a collation of its own; most rows have the same value."""
    with yard.writer() as source:
        source.execute("create type mood as enum ('ok', 'so, so')")
        for name in TYPES:
            kind, *literals = NASTY[name]
            literals = [literal for literal in literals if "repeat" not in literal]  # too long for an index
            values = (*literals, "null", "null", *literals[:1] * 9)
            listed = ", ".join(f"(cast({literal} as {kind}))" for literal in values)
            collation = 'collate "C"' if kind == "text" else ""
            source.execute(f"create table of_{name} (id serial, v {kind} {collation}, b text)")
            source.execute(f"insert into of_{name} (v, b) select v, repeat('x', 900) from (values {listed}) as n (v),"
                           f" generate_series(1, {1000 // (len(literals) + 11)})")  # fmt: skip
            source.execute(f"create index on of_{name} (v, id)")
        source.execute("vacuum analyze")
    for name in TYPES:
        for direction in ("", " desc"):
            assert [] == same_bytes(
                yard, query(f"select id, v, b from of_{name}", order=(f"v{direction}",), key=("id",))
            )
    assert len(TYPES) * 2 == len(split)


def test_a_partitioned_table_is_split_by_its_key(yard, split):
    with yard.writer() as source:
        source.execute("create table orders (id integer, name text, primary key (id)) partition by range (id)")
        for low, high in pairwise((0, 100, 5000, 20000)):
            source.execute(f"create table orders_{low} partition of orders for values from ({low}) to ({high})")
        source.execute("insert into orders select i, repeat('x', 50) from generate_series(1, 9000) as i")
        source.execute("vacuum analyze orders")

    assert [] == same_bytes(yard, query("select * from orders", key=("id",)))
    assert split[0] > 10


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("key", [(), ("id",)])
def test_a_table_of_no_row_or_of_one(yard, monkeypatch, rows, key):
    monkeypatch.setattr(postgresql_parallel, "PART_BYTES", 1)
    with yard.writer() as source:
        source.execute("create table orders (id integer primary key, name text)")
        source.execute(f"insert into orders select i, 'x' from generate_series(1, {rows}) as i")
    built, content = over(yard, 2, query("select * from orders", key=key))

    assert b"id,name\n" + b"1,x\n" * rows == content
    assert (rows, rows) == (built.rows, built.total)


def test_few_rows_are_not_split_and_nothing_is_said(kept):
    assert [] == same_bytes(kept, query("select count(*) as n from orders", key=("n",)))
    assert [] == same_bytes(kept, query("select * from orders"))


def test_rows_that_are_committed_meanwhile_are_in_no_part(yard, split, monkeypatch):
    connect, late = postgresql.connect, "insert into orders (id, name) select max(id) + 1, 'late' from orders"

    def connected(*asked):
        with yard.writer() as source:
            source.execute(late)  # before the second connection has joined, and the third
        return connect(*asked)

    with yard.writer() as source:
        source.execute(ORDERS)
        source.execute(FILL)
        source.execute("vacuum analyze orders")
    monkeypatch.setattr(postgresql, "connect", connected)
    for order in ((), ("id",)):
        reading = Reading("select id, name from orders", {}, {}, None, (), order, None, {})
        with open_source(yard.url, connections=3).snapshot() as snapshot:
            with yard.writer() as source:  # after the snapshot was taken, before any of them has read
                before = server_says(yard, "select id::text, name from orders order by orders.id")[:-2]
                source.execute("update orders set name = 'late' where id % 3 = 0")
                source.execute("delete from orders where id % 5 = 0")
                source.execute(late)
            with contextlib.closing(snapshot.batches(reading._replace(as_text=True))) as batches:
                rows = list(next(batches))
                with yard.writer() as source:
                    source.execute("update orders set name = 'later'")
                    source.execute(late)
                rows += [row for batch in batches for row in batch]
        assert before == sorted(rows, key=lambda row: int(row[0]))
    assert len(split) == 2


# -- where one connection has to do --------------------------------------------------------------------

NOT_SPLIT = {
    "groups": query("select kind, count(*) as n, repeat('x', 30000) as x from orders group by kind", key=("kind",)),
    "groups by the key": query("select id, min(name) as n from orders group by id", key=("id",)),
    "a limit": query("select * from orders limit 2000", key=("id",)),
    "a limit without an order": query("select * from orders limit 2000"),
    "no duplicates": query("select distinct name, repeat('x', 9999) as x from orders", key=("name",)),
    "numbers of rows": query("select id, row_number() over (order by id) as n from orders", key=("id",)),
    "a function in place of a table": query("select i, repeat('x', 99) as x from generate_series(1, 9000) as i",
                                            key=("i",)),
    "an expression as the key": query("select id + 0 as id, name from orders", key=("id",)),
    "no index": query("select id, tag from orders", order=("tag",), key=("id",)),
    "two tables without an order": query("select o.id, k.label from orders as o, kinds as k"),
    "a name with its schema": query("select * from public.orders"),
    "a column of the system": query("select ctid, id from orders"),
    "a whole row": query("select o from orders as o"),
    "an inner order": query("select * from orders order by name, id"),
    "a value of the whole": query("select id, (select max(id) from orders) as most from orders"),
    "an index instead of the table": query("select id, name from orders where id between 10 and 900"),
    "a view": query("select * from listed"),
    "a sample": query("select * from orders tablesample system (50) repeatable (1)"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_SPLIT)
def test_what_cannot_be_split_takes_one_connection_and_says_so(kept, split, monkeypatch, name):
    monkeypatch.setattr(postgresql_parallel, "COST_MAX", 1.5)
    monkeypatch.setattr(postgresql_parallel, "PART_BYTES", 100)  # so that none of them is too small

    assert [NOT_USED] == same_bytes(kept, NOT_SPLIT[name])
    assert [] == split


def test_a_parquet_file_that_is_read_twice_says_it_too(kept, split):
    built, _ = over(kept, 2, NOT_SPLIT["a limit"], format="parquet")
    assert NOT_USED in built.notices


@pytest.mark.parametrize(
    "sql",
    [
        "select id, now() as at from orders",
        "select id, at from orders where at < current_date + 7",
        "select id, localtimestamp as l from orders",
        "select id, statement_timestamp() as s from orders",
    ],
)
def test_what_asks_the_clock_asks_one(kept, split, sql):
    """Each connection has a clock of its own: its transaction began a moment later."""
    built, content = over(kept, 2, query(sql, key=("id",)))
    assert NOT_USED in built.notices
    assert [] == split
    if "where" not in sql:
        assert 1 == len({line.split(b",")[1] for line in content.splitlines()[1:]})


def test_what_is_another_value_each_time_is_so_in_every_part_too(kept, split):
    _, content = over(kept, 2, query("select id, random() as r from orders", key=("id",)))
    values = [line.split(b",")[1] for line in content.splitlines()[1:]]
    assert len(values) == len(set(values)) > 1_000
    assert split


def test_a_view_with_the_name_of_its_table_hides_what_it_hides(yard, split):
    """The part of the table must not take the place of the view, which has a condition."""
    with yard.writer() as source:
        source.execute("create schema shop")
        source.execute(f"alter database {yard._database} set search_path = public, shop")
        source.execute("create table shop.orders (id integer, secret boolean, b text)")
        source.execute(
            "insert into shop.orders select i, i % 2 = 0, repeat('x', 90) from generate_series(1, 3000) as i"
        )
        source.execute("create view public.orders as select * from shop.orders where not secret")
        source.execute("vacuum analyze shop.orders")

    assert [NOT_USED] == same_bytes(yard, query("select id, secret from orders"))
    assert b"true" not in over(yard, 3, query("select id, secret from orders"))[1]


def test_the_parts_of_a_guarded_table_are_those_of_one_tenant(yard, split):
    role = f"{yard._database}_reader"
    with yard.writer() as source:
        source.execute(f"create role {role} login")
        source.execute("create table orders (id integer primary key, tenant text, b text)")
        source.execute("insert into orders select i, case i % 3 when 0 then 'north' else 'south' end, repeat('x', 99)"
                       " from generate_series(1, 6000) as i")  # fmt: skip
        source.execute("alter table orders enable row level security")
        source.execute("create policy of_one on orders using (tenant = current_setting('app.tenant'))")
        source.execute(f"grant select on orders to {role}")
        source.execute("vacuum analyze orders")
    url, yard.url = yard.url, postgresql_url(yard, role)
    try:
        for key in (("id",), ()):
            dataset = query("select id, tenant from orders", key=key, session={"app.tenant": "north"})
            built, content = over(yard, 3, dataset)
            assert 2_000 == built.rows == content.count(b",north\n")
        assert split[0] > 5
    finally:
        yard.url = url
        with yard.writer() as source:
            source.execute(f"drop owned by {role}")
            source.execute(f"drop role {role}")


def postgresql_url(yard, role):
    return yard._server.url(yard._database, role)


def test_a_server_that_gives_no_further_connection_is_read_over_one(yard, split):
    role = f"{yard._database}_single"
    with yard.writer() as source:
        source.execute(ORDERS)
        source.execute(FILL)
        source.execute(f"create role {role} login connection limit 1")
        source.execute(f"grant select on orders to {role}")
    url, yard.url = yard.url, postgresql_url(yard, role)
    try:
        built, _ = over(yard, 3, query("select * from orders"))
    finally:
        yard.url = url
        with yard.writer() as source:
            source.execute(f"drop owned by {role}")
            source.execute(f"drop role {role}")
    assert (6_000, True) == (built.rows, NOT_USED in built.notices)


def test_a_connection_that_cannot_prepare_its_part_is_not_used(kept, split, monkeypatch):
    """What fails in a session makes it forget who asks."""
    plan, dataset = postgresql_parallel.plan_of, query("select id, current_setting('app.t') as t from orders")

    def refused(session, sql):
        if not session.shared:  # one that has joined
            session.run("select 1 / 0")
        return plan(session, sql)

    monkeypatch.setattr(postgresql_parallel, "plan_of", refused)
    assert [NOT_USED] == same_bytes(kept, replace(dataset, session={"app.t": "north"}))


def test_a_connection_that_ends_at_another_server_is_not_used(kept, split, monkeypatch):
    """Its snapshots may have the same names."""
    monkeypatch.setattr(postgresql_session.Session, "instant", lambda session: session.pid)
    assert [NOT_USED] == same_bytes(kept, query("select * from orders"))


# -- behind a proxy ------------------------------------------------------------------------------------


@pytest.fixture
def pooled(kept):
    """The same database through a proxy that has three connections to it and hands them on after each transaction."""
    url, server = kept.url, kept._server
    kept.url = url.replace(f":{server.port}/", f":{pgbouncer.proxy().port}/")
    yield kept
    kept.url = url


def test_a_proxy_that_pools_transactions_may_stand_between(pooled, split):
    for name in ("a key", "backwards, NULLs first"):
        assert [] == same_bytes(pooled, WITH_AN_ORDER[name])
    assert [] == same_bytes(pooled, query("select * from orders"))
    assert len(split) == 3


def test_a_proxy_that_has_no_further_connection_is_not_waited_for(pooled, split, monkeypatch):
    monkeypatch.setattr(postgresql_session, "JOIN_SECONDS", 0.2)
    with open_source(pooled.url, connections=2).snapshot() as holds:
        assert 2 == len(holds.session.partition(" ")[0].split(","))
        built, _ = over(pooled, 2, query("select * from orders"))
    assert NOT_USED in built.notices
    assert [] == same_bytes(pooled, query("select * from orders"))  # nothing is left of who waited


# -- one outcome ---------------------------------------------------------------------------------------

FOREVER = Reading("select * from large", {}, {}, None, (), (), None, {})


@pytest.fixture
def large(yard, split):
    """A table that takes a while, each of whose parts is larger than what the sockets hold."""
    with yard.writer() as source:
        source.execute("create table large (id integer, b text)")
        source.execute("alter table large alter b set storage external")
        source.execute("insert into large select i, repeat('x', 100000) from generate_series(1, 400) as i")
        source.execute("vacuum analyze large")
    return yard


def at_work(yard):
    """Sessions of ours in which something is done."""
    ours = "datname = %s and application_name like 'haulage %%' and state = 'active'"
    asked = f"select count(*) from pg_stat_activity where {ours}"
    return yard._server.execute("postgres", asked, (yard._database,))[0][0]


def test_what_is_read_ahead_is_bounded(large, monkeypatch):
    monkeypatch.setattr(postgresql_parallel, "AHEAD_BYTES", 300_000)
    with open_source(large.url, connections=3).snapshot() as snapshot:
        pieces = snapshot._copied(FOREVER, snapshot._selected(FOREVER)[0], "")
        most = count = 0
        for held, _ in pieces:
            count += held
            ahead = pieces.gi_frame.f_locals["ahead"]
            assert sum(len(piece) for part in pieces.gi_frame.f_locals["parts"] for _, piece in part.pieces) == ahead
            most = max(most, ahead)
    assert 400 == count
    assert 100_000 < most <= 300_000 + 3 * 100_010


def test_a_part_is_read_no_further_while_much_of_it_waits(yard, monkeypatch):
    """What was read of it ahead is small rows; one row of those behind them is as large as all that may wait."""
    monkeypatch.setattr(postgresql_parallel, "AHEAD_BYTES", 1_000_000)
    monkeypatch.setattr(postgresql_parallel, "GIVEN_BYTES", 1)
    one = "copy (select repeat('a', 100000) from generate_series(1, 100)) to stdout"
    two = """copy (select repeat('b', case when i < 60000 then 95 else 1000000 end)
        from generate_series(1, 60030) as i) to stdout"""
    with open_source(yard.url, connections=2).snapshot() as snapshot:
        pieces = postgresql_parallel.in_order(snapshot._sessions, [one, two], {})
        most = count = 0
        for held, _ in pieces:
            count += held
            most = max(most, pieces.gi_frame.f_locals["ahead"])
            time.sleep(0.001)  # for the server
    assert 60_130 == count
    assert most <= 2_200_000


def test_while_a_part_is_given_the_others_are_read(large, monkeypatch):
    """A part that was read ahead may be long; those who could send meanwhile do not wait for its end."""
    monkeypatch.setattr(postgresql_parallel, "GIVEN_BYTES", 1)
    monkeypatch.setattr(postgresql_parallel, "AHEAD_BYTES", 15_000_000)  # a part, and little of the next
    with open_source(large.url, connections=2).snapshot() as snapshot:
        pieces = snapshot._copied(FOREVER, snapshot._selected(FOREVER)[0], "")
        grown = set()
        for _ in pieces:
            first, *others = pieces.gi_frame.f_locals["parts"]
            if first.copying.count is not None and first.pieces:
                grown.add(sum(len(piece) for part in others for _, piece in part.pieces))
                time.sleep(0.001)  # for the server
    assert len(grown) > 5


def test_a_part_that_is_silent_does_not_hold_up_the_one_before_it(yard, split, monkeypatch):
    waits = "begin perform pg_advisory_xact_lock_shared(4711); return 'late'; end"
    with yard.writer() as source:
        source.execute(ORDERS)
        source.execute(FILL)
        source.execute(f"create function waits() returns text language plpgsql stable as $$ {waits} $$")
        source.execute("vacuum analyze orders")
    monkeypatch.setattr(postgresql_parallel, "PART_BYTES", 300_000)
    reading = Reading(
        "select id, case when id > 2000 then waits() end as w from orders", {}, {}, None, (), (), None, {}
    )
    with (
        yard.writer() as holds,
        open_source(yard.url, 20, connections=2).snapshot() as snapshot,
        contextlib.closing(snapshot.batches(reading)) as batches,
    ):
        holds.execute("select pg_advisory_lock(4711)")
        count = 0
        while count < 1_000:
            count += len(next(batches))
        holds.execute("select pg_advisory_unlock(4711)")
        count += sum(map(len, batches))
    assert [3] == split
    assert 6_000 == count


@pytest.mark.parametrize("which", [0, 1, 2])
def test_where_one_connection_fails_the_run_fails_and_nothing_goes_on(large, which):
    source = open_source(large.url, connections=3, name="haulage parallel.1")
    with source.snapshot() as snapshot, contextlib.closing(snapshot.batches(FOREVER)) as batches:
        next(batches)
        pid = snapshot.session.partition(" ")[0].split(",")[which]
        server_says(large, f"select pg_terminate_backend({pid})")
        with pytest.raises(BuildFailed) as failed:
            for _ in batches:
                pass
        assert "source_unavailable" == failed.value.code
        until(lambda: at_work(large) == 0)


def test_a_reader_that_goes_away_ends_the_statements_of_all(large):
    source = open_source(large.url, connections=3, name="haulage parallel.1")
    with source.snapshot() as snapshot:
        with contextlib.closing(snapshot.batches(FOREVER)) as batches:
            next(batches)
            until(lambda: at_work(large) == 3)
        assert 0 == at_work(large)
        assert 400 == snapshot.count(FOREVER, 10)


def test_a_cancel_ends_the_statements_of_all(large):
    source = open_source(large.url, connections=3, name="haulage parallel.1")
    with source.snapshot() as snapshot, contextlib.closing(snapshot.batches(FOREVER)) as batches:
        next(batches)
        until(lambda: at_work(large) == 3)
        teller = threading.Thread(target=source.cancel)
        teller.start()
        teller.join()
        until(lambda: at_work(large) == 0)
        with pytest.raises(BuildFailed):
            for _ in batches:
                pass


def test_all_the_sessions_of_a_dead_client_can_be_ended(large):
    source = open_source(large.url, connections=3, name="haulage parallel.1")
    with source.snapshot() as snapshot, contextlib.closing(snapshot.batches(FOREVER)) as batches:
        next(batches)
        until(lambda: at_work(large) == 3)
        assert end_session(large.url, snapshot.session, 10)
        assert 0 == at_work(large)
        with pytest.raises(BuildFailed):
            for _ in batches:
                pass


@pytest.mark.parametrize(("asked", "code"), [({"file_bytes": 5_000_000}, "bytes_exceeded"),
                                             ({"reserved_bytes": 5_000_000}, "storage_exceeded"),
                                             ({"limits": {"rows": 100}}, "rows_exceeded")])  # fmt: skip
def test_limits_are_those_of_one_file(large, asked, code):
    with pytest.raises(BuildFailed) as failed:
        over(large, 3, query("select * from large"), **asked)
    (folder,) = (path for path in large.folder.iterdir() if path.name.startswith("build-"))

    assert code == failed.value.code
    assert ["part"] == [path.name for path in folder.iterdir()]
    assert (folder / "part").stat().st_size <= 5_000_000
    assert 0 == at_work(large)


def test_a_part_that_is_missing_is_noticed(kept, split, monkeypatch):
    parts_of = postgresql_parallel.parts_of
    monkeypatch.setattr(postgresql, "parts_of", lambda *asked: parts_of(*asked)[1:])
    with pytest.raises(BuildFailed) as failed:
        over(kept, 2, query("select * from orders"))
    assert "count_mismatch" == failed.value.code


def test_a_count_that_was_given_up_leaves_every_connection_usable(kept, split):
    built, _ = over(
        kept, 3, query("select id, pg_sleep(0)::text as s, name from orders"), limits={"count_seconds": 1e-9}
    )
    assert (None, built.rows) == (built.total, kept.build(query("select id from orders"))[0].rows)


def test_who_asks_is_told_to_every_connection(kept, split):
    dataset = query("select id, current_setting('app.tenant') as t from orders", session={"app.tenant": "north"})
    assert [] == same_bytes(kept, dataset)
    assert split
    assert rows_for(kept, Requester("north", "amina"), dataset)

"""What each role of `haulage migrate up --roles` cannot do, asked of the server: connected as that role, by SQL."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege
from tests.conformance import entered
from tests.conformance.entered import ids, refused
from tests.servers import postgresql
from tests.servers.openers import OWNER, TABLES

from haulage.stores.tenants import ROUTING, RUNTIME, WORKER

pytestmark = pytest.mark.slow

ROUTED = {"tenant", "id", "state", "requested_at"}


@pytest.fixture(scope="module")
def house():
    with entered.house() as made:
        yield made


# -- the runtime role ------------------------------------------------------------------------------------

TOUCHES = {
    "select": "select count(*) from exports",
    "select by id": "select 1 from exports where id = '{north}'",
    "update": "update exports set phase = 'x'",
    "insert": "insert into exports select * from jsonb_populate_record(null::exports, '{row}')",
    "keys": "select count(*) from idempotency_keys",
    "insert a key": "insert into idempotency_keys values ('north', 'a', 'k2', 'h', 'r', 1)",
    "delete a key": "delete from idempotency_keys",
}


@pytest.fixture
def touches(house):
    row = house.case.opener.execute(house.case.url, "select to_jsonb(e) from exports e where state = 'queued' limit 1")
    row = json.dumps({**row[0][0], "id": "new", "tenant": "north"}).replace("'", "''")
    return {
        name: sql.replace("{row}", row).replace("{north}", house.runs["north", "queued"])
        for name, sql in TOUCHES.items()
    }


@pytest.mark.parametrize("touch", TOUCHES)
@pytest.mark.parametrize("before", ["never", "earlier"])
def test_the_runtime_role_without_a_tenant_sees_and_writes_nothing(house, touches, touch, before):
    """Not even where a transaction before it on the same connection had one."""
    with house.connected(RUNTIME) as runtime:
        if before == "earlier":
            with house.acting_for(runtime, "north"):
                assert ids(runtime) == house.of("north")
        with pytest.raises(InsufficientPrivilege, match="no tenant is set"):
            runtime.execute(touches[touch])

    with house.connected(RUNTIME) as runtime, house.acting_for(runtime, "north"):  # With one, each of them can be done.
        runtime.execute(touches[touch])
        raise psycopg.Rollback


@pytest.mark.parametrize("role", [RUNTIME, WORKER, OWNER])
def test_a_transaction_of_one_tenant_sees_that_one_and_no_other(house, role):
    with house.connected(role) as connection, house.acting_for(connection, "north"):
        seen = ids(connection)
        keys = connection.execute("select tenant from idempotency_keys").fetchall()
        counted = connection.execute("select count(*) from exports where tenant = 'south'").fetchone()
        by_id = connection.execute("select 1 from exports where id = %s", [house.runs["south", "ready"]]).fetchall()

    assert house.of("north") == seen
    assert [("north",)] == keys
    assert ((0,), []) == (counted, by_id)


@pytest.mark.parametrize("role", [RUNTIME, WORKER, OWNER])
def test_a_transaction_of_one_tenant_writes_nothing_of_another(house, role, touches):
    foreign = house.runs["south", "queued"]
    insert_of_south = touches["insert"].replace('"tenant": "north"', '"tenant": "south"')
    with house.connected(role) as connection, house.acting_for(connection, "north"):
        changed = [
            connection.execute("update exports set phase = 'x' where id = %s", [foreign]).rowcount,
            connection.execute("update exports set phase = 'x' where tenant = 'south'").rowcount,
            connection.execute("delete from idempotency_keys where tenant = 'south'").rowcount,
        ]
        given_away = refused(connection, "update exports set tenant = 'south' where state = 'queued'")
        inserted = refused(connection, insert_of_south)
        kept = refused(connection, "insert into idempotency_keys values ('south', 'a', 'k2', 'h', 'r', 1)")
        raise psycopg.Rollback

    assert [0, 0, 0] == changed
    assert (True, True, True) == (given_away, inserted, kept)


UPWARD = (
    "set role postgres",
    f"set role {OWNER}",
    "set session authorization postgres",
    "alter table exports disable row level security",
    "alter table exports no force row level security",
    "alter table exports disable trigger user",
    f"alter table exports owner to {RUNTIME}",
    "drop policy exports_one on exports",
    "alter policy exports_one on exports using (true)",
    "create policy mine on exports using (true)",
    "alter function exports_counted() security invoker",
    "truncate exports",
    "create table beside (a int)",
    f"alter role {RUNTIME} bypassrls",
    f"alter role {WORKER} superuser",
    f"alter role {ROUTING} createrole",
    f"grant {OWNER} to {RUNTIME}",
    "create role another",
    "set local session_replication_role = replica",
    "update haulage_facts set name = 'x' where name = 'min_worker'",
    "insert into haulage_facts values ('another', 1)",
    "update run_pools set min_worker = 0",
    "update run_pools set free_slots = '{[1,)}'",
    "update run_pools set stored_bytes = 0",
)


@pytest.mark.parametrize("role", [RUNTIME, WORKER, ROUTING])
def test_no_role_can_go_upward(house, role):
    others = [f"set role {other}" for other in (RUNTIME, WORKER, ROUTING) if other != role]
    with house.connected(role) as connection:
        allowed = [sql for sql in (*UPWARD, *others) if not refused(connection, sql)]

    assert [] == allowed


def test_row_security_that_is_switched_off_is_an_error_and_no_way_around(house):
    with house.connected(RUNTIME) as runtime, house.acting_for(runtime, "north"):
        runtime.execute("set local row_security = off")
        with pytest.raises(InsufficientPrivilege, match="row-level security"):
            runtime.execute("select count(*) from exports")


def test_no_role_has_a_power_over_the_server_or_is_a_member_of_another(house):
    powers = "rolsuper or rolbypassrls or rolcreaterole or rolcreatedb or rolreplication"
    roles = f"('{RUNTIME}', '{WORKER}', '{ROUTING}')"
    server = postgresql.server()
    found = server.execute(house.name, f"select rolname, {powers} from pg_roles where rolname in {roles}")
    member_of = f"select 1 from pg_auth_members join pg_roles on pg_roles.oid = member where rolname in {roles}"

    assert {RUNTIME: False, WORKER: False, ROUTING: False} == dict(found)
    assert [] == server.execute(house.name, member_of)


RUNTIME_ONLY = (
    "select tenant from tenant_gates",
    "select head_id from tenant_gates",
    "update tenant_gates set queued = 0",
    "update run_pools set stored_bytes = 0",
    "delete from exports",
    "insert into workers select * from workers",
    "update workers set state = 'draining'",
)


def test_what_the_runtime_role_hears_of_others_are_sums(house):
    with house.connected(RUNTIME) as runtime, house.acting_for(runtime, "north"):
        (waiting,) = runtime.execute("select sum(queued) from tenant_gates where flow = 'exports'").fetchone()
        (place,) = runtime.execute("select exports_place(%s)", [house.runs["south", "queued"]]).fetchone()
        bound = runtime.execute("select current_setting('haulage.tenant')").fetchone()
        allowed = [sql for sql in RUNTIME_ONLY if not refused(runtime, sql)]

    assert 2 == waiting
    assert place == house.case.runs.queue_position(house.case.get(house.runs["south", "queued"]))
    assert ("north",) == bound
    assert [] == allowed


def test_statistics_and_functions_of_ones_own_show_nothing_of_another(house):
    house.case.opener.execute(house.case.url, "analyze exports")
    seen = []
    with house.connected(RUNTIME) as runtime:
        runtime.add_notice_handler(lambda notice: seen.append(notice.message_primary))
        with house.acting_for(runtime, "north"):
            statistics = runtime.execute("select attname from pg_stats where tablename = 'exports'").fetchall()
            runtime.execute("""
                create function pg_temp.look(text, text) returns boolean cost 0.0000001 language plpgsql as
                $$ begin raise notice '%', $2; return $1 = 'south'; end $$""")
            found = runtime.execute("select id from exports where pg_temp.look(tenant, id)").fetchall()

    assert ([], []) == (statistics, found)
    assert house.of("north") == set(seen)


def test_a_table_of_the_callers_own_does_not_take_the_place_of_the_one_that_is_counted_in(house, touches):
    """The triggers run as the owner: a table in pg_temp would let whoever calls them run code as the owner."""
    counted = "select queued from tenant_gates where flow = 'exports' and tenant = 'north'"
    before = house.case.opener.execute(house.case.url, counted)
    with house.connected(RUNTIME) as runtime, house.acting_for(runtime, "north"):
        for table in ("run_pools", "exports"):
            runtime.execute(f"create temporary table {table} (like public.{table})")
        gate = "flow text, tenant text, queued int, running int, head_at bigint, head_id text"
        runtime.execute(f"create temporary table tenant_gates ({gate}, unique (flow, tenant))")
        runtime.execute(touches["insert"].replace("insert into exports", "insert into public.exports"))
        planted = [
            runtime.execute(f"select count(*) from pg_temp.{table}").fetchone()[0]
            for table in ("tenant_gates", "run_pools", "exports")
        ]
        (place,) = runtime.execute("select exports_place('new')").fetchone()
        (now,) = runtime.execute("select sum(queued) from public.tenant_gates").fetchone()
        raise psycopg.Rollback

    assert [(1,)] == before
    assert ([0, 0, 0], 3) == (planted, now)
    assert place in (2, 3)


def test_what_the_runtime_role_can_read_of_all_tenants_is_what_the_page_says(house):
    """As the server knows it, of every column; and what it can write beside the two tables that are bound."""
    with house.connected(RUNTIME) as runtime:
        rights = runtime.execute("""
            select c.relname, has_table_privilege(c.oid, 'select'), array_agg(a.attname::text order by a.attname),
                array_remove(array[case when has_table_privilege(c.oid, 'insert') then 'insert' end,
                    case when has_any_column_privilege(c.oid, 'update') then 'update' end,
                    case when has_table_privilege(c.oid, 'delete') then 'delete' end], null)
            from pg_class c join pg_attribute a on a.attrelid = c.oid join pg_namespace n on n.oid = c.relnamespace
            where n.nspname = 'public' and c.relkind in ('r', 'v', 'm', 'p') and a.attnum > 0 and not a.attisdropped
            and has_column_privilege(c.oid, a.attnum, 'select') group by c.oid""").fetchall()
        seen = runtime.execute("select count(*) from sessions").fetchone()
    readable = {table: None if whole else columns for table, whole, columns, _ in rights}
    writable = {table: written for table, *_, written in rights if written}
    page = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()
    told = page.partition("What `haulage_runtime` can read of all tenants")[2].partition("\n\n")[0]

    bound = {"exports": None, "idempotency_keys": None}
    others = {"sessions": None, "workers": None, "tenant_gates": ["flow", "head_at", "queued"], "run_pools": None,
              "haulage_facts": None}  # fmt: skip
    assert bound | others == readable
    assert {"exports": ["insert", "update"], "idempotency_keys": ["insert", "delete"], "sessions": ["insert", "delete"],
            "haulage_facts": ["insert", "update", "delete"]} == writable  # fmt: skip
    assert (0,) == seen
    assert [] == [name for name in (*others, "flow", "queued", "head_at") if f"`{name}`" not in told]


# -- the role of workers, and the one that only routes -----------------------------------------------------


def test_the_worker_role_sees_all_tenants_until_it_acts_for_one(house):
    with house.connected(WORKER) as worker:
        everybody = ids(worker)
        with house.acting_for(worker, "south"):
            one = ids(worker)
        again = ids(worker)

    assert house.of("north") | house.of("south") == everybody == again
    assert house.of("south") == one


@pytest.mark.parametrize("tenant", [None, "north", "south"])
def test_the_routing_role_sees_who_waits_and_who_runs_and_nothing_else(house, tenant):
    with house.connected(ROUTING) as routing, house.acting_for(routing, tenant or ""):
        seen = routing.execute("select tenant, id, state, requested_at from exports").fetchall()
        refusals = [refused(routing, f"select {column} from exports") for column in ("*", "account", "plan")]
        hidden = refused(routing, "select id from exports where account = 'amina'")

    open_states = ("queued", "running")
    assert house.of("north", open_states) | house.of("south", open_states) == {row[1] for row in seen}
    assert {"queued", "running"} == {row[2] for row in seen}
    assert ([True] * 3, True) == (refusals, hidden)


def test_the_routing_role_has_a_right_to_four_columns_and_no_other_thing(house):
    """As the server itself knows it, of every column of every table and view, and of our functions."""
    with house.connected(ROUTING) as routing:
        readable = routing.execute("""
            select c.relname, a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid
            join pg_namespace n on n.oid = c.relnamespace
            where n.nspname = 'public' and c.relkind in ('r', 'v', 'm', 'p') and a.attnum > 0 and not a.attisdropped
            and has_column_privilege(c.oid, a.attnum, 'select')""").fetchall()
        writable = routing.execute("""
            select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'public'
            and c.relkind in ('r', 'v', 'S') and (case when c.relkind = 'S' then has_sequence_privilege(c.oid, 'usage')
            else has_any_column_privilege(c.oid, 'insert, update, references')
            or has_table_privilege(c.oid, 'delete, truncate, trigger') end)""").fetchall()
        callable_ = routing.execute("""
            select proname from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'public'
            and has_function_privilege(p.oid, 'execute') order by 1""").fetchall()
        written = [
            sql
            for sql in (
                "update exports set state = 'queued'",
                "delete from exports",
                "insert into exports (id) values ('x')",
                "select id from exports for update",
                *(f"select count(*) from {table}" for table in TABLES if table != "exports"),
            )
            if not refused(routing, sql)
        ]

    assert {("exports", column) for column in ROUTED} == set(readable)
    assert ([], [("exports_no_tenant",)], []) == (writable, callable_, written)

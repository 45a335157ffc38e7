"""Index advice where databases differ: what each of them knows, cannot index, or does not show to everybody."""

from __future__ import annotations

import contextlib

import pytest
from tests.conformance.source_cases import Mariadb, Postgresql, Sqlite

from haulage.core.errors import BuildFailed
from haulage.core.reading import Reading
from haulage.sources import open_source
from haulage.sources.advice import advice_of

pytestmark = pytest.mark.slow


def reading(sql, types=None, session=None, order=(), **binds):
    return Reading(sql, binds, types or {}, None, (), tuple(order), None, {}, session or {})


def advice(case, asked, url=None):
    return advice_of(case.open() if url is None else open_source(url), asked)


def only(case, asked):
    (found,) = advice(case, asked)
    return found


# -- PostgreSQL --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def postgresql(tmp_path_factory):
    case = Postgresql(tmp_path_factory.mktemp("postgresql"))
    case.execute(
        "create table orders as select n as id, 't' || n % 200 as tenant, n % 3 as kind, (n * 7)::bigint as number,"
        " array[n] as tags, repeat('x', 600) || n as note from generate_series(1, 10000) as n"
    )
    case.execute("analyze orders")
    yield case
    case.close()


@pytest.fixture
def made(postgresql):
    """Runs statements, and undoes what they have made."""
    with contextlib.ExitStack() as undone:

        def make(statement, undo):
            postgresql.execute(statement)
            undone.callback(postgresql.execute, undo)

        yield make


def test_few_values_are_no_reason_for_an_index(postgresql):
    found = only(postgresql, reading("select * from orders where kind = :k", k=1))

    assert found.statement is None
    assert "with only 3 different values an index would find too many of them" in found.reason


def test_values_that_find_most_rows_are_said_to(postgresql):
    most, few = (only(postgresql, reading("select * from orders where number > :n", n=n)) for n in (7, 69_000))

    assert most.statement == few.statement == "CREATE INDEX CONCURRENTLY ON public.orders (number)"
    assert most.reason.endswith(
        "with the values here it finds most of them, so an index serves only those that find fewer"
    )
    assert "with the values here" not in few.reason


@pytest.mark.parametrize(
    ("condition", "types", "why"),
    [
        ("number = :v", {"v": "decimal"}, "declare the parameter as integer"),
        ("tenant is not distinct from :v", {}, "PostgreSQL has none for is not distinct from"),
        ("note = :v", {}, "its values are too long for one"),
        ('tenant collate "C" > :v', {}, "it compares by an order of its own (collate)"),
        ("tenant ilike :v || '%'", {}, "it ignores case"),
        ("number::text like :v || '%'", {}, "it compares what is made of a column, not the column itself"),
    ],
)
def test_what_an_index_of_postgresql_cannot_serve(postgresql, made, condition, types, why):
    found = only(postgresql, reading(f"select * from orders where {condition}", types, v="7"))

    assert (None, True) == (found.statement, found.reason.endswith(why)), found
    if types:  # and it is true: the column is cast
        made("create index there on orders (number)", "drop index there")
        assert "numeric" in str(postgresql.execute("explain select * from orders where number = 7.0"))
        assert "Seq Scan" in str(postgresql.execute("explain select * from orders where number = 7.0"))


def test_an_index_that_is_not_valid_is_to_be_made_again(postgresql, made):
    made("create index broken on orders (tenant)", "drop index broken")
    postgresql.execute("update pg_index set indisvalid = false where indexrelid = 'broken'::regclass")
    asked = reading("select * from orders where tenant = :t", t="t5")
    found = only(postgresql, asked)
    postgresql.execute(found.statement)

    assert "REINDEX INDEX CONCURRENTLY broken" == found.statement
    assert "the index broken might serve, but it is not valid" in found.reason
    assert [] == advice(postgresql, asked)


def test_an_index_of_some_rows_is_named_and_not_doubled(postgresql, made):
    made("create index few on orders (tenant) where kind = 1", "drop index few")
    found = only(postgresql, reading("select * from orders where tenant = :t", t="t5"))

    assert found.statement is None
    assert "the index few might serve, but it has rows only where (kind = 1)" in found.reason


def test_a_partitioned_table_in_a_schema_of_its_own(postgresql, made):
    made('create schema "Far Away"', 'drop schema "Far Away" cascade')
    place = '"Far Away"."Parts"'
    postgresql.execute(f"create table {place} (id bigint, tenant text) partition by range (id)")
    for low, high in ((0, 6_000), (6_000, 20_000)):
        postgresql.execute(f'create table "Far Away".p{low} partition of {place} for values from ({low}) to ({high})')
    postgresql.execute(f"insert into {place} select n, 't' || n % 200 from generate_series(1, 12000) as n")
    postgresql.execute(f"analyze {place}")
    asked = reading(f"select * from {place} where tenant = :t", t="t5")
    found = only(postgresql, asked)
    postgresql.execute(found.statement)

    assert ("Far Away.Parts", f"CREATE INDEX ON {place} (tenant)") == (found.table, found.statement)
    assert "it is partitioned: this locks it while it works" in found.reason
    assert 11_000 < found.rows < 13_000
    assert [] == advice(postgresql, asked)


def test_a_materialized_view_has_indexes_and_a_catalogue_has_none_of_ours(postgresql, made):
    made("create materialized view many as select * from orders", "drop materialized view many")
    postgresql.execute("analyze many")
    found = only(postgresql, reading("select * from many where tenant = :t", t="t5"))

    assert "CREATE INDEX CONCURRENTLY ON public.many (tenant)" == found.statement
    assert [] == advice(postgresql, reading("select oid from pg_class where relkind::text = :t", t="r"))


def test_a_table_that_nobody_has_analyzed_has_the_size_that_the_planner_takes(postgresql, made):
    made("create table fresh as select id, tenant from orders", "drop table fresh")
    found = only(postgresql, reading("select * from fresh where tenant = :t", t="t5"))

    assert 5_000 < found.rows < 20_000
    assert "CREATE INDEX CONCURRENTLY ON public.fresh (tenant)" == found.statement


@pytest.fixture
def reader(postgresql, made):
    """A role that may read one view and nothing else."""
    postgresql.execute("drop role if exists advice_reader")
    made("create role advice_reader login", "drop role advice_reader")
    made("create view seen as select id, tenant as who from orders where kind > 0", "drop view seen")
    postgresql.execute("grant select on seen to advice_reader")
    return postgresql.url.replace("postgres@", "advice_reader@")


def test_a_role_that_may_read_only_a_view_gets_the_same_advice(postgresql, reader):
    """Without the statistics that it may not see, and without a word of a value."""
    found = advice(postgresql, reading("select * from seen where who = :t", t="t5"), reader)
    by_role = advice(
        postgresql, reading("select * from seen where who = :t", session={"role": "advice_reader"}, t="t5")
    )

    assert found == by_role
    assert ["CREATE INDEX CONCURRENTLY ON public.orders (tenant)"] == [each.statement for each in found]


def test_a_role_that_may_not_read_is_refused_in_the_words_of_the_server(postgresql, reader):
    with pytest.raises(BuildFailed) as refused:
        advice(postgresql, reading("select * from orders where tenant = :t", t="hush_4711"), reader)

    assert "permission denied for table orders" in refused.value.cause
    assert "hush_4711" not in refused.value.cause


def test_row_security_of_the_host_is_looked_at_by_its_plan(postgresql, made):
    made("create table walled as select * from orders", "drop table walled")
    made("create role advice_walled", "drop owned by advice_walled; drop role advice_walled".partition(";")[0])
    postgresql.execute("grant select on walled to advice_walled")
    postgresql.execute("alter table walled enable row level security")
    postgresql.execute("create policy own on walled using (tenant = current_setting('app.tenant'))")
    postgresql.execute("analyze walled")
    session = {"app.tenant": "t5", "role": "advice_walled"}
    found = advice(postgresql, reading("select * from walled where number = :n", session=session, n=7))
    postgresql.execute("drop policy own on walled")

    assert ["CREATE INDEX CONCURRENTLY ON public.walled (number)"] == [each.statement for each in found]


# -- MariaDB -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory):
    case = Mariadb(tmp_path_factory.mktemp("mariadb"))
    case.execute(
        "create table orders (id int primary key, code varchar(20), note text, kind enum('a', 'b'), at varchar(30))"
        " character set utf8mb4"
    )
    case.execute(
        "insert into orders select seq, concat(seq), concat('note ', seq), 1 + seq % 2, '2026-01-02'"
        " from seq_1_to_10000"
    )
    case.execute("analyze table orders")
    yield case
    case.close()


def test_a_plan_with_quotation_marks_in_it_is_read(mariadb):
    """MariaDB writes them into its JSON as they are."""
    mariadb.execute('create table `odd "one"` select id, id % 4000 as `we"ird` from orders')
    mariadb.execute('analyze table `odd "one"`')
    mine = only(mariadb, reading('select * from `odd "one"` where `we"ird` = :k', k='a "quoted" value'))

    assert mine.statement.endswith('.`odd "one"` (`we"ird`)')


def test_a_long_text_is_in_an_index_by_its_beginning(mariadb):
    asked = reading("select * from orders where note = :n", n="note 7")
    found = only(mariadb, asked)
    mariadb.execute(found.statement)
    plan = str(mariadb.execute("explain format=json select * from orders where note = 'note 7'"))
    after = advice(mariadb, asked)
    mariadb.execute("drop index orders_note on orders")

    assert found.statement.endswith("(`note`(191))")
    assert "orders_note" in plan
    assert [] == after


@pytest.mark.parametrize(
    ("condition", "types", "value", "why"),
    [
        ("code = :v", {"v": "integer"}, 7, "a column of the type varchar is compared with no text"),
        ("at >= :v", {"v": "date"}, "2026-01-01", "a column of the type varchar is compared with no text"),
        ("kind > :v", {}, "a", "a column of the type enum has another order in an index"),
        ("lower(code) = :v", {}, "a", "lower() of a column can be in no index here; index a generated column"),
    ],
)
def test_what_an_index_of_mariadb_cannot_serve(mariadb, condition, types, value, why):
    found = only(mariadb, reading(f"select * from orders where {condition}", types, v=value))

    assert (None, True) == (found.statement, found.reason.endswith(why)), found
    if value == 7:  # and it is true: the column is cast
        mariadb.execute("create index there on orders (code)")
        plan = str(mariadb.execute("explain format=json select * from orders where code = 7"))
        mariadb.execute("drop index there on orders")
        assert '"access_type": "ALL"' in plan


def test_an_index_that_is_ignored_is_named_and_not_doubled(mariadb):
    mariadb.execute("create index there on orders (code) ignored")
    found = only(mariadb, reading("select * from orders where code = :v", v="7"))
    mariadb.execute("drop index there on orders")

    assert (None, True) == (found.statement, found.reason.endswith("the index there might serve, but it is ignored"))


def test_a_user_who_may_read_a_view_and_some_columns(mariadb):
    """Of a view alone the server gives no plan."""
    mariadb.execute("create or replace sql security definer view seen as select id, code as c from orders")
    mariadb.execute("create or replace user advice_reader@'%'")
    mariadb.execute("grant select, show view on seen to advice_reader@'%'")
    url = mariadb.url.replace("root@", "advice_reader@")
    asked = reading("select * from seen where c = :v", v="hush_4711")
    with pytest.raises(BuildFailed) as refused:
        advice(mariadb, asked, url)
    mariadb.execute("grant select (id, code) on orders to advice_reader@'%'")
    found = advice(mariadb, asked, url)
    mariadb.execute("drop user advice_reader@'%'")

    assert "lacking privileges for underlying table" in refused.value.cause
    assert "hush_4711" not in refused.value.cause
    assert [("orders", True)] == [(each.table, (each.statement or "").endswith("(`code`)")) for each in found], found


# -- SQLite ------------------------------------------------------------------------------------------

NUMBERS = "with recursive s(n) as (select 1 union all select n + 1 from s where n < 10000)"


@pytest.fixture
def sqlite(tmp_path):
    case = Sqlite(tmp_path)
    case.execute("create table orders (id integer primary key, tenant text, kind integer)")
    case.execute(f"{NUMBERS} insert into orders select n, 't' || (n % 200), n % 3 from s")
    return case


def test_sizes_are_those_of_the_last_analyze(sqlite):
    asked = reading("select * from orders where tenant = :t", t="t5")
    before = only(sqlite, asked)
    sqlite.execute("create index there on orders (kind)")
    sqlite.execute("analyze")
    sqlite.execute("insert into orders values (900000, 't1', 1)")
    after = only(sqlite, asked)

    assert (10_000, 10_000) == (before.rows, after.rows)


def test_a_table_without_numbers_of_rows_asks_for_analyze(sqlite):
    sqlite.execute("create table pairs (a text, b text, primary key (b, a)) without rowid")
    sqlite.execute(f"{NUMBERS} insert into pairs select 'a' || (n % 100), 'b' || n from s")
    asked = reading("select * from pairs where a = :v", order=["b", "a"], v="a7")
    before = only(sqlite, asked)
    sqlite.execute("analyze")
    found = only(sqlite, asked)
    sqlite.execute(found.statement)

    assert ("pairs", "nobody knows its size: run ANALYZE") == (before.table, before.reason)
    assert 'CREATE INDEX "pairs_a" ON "pairs" ("a")' == found.statement
    assert [] == advice(sqlite, asked)


def test_an_index_that_the_plan_would_make_for_itself_is_advised(sqlite):
    """SQLite makes an automatic index for a join, anew at every run."""
    sqlite.execute("create table members (tenant text, account text)")
    sqlite.execute("insert into members values ('t5', 'amina'), ('t6', 'ben')")
    asked = reading("select * from members m left join orders o on o.tenant = m.tenant and o.tenant > :v", v="t")
    (found,) = advice(sqlite, asked)
    sqlite.execute(found.statement)

    assert [] == advice(sqlite, asked)


def test_a_name_that_is_taken_is_not_given_again(sqlite):
    sqlite.execute("create table orders_tenant (a)")

    assert (
        'CREATE INDEX "orders_tenant_2"'
        in only(sqlite, reading("select * from orders where tenant = :t", t="t5")).statement
    )


def test_a_statistic_that_makes_an_index_useless_is_heeded(sqlite):
    """The planner is asked with the statistics of the source: it would not use a new one beside the one there is."""
    sqlite.execute("create index there on orders (tenant)")
    sqlite.execute("analyze")

    assert [] == advice(sqlite, reading("select * from orders where tenant = :t and kind = :k", t="t5", k=1))

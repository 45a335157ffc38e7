"""Index advice on every database that has indexes: an advised statement is applied, and the plan uses the index.

What is there already is not advised, nor what no index serves; nothing is guessed.
"""

from __future__ import annotations

import itertools
import json
import re

import pytest
from tests.conformance.source_cases import CASES

from haulage.core.binds import rewrite_names
from haulage.core.reading import Reading
from haulage.sources.advice import ROWS_MIN, UNORDERED, advice_of

pytestmark = pytest.mark.slow
ROWS = 8_000  # 200 tenants, 5,000 customers, 3 kinds
MADE = {
    "sqlite": "with recursive s(n) as (select 1 union all select n + 1 from s where n < 8000)"
    " select n, 't' || (n % 200), 'c' || (n * 7919 % 5000), n % 3, datetime(1700000000 + n * 60, 'unixepoch') from s",
    "postgresql": "select n, 't' || (n % 200), 'c' || (n * 7919 % 5000), n % 3,"
    " timestamp '2024-01-01' + n * interval '1 minute' from generate_series(1, 8000) as n",
    "mariadb": "select seq, concat('t', seq % 200), concat('c', seq * 7919 % 5000), seq % 3,"
    " date '2024-01-01' + interval seq minute from seq_1_to_8000",
}
NAMES = {
    "sqlite": "select name from sqlite_schema where type = 'index'",
    "postgresql": "select indexname from pg_indexes where schemaname not like 'pg_%'",
    "mariadb": "select distinct index_name from information_schema.statistics where table_schema = database()",
}
SORTED = {"sqlite": "TEMP B-TREE FOR ORDER BY", "postgresql": "Sort Key", "mariadb": "filesort"}


class Shop:
    """A database with orders, made once for each kind; a test's own indexes go with it."""

    def __init__(self, kind, folder):
        self.kind, self.case = kind, CASES[kind](folder)
        at = "datetime" if kind == "mariadb" else "timestamp"
        columns = f"id integer primary key, tenant varchar(20), customer varchar(20), kind integer, placed_at {at}"
        self.run(
            f"create table orders ({columns})",
            f"insert into orders {MADE[kind]}",
            "create table members (account varchar(20), customer varchar(20))",
            "insert into members values ('amina', 'c7')",
            "create view narrow as select id, tenant, customer as buyer from orders",
            "create view narrower as select id, buyer as who from narrow",
            f"create table {self.q('Odd one')} (id integer primary key, {self.q('Te nant')} varchar(20))",
            f"insert into {self.q('Odd one')} select id, tenant from orders",
        )
        self.analyse()
        self.before = self.indexes()

    def q(self, name):
        return self.case.quoted(name)

    def run(self, *statements):
        return [self.case.execute(each) for each in statements][-1]

    def analyse(self):
        if self.kind != "sqlite":  # of which most people have never run it
            tables = ", ".join(("orders", "members", self.q("Odd one")))
            self.run(f"analyze {'table ' if self.kind == 'mariadb' else ''}{tables}")

    def indexes(self):
        return {row[0] for row in self.run(NAMES[self.kind])}

    def clean(self):
        for name in self.indexes() - self.before:
            if self.kind == "mariadb":
                asked = f"select table_name from information_schema.statistics where index_name = '{name}'"
                self.run(f"drop index {self.q(name)} on {self.q(self.run(asked)[0][0])}")
            else:
                self.run(f"drop index {self.q(name)}")

    def advice(self, reading):
        return advice_of(self.case.open(), reading)

    def plan(self, reading, **given):
        """What the database itself says of the query, its values written into it."""
        binds = {**reading.binds, **given}

        def literal(name):
            value = binds[name]
            if isinstance(value, list):
                return ", ".join(f"'{each}'" for each in value)
            return "null" if value is None else f"'{value}'" if isinstance(value, str) else str(value)

        sql = f"select * from ({reading.sql}) as haulage_query"
        sql += f" where ({reading.visible})" if reading.visible else ""
        sql += f" order by {', '.join(reading.order)}" if reading.order else ""
        how = {"sqlite": "explain query plan ", "postgresql": "explain ", "mariadb": "explain format=json "}
        return "\n".join(str(row[-1]) for row in self.run(how[self.kind] + rewrite_names(sql, literal)))


@pytest.fixture(scope="module", params=["sqlite", "postgresql", "mariadb"])
def shops(request, tmp_path_factory):
    shop = Shop(request.param, tmp_path_factory.mktemp("shop"))
    yield shop
    shop.case.close()


@pytest.fixture
def shop(shops):
    yield shops
    shops.clean()


def reading(sql, visible=None, order=(), types=None, **binds):
    return Reading(sql, binds, types or {}, visible, (), tuple(order), None, {})


def statements(advice):
    return [each.statement for each in advice if each.statement]


def columns(statement):
    """Table and columns of a statement, without quotes: ``orders (tenant, id)``."""
    table, listed = re.fullmatch(r"CREATE INDEX .*?ON (\S+|.*?) \((.*)\)", re.sub(r'["`]', "", statement)).groups()
    return f"{table.rpartition('.')[2]} ({listed})"


SERVED = {  # query, other values for the plan, columns where an index ends with the primary key, and on PostgreSQL
    "a parameter": (
        reading("select * from orders where customer = :c", order=["id"], c="c7"),
        {},
        "orders (customer)",
        "orders (customer)",
    ),
    "what is visible, and a range": (
        reading("select * from orders where placed_at >= :s", "tenant = :t", ["id"], s="2000-01-01", t="t5"),
        {},
        "orders (tenant, placed_at)",
        "orders (tenant, placed_at)",
    ),
    "conditions and order in one": (
        reading("select * from orders", "tenant = :t", ["placed_at desc", "id desc"], t="t5"),
        {},
        "orders (tenant, placed_at)",
        "orders (tenant)",
    ),
    "a range that is the order": (
        reading(
            "select * from orders where placed_at between :s and :u",
            order=["placed_at", "id"],
            s="2024-01-01 00:05:00",
            u="2024-01-05",
        ),
        {"mariadb": {"u": "2024-01-01 01:00:00"}},  # which reads everything and sorts it where most of it is wanted
        "orders (placed_at)",
        "orders (placed_at, id)",
    ),
    "two conditions on one column": (
        reading("select * from orders where customer = :c and customer >= :c and customer in (:c)", c="c7"),
        {},
        "orders (customer)",
        "orders (customer)",
    ),
    "a list": (
        reading("select * from orders where customer in (:c)", order=["id"], c=["c7", "c9"]),
        {},
        "orders (customer)",
        "orders (customer)",
    ),
    "a list that a query gives": (
        reading("select * from orders", "customer in (select customer from members where account = :a)", a="amina"),
        {},
        "orders (customer)",
        "orders (customer)",
    ),
    "a subquery": (
        reading("select * from members where exists (select 1 from orders as o where o.tenant = :t)", t="t5"),
        {},
        "orders (tenant)",
        "orders (tenant)",
    ),
    "a view of a view under other names": (
        reading("select n.id as number, n.who as w from narrower as n", "w = :c", ["number"], c="c7"),
        {},
        "orders (customer)",
        "orders (customer)",
    ),
    "a common table": (
        reading("with few as (select * from orders) select id, customer from few where customer = :c", c="c7"),
        {},
        "orders (customer)",
        "orders (customer)",
    ),
    "a join": (
        reading("select o.id from members m join orders o on o.customer = :c", c="c7"),
        {},
        "orders (customer)",
        "orders (customer)",
    ),
}


@pytest.mark.parametrize("name", SERVED)
def test_an_advised_index_is_used_and_advised_no_more(shop, name):
    asked, values, *expected = SERVED[name]
    given = values.get(shop.kind, {})
    found = shop.advice(asked)
    made = statements(found)
    before = shop.plan(asked, **given)

    assert [expected[shop.kind == "postgresql"]] == [columns(each) for each in made], found
    assert all("about" in each.reason and each.table == "orders" for each in found)
    assert all(0.9 * ROWS < each.rows < 1.1 * ROWS for each in found)

    shop.run(*made)
    shop.analyse()
    (new,) = shop.indexes() - shop.before
    after = shop.plan(asked, **given)

    assert new not in before
    assert new in after
    assert [] == shop.advice(asked)
    if "sorts" in found[0].reason:
        assert SORTED[shop.kind] in before
        assert SORTED[shop.kind] not in after


def test_nothing_is_applied_or_run(shop):
    asked, *_ = SERVED["conditions and order in one"]
    shop.advice(asked)
    shop.advice(reading("select * from orders where tenant = :t and id / (id - id) = 1", t="t5"))  # fails if it is run

    assert shop.before == shop.indexes()


def test_the_words_name_conditions_values_and_size(shop):
    asked, *_ = SERVED["conditions and order in one"]
    (found,) = shop.advice(asked)

    sorts = "" if shop.kind == "postgresql" else ", and sorts them by "
    assert found.reason.startswith(f"reads about {found.rows:,} rows to find those of tenant = :t (visible){sorts}")
    assert ("CONCURRENTLY" in found.statement) == (shop.kind == "postgresql")


OPTIONAL = [
    "(:c is null or customer = :c)",
    "(customer = :c or :c is null)",
    "(coalesce(:c, null) is null or customer in (:c))",
]


@pytest.mark.parametrize("condition", OPTIONAL)
def test_a_condition_that_may_be_left_out(shop, condition):
    """The servers leave out what a value decides; SQLite reads everything, whatever is given."""
    asked = reading(f"select * from orders where {condition}", order=["id"], c=None)
    (found,) = shop.advice(asked)

    assert f"reads about {found.rows:,} rows also where a request makes this count: " in found.reason
    if shop.kind == "sqlite":
        assert found.statement is None
        assert "a Python dataset can write its query without it" in found.reason
        shop.run("create index by_customer on orders (customer)")
        with_value = shop.case.execute(f"explain query plan {rewrite_names(asked.sql, lambda _: '?1')}", "c7")
        assert "SCAN orders" in str(with_value)
        return
    shop.run(found.statement)
    shop.analyse()
    (new,) = shop.indexes() - shop.before

    assert "orders (customer)" == columns(found.statement)
    assert new in shop.plan(asked, c="c7")
    assert [] == shop.advice(asked)


def test_an_optional_condition_beside_a_constant_one_shares_its_index(shop):
    """Where another tenant has a hundred rows, an index on the tenant is enough."""
    asked = reading("select * from orders where (:c is null or customer = :c)", "tenant = :t", c=None, t="t5")
    made = [columns(each) for each in statements(shop.advice(asked))]

    expected = {
        "sqlite": ["orders (tenant)"],
        "postgresql": ["orders (tenant)"],  # which knows how many tenants there are
        "mariadb": ["orders (tenant)", "orders (tenant, customer)"],
    }
    assert expected[shop.kind] == made


def test_a_column_that_is_found_already_needs_no_second_place(shop):
    asked = reading("select * from orders where customer = :c and (:d is null or customer >= :d)", c="c7", d=None)

    assert ["orders (customer)"] == [columns(each) for each in statements(shop.advice(asked))]


THERE = [  # an index that is there, and what it answers
    ("create index there on orders (tenant)", "tenant = :t", ()),
    ("create index there on orders (tenant, kind)", "tenant = :t", ()),
    ("create index there on orders (tenant, kind)", "tenant = :t and customer = :t", ()),
    ("create index there on orders (customer, tenant)", "tenant = :t and customer = :t", ()),
    ("create unique index there on orders (tenant, id)", "tenant in (:t)", ["id"]),
    ("create index there on orders (placed_at)", "placed_at < :t", ()),
    ("create index there on orders (placed_at, id, kind)", "", ["placed_at", "id"]),
]


@pytest.mark.parametrize(("index", "condition", "order"), THERE)
def test_what_is_there_is_not_advised(shop, index, condition, order):
    asked = reading("select * from orders", condition or None, order, t="2099-01-01" if "placed" in condition else "t5")
    before = shop.advice(asked)
    shop.run(index)
    shop.analyse()

    assert before
    assert [] == statements(shop.advice(asked))


def test_a_plan_that_uses_an_index_gives_no_advice(shop):
    shop.run("create index there on orders (customer)")
    shop.analyse()

    assert [] == shop.advice(
        reading("select * from orders where customer = :c and placed_at > :s", c="c7", s="2000-01-01")
    )
    assert [] == shop.advice(reading("select * from orders where id = :i", order=["id"], i=7))
    assert [] == shop.advice(reading("select * from orders", order=["id"]))


def test_a_small_table_is_read_as_it_is(shop):
    assert [] == shop.advice(reading("select * from members where account = :a", order=["customer"], a="amina"))
    assert ROWS_MIN < ROWS


UNSERVED = {
    "tenant like '%' || :t": "its pattern begins with a wildcard",
    "tenant like :t": "its pattern may begin with a wildcard",
    "tenant <> :t": "it says what is not wanted",
    "not (tenant = :t)": "it says what is not wanted",
    "tenant = coalesce(:t, tenant)": "it compares columns with one another",
    "coalesce(tenant, 'x') = :t": "it compares what is made of a column, not the column itself",
    "tenant = :t or customer = :t": "one of several conditions is enough",
    "(tenant, customer) = (:t, :t)": "it compares what is made of a column, not the column itself",
}


@pytest.mark.parametrize("condition", UNSERVED)
def test_what_no_index_serves_is_named_without_a_statement(shop, condition):
    sql = f"select * from orders where {condition}"
    if shop.kind == "mariadb":
        sql = sql.replace("'%' || :t", "concat('%', :t)")
    (found,) = shop.advice(reading(sql, order=["id"], t="t5"))

    assert found.statement is None
    assert found.reason.endswith(f": {UNSERVED[condition]}")
    assert found.reason.startswith("no index is advised for ")


HIDDEN = [
    "select tenant, count(*) as n from orders group by tenant",
    "select * from orders limit 7000",
    "select id, tenant from orders union all select id, tenant from orders",
    "select tenant, row_number() over (order by id) as n from orders",
    "with twice as (select * from orders) select a.tenant from twice a join twice b on b.id = a.id",
]


@pytest.mark.parametrize("sql", HIDDEN)
def test_nobody_looks_through_what_groups_or_limits(shop, sql):
    found = shop.advice(reading(sql, "tenant = :t", t="t5"))

    assert [] == statements(found)
    assert ["no index is advised for tenant = :t (visible)"] == [each.reason.partition(":")[0] + ":" +
        each.reason.partition(":")[2].partition(": ")[0] for each in found]  # fmt: skip


def test_a_condition_on_the_side_of_a_join_that_stays_whole_is_none_of_its_table(shop):
    on = "select m.account from members m {} join orders o on o.customer = m.customer and {}"

    assert ["orders (tenant)"] == [
        columns(each) for each in statements(shop.advice(reading(on.format("left", "o.tenant = :t"), t="t5")))
    ]
    assert [] == statements(shop.advice(reading(on.format("right", "o.tenant = :t"), t="t5")))


def test_names_that_need_quotes(shop):
    asked = reading(f"select * from {shop.q('Odd one')}", f"{shop.q('Te nant')} = :t", ["id"], t="t5")
    (found,) = shop.advice(asked)
    shop.run(found.statement)
    shop.analyse()

    assert "Odd one" == found.table
    assert [] == shop.advice(asked)


def test_a_function_of_a_column(shop):
    asked = reading("select * from orders where lower(customer) = :c", c="c7")
    (found,) = shop.advice(asked)
    if shop.kind == "mariadb":
        assert found.statement is None
        assert "index a generated column" in found.reason
        return
    shop.run(found.statement)
    shop.analyse()
    (new,) = shop.indexes() - shop.before

    assert "orders (lower(customer))" == columns(found.statement)
    assert new in shop.plan(asked)
    assert [] == shop.advice(asked)


def test_text_that_begins_as_given(shop):
    together = "concat(:c, '%')" if shop.kind == "mariadb" else ":c || '%'"
    asked = reading(f"select * from orders where customer like {together}", c="c499")
    (found,) = shop.advice(asked)
    if shop.kind == "sqlite":  # to which all letters are the same there
        assert found.statement is None
        assert "the plan would not use an index" in found.reason
        return
    shop.run(found.statement)
    shop.analyse()
    (new,) = shop.indexes() - shop.before

    assert new in shop.plan(asked)
    assert [] == shop.advice(asked)


def test_the_order_of_a_whole_table(shop):
    """Only where the database would read it so: rows lie in the order of their time, and not of their customer."""
    found = {
        column: shop.advice(reading("select * from orders", order=[column, "id"]))
        for column in ("placed_at", "customer")
    }
    advised = {column: bool(statements(advice)) for column, advice in found.items()}

    assert {
        "sqlite": {"placed_at": True, "customer": True},
        "postgresql": {"placed_at": True, "customer": False},
        "mariadb": {"placed_at": False, "customer": False},
    }[shop.kind] == advised
    for column, (advice,) in found.items():
        assert advice.reason.startswith(f"sorts about {advice.rows:,} rows by ")
        for each in statements([advice]):
            shop.run(each)
            asked = reading("select * from orders", order=[column, "id"])
            shop.analyse()
            assert SORTED[shop.kind] not in shop.plan(asked)
            assert [] == shop.advice(asked)
    if shop.kind == "mariadb":  # and it is true that an index would not help
        shop.run("create index tried on orders (placed_at, id)")
        shop.analyse()
        assert SORTED[shop.kind] in shop.plan(reading("select * from orders", order=["placed_at", "id"]))


def test_an_order_in_two_directions(shop):
    visible = "tenant = :t" if shop.kind == "mariadb" else None  # which sorts a whole table in any case
    asked = reading("select * from orders", visible, ["placed_at desc", "customer", "id"], t="t5")
    (found,) = shop.advice(asked)
    shop.run(found.statement)
    shop.analyse()

    assert "placed_at DESC" in columns(found.statement)
    assert SORTED[shop.kind] not in shop.plan(asked)


def test_rows_that_lie_together_are_found_in_order(shop):
    """PostgreSQL reads the pages of scattered rows in the order of the pages, and sorts."""
    asked = reading("select * from {} where tenant = :t", order=["placed_at", "id"], t="t5")
    scattered = asked._replace(sql=asked.sql.format("orders"))
    together = asked._replace(sql=asked.sql.format("together"))
    shop.run("create table together as select * from orders order by tenant, placed_at")
    try:
        if shop.kind != "sqlite":
            shop.run("analyze table together" if shop.kind == "mariadb" else "analyze together")
        (found,), (near,) = shop.advice(scattered), shop.advice(together)
        shop.run(found.statement, near.statement)

        assert "together (tenant, placed_at, id)" == columns(near.statement)
        assert SORTED[shop.kind] not in shop.plan(together)
        if shop.kind == "postgresql":
            assert "orders (tenant)" == columns(found.statement)
            assert SORTED[shop.kind] in shop.plan(scattered)
    finally:
        shop.run("drop table together")


def test_the_order_of_a_join_is_passed_over(shop):
    sql = "select o.id, o.customer from orders o left join members m on m.customer = o.customer"
    found = shop.advice(reading(sql, order=["customer", "id"]))

    assert [(None, UNORDERED)] == [(each.statement, each.reason) for each in found]


def test_two_columns_of_one_name(shop):
    asked = reading("select id, tenant as a, customer as a from orders", t="t5")
    hidden = asked._replace(visible="a_2 = :t")
    if shop.kind == "sqlite":
        hidden = asked._replace(visible="`a:1` = :t")  # as it calls it inside the wrap

    assert ["orders (customer)"] == [columns(each).replace(", tenant", "") for each in statements(shop.advice(hidden))]


def test_what_is_no_table_is_passed_over(shop):
    if shop.kind == "sqlite":
        sql = "select value as id from json_each(:t)"
    else:
        sql = "select table_name as id from information_schema.tables where table_name = :t"

    assert [] == statements(shop.advice(reading(sql, t="[1]")))


def test_every_word_can_stand_in_json(shop):
    asked = itertools.chain((each[0] for each in SERVED.values()), [reading("select * from nowhere_ at all")])
    for each in list(asked)[:3]:
        assert json.dumps([advice._asdict() for advice in shop.advice(each)])

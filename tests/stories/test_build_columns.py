"""Which columns and rows stand in a file, under which names and in which order."""

from __future__ import annotations

import json

import pytest
from tests.stories.building import Yard, query

from haulage.core.catalogue import Column, Parameter
from haulage.core.errors import BuildFailed


@pytest.fixture
def yard(tmp_path):
    return Yard(
        tmp_path,
        "create table orders (id integer primary key, tenant text, name text, secret text, placed_at text, total)",
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < 250)"
        " insert into orders select 251 - i, case when i % 2 then 'north' else 'south' end, 'n', 'hush', "
        "'2026-01-01 10:00:' || printf('%02d', i % 60), i * 1.5 from n",
    )


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sql", "expected"), [
    ("select 1 as a, 2 as a", "a,a_2\n1,2\n"),
    ("select 1 as a, 2 as a, 3 as a", "a,a_2,a_3\n1,2,3\n"),
    ("select 1 as a, 2 as a, 3 as a_2", "a,a_3,a_2\n1,2,3\n"),
    ("select 1 as a, 2 as A", "a,A\n1,2\n"),
    ('select 1 as a, 2 as "a:1"', "a,a:1\n1,2\n"),
    ('select 1 as "a:1", 2 as a', "a:1,a\n1,2\n"),
    ('select 1 as "a:7", 2 as "a:7"', "a:7,a:7_2\n1,2\n"),
    ("select 1 as z, 2 as a, 3 as m", "z,a,m\n1,2,3\n"),
    ("select 1 + 1, count(*)", "1 + 1,count(*)\n2,1\n"),
    ('select 1 as "say ""hi"", you", 2 as "new\nline"', '"say ""hi"", you","new\nline"\n1,2\n'),
    ("select 1 as 'as text', 2 as [in brackets], 3 as `so`", "as text,in brackets,so\n1,2,3\n"),
    ('select 1 as "select", 2 as "from"', "select,from\n1,2\n"),
    ("select x.id, y.id from orders x join orders y on y.id = x.id + 1 where x.id = 1", "id,id_2\n1,2\n"),
    ("values (1, 'b')", "column1,column2\n1,b\n"),
])  # fmt: skip
def test_columns_have_the_query_s_own_names_in_its_own_order(yard, sql, expected):
    assert expected == yard.text(sql)


def test_headers_are_the_declared_ones_and_never_twice_the_same(yard):
    dataset = query("select 1 as a, 2 as b, 3 as c", columns={
        "a": Column("a", "Total", "integer"), "b": Column("b", "Total"), "c": Column("c", "Größe (m²)", "text"),
    })  # fmt: skip
    built, content = yard.build(dataset, format="json")

    assert [{"Total": 1, "Total_2": 2, "Größe (m²)": 3}] == json.loads(content)
    assert [
        {"key": "a", "header": "Total", "type": "integer"},
        {"key": "b", "header": "Total_2", "type": None},
        {"key": "c", "header": "Größe (m²)", "type": "text"},
    ] == list(built.columns)


# -- which columns ---------------------------------------------------------------------------------


def test_a_subset_comes_in_the_order_that_was_asked_for(yard):
    dataset = query("select id, tenant, name from orders", key=("id",))

    assert "name,id\nn,1\nn,2\n" == yard.build(dataset, columns=["name", "id"])[1].decode()[:16]


@pytest.mark.parametrize("hidden", ["secret", "SECRET", "Secret"])
def test_a_hidden_column_is_never_written_under_whatever_name_and_cannot_be_asked_for(yard, hidden):
    dataset = query("select id, secret, secret, Secret as SeCreT from orders", hidden=(hidden,))

    assert ["id"] == [column["key"] for column in yard.build(dataset)[0].columns]
    assert b"hush" not in yard.build(dataset)[1]
    for asked in (["secret"], ["secret_2"], ["SeCreT"], ["id", "secret"]):
        with pytest.raises(BuildFailed) as failed:
            yard.build(dataset, columns=asked)
        assert "source_failed" == failed.value.code


def test_a_hidden_column_may_decide_what_is_seen_and_in_which_order(yard):
    dataset = query("select id, tenant, secret from orders", hidden=("tenant", "secret"), order=("tenant desc",),
                    key=("id",), visible="secret = 'hush' and id <= 4")  # fmt: skip
    assert b"id\n1\n3\n2\n4\n" == yard.build(dataset)[1]


def test_a_column_that_the_query_does_not_have_is_refused(yard):
    with pytest.raises(BuildFailed, match="refused the query") as failed:
        yard.build(query("select id from orders"), columns=["id", "nothing"])
    assert "no column 'nothing'" in failed.value.cause


# -- which rows ------------------------------------------------------------------------------------


def test_the_visible_predicate_counts_and_writes_the_requester_s_rows_only(yard):
    dataset = query("select id, tenant from orders", visible="tenant = :requester_tenant", key=("id",))
    built, content = yard.build(dataset)

    assert (125, 125) == (built.total, built.rows)
    assert b"south" not in content
    everybody = yard.build(query("select id, tenant from orders"))[0]
    assert 250 == everybody.rows


@pytest.mark.parametrize(("sql", "visible"), [
    ("select id, tenant from orders", '"tenat" <> :requester_tenant'),
    ("select id, tenant from orders", 'tenant = :requester_tenant or "nord" = :requester_tenant || id'),
    ("select id, tenant from orders where \"Secrets\" <> 'hush'", "tenant = :requester_tenant"),
    ('select id, tenant, coalesce(name, "none") as name from orders', "tenant = :requester_tenant"),
    ('select id, tenant, secret || "a""b`c" as s from orders', None),
])  # fmt: skip
def test_a_name_in_double_quotes_that_is_no_column_is_not_taken_for_text(yard, sql, visible):
    """To SQLite it would be text, and a condition of it true for every row."""
    dataset = query(sql, visible=visible, key=("id",))
    with pytest.raises(BuildFailed) as failed:
        yard.build(dataset)
    (problem,) = yard.problems(dataset)

    assert "source_failed" == failed.value.code
    assert "no such column: " in failed.value.cause
    assert "; write text in single quotes" in failed.value.cause
    assert f"the query fails: {failed.value.cause}" == problem


def test_names_in_double_quotes_stay_names_and_headers_are_as_they_are_written(yard):
    with yard.writer() as source:
        source.execute('create view paid as select id from orders where secret = "hush"')  # the host's own affair
    sql = (
        'select "o"."id" as "No. ""`1`""", "tenant", "id" + 1, \'"tenat"\' as "t", rowid as "r" '
        'from "orders" as "o" where "rowid" in (select "id" from "paid") /* "nowhere" */'
    )
    built, content = yard.build(query(sql, visible='"tenant" = :requester_tenant and "t" <> \'"\'', order=('"r"',)))

    assert ['No. "`1`"', "tenant", '"id" + 1', "t", "r"] == [column["key"] for column in built.columns]
    assert b'2,north,3,"""tenat""",2\n' == content.splitlines(keepends=True)[1]


def test_a_visible_predicate_is_one_condition_and_may_end_in_a_comment(yard):
    dataset = query("select id, tenant from orders", visible="tenant = 'north' or tenant = 'west' -- ours; only")
    assert 125 == yard.build(dataset)[0].rows


def test_rows_of_equal_names_come_each_once_and_in_the_order_of_the_key(yard):
    built, content = yard.build(query("select id, name from orders", order=("name",), key=("id",)))

    ids = [int(line.split(b",")[0]) for line in content.splitlines()[1:]]
    assert list(range(1, 251)) == ids
    assert () == built.notices


@pytest.mark.parametrize(("order", "expected"), [
    (("total desc",), "250"),
    (("total DESC nulls last",), "250"),
    (("id",), "1"),
    (("ID asc",), "1"),
    (('"id" desc',), "250"),
    (("other name",), None),
])  # fmt: skip
def test_an_order_is_written_as_name_and_direction(yard, order, expected):
    dataset = query('select id, 251 - id as total, 1 as "other name" from orders', order=order)
    if expected is None:
        with pytest.raises(BuildFailed):
            yard.build(dataset)
        return
    first = yard.build(dataset)[1].decode().splitlines()[1].split(",")[0]
    assert {"250": "1", "1": "1"}.get(expected) == first or expected == first


def test_a_name_in_the_order_that_does_not_exist_is_refused_rather_than_taken_for_text(yard):
    """SQLite reads "nothing" as the text 'nothing' when there is no such column, and would not order at all."""
    with pytest.raises(BuildFailed) as failed:
        yard.build(query("select id from orders", order=("nothing desc",)))
    assert "order: the query has no column 'nothing'" == failed.value.cause


def test_an_order_may_name_the_second_of_two_columns_of_one_name(yard):
    dataset = query("select id as a, -id as a from orders where id < 4", order=("a_2",))
    assert b"a,a_2\n3,-3\n2,-2\n1,-1\n" == yard.build(dataset)[1]


@pytest.mark.parametrize(("members", "told"), [({}, True), ({"order": ("id",)}, True), ({"key": ("id",)}, False)])
def test_only_a_key_fixes_the_order_and_without_one_a_notice_says_so(yard, members, told):
    notices = yard.build(query("select id from orders", **members))[0].notices

    assert (({"code": "order_not_fixed"},) if told else ()) == notices


def test_an_order_of_the_query_itself_is_kept_or_overruled_from_outside(yard):
    inside = "select id from orders order by id desc limit 3"

    assert "id\n250\n249\n248\n" == yard.text(inside)
    assert b"id\n248\n249\n250\n" == yard.build(query(inside, key=("id",)))[1]


# -- conditions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "expected"), [([1, 3], "1\n3\n"), ([7], "7\n"), (5, "5\n"), ([], "")])
def test_a_list_is_as_many_values_as_it_has(yard, given, expected):
    dataset = query("select id from orders where id in (:ids)", parameters=(Parameter("ids", "integer", many=True),),
                    key=("id",))  # fmt: skip
    assert f"id\n{expected}" == yard.build(dataset, ids=given)[1].decode()


def test_names_in_texts_identifiers_and_comments_are_not_conditions(yard):
    sql = """select ':ids' as a, "id" as ":ids", 'it''s :x' as b -- :y ' "
             /* :z ; ' */ from orders where id in (:ids) and name <> ':ids'"""
    dataset = query(sql, parameters=(Parameter("ids", "integer", many=True),), key=(":ids",))

    assert b"a,:ids,b\n:ids,1,it's :x\n:ids,2,it's :x\n" == yard.build(dataset, ids=[1, 2])[1]


@pytest.mark.parametrize("sql", [
    "select 1 as a;",
    "select 1 as a ;;\n",
    "select 1 as a -- the end",
    "select 1 as a; -- the end;",
    "select 1 as a /* the end; */;",
    "-- first\nselect 1 as a",
    "with x as (select 1 as a) select a from x;",
    "with recursive n(a) as (select 1 union all select a + 1 from n where a < 1) select a from n",
    "select 1 as a union select 1",
    "select 1 as a limit 1",
])  # fmt: skip
def test_a_statement_is_wrapped_however_it_ends_and_begins(yard, sql):
    assert "a\n1\n" == yard.text(sql)


def test_a_semicolon_in_a_text_ends_nothing(yard):
    assert "a\n;--\n" == yard.text("select ';--' as a;")


@pytest.mark.parametrize(("type", "given", "sql", "expected"), [
    ("decimal", "12.50", "select count(*) as n from orders where total > :v", "242"),
    ("decimal", "12", "select :v = 12 as n", "1"),
    ("boolean", True, "select :v = 1 as n", "1"),
    ("date", "2026-01-01", "select date(placed_at) = :v as n from orders limit 1", "1"),
    ("timestamp", "2026-01-01T11:00:30+01:00", "select count(*) as n from orders where placed_at > :v", "116"),
    ("text", "x' or '1'='1", "select :v as n", "x' or '1'='1"),
    ("integer", 2**63 - 1, "select :v as n", str(2**63 - 1)),
])  # fmt: skip
def test_a_condition_is_bound_by_its_type(yard, type, given, sql, expected):
    assert f"n\n{expected}\n" == yard.build(query(sql, parameters=(Parameter("v", type),)), v=given)[1].decode()


@pytest.mark.parametrize(("until", "expected"), [
    ("2026-08-04", []),
    ("2026-08-05", [1, 2, 3]),
    ("2026-08-06", [1, 2, 3, 4]),
    ("2026-12-31", [1, 2, 3, 4, 5]),
    ("2028-02-28", [1, 2, 3, 4, 5]),
    ("2028-02-29", [1, 2, 3, 4, 5, 6]),
    (None, [1, 2, 3, 4, 5, 6]),
])  # fmt: skip
@pytest.mark.parametrize("between", [" ", "T"])
def test_an_end_date_has_its_whole_day_in_it(yard, until, expected, between):
    moments = ("2026-08-05 00:00:00", "2026-08-05 13:00:00", "2026-08-05 23:59:59.999", "2026-08-06 00:00:00",
               "2026-12-31 23:59:59", "2028-02-29 12:00:00")  # fmt: skip
    with yard.writer() as source:
        source.execute("create table moments (id integer primary key, at text)")
        source.executemany("insert into moments (at) values (?)", [(m.replace(" ", between),) for m in moments])
    dataset = query("select id from moments where :until is null or at < :until", key=("id",),
                    parameters=(Parameter("until", "date", optional=True, end=True),))  # fmt: skip

    assert [str(n) for n in expected] == yard.build(dataset, until=until)[1].decode().split()[1:]


def test_ids_of_zero_and_below_are_rows_like_any_other(yard):
    with yard.writer() as source:
        source.execute("create table low (id integer primary key)")
        source.executemany("insert into low values (?)", [(n,) for n in (-(2**63), -1, 0, 1, 2**63 - 1)])

    built, content = yard.build(query("select id from low", key=("id",)))
    assert (5, f"id\n{-(2**63)}\n-1\n0\n1\n{2**63 - 1}\n") == (built.rows, content.decode())


def test_who_asks_and_since_when_can_be_bound(yard):
    dataset = query("select :requester_tenant as t, :requester_account as a, :as_of as o")
    assert b"t,a,o\nnorth,amina,2026-09-21 14:13:20\n" == yard.build(dataset)[1]

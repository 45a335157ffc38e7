"""What a requester may see, on every source of SQL: rows by their grants, and cells that are blanked."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
from pyarrow import parquet
from tests.conformance.source_cases import CASES
from tests.promises import NotPromised
from tests.stories.server_values import DUCKDB, MARIADB, POSTGRESQL

from haulage.artifacts.part import PartFile
from haulage.core.catalogue import Column, Dataset, Parameter
from haulage.core.errors import BuildFailed
from haulage.core.grouping import Aggregate, Question
from haulage.core.requester import Requester
from haulage.exports.build import BuildOrder, build
from haulage.exports.parameters import resolve_parameters
from haulage.exports.plan import freeze
from haulage.exports.reading import reading_of
from haulage.formats import FORMATS, resolve_options
from haulage.sources import SOURCES
from haulage.sources import postgresql as sources_postgresql

AS_OF = 1_790_000_000_000
PLENTY = {"rows": 10**9, "count_seconds": 60, "sort_bytes": 10**9, "memory_bytes": 10**9}
REGIONS = "select 1 as id, 'east' as region union all select 2, 'west' union all select 3, '' union all select 4, null"


def cases():
    """One for each room; that of mysql is mariadb's, under another name."""
    return [
        pytest.param(name, marks=pytest.mark.slow if name != "sqlite" else ()) for name in SOURCES if name != "mysql"
    ]


@pytest.fixture(params=cases())
def case(request, tmp_path):
    made = CASES[request.param](tmp_path)
    yield made
    made.close()


def requester(*grants, tenant="north", account="amina"):
    return Requester(tenant, account, frozenset(grants))


def dataset(sql, **members):
    return Dataset("q", "shop", sql=sql, formats=("csv", "json", "parquet"), **members)


def reading(asked, who, **parameters):
    return reading_of(freeze(asked, asked.sql, resolve_parameters(asked, parameters), who, AS_OF, None))


def rows_of(snapshot, asked):
    with contextlib.closing(snapshot.batches(asked)) as batches:
        return [row for batch in batches for row in batch]


def seen(case, asked, who, **parameters):
    """The rows of a requester, which are also what is counted."""
    asked = reading(asked, who, **parameters)
    with case.open().snapshot() as snapshot:
        rows = rows_of(snapshot, asked)
        assert len(rows) == snapshot.count(asked, 60)
    return rows


def built(case, folder, asked, who=None, format="csv", source=None):
    """What a build writes, and what it says of it."""
    frozen = freeze(asked, asked.sql, resolve_parameters(asked, {}), who or requester(), AS_OF, None)
    frozen["limits"] = PLENTY
    place = Path(folder, f"build-{len(list(Path(folder).iterdir()))}")
    place.mkdir()
    options = resolve_options(FORMATS[format], {})
    order = BuildOrder(case.url, 0.2, str(place), frozen, format, options, None, 10**9, 10**9, 0)
    sink = PartFile(str(place), file_bytes=10**9, reserved_bytes=10**9)
    made = build(BuildOrder.from_json(order.to_json()), source or case.open(), sink, lambda _: None)
    return made, (place / "part").read_bytes()


# -- grants ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grants", "ids"),
    [
        ((), []),
        (("nothing",), []),
        (("east",), [1]),
        (("east", "west"), [1, 2]),
        (("orders.all",), [1, 2, 3, 4]),
        (("east') or ('1' = '1",), []),
        (("*",), []),
    ],
)
def test_grants_are_a_list_for_predicates_and_who_holds_none_sees_nothing(case, grants, ids):
    visible = "'orders.all' in (:requester_grants) or region in (:requester_grants)"
    asked = dataset(REGIONS, visible=visible, key=("id",))

    assert ids == [row[0] for row in seen(case, asked, requester(*grants))]


def test_a_predicate_that_something_is_not_among_no_grants_is_not_true(case):
    plain = dataset(REGIONS, visible="region not in (:requester_grants)", key=("id",))
    asked = dataset(
        REGIONS, visible="case when 'orders.east' in (:requester_grants) then 1 else 0 end = 0", key=("id",)
    )

    assert [] == seen(case, plain, requester())
    assert [2, 3] == [row[0] for row in seen(case, plain, requester("east"))]
    assert [1, 2, 3, 4] == [row[0] for row in seen(case, asked, requester())]
    assert [] == seen(case, asked, requester("orders.east"))


def test_no_parameter_takes_the_place_of_a_grant(case):
    """SQLite binds each value of a list by a name of its own."""
    parameters = tuple(Parameter(f"requester_grants_{each}", optional=True) for each in ("0", "n0"))
    asked = dataset(
        f"select * from ({REGIONS}) as r where :requester_grants_0 is not null and :requester_grants_n0 is not null",
        visible="region in (:requester_grants)",
        parameters=parameters,
        key=("id",),
    )
    forged = {each.name: "west" for each in parameters}

    assert [1] == [row[0] for row in seen(case, asked, requester("east"), **forged)]


def test_grants_are_those_of_the_request(case):
    asked = dataset(REGIONS, visible="region in (:requester_grants)", key=("id",))
    plan = freeze(asked, asked.sql, resolve_parameters(asked, {}), requester("west", "east"), AS_OF, None)

    assert {"requester_grants": ["east", "west"]} == plan["binds"]


# -- cells ----------------------------------------------------------------------------------------------------

ORDERS = """
    select 1 as id, 'acme' as customer, 'north' as customer_tenant, 12.50 as total
    union all select 2, 'bolt', 'south', 7.25
    union all select 3, 'core', null, 1.00
    union all select 4, null, 'north', 3.75
    union all select 5, 'acme', 'south', 9.00
"""
OWN = {"customer": Column("customer", "Customer", visible="customer_tenant = :requester_tenant")}


def orders(**members):
    return dataset(ORDERS, **{"columns": OWN, "hidden": ("customer_tenant",), "key": ("id",), **members})


def test_a_cell_is_there_only_where_its_condition_is_true(case):
    """Neither where it is false, nor where nobody knows."""
    assert [(1, "acme"), (2, None), (3, None), (4, None), (5, None)] == [
        row[:2] for row in seen(case, orders(), requester())
    ]
    assert [None, "bolt", None, None, "acme"] == [row[1] for row in seen(case, orders(), requester(tenant="south"))]


def test_the_order_knows_no_more_than_what_is_written(case):
    """By the values that are blanked it would be 1 5 2 3, or the other way round."""
    by_customer = [row[:2] for row in seen(case, orders(order=("customer desc",)), requester())]
    as_key = [row[:2] for row in seen(case, orders(key=("customer", "id")), requester())]

    blank = [(2, None), (3, None), (4, None), (5, None)]
    assert [each for each in by_customer if each[1] is None] == blank
    assert [each for each in as_key if each[1] is None] == blank
    assert [(1, "acme")] == [each for each in by_customer if each[1] is not None]
    assert 0 in (by_customer.index((1, "acme")), by_customer[::-1].index((1, "acme")))


def test_a_condition_sees_what_is_hidden_or_blanked_itself_and_what_is_bound(case):
    columns = {
        "customer": Column("customer", "Customer", visible="id <= :most -- a comment ends nothing"),
        "customer_tenant": Column(
            "customer_tenant", "Tenant", visible="customer = 'acme' or 'all' in (:requester_grants)"
        ),
    }
    asked = orders(
        columns=columns, hidden=(), parameters=(Parameter("most", "integer"),), visible="customer is not null"
    )
    rows = [row[:3] for row in seen(case, asked, requester(), most=2)]
    everything = [row[2] for row in seen(case, asked, requester("all"), most=0)]

    assert [(1, "acme", "north"), (2, "bolt", None), (3, None, None), (5, None, "south")] == rows
    assert ["north", "south", None, "south"] == everything


def test_groups_and_measures_know_no_more_than_what_is_written(case):
    """Of the true values there are four groups, and the greatest is another."""
    asked = reading(orders(), requester())
    with case.open().snapshot() as snapshot:
        groups = snapshot.grouped(asked, Question(["customer"], [Aggregate("count", None)]))
        assert [("acme", 1), (None, 4)] == [(name, int(rows)) for name, rows, *_ in rows_of(snapshot, groups)]
        assert 2 == snapshot.count(groups, 60)
        of_all = [Aggregate(function, "customer") for function in ("min", "max", "count", "count_distinct")]
        ((least, greatest, count, distinct, *_),) = rows_of(snapshot, snapshot.grouped(asked, Question([], of_all)))

    assert ("acme", "acme", 1, 1) == (least, greatest, int(count), int(distinct))


def test_both_columns_of_one_name_are_blanked_whatever_their_case(case):
    sql = "select 1 as id, 'hush' as secret, 'hush' as secret"
    asked = dataset(sql, columns={"SECRET": Column("SECRET", "Secret", visible="1 = 0")}, key=("id",))

    assert [(1, None, None)] == seen(case, asked, requester())


def test_a_blanked_column_that_the_query_does_not_have_is_refused_and_told_by_a_check(case, tmp_path):
    columns = {"costumer": Column("costumer", "Customer", visible="1 = 0")}
    asked = orders(columns=columns)
    with pytest.raises(BuildFailed) as failed:
        built(case, tmp_path, asked)
    problems = [each for each in case.open().check(reading(asked, requester())) if "journal" not in each]

    assert ("source_failed", "columns: the query has no column 'costumer' to blank") == (
        failed.value.code,
        failed.value.cause,
    )
    assert "columns: the query has no column 'costumer'" in problems
    assert f"columns.costumer.visible: the query fails: {failed.value.cause}" in problems


def test_a_check_says_which_condition_fails_and_nothing_where_none_does(case):
    columns = OWN | {"total": Column("total", "Total", visible="nowhere = 1")}
    (problem,) = case.open().check(reading(orders(columns=columns), requester()))

    assert problem.startswith("columns.total.visible: the query fails: ")
    assert "nowhere" in problem
    assert [] == case.open().check(reading(orders(), requester()))


VALUES = {
    "sqlite": ["1", "9223372036854775807", "1.5", "'text'", "''", "x'00ff'", "null"],
    "postgresql": [value.sql for value in POSTGRESQL],
    "mariadb": [value.sql for value in MARIADB],
    "duckdb": [value.sql for value in DUCKDB],
}


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_a_cell_that_is_seen_is_written_as_without_a_condition(case, tmp_path, format):
    """The same columns of the same types, by the same way, the same bytes."""
    (values,) = [each for name, each in VALUES.items() if type(case) is CASES[name]]
    sql = "select 1 as id, " + ", ".join(f"{value} as v{place}" for place, value in enumerate(values))
    keys = [f"v{place}" for place in range(len(values))]
    plain = dataset(sql, key=("id",))
    asked = dataset(sql, key=("id",), columns={key: Column(key, key, visible="id = 1") for key in keys})
    with case.open().snapshot() as snapshot:
        columns = [snapshot.columns(reading(each, requester())) for each in (plain, asked)]
        streams = [snapshot.stream(reading(each, requester()), "csv") is None for each in (plain, asked)]
    (one, written), (other, again) = [built(case, tmp_path, each, format=format) for each in (plain, asked)]

    assert columns[0] == columns[1]
    assert streams[0] == streams[1]
    if format == "parquet":  # it says of when its snapshot is
        written, again = (parquet.read_table(io.BytesIO(each)).replace_schema_metadata() for each in (written, again))
        assert written.schema == again.schema
    assert written == again
    assert (one.notices, one.columns) == (other.notices, other.columns)


@pytest.mark.slow
def test_a_bit_of_mariadb_stays_a_number(tmp_path):
    """CASE makes text of its digits, and a BIT comes as bytes."""
    case = CASES["mariadb"](tmp_path)
    case.execute("create table flags (id int, flags bit(64))")
    case.execute("insert into flags values (1, ~0), (2, 5), (3, 7), (4, null)")
    columns = {"flags": Column("flags", "flags", visible="id <> 3")}
    asked = dataset("select id, flags from flags", key=("id",), columns=columns)
    rows, (_, content) = seen(case, asked, requester()), built(case, tmp_path, asked)
    case.close()

    assert [(1, 2**64 - 1), (2, 5), (3, None), (4, None)] == rows
    assert b"id,flags\n1,18446744073709551615\n2,5\n3,\n4,\n" == content


@pytest.mark.slow
def test_several_connections_to_postgresql_see_the_same(tmp_path, monkeypatch):
    case = CASES["postgresql"](tmp_path)
    case.execute(
        "create table ledger as select i as id, i % 3 as tenant, 'n' || i as note, repeat('x', 100) as pad"
        " from generate_series(1, 300000) as i"
    )
    case.execute("alter table ledger add primary key (id)")
    case.execute("analyze ledger")
    columns = {"note": Column("note", "note", visible="tenant = 1 and id >= 0")}
    in_order, taken = sources_postgresql.in_order, []
    monkeypatch.setattr(
        sources_postgresql,
        "in_order",
        lambda sessions, parts, *given, **how: taken.append(len(parts) > 1) or in_order(sessions, parts, *given, **how),
    )
    for order in (("id",), ()):
        taken.clear()
        asked = dataset("select id, tenant, note, pad from ledger", columns=columns, key=order, visible="tenant > 0")
        (one, single), (two, several) = (
            built(case, tmp_path, asked, source=case.open(connections=connections)) for connections in (1, 2)
        )
        assert one.notices == two.notices
        assert (200_000, single) == (two.rows, several)
        assert 100_000 == single.count(b",2,,")
        assert taken == [True]
    case.close()


def test_a_misspelt_name_in_double_quotes_is_no_text_that_is_true(case, tmp_path):
    """SQLite would take it for text, and MariaDB takes every word in double quotes for text."""
    asked = orders(columns={"customer": Column("customer", "Customer", visible='"tenat" <> :requester_tenant')})
    if type(case) is CASES["mariadb"]:
        raise NotPromised("in double quotes there is text")
    with pytest.raises(BuildFailed) as failed:
        built(case, tmp_path, asked)

    assert "tenat" in failed.value.cause

"""What a requester may see, on every source of SQL: rows by their grants, and cells that are blanked."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from tests.conformance.source_cases import CASES

from haulage.artifacts.part import PartFile
from haulage.core.catalogue import Dataset, Parameter
from haulage.core.requester import Requester
from haulage.exports.build import BuildOrder, build
from haulage.exports.parameters import resolve_parameters
from haulage.exports.plan import freeze
from haulage.exports.reading import reading_of
from haulage.sources import SOURCES

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


def built(case, folder, asked, who=None, format="csv", **plan):
    """What a build writes, and what it says of it."""
    frozen = freeze(asked, asked.sql, resolve_parameters(asked, {}), who or requester(), AS_OF, None)
    frozen |= {"limits": PLENTY, **plan}
    place = Path(folder, f"build-{len(list(Path(folder).iterdir()))}")
    place.mkdir()
    options = {"dialect": "exact"} if format == "csv" else {}
    order = BuildOrder(case.url, 0.2, str(place), frozen, format, options, None, 10**9, 10**9, 0)
    sink = PartFile(str(place), file_bytes=10**9, reserved_bytes=10**9)
    made = build(BuildOrder.from_json(order.to_json()), case.open(), sink, lambda _: None)
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

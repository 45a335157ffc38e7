"""Groups over HTTP: what can be grouped is in the catalogue, a wish is checked whole, counts and previews agree."""

from __future__ import annotations

import pytest

from haulage.core.catalogue import Dataset, Dimension, Measure, Parameter
from haulage.core.limits import BuildLimits, ExportLimits


@pytest.fixture
def client(house):
    house.catalogue.add(
        Dataset(
            name="sales",
            source="shop",
            permission="orders.read",
            sql="select id, tenant, total, id % 3 as third, id % 2 as odd from orders where total >= :floor",
            visible="tenant = :requester_tenant",
            hidden=("tenant",),
            key=("id",),
            parameters=(Parameter("floor", "decimal", default=0),),
            dimensions=(Dimension("third", "third", "Third"), Dimension("odd", "odd")),
            measures=(Measure("orders", "count"), Measure("most", "max", "id", "Most")),
            formats=("csv", "json"),
        )
    )
    return house.client("key-amina")


def test_the_catalogue_says_what_can_be_grouped_and_measured(client):
    sales = next(each for each in client.get("/api/datasets").json()["items"] if each["name"] == "sales")
    orders = next(each for each in client.get("/api/datasets").json()["items"] if each["name"] == "orders")

    assert [{"name": "third", "label": "Third"}, {"name": "odd", "label": "odd"}] == sales["dimensions"]
    assert {"name": "most", "label": "Most", "function": "max"} == sales["measures"][1]
    assert ([], []) == (orders["dimensions"], orders["measures"])


def test_a_run_says_how_it_was_grouped_and_in_which_units_it_counts(client):
    wish = {"dataset": "sales", "group_by": ["third", "odd"], "subtotals": [["third"], []], "pivot": ["odd"]}
    run = client.post("/api/exports", json={**wish, "format": "json", "columns": ["most"]}).json()
    other = client.post("/api/exports", json={**wish, "format": "csv"}).json()
    plain = client.post("/api/exports", json={"dataset": "sales"}).json()

    assert (["third", "odd"], [["third"], []], ["odd"]) == (run["group_by"], run["subtotals"], run["pivot"])
    assert (["most"], ["orders", "most"]) == (run["columns"], other["columns"])
    assert ("pivot_cells", "regular_result_rows") == (run["progress"]["unit"], run["progress"]["logical_count_unit"])
    assert ("rows", "regular_result_rows") == (other["progress"]["unit"], other["progress"]["logical_count_unit"])
    assert (None, None, "rows") == (
        plain["group_by"],
        plain["progress"]["logical_count_unit"],
        plain["progress"]["unit"],
    )


def test_another_grouping_is_another_request_and_the_same_one_is_found(client):
    def asked(**grouping):
        return client.post("/api/exports", json={"dataset": "sales", **grouping})

    first = asked(group_by=["third"])
    again = asked(group_by=["third"])
    others = [asked(), asked(group_by=["odd"]), asked(group_by=["third"], subtotals="total")]

    assert (202, 200) == (first.status_code, again.status_code)
    assert first.json()["id"] == again.json()["id"]
    assert 4 == len({each.json()["id"] for each in [first, *others]})

    headers = {"Idempotency-Key": "k"}
    client.post("/api/exports", json={"dataset": "sales", "group_by": ["third"]}, headers=headers)
    reused = client.post("/api/exports", json={"dataset": "sales", "group_by": ["odd"]}, headers=headers)
    assert (409, "key_reused") == (reused.status_code, reused.json()["code"])


@pytest.mark.parametrize(
    ("wish", "pointers"),
    [
        ({"group_by": ["nothing"]}, ["/group_by/0"]),
        ({"group_by": ["third", "third"]}, ["/group_by"]),
        ({"group_by": []}, ["/group_by"]),
        ({"subtotals": "total"}, ["/subtotals"]),
        ({"pivot": ["odd"]}, ["/pivot"]),
        ({"group_by": ["third"], "pivot": ["odd"]}, ["/pivot/0"]),
        ({"group_by": ["third"], "subtotals": [["odd"]]}, ["/subtotals"]),
        ({"group_by": ["third"], "subtotals": [["third"]]}, ["/subtotals"]),
        ({"group_by": ["third"], "columns": ["id"]}, ["/columns/0"]),
        ({"group_by": ["third"], "columns": ["id"], "subtotals": [[], []]}, ["/subtotals", "/columns/0"]),
        ({"group_by": ["third"], "format": "docx", "columns": ["id"]}, ["/format", "/columns/0"]),
    ],
)
def test_a_wish_that_cannot_be_is_refused_with_everything_that_is_wrong(client, wish, pointers):
    refused = client.post("/api/exports", json={"dataset": "sales", **wish})

    assert refused.status_code == 422
    assert pointers == [error["pointer"] for error in refused.json()["errors"]]


def test_a_level_by_word_is_one_of_those_there_are(client):
    refused = client.post("/api/exports", json={"dataset": "sales", "group_by": ["third"], "subtotals": "some"})

    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"].startswith("/subtotals")


def test_a_dataset_without_dimensions_says_so(client):
    refused = client.post("/api/exports", json={"dataset": "orders", "group_by": ["id"]})

    assert "orders declares none" in refused.json()["errors"][0]["detail"]


def test_counts_are_of_groups_and_hide_what_is_hidden(client, house):
    place = "/api/datasets/sales/counts?floor=3&group_by="
    ours = client.get(place + "third,odd").json()
    everything = house.client("key-omar").get(place + "third&group_by=odd").json()
    unknown = client.get(place + "id")

    assert (None, 3) == (ours["output_count"], ours["visible_output_count"])
    assert (6, 0) == (everything["output_count"], everything["visible_output_count"])
    assert (422, "/group_by/0") == (unknown.status_code, unknown.json()["errors"][0]["pointer"])


def test_a_preview_has_the_first_rows_of_the_export(client):
    rows = client.get("/api/datasets/sales/preview?floor=3&limit=2&columns=id,total").json()
    groups = client.get("/api/datasets/sales/preview?group_by=third,odd&subtotals=third;()&columns=orders").json()
    table = client.get("/api/datasets/sales/preview?group_by=third,odd&pivot=third&columns=orders").json()

    assert [[3, 3.5], [5, 5.5]] == rows["rows"]
    assert (True, None, None) == (rows["more"], rows["grouped"], rows["logical_count"])
    assert ["regular", "third,odd", 0, 1, 3] == groups["rows"][0]
    assert ["total", "", None, None, 10] == groups["rows"][-1]
    assert ({"marks": 2, "dimensions": 2, "measures": 1}, 3) == (groups["grouped"], groups["logical_count"])
    assert ["row_kind", "odd", "0", "1", "2"] == [column["header"] for column in table["columns"]]
    assert [["regular", 1, 3, 4, 3]] == table["rows"]
    assert {"marks": 1, "dimensions": 1, "measures": 3} == table["grouped"]


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("limit=0", "/query/limit"),
        ("limit=201", "/query/limit"),
        ("limit=x", "/query/limit"),
        ("limit=" + "9" * 5_000, "/query/limit"),
        ("columns=nothing", "/columns/0"),
        ("floor=x", "/parameters/floor"),
        ("group_by=third&subtotals=odd", "/subtotals"),
        ("nothing=1", "/parameters/nothing"),
    ],
)
def test_a_preview_refuses_what_a_request_would_refuse(client, query, pointer):
    refused = client.get(f"/api/datasets/sales/preview?{query}")

    assert (422, pointer) == (refused.status_code, refused.json()["errors"][0]["pointer"])


def test_counts_take_the_whole_wish_and_refuse_what_an_export_would(client):
    """What is added up is no regular row and what goes across is a group, so neither changes the count."""
    place = "/api/datasets/sales/counts?floor=10"
    plain = client.get(f"{place}&group_by=third,odd").json()["visible_output_count"]
    whole = client.get(f"{place}&group_by=third,odd&pivot=odd&subtotals=cube&columns=most")
    preview = client.get("/api/datasets/sales/preview?floor=10&group_by=third,odd&pivot=odd&subtotals=cube").json()
    assert (plain, plain) == (whole.json()["visible_output_count"], preview["logical_count"])
    assert 200 == client.get(f"{place}&columns=total,id").status_code

    for query, pointer in {
        "group_by=third&subtotals=all": "/subtotals",
        "group_by=third&pivot=odd": "/pivot/0",
        "group_by=third&columns=least": "/columns/0",
        "subtotals=total": "/subtotals",
        "pivot=third": "/pivot",
        "columns=id,tenant": "/columns/1",
        "columns=id,id": "/columns",
        "limit=5": "/query/limit",
    }.items():
        refused = client.get(f"{place}&{query}")
        assert (422, [pointer]) == (refused.status_code, [each["pointer"] for each in refused.json()["errors"]]), query
    refused = client.get("/api/datasets/sales/preview?population=true")
    assert (422, "/query/population") == (refused.status_code, refused.json()["errors"][0]["pointer"])


def test_a_preview_is_for_those_who_may_export(client, house):
    forbidden = house.client("key-dora").get("/api/datasets/sales/preview")
    unknown = client.get("/api/datasets/nothing/preview")

    assert (403, 404) == (forbidden.status_code, unknown.status_code)


def test_a_preview_that_takes_too_long_ends_the_statement(house):
    house.limits = ExportLimits(build=BuildLimits(count_seconds=0.2))
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) as i from n"
    house.catalogue.add(Dataset(name="endless", source="shop", sql=endless))

    refused = house.client("key-amina").get("/api/datasets/endless/preview")

    assert (503, "count_timeout") == (refused.status_code, refused.json()["code"])


def test_a_preview_cuts_long_cells_and_tells_of_too_many_groups(house):
    house.catalogue.add(
        Dataset(
            name="wide",
            source="shop",
            sql="with recursive n(i) as (select 1 union all select i + 1 from n where i < 10001)"
            " select i, case i when 1 then hex(zeroblob(5000)) end as long from n",
            key=("i",),
            dimensions=(Dimension("i", "i"), Dimension("long", "long")),
            measures=(Measure("rows", "count"),),
        )
    )
    client = house.client("key-amina")
    cut = client.get("/api/datasets/wide/preview?limit=1").json()
    header = client.get("/api/datasets/wide/preview?group_by=long&pivot=long").json()["columns"][1]["header"]
    refused = client.get("/api/datasets/wide/preview?group_by=i")

    assert header == "0" * 1_000 + "…"
    assert [[1, "0" * 1_000 + "…"]] == cut["rows"]
    assert (422, "preview_exceeded") == (refused.status_code, refused.json()["code"])


def test_a_preview_shows_nothing_that_an_export_would_not_write(client, house):
    """Where the export itself has too many groups or columns, it is not said that it may have more."""
    house.limits = ExportLimits(build=BuildLimits(groups=2, pivot_columns=2))
    place = "/api/datasets/sales/preview?group_by=third"
    groups = house.client("key-amina").get(place)
    house.limits = ExportLimits(build=BuildLimits(groups=6, pivot_columns=3))
    wide = house.client("key-amina").get(f"{place},odd&pivot=third")

    assert (422, "groups_exceeded") == (groups.status_code, groups.json()["code"])
    assert (422, "pivot_columns_exceeded") == (wide.status_code, wide.json()["code"])


def test_a_population_of_groups_is_counted_in_groups(client):
    place = "/api/datasets/sales/counts?group_by=third,odd&floor=17"
    told = client.get(f"{place}&population=true").json()

    assert (2, 3, True) == (
        told["visible_output_count"], told["population_count"], told["population_count_computed"],
    )  # fmt: skip

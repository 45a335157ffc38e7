"""Counts over HTTP: what the conditions give now, for whom, and never at the cost of everybody else."""

from __future__ import annotations

import contextlib
import sqlite3
import threading

import pytest
from tests.stories.conftest import read_all

from haulage.core.catalogue import Dataset, Parameter
from haulage.core.limits import BuildLimits, ExportLimits
from haulage.exports.counts import Counts
from haulage.sources.sqlite import SqliteSnapshot
from haulage.web.datasets import COUNTS_AT_ONCE


def test_counts_say_what_is_visible_and_keep_the_rest_to_those_who_may_know(house):
    place = "/api/datasets/orders/counts?since=2020-01-01"

    visible = house.client("key-amina").get(place)
    everything = house.client("key-omar").get(place)

    assert 200 == visible.status_code == everything.status_code
    assert (None, 10) == (visible.json()["output_count"], visible.json()["visible_output_count"])
    assert (20, 0) == (everything.json()["output_count"], everything.json()["visible_output_count"])
    assert (None, False) == (visible.json()["population_count"], visible.json()["population_count_computed"])


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("since=yesterday", "/parameters/since"),
        ("sinse=2026-01-01", "/parameters/sinse"),
        ("group_by=state", "/group_by/0"),
        ("since=2026-01-01&since=2026-01-02", "/parameters/since"),
        ("states=new&states=old", "/parameters/states"),
        ("population=yes", "/query/population"),
        ("population=true&population=true", "/query/population"),
    ],
)
def test_counts_refuse_what_a_request_would_refuse(house, query, pointer):
    client = house.client("key-amina")

    refused = client.get(f"/api/datasets/orders/counts?{query}")
    taken = client.get("/api/datasets/orders/counts?states=new&states=paid")

    assert (422, pointer) == (refused.status_code, refused.json()["errors"][0]["pointer"])
    assert 200 == taken.status_code


def test_a_population_is_what_a_requester_sees_without_conditions_and_counted_only_where_it_is_asked_for(house):
    place, client = "/api/datasets/orders/counts?floor=15", house.client("key-amina")

    def counted(client, query=""):
        told = client.get(place + query).json()
        del told["counted_at"]
        return tuple(told.values())

    assert (None, 3, None, False) == counted(client) == counted(client, "&population=false")
    assert (None, 3, 10, True) == counted(client, "&population=true")
    assert (6, 0, 0, True) == counted(house.client("key-omar"), "&population=true")
    place = place.replace("floor=15", "since=2020-01-01&floor=100")
    assert (None, 0, 10, True) == counted(client, "&population=true")


def test_a_population_of_a_dataset_that_needs_a_condition_is_not_known(house):
    house.catalogue.add(
        Dataset("since", "shop", sql="select id from orders where id >= :from_id",
                parameters=(Parameter("from_id", "integer"),))
    )  # fmt: skip
    told = house.client("key-amina").get("/api/datasets/since/counts?from_id=19&population=true").json()

    assert (2, None, False) == (
        told["visible_output_count"], told["population_count"], told["population_count_computed"],
    )  # fmt: skip


def test_a_population_is_of_the_instant_of_the_other_counts(house, monkeypatch):
    """A row that comes between two of the counts is in none of them."""
    count, shop = SqliteSnapshot.count, house.shop.removeprefix("sqlite:///")

    def and_then_write(snapshot, *asked, **how):
        counted = count(snapshot, *asked, **how)
        with contextlib.closing(sqlite3.connect(shop)) as writer, writer:
            writer.execute("insert into orders values ((select max(id) + 2 from orders), 'north', 1, '2026-01-01')")
        return counted

    monkeypatch.setattr(SqliteSnapshot, "count", and_then_write)
    client = house.client("key-amina")
    (one, two) = (client.get("/api/datasets/orders/counts?population=true").json() for _ in range(2))

    assert 10 == one["visible_output_count"] == one["population_count"]
    assert 12 == two["visible_output_count"] == two["population_count"]


def test_counts_of_a_dataset_that_is_not_there_or_not_permitted(house):
    unknown = house.client("key-amina").get("/api/datasets/nothing/counts")
    forbidden = house.client("key-dora").get("/api/datasets/orders/counts")

    assert (404, 403) == (unknown.status_code, forbidden.status_code)


def test_counting_never_takes_every_thread(house, serve):
    house.limits = ExportLimits(build=BuildLimits(count_seconds=0.2))
    app = house.app()
    go_on, under_way = threading.Event(), threading.Semaphore(0)

    def slow(*_args, **_how):
        under_way.release()
        go_on.wait(60)
        return Counts(None, 5, None)

    app.state.haulage.services.exports.counts = slow
    headers = {"Authorization": "Bearer key-amina", "Connection": "close"}
    with serve(app) as server:
        held = [server.connect("GET", "/api/datasets/orders/counts", headers) for _ in range(COUNTS_AT_ONCE)]
        for _ in held:
            assert under_way.acquire(timeout=60)
        refused = read_all(server.connect("GET", "/api/datasets/orders/counts", headers))
        others = read_all(server.connect("GET", "/api/exports", headers))
        go_on.set()
        counted = [read_all(each) for each in held]
        again = read_all(server.connect("GET", "/api/datasets/orders/counts", headers))

    assert refused.startswith(b"HTTP/1.1 503 ")
    assert b"count_timeout" in refused
    assert others.startswith(b"HTTP/1.1 200 ")
    assert all(each.startswith(b"HTTP/1.1 200 ") for each in [*counted, again])

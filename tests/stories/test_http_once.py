"""When two requests are one, what a key stands for, and in which order the door decides."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from haulage.core.catalogue import Catalogue, Dataset
from haulage.core.limits import ExportLimits

pytestmark = pytest.mark.slow

ASKED = {"dataset": "orders", "format": "csv", "parameters": {"since": "2026-01-01"}}
KEY = {"Idempotency-Key": "click-1"}


def declared_otherwise(house, **changes):
    """The same datasets, one of them declared anew, as after a change of the configuration."""
    catalogue = Catalogue()
    for dataset in house.catalogue:
        catalogue.add(replace(dataset, **changes) if dataset.name == "orders" else dataset)
    house.catalogue = catalogue
    house._made.clear()


SAID = {
    "account": ("key-ben", {}),
    "tenant": ("key-chloe", {}),
    "parameters": ("key-amina", {"parameters": {"since": "2026-01-02"}}),
    "format": ("key-amina", {"format": "json"}),
    "options": ("key-amina", {"options": {"dialect": "excel"}}),
    "compression": ("key-amina", {"compression": "gzip"}),
    "columns": ("key-amina", {"columns": ["total", "id"]}),
}


@pytest.mark.parametrize(("key", "said"), SAID.values(), ids=SAID)
def test_an_equal_request_is_one_run_and_one_that_says_anything_else_is_another(house, key, said):
    first = house.client("key-amina").post("/api/exports", json=ASKED)
    house.passes(3)

    equal = house.client("key-amina").post("/api/exports", json=ASKED)
    other = house.client(key).post("/api/exports", json={**ASKED, **said})

    assert (202, 200, first.json()["id"]) == (first.status_code, equal.status_code, equal.json()["id"])
    assert 202 == other.status_code
    assert first.json()["id"] != other.json()["id"]


DECLARED = {
    "query": {"sql": "select id, tenant, total from orders where placed_at > :since"},
    "visible rows": {"visible": "tenant = 'north'"},
    "order": {"order": ("total desc",)},
    "grants": {},
}


@pytest.mark.parametrize("declared", DECLARED.values(), ids=DECLARED)
def test_the_same_words_are_another_request_when_the_dataset_or_the_grants_have_changed(house, declared):
    first = house.client("key-amina").post("/api/exports", json=ASKED).json()
    if declared:
        declared_otherwise(house, **declared)
    else:
        house.people.change("amina", grants=frozenset({"orders.read", "counts.all"}))

    other = house.client("key-amina").post("/api/exports", json=ASKED)

    assert 202 == other.status_code
    assert first["id"] != other.json()["id"]


@pytest.mark.parametrize("headers", [{}, KEY], ids=["equal", "of one key"])
def test_requests_at_the_same_instant_are_one_run(house, headers):
    clients = [house.client("key-amina") for _ in range(8)]
    together = threading.Barrier(len(clients))

    def ask(client):
        together.wait(60)
        return client.post("/api/exports", json=ASKED, headers=headers)

    with ThreadPoolExecutor(len(clients)) as pool:
        answers = list(pool.map(ask, clients))

    assert [200] * 7 + [202] == sorted(answer.status_code for answer in answers)
    assert 1 == len({answer.json()["id"] for answer in answers})
    assert 1 == len(clients[0].get("/api/exports").json()["items"])


def test_the_instant_of_a_request_is_bound_and_shown_and_makes_no_other_run_of_it(house):
    house.catalogue.add(Dataset(name="until_now", source="shop", sql="select id from orders where placed_at <= :as_of"))
    client = house.client("key-amina")
    first = client.post("/api/exports", json={"dataset": "until_now"})
    house.passes(7)

    later = client.post("/api/exports", json={"dataset": "until_now"})

    assert (202, 200) == (first.status_code, later.status_code)
    assert first.json()["as_of"] == later.json()["as_of"] == first.json()["requested_at"]
    assert first.json()["as_of"] == house.claim()[1].plan["binds"]["as_of"]


def test_a_worker_gets_what_was_accepted_although_the_dataset_has_changed_since(house):
    client = house.client("key-amina")
    client.post("/api/exports", json=ASKED)
    before = house.catalogue.find("orders")
    declared_otherwise(house, sql="select 1 as id, 'north' as tenant, 2 as total", visible=None, hidden=())
    house.people.change("amina", grants=frozenset({"orders.read", "counts.all"}))

    run = house.claim()[1]

    assert (before.sql, before.visible, ["tenant"]) == (run.plan["sql"], run.plan["visible"], run.plan["hidden"])
    assert ("2026-01-01", "north") == (run.plan["binds"]["since"], run.plan["binds"]["requester_tenant"])
    assert ["orders.read"] == run.requester["grants"]
    assert before.digest(before.sql) == run.dataset_hash != house.catalogue.find("orders").digest(before.sql)


@pytest.mark.parametrize("refusal", ["no_worker", "too_many_queued", "invalid", "forbidden"])
def test_a_refused_request_keeps_no_key(house, refusal):
    asked = ASKED
    if refusal == "no_worker":
        house.store.workers.leave("worker-1")
    elif refusal == "too_many_queued":
        house.limits = ExportLimits(tenant_queued=0)
    elif refusal == "invalid":
        asked = {**ASKED, "format": "xml"}
    else:
        house.people.change("amina", grants=frozenset())
    refused = house.client("key-amina").post("/api/exports", json=asked, headers=KEY)
    house.worker_lives()
    house.limits = ExportLimits()
    house.people.change("amina", grants=frozenset({"orders.read"}))

    with_another_body = house.client("key-amina").post("/api/exports", json={**ASKED, "format": "json"}, headers=KEY)

    assert refusal == refused.json()["code"]
    assert 202 == with_another_body.status_code


def test_a_key_whose_run_was_cancelled_answers_that_run_and_another_key_makes_a_new_one(house):
    client = house.client("key-amina")
    first = client.post("/api/exports", json=ASKED, headers=KEY).json()
    client.delete(f"/api/exports/{first['token']}")

    again = client.post("/api/exports", json=ASKED, headers=KEY)
    fresh = client.post("/api/exports", json=ASKED, headers={"Idempotency-Key": "click-2"})

    assert (200, "true") == (again.status_code, again.headers["idempotent-replayed"])
    assert (first["id"], "cancelled") == (again.json()["id"], again.json()["state"])
    assert 202 == fresh.status_code


def test_a_key_sent_with_an_equal_request_stands_for_the_run_under_way(house):
    client = house.client("key-amina")
    first = client.post("/api/exports", json=ASKED).json()
    coalesced = client.post("/api/exports", json=ASKED, headers=KEY)
    house.finish(*house.claim())

    replayed = client.post("/api/exports", json=ASKED, headers=KEY)

    assert (200, first["id"]) == (coalesced.status_code, coalesced.json()["id"])
    assert "idempotent-replayed" not in coalesced.headers
    assert (200, first["id"], "ready") == (replayed.status_code, replayed.json()["id"], replayed.json()["state"])
    assert "true" == replayed.headers["idempotent-replayed"]


def test_the_door_looks_at_the_key_then_at_equal_runs_then_at_limits_and_at_workers_last(house):
    """Whatever stands in the way of a new run is no reason to refuse one that is there already."""
    keyed = house.client("key-amina").post("/api/exports", json=ASKED, headers=KEY).json()
    house.limits = ExportLimits(tenant_queued=1)
    client = house.client("key-amina")
    house.store.workers.leave("worker-1")

    replayed = client.post("/api/exports", json=ASKED, headers=KEY)
    reused = client.post("/api/exports", json={**ASKED, "format": "json"}, headers=KEY)
    equal = client.post("/api/exports", json=ASKED)
    over = client.post("/api/exports", json={**ASKED, "format": "json"})
    client.delete(f"/api/exports/{keyed['token']}")
    unattended = client.post("/api/exports", json={**ASKED, "format": "json"})

    assert [(200, keyed["id"]), (200, keyed["id"])] == [(a.status_code, a.json()["id"]) for a in (replayed, equal)]
    assert ["key_reused", "too_many_queued", "no_worker"] == [a.json()["code"] for a in (reused, over, unattended)]


@pytest.mark.parametrize("changed", ["the source is away", "the dataset has changed"])
def test_a_replay_asks_neither_the_source_nor_the_dataset(house, changed):
    asked = {**ASKED, "columns": ["id"]}
    first = house.client("key-amina").post("/api/exports", json=asked, headers=KEY).json()
    if changed == "the source is away":
        (house.folder / "shop.db").rename(house.folder / "away.db")
    else:
        declared_otherwise(house, formats=("json",), parameters=(), sql="select tenant from orders", key=("tenant",))

    replayed = house.client("key-amina").post("/api/exports", json=asked, headers=KEY)
    unkeyed = house.client("key-amina").post("/api/exports", json=asked)

    assert (200, first["id"]) == (replayed.status_code, replayed.json()["id"])
    assert "true" == replayed.headers["idempotent-replayed"]
    assert unkeyed.status_code in (422, 503)


def test_a_member_that_is_not_known_makes_no_replay(house):
    client = house.client("key-amina")
    client.post("/api/exports", json=ASKED, headers=KEY)

    refused = client.post("/api/exports", json={**ASKED, "stat": 1}, headers=KEY)

    assert (422, "/stat") == (refused.status_code, refused.json()["errors"][0]["pointer"])


def test_a_key_is_forgotten_after_a_day_and_not_before(house):
    client = house.client("key-amina")
    first = client.post("/api/exports", json=ASKED, headers=KEY).json()
    house.finish(*house.claim())
    house.passes(24 * 3600 - 1)
    within = client.post("/api/exports", json=ASKED, headers=KEY)
    house.passes(2)
    house.worker_lives()

    after = client.post("/api/exports", json=ASKED, headers=KEY)

    assert (200, first["id"]) == (within.status_code, within.json()["id"])
    assert 202 == after.status_code


def test_a_format_whose_library_is_not_installed_says_what_to_install(house, monkeypatch):
    monkeypatch.setitem(sys.modules, "backports", None)
    monkeypatch.setitem(sys.modules, "compression", None)
    client = house.client("key-amina")

    refused = client.post("/api/exports", json={**ASKED, "compression": "zstd"})
    taken = client.post("/api/exports", json={**ASKED, "compression": "gzip"})

    assert (422, "library_missing") == (refused.status_code, refused.json()["code"])
    assert "pip install 'haulage[zstd]'" in refused.json()["detail"]
    assert 202 == taken.status_code


def test_the_catalogue_says_what_to_install_for_a_format(house, monkeypatch):
    declared_otherwise(house, formats=("csv", "parquet"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    client = house.client("key-amina")

    formats = client.get("/api/datasets").json()["items"][0]["formats"]
    refused = client.post("/api/exports", json={**ASKED, "format": "parquet"})

    assert [("csv", None), ("parquet", "pip install 'haulage[parquet]'")] == [
        (each["name"], each["missing"]) for each in formats
    ]
    assert (422, "library_missing") == (refused.status_code, refused.json()["code"])
    assert "pip install 'haulage[parquet]'" in refused.json()["detail"]

"""Asking for an export over HTTP: accepted durably, never twice, and refused with every fault at once."""

from __future__ import annotations

import contextlib
import json
import re
import socket
from dataclasses import replace
from decimal import Decimal

import pytest
from tests.stories.conftest import read_all

from haulage.core.errors import StoreUnavailable
from haulage.core.limits import DoorLimits, ExportLimits
from haulage.exports.request import Exports

ASKED = {"dataset": "orders", "format": "csv"}


def test_a_request_is_accepted_and_says_where_to_look(house):
    client = house.client("key-amina")

    answer = client.post("/api/exports", json=ASKED)

    run = answer.json()
    assert 202 == answer.status_code
    assert "queued" == run["state"]
    assert 1 == run["queue_position"]
    assert f"/api/exports/{run['token']}" == answer.headers["location"] == answer.headers["content-location"]
    assert "1" == answer.headers["retry-after"]
    assert "private, no-cache" == answer.headers["cache-control"]
    assert "idempotent-replayed" not in answer.headers
    assert run == client.get(answer.headers["location"]).json()


def test_an_equal_request_gives_the_run_that_is_under_way(house):
    client = house.client("key-amina")
    first = client.post("/api/exports", json=ASKED)

    again = client.post("/api/exports", json=ASKED)
    other = client.post("/api/exports", json={**ASKED, "format": "json"})
    of_another = house.client("key-ben").post("/api/exports", json=ASKED)

    assert 200 == again.status_code
    assert first.json()["id"] == again.json()["id"]
    assert "idempotent-replayed" not in again.headers
    assert 202 == other.status_code == of_another.status_code


def test_after_a_cancel_the_same_request_is_a_new_run(house):
    client = house.client("key-amina")
    first = client.post("/api/exports", json=ASKED).json()
    client.delete(f"/api/exports/{first['token']}")

    again = client.post("/api/exports", json=ASKED)

    assert 202 == again.status_code
    assert first["id"] != again.json()["id"]


def test_an_idempotency_key_gives_the_same_run_even_when_it_has_ended(house):
    client = house.client("key-amina")
    key = {"Idempotency-Key": "click-1"}
    first = client.post("/api/exports", json=ASKED, headers=key)
    house.finish(*house.claim())
    house.store.workers.leave("worker-1")

    again = client.post("/api/exports", json=ASKED, headers=key)

    assert 202 == first.status_code
    assert 200 == again.status_code
    assert "true" == again.headers["idempotent-replayed"]
    assert (first.json()["id"], "ready") == (again.json()["id"], again.json()["state"])
    assert "retry-after" not in again.headers


def test_an_idempotency_key_with_another_body_is_refused(house):
    client = house.client("key-amina")
    key = {"Idempotency-Key": "click-1"}
    client.post("/api/exports", json=ASKED, headers=key)

    reused = client.post("/api/exports", json={**ASKED, "format": "json"}, headers=key)
    of_another = house.client("key-ben").post("/api/exports", json=ASKED, headers=key)

    assert (409, "key_reused") == (reused.status_code, reused.json()["code"])
    assert 202 == of_another.status_code


def test_an_idempotency_key_whose_run_was_deleted_is_gone(house):
    client = house.client("key-amina")
    key = {"Idempotency-Key": "click-1"}
    run = client.post("/api/exports", json=ASKED, headers=key).json()
    client.delete(f"/api/exports/{run['token']}")
    house.store.exports.remove(now=house.clock + 8 * 24 * 3600 * 1000)

    gone = client.post("/api/exports", json=ASKED, headers=key)

    assert (410, "key_gone") == (gone.status_code, gone.json()["code"])


@pytest.mark.parametrize("key", ["", "x" * 201, "snow\u00e9"])
def test_an_idempotency_key_is_printable_text_of_at_most_200_characters(house, key):
    client = house.client("key-amina")

    refused = client.post("/api/exports", json=ASKED, headers={"Idempotency-Key": key.encode("latin-1")})
    taken = client.post("/api/exports", json=ASKED, headers={"Idempotency-Key": "x" * 200})

    assert 422 == refused.status_code
    assert "/header/Idempotency-Key" == refused.json()["errors"][0]["pointer"]
    assert 202 == taken.status_code


def test_two_idempotency_keys_are_refused_and_neither_is_remembered(house):
    client, keys = house.client("key-amina"), ["click-1", "click-2"]
    refused = client.post("/api/exports", json=ASKED, headers=[("Idempotency-Key", key) for key in keys])
    taken = [client.post("/api/exports", json=ASKED, headers={"Idempotency-Key": key}).headers for key in keys]

    assert (422, "/header/Idempotency-Key") == (refused.status_code, refused.json()["errors"][0]["pointer"])
    assert [None, None] == [headers.get("Idempotent-Replayed") for headers in taken]


def test_parameters_are_read_by_their_types_and_decimals_keep_their_digits(house):
    client = house.client("key-amina")
    body = '{"dataset": "orders", "parameters": {"floor": 12.10, "since": "2026-01-31", "states": ["new", "paid"]}}'

    answer = client.post("/api/exports", content=body, headers={"Content-Type": "application/json; charset=UTF-8"})

    assert 202 == answer.status_code
    assert {"floor": "12.10", "since": "2026-01-31", "states": ["new", "paid"]} == answer.json()["parameters"]


@pytest.mark.slow
@pytest.mark.parametrize("member", ["state", "account", "tenant", "path", "sql", "visible", "id", "parent", "pivot"])
def test_a_member_that_is_not_known_is_refused(house, member):
    client = house.client("key-amina")

    refused = client.post("/api/exports", json={**ASKED, member: "x"})
    taken = client.post("/api/exports", json=ASKED)

    assert (422, f"/{member}") == (refused.status_code, refused.json()["errors"][0]["pointer"])
    assert 202 == taken.status_code


BROKEN = {
    "nothing": b"",
    "half an object": b'{"dataset": "orders"',
    "no JSON": b"dataset=orders",
    "a member twice": b'{"dataset": "orders", "dataset": "open_data"}',
    "a parameter twice": b'{"dataset": "orders", "parameters": {"since": "2026-01-01", "since": "2000-01-01"}}',
    "NaN": b'{"dataset": "orders", "parameters": {"floor": NaN}}',
    "Infinity": b'{"dataset": "orders", "parameters": {"floor": -Infinity}}',
    "not UTF-8": b'{"dataset": "orders", "parameters": {"since": "\xff"}}',
    "UTF-16": '{"dataset": "orders"}'.encode("utf-16"),
    "too deep": b'{"dataset": "orders", "parameters": {"floor": ' + b"[" * 30_000 + b"]" * 30_000 + b"}}",
    "only brackets": b"[" * 65_000,
    "a very long number": b'{"dataset": "orders", "parameters": {"floor": ' + b"1" * 60_000 + b"}}",
}


@pytest.mark.slow
@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_a_body_that_is_not_strict_json_is_malformed(house, content):
    client = house.client("key-amina")

    refused = client.post("/api/exports", content=content, headers={"Content-Type": "application/json"})

    assert (400, "malformed") == (refused.status_code, refused.json()["code"])
    assert "application/problem+json" == refused.headers["content-type"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b"null",
        b'"orders"',
        b'{"dataset": "orders", "parameters": {"floor": 1e999}}',
        b'{"dataset": "orders", "parameters": {"floor": 1e-999999}}',
        b'{"dataset": "orders", "parameters": {"floor": [[[[[[1]]]]]]}}',
        b'{"dataset": "orders", "parameters": {"since": true}}',
        b'{"dataset": "orders", "parameters": "since"}',
        b'{"dataset": "orders", "columns": ["\\ud800"]}',
        b'{"dataset": "orders", "columns": ["id", "id"]}',
        b'{"dataset": "orders", "columns": ["tenant"]}',
        b'{"dataset": "orders", "parameters": {"\\ud800": 1}}',
        b'{"dataset": "orders", "format": "\\ud800"}',
        b'{"dataset": "orders", "options": {"dialect": "martian"}}',
        b'{"dataset": "orders", "compression": "rar"}',
        b'{"dataset": "orders", "format": null}',
        b'{"dataset": 1}',
        b'{"dataset": "\\ud800"}',
        b"{}",
    ],
)
def test_json_of_another_shape_is_invalid_and_nothing_is_written(house, content):
    client = house.client("key-amina")

    refused = client.post("/api/exports", content=content, headers={"Content-Type": "application/json"})

    assert (422, "invalid") == (refused.status_code, refused.json()["code"])
    assert refused.json()["errors"]
    assert not re.search("ExportWish|instance of", refused.text)
    assert [] == client.get("/api/exports").json()["items"]


@pytest.mark.parametrize("name", ["nothing", "../orders", "x'\"<>", "ORDERS"])
def test_a_dataset_that_is_not_declared_is_not_found(house, name):
    content = json.dumps({"dataset": name})

    refused = house.client("key-amina").post(
        "/api/exports", content=content, headers={"Content-Type": "application/json"}
    )

    assert (404, "not_found") == (refused.status_code, refused.json()["code"])


def test_a_dataset_without_its_grant_is_forbidden(house):
    with_grant = house.client("key-amina").post("/api/exports", json=ASKED)
    without = house.client("key-dora").post("/api/exports", json=ASKED)

    assert 202 == with_grant.status_code
    assert (403, "forbidden") == (without.status_code, without.json()["code"])


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
        {"Content-Type": "application/jsonp"},
        {},
    ],
)
def test_only_json_is_taken(house, headers):
    client = house.client("key-amina")

    refused = client.post("/api/exports", content=b'{"dataset": "orders"}', headers=headers)

    assert (415, "unsupported_media_type") == (refused.status_code, refused.json()["code"])


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_of_64_kib_is_taken_and_one_byte_more_is_not(house, chunked):
    client = house.client("key-amina")
    json_type = {"Content-Type": "application/json"}

    def sent(size):
        body = b'{"dataset": "orders"}'.ljust(size)
        content = iter([body[:100], body[100:]]) if chunked else body
        return client.post("/api/exports", content=content, headers=json_type)

    at_the_limit, over = sent(65_536), sent(65_537)

    assert 202 == at_the_limit.status_code
    assert (413, "too_large") == (over.status_code, over.json()["code"])


def test_a_body_that_does_not_come_is_not_waited_for(house, serve, monkeypatch):
    monkeypatch.setattr("haulage.web.bodies.BODY_SECONDS", 0.2)
    headers = {"Authorization": "Bearer key-amina", "Content-Type": "application/json", "Content-Length": "30"}
    with serve(house.app()) as server:
        answer = read_all(server.connect("POST", "/api/exports", {**headers, "Connection": "close"}))

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"did not arrive within 0.2 s" in answer


def test_a_tenant_may_have_so_many_runs_waiting_and_no_more(house):
    house.limits = ExportLimits(tenant_queued=1)
    client = house.client("key-amina")
    first = client.post("/api/exports", json=ASKED)

    over = client.post("/api/exports", json={**ASKED, "format": "json"})
    equal = client.post("/api/exports", json=ASKED)
    of_another_tenant = house.client("key-chloe").post("/api/exports", json=ASKED)

    assert 202 == first.status_code == of_another_tenant.status_code
    assert (429, "too_many_queued", "5") == (over.status_code, over.json()["code"], over.headers["retry-after"])
    assert 200 == equal.status_code


def test_without_a_worker_nothing_is_accepted(house):
    client = house.client("key-amina")
    house.passes(house.limits.presence_seconds + 1)

    refused = client.post("/api/exports", json=ASKED)
    house.worker_lives()
    taken = client.post("/api/exports", json=ASKED)

    assert (503, "no_worker", "5") == (refused.status_code, refused.json()["code"], refused.headers["retry-after"])
    assert 202 == taken.status_code


def test_a_full_queue_and_a_full_store_are_named(house):
    client = house.client("key-amina")
    house.ready(client)
    house.limits = replace(ExportLimits(), queued=0)
    queue_full = house.client("key-amina").post("/api/exports", json=ASKED)
    house.limits = replace(ExportLimits(), store_bytes=10)
    storage_full = house.client("key-amina").post("/api/exports", json=ASKED)

    assert (503, "queue_full") == (queue_full.status_code, queue_full.json()["code"])
    assert (503, "storage_exceeded") == (storage_full.status_code, storage_full.json()["code"])
    assert "retry-after" in queue_full.headers
    assert "retry-after" in storage_full.headers


def test_grants_that_are_too_many_to_keep_are_refused(house):
    house.people.change("amina", grants=frozenset({"orders.read", *(f"grant-{n}" for n in range(1000))}))

    refused = house.client("key-amina").post("/api/exports", json=ASKED)

    assert (413, "too_large") == (refused.status_code, refused.json()["code"])


def test_the_catalogue_says_what_may_be_asked_and_shows_no_query(house):
    answer = house.client("key-dora").get("/api/datasets")

    orders, open_data = answer.json()["items"]
    assert (False, True) == (orders["permitted"], open_data["permitted"])
    assert ["since", "floor", "states"] == [each["name"] for each in orders["parameters"]]
    assert [{"value": "new", "label": "New"}, {"value": "paid", "label": "Paid"}] == orders["parameters"][2]["choices"]
    assert orders["columns"] is None, "a source is not asked for those who may not"
    assert [{"key": "id", "header": "id", "type": None}] == open_data["columns"]
    assert ["csv", "json", "ndjson"] == [each["name"] for each in orders["formats"]]
    assert "gzip" in [each["value"] for each in orders["formats"][0]["compressions"]]
    assert "select" not in answer.text
    assert "requester_tenant" not in answer.text
    assert "shop" not in answer.text


def test_a_source_that_does_not_answer_holds_up_the_catalogue_once_and_not_for_each_dataset(house):
    """A server that takes connections and says nothing, as one behind a broken network."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        house.shop = f"postgresql://amina@127.0.0.1:{silent.getsockname()[1]}/shop?connect_timeout=2"
        answers = [house.client("key-amina").get("/api/datasets").json()["items"] for _ in range(2)]
        silent.settimeout(0)
        came = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                silent.accept()
                came += 1

    assert [[None, None]] * 2 == [[each["columns"] for each in answer] for answer in answers]
    assert 1 == came


def test_columns_are_those_that_can_be_asked_for(house):
    client = house.client("key-amina")
    orders = client.get("/api/datasets").json()["items"][0]

    asked = client.post("/api/exports", json={**ASKED, "columns": ["total"]})

    assert [("id", "Number", "integer"), ("total", "total", None)] == [
        (each["key"], each["header"], each["type"]) for each in orders["columns"]
    ]
    assert (202, ["total"]) == (asked.status_code, asked.json()["columns"])


def test_a_body_is_limited_by_the_setting(house):
    house.doors = DoorLimits(body_bytes=10)

    refused = house.client("key-amina").post("/api/exports", json=ASKED)

    assert 413 == refused.status_code


def test_what_the_store_holds_is_what_was_sent(house):
    house.client("key-amina").post("/api/exports", json={**ASKED, "parameters": {"floor": 0.1}})

    held, run = house.claim()

    assert "amina" == run.account
    assert Decimal("0.1") == Decimal(run.parameters["floor"])
    assert held.id == run.id


def test_what_was_accepted_is_answered_as_accepted_although_the_store_then_falls_silent(house, monkeypatch):
    """Its place in the queue is not known, and says so; who only looks is told that the store does not answer."""

    def silent(_self, _run):
        raise StoreUnavailable("it restarts")

    client = house.client("key-amina")
    monkeypatch.setattr(Exports, "queue_position", silent)
    asked = client.post("/api/exports", json={"dataset": "orders", "format": "csv"})
    looked = client.get(asked.headers["location"])
    cancelled = client.delete(asked.headers["location"])
    monkeypatch.undo()

    assert (202, "queued", None) == (asked.status_code, asked.json()["state"], asked.json()["queue_position"])
    assert 503 == looked.status_code
    assert (200, "cancelled", None) == (
        cancelled.status_code, cancelled.json()["state"], cancelled.json()["queue_position"],
    )  # fmt: skip
    assert "cancelled" == client.get(asked.headers["location"]).json()["state"]


def test_a_file_that_was_removed_is_answered_as_removed_although_the_store_then_falls_silent(house, monkeypatch):
    client = house.client("key-amina")
    run = house.ready(client)

    def silent(_self, _run):
        raise StoreUnavailable("it restarts")

    monkeypatch.setattr(Exports, "queue_position", silent)
    removed = client.post(f"/api/exports/{run['token']}/expire")

    assert (200, "expired") == (removed.status_code, removed.json()["state"])

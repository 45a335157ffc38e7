"""What is wrong with a request is told all at once, and an answer never grows with what was sent."""

from __future__ import annotations

import pytest

from haulage.core.catalogue import Dataset, Parameter
from haulage.web.problem import DETAIL_MAX, FAULTS_MAX, POINTER_MAX

pytestmark = pytest.mark.slow

ORDERS = {"dataset": "orders", "format": "csv"}


def faults(answer):
    assert (422, "invalid") == (answer.status_code, answer.json()["code"]), answer.text
    return [each["pointer"] for each in answer.json()["errors"]]


def test_every_fault_of_a_request_is_named_with_a_pointer(house):
    """Of its address, its headers, the shape of its body and what the body means."""
    body = {
        "dataset": "orders", "format": "xml", "compression": "rar", "columns": ["id", "nothing"],
        "parameters": {"since": "yesterday", "floor": {}, "a/b~c": 1}, "group_by": ["x"], "stat": 1,
    }  # fmt: skip

    answer = house.client("key-amina").post("/api/exports?dry=1", json=body, headers={"Idempotency-Key": "x" * 201})

    assert {
        "/query/dry", "/header/Idempotency-Key", "/stat", "/group_by/0", "/format", "/compression",
        "/columns/0", "/columns/1", "/parameters/since", "/parameters/floor", "/parameters/a~1b~0c",
    } == set(faults(answer))  # fmt: skip
    assert 11 == len(faults(answer)), "each once"


def test_every_option_that_cannot_be_used_is_named(house):
    options = {"dialect": "martian", "colour": "red", "number": 1}

    answer = house.client("key-amina").post("/api/exports", json={**ORDERS, "options": options})

    assert {"/options/dialect", "/options/colour", "/options/number"} == set(faults(answer))


@pytest.mark.parametrize(
    ("wrong", "pointers"),
    [
        ({"parameters": "since"}, ["/parameters"]),
        ({"parameters": {"since": {"day": 1}}}, ["/parameters/since"]),
        ({"columns": ["id", 7]}, ["/columns/1"]),
        ({"format": None}, ["/format"]),
        ({"options": []}, ["/options"]),
        ({"compression": 1, "stat": 1}, ["/compression", "/stat"]),
    ],
)
def test_what_could_not_be_used_is_not_missed_as_well(house, wrong, pointers):
    answer = house.client("key-amina").post("/api/exports", json={**ORDERS, **wrong})

    assert pointers == faults(answer)


@pytest.mark.parametrize("given", [{"day": {}}, [], "2026-01-01", {"day": [[1]]}])
def test_a_value_that_could_not_be_used_is_not_said_to_be_missing(house, given):
    house.catalogue.add(Dataset("days", "shop", sql="select :day as day", parameters=(Parameter("day", "date"),)))
    client = house.client("key-amina")

    missing = client.post("/api/exports", json={"dataset": "days"})
    unusable = client.post("/api/exports", json={"dataset": "days", "parameters": given})

    assert ["/parameters/day"] == faults(missing)
    assert ["/parameters/day" if isinstance(given, dict) else "/parameters"] == faults(unusable)


@pytest.mark.parametrize(("key", "name"), [("key-amina", "nothing"), ("key-dora", "orders")])
def test_a_dataset_that_cannot_be_had_is_one_of_the_faults(house, key, name):
    client = house.client(key)

    alone = client.post("/api/exports", json={"dataset": name})
    with_another = client.post("/api/exports", json={"dataset": name, "stat": 1})

    assert alone.status_code in (403, 404)
    assert ["/stat", "/dataset"] == faults(with_another)


def test_nothing_is_written_for_a_request_of_which_most_can_be_used(house):
    client = house.client("key-amina")

    refused = client.post("/api/exports", json={**ORDERS, "stat": 1}, headers={"Idempotency-Key": "k"})
    taken = client.post("/api/exports", json=ORDERS, headers={"Idempotency-Key": "k"})
    again = client.post("/api/exports", json={**ORDERS, "stat": 1}, headers={"Idempotency-Key": "k"})

    assert ["/stat"] == faults(refused) == faults(again), "what can be used of it is no other request's replay"
    assert 202 == taken.status_code, "the key of a refused request is kept by nobody"


MANY = 5_000  # names of four letters: as many as fit into a body of 64 KiB
NAMES = [f"{number:04x}" for number in range(MANY)]
MEMBERS = dict.fromkeys(NAMES, "")
QUERY = "=&".join(NAMES) + "="
SENT = {
    "members": (lambda client: client.post("/api/exports", json={**ORDERS, **MEMBERS}), MANY),
    "parameters": (lambda client: client.post("/api/exports", json={**ORDERS, "parameters": MEMBERS}), MANY),
    "options": (lambda client: client.post("/api/exports", json={**ORDERS, "options": MEMBERS}), MANY),
    "columns": (lambda client: client.post("/api/exports", json={**ORDERS, "columns": NAMES[:1_000]}), 1_000),
    "a sign-in": (lambda client: client.post("/api/session", json={"key": "k", **MEMBERS}), MANY),
    "a query": (lambda client: client.post(f"/api/exports?{QUERY}", json=ORDERS), MANY),
    "a list": (lambda client: client.get(f"/api/exports?{QUERY}"), MANY),
    "another list": (lambda client: client.get(f"/api/datasets?{QUERY}"), MANY),
    "counts": (lambda client: client.get(f"/api/datasets/orders/counts?{QUERY}"), MANY),
}


@pytest.mark.parametrize(("send", "count"), SENT.values(), ids=SENT.keys())
def test_thousands_of_faults_are_counted_and_not_listed(house, send, count):
    answer = send(house.client("key-amina"))

    assert FAULTS_MAX + 1 == len(faults(answer))
    assert {"pointer": "", "detail": f"and {count - FAULTS_MAX:,} more"} == answer.json()["errors"][-1]
    assert len(answer.content) < 16_000


LONG = "n" * 30_000
LONGS = {
    "a member": {**ORDERS, LONG: 1},
    "a parameter": {**ORDERS, "parameters": {LONG: 1}},
    "an option": {**ORDERS, "options": {LONG: LONG}},
    "an option's value": {**ORDERS, "options": {"dialect": LONG}},
    "a column": {**ORDERS, "columns": [LONG]},
    "a format": {**ORDERS, "format": LONG},
    "a value": {**ORDERS, "parameters": {"states": [LONG]}},
}


@pytest.mark.parametrize("body", LONGS.values(), ids=LONGS.keys())
def test_a_long_name_is_not_sent_back_whole(house, body):
    answer = house.client("key-amina").post("/api/exports", json=body)

    (found,) = answer.json()["errors"]
    assert len(found["pointer"]) <= POINTER_MAX
    assert len(found["detail"]) <= DETAIL_MAX
    assert len(answer.content) < 2_000


def test_a_name_that_fits_is_sent_back_whole(house):
    name = "n" * (POINTER_MAX - 1)

    assert [f"/{name}"] == faults(house.client("key-amina").post("/api/exports", json={**ORDERS, name: 1}))


def test_limit_and_cursor_of_a_list_are_told_together(house):
    assert {"/query/limit", "/query/cursor"} == set(
        faults(house.client("key-amina").get("/api/exports?limit=0&cursor=x" + "x" * 600))
    )

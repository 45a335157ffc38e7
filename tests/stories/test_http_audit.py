"""Who did what to which run, and who was kept from it: one line each, told once, and none that a value can forge."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime

import pytest

pytestmark = pytest.mark.slow

ASKED = {"dataset": "orders"}


def told(house):
    """What the log was told since the last time, as short words."""
    seen, house.events[:] = list(house.events), []
    return [
        (type(each).__name__, each.tenant, each.account, getattr(each, "run", None) or (each.code, each.what))
        for each in seen
    ]


def test_every_deed_is_told_with_who_did_it_to_which_run(house):
    owner = house.browser("key-amina")
    asked = owner.post("/api/exports", json=ASKED).json()
    made = told(house)
    owner.delete(f"/api/exports/{asked['token']}")
    cancelled = told(house)
    run = house.ready(owner)
    told(house)
    owner.get(house.link(owner, run))
    served = told(house)
    owner.post(f"/api/exports/{run['token']}/expire")
    removed = told(house)

    assert [("RunRequested", "north", "amina", asked["id"])] == made
    assert [("CancelRequested", "north", "amina", asked["id"])] == cancelled
    assert [("FileServed", "north", "amina", run["id"])] == served
    assert [("ExpiryRequested", "north", "amina", run["id"])] == removed


@pytest.mark.parametrize(
    ("key", "method", "path", "code"),
    [
        ("key-ben", "GET", "/exports/{token}", "not_found"),
        ("key-chloe", "DELETE", "/exports/{token}", "not_found"),
        ("key-ben", "POST", "/exports/{token}/file", "not_found"),
        ("key-ben", "POST", "/exports/{token}/expire", "not_found"),
        ("key-ben", "GET", "/exports/{token}/events", "not_found"),
        ("key-ben", "GET", "/files/{token}", "not_found"),
        ("key-ben", "GET", "/workers", "forbidden"),
        ("key-ben", "GET", "/metrics", "forbidden"),
        ("key-ben", "GET", "/exports?everyone=true", "forbidden"),
        ("key-dora", "GET", "/datasets/orders/counts", "forbidden"),
        ("key-unknown", "GET", "/exports", "unauthenticated"),
        (None, "POST", "/exports", "unauthenticated"),
        (None, "GET", "/session", "unauthenticated"),
    ],
)
def test_who_is_kept_from_something_is_told_without_the_token(house, key, method, path, code):
    run = house.ready(house.browser("key-amina"))
    client, place = house.client(key), "/api" + path.format(token=run["token"])
    house.events.clear()

    refused = client.request(method, place)

    who = house.people.keys.get(key)
    tenant, account = (who.tenant, who.account) if who else ("", "")
    ((kind, *whose, (said, what)),) = told(house)
    assert code == refused.json()["code"]
    assert ("RequestRefused", [tenant, account], code) == (kind, whose, said)
    assert re.match(rf"{method} /\S+", what)
    assert run["token"] not in what
    assert (" from testclient" in what) == (who is None)


def test_a_request_of_another_site_and_a_guess_are_told(house):
    reader = house.browser("key-amina")
    house.events.clear()

    reader.post("/api/exports", json=ASKED, headers={"X-CSRF-Token": ""})
    house.client().post("/api/session", json={"key": "guess"})

    assert [
        ("RequestRefused", "north", "amina", ("csrf", "POST /exports")),
        ("RequestRefused", "", "", ("unauthenticated", "POST /session from testclient")),
    ] == told(house)


def test_what_is_refused_is_told_once_and_what_is_only_not_there_is_not(house):
    owner, stranger = house.client("key-amina"), house.client()
    owner.post("/api/exports", json={"dataset": "nothing"})
    house.people.change("amina", grants=frozenset())
    owner.post("/api/exports", json=ASKED)
    told_of_requests = told(house)

    stranger.get("/page/nothing.js")
    stranger.get("/nothing")
    owner.get("/api/exports?limit=0")

    assert [("not_found", "export nothing"), ("forbidden", "export orders")] == [each[3] for each in told_of_requests]
    assert [] == told(house)


def test_a_line_is_one_line_in_utc_whatever_stands_in_it():
    script = (
        "from haulage.core.events import RunRequested; from haulage.telemetry.log import log, to_stderr; to_stderr(); "
        "log(RunRequested('export', 'id', 'nor\\r\\nth', 'a\\u2028\\u0085mina', '{\"event\": \"forged\"}'))"
    )
    before = datetime.now(UTC)
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "TZ": "Asia/Tokyo"}, capture_output=True, check=True
    )

    time, level, message = done.stderr.decode("ascii").split(" ", 2)
    assert 1 == len(done.stderr.decode().splitlines())
    assert before.replace(microsecond=0) <= datetime.fromisoformat(time) <= datetime.now(UTC)
    assert time.endswith("Z")
    assert ("INFO", "RunRequested", "nor\r\nth") == (level, json.loads(message)["event"], json.loads(message)["tenant"])

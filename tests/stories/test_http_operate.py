"""For whoever runs it: who is alive, what is used, whether it can serve, and what becomes of the unexpected."""

from __future__ import annotations

import logging
import re
from dataclasses import replace

import anyio
import pytest

from haulage.core.errors import StoreUnavailable
from haulage.web.background import SweepThread
from haulage.web.operate import Readiness
from haulage.web.redact import RedactTokens, redacted

pytestmark = pytest.mark.slow

ASKED = {"dataset": "orders"}


def test_the_operator_sees_workers_and_slots(house):
    house.client("key-amina").post("/api/exports", json=ASKED)
    house.client("key-chloe").post("/api/exports", json=ASKED)
    house.claim()

    seen = house.client("key-omar").get("/api/workers").json()
    house.passes(house.limits.presence_seconds + 1)
    later = house.client("key-omar").get("/api/workers").json()

    assert ["worker-1"] == [each["id"] for each in seen["items"]]
    assert ({"total": 2, "taken": 1}, 1) == (seen["slots"], seen["waiting"])
    assert [] == later["items"]


def test_others_do_not_see_workers_and_metrics(house):
    client = house.client("key-amina")

    for path in ("/api/workers", "/api/metrics"):
        assert (403, "forbidden") == (client.get(path).status_code, client.get(path).json()["code"])


def test_storage_is_ones_own_and_all_of_it_for_the_operator(house):
    house.ready(house.client("key-amina"), b"x" * 100)
    house.ready(house.client("key-chloe"), b"x" * 11)

    own = house.client("key-amina").get("/api/storage").json()
    all_of_it = house.client("key-omar").get("/api/storage").json()

    assert {"used_bytes": None, "reserved_bytes": None, "budget_bytes": None, "own_bytes": 100} == own
    expected = {"used_bytes": 111, "reserved_bytes": 0, "budget_bytes": house.limits.store_bytes, "own_bytes": 0}
    assert expected == all_of_it


def test_metrics_are_counted_and_name_nobody(house):
    house.ready(house.client("key-amina"))
    house.client("key-chloe").post("/api/exports", json=ASKED)

    answer = house.client("key-omar").get("/api/metrics")

    assert "text/plain; version=0.0.4; charset=utf-8" == answer.headers["content-type"]
    values = dict(line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#"))
    assert ("1", "1", "0") == tuple(
        values[f'haulage_runs{{flow="export",state="{s}"}}'] for s in ("ready", "queued", "failed")
    )
    assert "1" == values['haulage_workers{state="claiming"}']
    assert "18" == values['haulage_storage_bytes{kind="stored"}']
    assert "1" == values['haulage_info{version="1.2.3"}']
    for name in ("north", "south", "amina", "chloe", "worker-1", "host-1"):
        assert name not in answer.text
    for line in answer.text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) haulage_\w+ .+|haulage_\w+(\{(\w+=\"[^\"]*\",?)+\})? \d+", line), line


def test_it_is_ready_without_a_worker_and_says_how_many_live(house):
    with_one = house.client().get("/api/health/ready")
    house.store.workers.leave("worker-1")
    without = house.client(app=house.app()).get("/api/health/ready")  # an answer is kept for two seconds

    assert (200, 1) == (with_one.status_code, with_one.json()["workers"])
    assert (200, 0) == (without.status_code, without.json()["workers"])
    assert 200 == house.client().get("/api/health/live").status_code


@pytest.mark.parametrize("failing", ["store", "schema", "artifacts"])
def test_it_is_not_ready_without_what_it_needs(house, monkeypatch, failing):
    def silent():
        raise StoreUnavailable(f"no answer from {house.folder}")

    def full():
        raise OSError(28, "No space left", str(house.folder))

    if failing == "store":
        monkeypatch.setattr(house.store, "schema", silent)
    elif failing == "schema":
        schema = house.store.schema()
        monkeypatch.setattr(house.store, "schema", lambda: replace(schema, version=0))
    else:
        monkeypatch.setattr(house.artifacts, "check", full)
    client = house.client()

    answer = client.get("/api/health/ready")

    assert (503, "not_serving") == (answer.status_code, answer.json()["code"])
    assert "failing" == answer.json()["checks"][failing]
    assert "application/problem+json" == answer.headers["content-type"]
    assert str(house.folder) not in answer.text
    assert 200 == client.get("/api/health/live").status_code


def test_readiness_is_looked_at_at_most_every_two_seconds(house, monkeypatch):
    looks, seconds = [], 0.0
    monkeypatch.setattr(house.artifacts, "check", lambda: looks.append(1))
    readiness, services = Readiness(lambda: seconds), house.services()
    anyio.run(readiness.look, services)
    seconds = 1.9
    anyio.run(readiness.look, services)
    seconds = 2.0
    anyio.run(readiness.look, services)

    assert 2 == len(looks)


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/api/exports"), ("POST", "/api/exports"), ("GET", "/api/storage"), ("GET", "/api/session")],
)
def test_a_silent_store_is_503_and_never_a_refusal(house, monkeypatch, method, path):
    def silent(*_args, **_how):
        raise StoreUnavailable("OperationalError: unable to open /srv/haulage.db")

    reader = house.browser("key-amina")
    for place in (house.store.sessions, house.store.exports):
        monkeypatch.setattr(place, "find" if hasattr(place, "find") else "list", silent)
    monkeypatch.setattr(house.store, "begin", silent)

    answer = reader.request(method, path, **({"json": ASKED} if method == "POST" else {}))

    assert (503, "store_unavailable", "2") == (answer.status_code, answer.json()["code"], answer.headers["retry-after"])
    assert "/srv" not in answer.text
    assert any(type(event).__name__ == "StoreFailed" for event in house.events)


def test_the_unexpected_has_a_number_and_the_log_has_the_rest(house, monkeypatch):
    def breaks(*_args, **_how):
        raise RuntimeError("select * from secrets where key = 'hk_abc'")

    client = house.client("key-amina")
    monkeypatch.setattr(house.store.exports, "list", breaks)

    answer = client.get("/api/exports")
    head = client.head("/api/exports")

    told = next(event for event in house.events if type(event).__name__ == "Incident")
    assert (500, "internal", told.number) == (answer.status_code, answer.json()["code"], answer.json()["incident"])
    assert 500 == head.status_code
    assert "GET /exports" == told.where
    assert "secrets" in told.problem
    assert "secrets" not in answer.text
    assert "nosniff" == answer.headers["x-content-type-options"]


def test_an_incident_does_not_name_the_token_it_happened_at(house, monkeypatch):
    def breaks(*_args, **_how):
        raise RuntimeError("broken")

    client = house.client("key-amina")
    run = house.ready(client)
    monkeypatch.setattr(house.store.exports, "get", breaks)
    client.get(f"/api/exports/{run['token']}")

    assert run["token"] not in str(house.events)


def test_a_sweep_that_fails_is_told_and_not_the_last(house):
    failures = [StoreUnavailable("busy"), RuntimeError("broken")]
    swept, told = [], []

    def sweep():
        if failures:
            raise failures.pop(0)
        swept.append(1)
        thread.stop()

    thread = SweepThread(sweep, 0, told.append)
    thread._seconds = 0.001
    thread.start()
    thread.start()
    assert thread._ended.wait(60)

    assert ["StoreFailed", "Incident"] == [type(event).__name__ for event in told]
    assert [1] == swept
    assert 1.0 == SweepThread(sweep, 0.2, told.append)._seconds, "at most one pass a second"


def test_a_request_starts_the_sweep_and_never_waits_for_it(house):
    house.limits = replace(house.limits, sweep_seconds=1)
    client = house.client()
    before = house.sweeps.acquire(blocking=False)
    client.get("/api/health/live")

    assert not before
    assert house.sweeps.acquire(timeout=60)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/api/exports/abc.def", "/api/exports/…"),
        ("/haulage/exports/abc.def/file?x=1", "/haulage/exports/…/file?x=1"),
        ("/files/abc.def", "/files/…"),
        ("/?sign_in=abc&x=1", "/?sign_in=…&x=1"),
        ("/api/exports?limit=1&cursor=abc", "/api/exports?limit=1&cursor=…"),
        ("/api/exports?state=ready", "/api/exports?state=ready"),
        ("/page/haulage.js", "/page/haulage.js"),
    ],
)
def test_paths_are_logged_without_tokens(path, shown):
    assert shown == redacted(path)


def test_the_access_log_of_the_server_holds_no_token(house, caplog):
    house.app()
    logger = logging.getLogger("uvicorn.access")
    assert 1 == sum(isinstance(each, RedactTokens) for each in logger.filters)
    line = '%s - "%s %s HTTP/%s" %d'
    with caplog.at_level(logging.INFO, logger="uvicorn.access"):
        logger.addHandler(caplog.handler)
        logger.info(line, "127.0.0.1:1", "GET", "/api/files/abc.def", "1.1", 200)
        logger.removeHandler(caplog.handler)

    assert "/api/files/…" in caplog.text
    assert "abc.def" not in caplog.text

"""Many clients at one moment: equal requests are one run, no limit is overshot, and a count ends with its client."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace

import pytest

from haulage.core.catalogue import Dataset
from haulage.core.limits import BuildLimits, ExportLimits
from haulage.sources.sqlite import SqliteSnapshot

pytestmark = pytest.mark.slow

CLIENTS = 8
ASKED = {"dataset": "orders"}


def at_once(house, ask):
    """What ``ask(client, number)`` answers to so many clients who all begin together."""
    app = house.app()
    clients = [house.client("key-amina", app=app) for _ in range(CLIENTS)]
    ready, answers = threading.Barrier(CLIENTS), []

    def work(number):
        ready.wait(60)
        answers.append(ask(clients[number], number))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert CLIENTS == len(answers)
    return answers


def statuses(answers):
    return Counter(answer.status_code for answer in answers)


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "click-1"}], ids=["without a key", "with one key"])
def test_equal_requests_are_one_run(house, headers):
    answers = at_once(house, lambda client, _: client.post("/api/exports", json=ASKED, headers=headers))

    assert {202: 1, 200: CLIENTS - 1} == statuses(answers)
    assert 1 == len({answer.json()["id"] for answer in answers})
    assert 1 == len(house.client("key-amina").get("/api/exports").json()["items"])


def test_one_key_with_different_requests_stands_for_the_one_that_came_first(house):
    answers = at_once(
        house,
        lambda client, number: client.post(
            "/api/exports", json={**ASKED, "parameters": {"floor": number}}, headers={"Idempotency-Key": "click-1"}
        ),
    )

    assert {202: 1, 409: CLIENTS - 1} == statuses(answers)
    assert 1 == len(house.client("key-amina").get("/api/exports").json()["items"])


@pytest.mark.parametrize(("limit", "status"), [("tenant_queued", 429), ("queued", 503)])
@pytest.mark.parametrize("allowed", [CLIENTS - 3, CLIENTS - 1, CLIENTS])
def test_no_more_runs_wait_than_may(house, limit, status, allowed):
    house.limits = replace(ExportLimits(), **{limit: allowed})

    answers = at_once(
        house, lambda client, number: client.post("/api/exports", json={**ASKED, "parameters": {"floor": number}})
    )

    assert Counter({202: allowed}) + Counter({status: CLIENTS - allowed}) == statuses(answers)
    assert allowed == house.store.exports.waiting()


def test_of_many_who_end_a_run_one_changes_it(house):
    client = house.client("key-amina")
    ready = house.ready(client)
    waiting = client.post("/api/exports", json={**ASKED, "format": "json"}).json()

    expired = at_once(house, lambda each, _: each.post(f"/api/exports/{ready['token']}/expire"))
    cancelled = at_once(house, lambda each, _: each.delete(f"/api/exports/{waiting['token']}"))

    assert {200: 1, 409: CLIENTS - 1} == statuses(expired)
    assert {"cancelled"} == {answer.json()["state"] for answer in cancelled}
    assert {200, 409} >= statuses(cancelled).keys()
    assert [ready["revision"] + 1, waiting["revision"] + 1] == [house.row(ready).revision, house.row(waiting).revision]


def test_a_count_ends_when_its_client_goes_away(house, serve, monkeypatch):
    """The statement has no end, and its own time is longer than this test."""
    house.limits = ExportLimits(build=BuildLimits(count_seconds=600))
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select i from n"
    house.catalogue.add(Dataset("endless", "shop", sql=endless))
    began, ended, count = threading.Event(), threading.Event(), SqliteSnapshot.count

    def counting(*asked, **how):
        began.set()
        try:
            return count(*asked, **how)
        finally:
            ended.set()

    monkeypatch.setattr(SqliteSnapshot, "count", counting)
    with serve(house.app()) as server:
        connection = server.connect("GET", "/api/datasets/endless/counts", {"Authorization": "Bearer key-amina"})
        assert began.wait(60)
        still = not ended.wait(0.3)
        connection.close()

        assert still
        assert ended.wait(60)

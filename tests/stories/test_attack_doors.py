"""What an attacker tried and what must not work: filling the loop, the threads, or the count of guesses."""

from __future__ import annotations

import threading
import time

import anyio
import anyio.to_thread
import httpx2
import pytest
from starlette.requests import Request

from haulage.core import events
from haulage.core.limits import BuildLimits, ExportLimits
from haulage.core.requester import Requester
from haulage.exports.counts import Counts
from haulage.web.attempts import MISSES_MAX, Attempts
from haulage.web.datasets import COUNTS_AT_ONCE, COUNTS_IN_ALL, _given

pytestmark = pytest.mark.slow

NAMES = 15_000  # three letters each: a query string of 64 KiB, the longest that the server takes


def test_thousands_of_names_in_a_query_do_not_hold_the_loop(house):
    query = "&".join(f"{n:03x}" for n in range(NAMES))
    request = Request({"type": "http", "method": "GET", "query_string": query.encode(), "headers": []})
    asking = type("Asking", (), {"services": house.services()})
    began = time.process_time()

    given = _given(request, asking, "orders")

    assert NAMES == len(given.parameters)
    assert time.process_time() - began < 4, "it ran for 8 s, once a look-up a name"


def test_names_of_a_query_may_be_repeated(house):
    counted = house.client("key-amina").get("/api/datasets/orders/counts?states=new&states=paid&since=2020-01-01")
    one = house.client("key-amina").get("/api/datasets/orders/counts?states=new")
    twice = house.client("key-amina").get("/api/datasets/orders/counts?since=2020-01-01&since=2020-01-02")

    assert (200, 200, 422) == (counted.status_code, one.status_code, twice.status_code)


def test_it_says_that_it_lives_while_every_thread_waits(house):
    transport = httpx2.ASGITransport(app=house.app())
    go_on = threading.Event()

    async def attack():
        every = int(anyio.to_thread.current_default_thread_limiter().total_tokens)
        async with anyio.create_task_group() as waiting:
            for _ in range(every):
                waiting.start_soon(anyio.to_thread.run_sync, go_on.wait, 60)
            try:
                await anyio.wait_all_tasks_blocked()
                async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
                    with anyio.fail_after(30):
                        return await client.get("/api/health/live")
            finally:
                go_on.set()

    assert 200 == anyio.run(attack).status_code


def test_guesses_sent_at_once_are_counted_like_others(house):
    app = house.app()
    app.state.attempts = Attempts(pause_seconds=0.2)
    transport = httpx2.ASGITransport(app=app)
    answers = []

    async def attack():
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:

            async def guess(number):
                answers.append((await client.post("/api/session", json={"key": f"guess-{number}"})).status_code)

            async with anyio.create_task_group() as guesses:
                for number in range(3 * MISSES_MAX):
                    guesses.start_soon(guess, number)

    anyio.run(attack)

    assert (MISSES_MAX, 2 * MISSES_MAX) == (answers.count(401), answers.count(429))


def test_the_counts_of_one_tenant_leave_places_for_others(house):
    house.limits = ExportLimits(build=BuildLimits(count_seconds=0.5))
    app = house.app()
    go_on = threading.Event()

    def slow(requester, *_args, **_how):
        if requester.tenant == "north":
            go_on.wait(60)
        return Counts(None, 5, None)

    app.state.haulage.services.exports.counts = slow
    transport = httpx2.ASGITransport(app=app)
    answers = {"amina": [], "chloe": []}

    async def count(client, who):
        headers = {"Authorization": f"Bearer key-{who}"}
        answers[who].append((await client.get("/api/datasets/orders/counts", headers=headers)).status_code)

    async def attack():
        async with (
            httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
            anyio.create_task_group() as counting,
        ):
            for _ in range(COUNTS_IN_ALL):
                counting.start_soon(count, client, "amina")
            await anyio.sleep(0.2)
            await count(client, "chloe")
            with anyio.move_on_after(50):
                while len(answers["amina"]) < COUNTS_IN_ALL - COUNTS_AT_ONCE:  # noqa: ASYNC110 - refused, in their time
                    await anyio.sleep(0.01)
            go_on.set()

    anyio.run(attack)

    assert [200] == answers["chloe"]
    assert [200] * COUNTS_AT_ONCE + [503] * (COUNTS_IN_ALL - COUNTS_AT_ONCE) == sorted(answers["amina"])


@pytest.mark.parametrize("path", ["/api/session", "/api/exports"])
def test_a_client_that_leaves_in_the_middle_of_a_body_is_no_incident(house, path):
    headers = [(b"host", b"localhost"), (b"authorization", b"Bearer key-amina"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers, "scheme": "http"}
    heard = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])

    async def receive():
        return next(heard)

    async def send(_message):
        pass

    anyio.run(house.app(), scope, receive, send)

    assert [] == [each for each in house.events if isinstance(each, events.Incident)]


@pytest.mark.parametrize("scheme", ["Basic dTpw", "Negotiate YII=", ""])
def test_what_a_browser_adds_by_itself_is_no_stand_in_for_the_csrf_token(house, scheme):
    who = Requester("north", "amina", frozenset({"orders.read"}), "of the host")
    client = house.client(app=house.app(authenticate=lambda _request: who))
    headers = {"Authorization": scheme, "Cookie": "host=1"}
    shown = client.get("/session", headers=headers).json()

    forged = client.post("/exports", json={"dataset": "orders"}, headers=headers)
    own = client.post("/exports", json={"dataset": "orders"}, headers={**headers, "X-CSRF-Token": shown["csrf"] or ""})
    program = client.post("/exports", json={"dataset": "orders"}, headers={**headers, "Authorization": "Bearer k"})

    assert (403, "csrf") == (forged.status_code, forged.json()["code"])
    assert (202, 200) == (own.status_code, program.status_code)

"""What an attacker tried and what must not work: filling the loop, the threads, or the count of guesses."""

from __future__ import annotations

import threading
import time

import anyio
import anyio.to_thread
import httpx2
from starlette.requests import Request

from haulage.web.attempts import MISSES_MAX, Attempts
from haulage.web.datasets import _given

NAMES = 15_000  # three letters each: a query string of 64 KiB, the longest that the server takes


def test_thousands_of_names_in_a_query_do_not_hold_the_loop(house):
    query = "&".join(f"{n:03x}" for n in range(NAMES))
    request = Request({"type": "http", "method": "GET", "query_string": query.encode(), "headers": []})
    asking = type("Asking", (), {"services": house.services()})
    began = time.process_time()

    given = _given(request, asking, "orders")

    assert NAMES == len(given)
    assert time.process_time() - began < 1, "it ran for 8 s, once a look-up a name"


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
                waiting.start_soon(anyio.to_thread.run_sync, go_on.wait, 10)
            try:
                await anyio.wait_all_tasks_blocked()
                async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
                    with anyio.fail_after(5):
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

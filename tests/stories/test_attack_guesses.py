"""Guessing keys: slowed down and stopped by address, whichever way a key is shown; nobody else is shut out by it."""

from __future__ import annotations

import anyio
import httpx2
import pytest

from haulage.core.errors import Refused
from haulage.web.attempts import CLIENTS_MAX, MISSES_MAX, PAUSES_MAX, REST_SECONDS, Attempts

pytestmark = pytest.mark.slow

HERE, THERE = "192.0.2.1", "192.0.2.2"


class Guesser:
    """A program at an address; time stands still until a test moves it."""

    def __init__(self, house):
        self.seconds = 0.0
        self.app = house.app()
        self.app.state.attempts = Attempts(lambda: self.seconds, pause_seconds=0)

    def _send(self, address, method, path, **how):
        async def send():
            transport = httpx2.ASGITransport(app=self.app, client=(address, 4711))
            async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await client.request(method, path, **how)

        return anyio.run(send)

    def bearer(self, key, address=HERE, path="/api/session"):
        return self._send(address, "GET", path, headers={"Authorization": f"Bearer {key}"})

    def sign_in(self, key, address=HERE):
        return self._send(address, "POST", "/api/session", json={"key": key})


@pytest.fixture
def guesser(house):
    return Guesser(house)


WAYS = pytest.mark.parametrize("way", ["bearer", "sign_in"])


@WAYS
def test_after_ten_misses_an_address_rests_for_a_minute(guesser, way):
    send = getattr(guesser, way)
    misses = [send(f"guess-{number}").status_code for number in range(MISSES_MAX)]

    over, right = send("guess-more"), send("key-amina")
    guesser.seconds = REST_SECONDS + 0.1
    later = send("key-amina")

    assert [401] * MISSES_MAX == misses
    for rested in (over, right):
        assert (429, "too_many_attempts", "61") == (
            rested.status_code, rested.json()["code"], rested.headers["retry-after"],
        )  # fmt: skip
    assert 200 == later.status_code


def test_both_ways_of_guessing_are_counted_together(guesser):
    for number in range(MISSES_MAX // 2):
        guesser.bearer(f"guess-{number}")
        guesser.sign_in(f"guess-{number}")

    assert [429, 429] == [guesser.bearer("more").status_code, guesser.sign_in("more").status_code]


@pytest.mark.parametrize("path", ["/api/exports", "/api/datasets/orders/counts", "/api/files/x.y", "/api/metrics"])
def test_a_key_is_guessed_nowhere_else(guesser, path):
    for number in range(MISSES_MAX):
        guesser.bearer(f"guess-{number}", path=path)

    assert [429, 429] == [guesser.bearer("more", path=path).status_code, guesser.bearer("more").status_code]


@WAYS
def test_another_address_is_not_shut_out(guesser, way):
    for number in range(MISSES_MAX):
        guesser.bearer(f"guess-{number}")

    assert 200 == getattr(guesser, way)("key-amina", THERE).status_code


@WAYS
def test_a_program_with_an_old_key_does_not_shut_out_the_others_of_its_host(guesser, way):
    send = getattr(guesser, way)
    before = send("key-ben")
    for _ in range(MISSES_MAX):
        guesser.bearer("an-old-key")

    assert [200, 200, 429] == [before.status_code, send("key-ben").status_code, send("key-amina").status_code]


def test_who_holds_a_key_cannot_guess_others_the_longer_for_it(guesser):
    answers = []
    for number in range(2 * MISSES_MAX):
        guesser.sign_in("key-ben")
        guesser.bearer("key-ben")
        answers.append(guesser.bearer(f"guess-{number}").status_code)

    assert [401] * MISSES_MAX + [429] * MISSES_MAX == answers


def test_a_key_that_was_right_and_is_not_any_more_is_a_guess(guesser, house):
    guesser.bearer("key-ben")
    del house.people.keys["key-ben"]
    answers = [guesser.bearer("key-ben").status_code for _ in range(MISSES_MAX + 1)]

    assert [401] * MISSES_MAX + [429] == answers


def test_a_network_of_ipv6_is_one_address(guesser):
    for number in range(MISSES_MAX):
        guesser.bearer("guess", f"2001:db8:0:1::{number:x}")

    answers = [guesser.bearer("guess", address).status_code for address in ("2001:db8:0:1:ffff::", "2001:db8:0:2::")]
    assert [429, 401] == answers


def test_an_address_of_ipv4_is_one_however_it_is_written(guesser):
    for _ in range(MISSES_MAX):
        guesser.bearer("guess", "::ffff:192.0.2.1")

    answers = [guesser.bearer("guess", address).status_code for address in ("192.0.2.1", "::ffff:192.0.2.2")]
    assert [429, 401] == answers


def test_no_key_and_a_cookie_are_no_guess(guesser):
    for _ in range(2 * MISSES_MAX):
        assert 401 == guesser._send(HERE, "GET", "/api/session", headers={"Cookie": "haulage=x"}).status_code

    assert 200 == guesser.bearer("key-amina").status_code


def test_what_is_remembered_is_bounded():
    attempts = Attempts(lambda: 0.0)
    for number in range(CLIENTS_MAX + 10):
        attempts.failed(f"client-{number}", "guess")
        attempts.succeeded(f"client-{number}", "right")

    assert (CLIENTS_MAX, CLIENTS_MAX) == (len(attempts._misses), len(attempts._right))
    for _ in range(MISSES_MAX):
        attempts.admit("client-9999", "guess")
        attempts.failed("client-9999", "guess")
    with pytest.raises(Refused):
        attempts.admit("client-9999", "guess")


def test_guesses_from_everywhere_fill_no_more_than_the_places_to_pause_in(house):
    """A right key from an address of its own never waits for one."""
    app = house.app()
    app.state.attempts = attempts = Attempts(pause_seconds=3_600)

    async def send(address, key):
        transport = httpx2.ASGITransport(app=app, client=(address, 4711))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get("/api/session", headers={"Authorization": f"Bearer {key}"})

    async def attack():
        async with anyio.create_task_group() as guesses:
            for number in range(PAUSES_MAX):
                guesses.start_soon(send, f"198.51.{number >> 8}.{number & 255}", "guess")
            while attempts._pauses < PAUSES_MAX:  # noqa: ASYNC110 - it says so nowhere else
                await anyio.sleep(0.01)
            with anyio.fail_after(60):
                answers = await send(THERE, "guess"), await send(HERE, "key-amina")
            guesses.cancel_scope.cancel()
            return [answer.status_code for answer in answers]

    assert [401, 200] == anyio.run(attack)

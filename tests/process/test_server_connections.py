"""A server ends its connections, as at a restart or behind a firewall: workers live and work on, and doors answer."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

from tests.process.house import AMINA, until
from tests.promises import NotPromised

from haulage.core.errors import StoreUnavailable
from haulage.exports.plan import Asked

OTHERS = {
    "postgresql": "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()",
    "mariadb": "select id from information_schema.processlist where db = database() and id <> connection_id()",
}
END = {"postgresql": "select pg_terminate_backend({})", "mariadb": "kill {}"}


def end_connections(house):
    """End them all; gives how many there were."""
    if house.kind not in OTHERS:
        raise NotPromised("a file has no connections")
    found = house.meddle(OTHERS[house.kind])
    for (number,) in found:
        with contextlib.suppress(Exception):  # It has ended by itself.
            house.meddle(END[house.kind].format(number))
    return len(found)


def answers(house):
    """Say whether our own connections are new ones."""
    try:
        house.store.exports.tally()
        house.store.exports.get("nobody")
    except StoreUnavailable:
        return False
    return True


def test_a_worker_whose_connections_are_ended_while_it_waits_and_while_it_builds_lives_and_works_on(any_house):
    house = any_house
    worker = house.worker()
    ended = []
    for turn in range(3):
        ended.append(end_connections(house))
        until(lambda: answers(house))
        run = house.wait(house.request("names", rows=100 + turn))
        assert "ready" == run.state, worker.stderr.read_text()
    long = house.request("stream", rows=150_000)
    house.wait_for_rows(long)
    ended.append(end_connections(house))
    until(lambda: answers(house))

    assert ("ready", 1) == (house.wait(long).state, house.get(long).claim_no)
    assert min(ended) > 0
    assert worker.process.poll() is None
    assert [] == worker.events("Incident")
    house.assert_whole()


def test_a_door_that_only_takes_requests_is_served_at_the_second_one(any_house):
    """Nothing is read before a request begins to write, so nothing else finds out that the connection is gone."""
    house = any_house
    house.pretend_a_worker()
    with ThreadPoolExecutor(5) as together:
        list(together.map(lambda _: house.store.exports.waiting(), range(50)))
    ended = end_connections(house)
    heard = []
    for rows in range(5):
        try:
            house.exports.accept(AMINA, Asked("names", "csv", {"rows": rows}))
            heard.append(True)
        except StoreUnavailable:
            heard.append(False)

    assert ended > 1
    assert [False, True, True, True, True] == heard

"""A server ends the connections of a worker, as at its restart or behind a firewall: the worker lives and works on."""

from __future__ import annotations

import contextlib

from tests.process.house import until
from tests.promises import NotPromised

from haulage.core.errors import StoreUnavailable

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
    until(lambda: answers(house), 10)  # the tests' own connections were among them
    return len(found)


def answers(house):
    try:
        house.store.exports.tally()
        house.store.exports.get("nobody")
    except StoreUnavailable:
        return False
    return True


def request(house, rows):
    """Ask until the connections of the door itself are new ones."""
    accepted = []

    def asked():
        with contextlib.suppress(StoreUnavailable):
            accepted.append(house.request("names", rows=rows))
        return accepted

    until(asked, 10)
    return accepted[0]


def test_a_worker_whose_connections_are_ended_while_it_waits_and_while_it_builds_lives_and_works_on(any_house):
    house = any_house
    worker = house.worker()
    ended = []
    for turn in range(3):
        ended.append(end_connections(house))
        run = house.wait(request(house, 100 + turn))
        assert "ready" == run.state, worker.stderr.read_text()
    long = house.request("stream", rows=600_000)
    house.wait_for_rows(long)
    ended.append(end_connections(house))

    assert ("ready", 1) == (house.wait(long).state, house.get(long).claim_no)
    assert min(ended) > 0
    assert worker.process.poll() is None
    assert [] == worker.events("Incident")
    house.assert_whole()

"""A server ends its connections, as at a restart or behind a firewall: workers live and work on, and doors answer."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.process.house import AMINA, until
from tests.promises import NotPromised

from haulage.core.errors import StoreUnavailable
from haulage.exports.plan import Asked

OTHERS = {
    "postgresql": "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()",
    "mariadb": "select id from information_schema.processlist where db = database() and id <> connection_id()",
}
ESTABLISHED = "01"  # in /proc/net/tcp
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


def test_a_door_whose_connections_all_ended_while_it_was_idle_is_served_at_the_first_request(any_house):
    """However much later, whichever connection it gets, and whether it reads or writes first: none of them is asked."""
    house = any_house
    if house.kind not in OTHERS:
        raise NotPromised("a file has no connections")
    house.pretend_a_worker()
    exports, sessions = house.store.exports, house.store.sessions
    with ThreadPoolExecutor(5) as together:
        list(together.map(lambda _: exports.waiting(), range(50)))
    exports.get("nobody")
    assert house.store._database.spare  # one that is kept beside the pool
    port = int(house.store_url.rpartition(":")[2].partition("/")[0])
    before = connected(port)
    ended = end_connections(house)
    until(lambda: connected(port) < before, lambda: f"{connected(port)} are open")
    until(lambda: connected(port) == 0, lambda: f"{connected(port)} are open")
    heard = []
    with ThreadPoolExecutor(3) as together:
        heard += together.map(lambda _: exports.get("nobody"), range(3))
    heard.append(sessions.find("nobody"))
    runs = [house.exports.accept(AMINA, Asked("names", "csv", {"rows": rows})).run.id for rows in range(5)]

    assert ended > 1
    assert [None] * 4 == heard
    assert 5 == len(set(runs))


def connected(port):
    """How many connections of this process to a server are open at its end too."""
    ours = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            ours.add(str(entry.readlink()))
    lines = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return sum(
        int(each[2].rpartition(":")[2], 16) == port and each[3] == ESTABLISHED and f"socket:[{each[9]}]" in ours
        for each in lines
    )

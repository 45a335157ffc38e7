"""PostgreSQL behind a proxy that pools transactions: the hint is asked for, and nothing outlives a transaction.

With a real PgBouncer whose three connections are handed on after each of them.
"""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext

import pytest
from tests.conformance.cases import STORES, Case
from tests.conformance.conftest import make_folder
from tests.servers import pgbouncer

from haulage.core.lease import LeaseLost, Pulse
from haulage.flows import FLOWS
from haulage.stores.server import PollWatcher

pytestmark = pytest.mark.slow


class Pooled:
    """The PostgreSQL of the suite, entered through the proxy."""

    def __init__(self):
        self._direct = STORES["postgresql"]

    def url(self, folder):
        self.direct = self._direct.url(folder)
        return self._direct.through(self.direct, pgbouncer.proxy().port) + "?proxy=transaction"

    def done(self):
        self._direct.done(self.direct)


@pytest.fixture
def case():
    opener = Pooled()
    with make_folder() as folder:
        opened = Case(opener, FLOWS[0], folder)
        yield opened
        drift = opened.runs.drift()
        opened.store.close()
        opener.done()

    assert [] == drift


def test_the_life_of_a_run_is_the_same_behind_a_proxy(case):
    """Every other time somebody else is in a transaction, and the proxy hands us another connection than before."""
    other = case.open()
    for number in range(12):  # often enough that a statement would be prepared, and then be unknown to the next one
        with other.begin() if number % 2 else nullcontext():
            live_and_die(case)
    other.close()


def live_and_die(case):
    finish, lose = case.moves("finish", "lose")
    held = case.hold()
    assert Pulse(True, False) == case.beat(held)
    assert "ready" == case.settle(held, finish).state
    lost = case.hold()
    case.runs.sweep(lose, {}, worker="sweeper", now=case.now + 15_000)
    with pytest.raises(LeaseLost):
        case.settle(lost, finish)
    waiting = case.add()
    assert 1 == case.runs.waiting()
    assert "cancelled" == case.cancel(waiting.id).state
    case.settle(type(lost)(lost.id, lost.tenant, lost.claim_no + 1, "sweeper"), lose)


def test_the_hint_is_asked_for(case):
    watcher = case.store.watch()
    first = watcher.changed()
    case.add()
    give_up = time.monotonic() + 60
    while not (second := watcher.changed()) and time.monotonic() < give_up:
        time.sleep(0.02)

    assert isinstance(watcher, PollWatcher)
    assert watcher.descriptor is None
    assert (True, True) == (first, second)


def test_more_clients_than_the_proxy_has_connections_take_their_turns(case):
    runs = {case.add(f"tenant{n}").id for n in range(12)}
    claimed, failed = [], []

    def work(number):
        try:
            while (found := case.claim(f"w{number}", slots=100)) is not None:
                claimed.append(found[0].id)
        except Exception as problem:  # noqa: BLE001 - told at the end
            failed.append(problem)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == failed
    assert sorted(runs) == sorted(claimed)

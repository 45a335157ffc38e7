"""PostgreSQL behind a proxy that pools transactions: the hint is asked for, and nothing outlives a transaction.

With a real PgBouncer whose three connections are handed on after each of them.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, closing, nullcontext

import psycopg
import pytest
from tests.conformance.cases import STORES, Case
from tests.conformance.conftest import make_folder
from tests.servers import pgbouncer
from tests.servers.openers import InDatabase

from haulage.core.errors import StoreUnavailable
from haulage.core.lease import LeaseLost, Pulse
from haulage.core.ports import Query
from haulage.core.progress import Progress
from haulage.flows import FLOWS
from haulage.stores import open_store
from haulage.stores.server import PollWatcher
from haulage.stores.tenants import RUNTIME

pytestmark = pytest.mark.slow


class Pooled(InDatabase):
    """The PostgreSQL of the suite, entered through the proxy."""

    def __init__(self):
        self._direct = STORES["postgresql"]

    def url(self, folder):
        self.direct = self._direct.url(folder)
        return f"{self._through()}?proxy=transaction"

    def _through(self):
        return self._direct.through(self.direct, pgbouncer.proxy().port)

    def plain(self):
        """The same place for a client of the driver."""
        return self._through().replace("+psycopg", "")

    def done(self):
        self._direct.done(self.direct)

    def as_role(self, role):
        """The same store through the proxy, entered as another role."""
        place = self._direct.as_role(self.direct, role)
        return self._direct.through(place, pgbouncer.proxy().port) + "?proxy=transaction"


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


def test_a_tenant_is_handed_to_nobody_with_the_connection(case):
    """Twelve doors of three tenants on three connections: each sees its own runs, and who forgets to say sees none."""
    runs = {tenant: {case.add(tenant).id for _ in range(2)} for tenant in ("north", "south", "west")}
    wrong = []
    web = open_store(case.opener.as_role(RUNTIME), case.limits)

    def look(tenant):
        for number in range(8):
            if number % 2:
                seen = {run.id for run in web.exports.list(Query(tenant=tenant))}
            else:
                with web.begin(tenant=tenant) as tx:
                    seen = {run.id for run in web.exports.list(Query(), tx=tx)}
            if seen != runs[tenant]:
                wrong.append((tenant, seen))
            try:
                wrong.append(web.exports.list(Query()))
            except StoreUnavailable as problem:
                assert "no tenant is set" in str(problem)  # noqa: PT017 - of many threads

    threads = [threading.Thread(target=look, args=(tenant,)) for tenant in runs for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    web.close()

    assert [] == wrong


def test_a_tenant_that_somebody_left_on_a_connection_of_the_proxy_hides_no_owner_of_a_file(case):
    runs = [case.add(tenant) for tenant in ("north", "south")]
    kept = {f"{run.id}.1" for run in runs}
    for run in runs:
        case.write(run.id, artifact_key=f"{run.id}.1")
    with ExitStack() as stack:
        # In a transaction each, so that every connection of the proxy is left with it.
        others = [
            stack.enter_context(closing(psycopg.connect(case.opener.plain(), autocommit=False))) for _ in range(3)
        ]
        for other in others:
            other.execute("set haulage.tenant = 'south'")
        for other in others:
            other.commit()
    try:
        assert kept == case.runs.promised(sorted(kept))
        with case.store.begin() as tx:
            assert 2 == len(case.runs.list(Query(), tx=tx))
    finally:
        with ExitStack() as stack:
            others = [stack.enter_context(closing(psycopg.connect(case.opener.plain()))) for _ in range(3)]
            for other in others:
                other.execute("reset haulage.tenant")
            for other in others:
                other.commit()


def test_a_web_for_one_tenant_is_told_of_the_progress_of_builds(case):
    """It sees no run without a tenant, so the database counts for it."""
    held = case.hold()
    web = open_store(case.opener.as_role(RUNTIME), case.limits)
    watcher = web.watch()
    assert watcher.changed()
    case.beat(held, Progress("writing", 1, None))
    give_up = time.monotonic() + 10
    while not (told := watcher.changed()) and time.monotonic() < give_up:
        time.sleep(0.02)
    web.close()

    assert told

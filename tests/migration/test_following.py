"""This version works on in a store that the next one has migrated, or is told that it may not (DECISIONS 10).

``following.py`` makes the next version. Here is the one before it: the library in this process, and its worker.
"""

from __future__ import annotations

import signal
from contextlib import closing

import pytest
from tests.conformance.cases import STORES
from tests.migration.following import NEXT, Following
from tests.stories.terminal import CONFIGURATION, Terminal, until

from haulage import Haulage
from haulage.core.errors import SchemaMismatch
from haulage.core.ports import Query
from haulage.stores.open import open_store
from haulage.stores.schema import MIN_WORKER, SCHEMA_VERSION

pytestmark = [pytest.mark.slow, pytest.mark.process]
SOON = (
    CONFIGURATION
    + """
[worker]
exports = 1

[limits.exports]
beat_seconds = 0.2
lease_seconds = 4
sweep_seconds = 0.5
"""
)
NEW = ("colour", "weight")
WHY = f"wants workers of schema {NEXT} or newer; this version works with {SCHEMA_VERSION}"


class Pair:
    """A shop with a store that this version made, which has ``haul`` open, and the version after it."""

    def __init__(self, kind, folder, oldest=MIN_WORKER):
        self.opener = STORES[kind]
        self.url = self.opener.new(folder)
        self.terminal = Terminal(folder).shop(configuration=SOON.replace("sqlite:///haulage.db", self.url))
        assert 0 == self.terminal.run("migrate", "up").code
        self.next = Following(folder, oldest)
        self.haul = Haulage.from_toml(self.terminal.config, observe=lambda _event: None)
        self.me = self.haul.operator

    @property
    def exports(self):
        return self.haul.exports

    def get(self, run):
        return self.haul.store.exports.get(run)

    def wait(self, run, *states):
        until(lambda: self.get(run).state in (states or ("ready", "failed", "cancelled")), 60)
        return self.get(run)

    def until_one_claims(self):
        until(lambda: self.haul.store.workers.claiming(60), 60)

    def columns(self, run):
        (row,) = self.opener.execute(self.url, f"select colour, weight from exports where id = '{run}'")
        return dict(zip(NEW, row, strict=True))

    def end(self, worker):
        """Drain a worker; gives what it wrote into its log."""
        worker.send_signal(signal.SIGTERM)
        said = worker.communicate(timeout=60)
        assert 0 == worker.returncode, said
        return "".join(said)


@pytest.fixture
def pair(request, tmp_path):
    made = Pair(*request.param[:1], tmp_path, *request.param[1:])
    with closing(made.haul):
        yield made


DATABASES = ["sqlite", "postgresql", "mariadb"]


@pytest.mark.parametrize("pair", [[each] for each in DATABASES], indirect=True, ids=DATABASES)
def test_the_version_before_works_on_while_the_next_one_migrates_and_after_it(pair):
    exports, store = pair.exports, pair.haul.store
    with pair.terminal.started("worker") as worker:
        pair.until_one_claims()
        early = pair.wait(exports.request(pair.me, "orders").id)
        through = exports.request(pair.me, "endless")
        pair.wait(through.id, "running")
        pair.next.run(pair.terminal, "migrate", "up")
        migrated = store.schema()
        since = store.now()
        until(lambda: (pair.get(through.id).heartbeat_at or 0) > since, 60)  # of one claim: it was never lost
        exports.cancel(pair.me, through.id)
        cancelled = pair.wait(through.id)

        own = exports.request(pair.me, "orders", idempotency_key="k")
        again = exports.request(pair.me, "orders", idempotency_key="k")
        ready = pair.wait(own.id)
        _, opened = exports.open_file(pair.me, own.id)
        with opened:
            lines = opened.read().count(b"\n")
        asked_by_next = pair.next.run(pair.terminal, "export", "orders", "-p", "since=2026-01-02", "--json")
        of_next = next(run for run in exports.list(pair.me) if run.id in asked_by_next)
        log = pair.end(worker)

    assert (NEXT, MIN_WORKER) == (migrated.version, migrated.min_worker)
    assert ("ready", "cancelled", 1) == (early.state, cancelled.state, cancelled.claim_no)
    assert (own.id, "ready", 201) == (again.id, ready.state, lines)
    assert "ready" == of_next.state
    assert {"colour": None, "weight": 7} == pair.columns(own.id)
    assert {"colour": "blue", "weight": 8} == pair.columns(of_next.id)  # what the next one wrote is as it was
    assert "refuse" not in log.lower()

    # A worker of the next version takes what this one asks for, and this one ends what that one made.
    with pair.next.started(pair.terminal, "worker") as worker:
        pair.until_one_claims()
        built_by_next = pair.wait(exports.request(pair.me, "orders", parameters={"since": "2026-01-03"}).id)
        lost = exports.request(pair.me, "endless")
        pair.wait(lost.id, "running")
        worker.kill()
        worker.wait()
    until(lambda: pair.haul.sweeper().pass_once().lost or pair.get(lost.id).state == "failed", 60)
    exports.expire(pair.me, built_by_next.id)
    pair.haul.sweeper().pass_once()
    doctor = pair.terminal.run("doctor")
    status = pair.terminal.run("migrate", "status")

    assert "worker_lost" == pair.get(lost.id).failure_code
    assert ("expired", None) == (pair.get(built_by_next.id).state, pair.get(built_by_next.id).artifact_key)
    assert f"OK    store: schema {NEXT}, this version works with {SCHEMA_VERSION}" in doctor.out
    assert 0 == status.code
    assert [] == store.exports.drift()
    assert 6 == len(store.exports.list(Query()))
    assert {ready.artifact_key, of_next.artifact_key, early.artifact_key} == set(pair.haul.artifacts.keys())
    with closing(open_store(pair.url)) as fresh:
        assert pair.get(own.id) == fresh.exports.get(own.id)


@pytest.mark.parametrize("pair", [["sqlite"]], indirect=True, ids=["sqlite"])
def test_the_version_before_does_not_migrate_what_it_does_not_know(pair):
    pair.next.run(pair.terminal, "migrate", "up")
    answers = [pair.terminal.run("migrate", *words) for words in (["up"], ["down", "--yes"])]

    assert [True, True] == [answer.code != 0 for answer in answers]
    assert [True, True] == ["newer haulage" in answer.err for answer in answers], answers
    assert NEXT == pair.haul.store.schema().version


@pytest.mark.parametrize("pair", [[each, NEXT] for each in DATABASES], indirect=True, ids=DATABASES)
def test_a_schema_that_wants_newer_workers_is_left_to_them_and_the_older_one_says_why(pair):
    exports = pair.exports
    with pair.terminal.started("worker") as worker:
        pair.until_one_claims()
        held = exports.request(pair.me, "endless")
        pair.wait(held.id, "running")
        waits = exports.request(pair.me, "orders").id  # for the one lane of this worker
        pair.next.run(pair.terminal, "migrate", "up")
        until(lambda: not pair.haul.store.workers.claiming(60), 60)
        exports.cancel(pair.me, held.id)
        stopped = pair.wait(held.id)
        started = pair.terminal.run("worker")
        asked = pair.terminal.run("export", "orders")
        left = pair.get(waits)
        log = pair.end(worker)
    with pytest.raises(SchemaMismatch, match=WHY):
        open_store(pair.url)
    with pair.next.started(pair.terminal, "worker"):
        ended = pair.wait(waits)

    assert "cancelled" == stopped.state  # What it holds it brings to its end.
    assert "queued" == left.state
    assert ("ready", 1) == (ended.state, ended.claim_no)
    assert (2, 2) == (started.code, asked.code)
    for said in (started.err, asked.err, log):
        assert f"{WHY}: install a newer haulage" in said

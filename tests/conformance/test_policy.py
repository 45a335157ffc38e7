"""A file whose policy has changed since its build is handed over at no door, whatever source it is of."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import replace

import pytest
from tests.conformance.source_cases import CASES
from tests.conformance.test_visible import built
from tests.stories.conftest import House

from haulage.core.catalogue import Column, Dataset
from haulage.exports.revision import revision_of
from haulage.sources import SOURCES
from haulage.worker.heartbeat import Heartbeat
from haulage.worker.lanes import Bench, Lane

pytestmark = pytest.mark.slow

POLICY = "select max(id) from grants_log where tenant = :requester_tenant"
COLUMNS = {"customer": Column("customer", "Customer", visible="tenant = :requester_tenant")}


class Place(House):
    """A house whose shop is one of the sources, with a policy that is kept there."""

    def __init__(self, case, folder):
        super().__init__(folder)
        self.case = case
        self.shop = case.url
        case.execute("create table grants_log (id integer, tenant varchar(20))")
        case.execute("create table bookings (id integer, tenant varchar(20), customer varchar(20))")
        case.execute("insert into bookings values (1, 'north', 'acme'), (2, 'south', 'bolt'), (3, null, 'core')")
        self.declare("bookings", POLICY)

    def declare(self, name, policy, **members):
        self.catalogue._datasets[name] = Dataset(  # also anew: what a new release declares
            name, "shop", sql="select id, tenant, customer from bookings", key=("id",), columns=COLUMNS,
            hidden=("tenant",), policy_revision=policy, formats=("csv", "json"), **members,
        )  # fmt: skip

    def log(self, number, tenant="north"):
        self.case.execute(f"insert into grants_log values ({number}, '{tenant}')")

    def work(self):
        """Build the next run as a worker does, with a real child."""
        held, run = self.claim()
        exports = self.exports()
        beats = Heartbeat(self.store.exports, self.limits, lambda: None, self.events.append)
        bench = Bench(
            self.store.exports, self.artifacts, self.limits, beats, lambda _name: (self.shop, 0.2),
            lambda _run: None, self.events.append, exports.policies.at_build,
        )  # fmt: skip
        lane = Lane(bench, held, run, time.monotonic(), lambda: None)
        lane.thread.start()
        lane.thread.join(60)
        return self.store.exports.get(run.id)

    def made(self, client, dataset="bookings", **wish):
        """A run that a worker has built, as the client sees it."""
        asked = client.post("/api/exports", json={"dataset": dataset, **wish})
        assert asked.status_code == 202, asked.text
        kept = self.work()
        assert kept.state == "ready", (kept.failure_code, self.events[-1])
        return client.get(asked.headers["location"]).json()


@pytest.fixture(params=[name for name in SOURCES if name != "mysql"])
def place(request, tmp_path):
    case = CASES[request.param](tmp_path)
    made = Place(case, tmp_path)
    yield made
    made.close()
    case.close()


def refused(answer, status=410, code="policy_changed"):
    told = answer.json() if answer.content else {"code": code}
    assert (status, code) == (answer.status_code, told["code"])
    assert b"acme" not in answer.content
    return told


def test_a_file_is_handed_over_while_its_policy_is_what_it_was_and_no_longer(place):
    client = place.client("key-amina")
    place.log(1)
    run = place.made(client)
    link = place.link(client, run)
    place.log(9, "south")  # of somebody else

    assert b"id,Customer\n1,acme\n2,\n3,\n" == client.get(link).content.replace(b"\r\n", b"\n")
    assert 200 == client.head(link).status_code
    place.log(2)
    told = refused(client.post(f"/api/exports/{run['token']}/file"))
    assert told["detail"] == "What you may see of this data has changed since the file was made. Export again."
    refused(client.get(link))
    refused(client.head(link))
    refused(client.get(link, headers={"Range": "bytes=0-3"}))
    refused(client.get(link, headers={"If-None-Match": f'"{place.row(run).sha256}"'}))
    assert 200 == client.get(place.link(client, place.made(client))).status_code
    assert place.row(run).policy_revision not in client.get(f"/api/exports/{run['token']}").text


def test_no_revision_yet_is_an_answer_too_and_differs_from_the_first(place):
    client = place.client("key-amina")
    run = place.made(client)
    link = place.link(client, run)

    assert 200 == client.get(link).status_code
    place.log(1)
    refused(client.get(link))


class Meanwhile:
    """A source to which somebody writes as soon as a snapshot of it is open."""

    def __init__(self, case, statement):
        self._case, self._statement = case, statement

    @contextlib.contextmanager
    def snapshot(self):
        with self._case.open().snapshot() as snapshot:
            self._case.meanwhile(self._statement)
            yield snapshot


def test_the_revision_of_a_file_is_that_of_its_snapshot(place, tmp_path):
    """What is changed while it is built is not in the file, so the file is too old then, and not too new."""
    place.log(1)
    declared = place.catalogue.find("bookings")
    during = Meanwhile(place.case, "insert into grants_log values (2, 'north')")
    made, _ = built(place.case, tmp_path, declared, source=during)

    assert revision_of(POLICY, "1") == made.policy_revision


def test_a_query_that_gives_no_one_answer_is_no_revision(place):
    client = place.client("key-amina")
    place.log(1)
    run = place.made(client)
    link = place.link(client, run)
    place.log(1)
    for policy in (
        "select id from grants_log",
        "select id from grants_log where 1 = 0",
        "select 1 as a, 2 as b",
        "select nowhere from grants_log",
    ):
        place.declare("bookings", policy)
        refused(client.get(link), 503, "host_silent")
    refused(client.post(f"/api/exports/{run['token']}/file"), 503, "host_silent")
    place.declare("bookings", "select id from grants_log")
    client.post("/api/exports", json={"dataset": "bookings"})
    kept = place.work()

    assert ("failed", "source_failed") == (kept.state, kept.failure_code)
    told = [event for event in place.events if type(event).__name__ == "PolicyUnknown"]
    assert [("bookings", "its source answered source_failed")] * 5 == [(each.dataset, each.problem) for each in told]


def test_a_revision_is_asked_of_grants_as_they_are_today(place):
    client = place.client("key-amina")
    place.declare("bookings", "select count(*) from grants_log where tenant in (:requester_grants)")
    place.log(1, "orders.read")
    run = place.made(client)
    link = place.link(client, run)

    assert 200 == client.get(link).status_code
    place.log(2, "orders.write")
    assert 200 == client.get(link).status_code
    who = place.people.keys["key-amina"]
    place.people.host_says["amina"] = type(who)(who.tenant, who.account, frozenset({"orders.read", "orders.write"}))
    refused(client.get(link))


def test_a_source_that_is_away_gives_no_file(place):
    client = place.client("key-amina")
    run = place.made(client)
    link = place.link(client, run)
    place.shop = f"sqlite:///{place.folder}/nowhere/at/all.db"
    refused(client.get(link), 503, "host_silent")
    place.shop = place.case.url

    assert 200 == client.get(link).status_code


def test_one_answer_is_read_over_one_connection_and_nothing_is_said_of_that(tmp_path):
    case = CASES["postgresql"](tmp_path)
    place = Place(case, tmp_path)
    place.declare("bookings", POLICY, parallel=2)
    open_source = case.open
    asked = place.catalogue.find("bookings")
    alone, _ = built(case, tmp_path, asked, source=open_source(connections=2))
    plain, _ = built(case, tmp_path, replace(asked, policy_revision=None), source=open_source(connections=2))
    place.close()
    case.close()

    assert () == plain.notices == alone.notices


def test_large_cells_come_as_ever_after_the_answer(tmp_path):
    """SQLite is told of a limit on cells where a reading has none that are larger."""
    case = CASES["sqlite"](tmp_path)
    sql = "select 1 as id, hex(zeroblob(100000)) as large"
    made, content = built(case, tmp_path, Dataset("q", "shop", sql=sql, key=("id",), policy_revision="select 1"))
    case.close()

    assert 200_000 < len(content)
    assert revision_of("select 1", "1") == made.policy_revision


# -- functions ------------------------------------------------------------------------------------------------


@pytest.fixture
def sqlite(tmp_path):
    case = CASES["sqlite"](tmp_path)
    made = Place(case, tmp_path)
    yield made
    made.close()


def test_a_function_says_the_revision(sqlite):
    asked, answers = [], {"now": 1}

    def revision(requester):
        asked.append(requester)
        return answers["now"]

    sqlite.declare("bookings", revision)
    client = sqlite.client("key-amina")
    run = sqlite.made(client)
    assert ["amina"] == [each.account for each in asked]
    link = sqlite.link(client, run)

    for same in (1, "1"):  # compared as text
        answers["now"] = same
        assert 200 == client.get(link).status_code
    for other in (2, None, "", "01"):
        answers["now"] = other
        refused(client.get(link))
    for wrong in (1.0, True, b"1", object()):
        answers["now"] = wrong
        refused(client.get(link), 503, "host_silent")


@pytest.mark.parametrize("when", ["build", "download"])
def test_a_function_that_hangs_or_raises_is_no_revision(sqlite, when):
    go_on, hung = threading.Event(), {"is": False}

    def revision(_requester):
        if hung["is"] == "raise":
            raise RuntimeError("password=hush")
        if hung["is"]:
            go_on.wait(60)
        return 1

    sqlite.doors = replace(sqlite.doors, host_seconds=0.2)
    sqlite.declare("bookings", revision)
    client = sqlite.client("key-amina")
    link = sqlite.link(client, sqlite.made(client))
    for how in (True, "raise"):
        hung["is"] = how
        if when == "download":
            refused(client.get(link), 503, "host_silent")
        else:
            client.post("/api/exports", json={"dataset": "bookings", "format": "json"})
            kept = sqlite.work()
            assert ("failed", "host_silent") == (kept.state, kept.failure_code)
    go_on.set()
    hung["is"] = False

    assert 200 == client.get(link).status_code
    assert "hush" not in repr(sqlite.events)


def test_a_worker_that_does_not_know_the_function_builds_no_file_that_nobody_could_fetch(sqlite):
    sqlite.declare("bookings", lambda _requester: 1)
    client = sqlite.client("key-amina")
    client.post("/api/exports", json={"dataset": "bookings"})
    del sqlite.catalogue._datasets["bookings"]
    kept = sqlite.work()

    assert ("failed", "source_gone") == (kept.state, kept.failure_code)


@pytest.mark.parametrize(
    ("before", "since"),
    [
        (None, POLICY),
        (None, lambda _requester: None),
        (POLICY, lambda _requester: None),
        (lambda _requester: None, POLICY),
        (POLICY, POLICY + " and 1 = 1"),
    ],
)
def test_a_run_of_before_the_revision_or_of_another_question_is_refused(sqlite, before, since):
    """All of them answer nothing: unknown is not equal."""
    sqlite.declare("bookings", before)
    client = sqlite.client("key-amina")
    link = sqlite.link(client, sqlite.made(client))
    assert 200 == client.get(link).status_code
    sqlite.declare("bookings", since)
    refused(client.get(link))
    sqlite.declare("bookings", None)

    assert 200 == client.get(link).status_code


def test_the_operator_is_refused_as_well(sqlite):
    client = sqlite.client("key-amina")
    run = sqlite.made(client)
    sqlite.log(1)
    omar = sqlite.client("key-omar")
    (seen,) = omar.get("/api/exports?everyone=true").json()["items"]

    assert run["id"] == seen["id"]
    refused(omar.post(f"/api/exports/{seen['token']}/file"))

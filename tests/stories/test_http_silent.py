"""What hangs behind the doors, a store or the host's own code, costs its time limit and nothing more."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace

import anyio
import httpx2
import pytest
from tests.stories.conftest import read_all

from haulage import Haulage
from haulage.core import patience
from haulage.core.errors import BuildFailed
from haulage.core.patience import HUNG_MAX, Overdue, within
from haulage.core.requester import Requester
from haulage.web.operate import Readiness

pytestmark = pytest.mark.slow
AMINA = Requester("north", "amina", frozenset({"orders.read"}), session="amina-1")
SOON = 0.2  # seconds that the host is given; it hangs until the test is over


@pytest.fixture
def hangs():
    """A function that hangs until the end of the test, whatever it is asked."""
    over = threading.Event()

    def hang(*_asked):
        try:
            assert over.wait(60)
            return AMINA
        finally:
            hang.ended += 1

    hang.ended = 0

    until_none_hangs()
    yield hang
    over.set()
    until_none_hangs()


def until_none_hangs():
    """Calls are counted by process, and another test may have left some that end by themselves."""
    limit = time.monotonic() + 60
    while patience.Call._hung or threads("haulage host") or threads("haulage readiness"):
        assert time.monotonic() < limit, "calls hang that should have ended"
        time.sleep(0.01)


def threads(name):
    return sum(thread.name.startswith(name) for thread in threading.enumerate())


# -- readiness -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("silent", ["store", "artifacts"])
def test_a_store_or_a_disk_that_hangs_keeps_one_thread_however_often_it_is_asked(house, hangs, monkeypatch, silent):
    if silent == "store":
        monkeypatch.setattr(house.store, "schema", hangs)
    else:
        monkeypatch.setattr(house.artifacts, "check", hangs)
    app = house.app()
    app.state.readiness = Readiness(wait_seconds=2)  # within which what does not hang has to answer
    transport = httpx2.ASGITransport(app=app)

    async def probe():
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await asyncio.gather(*(client.get("/api/health/ready") for _ in range(100)))

    before = threading.active_count()
    answers = anyio.run(probe)
    answers += anyio.run(probe)

    assert {(503, "not_serving")} == {(answer.status_code, answer.json()["code"]) for answer in answers}
    assert "failing" == answers[0].json()["checks"][silent]
    assert "ok" == answers[0].json()["checks"]["store" if silent == "artifacts" else "artifacts"] or silent == "store"
    assert 1 == threads("haulage readiness")
    assert threading.active_count() <= before + 2, "none of those that answer requests waits"


@pytest.mark.quick
def test_it_is_ready_again_once_the_store_answers(house, monkeypatch):
    over, schema = threading.Event(), house.store.schema
    monkeypatch.setattr(house.store, "schema", lambda: over.wait(60) and schema())
    app = house.app()
    app.state.readiness = Readiness(wait_seconds=SOON, keep_seconds=0)
    client = house.client(app=app)

    before = client.get("/api/health/ready").status_code
    over.set()
    app.state.readiness._wait_seconds = 20
    after = client.get("/api/health/ready").status_code

    assert (503, 200) == (before, after)


# -- the host says who asks --------------------------------------------------------------------------------


async def hangs_on(_request):
    await asyncio.sleep(3_600)


class HangsLater:
    def __call__(self, request):
        return hangs_on(request)


@pytest.fixture
def impatient(house):
    house.doors = replace(house.doors, host_seconds=SOON)
    return house


def silent(answer):
    return (503, "host_silent", "5") == (
        answer.status_code, answer.json()["code"], answer.headers.get("retry-after"),
    )  # fmt: skip


@pytest.mark.parametrize("how", ["sync", "async", "object"])
def test_an_authenticate_that_hangs_is_503_in_its_time(impatient, hangs, how):
    app = impatient.app({"sync": hangs, "async": hangs_on, "object": HangsLater()}[how])
    client = impatient.client(app=app)

    assert silent(client.get("/exports"))
    assert silent(client.post("/exports", json={"dataset": "orders"}))
    assert 0 == hangs.ended, "nobody waited for it"


@pytest.mark.slow
def test_hundreds_of_requests_to_a_host_that_hangs_pile_up_no_threads(impatient, hangs):
    app = impatient.app(hangs)
    transport = httpx2.ASGITransport(app=app)

    async def attack():
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await asyncio.gather(*(client.get("/exports") for _ in range(300)))

    before = threading.active_count()
    answers = anyio.run(attack) + anyio.run(attack)

    assert all(silent(answer) for answer in answers)
    most = HUNG_MAX + 2 * 40 + 1  # those that hang, those that were under way in the pool, and the pool's
    assert threading.active_count() - before <= most


def test_a_host_that_answers_again_is_asked_again(impatient):
    over = threading.Event()
    client = impatient.client(app=impatient.app(lambda _request: over.wait(60) and AMINA))
    before = [client.get("/exports") for _ in range(3)]
    over.set()

    assert all(silent(answer) for answer in before)
    while (again := client.get("/exports")).status_code == 503:
        assert silent(again), "a loaded machine may take longer than it is given"
    assert 200 == again.status_code


def test_a_host_s_own_time_out_is_not_ours(impatient):
    def gives_up(_request):
        raise TimeoutError("its database")

    answer = impatient.client(app=impatient.app(gives_up)).get("/exports")

    assert (500, "internal") == (answer.status_code, answer.json()["code"])


@pytest.mark.slow
def test_a_download_bears_a_host_that_is_silent_for_a_moment(house, serve):
    house.doors = replace(house.doors, host_seconds=2)  # which the other requests of a loaded machine must keep to
    content = bytes(8 * 1024 * 1024)
    asked, silence, over = [], threading.Event(), threading.Event()

    def authenticate(_request):
        asked.append(silence.is_set())
        if len([each for each in asked if each]) == 1:
            over.wait(60)
        return AMINA

    app = house.app(authenticate)
    client = house.client(app=app)
    client.headers["X-CSRF-Token"] = client.get("/session").json()["csrf"] or ""
    run = house.ready(client, content, api="")
    link = house.link(client, run, api="")
    with serve(app) as server:
        connection = server.connect("GET", link, {"Connection": "close"}, receive_bytes=64 * 1024)
        head = connection.recv(1024)
        silence.set()
        body = read_all(connection)
        over.set()

    assert b"200 OK" in head
    assert True in asked
    assert len(content) <= len(head) + len(body)


# -- how an account stands ---------------------------------------------------------------------------------


@pytest.fixture
def haul(tmp_path):
    config = tmp_path / "haulage.toml"
    config.write_text("""
        store = "sqlite:///h.db"
        artifacts = "file:./a"
        secret_keys = ["kJ8s-2hd0qLx7Zp4Wm1Rv6Tt3Yy9Uu5I"]
        [limits.doors]
        host_seconds = 2
    """)
    config.chmod(0o600)
    opened = Haulage.from_toml(config, environ={})
    yield opened
    opened.close()


def test_a_standing_that_hangs_is_given_up(haul, hangs):
    haul.standing(hangs)

    with pytest.raises(Overdue, match="took longer than 2 s"):
        haul.accounts.standing(AMINA)
    assert 0 == hangs.ended


def test_a_standing_that_answers_or_fails_says_so(haul):
    haul.standing(lambda asked: replace(asked, banned=True))
    assert haul.accounts.standing(AMINA).banned

    def fails(_asked):
        raise LookupError("no such account")

    haul.standing(fails)
    with pytest.raises(LookupError, match="no such account"):
        haul.accounts.standing(AMINA)


def test_a_file_is_not_given_while_nobody_says_how_the_account_stands(house):
    client = house.client("key-amina")
    run = house.ready(client)

    def overdue(_asked):
        raise Overdue("took longer than 5 s")

    link = house.link(client, run)
    house.people.standing = overdue

    assert silent(client.post(f"/api/exports/{run['token']}/file"))
    assert silent(client.get(link))
    assert "ready" == house.row(run).state


# -- the calls themselves ----------------------------------------------------------------------------------


def test_so_many_calls_may_hang_and_the_next_is_refused_at_once(hangs):
    for _ in range(HUNG_MAX):
        with pytest.raises(Overdue, match="took longer"):
            within(0.001, hangs)

    with pytest.raises(Overdue, match="have not ended"):
        within(60, hangs)
    assert HUNG_MAX == threads("haulage host")


def test_calls_that_ended_after_all_are_counted_no_more():
    over, done = threading.Event(), threading.Semaphore(0)

    def late():
        over.wait(60)
        done.release()

    for _ in range(HUNG_MAX):
        with pytest.raises(Overdue):
            within(0.001, late)
    over.set()
    for _ in range(HUNG_MAX):
        assert done.acquire(timeout=60)
    until_none_hangs()

    assert "here" == within(20, lambda: "here")


def test_a_call_takes_names_as_its_function_has_them_and_what_it_raises_is_raised():
    def leaves():
        raise SystemExit(3)

    assert (1, 2) == within(20, lambda seconds, function: (seconds, function), seconds=1, function=2)
    with pytest.raises(RuntimeError, match="SystemExit"):
        within(20, leaves)


def test_a_run_whose_account_nobody_vouches_for_in_time_has_a_failure_of_its_own():
    from haulage.core.catalogue import Catalogue
    from haulage.exports.access import access_at_run
    from haulage.exports.life import ExportRun

    def overdue(_asked):
        raise Overdue("took longer than 5 s")

    run = ExportRun(id="r", tenant="north", state="running", requested_at=1, requester=AMINA.frozen())
    with pytest.raises(BuildFailed) as failed:
        access_at_run(run, Catalogue(), overdue)

    assert "host_silent" == failed.value.code

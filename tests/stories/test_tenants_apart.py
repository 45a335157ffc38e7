"""A web that is let in for one tenant at a time, and a worker for all of them: the whole way of a file on PostgreSQL.

And the command line: who makes the roles, and what `doctor` says of whoever comes in.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from starlette.testclient import TestClient
from tests.conformance.cases import STORES
from tests.process.test_server_connections import connected
from tests.servers.openers import OWNER
from tests.stories.terminal import CONFIGURATION, Terminal, until

from haulage.app import Haulage
from haulage.core.errors import Refused, StoreUnavailable
from haulage.core.ports import Presence
from haulage.core.requester import Requester
from haulage.stores.tenants import ROUTING, RUNTIME, WORKER

pytestmark = pytest.mark.slow

AMINA = Requester("default", "amina", session="amina")
BEN = Requester("other", "ben")
ROOT = Requester("default", "root", frozenset({"*"}))


@pytest.fixture
def opener():
    return STORES["postgresql"]


@pytest.fixture
def terminal(tmp_path, opener):
    """A shop whose runs are kept in an empty database of an owner; HAULAGE_STORE says as whom one comes in."""
    made = Terminal(tmp_path).shop(configuration=CONFIGURATION.replace("sqlite:///haulage.db", opener.new()))
    made.place = made.config.read_text().partition('store = "')[2].partition('"')[0]
    return made


@pytest.fixture
def web(terminal, opener):
    """The doors, entered as the runtime role, beside a worker."""
    made = terminal.run("migrate", "up", "--roles")
    assert 0 == made.code, made.err
    with terminal.started("worker", HAULAGE_STORE=opener.as_role(terminal.place, WORKER)):
        environ = {"HAULAGE_STORE": opener.as_role(terminal.place, RUNTIME)}
        with closing(Haulage.from_toml(terminal.config, environ=environ)) as haul:
            yield haul


def ended(haul, requester, run):
    until(lambda: haul.exports.get(requester, run.id).state not in ("queued", "running"))
    return haul.exports.get(requester, run.id)


def test_each_tenant_gets_its_file_and_nothing_of_the_other(web):
    until(lambda: web.store.workers.claiming(15))
    asked = {who: web.exports.request(who, "orders", idempotency_key="k") for who in (AMINA, BEN)}
    again = web.exports.request(AMINA, "orders", idempotency_key="k")
    ready = {who: ended(web, who, run) for who, run in asked.items()}
    run, file = web.exports.open_file(AMINA, asked[AMINA].id)
    with file:
        rows = len(file.read().splitlines())

    assert asked[AMINA].id == again.id
    assert ["ready", "ready"] == [run.state for run in ready.values()]
    assert (run.id, run.rows) == (asked[AMINA].id, rows - 1)
    assert [[asked[who].id] for who in (AMINA, BEN)] == [[run.id for run in web.exports.list(who)] for who in asked]
    assert [run.bytes for run in ready.values()] == [web.exports.storage(who).tenant_bytes for who in asked]
    for act in (web.exports.get, web.exports.cancel, web.exports.expire, web.exports.open_file):
        with pytest.raises(Refused, match="nothing here"):
            act(BEN, asked[AMINA].id)
    assert "expired" == web.exports.expire(AMINA, asked[AMINA].id).state


def test_a_door_that_forgets_to_ask_whose_run_it_is_shows_nothing_of_another(web, monkeypatch):
    until(lambda: web.store.workers.claiming(15))
    mine = web.exports.request(AMINA, "orders")
    for place in ("haulage.stores.tenants.of", "haulage.exports.request.access_run"):
        monkeypatch.setattr(place, forgetful[place.rpartition(".")[2]])
    web.store.close()
    seen = [web.exports.get(BEN, mine.id), web.exports.list(BEN)]

    assert [None, []] == seen
    assert mine.id == web.exports.get(AMINA, mine.id).id


forgetful = {"of": lambda _kept, tenant: tenant == tenant, "access_run": lambda run, *_asked: run}  # noqa: PLR0124


def test_limits_of_a_tenant_and_of_all_hold_for_one_who_sees_only_its_own(terminal, opener):
    """Two may wait per tenant, three in all; nobody claims them."""
    limits = "[limits.exports]\ntenant_queued = 2\nqueued = 3\n"
    terminal.config.write_text(terminal.config.read_text() + limits)
    terminal.run("migrate", "up", "--roles")
    hauls = [
        Haulage.from_toml(terminal.config, environ={"HAULAGE_STORE": opener.as_role(terminal.place, role)})
        for role in (WORKER, RUNTIME)
    ]
    with closing(hauls[0]) as worker, closing(hauls[1]) as web:
        worker.store.workers.announce(Presence("w", "host", 1, "test", "claiming", 2, 0, 0))
        answers = [asked(web, who, since) for who, since in ((AMINA, 1), (AMINA, 2), (AMINA, 3), (BEN, 1), (BEN, 2))]

    assert ["queued", "queued", "too_many_queued", "queued", "queue_full"] == answers


def asked(haul, who, day):
    try:
        return haul.exports.request(who, "orders", parameters={"since": f"2026-01-0{day}"}).state
    except Refused as refused:
        return refused.code


def test_the_operator_of_a_web_for_one_tenant_sees_that_tenant(web):
    until(lambda: web.store.workers.claiming(15))
    mine, other = web.exports.request(ROOT, "orders"), web.exports.request(BEN, "orders")

    assert mine.id == web.exports.get(ROOT, mine.id).id
    with pytest.raises(Refused, match="nothing here"):
        web.exports.get(ROOT, other.id)
    with pytest.raises(Refused, match="operator grant"):
        web.exports.list(ROOT, everyone=True)
    with pytest.raises(StoreUnavailable, match="haulage_worker"):
        web.supervisor()


def test_the_web_of_one_tenant_answers_everybody_and_leaves_the_sweep_to_workers(web, monkeypatch):
    """As HTTP: the same answers for a run of another tenant and for one that never was; nothing for all tenants."""
    until(lambda: web.store.workers.claiming(15))
    monkeypatch.setattr(Haulage, "sweeper", lambda _self: pytest.fail("it does not know what is due"))
    people = {"amina": AMINA, "ben": BEN, "root": ROOT}
    app = web.asgi(authenticate=lambda request: people.get(request.headers.get("who")))
    with TestClient(app, base_url="http://localhost", headers={"who": "amina"}) as client:
        asked = client.post("/exports", json={"dataset": "orders"})
        mine = asked.headers["location"]
        own = [client.get(path).status_code for path in (mine, "/exports", "/storage", "/health/ready")]
        client.headers["who"] = "ben"
        foreign, unknown = client.get(mine), client.get(f"{mine[:-4]}0000")
        listed = client.get("/exports").json()["items"]
        client.headers["who"] = "root"
        paths = ("/exports", "/exports?everyone=true", "/workers", "/metrics")
        operators = [client.get(path) for path in paths]

    assert (202, [200, 200, 200, 200]) == (asked.status_code, own)
    assert (404, []) == (foreign.status_code, listed)
    assert (foreign.status_code, foreign.json()["code"]) == (unknown.status_code, unknown.json()["code"])
    assert [200, 403, 403, 403] == [answer.status_code for answer in operators]
    assert [True, True] == ["one tenant at a time" in answer.json()["detail"] for answer in operators[2:]]


def test_a_web_whose_server_was_restarted_while_nobody_asked_serves_the_first_who_does(web, opener, terminal):
    """It does not sweep, so nothing but a request would find out that its connections are gone."""
    until(lambda: web.store.workers.claiming(15))
    app = web.asgi(authenticate=lambda _request: AMINA)
    with TestClient(app, base_url="http://localhost") as client:
        with ThreadPoolExecutor(4) as together:
            assert {200} == {each.status_code for each in together.map(client.get, ["/exports"] * 12)}
        end = "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database()"
        ((ended,),) = opener.execute(terminal.place, f"{end} and usename = '{RUNTIME}'")
        until(lambda: connected(opener.port()) == 0)
        answers = [client.get("/exports"), client.post("/exports", json={"dataset": "orders"}), client.get("/storage")]

    assert ended > 1
    assert [200, 202, 200] == [answer.status_code for answer in answers]


# -- the command line -----------------------------------------------------------------------------------


def test_doctor_says_whether_tenants_are_kept_apart_and_for_whom(terminal, opener):
    terminal.run("migrate", "up")
    owner_alone = terminal.run("doctor")
    made = terminal.run("migrate", "up", "--roles")
    as_whom = {
        role: terminal.run("doctor", "--check", HAULAGE_STORE=opener.as_role(terminal.place, role)).out
        for role in (OWNER, WORKER, RUNTIME, "postgres")
    }
    opener.execute(terminal.place, "alter table exports no force row level security")
    lost = terminal.run("doctor", HAULAGE_STORE=opener.as_role(terminal.place, WORKER))

    assert 0 == made.code
    assert "run: haulage migrate up --roles" in tenants_of(owner_alone.out)
    assert f"{OWNER} owns the tables" in tenants_of(as_whom[OWNER])
    assert "connect as haulage_worker" in tenants_of(as_whom[OWNER])
    assert tenants_of(as_whom[WORKER]).startswith("OK")
    assert "one tenant at a time" in tenants_of(as_whom[RUNTIME])
    assert "not for this role to see" in as_whom[RUNTIME]
    assert tenants_of(as_whom["postgres"]).startswith("WARN  tenants: postgres is a superuser")
    assert not [out for out in as_whom.values() if "FAIL  store" in out]
    assert (1, True) == (lost.code, tenants_of(lost.out).startswith("FAIL"))


def tenants_of(out):
    (line,) = [line for line in out.splitlines() if " tenants: " in line]
    return line


def test_commands_of_a_worker_say_what_to_connect_as(terminal, opener):
    terminal.run("migrate", "up", "--roles")
    environ = {"HAULAGE_STORE": opener.as_role(terminal.place, RUNTIME)}
    commands = (["sweep"], ["export", "orders", "-o", "x.csv"], ["worker"], ["up", "--port", "0"])
    answers = [terminal.run(*words, **environ) for words in commands]

    assert [True] * 4 == [answer.code != 0 for answer in answers]
    assert [] == [answer.err for answer in answers if "haulage_worker" not in answer.err]


def test_roles_are_made_by_who_may_and_where_there_are_any(terminal, opener, tmp_path):
    """An owner who may make none is told what to ask for; where they are there already it needs no such right."""
    gone = f"{ROUTING}_gone"
    terminal.run("migrate", "up", "--roles")
    opener.execute(terminal.place, f"alter role {OWNER} nocreaterole; alter role {ROUTING} rename to {gone}")
    try:
        refused = terminal.run("migrate", "up", "--roles")
    finally:
        opener.execute(terminal.place, f"alter role {gone} rename to {ROUTING}")
    try:
        made = terminal.run("migrate", "up", "--roles")
    finally:
        opener.execute(terminal.place, f"alter role {OWNER} createrole")
    (tmp_path / "other").mkdir()
    on_sqlite = Terminal(tmp_path / "other").shop().run("migrate", "up", "--roles")
    down = terminal.run("migrate", "down", "--roles")

    assert (True, True) == (refused.code != 0, f"create role {ROUTING} login" in refused.err), refused.err
    assert 0 == made.code, made.err
    assert (2, True) == (on_sqlite.code, "only PostgreSQL has row security" in on_sqlite.err)
    assert (2, True) == (down.code, "--roles goes with up" in down.err)

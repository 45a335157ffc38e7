"""Mounted in a host: the host says who asks, every address knows its place, and Haulage sets no cookie."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Mount
from starlette.testclient import TestClient
from tests.stories.conftest import read_all

from haulage.core.requester import Requester
from haulage.web.download import ConnectionCut

pytestmark = pytest.mark.slow

ASKED = {"dataset": "orders"}
PEOPLE = {
    "amina-1": Requester("north", "amina", frozenset({"orders.read"}), session="amina-1"),
    "amina-2": Requester("north", "amina", frozenset({"orders.read"}), session="amina-2"),
    "ben-1": Requester("north", "ben", frozenset({"orders.read"}), session="ben-1"),
    "kim": Requester("north", "kim", frozenset({"orders.read"})),  # a host that names no session
    "lee": Requester("north", "lee", frozenset({"orders.read"})),
}


def from_cookie(request):
    return PEOPLE.get(request.cookies.get("host_session"))


async def from_cookie_later(request):
    await asyncio.sleep(0)
    return PEOPLE.get(request.cookies.get("host_session"))


class FromCookie:
    async def __call__(self, request):
        return PEOPLE.get(request.cookies.get("host_session"))


def in_starlette(app):
    return Starlette(routes=[Mount("/haulage", app)])


def in_fastapi(app):
    host = FastAPI()
    host.mount("/haulage", app)
    return host


def twice(app):
    return Starlette(routes=[Mount("/admin", Starlette(routes=[Mount("/haulage", app)]))])


def by_path(app):
    """As a Django project's asgi.py does it: the path is taken apart by hand."""

    async def host(scope, receive, send):
        assert scope["type"] == "lifespan" or scope["path"].startswith("/haulage")
        if scope["type"] == "http":
            scope = {**scope, "root_path": "/haulage", "path": scope["path"].removeprefix("/haulage")}
            await app(scope, receive, send)

    return host


def with_middleware(app):
    async def passes_on(request, call_next):
        return await call_next(request)

    return Starlette(routes=[Mount("/haulage", app)], middleware=[Middleware(BaseHTTPMiddleware, dispatch=passes_on)])


PLACES = {
    in_starlette: "/haulage",
    in_fastapi: "/haulage",
    twice: "/admin/haulage",
    by_path: "/haulage",
    with_middleware: "/haulage",
}
every_host = pytest.mark.parametrize(("host", "place"), PLACES.items(), ids=[host.__name__ for host in PLACES])


def reader(host, session="amina-1", base="http://shop.example", place="/haulage"):
    client = TestClient(host, base_url=base, cookies={"host_session": session}, follow_redirects=False)
    shown = client.get(f"{place}/session")
    if shown.status_code == 200:
        client.headers["X-CSRF-Token"] = shown.json()["csrf"]
    return client


@every_host
@pytest.mark.parametrize(
    "authenticate", [from_cookie, from_cookie_later, FromCookie()], ids=["sync", "async", "object"]
)
def test_an_export_is_made_and_fetched_under_the_mount(house, place, host, authenticate):
    client = reader(host(house.app(authenticate)), place=place)

    asked = client.post(f"{place}/exports", json=ASKED)
    house.finish(*house.claim())
    run = client.get(asked.headers["location"])
    minted = client.post(f"{asked.headers['location']}/file")
    file = client.get(minted.json()["url"])

    assert 202 == asked.status_code
    assert f"{place}/exports/{run.json()['token']}" == asked.headers["location"] == asked.headers["content-location"]
    assert minted.json()["url"].startswith(f"{place}/files/")
    assert (200, b"id,total\r\n1,1.50\r\n") == (file.status_code, file.content)
    assert client.head(minted.json()["url"]).headers == file.headers
    for answer in (asked, run, minted, file):
        assert "set-cookie" not in answer.headers
    assert 404 == client.get(f"{place}/api/exports").status_code


@every_host
def test_the_page_knows_where_its_api_is(house, place, host):
    client = reader(host(house.app(from_cookie)), place=place)

    page = client.get(f"{place}/")
    script = client.get(f"{place}/page/haulage.js")
    document = client.get(f"{place}/openapi.json").json()

    assert f'content="{place}/"' in page.text
    assert "{{" not in page.text
    assert 200 == script.status_code
    assert [{"url": place}] == document["servers"]
    assert "/exports" in document["paths"]


def test_the_host_alone_says_who_asks(house):
    host = in_starlette(house.app(from_cookie))
    amina, ben, nobody = reader(host), reader(host, "ben-1"), reader(host, "nobody")
    run = amina.post("/haulage/exports", json=ASKED).json()

    assert 200 == amina.get(f"/haulage/exports/{run['token']}").status_code
    assert 404 == ben.get(f"/haulage/exports/{run['token']}").status_code
    assert 404 == reader(host, "amina-2").get(f"/haulage/exports/{run['token']}").status_code
    assert 401 == nobody.get("/haulage/exports").status_code
    with_key = TestClient(host, headers={"Authorization": "Bearer key-amina"})
    assert 401 == with_key.get("/haulage/exports").status_code


def test_a_host_that_names_no_session_binds_tokens_to_the_account(house):
    host = in_starlette(house.app(from_cookie))
    kim = reader(host, "kim")
    token = kim.post("/haulage/exports", json=ASKED).json()["token"]

    assert 200 == reader(host, "kim").get(f"/haulage/exports/{token}").status_code
    assert 404 == reader(host, "amina-1").get(f"/haulage/exports/{token}").status_code
    assert kim.headers["x-csrf-token"] != reader(host, "lee").headers["x-csrf-token"]


def test_sessions_are_the_hosts(house):
    client = reader(in_starlette(house.app(from_cookie)))

    shown = client.get("/haulage/session")
    signed_in, signed_out = client.post("/haulage/session", json={"key": "key-ben"}), client.delete("/haulage/session")
    linked = client.get("/haulage/?sign_in=abc")

    assert ("amina", False) == (shown.json()["account"], shown.json()["sign_out"])
    assert (405, 405) == (signed_in.status_code, signed_out.status_code)
    assert 200 == linked.status_code
    assert "set-cookie" not in linked.headers


def test_a_browsers_request_has_to_show_the_csrf_token(house):
    client = reader(in_starlette(house.app(from_cookie)))
    shown = client.headers.pop("x-csrf-token")

    without = client.post("/haulage/exports", json=ASKED)
    foreign = client.post(
        "/haulage/exports", json=ASKED, headers={"X-CSRF-Token": shown, "Sec-Fetch-Site": "cross-site"}
    )
    other = client.post(
        "/haulage/exports", json=ASKED, headers={"X-CSRF-Token": reader(client.app, "amina-2").headers["x-csrf-token"]}
    )
    with_token = client.post("/haulage/exports", json=ASKED, headers={"X-CSRF-Token": shown})

    assert [(403, "csrf")] * 3 == [(each.status_code, each.json()["code"]) for each in (without, foreign, other)]
    assert 202 == with_token.status_code


def test_a_program_of_the_host_needs_none(house):
    def from_header(request):
        return PEOPLE.get(request.headers.get("authorization", "").removeprefix("Bearer "))

    host = in_starlette(house.app(from_header))
    program = TestClient(host, headers={"Authorization": "Bearer amina-1"}, cookies={"tracking": "1"})
    basic = TestClient(host, headers={"Authorization": "Basic amina-1", "Sec-Fetch-Site": "cross-site"})
    assert 202 == program.post("/haulage/exports", json=ASKED).status_code
    assert program.get("/haulage/session").json()["csrf"] is None
    assert basic.post("/haulage/exports", json=ASKED).status_code in (401, 403)


def test_a_page_of_another_site_asks_for_nothing_where_no_cookie_is_needed(house):
    by_address = TestClient(in_starlette(house.app(lambda _request: PEOPLE["amina-1"])))  # and a page shows nothing
    foreign = by_address.post("/haulage/exports", json=ASKED, headers={"Origin": "http://evil.example"})
    ours = by_address.post("/haulage/exports", json=ASKED, headers={"Origin": "http://testserver"})
    behind = by_address.post("/haulage/exports", json=ASKED, headers={"Origin": "https://testserver"})

    assert [403, 202, 200] == [foreign.status_code, ours.status_code, behind.status_code]


def test_what_the_host_knows_today_decides_about_files(house):
    client = reader(in_starlette(house.app(from_cookie)))
    run = house.ready(client, api="/haulage")
    link = house.link(client, run, api="/haulage")
    before = client.get(link).status_code
    house.people.host_says["amina"] = replace(PEOPLE["amina-1"], grants=frozenset())

    at_file, at_mint = client.get(link), client.post(f"/haulage/exports/{run['token']}/file")

    assert (200, 404, 404) == (before, at_file.status_code, at_mint.status_code)


def test_the_hosts_own_refusal_becomes_a_problem(house):
    def refuses(_request):
        raise HTTPException(418, "a secret reason")

    def breaks(_request):
        raise RuntimeError("a secret place")

    def answers_nonsense(_request):
        return {"tenant": "north"}

    for authenticate, status, code in (
        (refuses, 418, "malformed"),
        (breaks, 500, "internal"),
        (answers_nonsense, 500, "internal"),
    ):
        answer = reader(in_starlette(house.app(authenticate))).get("/haulage/exports")

        assert (status, code) == (answer.status_code, answer.json()["code"])
        assert "application/problem+json" == answer.headers["content-type"]
        assert "secret" not in answer.text


@pytest.mark.parametrize("host", [in_starlette, with_middleware])
def test_a_cut_download_is_incomplete_behind_the_hosts_middleware_too(house, serve, host):
    content = b"0123456789abcdef" * (2 * 1024 * 1024)
    app = host(house.app(from_cookie))
    client = reader(app)
    run = house.ready(client, content, api="/haulage")
    link = house.link(client, run, api="/haulage")
    with house.file_of(run).open("r+b") as file:
        file.write(b"?")
    with serve(app) as server:
        connection = server.connect("GET", link, {"Cookie": "host_session=amina-1", "Connection": "close"})
        head, _, body = read_all(connection).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 200 ")
    assert f"content-length: {len(content)}".encode() in head.lower()
    assert 0 < len(body) < len(content)


def test_a_host_that_packs_its_answers_leaves_files_as_they_are(house, serve):
    async def passes_on(request, call_next):
        return await call_next(request)

    packs = [Middleware(GZipMiddleware), Middleware(BaseHTTPMiddleware, dispatch=passes_on)]
    app = Starlette(routes=[Mount("/haulage", house.app(from_cookie))], middleware=packs)
    client = reader(app)
    headers = {"Cookie": "host_session=amina-1", "Connection": "close", "Accept-Encoding": "gzip"}
    content = b"0123456789abcdef" * 65_536
    run = house.ready(client, content, api="/haulage")
    link = house.link(client, run, api="/haulage")
    with serve(app) as server:
        whole = read_all(server.connect("GET", link, headers))
        with house.file_of(run).open("r+b") as file:
            file.write(b"?")
        cut = read_all(server.connect("GET", link, headers))

    for head in (whole.partition(b"\r\n\r\n")[0].lower(), cut.partition(b"\r\n\r\n")[0].lower()):
        assert f"content-length: {len(content)}".encode() in head
        assert b"gzip" not in head
    assert content == whole.partition(b"\r\n\r\n")[2]
    assert len(cut.partition(b"\r\n\r\n")[2]) < len(content)


def test_a_cut_is_a_failure_of_the_mounted_application(house):
    content = b"0123456789abcdef" * 65_536
    client = reader(in_starlette(house.app(from_cookie)))
    run = house.ready(client, content, api="/haulage")
    link = house.link(client, run, api="/haulage")
    with house.file_of(run).open("r+b") as file:
        file.write(b"?")

    with pytest.raises(ConnectionCut):
        client.get(link)


def test_a_mounted_application_sweeps_without_being_told_of_a_start(house):
    house.limits = replace(house.limits, sweep_seconds=1)
    reader(in_starlette(house.app(from_cookie)))

    assert house.sweeps.acquire(timeout=60)

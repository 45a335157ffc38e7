"""The page and what is true of every answer: nothing from elsewhere, nothing framed, nothing sniffed."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.routing import iter_route_contexts

import haulage.web.page as page_module

FOLDER = Path(page_module.__file__).parent / "page"


def test_the_page_is_served_with_the_address_of_its_api(house):
    page = house.client().get("/")

    assert 200 == page.status_code
    assert "text/html; charset=utf-8" == page.headers["content-type"]
    assert 'content="/api/"' in page.text
    assert "{{" not in page.text
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'" in policy
    assert "frame-ancestors 'none'; base-uri 'none'" in policy
    assert "unsafe" not in policy


def test_behind_a_proxy_that_takes_a_part_of_the_path_the_page_still_knows(house):
    from starlette.testclient import TestClient

    client = TestClient(house.app(), base_url="http://localhost", root_path="/tools/exports")
    signed = client.post("/api/session", json={"key": "key-amina"})
    client.headers["X-CSRF-Token"] = signed.json()["csrf"]

    assert 'content="/tools/exports/api/"' in client.get("/").text
    asked = client.post("/api/exports", json={"dataset": "orders"})
    assert asked.headers["location"].startswith("/tools/exports/api/exports/")
    assert [{"url": "/tools/exports"}] == client.get("/openapi.json").json()["servers"]


def test_every_file_of_the_page_is_served_by_its_name(house):
    client = house.client()
    names = [
        path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.suffix in (".js", ".css", ".svg")
    ]
    assert {"haulage.js", "page.js", "haulage.css"} <= set(names)

    for name in names:
        answer = client.get(f"/page/{name}")
        known = client.get(f"/page/{name}", headers={"If-None-Match": answer.headers["etag"]})

        assert (200, FOLDER.joinpath(name).read_bytes()) == (answer.status_code, answer.content)
        assert (304, b"") == (known.status_code, known.content)
        assert "no-cache" == answer.headers["cache-control"]
        kinds = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
        assert kinds[Path(name).suffix] == answer.headers["content-type"]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "index.html",
        "nothing.js",
        "../app.py",
        "%2e%2e/app.py",
        "..%2fapp.py",
        "/etc/passwd",
        "page.js/",
        "page.js%00",
        "..",
    ],
)
def test_nothing_else_is_served(house, name):
    answer = house.client().get(f"/page/{name}")

    assert 404 == answer.status_code or answer.url.path == "/"


def test_every_answer_is_guarded(house):
    client = house.client("key-omar")
    run = house.ready(client)
    link = house.link(client, run)
    places = {
        "{token}": run["token"],
        "{file_token}": link.rpartition("/")[2],
        "{name}": "orders",
        "{name:path}": "page.js",
    }
    seen = 0
    for route in iter_route_contexts(house.app().routes):
        path = route.path
        for name, value in places.items():
            path = path.replace(name, value)
        for method in sorted(route.methods):
            answers = [
                client.request(method, path),
                house.client().request(method, path),
                client.request(method, path + "/x"),
            ]
            for answer in answers:
                seen += 1
                assert "nosniff" == answer.headers["x-content-type-options"], (method, path)
                assert "no-referrer" == answer.headers["referrer-policy"]
                assert "same-origin" == answer.headers["cross-origin-resource-policy"]
                assert "default-src 'none'" in answer.headers["content-security-policy"]
                assert "Cookie" in answer.headers["vary"]
                assert "cache-control" in answer.headers, (method, path)
                assert "access-control-allow-origin" not in answer.headers
                if answer.status_code >= 400:
                    assert "application/problem+json" == answer.headers["content-type"], (method, path)
                    if method != "HEAD":
                        assert {"type", "title", "status", "detail", "code", "errors"} <= set(answer.json())
                        assert answer.status_code == answer.json()["status"]
    assert seen >= 3 * 19

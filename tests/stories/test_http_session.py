"""Signing in and out: what the cookie is, what another site cannot do, and the link that works once."""

from __future__ import annotations

import secrets
from dataclasses import replace

import pytest

from haulage.core.ports import SignIn
from haulage.web.access import is_loopback, link_id, session_id
from haulage.web.attempts import MISSES_MAX, REST_SECONDS, Attempts
from haulage.web.session import LINK_SECONDS

pytestmark = pytest.mark.slow

ASKED = {"dataset": "orders"}


def test_a_key_becomes_a_session_on_this_machine(house):
    client = house.client()

    signed = client.post("/api/session", json={"key": "key-amina"})

    cookie = signed.headers["set-cookie"]
    assert 200 == signed.status_code
    assert ("amina", "north", ["orders.read"], True) == tuple(
        signed.json()[name] for name in ("account", "tenant", "grants", "sign_out")
    )
    assert cookie.startswith("haulage=")
    assert {"HttpOnly", "Path=/", "SameSite=lax", "Max-Age=43200"} == set(cookie.split("; ")[1:])
    assert signed.json() == client.get("/api/session").json()
    assert "private, no-store" == signed.headers["cache-control"]


def test_over_https_the_cookie_is_bound_to_this_host_and_to_https(house):
    signed = house.client(base="https://exports.example").post("/api/session", json={"key": "key-amina"})

    cookie = signed.headers["set-cookie"]
    assert cookie.startswith("__Host-haulage=")
    assert {"HttpOnly", "Path=/", "SameSite=lax", "Max-Age=43200", "Secure"} == set(cookie.split("; ")[1:])


def test_a_key_is_not_taken_over_plain_http_from_elsewhere(house):
    refused = house.client(base="http://exports.example").post("/api/session", json={"key": "key-amina"})

    assert (403, "forbidden") == (refused.status_code, refused.json()["code"])
    assert "set-cookie" not in refused.headers


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("localhost", True), ("localhost:8480", True), ("127.0.0.1:1", True), ("127.9.9.9", True), ("[::1]:80", True),
        ("demo.localhost", True), ("exports.example", False), ("localhost.example", False),
        ("127.0.0.1.example", False), ("0.0.0.0", False), ("", False), ("[", False), ("10.0.0.1", False),
    ],
)  # fmt: skip
def test_this_machine_is_known_by_its_names(host, here):
    assert here == is_loopback(host)


def test_the_store_holds_only_the_hash_of_the_cookie(house):
    reader = house.browser("key-amina")
    secret = reader.cookies["haulage"]

    with house.store.begin() as tx:
        kept = tx.exec_driver_sql("select id from sessions").scalars().all()

    assert [session_id(secret)] == kept
    assert len(secret) >= 43, "32 random bytes"


@pytest.mark.parametrize("key", ["wrong", "key-amina2", " ", "\u00e9", "KEY-AMINA", "\ud800"])
def test_an_unknown_key_is_refused(house, key):
    app = house.app()
    app.state.attempts = Attempts(pause_seconds=0)
    client = house.client(app=app)

    refused = client.post(
        "/api/session",
        content=f'{{"key": "{key}"}}'.encode(errors="surrogatepass"),
        headers={"Content-Type": "application/json"},
    )
    taken = client.post("/api/session", json={"key": "key-amina"})

    assert refused.status_code in (400, 401)
    assert "set-cookie" not in refused.headers
    assert 200 == taken.status_code


def test_guessing_is_slowed_down_and_rests_after_ten_misses(house):
    app = house.app()
    seconds = 0.0
    app.state.attempts = Attempts(lambda: seconds, pause_seconds=0)
    client = house.client(app=app)
    misses = [client.post("/api/session", json={"key": f"guess-{n}"}).status_code for n in range(MISSES_MAX)]

    rested = client.post("/api/session", json={"key": "key-amina"})
    seconds = REST_SECONDS + 0.1
    taken = client.post("/api/session", json={"key": "key-amina"})

    assert [401] * MISSES_MAX == misses
    assert (429, "too_many_attempts", "61") == (
        rested.status_code,
        rested.json()["code"],
        rested.headers["retry-after"],
    )
    assert 200 == taken.status_code


def test_signing_out_ends_the_session_and_its_tokens(house):
    reader = house.browser("key-amina")
    run = house.ready(reader)
    link, secret = house.link(reader, run), reader.cookies["haulage"]

    out = reader.delete("/api/session")

    kept = house.client(Cookie=f"haulage={secret}")
    assert (200, None) == (out.status_code, out.json()["account"])
    assert 'haulage=""' in out.headers["set-cookie"]
    assert [401] * 3 == [
        kept.get(place).status_code for place in (link, f"/api/exports/{run['token']}", "/api/session")
    ]


def test_signing_in_again_ends_the_session_before(house):
    reader = house.browser("key-amina")
    before = reader.cookies["haulage"]
    reader.post("/api/session", json={"key": "key-ben"})

    assert "ben" == reader.get("/api/session").json()["account"]
    assert 401 == house.client(Cookie=f"haulage={before}").get("/api/session").status_code


def test_a_session_ends_at_its_time(house):
    reader = house.browser("key-amina")
    house.passes(house.doors.session_seconds - 1)
    before = reader.get("/api/session").status_code
    house.passes(1)

    assert (200, 401) == (before, reader.get("/api/session").status_code)


def test_a_key_has_no_session_to_end(house):
    client = house.client("key-amina")

    refused = client.delete("/api/session")

    assert (403, "forbidden") == (refused.status_code, refused.json()["code"])
    assert (None, False) == (client.get("/api/session").json()["csrf"], client.get("/api/session").json()["sign_out"])


UNSAFE = [
    ("POST", "/api/exports"), ("DELETE", "/api/exports/{token}"), ("POST", "/api/exports/{token}/file"),
    ("POST", "/api/exports/{token}/expire"), ("DELETE", "/api/session"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), UNSAFE)
def test_a_request_of_another_site_is_refused(house, method, path):
    reader = house.browser("key-amina")
    run = house.ready(reader)
    place, shown = path.format(token=run["token"]), reader.headers.pop("x-csrf-token")
    other = house.browser("key-amina").headers["x-csrf-token"]
    body = {"json": {**ASKED, "format": "json"}} if place.endswith("exports") else {}

    def sent(**headers):
        return reader.request(
            method, place, headers={name.replace("_", "-"): each for name, each in headers.items()}, **body
        )

    refused = [
        sent(),
        sent(X_CSRF_Token=""),
        sent(X_CSRF_Token=shown[:-1]),
        sent(X_CSRF_Token=shown + "="),
        sent(X_CSRF_Token=other),
        sent(X_CSRF_Token=shown, Sec_Fetch_Site="cross-site"),
        sent(X_CSRF_Token=shown, Sec_Fetch_Site="same-site"),
        sent(X_CSRF_Token=shown, Origin="https://evil.example"),
    ]
    taken = sent(X_CSRF_Token=shown, Sec_Fetch_Site="same-origin")

    assert [(403, "csrf")] * 8 == [(each.status_code, each.json()["code"]) for each in refused]
    assert taken.status_code in (200, 201, 202, 409)


def test_a_program_with_a_key_needs_no_csrf_token(house):
    taken = house.client("key-amina", Cookie="other=1").post("/api/exports", json=ASKED)

    assert 202 == taken.status_code


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_no_other_site_can_sign_a_reader_in(house, site):
    client = house.client()
    client.headers["Sec-Fetch-Site"] = site

    by_script = client.post("/api/session", json={"key": "key-amina"})
    client.headers.pop("Sec-Fetch-Site")
    by_form = client.post("/api/session", content=b'{"key": "key-amina"}', headers={"Content-Type": "text/plain"})

    assert (403, 415) == (by_script.status_code, by_form.status_code)
    assert "set-cookie" not in by_script.headers


OURS = (
    {},
    {"Origin": "https://haulage.example"},
    {"Origin": "https://haulage.example", "Host": "haulage.example:443"},
    {"Origin": "https://public.example", "X-Forwarded-Host": "public.example"},
    {"Origin": "https://[2001:db8::1]:8443", "Host": "[2001:db8::1]:8443"},
    {"Origin": "null", "Sec-Fetch-Site": "same-origin"},  # a browser that says where it comes from is believed
)
FOREIGN = (
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://haulage.example"},  # the same host without TLS may be anybody on the way
    {"Origin": "https://haulage.example:8443"},
    {"Origin": "https://haulage.example.evil.example"},
    {"Origin": "https://evil.example", "X-Forwarded-Host": "public.example"},
    {"Origin": "https://haulage.example:no"},
    {"Origin": "file://haulage.example"},
)


@pytest.mark.parametrize("headers", [*OURS, *FOREIGN])
def test_where_a_browser_does_not_say_which_site_sent_it_the_origin_does(house, headers):
    given = {"Host": "haulage.example", **headers}
    signed_in = house.client().post("https://haulage.example/api/session", json={"key": "key-amina"}, headers=given)
    with_key = house.client("key-amina").get("/api/session", headers=given)
    program = house.client("key-amina").post("/api/exports", json=ASKED, headers=given)

    assert (200 if headers in OURS else 403) == signed_in.status_code, signed_in.text
    assert ("set-cookie" in signed_in.headers) == (headers in OURS)
    assert (200, 202) == (with_key.status_code, program.status_code)  # reads change nothing, and no browser adds a key


def test_two_origins_are_not_ours_when_one_is_not(house):
    headers = [("Host", "haulage.example"), ("Origin", "https://haulage.example"), ("Origin", "https://evil.example")]
    answer = house.client().post("https://haulage.example/api/session", json={"key": "key-amina"}, headers=headers)

    assert 403 == answer.status_code


def link_of(house):
    """A link as the demo prints one."""
    token = secrets.token_urlsafe(32)
    until = house.clock + LINK_SECONDS * 1000
    house.store.sessions.open(SignIn(link_id(token), "amina", "north", "amina", until))
    return f"/?sign_in={token}"


def test_a_link_signs_in_once(house):
    app = house.app()
    link = link_of(house)
    first, second = house.client(app=app), house.client(app=app)

    used, again = first.get(link), second.get(link)

    assert (303, "/") == (used.status_code, used.headers["location"])
    assert "no-store" == used.headers["cache-control"]
    assert "amina" == first.get("/api/session").json()["account"]
    assert (303, "/?link=over") == (again.status_code, again.headers["location"])
    assert "set-cookie" not in again.headers
    assert 401 == second.get("/api/session").status_code


def test_a_link_is_not_used_up_by_what_only_looks(house):
    app = house.app()
    link = link_of(house)
    for headers in ({"Sec-Fetch-Dest": "image"}, {"Sec-Purpose": "prefetch"}, {"Sec-Fetch-Dest": "iframe"}):
        looked = house.client(app=app).get(link, headers=headers)
        assert ("/", False) == (looked.headers["location"], "set-cookie" in looked.headers)
    assert "set-cookie" not in house.client(app=app).head(link).headers
    assert "set-cookie" not in house.client(app=app, base="http://exports.example").get(link).headers

    used = house.client(app=app).get(link, headers={"Sec-Fetch-Dest": "document"})

    assert "set-cookie" in used.headers


def test_a_link_is_no_cookie_and_ends_after_ten_minutes(house):
    app = house.app()
    token = link_of(house).partition("=")[2]

    as_cookie = house.client(app=app, Cookie=f"haulage={token}").get("/api/session")
    house.passes(600)
    late = house.client(app=app).get(f"/?sign_in={token}")

    assert 401 == as_cookie.status_code
    assert ("/?link=over", False) == (late.headers["location"], "set-cookie" in late.headers)
    assert link_id(token) != session_id(token)


@pytest.mark.parametrize("token", ["", "x", "\u00e9", "%00", "a" * 10_000])
def test_a_link_that_was_never_made_leads_to_the_page(house, token):
    with house.store.begin():  # Whoever makes links up takes no turn of those who write.
        answer = house.client().get(f"/?sign_in={token}")

    assert (303, "/?link=over") == (answer.status_code, answer.headers["location"])
    assert "set-cookie" not in answer.headers


def test_a_link_is_for_a_key_that_is_still_there(house):
    app = house.app()
    link = link_of(house)
    removed = house.people.keys.pop("key-amina")
    gone = house.client(app=app).get(link)
    house.people.keys["key-amina"] = replace(removed)

    assert ("/?link=over", False) == (gone.headers["location"], "set-cookie" in gone.headers)

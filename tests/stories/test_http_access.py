"""Nobody reaches what is not theirs: every route, every asker, and every spelling of a token.

What is not yours does not exist. A refusal for a real token of somebody else is, to the byte, the refusal
for a token that nobody ever issued.
"""

from __future__ import annotations

import base64
import json
import string
from dataclasses import replace

import pytest
from fastapi.routing import iter_route_contexts
from itsdangerous import Signer

from haulage.web.attempts import Attempts
from haulage.web.tokens import FileRight, Tokens, binding_of

NOBODYS = "WyIwMWEyMjdiNy0zMzFjLTdkOTgtYTJhZi1jYTFlYTU5ZDMyMGMiLDFd.rTFTn1HWT7Tv-5lvHc-rTcROhejBHLWwICgPYvqkTQU"
ASKED = {"dataset": "orders"}
PUBLIC = {
    ("GET", "/"), ("GET", "/page/{name:path}"), ("GET", "/openapi.json"), ("GET", "/api/openapi.json"),
    ("GET", "/api/health/live"), ("GET", "/api/health/ready"), ("POST", "/api/session"),
}  # fmt: skip


def routes(app):
    """Every method and path that the application answers."""
    return sorted((method, route.path) for route in iter_route_contexts(app.routes) for method in route.methods)


def bare(answer):
    """What a client sees of an answer, without the time."""
    return answer.status_code, answer.content, [pair for pair in answer.headers.multi_items() if pair[0] != "date"]


@pytest.fixture
def owned(house):
    """A ready run of one session: its owner, the run, and a link to its file."""
    owner = house.browser("key-amina")
    run = house.ready(owner)
    return owner, run, house.link(owner, run)


def askers(house):
    """Everybody but the session that the run belongs to."""
    return {
        "the same account in another session": house.browser("key-amina"),
        "the same account with its key": house.client("key-amina"),
        "another account of the tenant": house.client("key-ben"),
        "an account without the grant": house.browser("key-dora"),
        "another tenant": house.browser("key-chloe"),
        "the operator": house.client("key-omar"),
    }


@pytest.mark.slow
def test_every_route_refuses_everybody_else_alike(house, owned):
    owner, run, link = owned
    tokens = {"token": run["token"], "file_token": link.rpartition("/")[2]}
    seen = 0
    for method, path in routes(house.app()):
        names = [name for name in tokens if "{" + name + "}" in path]
        if not names:
            continue
        seen += 1
        real, made_up = path.format(**tokens), path.format(**dict.fromkeys(tokens, NOBODYS))
        for who, client in askers(house).items():
            for headers in ({}, {"If-None-Match": "*"}, {"Range": "bytes=0-1"}):
                refused = client.request(method, real, headers=headers)
                unknown = client.request(method, made_up, headers=headers)

                assert 404 == refused.status_code, (method, path, who)
                assert bare(unknown) == bare(refused), (method, path, who)
        mine = owner.request(method, real) if "events" not in path else owner.head(real)
        assert mine.status_code in (200, 201, 409), (method, path, mine.text)  # 409: a ready run is not cancelled
        run = owner.get(f"/api/exports/{run['token']}").json()
        if run["state"] == "ready" and "expire" not in path:
            continue
        run = house.ready(owner)
        tokens = {"token": run["token"], "file_token": house.link(owner, run).rpartition("/")[2]}
    assert 7 == seen


def test_a_real_token_of_somebody_else_costs_no_more_than_one_that_never_was(house, owned, monkeypatch):
    """What is looked up decides how long an answer takes: for both nothing is."""
    owner, run, link = owned
    looked, get = [], house.store.exports.get
    monkeypatch.setattr(house.store.exports, "get", lambda *asked, **how: looked.append(asked) or get(*asked, **how))
    for who, client in askers(house).items():
        for place, token in (("exports", run["token"]), ("files", link.rpartition("/")[2])):
            refused, unknown = client.get(f"/api/{place}/{token}"), client.get(f"/api/{place}/x{NOBODYS[1:]}")

            assert (404, 404) == (refused.status_code, unknown.status_code)
            assert [] == looked, who
    assert 200 == owner.get(link).status_code
    assert looked, "nothing was listened to"


def test_every_route_but_the_public_ones_asks_who_asks(house, owned):
    _owner, run, link = owned
    tokens = {"token": run["token"], "file_token": link.rpartition("/")[2], "name": "orders", "name:path": "x"}
    ended = house.browser("key-ben")
    house.passes(house.doors.session_seconds)
    strangers = {
        "nobody": house.client(),
        "an unknown key": house.client("key-unknown"),
        "a key in another scheme": house.client(Authorization="Basic key-amina"),
        "a session that has ended": ended,
        "a made up cookie": house.client(Cookie="haulage=abcdefghijklmnop; __Host-haulage=abcdefghijklmnop"),
    }
    for method, path in routes(house.app()):
        place = path.replace("{name:path}", "x").format(**tokens)
        for who, client in strangers.items():
            client.app.state.attempts = Attempts(pause_seconds=0)  # or the eleventh wrong key would rest
            answer = client.request(method, place)

            if (method, path) in PUBLIC:
                assert 401 != answer.status_code, (method, path, who)
            else:
                assert 401 == answer.status_code, (method, path, who)
                assert 'Bearer realm="haulage"' == answer.headers["www-authenticate"]
                if method != "HEAD":
                    assert "unauthenticated" == answer.json()["code"]


def test_an_invalid_request_of_a_stranger_is_not_read(house):
    client = house.client()

    answers = [
        client.post("/api/exports", content=b"{", headers={"Content-Type": "application/json"}),
        client.post("/api/exports", content=b"x" * 100_000),
        client.get("/api/exports?limit=many"),
        client.get("/api/datasets/nothing/counts"),
        client.get("/api/exports/x?wait=1"),
    ]

    assert [401] * 5 == [answer.status_code for answer in answers]


def test_a_wrong_key_is_not_saved_by_a_cookie(house):
    reader = house.browser("key-amina")

    refused = reader.get("/api/exports", headers={"Authorization": "Bearer wrong"})

    assert 200 == reader.get("/api/exports").status_code
    assert 401 == refused.status_code


@pytest.mark.slow
def test_every_changed_character_of_a_token_makes_it_nobodys(house, owned):
    owner, run, link = owned
    alphabet = string.ascii_letters + string.digits + "-_.=~%2"
    nobodys = {
        "/api/exports/": bare(owner.get(f"/api/exports/{NOBODYS}")),
        "/api/files/": bare(owner.get(f"/api/files/{NOBODYS}")),
    }
    for place, token in (("/api/exports/", run["token"]), ("/api/files/", link.rpartition("/")[2])):
        for position in range(len(token)):
            for offset in (1, 7):
                other = alphabet[(alphabet.index(token[position]) + offset) % len(alphabet)]
                changed = token[:position] + other + token[position + 1 :]
                answer = owner.get(place + changed)

                assert nobodys[place] == bare(answer), changed


def test_no_other_spelling_of_a_token_is_taken(house, owned):
    owner, run, _link = owned
    token = run["token"]
    head, _, signature = token.partition(".")
    raw = base64.urlsafe_b64decode(head + "=" * (-len(head) % 4))
    spaced = base64.urlsafe_b64encode(json.dumps(json.loads(raw)).encode()).rstrip(b"=").decode()
    last = [signature[:-1] + each for each in string.ascii_letters + string.digits + "-_" if each != signature[-1]]
    spellings = [
        token + "=", token + "==", token + "%3D", token + ".", token + "%00", token + "%20", token.upper(),
        token + "/", token.replace(".", ".."), f"{head}=.{signature}", f"{spaced}.{signature}", signature, head,
        run["id"], "%2e%2e/" + token, token[:-1], token[1:], "", "..", "%ff", "\u00e9", "a" * 5000,
        *(f"{head}.{each}" for each in last),
    ]  # fmt: skip
    nobodys = bare(owner.get(f"/api/exports/{NOBODYS}"))

    for spelling in spellings:
        answer = owner.get(f"/api/exports/{spelling}")

        if spelling in ("", ".."):  # these are the list and another address
            assert run["token"] not in answer.text or answer.json()["items"]
        else:
            assert nobodys == bare(answer), spelling
    assert 200 == owner.get(f"/api/exports/{token}").status_code


def test_a_token_is_for_one_purpose(house, owned):
    owner, run, link = owned
    file_token = link.rpartition("/")[2]

    as_file = owner.get(f"/api/files/{run['token']}")
    as_run = owner.get(f"/api/exports/{file_token}")
    csrf_as_run = owner.get(f"/api/exports/{owner.headers['x-csrf-token']}")
    run_as_csrf = owner.delete(f"/api/exports/{run['token']}", headers={"X-CSRF-Token": run["token"]})
    run_as_cursor = owner.get("/api/exports", params={"cursor": run["token"]})

    assert [404, 404, 404, 403, 422] == [
        answer.status_code for answer in (as_file, as_run, csrf_as_run, run_as_csrf, run_as_cursor)
    ]


def test_a_token_signed_with_the_right_secret_and_the_wrong_salt_is_nobodys(house, owned):
    owner, run, _link = owned
    payload = run["token"].partition(".")[0]

    for salt in ("haulage.run.", "itsdangerous.Signer", "haulage.file.", "haulage.run"):
        forged = Signer(house.secret_keys[0], salt=salt, key_derivation="hmac").sign(payload).decode()

        assert 404 == owner.get(f"/api/exports/{forged}").status_code


def test_a_new_generation_takes_every_token_back(house, owned):
    owner, run, link = owned
    with house.store.begin() as tx:
        tx.exec_driver_sql("update exports set generation = generation + 1")

    refused = [owner.get(f"/api/exports/{run['token']}"), owner.get(link), owner.delete(f"/api/exports/{run['token']}")]

    fresh = owner.get("/api/exports").json()["items"][0]["token"]
    assert [404] * 3 == [answer.status_code for answer in refused]
    assert 200 == owner.get(f"/api/exports/{fresh}").status_code


def test_a_secret_is_replaced_without_losing_tokens_and_ends_when_it_is_taken_out(house):
    old, new = house.secret_keys[0], "a-new-secret-of-the-house-0123456789abcd"
    owner = house.client("key-amina")
    run = house.ready(owner)
    link = house.link(owner, run)

    def seen(*secrets):
        house.secret_keys = secrets
        client = house.client("key-amina")
        shown = client.get(f"/api/exports/{run['token']}")
        return shown.status_code, client.get(link).status_code, shown.json().get("token")

    both, only_new, only_old = seen(new, old), seen(new), seen(old)

    assert (200, 200) == both[:2]
    assert run["token"] != both[2], "the first secret signs"
    assert (404, 404) == only_new[:2]
    assert (200, 200, run["token"]) == only_old


def test_an_older_secret_does_not_take_what_it_did_not_sign(house):
    tokens = Tokens(("new-secret", "old-secret"))
    other = Tokens(("third-secret",))
    binding = binding_of(house.people.find("key-amina"))

    assert tokens.read_run(binding, Tokens(("old-secret",)).for_run(binding, "x", 1)) is not None
    assert tokens.read_run(binding, other.for_run(binding, "x", 1)) is None
    assert tokens.read_run("another binding", tokens.for_run(binding, "x", 1)) is None
    assert FileRight("x", 1, 5) == tokens.read_file(binding, tokens.for_file(binding, FileRight("x", 1, 5)))
    with pytest.raises(ValueError, match="secret_keys is empty"):
        Tokens(())


def test_a_banned_account_has_nothing(house, owned):
    owner, run, link = owned
    before = owner.get(link).status_code
    house.people.change("amina", banned=True)

    after = {
        "file": owner.get(link), "run": owner.get(f"/api/exports/{run['token']}"),
        "mint": owner.post(f"/api/exports/{run['token']}/file"), "cancel": owner.delete(f"/api/exports/{run['token']}"),
    }  # fmt: skip
    refused = {"ask": owner.post("/api/exports", json=ASKED), "list": owner.get("/api/exports")}

    assert 200 == before
    assert dict.fromkeys(after, 404) == {name: answer.status_code for name, answer in after.items()}
    assert dict.fromkeys(refused, 403) == {name: answer.status_code for name, answer in refused.items()}


def test_a_lost_grant_closes_the_file_and_leaves_the_run(house, owned):
    owner, run, link = owned
    house.people.change("amina", grants=frozenset())

    assert bare(owner.get(f"/api/files/{NOBODYS}")) == bare(owner.get(link))
    assert 404 == owner.post(f"/api/exports/{run['token']}/file").status_code
    assert 200 == owner.get(f"/api/exports/{run['token']}").status_code
    house.people.change("amina", grants=frozenset({"orders.read"}))
    assert 200 == owner.get(link).status_code


def test_the_operator_needs_the_grant_of_the_dataset_for_a_file(house, owned):
    house.people.change("omar", grants=frozenset({"operator"}))
    operator = house.client("key-omar")
    theirs = operator.get("/api/exports?everyone=true").json()["items"][0]

    without = operator.post(f"/api/exports/{theirs['token']}/file")
    house.people.change("omar", grants=frozenset({"operator", "orders.read"}))
    with_grant = operator.post(f"/api/exports/{theirs['token']}/file")

    assert (404, 201) == (without.status_code, with_grant.status_code)


def test_a_key_that_is_taken_out_ends_its_sessions(house, owned):
    owner, run, link = owned
    del house.people.keys["key-amina"]

    answers = [owner.get(link), owner.get(f"/api/exports/{run['token']}"), owner.get("/api/session")]

    assert [401] * 3 == [answer.status_code for answer in answers]


def test_a_key_that_changes_hands_does_not_take_its_sessions_along(house, owned):
    owner, _run, link = owned
    house.people.keys["key-amina"] = replace(house.people.keys["key-amina"], account="anton")

    assert 401 == owner.get(link).status_code


@pytest.mark.slow
@pytest.mark.parametrize("method", ["PUT", "PATCH", "TRACE", "OPTIONS", "CONNECT", "BREW"])
def test_an_unknown_method_is_refused_for_every_token_alike(house, owned, method):
    owner, run, _link = owned

    real, made_up = (
        owner.request(method, f"/api/exports/{run['token']}"),
        owner.request(method, f"/api/exports/{NOBODYS}"),
    )

    assert (405, "method_not_allowed") == (real.status_code, real.json()["code"])
    assert "DELETE, GET, HEAD" == real.headers["allow"]
    assert bare(made_up) == bare(real)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", ["/api", "/api/", "/api/nothing", "/nothing", "/api/exports/", "/api/exports/a/b", "/API/exports"]
)
def test_an_unknown_address_is_the_same_not_found(house, owned, path):
    owner = owned[0]

    answer = owner.get(path)

    assert bare(owner.get(f"/api/exports/{NOBODYS}")) == bare(answer)

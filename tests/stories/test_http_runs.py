"""Looking at runs and ending them: what is shown, when it changed, in which order, and what can still be done."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy.event import listen

from haulage.core.lease import Held
from haulage.core.progress import Progress

ASKED = {"dataset": "orders"}


def test_a_run_is_shown_from_queue_to_file(house):
    client = house.client("key-amina")
    place = client.post("/api/exports", json=ASKED).headers["location"]
    held, run = house.claim()
    house.store.exports.heartbeat([(held, Progress("writing", 12, None))], lease_seconds=15)
    running = client.get(place)
    house.finish(held, run)
    ready = client.get(place)

    assert ("running", "writing") == (running.json()["state"], running.json()["phase"])
    assert (12, None) == (running.json()["progress"]["processed"], running.json()["progress"]["total"])
    assert running.json()["queue_position"] is None
    assert "1" == running.headers["retry-after"]
    assert "ready" == ready.json()["state"]
    assert ("orders.csv", 18) == (ready.json()["file"]["name"], ready.json()["file"]["bytes"])
    assert [{"code": "order_not_fixed"}] == ready.json()["notices"]
    assert "retry-after" not in ready.headers


def test_a_failed_run_says_why_and_nothing_else(house):
    client = house.client("key-amina")
    place = client.post("/api/exports", json=ASKED).headers["location"]
    house.fail(house.claim()[0], "rows_exceeded")

    failed = client.get(place).json()

    assert {"code": "rows_exceeded", "message": "The export has more rows than allowed."} == failed["failure"]
    assert failed["file"] is None


def test_nothing_of_the_house_is_in_any_answer(house):
    client = house.client("key-amina")
    run = house.ready(client)
    house.client("key-chloe").post("/api/exports", json=ASKED)

    answers = [
        client.get(f"/api/exports/{run['token']}"), client.get("/api/exports"), client.get("/api/datasets"),
        client.get("/api/session"), client.get("/api/storage"), client.post(f"/api/exports/{run['token']}/file"),
        client.get(house.link(client, run)), client.get("/api/health/ready"),
    ]  # fmt: skip

    for answer in answers:
        for secret in (str(house.folder), "select id", "chloe", "south", "key-amina", house.row(run).artifact_key):
            assert secret not in answer.text
            assert secret not in str(answer.headers)


def test_an_etag_stays_until_the_run_changes(house):
    client = house.client("key-amina")
    place = client.post("/api/exports", json=ASKED).headers["location"]
    first = client.get(place)
    known = {"If-None-Match": first.headers["etag"]}

    same = client.get(place, headers=known)
    held, run = house.claim()
    changed = client.get(place, headers=known)

    assert first.headers["etag"].startswith('W/"')
    assert (304, b"") == (same.status_code, same.content)
    assert first.headers["etag"] == same.headers["etag"]
    assert "1" == same.headers["retry-after"]
    assert 200 == changed.status_code
    assert first.headers["etag"] != changed.headers["etag"]
    assert held.id == run.id


def test_a_look_at_a_run_is_one_read_of_the_store(house):
    client = house.client("key-amina")
    place = client.post("/api/exports", json=ASKED).headers["location"]
    house.claim()
    read = []
    listen(house.store._database.engine, "checkout", lambda driver, *_: driver.set_trace_callback(read.append))

    first = client.get(place)
    unchanged = client.get(place, headers={"If-None-Match": first.headers["etag"]})

    assert (200, 304) == (first.status_code, unchanged.status_code)
    assert ["SELECT", "SELECT"] == [statement.split()[0] for statement in read]


def test_a_beat_without_progress_is_a_new_sign_of_life(house):
    client = house.client("key-amina")
    place = client.post("/api/exports", json=ASKED).headers["location"]
    held, _ = house.claim()
    before = client.get(place)
    house.passes(1)
    house.store.exports.heartbeat([(held, None)], lease_seconds=15)

    after = client.get(place, headers={"If-None-Match": before.headers["etag"]})

    assert 200 == after.status_code
    assert before.json()["heartbeat_at"] < after.json()["heartbeat_at"]
    assert before.json()["revision"] == after.json()["revision"]


def test_an_etag_changes_with_the_queue_position(house):
    house.client("key-ben").post("/api/exports", json=ASKED)
    house.passes(1)
    client = house.client("key-amina")
    place = client.post("/api/exports", json=ASKED).headers["location"]
    second = client.get(place)
    house.claim()

    first = client.get(place, headers={"If-None-Match": second.headers["etag"]})

    assert (2, 1) == (second.json()["queue_position"], first.json()["queue_position"])
    assert second.json()["revision"] == first.json()["revision"]


def test_an_etag_belongs_to_one_session_and_one_signing_key(house):
    reader = house.browser("key-amina")
    token = reader.post("/api/exports", json=ASKED).json()["token"]
    mine = reader.get(f"/api/exports/{token}")
    other = house.client("key-amina")
    listed = other.get("/api/exports").json()["items"][0]
    theirs = other.get(f"/api/exports/{listed['token']}")
    house.secret_keys = ("a-new-secret-of-the-house-0123456789abcd", *house.secret_keys)
    rotated = house.client("key-amina").get(f"/api/exports/{listed['token']}")

    assert mine.json()["id"] == theirs.json()["id"] == rotated.json()["id"]
    assert 3 == len({mine.headers["etag"], theirs.headers["etag"], rotated.headers["etag"]})


@pytest.mark.parametrize("condition", ["*", 'W/"other", {etag}', "{strong}", '"x",{etag} , "y"'])
def test_if_none_match_compares_weakly_and_takes_lists(house, condition):
    client = house.client("key-amina")
    place = client.post("/api/exports", json=ASKED).headers["location"]
    etag = client.get(place).headers["etag"]

    known = client.get(place, headers={"If-None-Match": condition.format(etag=etag, strong=etag.removeprefix("W/"))})
    unknown = client.get(place, headers={"If-None-Match": 'W/"other", etag, W/'})

    assert (304, 200) == (known.status_code, unknown.status_code)


def test_a_list_is_newest_first_and_pages_lose_and_repeat_nothing(house):
    client = house.client("key-amina")
    made = []
    for step in range(5):
        house.passes(step % 2)  # some in the same millisecond
        made.append(client.post("/api/exports", json={**ASKED, "parameters": {"floor": step}}).json()["id"])
    seen, cursor = [], None
    while True:
        page = client.get("/api/exports", params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        seen += [item["id"] for item in page["items"]]
        house.passes(1)
        client.post("/api/exports", json={**ASKED, "parameters": {"floor": 100 + len(seen)}})  # while it is read
        if (cursor := page["next_cursor"]) is None:
            break

    assert sorted(made, reverse=True) == seen


def test_a_list_is_filtered(house):
    client = house.client("key-amina")
    house.ready(client)
    house.passes(1)
    client.post("/api/exports", json={"dataset": "open_data"})

    by_state = client.get("/api/exports?state=ready").json()["items"]
    by_dataset = client.get("/api/exports?dataset=open_data").json()["items"]
    neither = client.get("/api/exports?dataset=open_data&state=failed").json()

    assert ["orders"] == [each["dataset"] for each in by_state]
    assert ["queued"] == [each["state"] for each in by_dataset]
    assert {"items": [], "next_cursor": None} == neither
    assert client.get("/api/exports?limit=2").json()["next_cursor"] is None, "a full page with nothing behind it"


def test_a_list_has_an_etag(house):
    client = house.client("key-amina")
    client.post("/api/exports", json=ASKED)
    first = client.get("/api/exports")

    same = client.get("/api/exports", headers={"If-None-Match": first.headers["etag"]})
    house.claim()
    changed = client.get("/api/exports", headers={"If-None-Match": first.headers["etag"]})

    assert (304, 200) == (same.status_code, changed.status_code)


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("parent=1", "/query/parent"),
        ("limit=0", "/query/limit"),
        ("limit=201", "/query/limit"),
        ("limit=many", "/query/limit"),
        ("state=done", "/query/state"),
        ("cursor=abc", "/query/cursor"),
        ("dataset=../x", "/query/dataset"),
        ("everyone=perhaps", "/query/everyone"),
        ("statee=ready", "/query/statee"),
        ("state=ready&state=failed", "/query/state"),
        ("limit=1&limit=1", "/query/limit"),
    ],
)
def test_a_query_that_is_not_known_is_refused(house, query, pointer):
    client = house.client("key-amina")

    refused = client.get(f"/api/exports?{query}")
    taken = client.get("/api/exports?limit=200&state=ready&everyone=false")

    assert (422, [pointer]) == (refused.status_code, [each["pointer"] for each in refused.json()["errors"]])
    assert 200 == taken.status_code


def test_a_page_is_never_larger_than_the_operator_allows(house):
    house.doors = replace(house.doors, page_size=3)
    client = house.client("key-amina")

    for floor in range(4):
        client.post("/api/exports", json={**ASKED, "parameters": {"floor": floor}})

    taken, refused, unsaid = (client.get(f"/api/exports{query}") for query in ("?limit=3", "?limit=4", ""))

    assert (200, 200) == (taken.status_code, unsaid.status_code)
    assert (3, 3) == (len(taken.json()["items"]), len(unsaid.json()["items"]))
    assert (422, "/query/limit") == (refused.status_code, refused.json()["errors"][0]["pointer"])


def test_a_cursor_belongs_to_one_session(house):
    client = house.client("key-amina")
    for step in range(2):
        client.post("/api/exports", json={**ASKED, "parameters": {"floor": step}})
    cursor = client.get("/api/exports?limit=1").json()["next_cursor"]

    mine = client.get("/api/exports", params={"cursor": cursor})
    theirs = house.client("key-ben").get("/api/exports", params={"cursor": cursor})

    assert (200, 422) == (mine.status_code, theirs.status_code)


def test_the_operator_sees_everybody_only_when_asking_for_it(house):
    house.client("key-amina").post("/api/exports", json=ASKED)
    operator = house.client("key-omar")

    own = operator.get("/api/exports").json()["items"]
    everyone = operator.get("/api/exports?everyone=true").json()["items"]
    refused = house.client("key-ben").get("/api/exports?everyone=true")
    cancelled = operator.delete(f"/api/exports/{everyone[0]['token']}")

    assert ([], 1) == (own, len(everyone))
    assert (403, "forbidden") == (refused.status_code, refused.json()["code"])
    assert (200, "cancelled") == (cancelled.status_code, cancelled.json()["state"])


def test_cancelling_a_queued_run_ends_it_at_once(house):
    client = house.client("key-amina")
    place = client.post("/api/exports", json=ASKED).headers["location"]

    cancelled = client.delete(place)
    again = client.delete(place)

    assert (200, "cancelled") == (cancelled.status_code, cancelled.json()["state"])
    assert (409, "already_final") == (again.status_code, again.json()["code"])
    assert "cancelled" == again.json()["state"]


def test_cancelling_a_running_run_is_durable_before_the_answer(house):
    client = house.client("key-amina")
    place = client.post("/api/exports", json=ASKED).headers["location"]
    held, _ = house.claim()

    cancelled = client.delete(place)
    again = client.delete(place)

    pulse = house.store.exports.heartbeat([(held, None)], lease_seconds=15)[held]
    assert (202, "running") == (cancelled.status_code, cancelled.json()["state"])
    assert cancelled.json()["cancel_requested_at"] is not None
    assert "1" == cancelled.headers["retry-after"]
    assert 202 == again.status_code
    assert pulse.cancel_requested
    assert isinstance(held, Held)


@pytest.mark.parametrize("state", ["ready", "failed"])
def test_cancelling_what_has_ended_says_how_it_ended(house, state):
    client = house.client("key-amina")
    place = client.post("/api/exports", json=ASKED).headers["location"]
    held, run = house.claim()
    if state == "ready":
        house.finish(held, run)
    else:
        house.fail(held)

    refused = client.delete(place)

    assert (409, state) == (refused.status_code, refused.json()["state"])
    assert state == client.get(place).json()["state"]


def test_a_ready_file_can_be_removed_early(house):
    client = house.client("key-amina")
    run = house.ready(client)
    link = house.link(client, run)

    expired = client.post(f"/api/exports/{run['token']}/expire")
    again = client.post(f"/api/exports/{run['token']}/expire")
    gone = client.get(link)

    assert (200, "expired") == (expired.status_code, expired.json()["state"])
    assert (409, "expired") == (again.status_code, again.json()["state"])
    assert (410, "expired") == (gone.status_code, gone.json()["code"])


def test_a_file_that_is_not_there_yet_cannot_be_removed(house):
    client = house.client("key-amina")
    token = client.post("/api/exports", json=ASKED).json()["token"]

    refused = client.post(f"/api/exports/{token}/expire")

    assert (409, "not_ready", "queued") == (refused.status_code, refused.json()["code"], refused.json()["state"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/exports/{token}"), ("DELETE", "/api/exports/{token}"), ("POST", "/api/exports/{token}/file"),
        ("POST", "/api/exports/{token}/expire"), ("GET", "/api/exports/{token}/events"), ("GET", "/api/datasets"),
        ("GET", "/api/session"), ("POST", "/api/exports"), ("GET", "/api/storage"),
    ],
)  # fmt: skip
def test_a_query_where_none_is_known_is_refused(house, method, path):
    client = house.client("key-amina")
    token = client.post("/api/exports", json=ASKED).json()["token"]

    refused = client.request(
        method, path.format(token=token) + "?wait=10", **({"json": ASKED} if path.endswith("exports") else {})
    )

    assert (422, "/query/wait") == (refused.status_code, refused.json()["errors"][0]["pointer"])
    assert "queued" == client.get(f"/api/exports/{token}").json()["state"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", ["/api/exports", "/api/exports/{token}", "/api/datasets", "/", "/page/page.js", "/openapi.json"]
)
def test_head_is_get_without_a_body(house, path):
    client = house.client("key-amina")
    token = client.post("/api/exports", json=ASKED).json()["token"]

    got, head = client.get(path.format(token=token)), client.head(path.format(token=token))

    assert (got.status_code, b"") == (head.status_code, head.content)
    assert got.headers == head.headers

"""Exports of a parent: whose it is now decides, at every door and at every request, whoever asked for them."""

from __future__ import annotations

import threading

import pytest
from tests.stories.test_http_access import NOBODYS, bare, routes
from tests.stories.test_http_downloads import LARGE, begin, cut, served

from haulage.core.catalogue import Dataset, Parameter
from haulage.core.parents import Parent
from haulage.core.ports import Query
from haulage.core.requester import ID_MAX, Requester
from haulage.web.tokens import FileRight, Tokens, binding_of

pytestmark = pytest.mark.slow

ASKED = {"dataset": "chapters", "parent": "7"}
SQL = "select id, :parent as book from orders where id <= 3 and :parent is not null"


class Library:
    """The host: whose a book is, as it says now. An exception in the place of an owner is raised."""

    def __init__(self, house):
        self.house = house
        self.owners = {("north", 7): "amina", ("north", 8): "ben", ("south", 7): "chloe", ("house", 7): "nobody"}
        self.asked = []
        house.catalogue.add_parent(Parent("book", "Book", "integer", function=self.owner))
        house.catalogue.add_parent(
            Parent("shelf", "Shelf", function=lambda _tenant, name: "amina" if name == "top" else None)
        )
        house.catalogue.add(
            Dataset("chapters", "shop", sql=SQL, parent="book", permission="orders.read", key=("id",),
                    parameters=(Parameter("since", "date", optional=True),), formats=("csv", "json"))
        )  # fmt: skip
        house.catalogue.add(Dataset("covers", "shop", sql="select id from orders", parent="book"))
        house.catalogue.add(Dataset("labels", "shop", sql="select id from orders", parent="shelf"))

    def owner(self, tenant, book):
        self.asked.append((tenant, book))
        answer = self.owners.get((tenant, book))
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def ready(self, client, content=b"id,book\n1,7\n", **wish):
        asked = client.post("/api/exports", json={**ASKED, **wish})
        assert asked.status_code == 202, asked.text
        self.house.finish(*self.house.claim(), content)
        return client.get(asked.headers["location"]).json()

    def token(self, key, run):
        """A genuine run token of a key's session, which it was perhaps shown when the book was its own."""
        tokens = Tokens(self.house.secret_keys)
        return tokens.for_run(binding_of(self.house.people.find(key)), run["id"], 1)

    def file_token(self, key, run):
        tokens = Tokens(self.house.secret_keys)
        right = FileRight(run["id"], 1, self.house.clock + 60_000)
        return tokens.for_file(binding_of(self.house.people.find(key)), right)


@pytest.fixture
def library(house):
    return Library(house)


def listed(client, **query):
    answer = client.get("/api/exports", params={"dataset": "chapters", "parent": "7", **query})
    assert answer.status_code == 200, answer.text
    return [run["id"] for run in answer.json()["items"]]


# -- asking ---------------------------------------------------------------------------------------------------


def test_an_export_belongs_to_the_parent_that_it_was_asked_for(house, library):
    amina = house.client("key-amina")

    run = amina.post("/api/exports", json=ASKED).json()
    kept = house.row(run)

    assert ("book", "7") == (run["parent_kind"], run["parent"])
    assert ("book", "7") == (kept.parent_kind, kept.parent)
    assert ({"parent": 7}, "integer") == (kept.plan["binds"], kept.plan["types"]["parent"])
    assert [run["id"]] == listed(amina)
    assert [] == amina.get("/api/exports").json()["items"]  # those of a parent are listed by it


@pytest.mark.parametrize("given", ["7", 7, "007", "-0007"])
def test_an_id_has_one_spelling(house, library, given):
    library.owners["north", -7] = "amina"

    run = house.client("key-amina").post("/api/exports", json={**ASKED, "parent": given}).json()

    assert ("-7" if str(given).startswith("-") else "7") == run["parent"]


@pytest.mark.parametrize(
    ("wish", "pointers"),
    [
        ({"dataset": "chapters"}, ["/parent"]),
        ({"dataset": "chapters", "parent": None}, ["/parent"]),
        ({"dataset": "chapters", "parent": "seven"}, ["/parent"]),
        ({"dataset": "chapters", "parent": "7" * 30}, ["/parent"]),
        ({"dataset": "chapters", "parent": "\u0667"}, ["/parent"]),
        ({"dataset": "chapters", "parent": ""}, ["/parent"]),
        ({"dataset": "chapters", "parent": True}, ["/parent"]),
        ({"dataset": "chapters", "parent": 7.5}, ["/parent"]),
        ({"dataset": "chapters", "parent": ["7"]}, ["/parent"]),
        ({"dataset": "labels", "parent": "x" * (ID_MAX + 1)}, ["/parent"]),
        ({"dataset": "labels", "parent": "a\u0000b"}, ["/parent"]),
        ({"dataset": "labels", "parent": "a\nb"}, ["/parent"]),
        ({"dataset": "orders", "parent": "7"}, ["/parent"]),
        ({"dataset": "chapters", "format": "epub", "parent": "x", "parameters": {"since": "y"}},
         ["/parent", "/parameters/since", "/format"]),
        ({"dataset": "chapters", "parent": "7", "parameters": {"parent": "8"}}, ["/parameters/parent"]),
    ],
)  # fmt: skip
def test_a_parent_that_can_be_none_is_said_with_everything_else(house, library, wish, pointers):
    answer = house.client("key-amina").post("/api/exports", json=wish)

    assert 422 == answer.status_code, answer.text
    assert pointers == list(dict.fromkeys(fault["pointer"] for fault in answer.json()["errors"]))
    assert [] == house.store.exports.list(Query())


@pytest.mark.parametrize("key", ["key-amina", "key-ben", "key-chloe"])
def test_a_parent_of_somebody_else_is_one_that_never_was(house, library, key):
    library.owners = {("north", 7): "dora", ("south", 7): "somebody"}
    client = house.client(key)
    asks = {
        "ask": lambda parent: client.post("/api/exports", json={**ASKED, "parent": parent}),
        "list": lambda parent: client.get(f"/api/exports?dataset=chapters&parent={parent}"),
        "count": lambda parent: client.get(f"/api/datasets/chapters/counts?parent={parent}"),
    }
    for name, ask in asks.items():
        foreign, unknown = ask("7"), ask("404")

        assert (404, "not_found") == (foreign.status_code, foreign.json()["code"]), name
        assert bare(unknown) == bare(foreign), name
    assert [] == house.store.exports.list(Query())


def test_the_grant_of_the_dataset_is_needed_too(house, library):
    library.owners["north", 7] = "dora"

    assert 403 == house.client("key-dora").post("/api/exports", json=ASKED).status_code


def test_several_accounts_may_own_a_parent_and_nobody_may(house, library):
    library.owners["north", 7] = {"amina", "ben"}
    amina, ben = house.client("key-amina"), house.client("key-ben")
    run = library.ready(amina)
    seen = listed(ben)
    library.owners["north", 7] = []

    assert [run["id"]] == seen
    assert [404, 404] == [each.get("/api/exports?dataset=chapters&parent=7").status_code for each in (amina, ben)]


def test_equal_requests_for_two_parents_are_two_runs_and_for_one_are_one(house, library):
    library.owners["north", 8] = "amina"
    amina = house.client("key-amina")
    asked = [amina.post("/api/exports", json={**ASKED, "dataset": "covers", "parent": id}) for id in ("7", "8", "07")]

    first, second, third = (answer.json()["id"] for answer in asked)
    assert [202, 202, 200] == [answer.status_code for answer in asked]
    assert first == third != second


def test_a_key_stands_for_the_parent_too_and_opens_nothing_to_who_has_lost_it(house, library):
    library.owners["north", 8] = "amina"
    amina, key = house.client("key-amina"), {"Idempotency-Key": "k1"}
    first = amina.post("/api/exports", json=ASKED, headers=key)
    again = amina.post("/api/exports", json=ASKED, headers=key)
    other = amina.post("/api/exports", json={**ASKED, "parent": "8"}, headers=key)
    library.owners["north", 7] = "ben"
    lost = amina.post("/api/exports", json=ASKED, headers=key)

    assert first.json()["id"] == again.json()["id"]
    assert (409, "key_reused") == (other.status_code, other.json()["code"])
    assert 404 == lost.status_code


def test_counts_are_those_of_the_parent_and_need_it(house, library):
    amina = house.client("key-amina")

    counted = amina.get("/api/datasets/chapters/counts?parent=7").json()
    missing = amina.get("/api/datasets/chapters/counts")

    assert 3 == counted["visible_output_count"]
    assert (422, ["/query/parent"]) == (missing.status_code, [each["pointer"] for each in missing.json()["errors"]])


def test_a_dataset_says_which_kind_of_parent_it_has(house, library):
    items = {each["name"]: each for each in house.client("key-amina").get("/api/datasets").json()["items"]}

    assert {"kind": "book", "label": "Book", "type": "integer"} == items["chapters"]["parent"]
    assert items["orders"]["parent"] is None
    assert ["id", "book"] == [each["key"] for each in items["chapters"]["columns"]]


# -- lists ----------------------------------------------------------------------------------------------------


def test_a_list_of_a_parent_has_what_its_owners_asked_for_one_after_the_other(house, library):
    amina, ben = house.client("key-amina"), house.client("key-ben")
    first = library.ready(amina)
    house.passes(1)
    library.owners["north", 7] = "ben"
    second = library.ready(ben)
    house.passes(1)
    third = ben.post("/api/exports", json={**ASKED, "dataset": "covers"}).json()

    assert [second["id"], first["id"]] == listed(ben)
    assert [third["id"]] == listed(ben, dataset="covers")
    every = ben.get("/api/exports", params={"parent": "7", "parent_kind": "book"}).json()["items"]
    assert [third["id"], second["id"], first["id"]] == [run["id"] for run in every]
    assert [second["id"]] == listed(ben, limit="1")
    cursor = ben.get("/api/exports?dataset=chapters&parent=7&limit=1").json()["next_cursor"]
    assert [first["id"]] == listed(ben, limit="1", cursor=cursor)
    assert [] == listed(ben, state="failed")


@pytest.mark.parametrize(
    ("asked", "pointer"),
    [
        ("dataset=chapters", "/query/parent"),
        ("parent_kind=book", "/query/parent"),
        ("parent=7", "/query/parent_kind"),
        ("parent=7&parent_kind=record", "/query/parent_kind"),
        ("parent=7&dataset=chapters&parent_kind=shelf", "/query/parent_kind"),
        ("parent=7&dataset=orders", "/query/parent"),
        ("parent=seven&dataset=chapters", "/query/parent"),
    ],
)
def test_a_list_without_a_parent_or_its_kind_says_what_is_missing(house, library, asked, pointer):
    answer = house.client("key-amina").get(f"/api/exports?{asked}")

    assert (422, [pointer]) == (answer.status_code, [each["pointer"] for each in answer.json()["errors"]])


def test_the_operator_lists_every_run_and_those_of_a_parent_of_the_own_tenant(house, library):
    run = library.ready(house.client("key-amina"))
    operator = house.client("key-omar")

    assert [run["id"]] == [each["id"] for each in operator.get("/api/exports?everyone=true").json()["items"]]
    assert [run["id"]] == listed(operator, everyone="true")
    assert [] == listed(operator)  # of its own tenant, where there are none


# -- the present owner ------------------------------------------------------------------------------------------


def everybody(house, run, library):
    """A genuine token for everybody: the row decides, and not who was shown one."""
    return {
        key: (house.client(key), library.token(key, run), library.file_token(key, run)) for key in house.people.keys
    }


@pytest.mark.parametrize("owner", ["amina", "ben", "dora", "nobody", None])
def test_every_route_of_a_run_opens_to_the_present_owner_and_to_nobody_else(house, library, owner):
    run = library.ready(house.client("key-amina"))
    house.people.change("ben", tenant="north")
    library.owners["north", 7] = owner
    paths = [(method, path) for method, path in routes(house.app()) if "{token}" in path or "{file_token}" in path]
    assert 7 == len(paths)
    for key, (client, token, file_token) in everybody(house, run, library).items():
        account = house.people.keys[key].account
        mine = (account == owner and house.people.keys[key].tenant == "north") or account == "omar"
        for method, path in paths:
            if "events" in path or "expire" in path:
                continue
            real = client.request(method, path.format(token=token, file_token=file_token))
            unknown = client.request(method, path.format(token=NOBODYS, file_token=NOBODYS))
            of_a_file = "file" in path
            may = mine and not (of_a_file and not house.people.keys[key].holds("orders.read"))

            assert may == (real.status_code != 404), (key, method, path, real.text)
            if not may:
                assert bare(unknown) == bare(real), (key, method, path)
    assert "ready" == house.row(run).state
    for key, (client, token, _) in everybody(house, run, library).items():
        answer = client.post(f"/api/exports/{token}/expire")
        if answer.status_code == 200:
            break
        assert 404 == answer.status_code, key
    assert (owner if owner in ("amina", "ben", "dora") else "omar") == house.people.keys[key].account


def test_an_owner_of_another_tenant_with_the_same_name_sees_nothing(house, library):
    run = library.ready(house.client("key-amina"))
    house.people.keys["key-namesake"] = Requester("south", "amina", frozenset({"orders.read"}), key="namesake")
    namesake = house.client("key-namesake")

    assert 404 == namesake.get(f"/api/exports/{library.token('key-namesake', run)}").status_code
    assert 404 == namesake.get("/api/exports?dataset=chapters&parent=7").status_code


def test_a_parent_that_changes_hands_takes_its_exports_along_at_the_next_request(house, library):
    amina, ben = house.client("key-amina"), house.client("key-ben")
    run = library.ready(amina)
    place, link = f"/api/exports/{run['token']}", house.link(amina, run)
    before = [amina.get(place).status_code, amina.get(link).status_code]
    library.owners["north", 7] = "ben"
    lost = [
        amina.get(place),
        amina.get(link),
        amina.post(f"{place}/file"),
        amina.delete(place),
        amina.post(f"{place}/expire"),
    ]
    theirs = ben.get("/api/exports?dataset=chapters&parent=7").json()["items"]
    won = ben.get(house.link(ben, theirs[0]))
    library.owners["north", 7] = "amina"

    assert [200, 200] == before
    assert [404] * 5 == [answer.status_code for answer in lost]
    assert [run["id"]] == [each["id"] for each in theirs]
    assert (200, b"id,book\n1,7\n") == (won.status_code, won.content)
    assert 200 == amina.get(place).status_code
    assert 1 == len({each.artifact_key for each in house.store.exports.list(Query())})  # nothing was copied


def test_a_waiting_and_a_running_export_are_cancelled_by_the_new_owner(house, library):
    amina, ben = house.client("key-amina"), house.client("key-ben")
    first = amina.post("/api/exports", json=ASKED).json()
    held, _run = house.claim()
    second = amina.post("/api/exports", json={**ASKED, "dataset": "covers"}).json()
    library.owners["north", 7] = "ben"
    answers = [ben.delete(f"/api/exports/{library.token('key-ben', run)}") for run in (first, second)]

    assert [202, 200] == [answer.status_code for answer in answers]
    assert held.id == first["id"]
    assert ["running", "cancelled"] == [house.row(run).state for run in (first, second)]


@pytest.mark.slow
def test_a_download_is_cut_when_its_parent_changes_hands(house, library, serve):
    app = house.app()
    client = house.client("key-amina", app=app)
    run = library.ready(client, LARGE)
    with serve(app) as server:
        connection, _head, body = begin(server, house.link(client, run), {"Authorization": "Bearer key-amina"})
        library.owners["north", 7] = "ben"

        cut(connection, body)

    assert not served(house).whole
    assert "ready" == house.row(run).state


@pytest.mark.slow
def test_a_stream_of_hints_ends_when_its_parent_changes_hands(house, library, serve):
    from tests.stories.test_http_events import Listener

    app = house.app()
    client = house.client("key-amina", app=app)
    place = client.post("/api/exports", json=ASKED).headers["location"]
    with serve(app) as server:
        listener = Listener(server, place, {"Authorization": "Bearer key-amina", "Connection": "close"})
        first = listener.hint()
        library.owners["north", 7] = "ben"
        house.claim()

        assert first is not None
        assert listener.hint() is None


# -- nobody knows -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [ConnectionError("secret words of the host"), 5, {"amina": 1}, object()])
def test_a_host_that_cannot_say_allows_nothing_and_says_nothing_of_why(house, library, answer):
    amina = house.client("key-amina")
    run = library.ready(amina)
    link = house.link(amina, run)
    library.owners["north", 7] = answer
    place = f"/api/exports/{run['token']}"
    answers = [
        amina.get(place), amina.get(link), amina.post(f"{place}/file"), amina.delete(place),
        amina.post("/api/exports", json=ASKED), amina.get("/api/exports?dataset=chapters&parent=7"),
        amina.get("/api/datasets/chapters/counts?parent=7"),
    ]  # fmt: skip

    assert [(503, "host_silent")] * 7 == [(each.status_code, each.json()["code"]) for each in answers]
    assert all("Retry-After" in each.headers for each in answers)
    assert not any("secret words" in each.text for each in answers)
    told = [event for event in house.events if type(event).__name__ == "ParentUnknown"]
    assert {"book"} == {event.kind for event in told}
    assert not any("secret words" in event.problem for event in told)
    assert "ready" == house.row(run).state
    assert 200 == amina.get("/api/exports").status_code  # what belongs to no parent needs no host


def test_a_host_that_hangs_is_given_up(house, library):
    from dataclasses import replace

    house.doors = replace(house.doors, host_seconds=0.1)
    amina = house.client("key-amina")
    release = threading.Event()
    object.__setattr__(house.catalogue.find_parent("book"), "function", lambda *_asked: release.wait(60) and "amina")

    answer = amina.post("/api/exports", json=ASKED)
    release.set()

    assert (503, "host_silent") == (answer.status_code, answer.json()["code"])


def test_a_kind_that_is_not_declared_here_any_more_is_nobodys_to_allow(house, library):
    run = library.ready(house.client("key-amina"))
    with house.store.begin() as tx:
        tx.exec_driver_sql("update exports set parent_kind = 'scroll'")

    amina, operator = house.client("key-amina"), house.client("key-omar")

    assert 503 == amina.get(f"/api/exports/{run['token']}").status_code
    assert 200 == operator.get(f"/api/exports/{library.token('key-omar', run)}").status_code


# -- a parent goes ----------------------------------------------------------------------------------------------


def test_the_operator_says_that_a_parent_is_gone(house, library):
    amina, operator = house.client("key-amina"), house.client("key-omar")
    ready = library.ready(amina)
    running = amina.post("/api/exports", json={**ASKED, "format": "json"}).json()
    house.claim()
    waiting = amina.post("/api/exports", json={**ASKED, "dataset": "covers"}).json()
    library.owners["north", 8] = "amina"
    other = amina.post("/api/exports", json={**ASKED, "parent": "8"}).json()

    told = operator.post("/api/parents/gone", json={"kind": "book", "parent": 7, "tenant": "north"})
    again = operator.post("/api/parents/gone", json={"kind": "book", "parent": "7", "tenant": "north"})

    assert (200, {"cancelled": 1, "stopping": 1, "expired": 1}) == (told.status_code, told.json())
    assert {"cancelled": 0, "stopping": 0, "expired": 0} == again.json()
    assert ["expired", "running", "cancelled", "queued"] == [
        house.row(run).state for run in (ready, running, waiting, other)
    ]
    assert house.row(running).cancel_requested_at is not None


@pytest.mark.parametrize(
    ("key", "body", "status"),
    [
        ("key-amina", {"kind": "book", "parent": "7"}, 403),
        ("key-omar", {"kind": "scroll", "parent": "7"}, 404),
        ("key-omar", {"kind": "book", "parent": "seven"}, 422),
        ("key-omar", {"kind": "book"}, 422),
        ("key-omar", {"kind": "book", "parent": "7", "tenants": "north"}, 422),
        ("key-omar", {"kind": "book", "parent": "7"}, 200),  # of its own tenant: nothing of north's
    ],
)
def test_nobody_else_ends_a_parent_and_a_wrong_word_ends_none(house, library, key, body, status):
    run = library.ready(house.client("key-amina"))

    assert status == house.client(key).post("/api/parents/gone", json=body).status_code
    assert "ready" == house.row(run).state


@pytest.mark.parametrize(
    ("visible", "more", "handed_over"),
    [
        (None, "orders.all", True),
        ("tenant = :requester_tenant", "orders.all", True),
        ("'orders.all' in (:requester_grants)", "orders.read", True),
        ("'orders.all' in (:requester_grants)", "orders.all", False),
        ("tenant = :requester_account", "orders.read", False),
    ],
)
def test_a_file_is_not_for_another_owner_who_may_see_other_rows(house, library, visible, more, handed_over):
    """Both own the book, but each sees the rows that their own grants open."""
    house.people.keys["key-amina"] = Requester("north", "amina", frozenset({"orders.read", more}), key="amina")
    library.owners["north", 7] = ["amina", "ben"]
    house.catalogue.add(
        Dataset("pages", "shop", sql="select id, tenant, :parent as book from orders", parent="book", key=("id",),
                visible=visible)
    )  # fmt: skip
    amina, ben = house.client("key-amina"), house.client("key-ben")
    run = library.ready(amina, dataset="pages")
    seen = ben.get(f"/api/exports/{library.token('key-ben', run)}").json()
    answers = [client.post(f"/api/exports/{each['token']}/file") for client, each in ((amina, run), (ben, seen))]
    fetched = ben.get(f"/api/files/{library.file_token('key-ben', run)}")

    assert [201, 201 if handed_over else 410] == [answer.status_code for answer in answers]
    assert fetched.status_code == (200 if handed_over else 410)
    if not handed_over:
        assert "policy_changed" == answers[1].json()["code"] == fetched.json()["code"]
        assert b"1,7" not in fetched.content

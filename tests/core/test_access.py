"""Who may: at the request, at the run, at the file. What is not yours does not exist."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from haulage.core.catalogue import Catalogue, Command, Dataset, Made, Pages
from haulage.core.errors import BuildFailed, Refused
from haulage.core.requester import OPERATOR, Requester
from haulage.exports.access import access_at_run, access_dataset, access_file, access_run
from haulage.exports.life import ExportRun
from haulage.exports.plan import code_of as frozen_code

NOW = 1_800_000_000_000
AMINA = Requester("north", "amina", frozenset({"orders.read"}))
BEN = Requester("north", "ben", frozenset({"orders.read"}))
NAMESAKE = Requester("south", "amina", frozenset({"orders.read"}))
OMAR = Requester("house", "omar", frozenset({OPERATOR}))
ROOT = Requester("house", "root", frozenset({"*"}))
READY = ExportRun(
    id="run-1",
    tenant="north",
    state="ready",
    requested_at=NOW,
    account="amina",
    dataset="orders",
    requester=AMINA.frozen(),
    expires_at=NOW + 1,
)


@pytest.fixture
def catalogue():
    declared = Catalogue()
    declared.add(Dataset("orders", "shop", permission="orders.read"))
    declared.add(Dataset("cities", "shop"))
    return declared


def code_of(act, *arguments):
    """The code of the refusal, or None where it was allowed."""
    try:
        act(*arguments)
    except (Refused, BuildFailed) as refused:
        return refused.code
    return None


# -- at the request -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dataset", "requester", "code"),
    [
        ("orders", AMINA, None),
        ("orders", ROOT, None),
        ("orders", OMAR, "forbidden"),
        ("orders", replace(AMINA, grants=frozenset()), "forbidden"),
        ("orders", replace(AMINA, banned=True), "forbidden"),
        ("cities", replace(AMINA, grants=frozenset()), None),
        ("cities", replace(AMINA, banned=True), "forbidden"),
        ("nothing", ROOT, "not_found"),
    ],
)
def test_a_dataset_is_exported_by_those_who_hold_its_grant(catalogue, dataset, requester, code):
    assert code == code_of(access_dataset, catalogue, dataset, requester)


OF_BOOK = replace(READY, parent_kind="book", parent="7")


@pytest.mark.parametrize(
    ("requester", "owners", "code"),
    [
        (AMINA, {"amina"}, None),
        (AMINA, {"ben", "amina"}, None),
        (AMINA, {"ben"}, "not_found"),  # who asked for it is nobody in particular
        (BEN, {"ben"}, None),
        (AMINA, set(), "not_found"),
        (AMINA, None, "not_found"),
        (NAMESAKE, {"amina"}, "not_found"),
        (replace(AMINA, banned=True), {"amina"}, "not_found"),
        (OMAR, None, None),
        (AMINA, Refused("host_silent"), "host_silent"),
        (OMAR, Refused("host_silent"), None),
    ],
)
def test_a_run_of_a_parent_is_that_of_its_owners(requester, owners, code):
    asked = []

    def ask(run):
        asked.append(run)
        if isinstance(owners, Refused):
            raise owners
        return owners

    assert code == code_of(access_run, OF_BOOK, requester, ask)
    assert "not_found" == code_of(access_run, OF_BOOK, BEN)  # nobody was named who knows
    assert code_of(access_run, READY, AMINA, ask) is None
    assert all(run is OF_BOOK for run in asked)  # only of a run with a parent


@pytest.mark.parametrize(
    ("owners", "grants", "code"),
    [
        ({"amina"}, {"orders.read"}, None),
        ({"amina"}, set(), "permission_lost"),
        ({"ben"}, {"orders.read"}, "permission_lost"),
        (set(), {"orders.read"}, "permission_lost"),
        (None, {"orders.read"}, "permission_lost"),
        (None, {"*"}, "permission_lost"),  # not for the operator either: it is not there
        (set(), {"*"}, None),
        (Refused("host_silent"), {"orders.read"}, "host_silent"),
    ],
)
def test_a_run_of_a_parent_is_built_for_its_owner_of_now(catalogue, owners, grants, code):
    def ask(_run):
        if isinstance(owners, Refused):
            raise owners
        return owners

    today = replace(AMINA, grants=frozenset(grants))

    assert code == code_of(access_at_run, OF_BOOK, catalogue, lambda _asked: today, ask)


# -- the run ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requester", "code"),
    [
        (AMINA, None),
        (replace(AMINA, grants=frozenset()), None),
        (BEN, "not_found"),
        (NAMESAKE, "not_found"),
        (OMAR, None),
        (ROOT, None),
        (replace(AMINA, banned=True), "not_found"),
        (replace(OMAR, banned=True), "not_found"),
    ],
)
def test_a_run_exists_for_its_own_account_and_for_the_operator(requester, code):
    assert code == code_of(access_run, READY, requester)


def test_a_foreign_run_and_an_unknown_one_are_refused_in_the_same_words():
    with pytest.raises(Refused) as foreign:
        access_run(READY, BEN)
    with pytest.raises(Refused) as unknown:
        access_run(None, BEN)

    assert (foreign.value.code, foreign.value.detail) == (unknown.value.code, unknown.value.detail)
    assert foreign.value.state is None


# -- the file -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requester", "code"),
    [
        (AMINA, None),
        (replace(AMINA, grants=frozenset()), "not_found"),
        (replace(AMINA, grants=frozenset({"cities.read"})), "not_found"),
        (replace(AMINA, banned=True), "not_found"),
        (BEN, "not_found"),
        (NAMESAKE, "not_found"),
        (OMAR, "not_found"),
        (ROOT, None),
    ],
)
def test_a_file_is_for_those_who_hold_the_grant_today(catalogue, requester, code):
    assert code == code_of(access_file, READY, requester, catalogue, NOW)


def test_a_file_of_a_dataset_that_is_no_longer_declared_is_for_nobody():
    assert "not_found" == code_of(access_file, READY, ROOT, Catalogue(), NOW)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, None),
        ({"state": "queued"}, "not_ready"),
        ({"state": "running"}, "not_ready"),
        ({"state": "cancelled"}, "cancelled"),
        ({"state": "expired"}, "expired"),
        ({"state": "failed", "failure_code": "worker_lost"}, "failed"),
        ({"state": "failed", "failure_code": "artifact_lost"}, "artifact_lost"),
        ({"expires_at": NOW}, "expired"),
        ({"expires_at": NOW - 1}, "expired"),
    ],
)
def test_a_file_is_there_or_the_refusal_says_why_not(catalogue, changes, code):
    assert code == code_of(access_file, replace(READY, **changes), AMINA, catalogue, NOW)


@pytest.mark.parametrize("state", ["queued", "running", "cancelled", "expired", "failed"])
def test_why_a_file_is_gone_is_told_to_nobody_else(catalogue, state):
    assert "not_found" == code_of(access_file, replace(READY, state=state), BEN, catalogue, NOW)


# -- at the run ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("today", "code"),
    [
        ({}, None),
        ({"grants": frozenset({"orders.read", "more"})}, None),
        ({"grants": frozenset()}, "permission_lost"),
        ({"banned": True}, "permission_lost"),
    ],
)
def test_a_run_begins_only_if_its_requester_still_may(catalogue, today, code):
    def standing(asked):
        assert asked == AMINA
        return replace(asked, **today)

    assert code == code_of(access_at_run, READY, catalogue, standing)


@pytest.mark.parametrize(("banned", "code"), [(False, None), (True, "permission_lost")])
def test_a_worker_that_does_not_know_the_dataset_still_refuses_who_is_banned(banned, code):
    assert code == code_of(access_at_run, READY, Catalogue(), lambda asked: replace(asked, banned=banned))


# -- requesters ---------------------------------------------------------------------------------------------


def test_a_requester_is_thawed_as_it_was_frozen_but_for_its_session():
    asked = Requester("north", "amina", frozenset({"b", "a"}), session="s", key="amina-key")

    assert {"tenant": "north", "account": "amina", "grants": ["a", "b"], "key": "amina-key"} == asked.frozen()
    assert replace(asked, session="") == Requester.thawed(asked.frozen())
    assert "" == Requester.thawed(asked.frozen()).session


@pytest.mark.parametrize(
    ("grants", "grant", "held"),
    [
        ({"a"}, "a", True),
        ({"a"}, "b", False),
        ({"*"}, "b", True),
        ({"a"}, "*", False),
        (set(), None, True),
        ({"orders.read"}, "orders", False),
    ],
)
def test_a_grant_is_held_by_its_whole_name_or_by_the_star(grants, grant, held):
    assert held == Requester("north", "amina", frozenset(grants)).holds(grant)


PAGES = Pages("tickets:page", environment={"TOKEN": "env:TOKEN"})
COMMAND = Command(("/usr/bin/make", "{file}"), {"epub": Made(".epub", "application/epub+zip")})
OWN_CODE = {"tickets": ("csv", {"pages": PAGES}), "book": ("epub", {"command": COMMAND})}


@pytest.mark.parametrize("name", OWN_CODE)
def test_a_worker_runs_code_of_the_host_only_as_it_has_declared_it_itself(name):
    format, made_by = OWN_CODE[name]
    dataset = Dataset(name, "", formats=(format,), **made_by)
    plan = json.loads(json.dumps(frozen_code(dataset, format)))  # as it comes out of the store
    run = replace(READY, dataset=name, format=format, plan=plan)
    declared = Catalogue()
    declared.add(dataset)

    def code(run, catalogue=declared):
        return code_of(access_at_run, run, catalogue, lambda asked: asked)

    (kind,) = plan
    others = [{"command": {**plan.get("command", {}), "arguments": ["/bin/sh", "-c", "id"]}},
              {"pages": {**plan.get("pages", {}), "function": "os:system"}},
              {kind: {**plan[kind], "environment": {"X": "env:HAULAGE_SECRET"}}}, {kind: {}},
              plan | {"pages": {}, "command": {}}]  # fmt: skip
    assert None is code(run)
    assert "source_gone" == code(run, Catalogue())
    assert "source_gone" == code(replace(run, format="txt"))
    assert "source_gone" == code(replace(run, dataset="orders"))
    assert {"source_gone"} == {code(replace(run, plan=other)) for other in others}

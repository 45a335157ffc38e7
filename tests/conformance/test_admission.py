"""The storage budget at the claim (DECISIONS 17): what is reserved, who waits, and when nothing is left."""

from __future__ import annotations

import pytest

from haulage.core.limits import MIB
from haulage.core.ports import Storage


@pytest.fixture
def budget(case):
    case.needs_verb("storage")
    return case


def stored(case, size, tenant="north"):
    """A finished file of so many bytes."""
    held = case.hold(tenant=tenant)
    return case.settle(held, case.moves("finish"), bytes=size, stored_bytes=size)


def claim(case, tenant, **terms):
    """A new run of a tenant with a file limit of 100 MiB, claimed if it is admitted; what it reserved."""
    run = case.add(tenant, file_bytes=100 * MIB)
    claimed = case.claim(slots=10, only=run.id, **terms)
    return claimed and claimed[1].reserved_bytes


def test_a_claim_reserves_the_limit_of_its_file(budget):
    assert 100 * MIB == claim(budget, "north", store_bytes=512 * MIB)


def test_a_claim_reserves_what_is_left_where_files_leave_less(budget):
    stored(budget, 450 * MIB)

    assert 62 * MIB == claim(budget, "north", store_bytes=512 * MIB)


def test_a_run_waits_where_only_reservations_are_in_the_way(budget):
    claim(budget, "north", store_bytes=150 * MIB)

    assert None is claim(budget, "south", store_bytes=150 * MIB)


def test_a_run_waits_for_a_reservation_also_where_files_leave_less_than_its_limit(budget):
    stored(budget, 90 * MIB)
    first = claim(budget, "north", store_bytes=150 * MIB)

    assert 60 * MIB == first
    assert None is claim(budget, "south", store_bytes=150 * MIB)


def test_a_run_that_waited_is_claimed_when_the_reservation_is_given_back(budget):
    running = budget.hold(tenant="north", file_bytes=100 * MIB)
    waiting = budget.add("south", file_bytes=100 * MIB)
    refused = budget.claim(only=waiting.id, store_bytes=150 * MIB)
    budget.settle(running, budget.moves("fail"))

    admitted = budget.claim(only=waiting.id, store_bytes=150 * MIB)

    assert refused is None
    assert 100 * MIB == admitted[1].reserved_bytes


def test_a_run_is_claimed_with_nothing_where_files_leave_nothing(budget):
    stored(budget, 150 * MIB)

    assert 0 == claim(budget, "north", store_bytes=150 * MIB)


def test_a_run_is_claimed_with_nothing_where_a_budget_was_made_smaller_than_the_files(budget):
    stored(budget, 150 * MIB)
    budget.hold(tenant="south", file_bytes=10 * MIB)

    assert 0 == claim(budget, "north", store_bytes=100 * MIB)


def test_reservations_never_exceed_the_budget(budget):
    reserved = [claim(budget, f"tenant{number}", store_bytes=250 * MIB) for number in range(5)]

    assert [100 * MIB, 100 * MIB, None, None, None] == reserved
    assert 200 * MIB == budget.runs.storage("north").reserved_bytes


def test_a_finished_run_swaps_its_reservation_for_its_size(budget):
    held = budget.hold(file_bytes=100 * MIB)
    before = budget.runs.storage("north")
    budget.settle(held, budget.moves("finish"), bytes=7, stored_bytes=7)

    assert Storage(0, 100 * MIB, 0) == before
    assert Storage(7, 0, 7) == budget.runs.storage("north")


@pytest.mark.parametrize("name", ["fail", "stop", "lose", "bury", "overrun", "halt", "rerun"])
def test_a_run_that_ends_without_a_file_gives_its_reservation_back(budget, name):
    move = budget.moves(name)
    held = budget.hold()
    if move.cancel == "requested":
        budget.cancel(held.id)
    budget.settle(held, move)

    assert Storage(0, 0, 0) == budget.runs.storage("north")


def test_bytes_of_another_tenant_count_in_the_whole_but_are_not_ones_own(budget):
    stored(budget, 5, tenant="north")
    stored(budget, 8, tenant="south")

    assert Storage(13, 0, 5) == budget.runs.storage("north")
    assert Storage(13, 0, 0) == budget.runs.storage("west")


def test_bytes_are_whole_numbers_that_an_answer_can_hold(budget):
    stored(budget, 5)
    budget.hold()
    used = budget.runs.storage("north")

    assert [int, int, int] == [type(figure) for figure in (used.stored_bytes, used.reserved_bytes, used.tenant_bytes)]


def test_expired_bytes_count_until_they_are_gone(budget):
    run = stored(budget, 5)
    budget.runs.move(run.id, budget.moves("expire"), {}, now=budget.now)
    expired = budget.runs.storage("north")
    budget.runs.forget_bytes(run.id, run.artifact_key)

    assert 5 == expired.stored_bytes
    assert Storage(0, 0, 0) == budget.runs.storage("north")


def test_the_name_of_the_bytes_is_stored_with_the_claim(budget):
    held = budget.hold()

    assert f"{held.id}.1" == budget.get(held.id).artifact_key
    assert {f"{held.id}.1"} == budget.runs.promised([f"{held.id}.1", f"{held.id}.0", "nobody.1", "no number"])


def test_the_generation_clock_begins_at_the_claim(budget):
    run = budget.add(generation_ms=120_000)

    budget.claim(now=budget.now + 5_000, grace_seconds=10)

    assert budget.now + 5_000 + 120_000 + 10_000 == budget.get(run).finish_by


def test_bytes_that_nobody_promises_any_more_are_listed_until_they_are_gone(budget):
    expire, mislay, fail = budget.moves("expire", "mislay", "fail")
    kept, expired, mislaid = stored(budget, 1), stored(budget, 2), stored(budget, 3)
    failed = budget.hold()
    budget.settle(failed, fail)
    budget.runs.move(expired.id, expire, {}, now=budget.now)
    budget.runs.move(mislaid.id, mislay, budget.kit.values(mislay), now=budget.now)
    listed = {run.id for run in budget.runs.unkept()}
    for run in budget.runs.unkept():
        budget.runs.forget_bytes(run.id, run.artifact_key)

    assert {expired.id, mislaid.id, failed.id} == listed
    assert [] == budget.runs.unkept()
    assert kept == budget.get(kept)


def test_bytes_are_forgotten_only_under_the_name_that_was_removed(budget):
    run = stored(budget, 1)
    budget.runs.move(run.id, budget.moves("expire"), {}, now=budget.now)
    budget.runs.forget_bytes(run.id, f"{run.id}.7")

    assert run.artifact_key == budget.get(run).artifact_key


def test_bytes_of_a_file_that_is_promised_are_never_forgotten(budget):
    ready, running = stored(budget, 1), budget.hold()
    budget.runs.forget_bytes(ready.id, ready.artifact_key)
    budget.runs.forget_bytes(running.id, f"{running.id}.1")

    assert ready == budget.get(ready)
    assert f"{running.id}.1" == budget.get(running.id).artifact_key

"""The place that a waiting requester is told is the place in the order in which runs are really claimed."""

from __future__ import annotations

import random

import pytest


def positions(case, runs):
    return [case.runs.queue_position(case.get(run)) for run in runs]


def test_the_first_in_the_queue_is_at_place_one(case):
    first, second = case.add(seconds=0), case.add(seconds=1)

    assert [1, 2] == positions(case, [first, second])


def test_one_moves_up_when_another_is_claimed_or_cancelled(case):
    runs = [case.add(seconds=seconds) for seconds in range(4)]
    case.cancel(runs[1].id)
    after_cancel = positions(case, runs)
    case.claim()

    assert [1, None, 2, 3] == after_cancel
    assert [None, None, 1, 2] == positions(case, runs)


@pytest.mark.parametrize("state", ["running", "ready", "failed", "cancelled", "expired"])
def test_a_run_that_does_not_wait_has_no_place(case, state):
    case.add()
    run, _ = case.bring(state)

    assert None is case.runs.queue_position(run)


def test_a_late_tenant_is_told_that_it_comes_second(case):
    for seconds in range(5):
        case.add("north", seconds=seconds)
    late = case.add("south", seconds=9)

    assert 2 == case.runs.queue_position(late)


def test_a_tenant_with_running_runs_stands_further_back(case):
    case.hold(tenant="north")
    older = case.add("north", seconds=1)
    newer = case.add("south", seconds=2)

    assert [2, 1] == positions(case, [older, newer])


@pytest.mark.parametrize("seed", range(6))
def test_the_places_are_the_order_in_which_runs_are_claimed(case, seed):
    chance = random.Random(seed)
    for _ in range(chance.randrange(4)):
        case.hold(tenant=chance.choice("abc"))
    runs = [case.add(chance.choice("abcd"), seconds=chance.randrange(6)) for _ in range(14)]
    told = {run.id: place for run, place in zip(runs, positions(case, runs), strict=True)}

    claimed = [case.claim(slots=100, tenant_running=100)[0].id for _ in runs]

    assert claimed == sorted(told, key=told.get)
    assert list(range(1, 15)) == sorted(told.values())

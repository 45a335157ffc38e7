"""A cancel is durable at once, ends the run, and frees its key for the next equal request."""

from __future__ import annotations

import pytest

from haulage.core.lease import CancelWanted


def test_a_queued_run_is_cancelled_at_once(case):
    run = case.add()
    cancelled = case.cancel(run.id, now=case.now + 3_000)

    assert "cancelled" == cancelled.state
    assert case.now + 3_000 == cancelled.cancel_requested_at == cancelled.finished_at
    assert cancelled == case.get(run)
    assert None is case.claim()


def test_a_cancel_of_a_running_run_is_recorded_and_the_run_goes_on_until_it_is_stopped(case):
    stop = case.moves("stop")
    held = case.hold()
    asked = case.cancel(held.id, now=case.now + 3_000)
    stopped = case.settle(held, stop, now=case.now + 5_000)

    assert ("running", case.now + 3_000, None) == (asked.state, asked.cancel_requested_at, asked.finished_at)
    assert ("cancelled", case.now + 5_000) == (stopped.state, stopped.finished_at)


def test_a_second_cancel_keeps_the_instant_of_the_first(case):
    held = case.hold()
    first = case.cancel(held.id, now=case.now + 1_000)

    assert first == case.cancel(held.id, now=case.now + 2_000)


def test_a_cancelled_run_never_becomes_ready(case):
    finish = case.moves("finish")
    held = case.hold()
    case.cancel(held.id)

    with pytest.raises(CancelWanted):
        case.settle(held, finish)

    assert "running" == case.get(held.id).state


@pytest.mark.parametrize("state", ["ready", "failed", "cancelled", "expired"])
def test_a_cancel_of_a_final_run_answers_its_state_and_changes_nothing(case, state):
    run, _ = case.bring(state)

    assert run == case.cancel(run.id, now=case.now + 9_000)
    assert run == case.get(run)


def test_a_cancel_of_an_unknown_run_answers_nothing(case):
    assert None is case.cancel("nobody")


def test_the_active_run_of_a_key_is_found(case):
    run = case.add(active_key="k")

    assert run == case.runs.find_active("k")
    assert None is case.runs.find_active("another")


@pytest.mark.parametrize("begun", [False, True])
def test_an_equal_request_right_after_a_cancel_is_a_new_run(case, begun):
    first = case.add(active_key="k")
    if begun:
        case.claim()
    case.cancel(first.id)
    forgotten = case.runs.find_active("k")
    second = case.add(active_key="k")

    assert forgotten is None
    assert second == case.runs.find_active("k")


@pytest.mark.parametrize("state", ["ready", "failed", "cancelled", "expired"])
def test_an_equal_request_after_the_end_is_a_new_run(case, state):
    run, _ = case.bring(state)

    assert None is run.active_key


def test_a_key_holds_one_active_run(case):
    case.add(active_key="k")

    with pytest.raises(AssertionError, match="the store refused a row"):
        case.add(active_key="k")


def test_runs_without_a_key_stand_in_nobodys_way(case):
    case.add(active_key=None)
    case.add(active_key=None)

    assert 2 == case.runs.waiting()

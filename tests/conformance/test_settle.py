"""Settling: one outcome counts, a cancel that came first wins, and a lost answer can be asked for again."""

from __future__ import annotations

import itertools

import pytest
from tests.conformance.processes import act, cancel_one, settle_one, together

from haulage.core.lease import CancelWanted, Held, LeaseLost


def test_a_finished_run_is_final(case):
    finish = case.moves("finish")
    held = case.hold()
    run = case.settle(held, finish, now=case.now + 2_000)

    assert "ready" == run.state
    assert case.now + 2_000 == run.finished_at
    assert case.now + 602_000 == run.expires_at
    assert case.life.is_final(run.state)


def test_a_settle_that_was_asked_again_finds_its_own_result(case):
    finish = case.moves("finish")
    held = case.hold()
    first = case.settle(held, finish)

    assert first == case.settle(held, finish, now=case.now + 9_000)
    assert first == case.get(held.id)


def test_a_settle_after_another_outcome_of_the_same_lease_is_refused(case):
    finish, fail = case.moves("finish", "fail")
    held = case.hold()
    first = case.settle(held, fail)

    with pytest.raises(LeaseLost):
        case.settle(held, finish)

    assert first == case.get(held.id)


def test_a_settle_of_a_run_that_is_gone_is_refused(case):
    finish = case.moves("finish")
    held = case.hold()

    with pytest.raises(LeaseLost):
        case.settle(Held("nobody", held.tenant, held.claim_no, held.worker), finish)


@pytest.mark.parametrize("claim_no", [0, 2])
def test_a_settle_with_another_fence_is_refused(case, claim_no):
    finish = case.moves("finish")
    held = case.hold()
    before = case.get(held.id)

    with pytest.raises(LeaseLost):
        case.settle(Held(held.id, held.tenant, claim_no, held.worker), finish)

    assert before == case.get(held.id)
    assert "ready" == case.settle(held, finish).state


def test_a_settle_never_writes_another_state_than_that_of_its_move(case):
    finish = case.moves("finish")
    held = case.hold()

    assert "ready" == case.settle(held, finish, state="expired").state


def test_a_value_is_not_taken_for_that_of_the_settle_before(case):
    fail = case.moves("fail")
    details = (None, "the disk is full", None)

    written = [case.settle(case.hold(), fail, failure_detail=detail).failure_detail for detail in details]

    assert list(details) == written


def test_a_value_that_the_table_has_no_column_for_is_not_lost_without_a_word(case):
    finish = case.moves("finish")
    held = case.hold()

    with pytest.raises(AssertionError, match="file_nome"):
        case.settle(held, finish, file_nome="orders.csv")

    assert "running" == case.get(held.id).state


@pytest.mark.parametrize("name", ["finish", "fail", "lose", "overrun", "rerun"])
def test_a_move_that_wants_no_cancel_does_not_follow_one(case, name):
    move, stop = case.moves(name, "stop")
    held = case.hold()
    case.cancel(held.id)
    before = case.get(held.id)

    with pytest.raises(CancelWanted):
        case.settle(held, move)

    assert before == case.get(held.id)
    assert "cancelled" == case.settle(held, stop).state


@pytest.mark.parametrize("name", ["stop", "bury", "halt"])
def test_a_run_is_not_stopped_that_nobody_cancelled(case, name):
    move = case.moves(name)
    held = case.hold()
    before = case.get(held.id)

    with pytest.raises(AssertionError, match="needs a cancel request"):
        case.settle(held, move)

    assert before == case.get(held.id)


def test_a_lost_lease_is_told_from_a_cancel(case):
    """Both are a row count of zero; only the one who still holds the run has to stop it."""
    lose, finish = case.moves("lose", "finish")
    held = case.hold()
    case.runs.sweep(lose, {}, worker="sweeper", now=case.now + 15_000)
    case.cancel(held.id)

    with pytest.raises(LeaseLost):
        case.settle(held, finish)


STEPS = {
    "cancel": lambda case, held: case.cancel(held.id),
    "finish": lambda case, held: case.settle(held, case.moves("finish")),
    "stop": lambda case, held: case.settle(held, case.moves("stop")),
    "beat": lambda case, held: case.beat(held),
}


@pytest.mark.parametrize("order", list(itertools.permutations(STEPS)), ids=">".join)
def test_cancel_and_settle_in_every_order_end_in_one_outcome(case, order):
    case.moves("finish", "stop")
    held = case.hold()
    for step in order:
        try:
            STEPS[step](case, held)
        except (CancelWanted, LeaseLost, AssertionError):
            continue
    run = case.get(held.id)
    cancelled_first = order.index("cancel") < order.index("finish")
    stopped = cancelled_first and order.index("cancel") < order.index("stop")

    # A cancel before the finish means never ready; without a stop after it the run still waits for one.
    wanted = "cancelled" if stopped else "running" if cancelled_first else "ready"

    assert wanted == run.state
    assert cancelled_first == (run.cancel_requested_at is not None)


@pytest.mark.process
def test_one_of_four_racing_settlers_wins(case):
    finish, fail = case.moves("finish", "fail")
    case.opener.write_down_transitions(case.url, case.flow.name)
    for _ in range(3):
        held = case.hold()
        done, failed = ((held, move, case.kit.values(move)) for move in (finish, fail))
        states = together(case, settle_one, done, failed, done, failed)
        final = case.get(held.id).state
        made = [move for move in case.opener.transitions(case.url) if move[0] == held.id and move[1] == "running"]

        assert 1 == len(made)
        assert {final, "LeaseLost"} == set(states)
        assert 2 == states.count(final)


@pytest.mark.process
def test_one_of_four_racing_leases_wins(case):
    """The run was taken away from one worker and given to another; a fence of the future is as wrong as an old one."""
    finish, lose, rerun = case.moves("finish", "lose", "rerun")
    first = case.hold("w1")
    swept = case.runs.sweep(lose, {}, worker="sweeper", now=case.now + 15_000)[0]
    sweeping = Held(swept.id, swept.tenant, swept.claim_no, "sweeper")
    case.settle(sweeping, rerun)
    live, _ = case.claim("w2", now=case.now + 16_000)
    unborn = Held(live.id, live.tenant, live.claim_no + 1, "w3")

    states = together(
        case, settle_one, *((held, finish, case.kit.values(finish)) for held in (first, sweeping, unborn, live))
    )

    assert ["LeaseLost", "LeaseLost", "LeaseLost", "ready"] == states


@pytest.mark.process
def test_a_cancel_that_races_a_finish_decides_for_both(case):
    finish = case.moves("finish")
    outcomes = set()
    for _ in range(6):
        held = case.hold(tenant="north")
        settled, (state, recorded) = together(
            case, act, (settle_one, (held, finish, case.kit.values(finish))), (cancel_one, held.id)
        )
        run = case.get(held.id)
        outcomes.add(settled)

        # Whoever was first is believed by both, and the other changed nothing.
        assert ("ready", "ready", False) == (settled, state, recorded) or (
            ("CancelWanted", "running", True) == (settled, state, recorded)
        )
        assert run.state == state

    assert outcomes <= {"ready", "CancelWanted"}

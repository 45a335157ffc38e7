"""The negative matrix, generated from the life: every move in every state, under every guard.

What the life does not allow is refused and changes nothing; what it allows leads where the table says.
"""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from tests.promises import NotPromised

from haulage.core.lease import CancelWanted, Held, LeaseLost
from haulage.core.lifecycle import LeaseUse
from haulage.flows import FLOWS

MOVES = sorted({name for flow in FLOWS for name in flow.life.moves})
FENCED = sorted({name for flow in FLOWS for name, move in flow.life.moves.items() if move.lease is LeaseUse.ENDS})


# A cancel is recorded only while a worker holds the run; elsewhere it ends the run, or nothing.
STANDS = sorted(
    {
        (str(state), cancelled)
        for flow in FLOWS
        for state in flow.life.states
        for cancelled in (False, True)
        if not cancelled or state in flow.life.leased_states()
    }
)


def attempt(case, run, move):
    """Make a move as well as anybody could; True when it was made."""
    if move.lease is LeaseUse.TAKES:
        return case.claim(only=run.id) is not None
    if move.lease is LeaseUse.NONE:
        return case.runs.move(run.id, move, case.kit.values(move), now=case.now + 1) is not None
    try:
        case.settle(Held(run.id, run.tenant, run.claim_no, "w1"), move, now=case.now + 1)
    except (LeaseLost, CancelWanted, AssertionError):
        return False
    return case.get(run) != run  # To find one's own result again is no move.


@pytest.mark.parametrize(("state", "cancelled"), STANDS)
def test_a_move_is_made_where_the_life_has_it_and_refused_elsewhere(case, state, cancelled):
    if state not in case.life.states:
        raise NotPromised(f"the life of {case.flow.name} has no {state}")
    case.opener.write_down_transitions(case.url, case.flow.name)  # which is emptied too
    for name, move in case.life.moves.items():
        case.opener.empty(case)
        run, _ = case.bring(state, cancelled=cancelled)
        allowed = move.source == state and move.allows_cancel(cancelled)

        made = attempt(case, run, move)
        after = case.get(run)

        assert (name, allowed) == (name, made)
        assert (name, move.target if allowed else state) == (name, after.state)
        assert allowed or run == after, name


@pytest.mark.parametrize("guard", ["an older claim", "a claim to come", "an unknown run"])
@pytest.mark.parametrize("name", FENCED)
def test_a_fenced_move_is_refused_with_any_other_guard(case, name, guard):
    move = case.moves(name)
    run, held = case.bring(move.source, cancelled=move.cancel == "requested")
    wrong = {
        "an older claim": replace(held, claim_no=held.claim_no - 1),
        "a claim to come": replace(held, claim_no=held.claim_no + 1),
        "an unknown run": replace(held, id="00000000-0000-7000-8000-000000000000"),
    }[guard]

    with pytest.raises(LeaseLost):
        case.settle(wrong, move)

    assert run == case.get(run)
    assert move.target == case.settle(held, move).state


@pytest.mark.parametrize("name", MOVES)
def test_a_verb_refuses_a_move_that_is_not_of_its_kind(case, name):
    move = case.moves(name)
    run, _ = case.bring(move.source)
    held = Held(run.id, run.tenant, run.claim_no, "w1")

    if move.lease is not LeaseUse.NONE:
        with pytest.raises(AssertionError, match="needs a lease"):
            case.runs.move(run.id, move, {})
    if move.lease is not LeaseUse.ENDS:
        with pytest.raises(AssertionError, match="ends no lease"):
            case.runs.settle(held, move, {})
    if move.deadline is None:
        with pytest.raises(AssertionError, match="has no deadline"):
            case.runs.sweep(move, {}, worker="sweeper")

    assert run == case.get(run)


# -- what no verb can write, the table refuses too -------------------------------------------------------

LIES = {
    "an unknown state": {"state": "lost"},
    "running without a lease": {"state": "running", "lease_until": None},
    "a lease without running": {"lease_until": 1},
    "a slot without running": {"slot": 7},
    "ready without a file": {"state": "ready", "expires_at": 1, "complete": True, "bytes": 1, "sha256": "f" * 64},
    "ready without a hash": {"state": "ready", "expires_at": 1, "complete": True, "bytes": 1, "artifact_key": "k"},
    "ready for ever": {"state": "ready", "complete": True, "bytes": 1, "sha256": "f" * 64, "artifact_key": "k"},
    "final with the key of an active run": {"state": "failed", "active_key": "k"},
}


@pytest.mark.parametrize("lie", LIES)
def test_the_table_refuses_a_row_that_no_life_leads_to(case, lie):
    unknown = set(LIES[lie]) - {field.name for field in fields(case.kit.new(requested_at=0))}
    if unknown:
        raise NotPromised(f"{case.flow.name} have no {', '.join(sorted(unknown))}")
    run = case.add()

    with pytest.raises(AssertionError, match="the store refused a row"):
        case.write(run.id, **LIES[lie])

    assert run == case.get(run)

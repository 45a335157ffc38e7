"""What is due ends: every deadline of a life in one sentence, bounded, looked for before anything is written."""

from __future__ import annotations

import itertools

import pytest
from tests.conformance.cases import DAY, MINUTE

from haulage.core.errors import StoreUnavailable
from haulage.core.lease import CancelWanted, Held, LeaseLost, Pulse
from haulage.core.lifecycle import LeaseUse
from haulage.flows import FLOWS

DUE_MOVES = [move for flow in FLOWS for move in flow.life.due_moves()]
DUE = sorted({move.name for move in DUE_MOVES})
FENCED = sorted({move.name for move in DUE_MOVES if move.lease is LeaseUse.ENDS})
WANTS_CANCEL = {"absent": (False,), "requested": (True,), "either": (False, True)}


def sweep(case, move, *, now, worker="sweeper", limit=100):
    values = {} if move.lease is LeaseUse.ENDS else case.kit.values(move)
    return case.runs.sweep(move, values, worker=worker, now=now, limit=limit)


def due_run(case, move, *, cancelled=False):
    """A run in the state of a move whose deadline is one minute after the beginning."""
    run, _ = case.bring(move.source, cancelled=cancelled)
    others = {each.deadline: None for each in case.life.due_moves() if each.source == move.source}
    return set_columns(case, run, **{**others, "lease_until": run.lease_until, move.deadline: case.now + MINUTE})


def set_columns(case, run, **values):
    """Set deadlines so that only the one under test is due."""
    case.write(run.id, **values)
    return case.get(run)


@pytest.mark.parametrize("name", DUE)
def test_a_move_falls_due_at_its_instant_and_not_before(case, name):
    move = case.moves(name)
    run = due_run(case, move, cancelled=move.cancel == "requested")

    assert [] == sweep(case, move, now=case.now + MINUTE - 1)
    assert run == case.get(run)
    assert [run.id] == [swept.id for swept in sweep(case, move, now=case.now + MINUTE)]


@pytest.mark.parametrize("name", DUE)
def test_an_unleased_run_that_is_due_is_moved_and_a_leased_one_fenced(case, name):
    move = case.moves(name)
    run = due_run(case, move, cancelled=move.cancel == "requested")

    swept = sweep(case, move, now=case.now + MINUTE)[0]

    assert swept == case.get(run)
    if move.lease is LeaseUse.ENDS:
        assert (move.source, run.claim_no + 1, "sweeper") == (swept.state, swept.claim_no, swept.worker)
        assert case.now + MINUTE + 15_000 == swept.lease_until
    else:
        assert (move.target, run.claim_no) == (swept.state, swept.claim_no)
    assert run.revision + 1 == swept.revision


@pytest.mark.parametrize("name", FENCED)
def test_a_sweep_looks_at_the_cancel(case, name):
    move = case.moves(name)
    found = {}
    for cancelled in (False, True):
        run = due_run(case, move, cancelled=cancelled)
        found[cancelled] = run.id in [swept.id for swept in sweep(case, move, now=case.now + MINUTE)]

    assert {cancelled: cancelled in WANTS_CANCEL[move.cancel] for cancelled in (False, True)} == found


def test_a_run_that_waited_too_long_fails(case):
    starve = case.moves("starve")
    run = case.add()
    case.runs.sweep(starve, {"failure_code": "queue_timeout"}, worker="sweeper", now=run.claim_by)

    assert ("failed", "queue_timeout") == (case.get(run).state, case.get(run).failure_code)
    assert case.now + 150_000 == case.get(run).finished_at


def test_a_queued_run_is_not_aged_by_the_clocks_of_a_running_one(case):
    """It was requested long ago; only its own deadline counts."""
    lose, overrun = case.moves("lose", "overrun")
    run = case.add(claim_by=case.now + DAY)

    assert [[], []] == [sweep(case, move, now=case.now + DAY - 1) for move in (lose, overrun)]
    assert run == case.get(run)


def test_a_lost_run_fails_and_loses_its_bytes_first(case):
    lose = case.moves("lose")
    held = case.hold()
    fenced = sweep(case, lose, now=case.now + 15_000)[0]
    still = case.get(held.id)
    sweeping = Held(fenced.id, fenced.tenant, fenced.claim_no, "sweeper")
    # Between the two the sweep removes the bytes, whose name the row still has.
    lost = case.settle(sweeping, lose, failure_code="worker_lost", artifact_key=None)

    assert ("running", fenced.artifact_key) == (still.state, f"{held.id}.1")
    assert ("failed", "worker_lost", None) == (lost.state, lost.failure_code, lost.artifact_key)


def test_a_lost_run_that_was_cancelled_is_buried(case):
    lose, bury = case.moves("lose", "bury")
    held = case.hold()
    case.cancel(held.id)
    nothing = sweep(case, lose, now=case.now + 15_000)
    fenced = sweep(case, bury, now=case.now + 15_000)[0]

    assert [] == nothing
    assert "cancelled" == case.settle(Held(fenced.id, fenced.tenant, fenced.claim_no, "sweeper"), bury).state


def test_a_cancel_that_comes_while_the_sweep_removes_bytes_wins(case):
    lose, bury = case.moves("lose", "bury")
    case.hold()
    fenced = sweep(case, lose, now=case.now + 15_000)[0]
    sweeping = Held(fenced.id, fenced.tenant, fenced.claim_no, "sweeper")
    case.cancel(fenced.id)

    with pytest.raises(CancelWanted):
        case.settle(sweeping, lose)

    assert "cancelled" == case.settle(sweeping, bury).state


def test_a_lost_run_may_wait_again_with_a_wait_of_its_own(case):
    lose, rerun = case.moves("lose", "rerun")
    held = case.hold(attempts_max=3)
    fenced = sweep(case, lose, now=case.now + 15_000)[0]
    sweeping = Held(fenced.id, fenced.tenant, fenced.claim_no, "sweeper")
    again = case.settle(sweeping, rerun, claim_by=case.now + 999_000)
    second, run = case.claim("w2", now=case.now + 20_000)

    assert ("queued", None, None, None) == (again.state, again.worker, again.slot, again.finished_at)
    assert (held.id, 3, 2) == (second.id, second.claim_no, run.attempts)


def test_a_beat_that_comes_before_the_sweep_keeps_the_run(case):
    lose = case.moves("lose")
    held = case.hold()
    case.beat(held, now=case.now + 15_001)

    assert [] == sweep(case, lose, now=case.now + 15_002)


def test_a_beat_that_comes_after_the_sweep_is_too_late(case):
    lose = case.moves("lose")
    held = case.hold()
    sweep(case, lose, now=case.now + 15_001)

    assert Pulse(False, False) == case.beat(held, now=case.now + 15_002)


def test_a_second_sweep_takes_the_fence_only_when_the_first_fell_silent(case):
    lose = case.moves("lose")
    case.hold()
    sweep(case, lose, worker="first", now=case.now + 15_000)

    assert [] == sweep(case, lose, worker="second", now=case.now + 29_999)
    assert ["second"] == [run.worker for run in sweep(case, lose, worker="second", now=case.now + 30_000)]


@pytest.mark.parametrize(("mine", "other"), list(itertools.permutations(["lose", "overrun"])))
def test_a_sweep_at_work_is_not_disturbed_by_another_deadline_of_the_same_run(case, mine, other):
    """Both are due. Without that, two sweeps could take the run from each other for ever."""
    mine, other = case.moves(mine, other)
    held = case.hold()
    late = case.get(held.id).finish_by
    fenced = sweep(case, mine, worker="first", now=late)[0]
    disturbed = sweep(case, other, worker="second", now=late + 1)

    assert [] == disturbed
    assert "failed" == case.settle(Held(fenced.id, fenced.tenant, fenced.claim_no, "first"), mine).state


def test_a_run_over_its_time_ends_although_its_worker_still_beats(case):
    overrun = case.moves("overrun")
    held = case.hold(generation_ms=60_000)
    case.beat(held, now=case.now + 69_000)
    early = sweep(case, overrun, now=case.now + 69_999)
    fenced = sweep(case, overrun, now=case.now + 70_000)[0]

    assert [] == early
    assert Pulse(False, False) == case.beat(held, now=case.now + 70_001)
    with pytest.raises(LeaseLost):
        case.settle(held, case.moves("finish"))
    assert "failed" == case.settle(Held(fenced.id, fenced.tenant, fenced.claim_no, "sweeper"), overrun).state


def test_a_cancel_that_a_beating_worker_never_obeys_is_made_by_the_sweep(case):
    overrun, halt = case.moves("overrun", "halt")
    held = case.hold(generation_ms=60_000)
    case.cancel(held.id)
    case.beat(held, now=case.now + 69_000)
    early = sweep(case, halt, now=case.now + 69_999)
    failed = sweep(case, overrun, now=case.now + 70_000)
    fenced = sweep(case, halt, now=case.now + 70_000)[0]

    assert ([], []) == (early, failed)
    assert Pulse(False, False) == case.beat(held, now=case.now + 70_001)
    assert "cancelled" == case.settle(Held(fenced.id, fenced.tenant, fenced.claim_no, "sweeper"), halt).state


def test_a_file_expires_and_its_row_keeps_the_name_of_the_bytes(case):
    expire = case.moves("expire")
    ready, _ = case.bring("ready")
    sweep(case, expire, now=ready.expires_at)
    expired = case.get(ready)

    assert ("expired", ready.artifact_key) == (expired.state, expired.artifact_key)
    assert ready.finished_at == expired.finished_at
    assert (ready.rows, ready.sha256) == (expired.rows, expired.sha256)


def test_a_file_that_was_lost_fails_its_run(case):
    mislay = case.moves("mislay")
    ready, _ = case.bring("ready")
    lost = case.runs.move(ready.id, mislay, {"failure_code": "artifact_lost"}, now=case.now)

    assert ("failed", "artifact_lost") == (lost.state, lost.failure_code)
    assert None is case.runs.move(ready.id, mislay, {"failure_code": "artifact_lost"}, now=case.now)


# -- nobody is there ------------------------------------------------------------------------------------


@pytest.fixture
def waiting(case):
    case.needs_verb("abandon_waiting")
    return case, case.add(claim_by=case.now + DAY)


def abandoned(case, *, seconds):
    return [run.id for run in case.runs.abandon_waiting(60, now=case.now + seconds * 1000)]


def test_a_run_that_nobody_could_claim_for_a_minute_is_abandoned(waiting):
    case, run = waiting

    assert [] == abandoned(case, seconds=59)
    assert [run.id] == abandoned(case, seconds=60)
    assert ("failed", "workers_gone") == (case.get(run).state, case.get(run).failure_code)


@pytest.mark.parametrize("state", ["claiming", "draining"])
def test_a_run_is_not_abandoned_while_a_worker_lives(waiting, state):
    case, run = waiting
    case.presence(state=state, now=case.now + 30_000)

    assert [] == abandoned(case, seconds=89)
    assert [run.id] == abandoned(case, seconds=90)


def test_a_private_worker_keeps_only_its_own_run_from_being_abandoned(waiting):
    case, run = waiting
    other = case.add(claim_by=case.now + DAY)
    case.presence(only_run=run.id, now=case.now + 30_000)

    assert [other.id] == abandoned(case, seconds=60)


def test_a_running_run_is_never_abandoned(waiting):
    case, _run = waiting
    case.claim()

    assert [] == abandoned(case, seconds=600)


# -- bounds ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["starve", "lose", "expire"])
def test_a_pass_is_bounded_and_takes_the_longest_due_first(case, name):
    move = case.moves(name)
    runs = [due_run(case, move) for _ in range(5)]
    for place, run in enumerate(reversed(runs)):
        set_columns(case, run, **{move.deadline: case.now + place})

    swept = [{run.id for run in sweep(case, move, now=case.now + MINUTE, limit=2)} for _ in range(4)]

    assert [{runs[4].id, runs[3].id}, {runs[2].id, runs[1].id}, {runs[0].id}, set()] == swept


def test_the_abandoned_are_bounded_too(waiting):
    case, _run = waiting
    for _ in range(120):
        case.add(claim_by=case.now + DAY)

    assert [100, 21, 0] == [len(abandoned(case, seconds=60)) for _ in range(3)]


@pytest.mark.parametrize("name", DUE)
def test_a_pass_that_finds_nothing_writes_nothing(case, name):
    """It does not even ask for the right to write: another program holds that for the whole test."""
    move = case.moves(name)
    case.bring(move.source)
    with case.opener.locked(case.url):
        assert [] == sweep(case, move, now=case.now)
        assert 0 == case.runs.remove(now=case.now)


def test_a_sweep_that_finds_something_after_another_did_it_does_nothing(case):
    """Two passes may pick the same runs; the second sees at its write that they are gone."""
    starve = case.moves("starve")
    run = case.add()
    other = case.open()
    runs = getattr(other, case.flow.name)
    case.opener.before_each_write(other, lambda: sweep(case, starve, now=run.claim_by))
    second = runs.sweep(starve, {"failure_code": "other"}, worker="second", now=run.claim_by)
    other.close()

    assert [] == second
    assert "build_failed" == case.get(run).failure_code


# -- the end of rows ------------------------------------------------------------------------------------


def test_a_row_is_removed_after_its_retention(case):
    run = case.cancel(case.add().id)

    assert 0 == case.runs.remove(now=case.now + 7 * DAY - 1)
    assert 1 == case.runs.remove(now=case.now + 7 * DAY)
    assert None is case.get(run)


@pytest.mark.parametrize("state", ["queued", "running", "ready"])
def test_a_row_that_somebody_still_needs_is_not_removed(case, state):
    case.bring(state)

    assert 0 == case.runs.remove(now=case.now + 365 * DAY)


def test_a_row_outlives_its_bytes(case):
    fail = case.moves("fail")
    held = case.hold()
    run = case.settle(held, fail)
    kept = case.runs.remove(now=case.now + 7 * DAY)
    case.runs.forget_bytes(run.id, run.artifact_key)

    assert 0 == kept
    assert 1 == case.runs.remove(now=case.now + 7 * DAY)


def test_the_removal_of_rows_is_bounded(case):
    for _ in range(5):
        case.cancel(case.add().id)

    assert [2, 2, 1, 0] == [case.runs.remove(now=case.now + 7 * DAY, limit=2) for _ in range(4)]


def test_a_lock_that_lasts_is_an_error_and_not_a_silence(case):
    starve = case.moves("starve")
    case.add()
    with case.opener.locked(case.url), pytest.raises(StoreUnavailable):
        sweep(case, starve, now=case.now + DAY)

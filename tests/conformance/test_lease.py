"""The lease: a worker that fell silent is fenced off, and whoever comes back from the dead changes nothing."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from tests.conformance.processes import CONTEXT, PATIENCE_SECONDS, claim_and_wait
from tests.promises import NotPromised

from haulage.core.lease import Held, LeaseLost, Pulse
from haulage.core.progress import Progress

HELD, LOST, CANCELLED = Pulse(True, False), Pulse(False, False), Pulse(True, True)
WRITING = Progress("writing", 10, 30, 4)


@pytest.fixture
def silent(case):
    """A run whose worker fell silent; a sweep has taken it away: the old lease, and the one of the sweep."""
    lose = case.moves("lose")
    old = case.hold("w1")
    swept = case.runs.sweep(lose, {}, worker="sweeper", now=case.now + 15_000)
    assert [old.id] == [run.id for run in swept]
    new = type(old)(old.id, old.tenant, swept[0].claim_no, "sweeper")
    return case, old, new


def test_a_beat_renews_the_lease_and_says_that_it_holds(case):
    held = case.hold()

    assert HELD == case.beat(held, now=case.now + 1_000, lease_seconds=15)
    assert case.now + 16_000 == case.get(held.id).lease_until
    assert case.now + 1_000 == case.get(held.id).heartbeat_at


def test_a_beat_without_news_is_no_progress(case):
    held = case.hold()
    before = case.get(held.id)
    case.beat(held, now=case.now + 1_000)
    after = case.get(held.id)

    assert None is after.updated_at
    assert before.revision == after.revision


def test_a_beat_stores_progress(case):
    held = case.hold()
    before = case.get(held.id)
    case.beat(held, WRITING, now=case.now + 1_000)
    after = case.get(held.id)

    assert ("writing", 10, 30, 4) == (after.phase, after.processed, after.total, after.logical_count)
    assert case.now + 1_000 == after.updated_at
    assert before.revision + 1 == after.revision


def test_a_run_that_is_claimed_in_the_middle_of_a_beat_is_renewed_when_it_is_said_to_be_held(case, monkeypatch):
    """Where a beat is two statements, the claim may come between them."""
    if getattr(case.runs, "_answers", True):
        raise NotPromised("a beat is one step here")
    run, beat = case.add(), case.runs._beat
    held = Held(run.id, run.tenant, 1, "w1")
    changed, claims = beat.changed, [lambda: case.claim(only=run.id)]

    def interrupted(driver, values):
        renewed = changed(driver, values)
        if claims:
            claims.pop()()
        return renewed

    monkeypatch.setattr(beat, "changed", interrupted)

    assert HELD == case.beat(held, now=case.now + 1_000)
    assert case.now + 16_000 == case.get(run).lease_until


def test_what_is_not_known_stays_unknown(case):
    held = case.hold()
    case.beat(held, Progress("counting", None, None))
    after = case.get(held.id)

    assert ("counting", None, None) == (after.phase, after.processed, after.total)


def test_a_beat_learns_of_a_cancel(case):
    held = case.hold()
    before = case.beat(held)
    case.cancel(held.id)

    assert HELD == before
    assert CANCELLED == case.beat(held)


def test_one_beat_renews_every_lease_of_a_worker_and_tells_each_its_own(case):
    first, second, third = (case.hold() for _ in range(3))
    case.cancel(second.id)
    case.settle(third, case.moves("fail"))

    pulses = case.runs.heartbeat([(first, WRITING), (second, None), (third, None)], lease_seconds=15, now=case.now)

    assert {first: HELD, second: CANCELLED, third: LOST} == pulses


def test_no_beats_are_no_question(case):
    assert {} == case.runs.heartbeat([], lease_seconds=15)


def test_a_silent_worker_is_fenced_off(silent):
    case, old, new = silent

    assert old.claim_no + 1 == new.claim_no
    assert LOST == case.beat(old, WRITING)
    assert HELD == case.beat(new)


@pytest.mark.parametrize("name", ["finish", "fail"])
def test_a_thawed_worker_changes_nothing(silent, name):
    case, old, _new = silent
    move = case.moves(name)
    before = case.get(old.id)

    with pytest.raises(LeaseLost):
        case.settle(old, move)

    assert before == case.get(old.id)


def test_a_thawed_worker_moves_neither_heartbeat_nor_progress(silent):
    case, old, _new = silent
    before = case.get(old.id)
    case.beat(old, WRITING, now=case.now + 20_000)

    assert before == case.get(old.id)


def test_the_one_who_took_the_fence_ends_the_run(silent):
    case, _old, new = silent
    case.settle(new, case.moves("lose"))

    assert "failed" == case.get(new.id).state


def test_a_second_claim_fences_the_first(silent):
    case, old, sweeping = silent
    rerun, finish = case.moves("rerun", "finish")
    case.settle(sweeping, rerun, claim_by=case.now + 99_000)
    second, _ = case.claim("w2", now=case.now + 20_000)
    before = case.get(old.id)

    for stale in (old, sweeping):
        assert LOST == case.beat(stale, WRITING)
        with pytest.raises(LeaseLost):
            case.settle(stale, finish)

    assert before == case.get(old.id)
    assert (old.id, 3) == (second.id, second.claim_no)
    assert "ready" == case.settle(second, finish).state


def test_a_lease_ends_at_its_instant_and_not_before(case):
    lose = case.moves("lose")
    held = case.hold()

    assert [] == case.runs.sweep(lose, {}, worker="sweeper", now=case.now + 14_999)
    assert [held.id] == [run.id for run in case.runs.sweep(lose, {}, worker="sweeper", now=case.now + 15_000)]


def test_a_worker_that_beats_is_never_taken_for_lost_however_long_it_works(case):
    lose = case.moves("lose")
    held = case.hold(generation_ms=24 * 3_600_000)
    found = []
    for second in range(0, 3_600, 10):
        case.beat(held, now=case.now + second * 1000)
        found += case.runs.sweep(lose, {}, worker="sweeper", now=case.now + second * 1000 + 14_999)

    assert [] == found


@pytest.mark.parametrize("name", ["finish", "fail", "stop", "rerun"])
def test_a_lease_that_was_settled_beats_no_more(case, name):
    move = case.moves(name)
    held = case.hold()
    if move.cancel == "requested":
        case.cancel(held.id)
    settled = case.settle(held, move)

    assert LOST == case.beat(held, WRITING)
    assert settled == case.get(held.id)


def test_a_second_claim_begins_without_the_progress_of_the_first(case):
    rerun = case.moves("rerun")
    held = case.hold()
    case.beat(held, Progress("writing", 10, 30))
    case.settle(held, rerun)
    _, run = case.claim("w2", now=case.now + 20_000)

    assert (None, None, None, None) == (run.updated_at, run.phase, run.processed, run.total)


@pytest.mark.parametrize("name", ["finish", "fail", "stop", "rerun"])
def test_a_settled_run_gives_back_what_its_lease_held(case, name):
    move = case.moves(name)
    held = case.hold()
    if move.cancel == "requested":
        case.cancel(held.id)
    run = case.settle(held, move)

    assert (None, None, None) == (run.worker, run.lease_until, run.slot)


def test_a_lease_names_a_claim_and_not_a_worker(case):
    """A name that is used again, by a worker that was started anew, holds nothing."""
    finish, rerun, lose = case.moves("finish", "rerun", "lose")
    old = case.hold("w1")
    swept = case.runs.sweep(lose, {}, worker="w1", now=case.now + 15_000)[0]
    case.settle(type(old)(old.id, old.tenant, swept.claim_no, "w1"), rerun)
    case.claim("w1")

    with pytest.raises(LeaseLost):
        case.settle(old, finish)


# -- a process that has ended ------------------------------------------------------------------------------


@pytest.fixture
def worker(case):
    """Another process that holds a run and does nothing more: its id, and the id of the run."""
    case.needs("frees_the_dead")
    run, answers = case.add(), CONTEXT.Queue()
    process = CONTEXT.Process(target=claim_and_wait, args=(case.url, case.flow.name, case.terms("other"), answers))
    process.start()
    assert run.id == answers.get(timeout=PATIENCE_SECONDS)
    yield process, run
    process.kill()
    process.join()


def test_the_run_of_a_process_that_has_died_is_lost_before_its_lease_is_over(case, worker):
    process, run = worker
    lose = case.moves("lose")
    alive = case.runs.sweep(lose, {}, worker="sweeper")
    process.kill()
    process.join()
    dead = case.runs.sweep(lose, {}, worker="sweeper")

    assert ([], [run.id]) == (alive, [each.id for each in dead])
    assert dead[0].claim_no == 2


def test_the_run_of_a_process_that_is_frozen_is_lost_with_its_lease_and_not_before(case, worker):
    process, run = worker
    lose = case.moves("lose")
    os.kill(process.pid, signal.SIGSTOP)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < deadline
    over = case.get(run).lease_until
    early = case.runs.sweep(lose, {}, worker="sweeper", now=over - 1)
    late = case.runs.sweep(lose, {}, worker="sweeper", now=over)

    assert ([], [run.id]) == (early, [each.id for each in late])


def test_a_sweep_that_died_leaves_its_fence_to_the_next_one_at_once(case):
    case.needs("frees_the_dead")
    lose = case.moves("lose")
    case.hold()
    other = case.open()
    getattr(other, case.flow.name).sweep(lose, {}, worker="first", now=case.now + 15_000)
    alive = case.runs.sweep(lose, {}, worker="second", now=case.now + 15_001)
    other.close()
    dead = case.runs.sweep(lose, {}, worker="second", now=case.now + 15_002)

    assert ([], ["second"]) == (alive, [run.worker for run in dead])

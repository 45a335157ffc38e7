"""Presence: who lives, who claims for everybody, and who is only here for one run."""

from __future__ import annotations

import pytest


def test_a_worker_is_seen_from_its_first_word_on(case):
    case.presence("w1", pid=7, lanes=3)
    case.presence("w1", now=case.now + 5_000)

    (seen,) = case.store.workers.seen(60, now=case.now + 5_000)

    assert ("w1", 7, 3, "claiming") == (seen.id, seen.pid, seen.lanes, seen.state)
    assert (case.now, case.now + 5_000) == (seen.started_at, seen.seen_at)


def test_the_longest_living_worker_comes_first(case):
    for number, worker in enumerate(("w2", "w1", "w3")):
        case.presence(worker, now=case.now + number)

    assert ["w2", "w1", "w3"] == [seen.id for seen in case.store.workers.seen(60, now=case.now + 3)]


def test_a_worker_that_fell_silent_is_seen_no_more(case):
    case.presence(now=case.now)

    assert [1, 0] == [len(case.store.workers.seen(15, now=case.now + later)) for later in (15_000, 15_001)]


def test_a_worker_that_left_is_gone_at_once(case):
    case.presence("w1")
    case.presence("w2")
    case.store.workers.leave("w1")

    assert ["w2"] == [seen.id for seen in case.store.workers.seen(60, now=case.now)]


@pytest.mark.parametrize(
    ("what", "wanted"),
    [
        ({"state": "claiming"}, True),
        ({"state": "draining"}, False),
        ({"state": "claiming", "only_run": "a-run"}, False),
    ],
)
def test_a_request_needs_a_worker_that_claims_for_everybody(case, what, wanted):
    case.presence(**what)

    assert wanted is case.store.workers.claiming(15, now=case.now)


def test_a_worker_that_begins_to_drain_claims_no_more(case):
    case.presence(state="claiming")
    before = case.store.workers.claiming(15, now=case.now)
    case.presence(state="draining")

    assert before
    assert not case.store.workers.claiming(15, now=case.now)


def test_a_presence_counts_for_so_many_seconds_and_no_longer(case):
    case.presence()

    assert [True, False] == [case.store.workers.claiming(15, now=case.now + later) for later in (15_000, 15_001)]


def test_presences_of_long_ago_are_forgotten(case):
    case.presence("old")
    case.presence("young", now=case.now + 3_600_000)

    assert [0, 1, 0] == [case.store.workers.forget(3_600, now=case.now + 3_600_000 + later) for later in (0, 1, 1)]
    assert ["young"] == [seen.id for seen in case.store.workers.seen(9_999, now=case.now + 3_600_001)]

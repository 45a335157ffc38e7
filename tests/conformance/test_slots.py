"""Many processes, one queue: no run is claimed twice, and no more run at once than there are slots."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.conformance.processes import as_worker, claim_and_settle_all, claim_one, together

pytestmark = pytest.mark.process

WORKERS = 8


def test_eight_processes_never_claim_the_same_run(case):
    run = case.add()
    terms = case.terms(slots=100, tenant_running=100)

    claims = together(case, claim_one, *(as_worker(terms, f"w{number}") for number in range(WORKERS)))

    assert [None] * (WORKERS - 1) + [(run.id, 1)] == sorted(claims, key=lambda claim: claim is not None)


def test_eight_processes_share_eight_runs(case):
    runs = {case.add().id for _ in range(WORKERS)}
    terms = case.terms(slots=100, tenant_running=100)

    claims = together(case, claim_one, *(as_worker(terms, f"w{number}") for number in range(WORKERS)))

    assert {(run, 1) for run in runs} == set(claims)


def test_slots_are_never_exceeded_under_a_storm_of_claims(case):
    finish = case.moves("finish")
    case.opener.write_down_transitions(case.url, case.flow.name)
    with case.store.begin() as tx:
        runs = [case.kit.new(tenant=f"tenant{n % 5}", requested_at=case.now + n) for n in range(60)]
        for run in runs:
            case.runs.add(run, tx=tx)
    terms, values = case.terms(slots=2, tenant_running=1), case.kit.values(finish)

    settled = together(
        case, claim_and_settle_all, *((as_worker(terms, f"w{number}"), finish, values) for number in range(WORKERS))
    )

    made = case.opener.transitions(case.url)
    claims = Counter(run for run, source, *_ in made if source == "queued")

    assert {run.id: 1 for run in runs} == dict(claims)
    assert sorted(run.id for run in runs) == sorted(run for mine in settled for run in mine)
    assert 2 >= max(running for _, source, _, _, running, _ in made if source == "queued")


def test_a_slot_is_held_by_one_run_whatever_a_claim_believes(case):
    """The unique column keeps the promise even against a claim that did not look."""
    held = case.hold()
    case.hold()

    with pytest.raises(AssertionError, match="the store refused a row"):
        case.write(held.id, slot=2)

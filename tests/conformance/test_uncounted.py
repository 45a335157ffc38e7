"""A flow whose runs share nothing (oldest.py): claimed oldest first, from the low-water run on, by one worker each."""

from __future__ import annotations

import pytest
from tests.conformance.processes import together
from tests.conformance.uncounted import TABLE, statements, uncounted

from haulage.core.lease import LeaseLost
from haulage.core.progress import Progress
from haulage.exports.life import ExportLife
from haulage.stores import oldest
from haulage.stores.tenants import WORKER

pytestmark = pytest.mark.slow

FAILED = {"failure_code": "build_failed", "artifact_key": None}


@pytest.fixture
def plain(case, monkeypatch):
    """The case, with that flow instead of its own; the clock of the second look stands still."""
    case.needs("transactions")
    case.instant = 1_000.0
    monkeypatch.setattr(oldest, "monotonic", lambda: case.instant)
    for statement in statements(case.runs):
        case.opener.execute(case.url, statement)
    if case.store.capabilities.row_security:
        case.opener.execute(case.url, f"grant all on {TABLE.name} to {WORKER}")
    case.plain = uncounted(case.runs)
    yield case
    case.opener.execute(case.url, f"drop table {TABLE.name}")


def add(plain, seconds, **changes):
    run = plain.kit.new(tenant=changes.pop("tenant", "north"), requested_at=plain.now + int(seconds * 1000), **changes)
    plain.plain.add(run)
    return run.id


def claim(plain, **terms):
    claimed = plain.plain.claim(plain.terms(**terms), now=plain.now)
    return None if claimed is None else claimed[0]


def test_the_oldest_is_claimed_whoever_asked_for_it_and_however_many_run(plain):
    asked = [add(plain, 1, tenant="south"), *(add(plain, seconds) for seconds in (0, 3, 2))]

    claimed = [claim(plain) for _ in range(5)]

    assert [asked[1], asked[0], asked[3], asked[2]] == [held.id for held in claimed[:4]]
    assert claimed[4] is None


def test_a_claim_writes_what_every_claim_writes(plain):
    before = plain.plain.get(add(plain, 0))

    held = claim(plain, worker="w7")
    run = plain.plain.get(held.id)

    assert (1, "w7", "north") == (held.claim_no, held.worker, held.tenant)
    assert ("running", "w7", 1, 1, None) == (run.state, run.worker, run.claim_no, run.attempts, run.slot)
    assert (plain.now, plain.now, plain.now + 15_000) == (run.started_at, run.heartbeat_at, run.lease_until)
    assert f"{run.id}.1" == run.artifact_key
    assert before.revision + 1 == run.revision


def test_a_private_worker_claims_its_run_and_no_other(plain):
    wanted = [add(plain, 0), add(plain, 1)][1]

    held, again = claim(plain, only=wanted), claim(plain, only=wanted)

    assert wanted == held.id
    assert again is None


def test_a_store_that_wants_newer_workers_gives_no_run(plain):
    add(plain, 0)
    plain.opener.want_workers(plain, 99)

    refused = claim(plain)
    plain.opener.want_workers(plain, 1)

    assert refused is None
    assert claim(plain) is not None


def test_a_run_before_the_low_water_is_found_when_nothing_is_behind_it_and_else_within_a_second(plain):
    late = [add(plain, seconds) for seconds in (10, 11, 12)]
    first = claim(plain).id
    early = add(plain, 0)
    behind = claim(plain).id
    plain.instant += oldest.LOOK_BACK_SECONDS
    looked_back = claim(plain).id
    earlier = add(plain, -1)
    behind_again = claim(plain).id
    nothing_behind = claim(plain).id

    assert late == [first, behind, behind_again]
    assert [early, earlier] == [looked_back, nothing_behind]


def test_a_silent_worker_is_fenced_off_and_its_run_swept(plain):
    add(plain, 0)
    held = claim(plain)
    pulse = plain.plain.heartbeat([(held, Progress("writing", 2, 3))], lease_seconds=15, now=plain.now)[held]
    early = plain.plain.sweep(ExportLife.lose, {}, worker="s", now=plain.now + 14_999)
    (swept,) = plain.plain.sweep(ExportLife.lose, {}, worker="s", now=plain.now + 15_000)

    with pytest.raises(LeaseLost):
        plain.plain.settle(held, ExportLife.fail, FAILED, now=plain.now)
    assert pulse.held
    assert [] == early
    assert (held.id, 2) == (swept.id, swept.claim_no)


def test_a_settled_run_has_given_back_all(plain):
    add(plain, 0)
    held = claim(plain)
    plain.plain.settle(held, ExportLife.fail, FAILED, now=plain.now)
    run = plain.plain.get(held.id)

    assert ("failed", None, None) == (run.state, run.worker, run.lease_until)
    assert plain.now == run.finished_at


def claim_all(runs, worker):
    plain = uncounted(runs)
    found = []
    while (claimed := plain.claim(worker)) is not None:
        found.append(claimed[0].id)
    return found


def test_eight_processes_never_claim_the_same_run(plain):
    asked = {add(plain, number) for number in range(40)}
    found = together(plain, claim_all, *(plain.terms(worker=f"w{number}") for number in range(8)))

    claimed = [run for each in found for run in each]
    assert sorted(asked) == sorted(claimed)

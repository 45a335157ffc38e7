"""Who is claimed next, and who has to wait."""

from __future__ import annotations

import pytest
from sqlalchemy import text


def claimed_in_order(case, count, **terms):
    """Claim so many times, nothing ending meanwhile; the ids in that order."""
    claims = [case.claim(slots=100, **terms) for _ in range(count)]
    return [claimed and claimed[0].id for claimed in claims]


def test_the_oldest_run_is_claimed_first(case):
    third, first, second = (case.add(seconds=seconds) for seconds in (3, 1, 2))

    assert [first.id, second.id, third.id] == claimed_in_order(case, 3, tenant_running=9)


def test_runs_of_the_same_instant_are_claimed_by_id(case):
    runs = sorted((case.add() for _ in range(4)), key=lambda run: run.id)

    assert [run.id for run in runs] == claimed_in_order(case, 4, tenant_running=9)


def test_an_empty_queue_gives_nothing(case):
    assert None is case.claim()


def test_a_claim_passes_over_a_run_that_somebody_holds(case):
    case.needs("counters")  # Else whoever holds one holds all.
    first, second = case.add(), case.add(seconds=1)

    with case.store.begin() as tx:
        tx.execute(text(f"select id from exports where id = '{first.id}' for update"))
        assert [second.id] == claimed_in_order(case, 1)

    assert [first.id] == claimed_in_order(case, 1)


def test_a_claim_takes_the_lease_and_a_slot(case):
    run = case.add()

    held, claimed = case.claim("w7", now=case.now + 500, lease_seconds=15)

    assert ("north", run.id, 1, "w7") == (held.tenant, held.id, held.claim_no, held.worker)
    assert claimed == case.get(run)
    assert "running" == claimed.state
    assert "w7" == claimed.worker
    assert 1 == claimed.slot
    assert 1 == claimed.claim_no
    assert case.now + 500 == claimed.started_at == claimed.heartbeat_at
    assert case.now + 15_500 == claimed.lease_until
    assert run.revision + 1 == claimed.revision


def test_a_new_run_of_an_idle_tenant_does_not_wait_behind_the_thousand_of_another(case):
    for number in range(50):
        case.add("north", seconds=number)
    late = case.add("south", seconds=100)

    assert late.id == claimed_in_order(case, 2)[1]


def test_tenants_take_turns_while_nothing_ends(case):
    north = [case.add("north", seconds=seconds).id for seconds in (0, 1, 2)]
    south = [case.add("south", seconds=seconds).id for seconds in (3, 4)]
    east = [case.add("east", seconds=5).id]

    wanted = [north[0], south[0], east[0], north[1], south[1], north[2]]

    assert wanted == claimed_in_order(case, 6, tenant_running=9)


def test_a_tenant_has_no_more_running_than_its_limit(case):
    north = [case.add("north", seconds=seconds).id for seconds in range(3)]

    assert [north[0], north[1], None] == claimed_in_order(case, 3, tenant_running=2)


def test_a_tenant_at_its_limit_keeps_nobody_else_waiting(case):
    north = [case.add("north", seconds=seconds).id for seconds in range(3)]
    south = case.add("south", seconds=9)

    assert [north[0], south.id, None] == claimed_in_order(case, 3, tenant_running=1)


def test_a_tenant_may_run_again_when_one_of_its_runs_has_ended(case):
    finish = case.moves("finish")
    for seconds in range(2):
        case.add(seconds=seconds)
    held, _ = case.claim(tenant_running=1)
    refused = case.claim(tenant_running=1)
    case.settle(held, finish)

    allowed = case.claim(tenant_running=1)

    assert refused is None
    assert allowed is not None


def test_nobody_claims_without_a_free_slot(case):
    finish = case.moves("finish")
    for number in range(4):
        case.add(f"tenant{number}")
    first, _ = case.claim(slots=2)
    case.claim(slots=2)

    assert None is case.claim(slots=2)

    case.settle(first, finish)

    assert None is not case.claim(slots=2)


def test_the_smallest_free_slot_is_taken(case):
    finish = case.moves("finish")
    for number in range(5):
        case.add(f"tenant{number}")
    one, two, three = (case.claim(slots=3) for _ in range(3))
    case.settle(one[0], finish)
    case.settle(three[0], finish)
    again = case.claim(slots=3)
    once_more = case.claim(slots=3)

    assert [1, 2, 3, 1, 3] == [claimed[1].slot for claimed in (one, two, three, again, once_more)]


def test_fewer_slots_than_before_are_kept_by_waiting(case):
    for number in range(4):
        case.add(f"tenant{number}")
    for _ in range(3):
        case.claim(slots=3)

    assert None is case.claim(slots=1)


def test_a_private_worker_claims_its_run_and_no_other(case):
    older, mine = case.add(seconds=0), case.add(seconds=1)

    assert mine.id == case.claim(only=mine.id)[0].id
    assert None is case.claim(only=mine.id)
    assert "queued" == case.get(older).state


def test_a_private_worker_keeps_to_the_limit_of_its_tenant(case):
    case.add(seconds=0)
    mine = case.add(seconds=1)
    case.claim()

    assert None is case.claim(only=mine.id, tenant_running=1)
    assert mine.id == case.claim(only=mine.id, tenant_running=2)[0].id


@pytest.mark.parametrize("unknown", ["", "nobody"])
def test_a_private_worker_of_an_unknown_run_gets_nothing(case, unknown):
    case.add()

    assert None is case.claim(only=unknown)


def test_a_run_comes_back_from_the_store_as_it_was_put_in(case):
    run = case.add()

    assert run == case.get(run)
    assert None is case.get("00000000-0000-7000-8000-000000000000")


def test_a_finished_run_keeps_everything_that_was_written_with_it(case):
    finish = case.moves("finish")
    held = case.hold()
    values = case.kit.values(finish)
    del values["expires_at"]

    case.settle(held, finish)

    assert values == {name: getattr(case.get(held.id), name) for name in values}


def test_a_store_that_wants_newer_workers_gives_this_version_no_run(case):
    """Also in the moment between the migration and the worker's next look (DECISIONS 10)."""
    run = case.add()
    wanted = case.store.schema().wanted
    case.want_workers(wanted + 1)
    refused = [case.claim(), case.claim(only=run.id)]
    case.want_workers(wanted)

    assert [None, None] == refused
    assert run.id == case.claim()[0].id

"""What a claim reads of the pool of PostgreSQL beside the budget: the slots that nobody holds, who may claim."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.conformance.cases import STORES, Case
from tests.conformance.processes import as_worker, claim_one, together

from haulage.flows import FLOWS


@pytest.fixture
def shared(folder):
    case = Case(STORES["postgresql"], FLOWS[0], folder)
    with closing(case.store):
        yield case
    case.opener.done(case.url)
    case.opener.execute(case.url, "update run_pools set free_slots = '{[1,)}'")  # what a test made wrong


def ask(case, count):
    for number in range(count):
        case.add(f"tenant{number}")


def is_told(case, wrong):
    """The pool is made wrong, and the counters say so."""
    case.opener.execute(case.url, f"update run_pools set {wrong}")
    return [sentence.partition(":")[0] for sentence in case.runs.drift()]


@pytest.mark.parametrize("wrong", ["{[1,)}", "{[9,)}", "{}"], ids=["none held", "all held", "none there"])
def test_a_claim_that_is_told_wrong_of_the_slots_finds_the_smallest_free_one(shared, wrong):
    ask(shared, 3)
    held = shared.claim(slots=2)
    told = is_told(shared, f"free_slots = '{wrong}'")

    found = shared.claim(slots=2)

    assert ["the slots"] == told
    assert (1, 2) == (held[1].slot, found[1].slot)
    assert None is shared.claim(slots=2)


def test_a_slot_that_is_written_by_hand_is_known_to_the_next_claim(shared):
    ask(shared, 4)
    held = shared.claim(slots=4)
    shared.write(held[0].id, slot=3)
    slots = [shared.claim(slots=4)[1].slot for _ in range(3)]

    assert [1, 2, 4] == slots
    assert [] == shared.runs.drift()


def test_who_may_claim_stands_in_the_pool_as_in_the_facts(shared):
    shared.opener.want_workers(shared, 99)
    before = shared.opener.execute(shared.url, "select min_worker from run_pools")
    told = is_told(shared, "min_worker = 1")
    shared.opener.want_workers(shared, 1)

    assert [(99,)] == before
    assert ["the oldest worker that may claim"] == told
    assert [] == shared.runs.drift()


@pytest.mark.process
def test_claims_at_once_that_look_without_waiting_take_a_slot_each(shared):
    ask(shared, 8)
    terms = shared.terms(slots=5, tenant_running=100)

    claims = together(shared, claim_one, *(as_worker(terms, f"w{number}") for number in range(8)))

    held = shared.opener.execute(shared.url, "select slot from exports where state = 'running' order by slot")
    assert [(slot,) for slot in range(1, len(held) + 1)] == held
    assert len(held) == len([claim for claim in claims if claim is not None]) <= 5
    assert [] == shared.runs.drift()


def test_the_head_of_a_tenant_is_never_a_run_of_another(shared):
    """The next head is looked for from the one that was claimed on, in the index of all tenants."""
    first, second = shared.add("tenant1"), shared.add("tenant2", seconds=1)
    shared.claim(slots=9)
    gates = shared.opener.execute(shared.url, "select tenant, head_id from tenant_gates order by tenant")

    assert first.tenant < second.tenant
    assert [("tenant1", None), ("tenant2", second.id)] == gates


def test_a_request_behind_others_writes_no_entry_into_the_index_of_gates(shared):
    """Each would be a dead entry before the live one, that every claim passes over until a vacuum."""
    entries = "select pg_relation_size('tenant_gates_open') / current_setting('block_size')::integer"
    before = shared.opener.execute(shared.url, entries)
    with shared.store.begin() as tx:
        for number in range(300):
            shared.runs.add(shared.kit.new(tenant="busy", requested_at=shared.now + number), tx=tx)
    now = shared.opener.execute(shared.url, entries)

    assert before[0][0] <= 2
    assert now[0][0] <= max(2, before[0][0])

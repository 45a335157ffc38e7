"""Guards of the directory store broken on purpose; each must be found, by the model or by the test that names it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from tests.conformance import (
    test_directory,
    test_directory_damage,
    test_directory_opening,
    test_lease,
    test_transactions,
)
from tests.conformance.cases import Case, Directory
from tests.conformance.model import machine_over
from tests.conformance.test_mutants import SEARCH

from haulage.flows import FLOWS
from haulage.stores.directory import letter
from haulage.stores.directory import runs as module
from haulage.stores.directory.ended import Ended
from haulage.stores.directory.folder import Folder
from haulage.stores.directory.leases import Leases
from haulage.stores.directory.live import Live
from haulage.stores.directory.queue import Queue
from haulage.stores.directory.runs import DirectoryRuns

pytestmark = pytest.mark.slow

real_settle = DirectoryRuns.settle
real_heartbeat = DirectoryRuns.heartbeat
real_claim = DirectoryRuns.claim
real_allows = DirectoryRuns._allows
real_entering = module.entering
real_add = DirectoryRuns.add


@pytest.fixture
def case(folder):
    made = Case(Directory(), FLOWS[0], folder)
    yield made
    made.store.close()


def with_todays_fence(self, held):
    run = self.rows.find(held.id)
    return held if run is None else replace(held, claim_no=run.claim_no)


def settle_without_the_fence(self, held, move, values, **options):
    return real_settle(self, with_todays_fence(self, held), move, values, **options)


def beat_without_the_fence(self, beats, **options):
    fences = {with_todays_fence(self, held): held for held, _ in beats}
    pulses = real_heartbeat(
        self, [(today, progress) for today, (_, progress) in zip(fences, beats, strict=True)], **options
    )
    return {fences[today]: pulse for today, pulse in pulses.items()}


def allowed_whatever_the_cancel(self, move, run):
    return run.state == move.source


def allowed_whatever_the_state(self, move, run):
    return move.allows_cancel(run.cancel_requested_at is not None)


def a_sweep_that_takes_no_fence(self, run, move, worker, now, tx):
    until = now + module.SWEEP_LEASE_SECONDS * 1000
    put_off = {each.deadline: until for each in self.life.due_moves() if each.source == move.source}
    fenced = self._changed(run, {"worker": worker, **put_off})
    self.leases.beat(fenced)
    return self._write(run, fenced, tx)


def claim_with_slots_for_all(self, terms, **options):
    return real_claim(self, replace(terms, slots=99), **options)


def the_oldest_of_all(self, rows, terms):
    busy = self._busy(rows)
    fit = [row for row in self.waiting(rows) if busy[row.tenant] < terms.tenant_running]
    return min(fit, key=lambda row: (row.requested_at, row.id), default=None)


def a_final_run_keeps_its_key(life, move, values, **options):
    return {name: value for name, value in real_entering(life, move, values, **options).items() if name != "active_key"}


def told(test):
    """A test that wants to hear of what was moved aside."""

    def run(case):
        seen = []
        case.store.folder.observe = seen.append
        test(case, seen)

    return run


def clocked(case):
    with pytest.MonkeyPatch.context() as patched:
        test_directory_opening.test_the_clock_of_the_store_is_that_of_the_volume(case, patched)


FOUND = (AssertionError, AttributeError, LookupError, OSError, ValueError)  # what a broken store makes a test say
MUTANTS = {
    "settle without the fence": (DirectoryRuns, "settle", settle_without_the_fence),
    "beat without the fence": (DirectoryRuns, "heartbeat", beat_without_the_fence),
    "moves without a look at the cancel": (DirectoryRuns, "_allows", allowed_whatever_the_cancel),
    "moves without the state": (DirectoryRuns, "_allows", allowed_whatever_the_state),
    "sweep without the fence": (DirectoryRuns, "_fence", a_sweep_that_takes_no_fence),
    "claim without counting slots": (DirectoryRuns, "claim", claim_with_slots_for_all),
    "claim by age alone": (Queue, "next", the_oldest_of_all),
    "key kept by a final run": (module, "entering", a_final_run_keeps_its_key),
    "ended runs stay in the way": (Ended, "take", lambda _self, _path, _requested_at: None),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_guard_is_found(case, monkeypatch, mutant):
    owner, name, broken = MUTANTS[mutant]
    assert hasattr(owner, name)
    monkeypatch.setattr(owner, name, broken)

    with pytest.raises(FOUND):
        run_state_machine_as_test(machine_over(case), settings=SEARCH)


def read_without_a_look_at_the_checksum(kind, data):
    return json.loads(data.partition(b"\n")[2])


def add_at_once(self, run, *, tx=None):
    real_add(self, run, tx=tx)
    if tx is not None:
        self.write_added(tx)


NAMED = {  # what the model cannot see, and the test that does
    "beats are not read": (
        Leases,
        "seen",
        lambda _self, run: run,
        test_lease.test_a_beat_renews_the_lease_and_says_that_it_holds,
    ),
    "nobody is ever dead": (
        Leases,
        "is_dead",
        lambda _self, _run: False,
        test_lease.test_a_sweep_that_died_leaves_its_fence_to_the_next_one_at_once,
    ),
    "everybody is dead": (
        Leases,
        "is_dead",
        lambda _self, _run: True,
        test_lease.test_a_lease_ends_at_its_instant_and_not_before,
    ),
    "no count of changes": (
        Folder,
        "count",
        lambda _self: 0,
        test_transactions.test_a_watcher_hints_at_what_others_committed,
    ),
    "no checksum": (
        letter,
        "opened",
        read_without_a_look_at_the_checksum,
        told(test_directory_damage.test_the_reason_says_what_is_wrong),
    ),
    "a run is written before its key": (
        DirectoryRuns,
        "add",
        add_at_once,
        test_directory.test_what_breaks_off_at_the_door_has_written_neither_run_nor_key,
    ),
    "keys have files of their own only": (
        Live,
        "keys",
        lambda _self, _tx=None: [],
        test_directory.test_a_key_is_found_with_its_run_where_its_own_file_was_never_made,
    ),
    "the patrol looks at no age": (
        Folder,
        "is_stale",
        lambda _self, _path, _seconds=0: True,
        test_directory.test_names_of_a_death_are_tidied_up_and_those_of_the_living_stay,
    ),
    "nothing is tidied up": (
        Folder,
        "is_stale",
        lambda _self, _path, _seconds=0: False,
        test_directory.test_names_of_a_death_are_tidied_up_and_those_of_the_living_stay,
    ),
    "the host's own clock": (
        Folder,
        "now",
        lambda _self, now: time.time_ns() // 1_000_000 if now is None else now,
        clocked,
    ),
}


@pytest.mark.parametrize("mutant", NAMED)
def test_a_broken_guard_is_found_by_the_test_that_names_it(case, monkeypatch, mutant):
    owner, name, broken, test = NAMED[mutant]
    assert hasattr(owner, name)
    monkeypatch.setattr(owner, name, broken)
    monkeypatch.setattr(test_transactions, "PATIENCE_SECONDS", 1)  # for what never comes

    with pytest.raises(FOUND):
        test(case)


def test_the_search_finds_nothing_where_nothing_is_broken(case):
    run_state_machine_as_test(machine_over(case), settings=settings(SEARCH, max_examples=8))


def test_a_probe_that_locked_for_itself_would_keep_others_from_seeing_a_death(case):
    """Two sweeps look at once: each must see that the lock of the dead is free."""
    held = case.hold()
    path = case.store.path / "held" / f"{held.id}.1"
    run = case.get(held.id)
    case.store.close()  # as if its process had died
    other = case.open()
    looking = os.open(path, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    seen = other.exports.leases.is_dead(run)
    os.close(looking)
    other.close()

    assert seen

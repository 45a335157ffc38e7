"""The transaction is an argument: what must hold together commits together, or not at all."""

from __future__ import annotations

import threading
import time

import pytest

from haulage.core.errors import StoreUnavailable
from haulage.core.lease import LeaseLost
from haulage.core.ports import KeptKey
from haulage.core.progress import Progress

pytestmark = pytest.mark.slow


class Trouble(Exception):
    """Something that happens before the end of a transaction."""


@pytest.fixture(params=[False, True], ids=["commits", "breaks off"])
def ending(request, case):
    """A way to run a body in one transaction that commits, or breaks off at its end; says whether it held."""
    case.needs("transactions")

    def run(body):
        try:
            with case.store.begin() as tx:
                body(tx)
                if request.param:
                    raise Trouble
        except Trouble:
            return False
        return True

    return run


def test_a_run_and_its_key_are_written_together(case, ending):
    run = case.kit.new(tenant="north", requested_at=case.now)

    def body(tx):
        case.runs.add(run, tx=tx)
        case.store.keys.keep("north", "amina", "k", KeptKey("b" * 64, run.id), seconds=60, now=case.now, tx=tx)

    held = ending(body)

    assert held == (case.get(run) is not None)
    assert held == (case.store.keys.find("north", "amina", "k", now=case.now) is not None)


def test_what_a_transaction_wrote_is_seen_inside_it_and_nowhere_else(case, ending):
    run = case.kit.new(tenant="north", requested_at=case.now, active_key="k")
    seen = []

    def body(tx):
        case.runs.add(run, tx=tx)
        seen.append((case.runs.get(run.id, tx=tx), case.runs.find_active("k", tx=tx), case.runs.waiting(tx=tx)))
        seen.append((case.runs.get(run.id), case.runs.find_active("k"), case.runs.waiting()))

    held = ending(body)

    assert [(run, run, 1), (None, None, 0)] == seen
    assert held == (case.get(run) is not None)


@pytest.mark.parametrize("verb", ["claim", "settle", "move", "request_cancel"])
def test_every_writing_verb_takes_the_transaction(case, ending, verb):
    finish, abandon = case.moves("finish", "abandon")
    held = case.hold()
    waiting = case.add()
    acts = {
        "claim": lambda tx: case.runs.claim(case.terms(only=waiting.id), now=case.now, tx=tx),
        "settle": lambda tx: case.runs.settle(held, finish, case.kit.values(finish), now=case.now, tx=tx),
        "move": lambda tx: case.runs.move(waiting.id, abandon, {}, now=case.now, tx=tx),
        "request_cancel": lambda tx: case.runs.request_cancel(waiting.id, now=case.now, tx=tx),
    }
    before = case.get(held.id), case.get(waiting)

    changed = ending(acts[verb])

    assert changed == ((case.get(held.id), case.get(waiting)) != before)


def test_a_lost_lease_takes_the_rest_of_its_transaction_with_it(case):
    case.needs("transactions")
    finish, fail = case.moves("finish", "fail")
    held = case.hold()
    case.settle(held, fail)
    run = case.kit.new(tenant="north", requested_at=case.now)

    def add_and_settle():
        with case.store.begin() as tx:
            case.runs.add(run, tx=tx)
            case.runs.settle(held, finish, case.kit.values(finish), now=case.now, tx=tx)

    with pytest.raises(LeaseLost):
        add_and_settle()

    assert None is case.get(run)


PATIENCE_SECONDS = 60


def heard(watcher):
    """Whether a hint comes; where nobody is told it takes until the next question."""
    return _hears_within(watcher, PATIENCE_SECONDS)


def test_a_watcher_hints_at_what_others_committed(case):
    watcher = case.store.watch()
    first = [watcher.changed(), watcher.changed()]
    other = case.open()
    getattr(other, case.flow.name).add(case.kit.new(tenant="north", requested_at=case.now))
    other.close()
    second = [heard(watcher), watcher.changed()]
    watcher.close()

    assert [True, False] == first
    assert [True, False] == second


def test_a_watcher_hints_at_what_this_process_committed_too(case):
    watcher = case.store.watch()
    watcher.changed()
    case.add()

    assert heard(watcher)
    watcher.close()


@pytest.mark.parametrize("what", ["add", "claim", "progress", "settle", "cancel", "door"])
def test_a_watcher_hints_at_everything_that_a_reader_would_look_for(case, what):
    """A freed slot too: whoever waits for one is not told by a row that was added."""
    case.needs("transactions")
    held, waiting = case.hold(), case.add()

    def door():
        with case.store.begin() as tx:
            case.runs.add(case.kit.new(tenant="north", requested_at=case.now), tx=tx)

    acts = {
        "add": case.add,
        "claim": case.claim,
        "progress": lambda: case.beat(held, Progress("writing", 1, None)),
        "settle": lambda: case.settle(held, case.moves("finish")),
        "cancel": lambda: case.cancel(waiting.id),
        "door": door,
    }
    watcher = case.store.watch()
    while _hears_within(watcher, 0.3):
        pass  # What was done before may ring a little later.
    acts[what]()

    assert heard(watcher)
    watcher.close()


def _hears_within(watcher, seconds):
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        if watcher.changed():
            return True
        time.sleep(0.01)
    return False


def test_forty_writers_of_one_process_take_turns(case, monkeypatch):
    """Without turns the database makes them wait, and some find it locked for all of their time."""
    for module in ("database", "directory.folder"):
        monkeypatch.setattr(f"haulage.stores.{module}.TURN_SECONDS", 60)  # a slow disk may need more than five
    runs = [case.kit.new(requested_at=case.now + number) for number in range(40)]
    ready = threading.Barrier(len(runs))
    failed = []

    def add_slowly(run):
        ready.wait()
        try:
            with case.store.begin() as tx:
                case.runs.add(run, tx=tx)
                time.sleep(0.03)  # what a slow disk takes
        except StoreUnavailable as problem:
            failed.append(problem)

    threads = [threading.Thread(target=add_slowly, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == failed


def test_what_a_door_has_counted_stays_so_until_it_has_written(case):
    """Eight doors at once, each of another process as far as the store can tell, and room for three runs."""
    stores = [case.open() for _ in range(8)]
    ready = threading.Barrier(len(stores))

    def ask(store):
        runs = getattr(store, case.flow.name)
        ready.wait()
        with store.begin() as tx:
            if runs.waiting(tx=tx) < 3:
                runs.add(case.kit.new(tenant="north", requested_at=case.now), tx=tx)

    threads = [threading.Thread(target=ask, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()

    assert 3 == case.runs.waiting()

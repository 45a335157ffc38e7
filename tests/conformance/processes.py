"""What other processes do in a test: each opens the store by itself, all begin at the same instant.

Processes come from a server that was started clean, because SQLite must not be carried through a fork.
"""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import replace

from tests.conformance import recorder  # noqa: F401 - wraps what writes, in every process

from haulage.core.errors import StoreUnavailable
from haulage.core.lease import CancelWanted, LeaseLost
from haulage.flows import FLOWS
from haulage.stores import open_store

PATIENCE_SECONDS = 100
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["haulage.stores.open", "tests.conformance.processes"])


def together(case, work, *arguments):
    """Call ``work(runs, argument)`` in one process per argument, all at once; what each answered, in order."""
    barrier, answers = CONTEXT.Barrier(len(arguments)), CONTEXT.Queue()
    processes = [
        CONTEXT.Process(target=_work, args=(case.url, case.flow.name, work, number, argument, barrier, answers))
        for number, argument in enumerate(arguments)
    ]
    for process in processes:
        process.start()
    try:
        found = dict(answers.get(timeout=PATIENCE_SECONDS) for _ in processes)
    finally:
        for process in processes:
            process.join(5)
            process.kill()
    for answer in found.values():
        if isinstance(answer, BaseException):
            raise answer
    return [found[number] for number in range(len(arguments))]


def _work(url, flow_name, work, number, argument, barrier, answers):
    try:
        assert flow_name in {flow.name for flow in FLOWS}
        store = open_store(url)
        runs = getattr(store, flow_name)
        runs.get("warm")
        barrier.wait(PATIENCE_SECONDS)
        answers.put((number, work(runs, argument)))
        store.close()
    except BaseException as problem:  # noqa: BLE001 - told to the test, which raises it
        answers.put((number, AssertionError(f"{type(problem).__name__}: {problem}")))


def until_answered(act):
    """Try again while the store is too busy to answer, as a worker does."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return act()
        except StoreUnavailable:
            if time.monotonic() > give_up:
                raise


def claim_and_wait(url, flow_name, terms, answers):
    """Hold a run until this process is ended."""
    runs = getattr(open_store(url), flow_name)
    answers.put(until_answered(lambda: runs.claim(terms))[0].id)
    time.sleep(PATIENCE_SECONDS * 2)


def open_once_more(_runs, url):
    store = open_store(url)
    try:
        return store.schema().version
    finally:
        store.close()


def claim_one(runs, terms):
    """Claim once; the id and the fence of what was taken."""
    claimed = until_answered(lambda: runs.claim(terms))
    return claimed and (claimed[0].id, claimed[0].claim_no)


def claim_and_settle_all(runs, argument):
    """Work until the queue is empty; every id that this process settled."""
    terms, move, values = argument
    mine = []
    while until_answered(runs.waiting):
        claimed = until_answered(lambda: runs.claim(terms))
        if claimed is not None:
            held = claimed[0]
            until_answered(lambda held=held: runs.settle(held, move, values))
            mine.append(held.id)
    return mine


def settle_one(runs, argument):
    """Settle what is held; the state that it came to, or why it did not."""
    held, move, values = argument
    try:
        until_answered(lambda: runs.settle(held, move, values))
        return runs.get(held.id).state
    except (LeaseLost, CancelWanted) as lost:
        return type(lost).__name__


def cancel_one(runs, run_id):
    """Ask for a cancel; the state and whether the cancel was recorded."""
    run = until_answered(lambda: runs.request_cancel(run_id))
    return run.state, run.cancel_requested_at is not None


def act(runs, argument):
    """One of the works above, so that processes can do different things at the same instant."""
    work, own = argument
    return work(runs, own)


def as_worker(terms, name):
    """The same terms for another worker."""
    return replace(terms, worker=name)

"""What SQLite does with a hundred thousand ended runs: every question finds its index, and a claim stays flat.

The statements are those that the verbs really send, written down by the driver.
"""

from __future__ import annotations

import itertools
import re
import sqlite3
import statistics
import time
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest
from sqlalchemy import event
from tests.conformance.cases import NOW, Case, Sqlite
from tests.conformance.conftest import make_folder

from haulage.core.parents import ParentRef
from haulage.core.ports import Query
from haulage.exports.life import ExportLife
from haulage.flows import FLOWS

pytestmark = pytest.mark.slow

ENDED = 100_000
WAITING = 1_000
TENANTS = 10


def fill(case, count, first, **columns):
    """Rows by the thousand, past the verbs."""
    pattern = case.add(id="pattern")
    with closing(sqlite3.connect(case.url.removeprefix("sqlite:///"))) as direct, direct:
        direct.row_factory = sqlite3.Row
        row = dict(direct.execute("select * from exports where id = ?", (pattern.id,)).fetchone())
        direct.execute("delete from exports where id = ?", (pattern.id,))
        rows = (
            tuple((row | {"id": f"{n:08d}", "tenant": f"t{n % TENANTS}", "requested_at": n} | columns).values())
            for n in range(first, first + count)
        )
        direct.executemany(f"insert into exports values ({', '.join('?' * len(row))})", rows)


@pytest.fixture(scope="module")
def full():
    """One store with a long history, for every question of this file."""
    with make_folder() as folder:
        case = Case(Sqlite(), FLOWS[0], folder)
        fill(case, ENDED, 0, state="failed", finished_at=NOW, retain_until=NOW * 2, claim_no=1)
        fill(case, WAITING, ENDED, claim_by=NOW * 2)
        fill(case, ENDED // 10, ENDED * 2, state="failed", retain_until=NOW * 2, parent_kind="book", parent="7")
        yield case
        case.store.close()


@contextmanager
def statements(case):
    """Every statement that reaches the database meanwhile."""
    sent, connections = [], set()

    def listen(connection, _record, _proxy):
        connection.set_trace_callback(sent.append)
        connections.add(connection)

    database = case.store._database
    if database._kept is not None:  # The one that writes in turn goes back, so that it is fetched, and seen, again.
        database._kept[1].close()
        database._kept = None
    pool = database.engine.pool
    event.listen(pool, "checkout", listen)
    yield sent
    event.remove(pool, "checkout", listen)
    for connection in connections:
        connection.set_trace_callback(None)


def plan_of(case, act):
    """How SQLite answers each statement of an act, line by line."""
    with statements(case) as sent:
        act(case.runs)
    asked = [sql for sql in sent if sql.lstrip().split()[0] in ("SELECT", "UPDATE", "DELETE", "WITH", "INSERT")]
    with closing(sqlite3.connect(case.url.removeprefix("sqlite:///"))) as direct:
        return [line[3] for sql in asked for line in direct.execute(f"explain query plan {sql}")]


def some_run(case):
    return case.get(f"{ENDED + 1:08d}")


QUESTIONS = {
    "claim": lambda runs, case: runs.claim(case.terms(slots=100, tenant_running=100), now=NOW),
    "claim of a private worker": lambda runs, case: runs.claim(case.terms(only="00100007", slots=100), now=NOW),
    "get": lambda runs, _case: runs.get("00000007"),
    "list of an account": lambda runs, _case: runs.list(Query("t1", "amina", before=(500, "x"))),
    "list of an account by state": lambda runs, _case: runs.list(Query("t1", "amina", state="queued")),
    "list of everybody": lambda runs, _case: runs.list(Query(before=(500, "x"))),
    "list of a parent": lambda runs, _case: runs.list(Query("t1", parent=ParentRef("book", "7"), before=(500, "x"))),
    "parents": lambda runs, _case: runs.parents(after=("6", "book", "t1")),
    "remove_of": lambda runs, _case: runs.remove_of("t1", ParentRef("book", "8")),
    "find_active": lambda runs, _case: runs.find_active("k" * 64),
    "queue_position": lambda runs, case: runs.queue_position(some_run(case)),
    "waiting": lambda runs, _case: runs.waiting(),
    "running": lambda runs, _case: runs.running(),
    "waiting of a tenant": lambda runs, _case: runs.waiting(tenant="t1"),
    "request_cancel": lambda runs, _case: runs.request_cancel("00000007"),
    "storage": lambda runs, _case: runs.storage("t1"),
    "unkept": lambda runs, _case: runs.unkept(),
    "promised": lambda runs, _case: runs.promised(["00000007.1", "00000008.1"]),
    "forget_bytes": lambda runs, _case: runs.forget_bytes("00000007", "00000007.1"),
    "abandon_waiting": lambda runs, _case: runs.abandon_waiting(60, now=60_001),
    "remove": lambda runs, _case: runs.remove(now=1),
    **{
        f"sweep {move.name}": lambda runs, _case, move=move: runs.sweep(move, {}, worker="s", now=1)
        for move in ExportLife.due_moves()
    },
}


# A SCAN of a partial index reads the few rows that are in it; the ended ones are in none of these.
PARTIAL = re.compile("USING (COVERING )?INDEX exports_(queued|waiting|running|expiring|unkept|budget)")


def scans_of(case, name):
    """The lines of a plan that read more than they need."""
    plan = plan_of(case, lambda runs: QUESTIONS[name](runs, case))
    assert plan
    return [line for line in plan if re.match(r"SCAN (exports|[a-z])\b", line) and not PARTIAL.search(line)]


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_question_is_answered_by_an_index(full, name):
    assert [] == scans_of(full, name)


def test_a_scan_would_be_seen(full):
    """The check above, on a question that has no index."""
    plan = plan_of(full, lambda runs: runs.list(Query(dataset="x")))
    counted = plan_of(full, lambda runs: runs.tally())

    assert any("exports_requested" in line for line in plan)  # in the order of the list, one page at most
    assert any(line.startswith("SCAN exports") for line in counted)


def test_a_parent_is_found_by_its_own_index(full):
    """And the round over all of them goes from one to the next, past the ten thousand runs of each."""
    lines = [plan_of(full, lambda runs, ask=ask: QUESTIONS[ask](runs, full)) for ask in ("list of a parent", "parents")]

    assert all("exports_of_parent" in line for plan in lines for line in plan if "exports" in line), lines
    assert lines[1]
    assert all(line.startswith("SEARCH exports USING COVERING INDEX exports_of_parent (parent>?") for line in lines[1])


def test_a_claim_does_not_grow_with_the_history(full):
    """Beside a store with the same queue and no history; the best of many, since a machine has other work too."""
    with make_folder() as folder:
        young = Case(Sqlite(), FLOWS[0], folder)
        fill(young, WAITING, ENDED, claim_by=NOW * 2)
        ratios = []
        while not ratios or (ratios[-1] >= 2 and len(ratios) < 5):  # what grows, grows each time that one looks
            times = {}
            for name, case in itertools.chain.from_iterable([[("old", full), ("young", young)]] * 40):
                began = time.perf_counter()
                held, _run = case.claim(slots=100, tenant_running=100)
                times.setdefault(name, []).append(time.perf_counter() - began)
                case.settle(held, ExportLife.fail, artifact_key=None)
            quickest = {name: statistics.quantiles(each, n=4)[0] for name, each in times.items()}
            ratios.append(quickest["old"] / quickest["young"])
        young.store.close()

    assert min(ratios) < 2, ratios


def test_a_claim_of_the_last_run_of_a_busy_tenant_reads_its_queue_and_not_its_past(full):
    """Both tenants at work: no idle one is left, and the busy ones are asked through their own index."""
    terms = full.terms(slots=500, tenant_running=500)
    held = [full.runs.claim(replace(terms, worker=f"w{number}"), now=NOW)[0] for number in range(TENANTS)]
    plan = plan_of(full, lambda runs: held.append(runs.claim(terms, now=NOW)[0]))
    for each in held:
        full.settle(each, ExportLife.fail, artifact_key=None)

    assert any("exports_waiting (tenant=?)" in line for line in plan)
    assert not any("exports_listed" in line for line in plan)


def test_the_plans_do_not_depend_on_statistics(full):
    """Somebody ran ANALYZE, at the worst of times: while next to every run had ended."""
    with closing(sqlite3.connect(full.url.removeprefix("sqlite:///"))) as direct:
        direct.execute("analyze")
    full.store.close()
    full.store = full.open()

    assert {name: [] for name in QUESTIONS} == {name: scans_of(full, name) for name in QUESTIONS}

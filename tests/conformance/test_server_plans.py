"""What PostgreSQL reads to answer, with a long queue behind a long and behind a short history.

The statements are those that the verbs really send, written down by the driver, and each is made once more under
EXPLAIN ANALYZE in a transaction that is rolled back: what counts is how many rows were read, and by which index.
"""

from __future__ import annotations

import json
from contextlib import closing, suppress

import psycopg
import pytest
from tests.conformance.cases import NOW, STORES, Case
from tests.conformance.conftest import make_folder

from haulage.core.lease import Held, LeaseLost
from haulage.core.parents import ParentRef
from haulage.core.ports import Query
from haulage.exports.life import ExportLife
from haulage.flows import FLOWS
from haulage.stores import open_store
from haulage.stores.pq import PqCursor
from haulage.stores.tenants import RUNTIME

pytestmark = pytest.mark.slow

TENANTS = 1_000
SIZES = [(1_000_000, 100_000), (100, 50_000), (100, 2_000)]  # ended and waiting runs
ROWS_MOST = 250  # of one answer, over all tables: a page of a list, a bounded sweep
BLOCKS_MOST = 100  # of a question about one run: an index that is walked from end to end shows in nothing else
BOOK = ParentRef("book", "p10")
OF_ONE_RUN = ("claim", "claim of a private worker", "get", "find_active", "request_cancel", "beat", "settle")


# Past the triggers, which would write the same two rows a hundred thousand times in one transaction.
def fill(ended, waiting):
    return f"""
begin;
alter table exports disable trigger user;
create temporary table pattern as select * from exports;
delete from exports;
update pattern set state = 'failed', finished_at = {NOW}, retain_until = {NOW * 2}, claim_no = 1;
do $$ declare listed text; picked text; begin
    select string_agg(quote_ident(column_name), ', ' order by ordinal_position),
        string_agg(case column_name when 'id' then 'lpad(n::text, 8, ''0'')' when 'tenant' then '''t'' || n % {TENANTS}'
            when 'requested_at' then 'n'
            when 'parent' then 'case when n % 10 = 0 then ''p'' || n % 100 end'
            when 'parent_kind' then 'case when n % 10 = 0 then ''book'' end'
            else 'p.' || quote_ident(column_name) end, ', ' order by ordinal_position)
    into listed, picked from information_schema.columns where table_name = 'exports' and table_schema = 'public';
    execute format('insert into exports (%s) select %s from pattern p, generate_series(1, {ended}) as n',
        listed, picked);
    update pattern set state = 'queued', finished_at = null, retain_until = null, claim_no = 0, claim_by = {NOW * 2};
    execute format('insert into exports (%s) select %s from pattern p, generate_series({ended + 1}, {ended + waiting})'
        ' as n', listed, picked);
end $$;
delete from tenant_gates;
insert into tenant_gates (flow, tenant, queued, running, head_at, head_id)
select 'exports', tenant, count(*), 0, min(requested_at), min(id) from exports where state = 'queued' group by tenant;
update run_pools set stored_bytes = 0, reserved_bytes = 0;
alter table exports enable trigger user;
commit
"""


@pytest.fixture(scope="module", params=SIZES, ids=str)
def full(request):
    """One store with a long queue, for every question of this file."""
    opener = STORES["postgresql"]
    with make_folder() as folder:
        case = Case(opener, FLOWS[0], folder)
        case.add(id="pattern")
        case.ended, waiting = request.param
        opener.execute(case.url, fill(case.ended, waiting))
        yield case
        case.store.close()


def some_run(case):
    return case.get(f"{case.ended + 7:08d}")


def held_by_nobody(case):
    return Held(some_run(case).id, "t7", 0, "w")


def settle(runs, case):
    with suppress(LeaseLost):
        runs.settle(held_by_nobody(case), ExportLife.fail, {"failure_code": "build_failed"})


QUESTIONS = {
    "claim": lambda runs, case: runs.claim(case.terms(slots=100, tenant_running=100), now=NOW),
    "claim of a private worker": lambda runs, case: runs.claim(case.terms(only=some_run(case).id, slots=100), now=NOW),
    "get": lambda runs, _case: runs.get("00000007"),
    "list of an account": lambda runs, _case: runs.list(Query("t1", "amina", before=(500_000, "x"))),
    "list of an account by state": lambda runs, _case: runs.list(Query("t1", "amina", state="queued")),
    "list of everybody": lambda runs, _case: runs.list(Query(before=(500_000, "x"))),
    "list of a parent": lambda runs, _case: runs.list(Query("t10", parent=BOOK, before=(500_000, "x"))),
    "parents": lambda runs, _case: runs.parents(after=("p10", "book", "t110")),
    "remove_of": lambda runs, _case: runs.remove_of("t10", ParentRef("book", "p11")),
    "find_active": lambda runs, _case: runs.find_active("k" * 64),
    "waiting of a tenant": lambda runs, _case: runs.waiting(tenant="t1"),
    "request_cancel": lambda runs, case: runs.request_cancel(some_run(case).id),
    "beat": lambda runs, case: runs.heartbeat([(held_by_nobody(case), None)], lease_seconds=15),
    "settle": settle,
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


# Those that a door asks for a tenant, in a web that is let in for one tenant at a time.
OF_A_TENANT = {
    "get": lambda runs, _case: runs.get("00000001", tenant="t1"),
    "list of an account": QUESTIONS["list of an account"],
    "list of a parent": QUESTIONS["list of a parent"],
    "list of an account by state": QUESTIONS["list of an account by state"],
    "find_active": lambda runs, _case: runs.find_active("k" * 64, tenant="t1"),
    "waiting of a tenant": QUESTIONS["waiting of a tenant"],
    "storage": QUESTIONS["storage"],
    "request_cancel": lambda runs, _case: runs.request_cancel("00000001", tenant="t1"),
    "move": lambda runs, _case: runs.move("00000001", ExportLife.expire, {}, tenant="t1"),
}


def read_by(case, ask, monkeypatch, store=None, before="begin"):
    """How many rows and blocks the statements of a question read, and those that no index led to."""
    sent, store = [], store or case.store

    def writing_down(cursor, way):
        execute = cursor.execute

        def write_down(self, query, params=None, **options):
            sent.append((way, query, params))
            return execute(self, query, params, **options)

        patched.setattr(cursor, "execute", write_down)

    with monkeypatch.context() as patched:
        writing_down(psycopg.Cursor, psycopg.Cursor)
        writing_down(PqCursor, psycopg.RawCursor)  # Both write $1 for the first value.
        ask(getattr(store, case.flow.name), case)
    assert sent
    rows, blocks, scanned = 0, 0, []
    with closing(store._database.engine.raw_connection()) as pooled:
        for way, query, params in sent:
            if str(query).lstrip().split()[0].upper() not in ("SELECT", "UPDATE", "DELETE", "WITH", "INSERT"):
                continue
            cursor = way(pooled.driver_connection)
            cursor.execute(before)
            cursor.execute(f"explain (analyze, buffers, format json) {query}", params)
            (plan,) = cursor.fetchone()
            cursor.execute("rollback")
            whole = plan[0]["Plan"] if isinstance(plan, list) else json.loads(plan)[0]["Plan"]
            blocks = max(blocks, whole["Shared Hit Blocks"] + whole["Shared Read Blocks"])
            for node in nodes(whole):
                if node.get("Relation Name") == "exports" and "Scan" in node["Node Type"]:
                    read = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
                    rows += read * node["Actual Loops"]
                    if node["Node Type"] == "Seq Scan":
                        scanned.append(query)
    return rows, blocks, scanned


def nodes(plan):
    yield plan
    for each in plan.get("Plans", ()):
        yield from nodes(each)


@pytest.mark.parametrize("statistics", ["never analysed", "analysed"])
def test_every_question_reads_what_it_answers_and_no_more(full, monkeypatch, statistics):
    if statistics == "analysed":
        full.opener.execute(full.url, "analyze")
    found = {name: read_by(full, ask, monkeypatch) for name, ask in QUESTIONS.items()}
    with closing(open_store(full.opener.as_role(full.url, RUNTIME))) as web:
        of_one = "begin; set local haulage.tenant = 't1'"
        for name, ask in OF_A_TENANT.items():
            found[f"{name}, for a tenant"] = read_by(full, ask, monkeypatch, web, of_one)

    assert {name: [] for name in found} == {name: scanned for name, (_, _, scanned) in found.items()}
    assert {} == {name: rows for name, (rows, _, _) in found.items() if rows > ROWS_MOST}
    assert {} == {name: found[name][1] for name in OF_ONE_RUN if found[name][1] > BLOCKS_MOST}


def test_a_scan_would_be_seen(full, monkeypatch):
    """The check above, on a question that has no index."""
    rows, _, scanned = read_by(full, lambda runs, _case: runs.tally(), monkeypatch)

    assert scanned
    assert rows >= full.ended

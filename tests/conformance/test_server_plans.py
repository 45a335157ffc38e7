"""What PostgreSQL reads to answer, with a million ended runs and a hundred thousand that wait.

The statements are those that the verbs really send, written down by the driver, and each is made once more under
EXPLAIN ANALYZE in a transaction that is rolled back: what counts is how many rows were read, and by which index.
"""

from __future__ import annotations

import json
from contextlib import closing

import psycopg
import pytest
from tests.conformance.cases import NOW, STORES, Case
from tests.conformance.conftest import make_folder

from haulage.core.ports import Query
from haulage.exports.life import ExportLife
from haulage.flows import FLOWS
from haulage.stores import open_store
from haulage.stores.tenants import RUNTIME

pytestmark = pytest.mark.slow

ENDED, WAITING, TENANTS = 1_000_000, 100_000, 1_000
ROWS_MOST = 250  # of one answer, over all tables: a page of a list, a bounded sweep

# Past the triggers, which would write the same two rows a hundred thousand times in one transaction.
FILL = f"""
begin;
alter table exports disable trigger user;
create temporary table pattern as select * from exports;
delete from exports;
update pattern set state = 'failed', finished_at = {NOW}, retain_until = {NOW * 2}, claim_no = 1;
do $$ declare listed text; picked text; begin
    select string_agg(quote_ident(column_name), ', ' order by ordinal_position),
        string_agg(case column_name when 'id' then 'lpad(n::text, 8, ''0'')' when 'tenant' then '''t'' || n % {TENANTS}'
            when 'requested_at' then 'n' else 'p.' || quote_ident(column_name) end, ', ' order by ordinal_position)
    into listed, picked from information_schema.columns where table_name = 'exports' and table_schema = 'public';
    execute format('insert into exports (%s) select %s from pattern p, generate_series(1, {ENDED}) as n',
        listed, picked);
    update pattern set state = 'queued', finished_at = null, retain_until = null, claim_no = 0, claim_by = {NOW * 2};
    execute format('insert into exports (%s) select %s from pattern p, generate_series({ENDED + 1}, {ENDED + WAITING})'
        ' as n', listed, picked);
end $$;
delete from tenant_gates;
insert into tenant_gates (flow, tenant, queued, running, head_at, head_id)
select 'exports', tenant, count(*), 0, min(requested_at), min(id) from exports where state = 'queued' group by tenant;
update run_pools set stored_bytes = 0, reserved_bytes = 0;
alter table exports enable trigger user;
commit
"""


@pytest.fixture(scope="module")
def full():
    """One store with a long history and a long queue, for every question of this file."""
    opener = STORES["postgresql"]
    with make_folder() as folder:
        case = Case(opener, FLOWS[0], folder)
        case.add(id="pattern")
        opener.execute(case.url, FILL)
        yield case
        case.store.close()


def some_run(case):
    return case.get(f"{ENDED + 7:08d}")


QUESTIONS = {
    "claim": lambda runs, case: runs.claim(case.terms(slots=100, tenant_running=100), now=NOW),
    "claim of a private worker": lambda runs, case: runs.claim(case.terms(only=some_run(case).id, slots=100), now=NOW),
    "get": lambda runs, _case: runs.get("00000007"),
    "list of an account": lambda runs, _case: runs.list(Query("t1", "amina", before=(500_000, "x"))),
    "list of an account by state": lambda runs, _case: runs.list(Query("t1", "amina", state="queued")),
    "list of everybody": lambda runs, _case: runs.list(Query(before=(500_000, "x"))),
    "find_active": lambda runs, _case: runs.find_active("k" * 64),
    "waiting of a tenant": lambda runs, _case: runs.waiting(tenant="t1"),
    "request_cancel": lambda runs, case: runs.request_cancel(some_run(case).id),
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
    "list of an account by state": QUESTIONS["list of an account by state"],
    "find_active": lambda runs, _case: runs.find_active("k" * 64, tenant="t1"),
    "waiting of a tenant": QUESTIONS["waiting of a tenant"],
    "storage": QUESTIONS["storage"],
    "request_cancel": lambda runs, _case: runs.request_cancel("00000001", tenant="t1"),
    "move": lambda runs, _case: runs.move("00000001", ExportLife.expire, {}, tenant="t1"),
}


def read_by(case, ask, monkeypatch, store=None, before="begin"):
    """How many rows of each table each statement of a question reads, and those that no index led to."""
    sent, execute, store = [], psycopg.Cursor.execute, store or case.store

    def write_down(self, query, params=None, **options):
        sent.append((query, params))
        return execute(self, query, params, **options)

    with monkeypatch.context() as patched:
        patched.setattr(psycopg.Cursor, "execute", write_down)
        ask(getattr(store, case.flow.name), case)
    rows, scanned = 0, []
    with closing(store._database.engine.raw_connection()) as pooled:
        for query, params in sent:
            if str(query).lstrip().split()[0].upper() not in ("SELECT", "UPDATE", "DELETE", "WITH", "INSERT"):
                continue
            cursor = pooled.driver_connection.cursor()
            cursor.execute(before)
            cursor.execute(f"explain (analyze, format json) {query}", params)
            (plan,) = cursor.fetchone()
            cursor.execute("rollback")
            for node in nodes(plan[0]["Plan"] if isinstance(plan, list) else json.loads(plan)[0]["Plan"]):
                if node.get("Relation Name") == "exports" and "Scan" in node["Node Type"]:
                    read = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
                    rows += read * node["Actual Loops"]
                    if node["Node Type"] == "Seq Scan":
                        scanned.append(query)
    return rows, scanned


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

    assert {name: [] for name in found} == {name: scanned for name, (_, scanned) in found.items()}
    assert {} == {name: rows for name, (rows, _) in found.items() if rows > ROWS_MOST}


def test_a_scan_would_be_seen(full, monkeypatch):
    """The check above, on a question that has no index."""
    rows, scanned = read_by(full, lambda runs, _case: runs.tally(), monkeypatch)

    assert scanned
    assert rows >= ENDED

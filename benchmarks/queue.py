"""The figures of the queue on PostgreSQL with its default durability, each beside its floor from the same run.

    ./dev bench queue [--only NAME,NAME] [--jobs 1000] [--times 3] [--ended 1000000] [--waiting 100000] [--dir FOLDER]

A worker lives long, so neither side is measured at its first runs, when its statements are made and prepared. Ours and
the floor take turns of a hundred runs inside one measure, so that a busy second of the machine falls on both.
The floor is what a queue cannot do without: one statement that claims and one that settles, a commit each, on a
table as wide as ours with one partial index. Nothing else should run beside it.

    claim_settle_postgresql     the bare verbs, in one worker process: a flow without slots, gates and budget
    claim_settle_complete       exports, with slots, gate row and budget; beside them a worker's presence and beat every
                                second, and a listener that is rung
    claim_settle_with_history   the same with a hundred thousand waiting and a million ended runs
    claim_under_long_snapshot   the bare verbs while another transaction holds a snapshot of the whole run
    complete_under_long_snapshot  exports under the same; a gate and the budget are rows whose old versions pile up
    request_to_claim_ms         from the commit of a request to its claim by a worker that waits for the hint
    fair_claims                 claims among 10 and among 10,000 tenants
    heartbeat_1000              one beat of a thousand running runs, and a beat of one
"""

from __future__ import annotations

import sys

# ruff: noqa: E402 - this file has the name of a module that others need, so its folder is looked into last
sys.path[:] = [*sys.path[1:], f"{sys.path[0]}/..", sys.path[0]]

import argparse
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from first import waiting_run
from lines import alternating, figure, median
from tests.conformance.uncounted import TABLE, statements, uncounted
from tests.servers.postgresql import PostgreSQL, programs

from haulage.core.clock import new_id, now_ms
from haulage.core.lease import Held
from haulage.core.ports import Presence, Terms
from haulage.core.progress import Progress
from haulage.exports.life import ExportLife
from haulage.stores.open import Store, open_store

FLOOR = """
create table plain (like exports including defaults including constraints) with (fillfactor = 75);
alter table plain add primary key (id);
create index plain_queued on plain (requested_at, id) where state = 'queued';
"""
FLOOR_CLAIM = """
with picked as (select id from plain where state = 'queued' order by requested_at, id limit 1 for update skip locked)
update plain set state = 'running', claim_no = claim_no + 1, worker = %s, lease_until = %s, slot = 1
from picked where plain.id = picked.id returning plain.*
"""
FLOOR_SETTLE = """
update plain set state = 'failed', lease_until = null, slot = null, worker = null, active_key = null
where id = %s and state = 'running' and claim_no = %s
"""


UNMEASURED = 20  # runs, before the clock starts
TURN = 100  # runs of one side, before the other has its turn
TOGETHER = 50  # requests in one transaction, while a queue is made


class Setting:
    """A server on a real disk, and how much is measured."""

    def __init__(self, given: argparse.Namespace) -> None:
        durable = ("fsync=on", "autovacuum=on", "shared_buffers=128MB")
        self.server = PostgreSQL(programs(), *durable, place=given.dir)
        self.jobs, self.times, self.ended, self.waiting = given.jobs, given.times, given.ended, given.waiting
        self._number = 0

    @contextmanager
    def store(self) -> Iterator[tuple[Store, str]]:
        """A new store, and the name of its database."""
        self._number += 1
        name = f"bench{self._number}"
        self.server.execute("postgres", f"create database {name}")
        with closing(open_store(self.server.url(name), migrate_new=False)) as store:
            store.migrate()
            yield store, name
        self.server.execute("postgres", f"drop database {name} with (force)")

    def terms(self, tenant_running: int = 2) -> Terms:
        return Terms(new_id(), 15, 2, tenant_running, 2**50, 10)


def ask(store: Store, count: int, tenants: int = 1, runs: Any = None) -> None:
    """So many waiting runs, a few in a transaction: in a single one, its own dead rows would be measured."""
    now, runs = now_ms(), runs or store.exports
    for first in range(0, count, TOGETHER):
        with store.begin() as tx:
            for number in range(first, min(count, first + TOGETHER)):
                run = replace(waiting_run(now + number), tenant=f"t{number % tenants}")
                runs.add(run, tx=tx)


def work(runs: Any, terms: Terms, count: int) -> float:
    """Claims and settles a second."""
    spend(runs, terms, UNMEASURED)
    return (count - UNMEASURED) / spend(runs, terms, count - UNMEASURED)


def spend(runs: Any, terms: Terms, count: int) -> float:
    """Seconds of so many claims and settles."""
    began = time.perf_counter()
    for _ in range(count):
        claimed = runs.claim(terms)
        assert claimed is not None
        runs.settle(claimed[0], ExportLife.fail, {"failure_code": "build_failed", "artifact_key": None})
    return time.perf_counter() - began


Side = Callable[[int], float]  # works off so many runs; gives seconds


@contextmanager
def floor(setting: Setting) -> Iterator[Callable[[], Side]]:
    """The plain queue, filled anew for each measure."""
    with setting.store() as (store, name), closing(setting.server.connect(name)) as direct:
        direct.execute(FLOOR)
        ask(store, setting.jobs)

        def side(count: int) -> float:
            began = time.perf_counter()
            for _ in range(count):
                row = direct.execute(FLOOR_CLAIM, ("w", now_ms() + 15_000)).fetchone()
                assert row is not None
                direct.execute(FLOOR_SETTLE, (row[0], 1))
            return time.perf_counter() - began

        def filled() -> Side:
            direct.execute("truncate plain")
            direct.execute("insert into plain select * from exports")
            direct.execute("vacuum analyze plain")
            return side

        yield filled


def in_turns(jobs: int, *sides: Side) -> list[float]:
    """Runs a second of each side."""
    spent = [0.0 for side in sides if side(UNMEASURED)]
    for done in range(UNMEASURED, jobs, TURN):
        for number, side in enumerate(sides):
            spent[number] += side(min(TURN, jobs - done))
    return [(jobs - UNMEASURED) / seconds for seconds in spent]


def compare(setting: Setting, name: str, target: float, ours: Callable[[], AbstractContextManager[Side]]) -> None:
    """Ours beside the floor."""
    pairs = []
    with floor(setting) as filled:
        for _ in range(setting.times):
            with ours() as side:
                pairs.append(in_turns(setting.jobs, side, filled()))
    mine, theirs = ([pair[number] for pair in pairs] for number in (0, 1))
    figure(
        name,
        median(mine),
        "runs/s",
        peer="one statement to claim, one to settle, a commit each",
        peer_value=median(theirs),
        ratio=median([own / plain for own, plain in pairs]),
        target=target,
        runs=mine,
    )


@contextmanager
def bare(setting: Setting) -> Iterator[tuple[Any, str]]:
    """A flow whose runs share nothing, with waiting runs; and the name of its database."""
    with setting.store() as (store, name):
        for statement in statements(store.exports):
            setting.server.execute(name, statement)
        runs = uncounted(store.exports)
        ask(store, setting.jobs, runs=runs)
        setting.server.execute(name, f"vacuum analyze {TABLE.name}")  # as the floor
        yield runs, name


def claim_settle_postgresql(setting: Setting) -> None:
    @contextmanager
    def ours() -> Iterator[Side]:
        with bare(setting) as (runs, _):
            yield partial(spend, runs, setting.terms())

    compare(setting, "claim_settle_postgresql", 0.8, ours)


@contextmanager
def company(store: Store) -> Iterator[threading.Event]:
    """What stands beside the claims of a real worker: presence and beat every second, and somebody who listens.

    They rest while the event that is given is cleared, when it is the turn of others.
    """
    ended, at_work, worker = threading.Event(), threading.Event(), new_id()
    watcher = store.watch()
    at_work.set()

    def beat() -> None:
        while not ended.wait(1):
            at_work.wait()
            store.workers.announce(Presence(worker, "bench", 1, "0", "claiming", 2, 0, 0))
            store.exports.heartbeat([(Held("nobody", "t0", 1, worker), None)], lease_seconds=15)

    def listen() -> None:
        while not ended.wait(0.02):
            at_work.wait()
            watcher.changed()

    threads = [threading.Thread(target=each) for each in (beat, listen)]
    for thread in threads:
        thread.start()
    yield at_work
    ended.set()
    at_work.set()
    for thread in threads:
        thread.join()
    watcher.close()


def complete(setting: Setting, store: Store) -> float:
    with company(store):
        return work(store.exports, setting.terms(), setting.jobs)


def claim_settle_complete(setting: Setting) -> None:
    @contextmanager
    def ours() -> Iterator[Side]:
        with setting.store() as (store, name):
            ask(store, setting.jobs)
            setting.server.execute(name, "vacuum analyze exports")  # as the floor
            with company(store) as at_work:

                def side(count: int) -> float:
                    at_work.set()
                    seconds = spend(store.exports, terms, count)
                    at_work.clear()
                    return seconds

                terms = setting.terms()
                yield side

    compare(setting, "claim_settle_complete", 0.5, ours)


def grow(setting: Setting, name: str) -> None:
    """A long history and a long queue, past the triggers; then the counters, as they would be."""
    copy = f"""
        do $$ declare listed text; picked text; begin
            select string_agg(quote_ident(column_name), ', ' order by ordinal_position), string_agg(case column_name
                when 'id' then 'lpad(n::text, 36, ''0'')' when 'requested_at' then 'requested_at - 10000000 + n'
                when 'active_key' then 'null' when 'state' then 'case when n <= {setting.ended} then ''failed''
                else ''queued'' end' else quote_ident(column_name) end, ', ' order by ordinal_position)
            into listed, picked from information_schema.columns
            where table_name = 'exports' and table_schema = 'public';
            execute format('insert into exports (%s) select %s from (select * from exports limit 1) as p,
                generate_series(1, {setting.ended + setting.waiting}) as n', listed, picked);
        end $$"""
    for sql in (
        "alter table exports disable trigger user",
        copy,
        "delete from tenant_gates",
        """insert into tenant_gates select 'exports', tenant, count(*), 0, min(requested_at),
            (array_agg(id order by requested_at, id))[1] from exports where state = 'queued' group by tenant""",
        "alter table exports enable trigger user",
        "vacuum analyze exports",
    ):
        setting.server.execute(name, sql)


def beside(
    setting: Setting, name: str, target: float, ours: Callable[[], float], plain: Callable[[], float], peer: str
) -> None:
    """Ours beside the same without what is measured."""
    mine, theirs = alternating(setting.times, ours, plain)
    ratio = median(mine) / median(theirs)
    figure(name, median(mine), "runs/s", peer=peer, peer_value=median(theirs), ratio=ratio, target=target, runs=mine)


def complete_anew(setting: Setting, *, snapshot: bool = False) -> Callable[[], float]:
    """Exports in a new store, which somebody may hold a snapshot of."""

    def measure() -> float:
        with setting.store() as (store, name):
            ask(store, setting.jobs)
            with held(snapshot, setting, name, "exports"):
                return complete(setting, store)

    return measure


@contextmanager
def held(snapshot: bool, setting: Setting, name: str, table: str) -> Iterator[None]:
    """What an export of the same database does as long as it reads."""
    if not snapshot:
        yield
        return
    with closing(setting.server.connect(name)) as holder:
        holder.execute("begin isolation level repeatable read")
        holder.execute(f"select count(*) from {table}")
        yield
        holder.execute("rollback")


def claim_settle_with_history(setting: Setting) -> None:
    with setting.store() as (store, name):
        ask(store, 1)
        grow(setting, name)
        ours = lambda: complete(setting, store)  # noqa: E731
        beside(setting, "claim_settle_with_history", 0.85, ours, complete_anew(setting), "claim_settle_complete")


def claim_under_long_snapshot(setting: Setting) -> None:
    def measure(*, snapshot: bool) -> Callable[[], float]:
        def go() -> float:
            with bare(setting) as (runs, name), held(snapshot, setting, name, TABLE.name):
                return work(runs, setting.terms(), setting.jobs)

        return go

    ours, plain = measure(snapshot=True), measure(snapshot=False)
    beside(setting, "claim_under_long_snapshot", 0.85, ours, plain, "claim_settle_postgresql")


def complete_under_long_snapshot(setting: Setting) -> None:
    ours, plain = complete_anew(setting, snapshot=True), complete_anew(setting)
    beside(setting, "complete_under_long_snapshot", 0.85, ours, plain, "claim_settle_complete")


def request_to_claim_ms(setting: Setting) -> None:
    """A worker that waits at the hint's descriptor, and a door that asks every few hundredths of a second."""
    import select

    took: list[float] = []
    with setting.store() as (store, name), closing(open_store(setting.server.url(name))) as door:
        watcher, terms = store.watch(), setting.terms(tenant_running=10_000)
        ended = threading.Event()

        def wait_and_claim() -> None:
            while not ended.is_set():
                select.select([watcher.descriptor], [], [], 0.5)
                while watcher.changed() or not ended.is_set():
                    claimed = store.exports.claim(terms)
                    if claimed is None:
                        break
                    took.append((time.perf_counter() - asked[claimed[1].id]) * 1000)
                    values = {"failure_code": "build_failed", "artifact_key": None}
                    store.exports.settle(claimed[0], ExportLife.fail, values)

        asked: dict[str, float] = {}
        thread = threading.Thread(target=wait_and_claim)
        thread.start()
        for _ in range(200):
            run = waiting_run(now_ms())
            with door.begin() as tx:
                door.exports.add(run, tx=tx)
                asked[run.id] = time.perf_counter()
            time.sleep(0.06)
        time.sleep(1)
        ended.set()
        thread.join()
        watcher.close()
    middle = median(took)
    figure("request_to_claim_ms", middle, "ms", peer="limit", peer_value=10, ratio=10 / middle, target=1, runs=[middle])


def fair_claims(setting: Setting) -> None:
    def among(tenants: int) -> Callable[[], float]:
        def measure() -> float:
            with setting.store() as (store, _):
                ask(store, max(setting.jobs, tenants), tenants)
                return work(store.exports, setting.terms(), setting.jobs)

        return measure

    many, few = alternating(setting.times, among(10_000), among(10))
    ratio = median(many) / median(few)
    figure("fair_claims", median(many), "runs/s", peer="10 tenants instead of 10,000", peer_value=median(few),
           ratio=ratio, target=1 / 1.5, runs=many)  # fmt: skip


def heartbeat_1000(setting: Setting) -> None:
    with setting.store() as (store, name):
        ask(store, 1_000)
        setting.server.execute(
            name,
            "update exports set state = 'running', claim_no = 1, lease_until = 1, slot = place from"
            " (select id as which, row_number() over (order by id) as place from exports) p where id = which",
        )
        ids = [row[0] for row in setting.server.execute(name, "select id from exports")]
        beats = [(Held(each, "t0", 1, "w"), Progress("writing", 1, None)) for each in ids]

        def beat(some: list) -> Callable[[], float]:
            def measure() -> float:
                began = time.perf_counter()
                pulses = store.exports.heartbeat(some, lease_seconds=15)
                assert all(pulse.held for pulse in pulses.values())
                return (time.perf_counter() - began) * 1000

            return measure

        all_of_them, one = alternating(max(5, setting.times), beat(beats), beat(beats[:1]))
    value, single = median(all_of_them), median(one)
    figure("heartbeat_1000", value, "ms", peer="a thousand beats of one run", peer_value=single * 1000,
           ratio=single * 1000 / value, target=5, runs=all_of_them)  # fmt: skip


FIGURES = {
    each.__name__: each
    for each in (
        claim_settle_postgresql,
        claim_settle_complete,
        claim_settle_with_history,
        claim_under_long_snapshot,
        complete_under_long_snapshot,
        request_to_claim_ms,
        fair_claims,
        heartbeat_1000,
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(FIGURES))
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--ended", type=int, default=1_000_000)
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"))
    given = parser.parse_args()
    setting = Setting(given)
    for name in given.only.split(","):
        FIGURES[name](setting)


if __name__ == "__main__":
    assert psycopg.__version__
    main()

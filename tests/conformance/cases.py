"""What the conformance suite runs over: every store with every flow, and a case of both with short ways to a promise.

A store joins with one line in STORES, a flow with one line in `haulage.flows.FLOWS` and a kit of its own here.
What a store or a life cannot do is asked for by capability (`case.needs`, `case.moves`), never by its name.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import json
import os
import sqlite3
import tempfile
from collections import deque
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event
from tests.conformance import recorder
from tests.promises import NotPromised
from tests.servers.openers import InDatabase, MariaDB, PostgreSQL

from haulage.core.clock import new_id
from haulage.core.lifecycle import CancelWish, LeaseUse
from haulage.core.limits import MIB, ExportLimits
from haulage.core.ports import After, Presence, Terms
from haulage.exports.life import ExportRun
from haulage.flows import FLOWS
from haulage.stores import atomic, open_store
from haulage.stores.directory.letter import sealed
from haulage.stores.directory.store import directory_path

NOW = 1_800_000_000_000  # when a test begins, in milliseconds
MINUTE = 60_000
DAY = 24 * 60 * MINUTE


class Sqlite(InDatabase):
    """A new store is a copy of one that was migrated once; it lives in memory where the machine has such a folder."""

    def new(self, folder: Path) -> str:
        """A place without anything."""
        return f"sqlite:///{folder}/store.db"

    def done(self, _url: str) -> None:
        """The folder goes with the test."""

    def url(self, folder: Path) -> str:
        (folder / "store.db").write_bytes(_migrated_sqlite())
        return f"sqlite:///{folder}/store.db"

    def execute(self, url: str, *statements: str) -> list[tuple]:
        """Statements past the store."""
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=5)) as direct, direct:
            return [row for each in statements for row in direct.execute(each).fetchall()]

    def write_down_transitions(self, url: str, table: str) -> None:
        """Have the database itself write down every change of state, and how many runs were running after it."""
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as direct:
            direct.executescript(f"""
                create table if not exists transitions (
                    id text, source text, target text, claim_no integer, running integer, cancel integer);
                create trigger if not exists {table}_transitions after update of state on {table}
                when old.state <> new.state begin
                    insert into transitions values (new.id, old.state, new.state, new.claim_no,
                        (select count(*) from {table} where state = 'running'), old.cancel_requested_at is not null);
                end;
            """)

    @contextmanager
    def locked(self, url: str):
        """Another program holds the right to write."""
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as direct:
            direct.execute("begin immediate")
            yield
            direct.execute("rollback")

    @contextmanager
    def without_space(self, store):
        """The store may not grow."""
        engine, pages = store._database.engine, []

        def limit(connection, _record, _proxy):
            connection.execute("pragma max_page_count = 1")  # SQLite makes it what the file has already.
            pages.append(connection)

        event.listen(engine, "checkout", limit)
        yield
        event.remove(engine, "checkout", limit)
        for connection in pages:
            connection.execute("pragma max_page_count = 1000000")

    def deafen(self, watcher, monkeypatch):
        """Have the hint fail."""

        class Broken:
            def execute(self, _sql):
                raise sqlite3.OperationalError(os.strerror(errno.EIO))

        monkeypatch.setattr(watcher, "_driver", Broken())

    def transitions(self, url: str) -> list[tuple]:
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as direct:
            return direct.execute("select * from transitions order by rowid").fetchall()


@functools.cache
def _migrated_sqlite() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        open_store(f"sqlite:///{folder}/store.db").close()
        return Path(folder, "store.db").read_bytes()


class Directory:
    """A new store is an empty folder; who else holds its lock, or has no space, is told by the system itself."""

    def url(self, folder: Path) -> str:
        return f"directory://{folder}/store"

    new = url

    def done(self, _url: str) -> None:
        """The folder goes with the test."""

    def write_down_transitions(self, url: str, table: str) -> None:
        self._transitions(url).touch()

    def transitions(self, url: str) -> list[tuple]:
        return [tuple(json.loads(line)) for line in self._transitions(url).read_text().splitlines()]

    def _transitions(self, url: str) -> Path:
        return Path(f"{directory_path(url)}.{recorder.NAME}")

    @contextmanager
    def locked(self, url: str):
        with (directory_path(url) / "lock").open("r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextmanager
    def without_space(self, store):
        def write_nothing(_descriptor, _data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("haulage.stores.atomic._write_all", write_nothing)
            yield

    def write(self, case, run_id, values):
        runs = case.runs
        with case.store.folder.writing() as tx:
            before = runs.rows.find(run_id, tx)
            after = replace(before, **values)
            runs._refuse(after, tx)
            runs.live.put(after, None, tx)
            if runs.rows.leases.seen(after) is not None:
                runs.leases.beat(after)

    def want_workers(self, case, oldest):
        store = case.store
        facts = {"schema_version": store.schema().version, "min_worker": oldest}
        with store.folder.writing():
            atomic.replace(store.path / "haulage.json", sealed("facts", facts))

    def empty(self, case):
        case.store.migrate("base")
        case.store.close()
        case.store = case.open()  # What ended is known by its name, and a history uses the same names again.
        self._transitions(case.url).write_text("")

    def impatient(self, monkeypatch):
        monkeypatch.setattr("haulage.stores.directory.folder.BUSY_SECONDS", 0.02)

    def before_each_write(self, store, act):
        writing = store.folder.writing

        def write_too_late(tx=None):
            act()
            return writing(tx)

        store.folder.writing = write_too_late

    def deafen(self, watcher, monkeypatch):
        def read(_descriptor):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr("haulage.stores.directory.folder._read_count", read)


class ExportKit:
    """Valid values of the export table."""

    def new(self, **changes) -> ExportRun:
        valid = ExportRun(
            id=new_id(changes["requested_at"]),
            tenant="north",
            state="queued",
            requested_at=0,
            claim_by=changes["requested_at"] + 150_000,
            account="amina",
            dataset="orders",
            dataset_hash="d" * 64,
            source="shop",
            format="csv",
            options={"dialect": "exact"},
            parameters={"since": "2026-01-01", "cities": ["Jülich", "報告"], "limit": None},
            plan={"sql": "select 1", "binds": {}, "order": ["id"]},
            requester={"tenant": "north", "account": "amina", "grants": ["orders.read"]},
            as_of=changes["requested_at"],
            generation_ms=120_000,
            file_bytes=1 * MIB,
        )
        return replace(valid, **changes)

    def values(self, move) -> dict:
        """What has to be written with a move, beside what the store writes by itself."""
        if move.target == "ready":
            return {
                "rows": 3,
                "processed": 3,
                "total": 3,
                "bytes": 1_000,
                "stored_bytes": 1_000,
                "sha256": "f" * 64,
                "snapshot_at": NOW,
                "columns": ({"key": "id", "header": "Id", "type": None},),
                "notices": ({"code": "nul_replaced", "count": 2},),
                "complete": True,
                "file_name": "orders.csv",
                "media_type": "text/csv",
                "expires_at": After(600),
            }
        return {"failure_code": "build_failed"} if move.target == "failed" else {}


STORES = {"sqlite": Sqlite(), "directory": Directory(), "postgresql": PostgreSQL(), "mariadb": MariaDB()}
KITS = {"exports": ExportKit()}


class Case:
    """One open store and one flow. Time stands still at ``now`` until a test passes a later one."""

    def __init__(self, opener, flow, folder):
        self.opener = opener
        self.flow = flow
        self.life = flow.life
        self.kit = KITS[flow.name]
        self.url = opener.url(folder)
        self.limits = ExportLimits()
        self.store = self.open()
        self.now = NOW

    def open(self):
        """The same store once more, as another process would open it."""
        return open_store(self.url, self.limits)

    @property
    def runs(self):
        return getattr(self.store, self.flow.name)

    # -- what is asked for by capability ------------------------------------------------------------

    def needs(self, capability):
        if not getattr(self.store.capabilities, capability):
            raise NotPromised(f"this store has no {capability}")

    def needs_opener(self, means):
        """What only some stores can be put through from outside: a server's disk is the server's."""
        if not hasattr(self.opener, means):
            raise NotPromised(f"no way to have this store {means.replace('_', ' ')}")

    def needs_verb(self, verb):
        if not hasattr(self.runs, verb):
            raise NotPromised(f"{self.flow.name} have no {verb}")

    def moves(self, *names):
        """Moves by name; a life without one of them has nothing to promise about it."""
        for name in names:
            if name not in self.life.moves:
                raise NotPromised(f"the life of {self.flow.name} has no {name}")
        found = [self.life.moves[name] for name in names]
        return found if len(found) > 1 else found[0]

    # -- short ways ---------------------------------------------------------------------------------

    def add(self, tenant="north", *, seconds=0, **changes):
        """A new run, requested so many seconds after the beginning."""
        run = self.kit.new(tenant=tenant, requested_at=self.now + int(seconds * 1000), **changes)
        self.runs.add(run)
        return run

    def terms(self, worker="w1", **changes):
        usual = Terms(
            worker=worker,
            lease_seconds=15,
            slots=2,
            tenant_running=2,
            store_bytes=512 * MIB,
            grace_seconds=10,
        )
        return replace(usual, **changes)

    def claim(self, worker="w1", *, now=None, **terms):
        return self.runs.claim(self.terms(worker, **terms), now=now or self.now)

    def hold(self, worker="w1", *, now=None, **changes):
        """A new run that a worker has claimed, however many run already."""
        run = self.add(**changes)
        claimed = self.claim(worker, only=run.id, slots=100, tenant_running=100, now=now)
        assert claimed is not None
        return claimed[0]

    def settle(self, held, move, *, now=None, **values):
        self.runs.settle(held, move, {**self.kit.values(move), **values}, now=now or self.now)
        return self.get(held.id)

    def cancel(self, run_id, *, now=None):
        return self.runs.request_cancel(run_id, now=now or self.now)

    def beat(self, held, progress=None, *, now=None, lease_seconds=15):
        return self.runs.heartbeat([(held, progress)], lease_seconds=lease_seconds, now=now or self.now)[held]

    def get(self, run_or_id):
        return self.runs.get(getattr(run_or_id, "id", run_or_id))

    def presence(self, worker="w1", *, now=None, **changes):
        seen = Presence(worker, "host", 1, "0.1", "claiming", 2, 0, 0)
        self.store.workers.announce(replace(seen, **changes), now=now or self.now)

    def write(self, run_id, **values):
        """Write columns past the verbs, as only a test may."""
        self.opener.write(self, run_id, values)

    def want_workers(self, oldest):
        """Have the store want workers of a schema that this version does not know, or does again."""
        self.opener.want_workers(self, oldest)

    # -- every state and every move of a life -------------------------------------------------------

    def bring(self, state, *, cancelled=False):
        """A run in a state, led there by the shortest way of its life, and who held it last."""
        run, held = self.add(), None
        for move in self._way(state):
            if move.lease is LeaseUse.TAKES:
                held, run = self.claim(only=run.id, slots=100, tenant_running=100)
            elif move.lease is LeaseUse.ENDS:
                run = self.settle(held, move)
            else:
                run = self.runs.move(run.id, move, self.kit.values(move), now=self.now)
        if cancelled:
            run = self.cancel(run.id)
        assert state == run.state
        return run, held

    def _way(self, state):
        """The shortest list of moves from the beginning that nobody has to cancel for."""
        ways = deque([(self.life.initial, ())])
        while ways:
            here, way = ways.popleft()
            if here == state:
                return way
            ways.extend(
                (move.target, (*way, move))
                for move in self.life.moves_from(here)
                if move.cancel is not CancelWish.REQUESTED and move not in way
            )
        raise AssertionError(f"no way leads to {state}")


def pairs():
    """Every store with every flow, named."""
    return [
        # A server takes seconds to start: its tests are not of the quick ones.
        pytest.param((opener, flow), id=f"{name}-{flow.name}", marks=() if name == "sqlite" else pytest.mark.slow)
        for name, opener in STORES.items()
        for flow in FLOWS
    ]

"""A house with real workers: a store, artifacts, a source, and processes that a test kills by their own id.

Read ``House`` first. ``worker_process.py`` is the program of a worker here: the same parts as ``haulage worker``,
with limits that the test gives and with everything it observes written to a file, a JSON line each.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

from tests.process.launcher import Launcher
from tests.servers import mariadb, postgresql

from haulage.artifacts.local import LocalArtifacts
from haulage.core.catalogue import Catalogue, Dataset, Parameter
from haulage.core.errors import StoreUnavailable
from haulage.core.limits import GIB, BuildLimits, DoorLimits, ExportLimits
from haulage.core.ports import Presence, Query, Terms
from haulage.core.requester import Requester
from haulage.exports.expire import ExportSweep
from haulage.exports.life import ExportRun
from haulage.exports.plan import Asked
from haulage.exports.request import Exports
from haulage.sources import open_source
from haulage.stores import open_store
from haulage.worker import lanes
from haulage.worker.heartbeat import Heartbeat

PATIENCE_SECONDS = 80  # a busy machine is slow, not wrong; nothing is waited for longer
AMINA = Requester("north", "amina")
BUILD = BuildLimits(file_bytes=2 * GIB, count_seconds=30, generation_seconds=60)
LIMITS = ExportLimits(
    build=BUILD,
    store_bytes=8 * GIB,
    lease_seconds=20,  # a busy machine must not lose one by being slow; let_leases_run_out makes it short
    beat_seconds=0.2,
    progress_seconds=0.05,
    stop_seconds=1,
    sweep_seconds=0.3,
    drain_seconds=60,
    tenant_running=50,
)
UPTO = "with recursive n(i) as (select 1 union all select i + 1 from n where i < :rows)"
ROWS = (Parameter("rows", "integer", default=1_000),)
DATASETS = (
    Dataset("names", "shop", sql="select id, name, id * 1.5 as x from names where id <= :rows", parameters=ROWS,
            key=("id",), formats=("csv", "json", "ndjson")),
    # Rows come at once and there is no end to them in the time of a test.
    Dataset("stream", "shop", sql=f"{UPTO} select i, 'name ' || i as name from n", parameters=ROWS,
            limits=replace(BUILD, count_seconds=0.05, rows=10**12)),
    # One statement that says nothing until it is done: while counting, and while writing.
    Dataset("silent", "shop", sql=f"{UPTO} select sum(i) as total from n", parameters=ROWS),
    Dataset("silent_rows", "shop", sql=f"{UPTO} select i, abs(random()) % 1000 as k from n order by k", parameters=ROWS,
            limits=replace(BUILD, count_seconds=0.05, rows=10**12)),
    Dataset("again", "shop", sql=f"{UPTO} select i from n", parameters=ROWS, on_worker_loss="rerun",
            limits=replace(BUILD, count_seconds=0.05, rows=10**12)),
    Dataset("wrong", "shop", sql="select abs(-9223372036854775808) as a"),
    Dataset("unknown", "nowhere", sql="select 1 as a"),
)  # fmt: skip
FOREVER = {"rows": 10**11}
MANY = "(select generate_series(1, :rows) as i) as n"  # row by row: in FROM it would be kept whole first
ON_POSTGRESQL = {
    "stream": f"select i, 'name ' || i as name from {MANY}",
    "silent": f"select sum(i) as total from {MANY}",
    "silent_rows": f"select i, i % 7 as k from {MANY} where i < 0",
    "again": f"select i from {MANY}",
    "wrong": "select 1 / 0 as a",
}
ON_MARIADB = {
    "stream": "select seq as i, concat('name ', seq) as name from seq_1_to_100000000000 where seq <= :rows",
    "silent": "select sum(a.seq * b.seq) as total from seq_1_to_1000000 as a, seq_1_to_1000000 as b where :rows > 0",
    "silent_rows": "select seq as i, seq % 7 as k from seq_1_to_100000000000 where seq * 2 < 0 and :rows > 0",
    "again": "select seq as i from seq_1_to_100000000000 where seq <= :rows",
    "wrong": "select exp(100000) as a",
}


class Worker:
    """One worker process of a house."""

    def __init__(self, launcher: Launcher, folder: Path, config: dict):
        self.log = folder / "events.jsonl"
        self.log.touch()
        self.stderr = folder / "stderr"
        self.stderr.touch()
        self.process = launcher.start(config, self.log, self.stderr)
        self.pid = self.process.pid

    def events(self, kind: str | None = None) -> list[dict]:
        """What it observed so far, or only what is of one kind."""
        lines = self.log.read_text().splitlines()
        seen = [json.loads(line) for line in lines if line.endswith("}")]
        return [each for each in seen if kind in (None, each["event"])]

    def wait_for(self, kind: str, **members) -> dict:
        """The first event of a kind, with these members."""

        def found():
            return [e for e in self.events(kind) if members.items() <= e.items()]

        until(found, lambda: f"no {kind} {members} in {self.events()}\n{self.stderr.read_text()}")
        return found()[0]

    def signal(self, number: int) -> None:
        """Send a signal to this process alone."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it without a word, and see that this is what ended it."""
        self.signal(signal.SIGKILL)
        assert self.end() == -signal.SIGKILL

    def end(self) -> int:
        """Wait until it has ended; gives its return code."""
        return self.process.wait(PATIENCE_SECONDS)


class House:
    """Everything that a story of workers needs."""

    def __init__(
        self,
        folder: Path,
        launcher: Launcher,
        limits: ExportLimits = LIMITS,
        store_path: Path | None = None,
        artifacts_root: Path | None = None,
        store_url: str | None = None,
        source_url: str | None = None,
        datasets: Sequence[Dataset] = DATASETS,
    ):
        """In a folder with a source and a store; store and artifacts may stand elsewhere."""
        self.folder = folder
        self.launcher = launcher
        self.limits = limits
        self.source = folder / "shop.db"
        self.source_url = source_url or f"sqlite:///{self.source}"
        self.store_path = store_path or folder / "haulage.db"
        self.artifacts_root = artifacts_root or folder / "artifacts"
        self.gate = folder / "gate"
        self.store_url = store_url or f"sqlite:///{self.store_path}"
        self.store = open_store(self.store_url, limits)
        self.artifacts = LocalArtifacts(self.artifacts_root, self.store.identity())
        self.artifacts.prepare()
        self.catalogue = Catalogue()
        for dataset in datasets:
            self.catalogue.add(dataset)
        self.workers: list[Worker] = []
        self.events: list = []

    @property
    def exports(self) -> Exports:
        return Exports(
            self.store,
            self.artifacts,
            self.catalogue,
            open_source=lambda _name: open_source(self.source_url),
            limits=self.limits,
            doors=DoorLimits(),
        )

    def close(self) -> None:
        """End every process that this house started, by its own id."""
        for worker in self.workers:
            if worker.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    worker.signal(signal.SIGKILL)
                worker.end()
        for pid in self.children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.store.close()

    # -- workers -----------------------------------------------------------------------------------

    def worker(self, *, wait: bool = True, held: bool = False, **config) -> Worker:
        """Start a worker; ``config`` is read by ``worker_process.py``. One that is held ends no build until it may."""
        if held:
            self.gate.touch()
        folder = self.folder / f"worker-{len(self.workers)}"
        folder.mkdir()
        known = {
            "store": self.store_url,
            "artifacts": f"file:{self.artifacts_root}",
            "objects": {},
            "source": self.source_url,
            "limits": asdict(self.limits),
            "lanes": 2,
            "only_run": None,
            "environment": {},
            "rlimits": {},
            "busy_seconds": 0.5,
            "look_seconds": None,  # None is the worker's own
            "inotify": True,
            "gate": str(self.gate) if held else None,
        }
        assert set(config) <= set(known), config
        worker = Worker(self.launcher, folder, {**known, **config})
        self.workers.append(worker)
        if wait:
            worker.wait_for("WorkerStarted")
        return worker

    def let_builds_end(self) -> None:
        """Those of workers that are held: until now each has written its rows, and waits before its last byte."""
        self.gate.unlink()

    def pretend_a_worker(self) -> None:
        """Let requests be accepted before a worker is there."""
        now = self.store.now()
        pretended = Presence("pretended", "nowhere", 1, "0", "claiming", 1, now, now)
        patiently(lambda: self.store.workers.announce(pretended))

    def freeze(self, worker: Worker) -> None:
        """Stop a worker, but not within a transaction: that would be a locked store, which is another story."""

        def frozen() -> bool:
            worker.signal(signal.SIGSTOP)
            until(lambda: stopped(worker.pid))
            try:
                with self.store.begin():
                    return True
            except StoreUnavailable:
                worker.signal(signal.SIGCONT)
                return False

        until(frozen)

    def children(self) -> list[int]:
        """Builds that live, found by the folder that they work in."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and str((entry / "cwd").readlink()).startswith(str(self.artifacts_root)):
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    found += [] if state == "Z" else [int(entry.name)]
        return found

    def child(self) -> int:
        """The one build that lives, once it is there."""
        until(lambda: len(self.children()) == 1, lambda: f"{self.children()} are alive")
        return self.children()[0]

    def keeper_and_build(self) -> tuple[int, int]:
        """The two processes of the one build of the host's code that lives."""
        words = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in self.children()}
        (build,) = [pid for pid, said in words.items() if b"haulage.worker.child" in said]
        return int(Path(f"/proc/{build}/stat").read_text().rpartition(")")[2].split()[1]), build

    # -- runs --------------------------------------------------------------------------------------

    def request(self, dataset: str = "names", *, requester: Requester = AMINA, **asked) -> str:
        """Ask for an export; gives its id."""
        known = ("format", "compression", "options", "columns", "private_run")
        options = {"format": "csv"} | {name: asked.pop(name) for name in known if name in asked}
        private_run = options.pop("private_run", None)
        wish = Asked(dataset, parameters=asked, **options)
        return patiently(lambda: self.exports.accept(requester, wish, private_run=private_run)).run.id

    def get(self, run: str) -> ExportRun:
        found = self.store.exports.get(run)
        assert found is not None
        return found

    def cancel(self, run: str) -> ExportRun:
        return patiently(lambda: self.exports.cancel(AMINA, run))

    def running(self) -> list[ExportRun]:
        """Those of one instant."""
        return self.store.exports.list(Query(state="running"))

    def wait(self, run: str, *states: str) -> ExportRun:
        """Wait until a run is in one of these states, or has ended."""
        wanted = states or ("ready", "failed", "cancelled", "expired")
        until(lambda: self.get(run).state in wanted, lambda: f"waited for {wanted}: {self.get(run)}")
        return self.get(run)

    def wait_for_rows(self, run: str, rows: int = 1) -> ExportRun:
        """Wait until a run says that it has written so many rows."""
        until(lambda: (self.get(run).processed or 0) >= rows, lambda: f"no rows: {self.get(run)}")
        return self.get(run)

    def wait_for_sql(self, child: int) -> None:
        """Wait until a child burns time in its statement: started, and silent."""
        begun = cpu_seconds(child)
        until(lambda: cpu_seconds(child) > max(begun, 0.15) + 0.1, lambda: "the child does not work")

    def file_of(self, run: ExportRun) -> bytes:
        assert run.artifact_key is not None
        return (self.artifacts_root / "files" / run.artifact_key).read_bytes()

    # -- looking -----------------------------------------------------------------------------------

    def sweep(self, after_seconds: float = 0):
        """One pass of a sweep, as if so much time had passed."""
        sweep = ExportSweep(self.store, self.artifacts, self.limits, self.events.append)
        return patiently(lambda: sweep.pass_once(self.store.now() + int(after_seconds * 1000)))

    def let_leases_run_out(self) -> None:
        """As if the time of every lease had passed; to be called when nobody is there to renew one."""
        with self.writing() as tx:
            tx.exec_driver_sql("update exports set lease_until = lease_until - 3600000 where state = 'running'")

    @contextlib.contextmanager
    def writing(self) -> Iterator[Any]:
        """The right to write to the store, once it is free."""
        with contextlib.ExitStack() as stack:
            yield patiently(lambda: stack.enter_context(self.store.begin()))

    def on_disk(self) -> list[str]:
        """Everything that lies under work and files."""
        return sorted(
            str(path.relative_to(self.artifacts_root))
            for folder in ("work", "files")
            for path in (self.artifacts_root / folder).rglob("*")
        )

    def assert_whole(self) -> None:
        """Every ready run has its whole file, byte by byte, and there is no byte besides."""
        expected = []
        for run in self.store.exports.list(Query(limit=10_000)):
            if run.state == "ready":
                content = self.file_of(run)
                assert (len(content), hashlib.sha256(content).hexdigest()) == (run.bytes, run.sha256), (
                    f"{run.id} is not whole"
                )
                expected.append(f"files/{run.artifact_key}")
            elif run.state == "running":
                raise AssertionError("a run is still running")
        assert self.on_disk() == sorted(expected)

    def assert_nothing_left(self) -> None:
        """No byte and no child.

        A child that was just dying may keep a sweep from its bytes once; the row then names them until they are gone.
        """
        until(lambda: not self.children(), lambda: f"{self.children()} are alive")
        until(lambda: not self.named(), lambda: f"bytes that do not go: {self.named()}")
        assert self.on_disk() == []

    def named(self) -> list[str | None]:
        """The bytes that rows name."""
        return [run.artifact_key for run in self.store.exports.list(Query(limit=10_000)) if run.artifact_key]


def make_mariadb_source(database: str) -> str:
    """The same table in a database of MariaDB; gives its URL."""
    server = mariadb.server()
    server.execute(None, f"create database {database}")
    server.execute(database, "create table names (id integer primary key, name text)")
    server.execute(database, "insert into names select seq, concat('name ', seq) from seq_1_to_200000")
    return server.url(database)


def make_postgresql_source(database: str) -> str:
    """The same table in a database of PostgreSQL; gives its URL."""
    server = postgresql.server()
    server.execute("postgres", f"create database {database}")
    server.execute(database, "create table names (id integer primary key, name text)")
    server.execute(database, "insert into names select i, 'name ' || i from generate_series(1, 200000) as i")
    return server.url(database)


def make_source(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as source, source:
        source.execute("pragma journal_mode=wal")
        source.execute("create table names (id integer primary key, name text)")
        source.execute(
            "with recursive n(i) as (select 1 union all select i + 1 from n where i < 200000)"
            " insert into names select i, 'name ' || i from n"
        )


def until(happened, told=lambda: "it did not happen") -> None:
    """Wait for something that another process does, however slow the machine is."""
    began = time.monotonic()
    while not happened():
        waited = time.monotonic() - began
        assert waited < PATIENCE_SECONDS, told()
        time.sleep(0.01 if waited < 0.2 else 0.03)  # each look takes from the processor that is waited for


def patiently(act):
    """What a store answers that was asked again while others kept it locked, as every client does."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return act()
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise


def cpu_seconds(pid: int) -> float:
    """What a process has used of a processor; 0 when it is not there."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def stopped(pid: int) -> bool:
    """Whether a process is frozen."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def at_a_random_moment(seed: int, within_seconds: float) -> None:
    """Wait for a moment that differs from seed to seed, and is the same for the same one."""
    time.sleep(random.Random(seed).uniform(0, within_seconds))


class Bench:
    """One lane in this process, without a supervisor: for what only shows from inside."""

    def __init__(self, house: House, **changes):
        self.house = house
        self.events: list = []
        known = {
            "runs": house.store.exports,
            "artifacts": house.artifacts,
            "limits": house.limits,
            "source_of": lambda _name: (house.source_url, 0.5),
            "permit": lambda _run: None,
            "observe": self.events.append,
        }
        parts = {**known, **changes}
        self.heartbeat = Heartbeat(parts["runs"], house.limits, lambda: None, self.events.append)
        self.bench = lanes.Bench(**parts, heartbeat=self.heartbeat)

    def __enter__(self) -> Self:
        self.heartbeat.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self.heartbeat.stop()

    def claim(self) -> lanes.Lane:
        """The next run, held by a lane whose thread is not started yet."""
        limits, began = self.house.limits, time.monotonic()
        terms = Terms("bench", limits.lease_seconds, limits.slots, limits.tenant_running, limits.store_bytes, 10)
        claimed = self.house.store.exports.claim(terms)
        assert claimed is not None
        return lanes.Lane(self.bench, *claimed, began, lambda: None)

    def work(self) -> None:
        """Claim a run and work on it to the end."""
        lane = self.claim()
        lane.thread.start()
        lane.thread.join(PATIENCE_SECONDS)
        assert not lane.thread.is_alive()

    def seen(self, kind: type) -> list:
        """What was observed of one kind."""
        return [event for event in self.events if isinstance(event, kind)]


def descriptors() -> int:
    """How many this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))

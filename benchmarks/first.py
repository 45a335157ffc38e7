"""The figures of the main job on one machine: SQLite to CSV, memory, latencies, the idle worker, the queue.

    ./dev bench first [--only NAME,NAME] [--rows 3000000] [--times 3] [--dir FOLDER]

Every figure is a ratio to a peer, or to its limit, measured in the same run. Nothing else should run beside it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import secrets
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lineitem import COLUMNS, make
from lines import against, alternating, figure, median

from haulage.app import Haulage
from haulage.core.clock import new_id, now_ms
from haulage.core.events import ignore
from haulage.core.limits import GIB, MIB
from haulage.core.ports import Terms
from haulage.exports.build import BuildOrder
from haulage.exports.life import ExportLife, ExportRun
from haulage.formats import FORMATS, resolve_options
from haulage.sources import scheme_of
from haulage.stores.open import open_store
from haulage.worker.process import Child

QUERY = f"select {', '.join(COLUMNS)} from lineitem"


class Setting:
    """Where the figures are measured, and how often."""

    def __init__(self, folder: Path, rows: int, times: int) -> None:
        self.folder = folder
        self.rows = rows
        self.times = times

    def table(self, rows: int) -> Path:
        path = self.folder / f"lineitem-{rows}.db"
        make(path, rows)
        return path


def plan_of(sql: str) -> dict[str, Any]:
    """A plan without parameters, as a request freezes it."""
    names = {"hidden": [], "order": [], "order_fixed": False, "columns": None}
    return {"sql": sql, "binds": {}, "types": {}, "visible": None, **names}


def build_once(
    setting: Setting,
    database: Path | str,
    sql: str,
    rows_max: int,
    format: str = "csv",
    *,
    connections: int = 1,
    more: Mapping[str, Any] | None = None,
    memory_mib: int = 512,
    **options: str,
) -> tuple[float, float, Path]:
    """One whole build in the real child, from a file of SQLite or a URL: seconds, peak RSS in MiB, and the file.

    It is the run of a worker that was idle: the child waits for its order, and a second slot is free, which lets
    PostgreSQL count beside the rows. They are read over ``connections``; ``more`` is what else the plan says.
    """
    folder = Path(tempfile.mkdtemp(dir=setting.folder))
    limits = {"rows": rows_max, "count_seconds": 10, "sort_bytes": GIB, "memory_bytes": memory_mib * MIB}
    limits |= {"groups": 1_000_000, "pivot_columns": 1_000}
    order = BuildOrder(
        source_url=database if isinstance(database, str) else f"sqlite:///{database}",
        busy_seconds=5,
        folder=str(folder),
        plan=plan_of(sql) | {"declared": {}, "limits": limits, "parallel": connections, **(more or {})},
        format=format,
        options=resolve_options(FORMATS[format], options),
        compression=None,
        file_bytes=16 * GIB,
        reserved_bytes=16 * GIB,
        progress_seconds=0.25,
        seconds=3_600,
        connections=max(2, connections),
    )
    child = waiting_child(scheme_of(order.source_url))
    began = time.perf_counter()
    child.give(order.to_json())
    peak, last = 0.0, {}
    while not (child.silent and child.ended()):
        for message in child.messages(0.05):
            last = message
        peak = max(peak, high_water(child.pid))
    child.reap()
    seconds = time.perf_counter() - began
    if "built" not in last:
        raise SystemExit(f"the build failed: {last} {child.last_words}")
    return seconds, peak, folder / "part"


def waiting_child(scheme: str) -> Child:
    """A child that has loaded all that it loads before it is asked."""
    child, spent, before = Child(loads=[scheme]), 0, -1
    while spent != before:
        time.sleep(0.2)
        before, spent = spent, sum(map(int, Path(f"/proc/{child.pid}/stat").read_text().split()[13:15]))
    return child


def high_water(pid: int) -> float:
    """Peak resident memory of a process in MiB (VmHWM of proc(5)); 0 once it is gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def sqlite_csv(setting: Setting) -> None:
    """A whole build, with count, hash, limits and fsync, against the database's own command."""
    database = setting.table(setting.rows)
    if shutil.which("sqlite3") is None:
        raise SystemExit("sqlite_csv needs the sqlite3 command: apt-get install sqlite3")

    def ours() -> float:
        seconds, _, file = build_once(setting, database, QUERY, 2**40)
        shutil.rmtree(file.parent)
        return seconds

    def peer() -> float:
        target = setting.folder / "peer.csv"
        began = time.perf_counter()
        with target.open("wb") as out:
            subprocess.run(["sqlite3", "-csv", "-header", "-readonly", str(database), QUERY], stdout=out, check=True)
        seconds = time.perf_counter() - began
        target.unlink()
        return seconds

    against("sqlite_csv", setting.times, ours, peer, called=f"sqlite3 -csv, {setting.rows:,} rows", target=1.5)


def peak_rss_mib(setting: Setting) -> None:
    """The child's peak memory at one and at ten million rows."""
    database = setting.table(1_000_000)
    ten = f"{QUERY}, (with recursive n(i) as (select 1 union all select i + 1 from n where i < 10) select i from n)"
    for label, sql in (("1 M rows", QUERY), ("10 M rows", ten)):
        _, peak, file = build_once(setting, database, sql, 2**40)
        shutil.rmtree(file.parent)
        figure(
            "peak_rss_mib",
            peak,
            "MiB",
            peer=f"limit at {label}",
            peer_value=100,
            ratio=100 / peak,
            target=1,
            runs=[peak],
        )


@contextmanager
def working(setting: Setting) -> Iterator[tuple[Haulage, int]]:
    """A Haulage with one worker in a process of its own; gives the worker's process id."""
    folder = Path(tempfile.mkdtemp(dir=setting.folder))
    source = folder / "shop.db"
    connection = sqlite3.connect(source)
    connection.execute("pragma journal_mode=wal")
    connection.execute("create table item(id integer primary key, name text)")
    connection.executemany("insert into item(name) values (?)", ((f"item {i}",) for i in range(1_000)))
    connection.commit()
    connection.close()
    config = folder / "haulage.toml"
    config.write_text(
        f'store = "sqlite:///haulage.db"\nartifacts = "file:./artifacts"\nsecret_keys = ["{secrets.token_hex(32)}"]\n'
        '[sources.shop]\nurl = "sqlite:///shop.db"\n'
        '[datasets.items]\nsource = "shop"\nsql = "select id, name from item"\nkey = ["id"]\nformats = ["csv"]\n'
    )
    haul = Haulage.from_toml(config, observe=ignore)
    worker = subprocess.Popen(
        [sys.executable, "-m", "haulage", "worker", "--config", str(config)], stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 20
        while not haul.store.workers.claiming(15):
            if time.monotonic() > until or worker.poll() is not None:
                raise SystemExit("the worker did not start")
            time.sleep(0.05)
        yield haul, worker.pid
    finally:
        worker.terminate()
        worker.wait()
        haul.close()


def latencies(setting: Setting, name: str, limit: float, measured: Callable[[ExportRun], int]) -> None:
    """The median wait of single requests in an idle system, in milliseconds."""
    waits = []
    with working(setting) as (haul, _):
        for _ in range(30):
            run = haul.exports.request(haul.operator, "items")
            while run.state in ("queued", "running"):
                time.sleep(0.02)
                run = haul.exports.get(haul.operator, run.id)
            waits.append(float(measured(run)))
            time.sleep(0.2 + secrets.randbelow(100) / 1000)
    value = median(waits)
    figure(name, value, "ms", peer="limit", peer_value=limit, ratio=limit / max(value, 0.5), target=1, runs=waits)


def request_to_claim_ms(setting: Setting) -> None:
    """From the request's time in the store to the claim's."""
    latencies(setting, "request_to_claim_ms", 20, lambda run: (run.started_at or 0) - run.requested_at)


def request_to_progress_ms(setting: Setting) -> None:
    """From the request to the child's first progress, as it is stored."""
    with working(setting) as (haul, _):
        waits = []
        for _ in range(30):
            run = haul.exports.request(haul.operator, "items")
            while run.updated_at is None and run.state in ("queued", "running"):
                time.sleep(0.002)
                run = haul.exports.get(haul.operator, run.id)
            # A run so short that its progress is settled in one write shows its end instead.
            waits.append(float((run.updated_at or run.finished_at or 0) - run.requested_at))
            while run.state in ("queued", "running"):
                time.sleep(0.02)
                run = haul.exports.get(haul.operator, run.id)
            time.sleep(0.2 + secrets.randbelow(100) / 1000)
    value = median(waits)
    figure(
        "request_to_progress_ms",
        value,
        "ms",
        peer="limit",
        peer_value=150,
        ratio=150 / value,
        target=1,
        runs=waits,
    )


def idle_worker_cpu(setting: Setting) -> None:
    """Processor time of a worker with nothing to do, as per cent of a core, over 20 s."""
    with working(setting) as (_, pid):
        time.sleep(3)

        def used() -> float:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        before, began = used(), time.perf_counter()
        time.sleep(20)
        percent = (used() - before) / (time.perf_counter() - began) * 100
    figure(
        "idle_worker_cpu",
        percent,
        "% of a core",
        peer="limit",
        peer_value=1,
        ratio=1 / max(percent, 0.01),
        target=1,
        runs=[percent],
    )


def claim_settle_sqlite(setting: Setting) -> None:
    """Claims and settles through the verbs, against a bare sqlite3 loop of the same durability."""
    count = 1_000

    def ours() -> float:
        folder = Path(tempfile.mkdtemp(dir=setting.folder))
        fill(folder, count)
        store = open_store(f"sqlite:///{folder}/haulage.db")
        terms = Terms(new_id(), 15, 2, 2, 2**40, 10)
        began = time.perf_counter()
        for _ in range(count):
            claimed = store.exports.claim(terms)
            assert claimed is not None
            store.exports.settle(claimed[0], ExportLife.fail, {"failure_code": "build_failed", "artifact_key": None})
        seconds = time.perf_counter() - began
        store.close()
        return count / seconds

    mine, theirs = alternating(setting.times, ours, lambda: bare_loop(setting, count))
    figure(
        "claim_settle_sqlite",
        median(mine),
        "runs/s",
        peer="bare sqlite3 loop, WAL, synchronous=FULL",
        peer_value=median(theirs),
        ratio=median(mine) / median(theirs),
        target=0.5,
        runs=mine,
    )


def fill(folder: Path, count: int) -> int:
    """A store with so many waiting runs that nobody has open: its log is in its file; gives the time of the first."""
    store, now = open_store(f"sqlite:///{folder}/haulage.db"), now_ms()
    with store.begin() as tx:
        for i in range(count):
            store.exports.add(waiting_run(now + i), tx=tx)
    store.close()
    return now


def waiting_run(now: int) -> ExportRun:
    """A waiting run as a request writes it."""
    return ExportRun(
        id=new_id(now),
        tenant="north",
        state="queued",
        requested_at=now,
        claim_by=now + 150_000,
        active_key=hashlib.sha256(os.urandom(16)).hexdigest(),
        account="somebody",
        dataset="orders",
        dataset_hash="0" * 64,
        source="shop",
        format="csv",
        plan=plan_of("select 1"),
        requester={"tenant": "north", "account": "somebody", "grants": [], "key": None},
        as_of=now,
        generation_ms=120_000,
        file_bytes=128 * MIB,
    )


def bare_loop(setting: Setting, count: int) -> float:
    """The floor: one UPDATE to claim and one to settle, a commit each, on a table of the same width."""
    folder = Path(tempfile.mkdtemp(dir=setting.folder))
    now = fill(folder, count)
    connection = sqlite3.connect(folder / "haulage.db", isolation_level=None)
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma synchronous=full")
    began = time.perf_counter()
    for _ in range(count):
        claimed = connection.execute(
            "update exports set state = 'running', claim_no = claim_no + 1, lease_until = ?, slot = 1 where id = "
            "(select id from exports where state = 'queued' order by requested_at, id limit 1) returning *",
            (now + 15_000,),
        ).fetchall()
        connection.execute(
            "update exports set state = 'failed', lease_until = null, slot = null, active_key = null "
            "where id = ? and claim_no = ? and state = 'running'",
            (claimed[0][0], claimed[0][5]),
        )
    seconds = time.perf_counter() - began
    connection.close()
    return count / seconds


FIGURES = (
    sqlite_csv,
    peak_rss_mib,
    request_to_claim_ms,
    request_to_progress_ms,
    idle_worker_cpu,
    claim_settle_sqlite,
)


def main(figures: Sequence[Callable[[Setting], None]], about: str) -> None:
    """Print those of the figures that were asked for."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--only", default=",".join(each.__name__ for each in figures))
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--dir", type=Path)
    chosen = parser.parse_args()
    names = chosen.only.split(",")
    for name in names:
        if name not in {each.__name__ for each in figures}:
            parser.error(f"no figure {name!r}; there are: {', '.join(each.__name__ for each in figures)}")
    folder = chosen.dir or Path(tempfile.mkdtemp(prefix="haulage-bench-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for each in figures:
            if each.__name__ in names:
                each(Setting(folder, chosen.rows, chosen.times))
    finally:
        if chosen.dir is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main(FIGURES, __doc__)

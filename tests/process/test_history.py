"""A long history: clients and workers are killed, frozen and locked out at random, and then nothing is amiss.

What was accepted is listed and has ended, and nothing else ever ran (a total queue); each run ended once; a cancel
that was answered was never followed by a file; progress never went back nor past its total; rows and bytes agree.
The database itself writes down every change, so that nobody's word is taken for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from tests.conformance.cases import STORES
from tests.conformance.model import broken_invariants
from tests.process.asking import HISTORY, heard
from tests.process.house import until
from tests.process.launcher import Launcher

SECONDS = 15
WORKERS = 4
CLIENTS = 6
LOADED = 8  # times as long a machine with much else to do may need, until enough has happened
CALM_SECONDS = 2
ENDED_WELL = {0, -signal.SIGKILL, -signal.SIGTERM}  # the last: told to end before it had begun to listen
CONFIGURATION = """
secret_keys = ["kJ8s-2hd0qLx7Zp4Wm1Rv6Tt3Yy9Uu5I"]
[sources.shop]
url = "sqlite:///shop.db"
"""


def wrong_with_answers(logs, listed):
    """What is wrong with what clients were told, by account and client; ``listed`` gives each run's last state."""
    found, runs = [], defaultdict(set)
    for account, lines in logs:
        known = {}
        for line in lines:
            if "run" in line:
                known[line["key"]] = line["run"]
                runs[account, line["key"]].add(line["run"])
            elif line.get("key") in known:
                found.append(f"I12: {line['key']} was accepted and then refused")
            if "cancelled" in line and listed.get(line["cancelled"]) != "cancelled":
                found.append(f"I6: a cancel was answered, and {line['cancelled']} is {listed.get(line['cancelled'])}")
    accepted = {run for each in runs.values() for run in each}
    found += [f"I11: {run} was accepted and is lost" for run in accepted - listed.keys()]
    found += [f"I11: {run} is still {state}" for run, state in listed.items() if state in ("queued", "running")]
    found += [f"I12: {run} was never accepted" for run in listed.keys() - accepted]
    found += [f"I12: one key made {len(each)} runs" for each in runs.values() if len(each) > 1]
    return found


def wrong_with_progress(written):
    """What is wrong with progress as it was written: run, claim, processed, total."""
    found, claims = [], defaultdict(list)
    for run, claim_no, processed, total in written:
        claims[run, claim_no].append((processed, total))
    for steps in claims.values():
        done = [processed for processed, _ in steps if processed is not None]
        totals = [total for _, total in steps if total is not None]
        if any(after < before for before, after in pairwise(done)):
            found.append(f"I8: progress went back: {done}")
        if len(set(totals)) > 1:
            found.append(f"I8: the total changed: {totals}")
        if totals and max(done, default=0) > totals[0]:
            found.append(f"I8: {max(done)} of {totals[0]}")
    return found


class Trouble:
    """Everything that goes wrong, by chance, and who has to suffer it."""

    def __init__(self, house, askers, seed):
        self.house = house
        self.askers = askers
        self.chance = random.Random(seed)
        self.made = Counter()
        self.clients = {}
        self.frozen = {}  # process id -> when it thaws
        self.kinds = [
            self.kill_worker, self.kill_child, self.kill_client, self.freeze_worker, self.freeze_child,
            self.freeze_client, self.drain_worker, self.lock_the_store, self.kill_everybody,
        ]  # fmt: skip
        self.next = []

    def workers(self):
        return [worker for worker in self.house.workers if worker.process.poll() is None]

    def log(self, number):
        return self.house.folder / f"client-{number}.jsonl"

    def fill_up(self):
        """Somebody always comes again."""
        for _ in range(WORKERS - len(self.workers())):
            self.house.worker(wait=False)
        for number in range(CLIENTS):
            client = self.clients.get(number)
            if client is None or client.poll() is not None:
                stderr = self.log(number).with_suffix(".stderr")
                assert client is None or client.poll() == -signal.SIGKILL, stderr.read_text()  # else it has broken
                self.clients[number] = self.askers.start({"number": number}, self.log(number), stderr)

    def make(self):
        """One trouble, each kind in its turn, in an order of chance."""
        if not self.next:
            self.next = self.chance.sample(self.kinds, len(self.kinds))
        kind = self.next.pop()
        with contextlib.suppress(
            ProcessLookupError, FileNotFoundError, IndexError
        ):  # it was faster, or nobody is there
            kind()
            self.made[kind.__name__] += 1

    def a_busy_worker(self):
        """One with a build, or else any."""
        busy = {parent_of(child) for child in self.house.children() or [self.a_child()]}
        workers = self.workers()
        return self.chance.choice([worker for worker in workers if worker.pid in busy] or workers)

    def kill_worker(self):
        self.a_busy_worker().kill()

    def drain_worker(self):
        self.chance.choice(self.workers()).signal(signal.SIGTERM)

    def a_child(self):
        """One of the builds, once there is one."""
        wait_until = time.monotonic() + CALM_SECONDS
        while not (children := self.house.children()) and time.monotonic() < wait_until:
            time.sleep(0.01)
        return self.chance.choice(children)

    def kill_child(self):
        os.kill(self.a_child(), signal.SIGKILL)

    def kill_client(self):
        client = self.chance.choice(list(self.clients.values()))
        os.kill(client.pid, signal.SIGKILL)
        client.wait(60)

    def kill_everybody(self):
        """As when the machine goes down, but for its disk."""
        dying = [*(worker.process for worker in self.workers()), *self.clients.values()]
        for process in dying:
            os.kill(process.pid, signal.SIGKILL)
        for process in dying:
            process.wait(60)

    def freeze(self, pid):
        os.kill(pid, signal.SIGSTOP)
        self.frozen[pid] = time.monotonic() + self.chance.uniform(0.1, self.house.limits.lease_seconds * 2)

    def freeze_worker(self):
        self.freeze(self.a_busy_worker().pid)

    def freeze_child(self):
        self.freeze(self.a_child())

    def freeze_client(self):
        self.freeze(self.chance.choice(list(self.clients.values())).pid)

    def thaw(self, *, everybody=False):
        for pid, due in list(self.frozen.items()):
            if everybody or due <= time.monotonic():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
                del self.frozen[pid]

    def lock_the_store(self):
        """Sometimes for so long that leases run out."""
        with (
            contextlib.suppress(sqlite3.OperationalError),  # a frozen process holds it
            contextlib.closing(sqlite3.connect(self.house.store_path, isolation_level=None, timeout=0.5)) as other,
        ):
            other.execute("begin immediate")
            time.sleep(self.chance.choice((0.1, 0.5, self.house.limits.lease_seconds)))
            other.execute("rollback")

    def close(self):
        self.thaw(everybody=True)
        for client in self.clients.values():
            if client.poll() is None:
                os.kill(client.pid, signal.SIGKILL)
                client.wait(60)


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture
def trouble(house, seed):
    askers = Launcher("asking")
    made = Trouble(house, askers, seed)
    yield made
    made.close()
    askers.close()


def write_progress_down(house):
    with contextlib.closing(sqlite3.connect(house.store_path)) as direct:
        direct.executescript("""
            create table progress (id text, claim_no integer, processed integer, total integer);
            create trigger exports_progress after update of processed, total on exports begin
                insert into progress values (new.id, new.claim_no, new.processed, new.total);
            end;
        """)


def rows_of(house, statement):
    with contextlib.closing(sqlite3.connect(house.store_path)) as direct:
        return direct.execute(statement).fetchall()


def happened(house):
    """How many runs came to each end so far."""
    return Counter(code or state for state, code in rows_of(house, "select state, failure_code from exports"))


def ends(house):
    return rows_of(house, "select count(*) from exports where state not in ('queued', 'running')")[0][0]


def let_some_work_be_done(house, trouble):
    """A while between two troubles; counted in work, because a slow machine needs more of it."""
    began, wanted = time.monotonic(), ends(house) + trouble.chance.randint(0, 4)
    while time.monotonic() - began < CALM_SECONDS and ends(house) < wanted:
        time.sleep(0.02)
        trouble.thaw()
        trouble.fill_up()


def is_worth_a_look(house, trouble):
    """Whether enough has happened: without it, a history in which nothing is wrong says nothing."""
    seen = happened(house)
    enough = {"ready": 5, "expired": 2, "cancelled": 2, "worker_lost": 1, "child_killed": 1}
    return all(seen[end] >= least for end, least in enough.items()) and len(trouble.made) == len(trouble.kinds)


@pytest.mark.slow
@pytest.mark.parametrize("house", [HISTORY], indirect=True)
def test_after_a_long_history_of_trouble_nothing_is_amiss(house, trouble, times):
    url = f"sqlite:///{house.store_path}"
    STORES["sqlite"].write_down_transitions(url, "exports")
    write_progress_down(house)

    trouble.fill_up()
    began = time.monotonic()
    while (lasted := (time.monotonic() - began) / times) < SECONDS or (
        lasted < LOADED * SECONDS and not is_worth_a_look(house, trouble)
    ):
        trouble.make()
        let_some_work_be_done(house, trouble)
    trouble.thaw(everybody=True)
    trouble.fill_up()
    (house.folder / "enough").touch()
    until(lambda: all(client.poll() is not None for client in trouble.clients.values()))
    until(lambda: not house.store.exports.tally().keys() & {"queued", "running"},
          lambda: f"runs that do not end: {house.store.exports.tally()}")  # fmt: skip
    for worker in trouble.workers():
        worker.signal(signal.SIGTERM)
    for worker in trouble.workers():
        worker.end()
    house.sweep()

    logs = [(number // 2, heard(trouble.log(number))) for number in range(CLIENTS)]
    listed = dict(rows_of(house, "select id, state from exports"))
    transitions = STORES["sqlite"].transitions(url)
    claims = Counter(run for run, _, target, *_ in transitions if target == "running")
    most = dict(rows_of(house, "select id, attempts_max from exports"))
    broken = [event for worker in house.workers for event in worker.events("Incident")]
    broken += [each.stderr.read_text() for each in house.workers if each.process.poll() not in ENDED_WELL]
    assert [] == wrong_with_answers(logs, listed)
    assert [] == broken_invariants(transitions, HISTORY.slots)
    assert [] == wrong_with_progress(rows_of(house, "select * from progress order by rowid"))
    assert [] == [run for run, times_claimed in claims.items() if times_claimed > most[run]]
    assert {0} == {client.poll() for client in trouble.clients.values()}
    assert [] == broken
    assert [] == house.children()
    house.assert_whole()
    assert {"OK"} == {level for subject, level in doctor(house) if subject in ("runs", "files")}
    assert is_worth_a_look(house, trouble), (happened(house), trouble.made)


def doctor(house):
    """Subject and level of each finding of ``haulage doctor --check``."""
    config = house.folder / "haulage.toml"
    config.write_text(CONFIGURATION)
    command = [sys.executable, "-m", "haulage", "doctor", "--check", "--json", "--config", config]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [(each["subject"], each["level"]) for each in json.loads(done.stdout)["findings"]]


# -- what is said of a history that went wrong -------------------------------------------------------

ASKED = [{"asks": "0"}, {"key": "0", "run": "a"}]
CANCELLED = [*ASKED, {"cancelled": "a", "state": "running"}]


@pytest.mark.parametrize(
    ("wanted", "lines", "listed"),
    [
        ("", ASKED, {"a": "ready"}),
        ("", CANCELLED, {"a": "cancelled"}),
        ("I6: a cancel was answered, and a is ready", CANCELLED, {"a": "ready"}),
        ("I11: a was accepted and is lost", ASKED, {}),
        ("I11: a is still running", ASKED, {"a": "running"}),
        ("I12: b was never accepted", ASKED, {"a": "ready", "b": "failed"}),
        ("I12: one key made 2 runs", [*ASKED, {"key": "0", "run": "b"}], {"a": "ready", "b": "ready"}),
        ("I12: 0 was accepted and then refused", [*ASKED, {"key": "0", "refused": "no_worker"}], {"a": "ready"}),
    ],
)
def test_what_clients_were_told_is_held_against_the_rows(wanted, lines, listed):
    assert ([wanted] if wanted else []) == wrong_with_answers([("amina", lines)], listed)


@pytest.mark.parametrize(
    ("wanted", "written"),
    [
        ("", [("a", 1, None, None), ("a", 1, 5, None), ("a", 1, 5, 9), ("a", 1, 9, 9), ("a", 2, 1, 8), ("b", 1, 2, 2)]),
        ("I8: progress went back: [5, 4]", [("a", 1, 5, None), ("a", 1, 4, None)]),
        ("I8: the total changed: [9, 8]", [("a", 1, 5, 9), ("a", 1, 5, 8)]),
        ("I8: 10 of 9", [("a", 1, 5, 9), ("a", 1, 10, None)]),
    ],
)
def test_progress_is_judged_as_it_was_written(wanted, written):
    assert ([wanted] if wanted else []) == wrong_with_progress(written)

"""The disk of a server's tables is full: requests are told, workers wait and go on, no run is lost or made twice."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from starlette.testclient import TestClient
from tests.process.house import AMINA, LIMITS, House, until
from tests.process.test_disk_full import fill
from tests.servers import mariadb, postgresql
from tests.servers.starting import NOBODY, make_folder

from haulage import Haulage
from haulage.core.errors import StoreUnavailable
from haulage.core.ports import Query
from haulage.exports.plan import Asked
from haulage.stores.open import open_store

pytestmark = [pytest.mark.root, pytest.mark.slow]
MANY = 5_000
FULL = ("No space left on device", "is full")
SECRET = "kJ8s-2hd0qLx7Zp4Wm1Rv6Tt3Yy9Uu5I"
CONFIGURATION = """
store = "{store}"
artifacts = "file:{artifacts}"
secret_keys = ["{secret}"]
[limits.exports]
tenant_queued = {many}
queued = {many}
[sources.shop]
url = "sqlite:///{source}"
[datasets.names]
source = "shop"
sql = "select id, name from names where id <= :rows"
key = ["id"]
[datasets.names.parameters]
rows = {{type = "integer", default = 10}}
"""


class Tablespace:
    """A database of PostgreSQL whose tables lie on a small disk; the log of the server lies elsewhere."""

    chokes = True  # nothing can be written, once there is no room for another version of a row

    def __init__(self, disk: Path):
        self.server = postgresql.server()
        self.server.execute("postgres", f"create tablespace small location '{disk}'")
        self.server.execute("postgres", "create database on_small tablespace small")
        self.url = self.server.url("on_small")

    @contextlib.contextmanager
    def choked(self):
        """No page has room for another version of a row: somebody holds an old snapshot."""
        with closing(self.server.connect("on_small")) as reader, closing(self.server.connect("on_small")) as writer:
            reader.execute("begin isolation level repeatable read")
            reader.execute("select 1 from exports")
            with contextlib.suppress(psycopg.errors.DiskFull):
                while True:
                    writer.execute("update exports set notices = notices")
            yield
            reader.execute("rollback")

    def close(self):
        self.server.execute("postgres", "drop database on_small with (force)")
        self.server.execute("postgres", "drop tablespace small")


class Symlinked:
    """A database of MariaDB whose folder lies on a small disk; logs and undo of the server lie elsewhere."""

    chokes = False  # rows are changed in their place, as far as their pages have room

    def __init__(self, disk: Path):
        self.server = mariadb.server()
        self.link = Path(self.server.execute(None, "select @@datadir")[0][0]) / "on_small"
        self.link.symlink_to(disk)
        self.url = self.server.url("on_small")

    @contextlib.contextmanager
    def choked(self):
        """Nothing more can be done to it."""
        yield

    def close(self):
        for (table,) in self.server.execute("on_small", "show tables"):
            self.server.execute("on_small", f"drop table {table}")
        self.link.unlink()


@pytest.fixture
def disk():
    """A file system of 12 MiB that the servers' user may write to."""
    if os.geteuid() != 0:
        pytest.skip("needs root: mounts a small tmpfs")
    place = make_folder("disk")
    options = f"size=12m,uid={NOBODY},gid={NOBODY},mode=0700"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here, not even as root: {mounted.stderr}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture(params=[Tablespace, Symlinked], ids=["postgresql", "mariadb"])
def database(request, disk):
    made = request.param(disk)
    with closing(open_store(made.url, migrate_new=False)) as store:
        store.migrate()
    yield made
    made.close()


@pytest.fixture
def house(template, launcher, tmp_path, database):
    shutil.copy(template / "shop.db", tmp_path)
    built = House(tmp_path, launcher, replace(LIMITS, tenant_queued=MANY, queued=MANY), store_url=database.url)
    yield built
    built.close()


def ask(house, number):
    return house.exports.accept(AMINA, Asked("names", "csv", {"rows": number}), idempotency_key=f"k{number}").run.id


def ask_until_refused(house):
    """Requests, each another one, until there is no room for one more; gives the runs, and what the last was told."""
    accepted = []
    for number in range(1, MANY):
        try:
            accepted.append(ask(house, number))
        except StoreUnavailable as problem:
            return accepted, number, str(problem)
    raise AssertionError("the disk is never full")


def test_requests_are_told_and_workers_go_on_when_there_is_room_again(house, database, disk):
    worker = house.worker()
    house.pretend_a_worker()
    house.freeze(worker)
    waiting = ask(house, 0)
    ballast = disk / "ballast"
    fill(ballast)
    accepted, number, said = ask_until_refused(house)
    refused = [refusal(house, number + more) for more in range(5)]
    status, problem, retry_after = ask_over_http(house, database)
    with database.choked():
        worker.signal(signal.SIGCONT)
        if database.chokes:
            until(lambda: len(failed(worker, "claim")) > 3)
        else:
            until(lambda: worker.events("RunSettled") or failed(worker))
        ballast.unlink()

    again = [ask(house, each) for each in range(number, number + 5)]
    runs = [waiting, *accepted, *again]
    ended = [house.wait(run) for run in runs]

    assert any(words in said for words in FULL)
    assert [] == [words for words in refused if not any(each in words for each in FULL)]
    assert (503, "store_unavailable") == (status, problem["code"])
    assert int(retry_after) > 0
    assert not any(words in str(problem) for words in FULL)  # What the server said is for the log.
    waits = [event["wait_seconds"] for event in failed(worker, "claim")]
    assert not database.chokes or waits[3] > 3 * waits[0]
    assert {("ready", None), ("failed", "worker_lost")} >= {(run.state, run.failure_code) for run in ended}
    assert "ready" == ended[-1].state
    assert sorted(runs) == sorted(run.id for run in house.store.exports.list(Query(limit=MANY)))
    assert len(set(runs)) == len(runs)
    assert [] == house.store.exports.drift()
    assert worker.process.poll() is None
    assert [] == worker.events("Incident")
    house.assert_whole()


def failed(worker, where=None):
    return [each for each in worker.events("StoreFailed") if where in (None, each["where"])]


def refusal(house, number):
    with pytest.raises(StoreUnavailable) as refused:
        ask(house, number)
    return str(refused.value)


def ask_over_http(house, database):
    config = house.folder / "haulage.toml"
    config.write_text(
        CONFIGURATION.format(
            store=database.url, artifacts=house.artifacts_root, secret=SECRET, source=house.source, many=MANY
        )
    )
    config.chmod(0o600)
    with closing(Haulage.from_toml(config, observe=lambda _event: None)) as haul:
        app = haul.asgi(authenticate=lambda _request: AMINA)
        with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
            answer = client.post("/exports", json={"dataset": "names", "parameters": {"rows": 77_777}})
    return answer.status_code, answer.json(), answer.headers.get("retry-after")

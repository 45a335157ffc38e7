"""A house with doors: a store, artifacts, a small shop to export from, accounts, and a clock that is set by hand.

Runs become ready through the store's own verbs (claim, publish, settle), so no worker has to be started.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import sqlite3
import tempfile
import threading
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import uvicorn
from starlette.testclient import TestClient

from haulage.artifacts.local import LocalArtifacts
from haulage.core.catalogue import Catalogue, Column, Dataset, Parameter
from haulage.core.clock import now_ms
from haulage.core.limits import DoorLimits, ExportLimits
from haulage.core.ports import After, Presence, Terms
from haulage.core.requester import Requester
from haulage.exports.life import ExportLife
from haulage.exports.request import Exports
from haulage.sources import open_source
from haulage.stores.open import open_store
from haulage.web.app import Services, create_app

SECRET = "first-secret-of-the-house-0123456789abcdef"
HERE = "http://localhost"  # signing in over plain http works on the own machine only


class People:
    """Accounts by key; a test changes them while requests go on."""

    def __init__(self):
        self.keys = {
            "key-amina": Requester("north", "amina", frozenset({"orders.read"}), key="amina"),
            "key-ben": Requester("north", "ben", frozenset({"orders.read"}), key="ben"),
            "key-chloe": Requester("south", "chloe", frozenset({"orders.read"}), key="chloe"),
            "key-dora": Requester("north", "dora", frozenset(), key="dora"),
            "key-omar": Requester("house", "omar", frozenset({"*"}), key="omar"),
        }
        self.host_says = {}  # of accounts that the host knows better than its session does

    def find(self, text):
        who = self.keys.get(text)
        return who and replace(who, session=f"key {hashlib.sha256(text.encode()).hexdigest()}")

    def named(self, name, *, session=""):
        who = next((each for each in self.keys.values() if each.key == name), None)
        return who and replace(who, session=session)

    def standing(self, asked):
        return self.host_says.get(asked.account, asked)

    def change(self, account, **changes):
        for text, who in self.keys.items():
            if who.account == account:
                self.keys[text] = replace(who, **changes)


@cache
def migrated():
    """The file of an empty store; migrating one takes longer than most stories."""
    with tempfile.TemporaryDirectory() as folder:
        open_store(f"sqlite:///{folder}/empty.db").close()
        return Path(folder, "empty.db").read_bytes()


class House:
    """Everything behind the doors, and short ways to what a story needs."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.clock = now_ms()
        (folder / "haulage.db").write_bytes(migrated())
        self.store = open_store(f"sqlite:///{folder}/haulage.db")
        self.store._database.now = lambda now: self.clock if now is None else now
        self.artifacts = LocalArtifacts(folder / "artifacts")
        self.artifacts.prepare()
        self.catalogue = _catalogue()
        self.people = People()
        self.secret_keys = (SECRET,)
        self.limits = ExportLimits()
        self.doors = DoorLimits(grant_check_seconds=0)
        self.events = []
        self.apps = []
        self._made = {}
        self.sweeps = threading.Semaphore(0)
        self._shop(folder / "shop.db")
        self.worker_lives()

    def _shop(self, path):
        self.shop = f"sqlite:///{path}"
        with contextlib.closing(sqlite3.connect(path)) as shop, shop:
            shop.execute("pragma journal_mode=wal")
            shop.execute("create table orders (id integer primary key, tenant text, total numeric, placed_at text)")
            rows = [(n, "north" if n % 2 else "south", f"{n}.50", "2026-01-01") for n in range(1, 21)]
            shop.executemany("insert into orders values (?, ?, ?, ?)", rows)

    # -- building the doors ----------------------------------------------------------------------------

    def exports(self):
        return Exports(
            self.store, self.artifacts, self.catalogue, open_source=lambda _name: open_source(self.shop),
            limits=self.limits, doors=self.doors, standing=self.people.standing, observe=self.events.append,
        )  # fmt: skip

    def services(self, **changes):
        known = {
            "exports": self.exports(), "store": self.store, "artifacts": self.artifacts,
            "catalogue": self.catalogue, "accounts": self.people, "secret_keys": self.secret_keys,
            "limits": self.limits, "doors": self.doors, "sweep": self.sweeps.release,
            "observe": self.events.append, "version": "1.2.3",
        }  # fmt: skip
        return Services(**{**known, **changes})

    def app(self, authenticate=None, **changes):
        app = create_app(self.services(**changes), authenticate)
        self.apps.append(app)
        return app

    def same_app(self):
        """The application of before, unless a setting was changed since."""
        settings = (self.secret_keys, self.limits, self.doors)
        if settings not in self._made:
            self._made[settings] = self.app()
        return self._made[settings]

    def client(self, key=None, *, app=None, base=HERE, **headers):
        """A program with a bearer key, or nobody."""
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        return TestClient(app or self.same_app(), base_url=base, headers=headers, follow_redirects=False)

    def browser(self, key, *, app=None, base=HERE):
        """A reader who signed in on the page; every request of theirs shows the CSRF token."""
        client = self.client(app=app, base=base)
        signed = client.post("/api/session", json={"key": key})
        assert signed.status_code == 200, signed.text
        client.headers["X-CSRF-Token"] = signed.json()["csrf"]
        return client

    # -- making things happen --------------------------------------------------------------------------

    def passes(self, seconds):
        self.clock += int(seconds * 1000)

    def worker_lives(self):
        seen = Presence("worker-1", "host-1", 4711, "1.2.3", "claiming", 2, self.clock, self.clock)
        self.store.workers.announce(seen)

    def claim(self):
        """The next run as a worker holds it."""
        limits = self.limits
        terms = Terms("worker-1", limits.lease_seconds, limits.slots, limits.tenant_running, limits.store_bytes, 10)
        claimed = self.store.exports.claim(terms)
        assert claimed is not None
        return claimed

    def finish(
        self, held, run, content=b"id,total\r\n1,1.50\r\n", name="orders.csv", media_type="text/csv; charset=utf-8"
    ):
        """A worker's last steps: the file is published and the run settled."""
        self.keep(run.artifact_key, content)
        columns = ({"key": "id", "header": "id", "type": "integer"}, {"key": "total", "header": "total", "type": None})
        self.store.exports.settle(
            held, ExportLife.finish,
            {
                "rows": 1, "bytes": len(content), "stored_bytes": len(content), "snapshot_at": self.clock,
                "sha256": hashlib.sha256(content).hexdigest(), "columns": columns, "file_name": name,
                "media_type": media_type, "complete": True, "expires_at": After(self.limits.expiry_seconds),
                "notices": ({"code": "order_not_fixed"},),
            },
        )  # fmt: skip

    def keep(self, key, content):
        """The file of a build."""
        folder = self.artifacts.begin(key)
        (folder / "part").write_bytes(content)
        self.artifacts.publish(key, len(content))

    def fail(self, held, code="source_failed"):
        self.store.exports.settle(held, ExportLife.fail, {"failure_code": code, "artifact_key": None})

    def ready(self, client, content=b"id,total\r\n1,1.50\r\n", api="/api", **finish):
        """A ready run of a client, as the client sees it."""
        asked = client.post(f"{api}/exports", json={"dataset": "orders"})
        assert asked.status_code == 202, asked.text
        self.finish(*self.claim(), content, **finish)
        return client.get(f"{api}/exports/{asked.json()['token']}").json()

    def link(self, client, run, api="/api"):
        """Where a client may fetch the file of a run."""
        minted = client.post(f"{api}/exports/{run['token']}/file")
        assert minted.status_code == 201, minted.text
        return minted.json()["url"]

    def row(self, run):
        return self.store.exports.get(run["id"])

    def file_of(self, run):
        """Where the bytes of a run lie."""
        return self.folder / "artifacts" / "files" / self.row(run).artifact_key

    def close(self):
        for app in self.apps:
            app.state.sweep.stop()
        self.store.close()


def _catalogue():
    catalogue = Catalogue()
    catalogue.add(
        Dataset(
            name="orders",
            source="shop",
            label="Orders",
            permission="orders.read",
            key=("id",),
            hidden=("tenant",),
            sql="""select id, tenant, total from orders
                   where placed_at >= :since and (:floor is null or total >= :floor)""",
            visible="tenant = :requester_tenant",
            parameters=(
                Parameter("since", "date", "Placed since", default="2000-01-01"),
                Parameter("floor", "decimal", optional=True),
                Parameter("states", "choice", optional=True, many=True, choices=(("new", "New"), ("paid", "Paid"))),
            ),
            columns={"id": Column("id", "Number", "integer"), "tenant": Column("tenant", "Tenant")},
            formats=("csv", "json", "ndjson"),
        )
    )
    catalogue.add(Dataset(name="open_data", source="shop", sql="select id from orders"))
    return catalogue


@pytest.fixture
def house(tmp_path):
    house = House(tmp_path)
    yield house
    house.close()


class Server:
    """A real server in a thread, for what only a real connection shows."""

    def __init__(self, app):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)

    def __enter__(self):
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)  # the server says it only here
        return self

    def __exit__(self, *_):
        self._server.should_exit = True
        self._thread.join(60)
        self._socket.close()

    def connect(self, method, path, headers=None, *, receive_bytes=None):
        """A connection of our own, with its request sent."""
        connection = socket.socket()
        if receive_bytes:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.connect(("127.0.0.1", self.port))
        lines = [f"{method} {path} HTTP/1.1", f"Host: localhost:{self.port}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        connection.settimeout(60)
        return connection


@pytest.fixture
def serve():
    return Server


def read_all(connection):
    """Everything until the other side closes."""
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)

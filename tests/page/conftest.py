"""A real server (`haulage up`) on a free port, a real browser, and readers who are signed in.

One server serves all tests of a session; each reader has a tenant and a key of its own, so no test sees the
runs of another. A test that kills the server asks for `make_server`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright
from tests.ports import free_port

READERS = 99  # keys in the configuration
START_SECONDS = 120
ORDERS = 2_000  # rows of the sample table
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER_ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip

CONFIGURATION = """
store = "sqlite:///haulage.db"
artifacts = "file:./artifacts"
secret_keys = ["env:HAULAGE_PAGE_SECRET"]

[serve]
port = {port}

[sources.shop]
url = "sqlite:///shop.db"

[limits.exports]
slots = 4

[datasets.orders]
source = "shop"
label = "Orders <b>of the shop</b>"
description = "One row an order"
sql = '''
select id, customer, status, total, placed_at from orders
where placed_at >= :since and (:status is null or status = :status) and (:smallest is null or total >= :smallest)
  and (:number is null or id = :number)
'''
key = ["id"]
formats = ["csv", "json", "ndjson"]
[datasets.orders.parameters]
since = {{type = "date", default = "2000-01-01", label = "Placed since"}}
status = {{type = "choice", choices = {{open = "Open", shipped = "Shipped"}}, optional = true, label = "Status"}}
smallest = {{type = "decimal", optional = true, label = "Smallest total"}}
number = {{type = "integer", optional = true, label = "Number"}}

[datasets.slow]
source = "shop"
label = "Slow"
sql = '''
with recursive n(id) as (select 1 union all select id + 1 from n where id < :rows)
select id, (
  with recursive b(j) as (select 1 union all select j + 1 from b where j < 1500 + n.id % 2) select max(j) from b
) as spun
from n
'''
formats = ["csv"]
[datasets.slow.parameters]
rows = {{type = "integer", default = 12000, label = "Rows"}}

[datasets.broken]
source = "shop"
label = "Broken"
sql = "select id, case when id > 900 then abs(-9223372036854775807 - 1) else id end as number from orders"
key = ["id"]

[datasets.secret]
source = "shop"
label = "Secret"
permission = "secret.read"
sql = "select id from orders"

[datasets.guarded]
source = "shop"
label = "Guarded"
sql = "select id from orders where id < 4"
key = ["id"]
policy_revision = "select revision from policy"

[datasets.takings]
source = "shop"
label = "Takings"
sql = '''
select id, status, total, placed_at, id % 3 - 2 as owed,
       case id % 4 when 0 then null when 1 then '' when 2 then 'north & <b>west</b>' else 'south' end as region
from orders where id <= :upto
'''
key = ["id"]
formats = ["csv", "json"]
[datasets.takings.parameters]
upto = {{type = "integer", default = 2000, label = "Up to"}}
[datasets.takings.dimensions]
region = {{label = "Region"}}
status = {{label = "Status"}}
day = {{label = "Day", column = "placed_at"}}
[datasets.takings.measures]
orders = {{function = "count", label = "Orders"}}
taken = {{function = "sum", column = "total", label = "Taken"}}
owed = {{function = "sum", column = "owed", label = "Owed"}}
latest = {{function = "max", column = "placed_at", label = "Latest"}}
"""


@pytest.fixture(scope="module")
def browser():
    """Closed with each file: while it is open a loop runs in this thread, and the next file may want one of its own."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser found; looked for {', '.join(BROWSERS)}")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=BROWSER_ARGUMENTS)
        yield started
        started.close()


class Server:
    """`haulage up` in a folder of its own; it can be killed and started again on the same port and store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.keys = [f"page-test-{number:02}-{secrets.token_hex(8)}" for number in range(READERS)]
        self._next_key = itertools.count()
        self._process: subprocess.Popen[bytes] | None = None
        self._environment = {**os.environ, "HAULAGE_PAGE_SECRET": secrets.token_urlsafe(48)}
        _make_shop(folder / "shop.db")
        self.configuration = folder / "haulage.toml"
        tables = [_key_table(number, key) for number, key in enumerate(self.keys)]
        self.configuration.write_text(CONFIGURATION.format(port=self.port) + "".join(tables))

    def new_key(self) -> str:
        return self.keys[next(self._next_key)]

    def start(self) -> None:
        command = [*_haulage(), "up", "--config", str(self.configuration)]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self.folder, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"haulage up did not start:\n{(self.folder / 'server.log').read_text()[-4000:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        """The whole process group at once, as a power cut would."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def get(self, path: str, key: str) -> dict:
        """An answer of the API, to compare with what the page shows."""
        request = urllib.request.Request(f"{self.url}/api/{path}", headers={"Authorization": f"Bearer {key}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def _is_ready(self) -> bool:
        """The page is served, and a worker is there to do what is asked for."""
        try:
            with urllib.request.urlopen(f"{self.url}/", timeout=20):
                return len(self.get("workers", self.keys[0])["items"]) > 0
        except (OSError, urllib.error.URLError, ValueError):
            return False


def _haulage() -> list[str]:
    """The command of this environment; beside the interpreter, else on PATH."""
    beside = Path(sys.executable).with_name("haulage")
    return [str(beside)] if beside.exists() else [shutil.which("haulage") or "haulage"]


def _key_table(number: int, key: str) -> str:
    """Each a tenant of its own; the grant of the dataset `secret` is nobody's."""
    return f"""
[keys.reader{number:02}]
hash = "sha256:{hashlib.sha256(key.encode()).hexdigest()}"
tenant = "tenant{number:02}"
account = "reader"
grants = ["operator", "counts.all"]
"""


def _make_shop(path: Path) -> None:
    rows = [
        (n, "=1+1" if n == 7 else f"Customer {n}", "open" if n % 2 else "shipped", n / 4, f"2026-01-{n % 28 + 1:02}")
        for n in range(1, ORDERS + 1)
    ]
    with closing(sqlite3.connect(path)) as shop:
        shop.execute("pragma journal_mode = wal")
        columns = "id integer primary key, customer text, status text, total real, placed_at text"
        shop.execute(f"create table orders ({columns})")
        shop.executemany("insert into orders values (?, ?, ?, ?, ?)", rows)
        shop.execute("create table policy as select 1 as revision")
        shop.commit()


@pytest.fixture(scope="session")
def make_server(tmp_path_factory):
    """Start a server, perhaps with a changed configuration; it is stopped at the end of the session."""
    made: list[Server] = []

    def make(configured=lambda text: text) -> Server:
        server = Server(tmp_path_factory.mktemp("server"))
        server.configuration.write_text(configured(server.configuration.read_text()))
        made.append(server)
        server.new_key()  # The first is the operator's own, for `get`.
        server.start()
        return server

    yield make
    for server in made:
        server.stop()


@pytest.fixture(scope="session")
def server(make_server):
    return make_server()


class Reader:
    """A browser context with one account, and what was complained of in its console."""

    def __init__(self, browser, server: Server, **context) -> None:
        self.server = server
        self.key = server.new_key()
        self.context = browser.new_context(**{"locale": "en-US", "timezone_id": "Asia/Tokyo", **context})
        self.context.set_default_timeout(90_000)
        self.complaints: list[str] = []

    def open(self, path: str = "/", *, clock: bool = False, signed_in: bool = True):
        """A page; with `clock`, one whose time the test can move on."""
        page = self.context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(f"page error: {error}"))
        page.on("console", self._hear)
        if clock:
            page.clock.install()
        page.goto(self.server.url + path)
        if signed_in:
            page.locator(".workspace:visible, .sign-in:visible").first.wait_for()
            if page.locator(".sign-in").is_visible():
                page.locator("#key").fill(self.key)
                page.locator("#key").press("Enter")
            page.locator(".workspace").wait_for()
        return page

    def _hear(self, message) -> None:
        broken = re.search(r"Content Security Policy|Uncaught|TypeError|ReferenceError", message.text)
        if message.type == "error" and broken:
            self.complaints.append(message.text)


@pytest.fixture
def open_reader(browser, server):
    """Make a reader; at the end none of its pages may have complained."""
    made: list[Reader] = []

    def make(at: Server | None = None, **context) -> Reader:
        reader = Reader(browser, at or server, **context)
        made.append(reader)
        return reader

    yield make
    for reader in made:
        reader.context.close()

    assert [complaint for reader in made for complaint in reader.complaints] == []


@pytest.fixture
def reader(open_reader):
    return open_reader()

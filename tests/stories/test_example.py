"""examples/shop, run for real: the application under uvicorn, a worker and the command line beside it."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import shutil
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.stories.terminal import Terminal, until

pytestmark = pytest.mark.process
SHOP = Path(__file__).parents[2] / "examples" / "shop"


class Visitor:
    """Somebody in front of the shop, with the cookie that it gave."""

    def __init__(self, address, name=None):
        self.address = address
        self.headers = {"Cookie": f"shop={name}"} if name else {}
        self.csrf = None

    def ask(self, method, path, body=None):
        """The status and the bytes of an answer."""
        headers = self.headers | ({"X-CSRF-Token": self.csrf} if self.csrf else {})
        data = None if body is None else json.dumps(body).encode()
        headers |= {"Content-Type": "application/json"} if data else {}
        request = urllib.request.Request(self.address + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as problem:
            return problem.code, problem.read()

    def read(self, path, method="GET", body=None):
        """The document of an answer."""
        status, text = self.ask(method, path, body)
        assert status < 300, text
        return json.loads(text)

    def signed_in(self):
        """With the token that unsafe requests show."""
        self.csrf = self.read("/haulage/session")["csrf"]
        return self

    def export(self, **parameters):
        """A run that has ended."""
        wish = {"dataset": "orders", "format": "csv", "parameters": parameters}
        run = self.read("/haulage/exports", "POST", wish)
        place = f"/haulage/exports/{run['token']}"
        until(lambda: self.read(place)["finished_at"])
        return self.read(place)

    def fetch(self, run):
        """The bytes of its file."""
        link = self.read(f"/haulage/exports/{run['token']}/file", "POST")["url"]
        status, content = self.ask("GET", link)
        assert 200 == status
        return content


@pytest.fixture
def shop(tmp_path):
    """A copy of the example, so that what it makes is left nowhere."""
    folder = tmp_path / "shop of mine"
    folder.mkdir()
    for name in ("app.py", "haulage.toml"):
        shutil.copy(SHOP / name, folder)
    return Terminal(folder)


@contextmanager
def served(shop):
    """The address of the running application."""
    command = [sys.executable, "-m", "uvicorn", "app:app", "--port", "0"]
    with subprocess.Popen(command, cwd=shop.folder, env=shop.environ, stderr=subprocess.PIPE, text=True) as process:
        try:
            said = iter(process.stderr.readline, "")
            found = next(match for line in said if (match := re.search(r"running on (http://\S+)", line)))
            yield found[1]
        finally:
            process.terminate()
            process.stderr.read()


@contextmanager
def worked(shop):
    """A worker that has announced itself."""
    with shop.started("worker", "--json") as worker:
        assert worker.stdout.readline(), worker.stderr.read()
        yield


def orders(shop, tenant, status):
    """What must be in a file, read from the database by other means."""
    query = "select id, customer, total, status, placed_at from orders where tenant = ? and status = ? order by id"
    with sqlite3.connect(shop.folder / "shop.db") as connection:
        return [[str(value) for value in row] for row in connection.execute(query, (tenant, status))]


def test_the_shop_exports_to_each_user_what_is_theirs(shop):
    with served(shop) as address, worked(shop):
        ayla, ben, chen = (Visitor(address, name).signed_in() for name in ("ayla", "ben", "chen"))
        stranger = Visitor(address)
        run = ayla.export(status="open")
        content = ayla.fetch(run)
        theirs = ben.export(status="open")
        peeked = ben.ask("GET", f"/haulage/exports/{run['token']}")
        listed = ben.read("/haulage/exports")["items"]
        refused = chen.ask("POST", "/haulage/exports", {"dataset": "orders", "format": "csv"})
        unknown = stranger.ask("GET", "/haulage/exports")
        home, page = ayla.ask("GET", "/")[1].decode(), ayla.ask("GET", "/haulage/")[0]
        module = ayla.ask("GET", re.search(r'src="([^"]+)"', home)[1])
        by_hand = shop.run("export", "orders", "-p", "status=open", "-o", "open.csv")

    assert [["id", "customer", "total", "status", "placed_at"], *orders(shop, "north", "open")] == list(
        csv.reader(io.StringIO(content.decode()))
    )
    assert run["file"]["sha256"] == hashlib.sha256(content).hexdigest()
    assert len(orders(shop, "south", "open")) == theirs["file"]["rows"]
    assert [theirs["id"]] == [each["id"] for each in listed]
    assert (404, 403, 401) == (peeked[0], refused[0], unknown[0])
    assert '<haulage-export dataset="orders">' in home
    assert (200, 200) == (page, module[0])
    assert (0, content) == (by_hand.code, (shop.folder / "open.csv").read_bytes())
    assert "no worker is alive" not in by_hand.err


def test_a_user_who_lost_the_grant_meanwhile_gets_no_file(shop):
    with served(shop) as address:
        ben = Visitor(address, "ben").signed_in()
        text = (shop.folder / "app.py").read_text()
        (shop.folder / "app.py").write_text(
            text.replace('"ben": ("south", {"orders.read"})', '"ben": ("south", set())')
        )
        with worked(shop):  # it asks the application, as it is now, how the account stands
            run = ben.export()

    assert ("failed", "permission_lost") == (run["state"], run["failure"]["code"])
    assert [] == list((shop.folder / "artifacts").glob("*/*"))


def test_a_worker_that_comes_before_the_application_says_what_is_missing(shop):
    answer = shop.run("worker")

    assert 2 == answer.code
    assert f"secret_keys names the file {shop.folder / 'secret'}, which cannot be read" in answer.err

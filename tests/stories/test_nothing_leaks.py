"""A day of a real house, and then a search: no token, value, bound parameter, SQL or path where it does not belong."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import urllib.error
import urllib.request
from http.cookiejar import CookieJar

import pytest
from tests.stories.terminal import SECRET, Terminal, until

pytestmark = pytest.mark.process

CONFIGURATION = f"""
store = "sqlite:///haulage.db"
artifacts = "file:./artifacts"
secret_keys = ["{SECRET}"]

[sources.shop]
url = "sqlite:///shop.db"

[sources.elsewhere]
url = "sqlite:///moved-away.db"

[datasets.orders]
source = "shop"
sql = "select id, note from orders where note <> :needle /* sqlcanary */"
parameters = {{needle = {{type = "text"}}}}
key = ["id"]

[datasets.by_path]
source = "shop"
sql = "select id, json_extract('{{}}', :needle) as found from orders /* sqlcanary */"
parameters = {{needle = {{type = "text"}}}}

[datasets.by_note]
source = "shop"
sql = "select id, json_extract('{{}}', note) as found from orders /* sqlcanary */"

[datasets.gone]
source = "elsewhere"
sql = "select 1 as one /* sqlcanary */"

[datasets.endless]
source = "shop"
sql = "select o.id from orders o, orders p, orders q, orders r /* sqlcanary */"
limits = {{rows = 100_000_000, file_bytes = "400 MiB"}}
"""


class Reader:
    """A browser without a window, which keeps everything that it was ever answered."""

    def __init__(self, address):
        self.address = address
        self.cookies = CookieJar()
        self._open = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies)).open
        self.headers = {"Content-Type": "application/json"}
        self.heard = []

    def ask(self, method, path, body=None, **headers):
        """The body of an answer, as JSON where it is that."""
        content = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self.address + path, content, self.headers | headers, method=method)
        try:
            answer = self._open(asked, timeout=60)
        except urllib.error.HTTPError as refused:
            answer = refused
        with answer:
            content = answer.read()
        if not path.startswith("/api/files/"):
            self.heard.append((method, path, f"{answer.headers}\n{content.decode()}"))
        return json.loads(content) if "json" in answer.headers["content-type"] else content

    def export(self, dataset, **parameters):
        return self.ask("POST", "/api/exports", {"dataset": dataset, "format": "csv", "parameters": parameters})

    def ended(self, run):
        """The run when it has ended."""
        place = f"/api/exports/{run['token']}"
        until(lambda: self.ask("GET", place)["state"] in ("ready", "failed", "cancelled"))
        return self.ask("GET", place)


def a_day(terminal, reader, key):
    """Everything that can be done, and everything that is refused; gives what nobody else may ever read."""
    csrf = reader.ask("POST", "/api/session", {"key": key})["csrf"]
    reader.headers["X-CSRF-Token"] = csrf
    run = reader.ended(reader.export("orders", needle="boundcanary"))
    link = reader.ask("POST", f"/api/exports/{run['token']}/file")["url"]
    assert b"cellcanary" in reader.ask("GET", link)
    failed = [reader.ended(reader.export(*asked)) for asked in (["by_note"], ["gone"])]
    failed.append(reader.ended(reader.export("by_path", needle="boundcanary")))
    assert ["source_failed", "source_unavailable", "source_failed"] == [each["failure"]["code"] for each in failed]
    endless = reader.export("endless")
    until(lambda: reader.ask("GET", f"/api/exports/{endless['token']}")["progress"]["processed"])
    reader.ask("DELETE", f"/api/exports/{endless['token']}")
    assert "cancelled" == reader.ended(endless)["state"]
    for place in (
        *("datasets", "datasets/by_path/counts?needle=boundcanary", "datasets/gone/counts", "exports", "session"),
        *("storage", "workers", "metrics", "health/ready", "nothing", "exports/tokencanary", "files/tokencanary"),
    ):
        reader.ask("GET", f"/api/{place}")
    reader.ask("GET", "/api/exports", Authorization="Bearer hk_guesscanary")
    reader.ask("POST", "/api/exports", {"dataset": "orders"}, **{"X-CSRF-Token": "csrfcanary"})
    reader.ask("POST", "/api/session", {"key": "hk_guesscanary"})
    reader.ask("POST", "/api/exports", {"dataset": "orders", "parameters": {"needle": ["boundcanary"]}})
    (held,) = (terminal.folder / "artifacts" / "files").iterdir()
    held.write_bytes(b"something else")
    assert "artifact_lost" == reader.ask("GET", link, None)["code"]
    (cookie,) = (each.value for each in reader.cookies)
    return {
        "the key": key, "the cookie": cookie, "the CSRF token": csrf, "a token": run["token"],
        "a link": link.rpartition("/")[2], "the secret": SECRET, "a guess": "guesscanary",
        "a token that is none": "tokencanary", "a CSRF token that is none": "csrfcanary",
    }  # fmt: skip


def test_a_day_leaves_no_secret_in_the_log_in_an_answer_or_in_the_store(tmp_path):
    terminal = Terminal(tmp_path).shop(configuration=CONFIGURATION)
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as shop, shop:
        shop.execute("alter table orders add column note text")
        shop.execute("update orders set note = 'cellcanary ' || id")
    key = terminal.run("keys", "new", "amina", "--grant", "*", "--write").out.strip()
    with terminal.started("up", "--port", "0", "--json") as process:
        reader = Reader(json.loads(process.stdout.readline())["address"])
        until(lambda: reader.ask("GET", "/api/workers", Authorization=f"Bearer {key}")["items"])
        secrets = a_day(terminal, reader, key)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=120)
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("haulage.db*"))

    told = [json.loads(line[line.index("{") :])["event"] for line in log.splitlines() if "{" in line]
    expected = ("RunRequested", "RunSettled", "CancelRequested", "FileServed", "RequestRefused", "ArtifactLost")
    assert set(expected) <= set(told), "nothing was looked at"
    assert b"boundcanary" in stored, "nothing was looked at"
    for name, secret in secrets.items():
        assert secret not in log, name
        assert secret.encode() not in stored, name
    for name in ("boundcanary", "cellcanary", "sqlcanary"):
        assert name not in log
    assert not [line for line in log.splitlines() if " INFO " in line and str(tmp_path) in line]
    for method, path, answer in reader.heard:
        for name in ("cellcanary", "sqlcanary", SECRET, str(tmp_path), "moved-away", "shop.db", key, "guesscanary"):
            assert name not in answer, (method, path, answer)

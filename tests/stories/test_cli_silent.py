"""`haulage serve` as it is started: whom it believes, and whom it gives up."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.stories.terminal import Terminal, until
from tests.stories.vanish import vanish

from haulage import Haulage
from haulage.core.ports import Presence, Terms
from haulage.core.requester import Requester

pytestmark = pytest.mark.process


@pytest.fixture
def terminal(tmp_path):
    return Terminal(tmp_path).shop()


class Server:
    """A served folder."""

    def __init__(self, process):
        self.process = process
        line = process.stdout.readline()
        assert line, process.stderr.read()
        self.host, self.port = urlsplit(json.loads(line)["address"]).netloc.split(":")

    def ask(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection(self.host, int(self.port), timeout=60)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json", **sent})
        answer = connection.getresponse()
        said = json.loads(answer.read() or b"null")
        connection.close()
        return answer, said

    def guess(self, forwarded):
        """A guess at the sign-in, from wherever it says it comes."""
        return self.ask("POST", "/api/session", {"key": "guess"}, X_Forwarded_For=forwarded)[0].status

    def holds(self, connection):
        """Say whether the connection is still open on its side."""
        ends = [f":{int(self.port):04X}", f":{connection.getsockname()[1]:04X}"]
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
        return any([words[1][-5:], words[2][-5:]] == ends and words[9] != "0" for words in lines)  # its inode


@contextlib.contextmanager
def serving(terminal, more=""):
    key = terminal.run("keys", "new", "amina", "--grant", "*", "--write").out.strip()
    terminal.config.write_text(terminal.config.read_text() + more)
    with terminal.started("serve", "--port", "0", "--json", FORWARDED_ALLOW_IPS="*") as process:
        yield Server(process), {"Authorization": f"Bearer {key}"}
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)


def test_who_says_to_come_from_elsewhere_is_not_believed(terminal):
    with serving(terminal) as (server, _):
        answers = [server.guess(f"192.0.2.{number}") for number in range(11)]
        plain, problem = server.ask(
            "POST", "/api/session", {"key": "k"}, Host="exports.example", X_Forwarded_Proto="https"
        )

    assert [401] * 10 + [429] == answers
    assert (403, True) == (plain.status, "serve.trusted_proxies" in problem["detail"])


def test_a_proxy_that_is_named_is_believed(terminal):
    with serving(terminal, '\n[serve]\ntrusted_proxies = ["127.0.0.0/8"]\n') as (server, key):
        text = key["Authorization"].removeprefix("Bearer ")
        answers = [server.guess("192.0.2.1") for _ in range(11)]
        other = server.guess("192.0.2.2")
        forged = server.guess("192.0.2.3, 192.0.2.1")
        signed, _ = server.ask(
            "POST", "/api/session", {"key": text}, Host="exports.example", X_Forwarded_Proto="https",
            X_Forwarded_For="192.0.2.4",
        )  # fmt: skip

    assert [401] * 10 + [429] == answers
    assert (401, 429) == (other, forged), "what stands before the proxy's own word is the client's"
    assert 200 == signed.status
    assert signed.headers["set-cookie"].startswith("__Host-haulage=")


def test_a_client_that_vanished_is_given_up(terminal):
    with contextlib.closing(Haulage.from_toml(terminal.config, environ={})) as haul:
        now = haul.store.now()
        haul.store.workers.announce(Presence("w", "h", 1, "0", "claiming", 1, now, now))
        with serving(terminal, '\n[limits.doors]\ndownload_stall_seconds = "500 ms"\n') as (server, key):
            asked, run = server.ask("POST", "/api/exports", {"dataset": "orders"}, **key)
            assert 202 == asked.status, run
            place = f"/api/exports/{run['token']}"
            gone = socket.create_connection((server.host, server.port))
            lines = [
                f"GET {place}/events HTTP/1.1",
                "Host: localhost",
                f"Authorization: {key['Authorization']}",
                "",
                "",
            ]
            gone.sendall("\r\n".join(lines).encode())
            assert gone.recv(12) == b"HTTP/1.1 200"
            while b"revision" not in gone.recv(65536):
                pass
            before = server.holds(gone)
            vanish(gone)
            haul.store.exports.claim(Terms("w", 600, 2, 2, 2**30, 600))  # it is told of that, and never takes it
            until(lambda: not server.holds(gone))
            gone.close()

    assert before


HANGS = """
import time
from haulage import Haulage

haul = Haulage.from_toml("haulage.toml")


@haul.standing
def as_of_now(asked):
    if asked.account.startswith("hang"):
        time.sleep(3_600)
    return asked
"""


def test_a_standing_that_hangs_fails_its_run_and_leaves_the_lane_to_others(terminal):
    (terminal.folder / "hanging_house.py").write_text(HANGS)
    text = terminal.config.read_text()
    terminal.config.write_text(f'app = "hanging_house:haul"\n{text}\n[limits.doors]\nhost_seconds = 5\n')
    with contextlib.closing(Haulage.from_toml(terminal.config, environ={})) as haul:
        now = haul.store.now()
        haul.store.workers.announce(Presence("w", "h", 1, "0", "claiming", 1, now, now))
        ids = [
            haul.exports.request(Requester("default", account), "orders").id
            for account in ("hangs", "amina", "hanging", "ben")
        ]
        with terminal.started("worker", "--lanes", "exports=1") as worker:
            until(lambda: all(haul.store.exports.get(each).finished_at for each in ids))
            worker.send_signal(signal.SIGTERM)
            worker.communicate(timeout=120)
        ended = [haul.store.exports.get(each) for each in ids]

    assert ["host_silent", None, "host_silent", None] == [run.failure_code for run in ended]
    assert ["failed", "ready", "failed", "ready"] == [run.state for run in ended]
    assert 0 == worker.returncode

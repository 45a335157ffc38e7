"""A store that was opened before a fork: parent and child write, each by connections of its own, and nothing is lost.

SQLite forbids to carry a connection over a fork: the child would hold none of the locks that it believes in. So do
servers that load an application once and then fork their workers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sqlite3
import threading
import traceback

import httpx2
import pytest
import uvicorn
from tests.process.house import until

from haulage.app import Haulage
from haulage.core.errors import StoreUnavailable
from haulage.core.ports import Presence
from haulage.core.requester import Requester
from haulage.stores import database

TOML = """\
store = "sqlite:///haulage.db"
artifacts = "file:./artifacts"
secret_keys = ["a-secret-of-this-test-0123456789abcdef"]
[sources.shop]
url = "sqlite:///shop.db"
[datasets.names]
source = "shop"
sql = "select id, name from names where id <= :rows"
key = ["id"]
formats = ["csv"]
permission = "names.read"
[datasets.names.parameters]
rows = {type = "integer", default = 1}
"""


def announce(house, name: str) -> None:
    now = house.store.now()
    house.store.workers.announce(Presence(name, "here", os.getpid(), "0", "claiming", 1, now, now))


def patiently(act) -> None:
    """As a client does: ask again when the others keep the store locked for too long."""
    for _ in range(20):
        with contextlib.suppress(StoreUnavailable):
            act()
            return
    raise AssertionError("the store is never free")


def forked(act) -> int:
    """A process in which this is done, and nothing after it: it ends as if it were killed."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        act()
        code = 0
    except BaseException:  # noqa: BLE001 - told, and never back into the test
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def rows(house, sql: str) -> list:
    with contextlib.closing(sqlite3.connect(house.store_path)) as store:
        assert [("ok",)] == store.execute("pragma integrity_check").fetchall()
        return store.execute(sql).fetchall()


def test_a_parent_and_its_children_write_at_once_and_nothing_is_lost(house):
    house.pretend_a_worker()
    house.request("names", rows=1)

    def write(who):
        for n in range(20):
            patiently(lambda n=n: announce(house, f"{who}-{n}"))
            patiently(lambda n=n: house.request("names", rows=n + 1))

    children = [forked(lambda who=who: write(who)) for who in ("first", "second")]
    write("parent")

    assert [0, 0] == [ended(child) for child in children]
    names = {name for (name,) in rows(house, "select id from workers")}
    assert {f"{who}-{n}" for who in ("first", "second", "parent") for n in range(20)} <= names
    assert 20 == len(rows(house, "select id from exports"))  # equal active requests are one run


def test_what_a_child_writes_after_its_parent_left_is_kept(house):
    """The parent takes the log away when it believes to be the last; what is written to it then would be lost."""
    announce(house, "parent")
    hears, says = os.pipe()

    def write_when_told():
        os.read(hears, 1)
        announce(house, "child")
        house.store.exports.request_cancel("no such run")

    child = forked(write_when_told)
    house.store.close()
    os.write(says, b".")

    assert 0 == ended(child)
    assert [("child",), ("parent",)] == rows(house, "select id from workers order by id")


def test_what_a_parent_writes_after_its_child_left_is_kept(house):
    announce(house, "parent")

    def write_and_leave():
        announce(house, "child")
        house.store.close()

    assert 0 == ended(forked(write_and_leave))
    announce(house, "parent again")

    assert ["child", "parent", "parent again"] == sorted(name for (name,) in rows(house, "select id from workers"))


@pytest.mark.parametrize("how", ["writes", "reads"])
def test_a_child_of_a_process_that_was_using_the_store_is_told_so(house, monkeypatch, how):
    """Nobody can make its connections whole: it must not write what would be lost."""
    monkeypatch.setattr(database, "TURN_SECONDS", 0.2)
    used, done = threading.Event(), threading.Event()

    def use():
        with house.store.begin() if how == "writes" else house.store._database.read():
            used.set()
            done.wait(60)

    thread = threading.Thread(target=use)
    thread.start()
    used.wait(20)

    def write():
        with pytest.raises(StoreUnavailable, match="open the store after the fork"):
            announce(house, "child")

    child = forked(write)
    done.set()
    thread.join()

    assert 0 == ended(child)
    announce(house, "parent")
    assert [("parent",)] == rows(house, "select id from workers")


def test_a_server_that_forks_after_the_application_was_loaded_loses_no_run(house, monkeypatch):
    (house.folder / "haulage.toml").write_text(TOML)
    monkeypatch.chdir(house.folder)
    house.pretend_a_worker()
    haul = Haulage.from_toml("haulage.toml")
    asks = Requester("north", "amina", frozenset({"names.read"}), session="s")
    application = haul.asgi(authenticate=lambda _request: asks)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"

        def serve():
            config = uvicorn.Config(application, log_level="error", lifespan="off", headers=[("pid", str(os.getpid()))])
            uvicorn.Server(config).run(sockets=[listening])

        children = [forked(serve), forked(serve)]
        haul.close()  # The parent only watches over them.
        accepted, served = set(), set()
        with contextlib.ExitStack() as killed:
            for child in children:
                killed.callback(ended, child)
                killed.callback(os.kill, child, signal.SIGKILL)

            def ask():
                answer = httpx2.post(
                    f"{address}/exports",
                    json={"dataset": "names", "format": "csv", "parameters": {"rows": len(accepted) + 1}},
                    headers={"Sec-Fetch-Site": "same-origin"},
                    verify=False,  # it is no TLS, and certificates would be read all the same
                )
                assert 202 == answer.status_code, answer.text
                accepted.add(answer.json()["id"])
                served.add(answer.headers["pid"])
                return len(served) == 2 and len(accepted) > 10

            until(ask)

    assert {str(child) for child in children} == served
    assert accepted == {run for (run,) in rows(house, "select id from exports")}

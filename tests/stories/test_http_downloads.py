"""Downloads on real connections: never complete-looking when they are not, and cut when the right to them ends."""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.stories.conftest import read_all

from haulage.exports.life import ExportLife
from haulage.web.download import PIECE_BYTES

pytestmark = pytest.mark.slow

# More than the buffers of two sockets hold, so that the server is still at it when something happens.
LARGE = hashlib.sha256(b"").digest() * (64 * 1024 * 1024 // 32)
SMALL_WINDOW = 64 * 1024


@pytest.fixture
def large(house, serve):
    """A large ready file, and a server that serves it: (server, run, path, headers)."""
    key = {"Authorization": "Bearer key-amina"}
    app = house.app()
    client = house.client("key-amina", app=app)
    run = house.ready(client, LARGE)
    with serve(app) as server:
        yield server, run, house.link(client, run), key


def begin(server, path, headers):
    """A download of which the headers and one piece have come; the rest waits for us."""
    connection = server.connect("GET", path, headers, receive_bytes=SMALL_WINDOW)
    head = b""
    while b"\r\n\r\n" not in head:
        part = connection.recv(65536)
        assert part, "it was cut before its headers"
        head += part
    head, _, body = head.partition(b"\r\n\r\n")
    return connection, head, body


def served(house, times=1):
    """What was said of the last of so many downloads, once it was said."""
    limit = time.monotonic() + 60
    while len(found := [event for event in house.events if type(event).__name__ == "FileServed"]) < times:
        assert time.monotonic() < limit, f"downloads that ended: {found}"
        time.sleep(0.01)  # the server's own thread says it
    return found[-1]


def test_a_large_file_arrives_whole(house, large):
    server, run, path, key = large

    connection, head, body = begin(server, path, {**key, "Connection": "close"})
    body += read_all(connection)

    assert head.startswith(b"HTTP/1.1 200 ")
    assert hashlib.sha256(LARGE).digest() == hashlib.sha256(body).digest()
    told = served(house)
    assert (run["id"], "amina", len(LARGE), True) == (told.run, told.account, told.sent_bytes, told.whole)


def test_a_range_of_a_large_file_is_only_that(house, large):
    server, _run, path, key = large

    connection, head, body = begin(server, path, {**key, "Range": "bytes=1000-999999", "Connection": "close"})
    body += read_all(connection)

    assert head.startswith(b"HTTP/1.1 206 ")
    assert LARGE[1000:1000000] == body
    assert (999_000, True) == (served(house).sent_bytes, served(house).whole)


def cut(connection, body):
    """Everything that still comes; the connection must end short of the whole file."""
    with contextlib.suppress(ConnectionResetError):
        body += read_all(connection)
    assert len(body) < len(LARGE)
    return body


def test_a_file_that_loses_bytes_is_never_complete(house, large):
    server, run, path, key = large
    connection, head, body = begin(server, path, key)
    with house.file_of(run).open("r+b") as file:
        file.truncate(len(LARGE) - 1)

    body = cut(connection, body)

    assert f"content-length: {len(LARGE)}".encode() in head.lower()
    assert LARGE.startswith(body)
    assert not served(house).whole
    assert ("failed", "artifact_lost") == (house.row(run).state, house.row(run).failure_code)


def test_a_file_that_changes_is_cut_before_its_last_piece(house, large):
    server, run, path, key = large
    with house.file_of(run).open("r+b") as file:
        file.write(b"?")

    connection, _head, body = begin(server, path, key)
    body = cut(connection, body)

    assert body.startswith(b"?")
    assert len(LARGE) - len(body) <= PIECE_BYTES
    assert "artifact_lost" == house.row(run).failure_code


def test_a_range_that_loses_its_bytes_is_cut(house, large):
    server, run, path, key = large
    connection, _head, body = begin(server, path, {**key, "Range": "bytes=10-"})
    with house.file_of(run).open("r+b") as file:
        file.truncate(len(LARGE) // 2)

    cut(connection, body)

    assert "artifact_lost" == house.row(run).failure_code


def test_an_expiry_lets_an_open_download_finish(house, large):
    server, run, path, key = large
    connection, _head, body = begin(server, path, {**key, "Connection": "close"})
    house.store.exports.move(run["id"], ExportLife.expire, {})
    house.artifacts.remove(house.row(run).artifact_key)

    body += read_all(connection)

    assert hashlib.sha256(LARGE).digest() == hashlib.sha256(body).digest()
    assert "expired" == house.row(run).state


def test_signing_out_cuts_a_running_download(house, serve):
    app = house.app()
    reader = house.browser("key-amina", app=app)
    run = house.ready(reader, LARGE)
    path, cookie = house.link(reader, run), {"Cookie": f"haulage={reader.cookies['haulage']}"}
    with serve(app) as server:
        whole, _, kept = begin(server, path, {**cookie, "Connection": "close"})
        kept += read_all(whole)
        connection, _head, body = begin(server, path, cookie)
        reader.delete("/api/session")
        cut(connection, body)

    assert len(LARGE) == len(kept)
    assert not served(house, times=2).whole
    assert "ready" == house.row(run).state


@pytest.mark.parametrize("lost", ["the grant", "the key", "the good standing", "the account's place"])
def test_a_lost_right_cuts_a_running_download(house, large, lost):
    server, run, path, key = large
    connection, _head, body = begin(server, path, key)
    if lost == "the grant":
        house.people.change("amina", grants=frozenset())
    elif lost == "the key":
        del house.people.keys["key-amina"]
    elif lost == "the good standing":
        house.people.change("amina", banned=True)
    else:
        house.people.host_says["amina"] = replace(house.people.keys["key-amina"], grants=frozenset())

    cut(connection, body)

    assert not served(house).whole
    assert "ready" == house.row(run).state


@pytest.mark.parametrize(("setting", "seconds"), [("download_stall_seconds", 1), ("download_seconds", 1)])
def test_a_client_that_takes_nothing_is_cut(house, serve, setting, seconds):
    house.doors = replace(house.doors, **{setting: seconds})
    app = house.app()
    client = house.client("key-amina", app=app)
    run = house.ready(client, LARGE)
    with serve(app) as server:
        connection, _head, body = begin(server, house.link(client, run), {"Authorization": "Bearer key-amina"})
        told = served(house)  # while we read nothing
        cut(connection, body)

    assert not told.whole
    assert told.sent_bytes < len(LARGE)
    assert "ready" == house.row(run).state


def test_a_client_that_goes_away_ends_its_download(house, large):
    server, run, path, key = large
    connection, _head, _body = begin(server, path, key)
    connection.close()

    told = served(house)

    assert not told.whole
    assert told.sent_bytes < len(LARGE)
    assert "ready" == house.row(run).state


def test_a_store_that_is_silent_for_a_moment_does_not_cut(house, large, monkeypatch):
    from haulage.core.errors import StoreUnavailable

    server, _run, path, key = large
    asked = threading.Event()

    def silent(_text):
        asked.set()
        raise StoreUnavailable("busy")

    connection, _head, body = begin(server, path, {**key, "Connection": "close"})
    monkeypatch.setattr(house.people, "find", silent)
    body += read_all(connection)

    assert asked.is_set()
    assert len(LARGE) == len(body)


def test_many_downloads_at_once_hold_little_memory(house, large):
    server, _run, path, key = large

    def pages():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    before = pages()
    connections = [begin(server, path, key)[0] for _ in range(12)]
    grown = pages() - before
    for connection in connections:
        connection.close()

    assert grown < 12 * 4 * PIECE_BYTES + 16 * 1024 * 1024, "a file is never held in memory"


def test_headers_come_before_a_large_file_is_read(house, large):
    server, run, path, key = large
    with house.file_of(run).open("r+b") as file:
        file.truncate(len(LARGE) + 1)

    connection = server.connect("GET", path, {**key, "Connection": "close"})
    answer = read_all(connection)

    assert re.match(rb"HTTP/1.1 410 ", answer), "a size that is not the row's is seen before the headers"

"""A connection of a client that takes nothing ends at its time, on our side too, whether it is still there or not."""

from __future__ import annotations

import contextlib
import socket
import time
from dataclasses import replace

import pytest
from tests.stories.conftest import read_all
from tests.stories.vanish import vanish

from haulage.cli.serving import give_up_silent
from haulage.web.download import PIECE_BYTES

pytestmark = pytest.mark.slow

LARGE = bytes(64 * 1024 * 1024)  # more than all buffers on the way hold
KEY = {"Authorization": "Bearer key-amina"}
SOON = 0.3  # seconds that a client is given


def until(true):
    limit = time.monotonic() + 60
    while not true():
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(0.01)


def connections(server):
    """How many the server holds open."""
    return len(server._server.server_state.connections)


def begin(server, link, headers=KEY):
    connection = server.connect("GET", link, headers, receive_bytes=64 * 1024)
    assert connection.recv(12) == b"HTTP/1.1 200"
    return connection


def stays(connection):
    pass


@pytest.mark.parametrize("gone", [stays, vanish])
@pytest.mark.parametrize("setting", ["download_stall_seconds", "download_seconds"])
def test_a_stalled_download_and_its_connection_end(house, serve, setting, gone):
    house.doors = replace(house.doors, **{setting: SOON})
    app = house.app()
    client = house.client("key-amina", app=app)
    link = house.link(client, house.ready(client, LARGE))
    with serve(app) as server:
        connection = begin(server, link)
        gone(connection)
        until(lambda: connections(server) == 0)  # while we take nothing

        assert not app.state.downloads._of_account
    connection.close()


@pytest.fixture
def cut(house, serve):
    """A download that was cut, and of which one piece is still on its way: the buffers do not hold it."""
    opened = []

    def begin_and_cut(stall_seconds):
        house.doors = replace(house.doors, download_stall_seconds=stall_seconds)
        app = house.app()
        client = house.client("key-amina", app=app)
        run = house.ready(client, bytes(PIECE_BYTES + 1))
        link = house.link(client, run)
        with house.file_of(run).open("r+b") as file:
            file.write(b"?")
        server = serve(app)
        server._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
        opened.append(server.__enter__())
        connection = begin(server, link)
        until(lambda: any(type(event).__name__ == "FileServed" for event in house.events))
        return server, connection

    yield begin_and_cut
    for server in opened:
        server.__exit__()


def test_who_takes_nothing_of_what_is_left_of_a_cut_download_is_dropped_too(cut):
    server, connection = cut(stall_seconds=1)

    until(lambda: connections(server) == 0)
    connection.close()


def test_who_takes_what_is_left_of_a_cut_download_gets_all_of_it(cut):
    server, connection = cut(stall_seconds=60)
    before = connections(server)

    body = read_all(connection).partition(b"\r\n\r\n")[2]

    assert 1 == before
    assert PIECE_BYTES == len(body)
    assert body.startswith(b"?")


def test_a_stream_to_a_client_that_vanished_ends(house, serve, monkeypatch):
    monkeypatch.setattr("haulage.web.events.COMMENT_SECONDS", 0.05)
    app = house.app()
    client = house.client("key-amina", app=app)
    place = client.post("/api/exports", json={"dataset": "orders"}).headers["location"]
    server = serve(app)
    give_up_silent(server._socket, SOON)
    with server:
        there, gone = (server.connect("GET", f"{place}/events", KEY) for _ in range(2))
        for connection in (there, gone):
            assert connection.recv(12) == b"HTTP/1.1 200"
        vanish(gone)
        until(lambda: connections(server) == 1)
        until(lambda: sum(app.state.hints._of_session.values()) == 1)
        there.settimeout(60)
        assert there.recv(65536), "who reads goes on"
        client.delete(place)
        with contextlib.suppress(TimeoutError):
            read_all(there)
    gone.close()


def test_an_answer_that_is_complete_does_not_wait_for_its_reader_for_ever(house, serve):
    """All of it was handed over, so the download is done; only the kernel still has it."""
    app = house.app()
    client = house.client("key-amina", app=app)
    size = 3 * 1024 * 1024
    link = house.link(client, house.ready(client, bytes(size)))
    server = serve(app)
    give_up_silent(server._socket, SOON)
    with server:
        connection = begin(server, link)
        until(lambda: connections(server) == 0)
    connection.close()

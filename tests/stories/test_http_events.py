"""Server-sent events: hints to look again, which end by themselves and are never more than a session may hold."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from haulage.core.progress import Progress

pytestmark = pytest.mark.slow

ASKED = {"dataset": "orders"}


class Listener:
    """One stream of events on a real connection."""

    seconds = 60  # to wait for anything at all

    def __init__(self, server, place, headers):
        self.connection = server.connect("GET", f"{place}/events", headers)
        self._read = b""
        self.head = self.block(b"\r\n\r\n").decode().lower()

    def block(self, end=b"\n\n"):
        """Everything up to an empty line; b"" at the end of the stream."""
        self.connection.settimeout(self.seconds)
        while end not in self._read:
            part = self.connection.recv(65536)
            if not part:
                return b""
            self._read += part
        block, _, self._read = self._read.partition(end)
        return block

    def hint(self):
        """The next hint, past chunk sizes and comments."""
        while block := self.block():
            for line in block.splitlines():
                if line.startswith(b"data: "):
                    return json.loads(line[6:])
        return None


@pytest.fixture
def door(house, serve):
    """A served application, its client, and the headers of that client."""
    app = house.app()
    with serve(app) as server:
        yield server, house.client("key-amina", app=app), {"Authorization": "Bearer key-amina"}


def test_hints_say_that_a_run_changed_and_the_stream_ends_with_it(house, door):
    server, client, headers = door
    asked = client.post("/api/exports", json=ASKED)
    run_id = asked.json()["id"]
    listener = Listener(server, asked.headers["location"], {**headers, "Connection": "close"})
    first = listener.hint()
    held, run = house.claim()
    claimed = listener.hint()
    house.store.exports.heartbeat([(held, Progress("writing", 5, 10))], lease_seconds=15)
    progressed = listener.hint()
    house.finish(held, run)
    finished = listener.hint()

    assert "200 ok" in listener.head
    assert "content-type: text/event-stream" in listener.head
    assert "cache-control: no-store" in listener.head
    assert [{"flow": "export", "id": run_id, "revision": n} for n in (1, 2, 3, 4)] == [
        first,
        claimed,
        progressed,
        finished,
    ]
    assert listener.hint() is None, "a final run has no more to say"
    assert "ready" == client.get(asked.headers["location"]).json()["state"]


def test_a_stream_of_a_run_that_has_ended_ends_at_once(house, door):
    server, client, headers = door
    run = house.ready(client)

    listener = Listener(server, f"/api/exports/{run['token']}", {**headers, "Connection": "close"})

    assert run["revision"] == listener.hint()["revision"]
    assert listener.hint() is None


def test_a_change_of_another_run_is_no_hint(house, door):
    server, client, headers = door
    place = client.post("/api/exports", json=ASKED).headers["location"]
    listener = Listener(server, place, {**headers, "Connection": "close"})
    first = listener.hint()
    house.client("key-chloe", app=client.app).post("/api/exports", json=ASKED)
    client.delete(place)

    assert [1, 2] == [first["revision"], listener.hint()["revision"]]


def test_signing_out_ends_the_stream(house, serve):
    app = house.app()
    reader = house.browser("key-amina", app=app)
    place = reader.post("/api/exports", json=ASKED).headers["location"]
    with serve(app) as server:
        cookie = {"Cookie": f"haulage={reader.cookies['haulage']}", "Connection": "close"}
        listener = Listener(server, place, cookie)
        first = listener.hint()
        reader.delete("/api/session")

        assert 1 == first["revision"]
        assert listener.hint() is None


def test_a_session_holds_so_many_streams_and_gives_them_back(house, serve):
    house.doors = replace(house.doors, event_streams=2)
    app = house.app()
    client, other = house.client("key-amina", app=app), house.browser("key-amina", app=app)
    place = client.post("/api/exports", json=ASKED).headers["location"]
    theirs = f"/api/exports/{other.get('/api/exports').json()['items'][0]['token']}"
    headers = {"Authorization": "Bearer key-amina"}
    with serve(app) as server:
        held = [Listener(server, place, headers) for _ in range(2)]
        refused = client.get(f"{place}/events")
        of_another_session = Listener(server, theirs, {"Cookie": f"haulage={other.cookies['haulage']}"})
        held[0].connection.close()
        limit = time.monotonic() + 60
        while "200 ok" not in (again := Listener(server, place, headers)).head and time.monotonic() < limit:
            time.sleep(0.01)  # until the server has seen that the first one went
        client.delete(place)

    assert (429, "too_many_streams", "5") == (
        refused.status_code,
        refused.json()["code"],
        refused.headers["retry-after"],
    )
    assert "200 ok" in of_another_session.head
    assert "200 ok" in again.head


def test_silence_is_filled_with_comments(house, door, monkeypatch):
    monkeypatch.setattr("haulage.web.events.COMMENT_SECONDS", 0.05)
    server, client, headers = door
    place = client.post("/api/exports", json=ASKED).headers["location"]
    listener = Listener(server, place, headers)
    listener.hint()

    comment = listener.block()
    client.delete(place)

    assert b":" in comment.splitlines()
    assert 2 == listener.hint()["revision"]


def test_a_stream_survives_a_store_that_is_silent(house, door, monkeypatch):
    from haulage.core.errors import StoreUnavailable

    server, client, headers = door
    place = client.post("/api/exports", json=ASKED).headers["location"]
    listener = Listener(server, place, {**headers, "Connection": "close"})
    listener.hint()
    answers = [StoreUnavailable("busy"), StoreUnavailable("busy")]
    get = house.store.exports.get

    def sometimes(run_id, **how):
        if answers:
            raise answers.pop()
        return get(run_id, **how)

    monkeypatch.setattr(house.store.exports, "get", sometimes)
    monkeypatch.setattr("haulage.web.events.COMMENT_SECONDS", 3_600)  # which would look again by itself
    house.claim()

    assert 2 == listener.hint()["revision"]
    assert not answers


def test_a_change_just_before_the_stream_listens_is_not_missed(house, door, monkeypatch):
    server, client, headers = door
    place = client.post("/api/exports", json=ASKED).headers["location"]
    hints = client.app.state.hints
    listening = hints.listening

    def late(session):
        house.claim()
        return listening(session)

    monkeypatch.setattr(hints, "listening", late)

    assert 2 == Listener(server, place, headers).hint()["revision"]
    client.delete(place)


def test_a_watcher_that_breaks_is_replaced(house, serve):
    broken = []

    class Breaks:
        def changed(self):
            broken.append(1)
            raise OSError("disk I/O error")

        def close(self):
            raise OSError("disk I/O error")

    watchers = [Breaks()]
    watch = house.store.watch
    house.store.watch = lambda: watchers.pop() if watchers else watch()
    app = house.app()
    client = house.client("key-amina", app=app)
    place = client.post("/api/exports", json=ASKED).headers["location"]
    with serve(app) as server:
        listener = Listener(server, place, {"Authorization": "Bearer key-amina", "Connection": "close"})
        first = listener.hint()
        client.delete(place)

        assert [1, 2] == [first["revision"], listener.hint()["revision"]]
    assert [1] == broken
    assert any(type(event).__name__ == "StoreFailed" for event in house.events)


def test_a_server_that_shuts_down_is_not_held_up(house, door):
    server, client, headers = door
    place = client.post("/api/exports", json=ASKED).headers["location"]
    listener = Listener(server, place, {**headers, "Connection": "close"})
    first = listener.hint()

    client.app.state.hints.end()

    assert 1 == first["revision"]
    assert listener.hint() is None


def test_the_thread_that_watches_ends_with_the_last_stream(house, door):
    server, client, headers = door
    place = client.post("/api/exports", json=ASKED).headers["location"]
    hints = client.app.state.hints
    listener = Listener(server, place, {**headers, "Connection": "close"})
    listener.hint()
    watching = hints._watching
    client.delete(place)
    listener.hint()
    assert listener.hint() is None
    limit = time.monotonic() + 60
    while hints._watching and time.monotonic() < limit:
        time.sleep(0.01)  # until the thread has looked once more

    assert watching
    assert not hints._watching
    assert not hints._waiting
    assert not hints._of_session

"""What one account may hold at once: keys it sent, sign-ins, open files. More is refused, or the oldest ends."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.stories.conftest import read_all

from haulage.core.limits import DAY, ExportLimits
from haulage.core.ports import SignIn
from haulage.web.access import link_id

pytestmark = pytest.mark.slow

ASKED = {"dataset": "orders"}

# -- idempotency keys ----------------------------------------------------------------------------------


def ask(client, key, **more):
    return client.post("/api/exports", json={**ASKED, **more}, headers={"Idempotency-Key": key})


def kept_keys(house):
    with house.store.begin() as tx:
        return tx.exec_driver_sql("select count(*) from idempotency_keys").scalar()


def test_an_account_has_so_many_keys_remembered_and_every_one_of_them_still_answers(house):
    house.limits = ExportLimits(idempotency_keys=3)
    client = house.client("key-amina")
    taken = [ask(client, f"k{number}") for number in range(3)]

    house.passes(60)
    equal = ask(client, "k3")
    another = ask(client, "k4", format="json")
    replayed = [ask(client, f"k{number}") for number in range(3)]
    reused = ask(client, "k0", format="json")
    house.worker_lives()
    without = client.post("/api/exports", json={**ASKED, "format": "json"})

    assert [202, 200, 200] == [answer.status_code for answer in taken]
    for refused in (equal, another):
        assert (429, "too_many_keys", str(DAY - 60 + 1)) == (
            refused.status_code, refused.json()["code"], refused.headers["retry-after"],
        )  # fmt: skip
    assert [(200, "true")] * 3 == [(answer.status_code, answer.headers["idempotent-replayed"]) for answer in replayed]
    assert [409, 202] == [reused.status_code, without.status_code]
    assert 3 == kept_keys(house), "a refused request keeps none"


def test_the_keys_of_one_account_are_no_other_s(house):
    house.limits = ExportLimits(idempotency_keys=1)
    ask(house.client("key-amina"), "k0")

    assert [429, 202, 202] == [
        ask(house.client(key), "k1").status_code for key in ("key-amina", "key-ben", "key-chloe")
    ]


def test_a_key_that_is_forgotten_gives_its_place_back_swept_or_not(house):
    house.limits = ExportLimits(idempotency_keys=2, queue_seconds=3 * DAY)
    client = house.client("key-amina")
    ask(client, "k0")
    house.passes(DAY / 2)
    house.worker_lives()
    ask(client, "k1")
    before = ask(client, "k2")
    house.passes(DAY / 2)
    house.worker_lives()
    after = [ask(client, f"k{number}").status_code for number in (2, 3)]

    assert [(429, str(DAY // 2 + 1)), [200, 429]] == [(before.status_code, before.headers["retry-after"]), after]


# -- sign-ins --------------------------------------------------------------------------------------------


def works(reader):
    return reader.get("/api/session").status_code == 200


def test_one_more_sign_in_of_a_key_ends_its_oldest(house):
    house.doors = replace(house.doors, sessions=3)
    readers = []
    for _ in range(4):
        readers.append(house.browser("key-amina"))
        house.passes(1)
    other = house.browser("key-ben")

    assert [False, True, True, True, True] == [works(reader) for reader in [*readers, other]]


def test_sign_ins_of_one_instant_end_each_other_and_never_the_new_one(house):
    house.doors = replace(house.doors, sessions=1)
    readers = [house.browser("key-amina") for _ in range(8)]

    assert [False] * 7 + [True] == [works(reader) for reader in readers]


def test_signing_in_a_thousand_times_keeps_no_more_rows(house):
    client = house.client()
    for _ in range(3 * house.doors.sessions):
        client.cookies.clear()
        client.post("/api/session", json={"key": "key-amina"})

    with house.store.begin() as tx:
        assert house.doors.sessions == tx.exec_driver_sql("select count(*) from sessions").scalar()


def test_a_link_that_waits_is_no_sign_in_and_is_not_ended_by_one(house):
    house.doors = replace(house.doors, sessions=1)
    house.store.sessions.open(SignIn(link_id("waits"), "amina", "north", "amina", house.clock + 600_000))
    reader, by_link = house.browser("key-amina"), house.client()

    before = works(reader)
    by_link.get("/?sign_in=waits")

    assert [True, False, True] == [before, works(reader), works(by_link)]


@pytest.mark.slow
def test_the_streams_of_a_sign_in_that_was_ended_end(house, serve):
    house.doors = replace(house.doors, sessions=1)
    app = house.app()
    reader = house.browser("key-amina", app=app)
    place = reader.post("/api/exports", json=ASKED).headers["location"]
    with serve(app) as server:
        headers = {"Cookie": f"haulage={reader.cookies['haulage']}", "Connection": "close"}
        stream = server.connect("GET", f"{place}/events", headers)
        first = stream.recv(65536)
        house.browser("key-amina", app=app)

        assert b"200 OK" in first
        read_all(stream)  # to its end, which comes


# -- downloads -------------------------------------------------------------------------------------------

LARGE = bytes(16 * 1024 * 1024)  # more than the buffers of two sockets hold


class Slow:
    """Readers who take the headers of a download, and then nothing."""

    def __init__(self, house, serve, *keys):
        self.house = house
        self.app = house.app()
        clients = [house.client(key, app=self.app) for key in keys]
        self.links = {
            key: house.link(client, house.ready(client, LARGE)) for key, client in zip(keys, clients, strict=True)
        }
        self.server = serve(self.app)

    def read(self, key, **headers):
        """The head of an answer; the rest of it is not taken."""
        headers |= {"Authorization": f"Bearer {key}", "Connection": "close"}
        connection = self.server.connect("GET", self.links[key], headers, receive_bytes=64 * 1024)
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(1)
        return connection, head.decode().lower()

    def status(self, key, **headers):
        connection, head = self.read(key, **headers)
        connection.close()
        return int(head.split()[1])


def until(true):
    limit = time.monotonic() + 60
    while not true():
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(0.01)


@pytest.mark.slow
def test_an_account_fetches_so_many_files_at_once_whatever_it_signs_in_with(house, serve):
    house.doors = replace(house.doors, downloads=2)
    slow = Slow(house, serve, "key-amina", "key-ben")
    reader = house.browser("key-amina", app=slow.app)
    of_page = reader.get("/api/exports").json()["items"][0]
    link = house.link(reader, of_page)
    with slow.server:
        held = [slow.read("key-amina") for _ in range(2)]
        refused = [slow.read("key-amina"), slow.read("key-amina", Range="bytes=0-0")]
        other, head_only = slow.read("key-ben"), house.client("key-amina", app=slow.app).head(slow.links["key-amina"])
        by_cookie = reader.get(link)
        held[0][0].close()
        until(lambda: slow.status("key-amina", Range="bytes=0-0") == 206)

    assert all("200 ok" in head for _, head in [*held, other])
    assert 200 == head_only.status_code
    assert (429, "too_many_downloads", "5") == (
        by_cookie.status_code, by_cookie.json()["code"], by_cookie.headers["retry-after"],
    )  # fmt: skip
    for connection, head in refused:
        body = read_all(connection)
        assert " 429 " in head
        assert "retry-after: 5" in head
        assert "too_many_downloads" == json.loads(body)["code"]


@pytest.mark.slow
def test_all_accounts_together_fetch_so_many_files_at_once(house, serve):
    house.doors = replace(house.doors, downloads_in_all=2)
    slow = Slow(house, serve, "key-amina", "key-ben", "key-chloe")
    with slow.server:
        held = [slow.read("key-amina"), slow.read("key-ben")]
        connection, head = slow.read("key-chloe")
        body = read_all(connection)
        held[0][0].close()
        until(lambda: slow.status("key-chloe", Range="bytes=0-0") == 206)

    assert " 503 " in head
    assert "retry-after: 5" in head
    assert "downloads_full" == json.loads(body)["code"]


@pytest.mark.slow
def test_slow_readers_hold_no_thread_and_no_connection_to_the_store(house, serve):
    house.doors = replace(house.doors, downloads=60)
    slow = Slow(house, serve, "key-amina")
    pool = house.store._database.engine.pool
    with slow.server:
        slow.status("key-amina", Range="bytes=0-0")  # whatever is opened once
        until(lambda: descriptors(house) == 0)
        held = pool.checkedout()
        readers = [slow.read("key-amina")[0] for _ in range(60)]  # more than there are threads
        until(lambda: pool.checkedout() <= held)
        during = descriptors(house)
        answered = house.client("key-ben", app=slow.app).get("/api/exports").status_code
        for reader in readers:
            reader.close()
        until(lambda: descriptors(house) == 0)

    assert (60, 200) == (during, answered)


@pytest.mark.slow
def test_a_refused_download_leaves_no_file_open(house, serve):
    house.doors = replace(house.doors, downloads=1)
    slow = Slow(house, serve, "key-amina")
    with slow.server:
        reader, _ = slow.read("key-amina")
        answers = {slow.status("key-amina") for _ in range(20)}
        until(lambda: descriptors(house) == 1)
        reader.close()

        assert {429} == answers


def descriptors(house):
    """How many finished files this process holds open."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found += each.readlink().is_relative_to(house.folder / "artifacts" / "files")
    return found


def test_two_who_come_at_once_do_not_share_the_last_place(house):
    house.doors = replace(house.doors, downloads=1)
    app = house.app()
    client = house.client("key-amina", app=app)
    link = house.link(client, house.ready(client, LARGE))
    places, ready, answers = app.state.downloads, threading.Barrier(4), []

    def fetch():
        mine = house.client("key-amina", app=app)
        ready.wait(60)
        answers.append(mine.get(link).status_code)

    threads = [threading.Thread(target=fetch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {200} <= set(answers) <= {200, 429}
    assert not places._of_account, "every place was given back"

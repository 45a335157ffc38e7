"""Files in a bucket over HTTP: streamed from here as from a folder, or fetched from a signed address."""

from __future__ import annotations

import hashlib
import http.client
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.objects_proxy import Proxy
from tests.stories.conftest import House, read_all

from haulage.artifacts.objects import LINK_SECONDS, ObjectArtifacts
from haulage.artifacts.upload import Upload
from haulage.core import events
from haulage.core.limits import MIB

pytestmark = pytest.mark.slow

CONTENT = b"id,total\r\n" + b"".join(b"%d,%d.50\r\n" % (n, n) for n in range(1000))
ETAG = f'"{hashlib.sha256(CONTENT).hexdigest()}"'
LARGE = bytes(range(256)) * (40 * MIB // 256)


class BucketHouse(House):
    """A house whose files are objects, reached through a proxy."""

    def __init__(self, folder, place, download):
        super().__init__(folder)
        self.place = place
        self.proxy = Proxy(place.server.ports["s3.port"])
        settings = place.server.settings(folder / "scratch", endpoint=self.proxy.endpoint, download=download)
        self.artifacts = ObjectArtifacts(place.url, settings)

    def keep(self, key, content):
        upload = self.artifacts.upload(key, len(content), 60)
        sink = Upload(upload, file_bytes=len(content), reserved_bytes=len(content))
        sink.write(content)
        kept = sink.finish()
        self.artifacts.publish(key, kept.size, sha256=kept.sha256, etag=kept.etag)

    def object_of(self, run):
        return f"{self.place.prefix}files/{self.row(run).artifact_key}"

    def close(self):
        super().close()
        self.proxy.close()


@pytest.fixture
def bucket(tmp_path, place):
    (tmp_path / "bucket").mkdir()
    house = BucketHouse(tmp_path / "bucket", place, "proxy")
    yield house
    house.close()


@pytest.fixture
def redirecting(tmp_path, place):
    (tmp_path / "bucket").mkdir()
    house = BucketHouse(tmp_path / "bucket", place, "redirect")
    yield house
    house.close()


def fetched(house, method="GET", content=CONTENT, **headers):
    """One ready file, fetched with these headers."""
    client = house.client("key-amina")
    link = house.link(client, house.ready(client, content))
    return client.request(method, link, headers={name.replace("_", "-"): each for name, each in headers.items()})


# -- streamed from here ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET", {}),
        ("HEAD", {}),
        ("GET", {"Range": "bytes=10-19"}),
        ("GET", {"Range": "bytes=-7"}),
        ("GET", {"Range": "bytes=9000-"}),
        ("GET", {"Range": "bytes=99999-"}),
        ("GET", {"Range": "bytes=5-9", "If_Range": ETAG}),
        ("GET", {"Range": "bytes=5-9", "If_Range": '"another"'}),
        ("GET", {"If_None_Match": ETAG}),
        ("GET", {"If_Match": '"another"'}),
    ],
)
def test_whatever_is_asked_of_a_file_a_bucket_answers_as_a_folder_does(house, bucket, method, headers):
    bucket.clock = house.clock
    here, there = fetched(house, method, **headers), fetched(bucket, method, **headers)

    assert (here.status_code, here.content) == (there.status_code, there.content)
    assert dict(here.headers) == dict(there.headers)


def test_a_large_file_is_streamed_and_not_read_whole(bucket, serve):
    client = bucket.client("key-amina")
    path = bucket.link(client, bucket.ready(client, LARGE))
    with serve(bucket.same_app()) as server:
        connection = server.connect("GET", path, {"Authorization": "Bearer key-amina", "Connection": "close"})
        body = read_all(connection).partition(b"\r\n\r\n")[2]

    assert hashlib.sha256(LARGE).digest() == hashlib.sha256(body).digest()
    assert [event.whole for event in bucket.events if isinstance(event, events.FileServed)] == [True]


def broken_off(bucket, serve, change):
    """A large download in whose middle something happens; gives its run and what was received."""
    client = bucket.client("key-amina")
    run = bucket.ready(client, LARGE)
    path = bucket.link(client, run)
    with serve(bucket.same_app()) as server:
        connection = server.connect("GET", path, {"Authorization": "Bearer key-amina"}, receive_bytes=4096)
        received = connection.recv(4096)
        change(run)
        received += read_all(connection)
    return run, received.partition(b"\r\n\r\n")[2]


def test_a_lost_grant_cuts_a_download_that_is_streamed_from_a_bucket(bucket, serve):
    run, body = broken_off(bucket, serve, lambda _run: bucket.people.change("amina", grants=frozenset()))

    assert len(body) < len(LARGE)
    assert "ready" == bucket.row(run).state


def test_an_object_that_is_replaced_while_it_is_fetched_cuts_the_download_and_corrects_the_run(bucket, serve):
    bucket.artifacts._bucket.read = reopening(bucket.artifacts._bucket)

    run, body = broken_off(
        bucket, serve, lambda run: bucket.place.server.write(bucket.object_of(run), b"z" * len(LARGE))
    )

    assert len(body) < len(LARGE)
    assert b"z" * 100 not in body
    assert "artifact_lost" == bucket.row(run).failure_code


def reopening(bucket):
    """Reads as if each connection broke after a megabyte, so that the object is asked for again."""
    read, given = bucket.read, {}

    def read_some(stream, wanted):
        given[stream] = given.get(stream, 0) + wanted
        if given[stream] > MIB:
            stream.close()
        return read(stream, wanted)

    return read_some


def test_a_bucket_that_goes_away_cuts_a_download_and_leaves_its_run_ready(bucket, serve):
    run, body = broken_off(bucket, serve, lambda _run: bucket.proxy.down())

    assert len(body) < len(LARGE)
    assert "ready" == bucket.row(run).state
    assert [event.whole for event in bucket.events if isinstance(event, events.FileServed)] == [False]
    bucket.proxy.up()
    client = bucket.client("key-amina")
    assert hashlib.sha256(LARGE).digest() == hashlib.sha256(client.get(bucket.link(client, run)).content).digest()


def test_a_bucket_that_does_not_answer_is_said_and_asked_again_later(bucket):
    client = bucket.client("key-amina")
    run = bucket.ready(client, CONTENT)
    link = bucket.link(client, run)
    assert "ok" == client.get("/api/health/ready").json()["checks"]["artifacts"]
    bucket.proxy.down()

    answer = client.get(link)
    assert (503, "files_unavailable") == (answer.status_code, answer.json()["code"])
    assert "2" == answer.headers["Retry-After"]
    assert "s3" not in answer.text
    fresh = bucket.client("key-amina", app=bucket.app())
    ready = fresh.get("/api/health/ready")
    assert (503, "failing") == (ready.status_code, ready.json()["checks"]["artifacts"])
    bucket.proxy.up()
    assert CONTENT == client.get(link).content
    assert "ready" == bucket.row(run).state


@pytest.mark.parametrize("change", ["removed", "truncated", "flipped"])
def test_an_object_changed_behind_our_back_is_a_lost_artifact(bucket, change):
    client = bucket.client("key-amina")
    run = bucket.ready(client, CONTENT)
    link = bucket.link(client, run)
    if change == "removed":
        bucket.place.server.delete(bucket.object_of(run))
    else:
        changed = CONTENT[:-1] if change == "truncated" else b"?" + CONTENT[1:]
        bucket.place.server.write(bucket.object_of(run), changed)

    answer = client.get(link)

    assert (410, "artifact_lost") == (answer.status_code, answer.json()["code"])
    assert "artifact_lost" == bucket.row(run).failure_code


# -- fetched from a signed address -----------------------------------------------------------------


def follow(location, **headers):
    """Fetch a signed address as a client does that knows nothing of us."""
    parts = urlsplit(location)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    connection.request("GET", f"{parts.path}?{parts.query}", headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read(), dict(answer.getheaders())


def test_a_client_is_sent_to_an_address_that_is_good_for_a_minute(redirecting):
    answer = fetched(redirecting)
    assert (307, b"") == (answer.status_code, answer.content)
    assert ("private, no-store", "no-referrer") == (answer.headers["Cache-Control"], answer.headers["Referrer-Policy"])

    location = answer.headers["Location"]
    assert [str(LINK_SECONDS)] == parse_qs(urlsplit(location).query)["X-Amz-Expires"]
    status, body, headers = follow(location)
    assert (200, CONTENT) == (status, body)
    assert "attachment; filename=\"orders.csv\"; filename*=UTF-8''orders.csv" == headers["Content-Disposition"]
    assert "text/csv; charset=utf-8" == headers["Content-Type"]
    assert (206, CONTENT[10:20]) == follow(location, Range="bytes=10-19")[:2]
    (linked,) = [event for event in redirecting.events if isinstance(event, events.FileLinked)]
    assert ("north", "amina") == (linked.tenant, linked.account)
    assert "Signature" not in str(redirecting.events)


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("HEAD", {}, 200),
        ("GET", {"If_None_Match": ETAG}, 304),
        ("GET", {"If_None_Match": '"another"'}, 200),
        ("GET", {"If_Match": ETAG}, 200),
        ("GET", {"If_Match": '"another"'}, 412),
        ("GET", {"Range": "bytes=5-9", "If_Range": ETAG}, 206),
        ("GET", {"Range": "bytes=5-9"}, 307),
    ],
)
def test_what_compares_with_our_etag_is_answered_from_here(redirecting, method, headers, status):
    assert status == fetched(redirecting, method, **headers).status_code


def test_an_address_is_signed_only_after_the_look_at_session_grant_and_run(redirecting):
    client = redirecting.client("key-amina")
    run = redirecting.ready(client, CONTENT)
    link = redirecting.link(client, run)

    assert 404 == redirecting.client("key-ben").get(link).status_code
    redirecting.people.change("amina", grants=frozenset())
    assert 403 == client.get(link).status_code or 404 == client.get(link).status_code
    redirecting.people.change("amina", grants=frozenset({"orders.read"}))
    assert 307 == client.get(link).status_code
    redirecting.place.server.delete(redirecting.object_of(run))
    assert (410, "artifact_lost") == (client.get(link).status_code, redirecting.row(run).failure_code)
    assert 1 == len([event for event in redirecting.events if isinstance(event, events.FileLinked)])

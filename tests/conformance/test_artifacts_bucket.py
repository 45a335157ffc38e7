"""What only artifacts in a bucket must do; test_artifacts.py has what every keeper of bytes must."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from urllib.parse import urlsplit

import pytest
from tests.conformance.test_artifacts import KEY, publish, sink_of, write
from tests.objects_server import BUCKET, KEYS, READER

from haulage.artifacts import objects
from haulage.artifacts.objects import ObjectArtifacts
from haulage.artifacts.upload import Upload
from haulage.config import ObjectSettings
from haulage.core.errors import ArtifactsUnavailable, BuildFailed
from haulage.core.limits import MIB

pytestmark = pytest.mark.slow
PART = 5 * MIB
BIG = bytes(range(256)) * (12 * MIB // 256)


@pytest.fixture
def artifacts(place):
    made = place.open(part_bytes=PART)
    made.prepare()
    return made


def built(artifacts, content=BIG, key=KEY):
    """A file of some parts in the making, whole."""
    sink = sink_of(artifacts, key, len(content), len(content))
    for start in range(0, len(content), MIB):
        sink.write(content[start : start + MIB])
    return sink.finish()


# -- a build ---------------------------------------------------------------------------------------


def test_parts_are_sent_while_a_build_writes_and_no_object_is_there_before_its_end(artifacts, place):
    sink = sink_of(artifacts, file_bytes=20 * MIB, reserved_bytes=20 * MIB)
    arrived = []
    for start in range(0, len(BIG), MIB):
        sink.write(BIG[start : start + MIB])
        arrived.append(place.server.sent_bytes(place.prefix))
    measured = sink.finish()

    assert [0] * 4 + [PART] * 5 + [2 * PART] * 3 == arrived
    assert ({}, [KEY]) == (place.objects(), place.uploads())
    publish(artifacts, measured)
    assert ({KEY: BIG}, []) == (place.objects(), place.uploads())


def test_the_etag_that_a_build_expects_is_the_one_that_the_server_gives(artifacts):
    measured = built(artifacts)
    artifacts.publish(KEY, measured.size)

    _size, etag = artifacts._bucket.head(artifacts._name(KEY))
    assert measured.etag == etag
    assert etag.endswith("-3")


def test_a_build_holds_one_part_and_not_its_file(place):
    """In a process of its own, whose highest memory is compared between a file of three parts and one of twelve."""
    program = (
        "import json, resource, sys; from haulage.artifacts.upload import Upload;"
        "upload, size = json.loads(sys.stdin.readline()), int(sys.argv[1]);"
        "sink = Upload(upload, file_bytes=size, reserved_bytes=size);"
        "[sink.write(b'x' * 262144) for _ in range(size // 262144)]; sink.finish();"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, *sys.modules)"
    )
    artifacts, peaks = place.open(part_bytes=PART), []
    for number, parts in enumerate((3, 12)):
        upload = json.dumps(artifacts.upload(f"{KEY}{number}", parts * PART, 60))
        told = subprocess.run(
            [sys.executable, "-c", program, str(parts * PART)], input=upload, capture_output=True, text=True, check=True
        ).stdout.split()
        peaks.append(int(told[0]))
        assert place.server.sent_bytes(f"{place.prefix}files/{KEY}{number}") == parts * PART
        assert not {"botocore", "urllib3", "haulage.artifacts.objects", "haulage.config"} & set(told)

    assert peaks[1] - peaks[0] < PART // 1024


def test_a_child_gets_addresses_for_its_parts_and_no_keys(artifacts):
    upload = artifacts.upload(KEY, 12 * MIB, 120)

    assert 3 == len(upload["urls"])
    assert KEYS["secret_key"] not in json.dumps(upload)
    assert all("X-Amz-Expires=180&" in url for url in upload["urls"])
    assert "secret" not in repr(artifacts._settings)
    assert KEYS["access_key"] not in repr(artifacts._settings)


def test_a_large_file_has_no_more_parts_than_a_server_takes(artifacts):
    upload = artifacts.upload(KEY, 12_345 * MIB, 60)

    assert objects.PARTS_MAX >= len(upload["urls"])
    assert len(upload["urls"]) * upload["part_bytes"] >= 12_345 * MIB


def put(url: str, data: bytes, **headers: str) -> int:
    """Send a part as a child does, and tell the status."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=20)
    connection.request("PUT", f"{parts.path}?{parts.query}", data, headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_a_part_that_changed_on_its_way_is_refused_by_the_server_and_ends_the_build(artifacts, monkeypatch):
    request = http.client.HTTPConnection.request

    def flip(self, method, target, body, headers):
        request(self, method, target, body[:100] + b"!" + body[101:], headers)

    sink = sink_of(artifacts)
    monkeypatch.setattr(http.client.HTTPConnection, "request", flip)
    sink.write(b"x" * 500)
    with pytest.raises(BuildFailed) as failed:
        sink.finish()

    assert ("storage_failed", "part 1: 400 BadDigest") == (failed.value.code, failed.value.cause)


@pytest.mark.parametrize("etag", ["as it is", "none"])
def test_a_part_that_was_replaced_behind_our_back_is_found_before_the_file_is_promised(artifacts, etag):
    upload = artifacts.upload(KEY, 1_000, 60)
    assert 200 == put(upload["urls"][0], b"y" * 500)
    expected = hashlib.md5(hashlib.md5(b"x" * 500).digest()).hexdigest() + "-1" if etag == "as it is" else None

    with pytest.raises(BuildFailed) as failed:
        artifacts.publish(KEY, 500, sha256=hashlib.sha256(b"x" * 500).hexdigest(), etag=expected)

    assert "verify_failed" == failed.value.code
    assert "the bytes in the bucket are not the bytes written" == failed.value.cause


def test_a_whole_file_on_a_server_with_other_etags_is_proved_by_reading_it_back(artifacts, monkeypatch):
    measured, read = built(artifacts), []
    digest = ObjectArtifacts._digest
    monkeypatch.setattr(ObjectArtifacts, "_digest", lambda *asked: read.append(asked) or digest(*asked))

    artifacts.publish(KEY, measured.size, sha256=measured.sha256, etag="named otherwise")
    artifacts.remove(KEY)
    publish(artifacts, built(artifacts))

    assert 1 == len(read)


def test_a_published_file_is_not_replaced_by_a_second_upload_of_its_name(artifacts, place):
    publish(artifacts, write(artifacts))
    place.server.client.create_multipart_upload(Bucket=BUCKET, Key=artifacts._name(KEY))
    name, upload = artifacts._bucket.uploads(artifacts._name(KEY))[0]
    etag = place.server.client.upload_part(Bucket=BUCKET, Key=name, UploadId=upload, PartNumber=1, Body=b"other")[
        "ETag"
    ]

    artifacts._complete(name, upload, {1: etag})  # create-only: what is there already is taken for the lost answer ...
    with pytest.raises(BuildFailed):
        publish(artifacts, write(artifacts, KEY + "2")._replace(size=4), KEY + "2")  # ... and judged by its size

    assert b"id\n1\n" == place.objects()[KEY]


# -- removing --------------------------------------------------------------------------------------


def test_unfinished_uploads_are_listed_by_their_key_and_go_with_it(artifacts, place):
    for key in ("a.1", "a.11", "b.2"):
        write(artifacts, key)
    place.server.client.create_multipart_upload(Bucket=BUCKET, Key=f"{place.prefix}files/a.1")
    place.server.client.create_multipart_upload(Bucket=BUCKET, Key=f"{place.prefix}elsewhere/a.1")

    assert ["a.1", "a.11", "b.2"] == artifacts.keys()
    assert (True, False) == (artifacts.remove("a.1"), artifacts.remove("a.1"))
    assert ["a.11", "b.2"] == sorted(place.uploads())
    assert ["elsewhere/a.1"] == [n for n in place.server.uploads(place.prefix) if "elsewhere" in n]


def test_a_part_that_comes_after_the_removal_is_refused_and_leaves_nothing(artifacts, place):
    upload = artifacts.upload(KEY, 1_000, 60)
    artifacts.remove(KEY)

    assert 404 == put(upload["urls"][0], b"late")
    assert (False, []) == (artifacts.remove(KEY), artifacts.keys())
    assert ([], {}) == (place.uploads(), place.objects())


def test_what_lies_deeper_is_an_orphan_that_goes_with_its_first_step(artifacts, place):
    artifacts.keys()
    for name in ("deep/er/still", "deep/x", "deeper", "ä b+c"):
        place.server.write(f"{place.prefix}files/{name}", b"x")
    place.server.client.create_multipart_upload(Bucket=BUCKET, Key=f"{place.prefix}files/deep/upload")

    assert ["deep", "deeper", "ä b+c"] == artifacts.keys()
    assert artifacts.remove("deep")
    assert artifacts.remove("ä b+c")
    assert (["deeper"], []) == (list(place.objects()), place.uploads())


def test_more_than_one_page_of_uploads_is_listed(artifacts, place, monkeypatch):
    artifacts.keys()
    for number in range(7):
        place.server.client.create_multipart_upload(Bucket=BUCKET, Key=f"{place.prefix}files/run.{number}")
    client = artifacts._bucket._client(5)
    asked, list_uploads = [], client._make_api_call

    def small_pages(operation, arguments):
        if operation == "ListMultipartUploads":
            asked.append(arguments)
            arguments = arguments | {"MaxUploads": 3}
        return list_uploads(operation, arguments)

    monkeypatch.setattr(client, "_make_api_call", small_pages)

    assert [f"run.{number}" for number in range(7)] == artifacts.keys()
    assert 3 == len(asked)


def test_a_prefix_with_somebody_s_own_objects_is_not_taken_for_ours(place):
    """The sweep removes what no run names; here it would be somebody's photographs."""
    place.server.write(f"{place.prefix}files/photograph.jpg", b"jpeg")

    for act in (place.open().keys, place.open().check):
        with pytest.raises(FileExistsError, match="name another prefix"):
            act()
    with pytest.raises(BuildFailed) as failed:
        place.open().upload(KEY, 1_000, 60)
    assert "storage_failed" == failed.value.code
    (wrong,) = place.open().examine(0)
    assert "FAIL" == wrong[0]
    assert "name another prefix" in wrong[1]

    place.server.delete(f"{place.prefix}files/photograph.jpg")
    assert [] == place.open().keys()
    place.server.write(f"{place.prefix}files/photograph.jpg", b"jpeg")
    assert ["photograph.jpg"] == place.open().keys()  # now it lies in a place that is ours


def test_a_prefix_is_one_store_s_until_another_adopts_it(place):
    """Two configurations that name one prefix by mistake: the sweep of each would remove the files of the other."""
    first, second = place.open("first"), place.open("second")
    publish(first, write(first))

    for act in (second.keys, second.check, lambda: second.upload(KEY, 10, 60).get("urls")):
        with pytest.raises((FileExistsError, BuildFailed)) as refused:
            act()
        assert "another store" in str(getattr(refused.value, "cause", refused.value))
    assert [KEY] == first.keys() == place.open("first").keys()

    second.prepare(adopt=True)
    assert [KEY] == second.keys()
    assert [] == first.keys()  # nothing here is its own to remove any more
    with pytest.raises(FileExistsError, match="sweep --adopt"):
        place.open("first").keys()
    second.remove(KEY)
    second.release()
    assert [] == place.open("first").keys()


def test_who_lost_the_mark_adopts_keys_and_never_a_photograph(place):
    publish(place.open("first"), write(place.open("first")))
    place.server.delete(f"{place.prefix}.haulage")
    with pytest.raises(FileExistsError, match="name another prefix"):
        place.open("first").keys()

    place.server.write(f"{place.prefix}files/photograph.jpg", b"jpeg")
    with pytest.raises(FileExistsError, match="name another prefix"):
        place.open("first").prepare(adopt=True)
    place.server.delete(f"{place.prefix}files/photograph.jpg")
    adopted = place.open("first")
    adopted.prepare(adopt=True)
    assert [KEY] == adopted.keys()


def test_two_stores_that_come_at_once_do_not_both_get_the_prefix(place, monkeypatch):
    first, second = place.open("first"), place.open("second")
    put = first._bucket.put

    def late(name, data, **options):
        second.keys()  # comes between the look and the mark
        put(name, data, **options)

    monkeypatch.setattr(first._bucket, "put", late)
    with pytest.raises(FileExistsError, match="another store"):
        first.keys()
    assert b"second" == place.server.read(f"{place.prefix}.haulage")


# -- a finished file -------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["removed", "replaced"])
def test_an_object_that_changes_while_it_is_read_is_an_end_and_never_other_bytes(artifacts, place, change):
    publish(artifacts, built(artifacts))
    opened, size = artifacts.open(KEY)
    with opened:
        first = opened.read(10)
        opened.seek(6 * MIB)
        if change == "removed":
            artifacts.remove(KEY)
        else:
            place.server.write(f"{place.prefix}files/{KEY}", b"z" * size)
        assert (BIG[:10], b"") == (first, opened.read(10))


def test_a_connection_that_breaks_while_a_file_is_read_is_made_again(artifacts):
    publish(artifacts, built(artifacts))
    opened, _size = artifacts.open(KEY)
    digest = hashlib.sha256()
    with opened:
        while data := opened.read(MIB):
            digest.update(data)
            opened._stream._raw_stream._fp.close() if opened._stream else None  # as a server that went away

    assert hashlib.sha256(BIG).digest() == digest.digest()


def test_an_address_for_a_client_is_valid_for_a_minute_and_names_the_file(place):
    artifacts = place.open(download="redirect")
    publish(artifacts, write(artifacts))
    url = artifacts.link(KEY, disposition='attachment; filename="a b.csv"', media_type="text/csv")
    assert url is not None
    parts = urlsplit(url)

    def get(query: str, **headers: str):
        connection = http.client.HTTPConnection(parts.netloc, timeout=20)
        connection.request("GET", f"{parts.path}?{query}", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())

    status, body, headers = get(parts.query)
    assert (200, b"id\n1\n") == (status, body)
    assert ('attachment; filename="a b.csv"', "text/csv") == (headers["Content-Disposition"], headers["Content-Type"])
    assert (206, b"1") == get(parts.query, Range="bytes=3-3")[:2]
    assert f"X-Amz-Expires={objects.LINK_SECONDS}&" in parts.query
    assert 60 >= objects.LINK_SECONDS
    assert 403 == get(parts.query.replace("Expires=60", "Expires=600"))[0]
    assert 403 == get(parts.query.replace("a%20b", "c%20d"))[0]
    assert KEYS["secret_key"] not in url


def test_everything_goes_over_tls_with_the_authority_that_is_trusted(place):
    secure = place.open(
        endpoint=place.server.secure_endpoint, ca_file=str(place.server.ca_file), download="redirect", part_bytes=PART
    )
    publish(secure, built(secure))

    opened, _size = secure.open(KEY)
    with opened:
        assert hashlib.sha256(BIG).digest() == hashlib.sha256(opened.read()).digest()
    assert {"OK"} >= {level for level, _what, _do in secure.examine(0)} - {"WARN"}
    assert secure.remove(KEY)


def test_a_server_whose_certificate_nobody_trusts_gets_no_bytes(place):
    trusting_others = place.open(endpoint=place.server.secure_endpoint)

    with pytest.raises(BuildFailed) as failed:
        sink_of(trusting_others)
    assert ("storage_failed", "SSLError") == (failed.value.code, failed.value.cause)
    upload = place.open(endpoint=place.server.secure_endpoint, ca_file=str(place.server.ca_file)).upload(KEY, 10, 60)
    for ca_file in (None, trusting_others._bucket.ca_file()):
        sink = Upload({**upload, "ca_file": ca_file}, file_bytes=10, reserved_bytes=10)
        sink.write(b"1")
        with pytest.raises(BuildFailed) as failed:
            sink.finish()
        assert "SSLCertVerificationError" in str(failed.value.cause)
    assert 0 == place.server.sent_bytes(place.prefix)


# -- trouble ---------------------------------------------------------------------------------------


def test_keys_that_may_not_write_are_named_as_such(place):
    place.open().keys()
    reader = place.open(**READER)

    with pytest.raises(BuildFailed) as failed:
        sink_of(reader)
    assert ("storage_refused", "403 AccessDenied") == (failed.value.code, failed.value.cause)
    with pytest.raises(ArtifactsUnavailable):
        reader.check()
    (wrong,) = [(what, do) for level, what, do in reader.examine(0) if level == "FAIL"]
    assert "403 AccessDenied" in wrong[0]
    assert "[objects]" in wrong[1]


def test_wrong_keys_say_nothing_about_files(place):
    publish(place.open(), write(place.open()))
    wrong = place.open(secret_key="not that one")

    for act in (lambda: wrong.open(KEY), lambda: wrong.remove(KEY), wrong.keys, wrong.check):
        with pytest.raises(ArtifactsUnavailable) as refused:
            act()
        assert "403" in str(refused.value)
        assert "not that one" not in str(refused.value)
    assert [KEY] == place.open().keys()


def test_without_any_keys_the_usual_places_are_looked_at(place, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEYS["access_key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEYS["secret_key"])
    assert [] == place.open(access_key=None, secret_key=None).keys()

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    with pytest.raises(BuildFailed) as failed:
        sink_of(place.open(access_key=None, secret_key=None))
    assert ("storage_refused", "401 NoCredentialsError") == (failed.value.code, failed.value.cause)


def test_a_bucket_that_is_not_there_says_nothing_about_files(place, objects_server, tmp_path):
    nowhere = ObjectArtifacts("s3://no-such-bucket/here", objects_server.settings(tmp_path / "work"))

    with pytest.raises(ArtifactsUnavailable, match="no such bucket"):
        nowhere.open(KEY)
    with pytest.raises(ArtifactsUnavailable, match="no such bucket"):
        nowhere.keys()
    assert any("no such bucket" in what for level, what, _do in nowhere.examine(0) if level == "FAIL")


@pytest.mark.parametrize("within", ["files", "files/deep/er"])
def test_a_prefix_inside_that_of_another_store_is_refused_before_its_sweep_takes_it_away(
    artifacts, place, objects_server, tmp_path, within
):
    publish(artifacts, write(artifacts))
    settings = objects_server.settings(tmp_path / "other")
    inner = ObjectArtifacts(f"{artifacts.place}/{within}", settings, "1" * 16)
    for act in (inner.keys, inner.check):
        with pytest.raises(FileExistsError, match="lies inside the artifacts of another store"):
            act()

    assert [KEY] == artifacts.keys()
    beside = ObjectArtifacts(f"{artifacts.place}/beside/files", settings, "1" * 16)
    assert [] == beside.keys()


def test_what_lies_beside_our_objects_is_named_and_stays(artifacts, place):
    publish(artifacts, write(artifacts))
    others = ("notes.txt", "folder/deep/one", "folder/two")
    for name in others:
        place.server.write(f"{place.prefix}{name}", b"somebody's")

    named = [what for level, what, _do in artifacts.examine(0) if level == "WARN" and "none of" in what]
    assert ["folder/", "notes.txt"] == [what.partition(" is none of Haulage's files")[0] for what in named]
    assert [KEY] == artifacts.keys()
    for name in others:
        place.server.delete(f"{place.prefix}{name}")


def test_a_prefix_that_was_emptied_says_nothing_about_single_files(artifacts, place):
    publish(artifacts, write(artifacts))
    artifacts.remove(KEY)
    with pytest.raises(FileNotFoundError) as gone:
        artifacts.open(KEY)
    assert not isinstance(gone.value, ArtifactsUnavailable)

    place.server.delete(f"{place.prefix}.haulage")
    with pytest.raises(ArtifactsUnavailable, match="it was emptied"):
        artifacts.open(KEY)


def test_a_server_that_is_not_there_is_an_unavailable_place(tmp_path):
    from tests.ports import free_port

    settings = ObjectSettings(f"http://127.0.0.1:{free_port()}", "us-east-1", "k", "s", work=str(tmp_path))
    nowhere = ObjectArtifacts("s3://bucket", settings)
    for act in (lambda: nowhere.open(KEY), nowhere.keys, nowhere.check):
        with pytest.raises(ArtifactsUnavailable, match="EndpointConnectionError"):
            act()
    with pytest.raises(BuildFailed) as failed:
        sink_of(nowhere)
    assert "storage_failed" == failed.value.code


@pytest.mark.parametrize(
    ("status", "code", "failure", "again"),
    [
        (507, "XMinioStorageFull", "no_space", False),
        (400, "XMinioAdminBucketQuotaExceeded", "no_space", False),
        (403, "QuotaExceeded", "no_space", False),
        (403, "AccessDenied", "storage_refused", False),
        (403, "RequestTimeTooSkewed", "storage_refused", False),
        (401, "NoCredentialsError", "storage_refused", False),
        (404, "NoSuchUpload", "storage_failed", False),
        (500, "InternalError", "storage_failed", True),
        (503, "SlowDown", "storage_failed", True),
        (0, "ConnectionResetError", "storage_failed", True),
    ],
)
def test_what_a_server_says_becomes_one_of_our_codes(status, code, failure, again):
    from haulage.artifacts.upload import failure_of, worth_another_try

    assert (failure, again) == (failure_of(status, code), worth_another_try(status))


@pytest.fixture
def silent(monkeypatch, tmp_path):
    """A server that takes connections and never says a word; patience is short, for the sake of the test."""
    monkeypatch.setattr("haulage.artifacts.bucket.ANSWER_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0), backlog=50) as listening:
        endpoint = f"http://127.0.0.1:{listening.getsockname()[1]}"
        settings = ObjectSettings(endpoint=endpoint, work=str(tmp_path), access_key="a", secret_key="b")
        yield ObjectArtifacts("s3://bucket/prefix", settings)


@pytest.mark.parametrize("asked", ["upload", "keys", "remove"])
def test_a_server_that_says_nothing_is_given_up(silent, asked):
    ask = {
        "upload": lambda: silent.upload(KEY, 5 * MIB, 60),
        "keys": silent.keys,
        "remove": lambda: silent.remove(KEY),
    }
    with pytest.raises((BuildFailed, ArtifactsUnavailable), match=r"could not be written|ReadTimeout"):
        ask[asked]()


def test_a_missing_library_is_named_with_what_to_install(monkeypatch, tmp_path):
    from haulage.artifacts import open as opening
    from haulage.core.errors import ConfigInvalid

    monkeypatch.setattr(opening, "find_spec", lambda _name: None)
    with pytest.raises(ConfigInvalid, match=r"pip install 'haulage\[s3\]'"):
        opening.open_artifacts("s3://bucket/prefix", ObjectSettings())
    opening.open_artifacts(f"file:{tmp_path}", ObjectSettings()).prepare()


def test_no_bucket_is_asked_before_it_is_needed(tmp_path):
    """``haulage runs list`` must not wait for a bucket, nor load what reaches it."""
    program = (
        "import sys; from haulage.artifacts.open import open_artifacts; from haulage.config import ObjectSettings;"
        f"open_artifacts('s3://bucket/x', ObjectSettings('http://127.0.0.1:1', work='{tmp_path}')).prepare();"
        "print(*sys.modules)"
    )
    began = time.monotonic()
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert "haulage.artifacts.objects" in told
    assert "botocore" not in told
    assert time.monotonic() - began < 60

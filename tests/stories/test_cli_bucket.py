"""The command line where files lie in a bucket: the configuration, an export, the doctor, and taking it all away."""

from __future__ import annotations

import hashlib

import pytest
from tests.objects_proxy import Proxy
from tests.objects_server import KEYS, READER
from tests.ports import free_port
from tests.stories.terminal import CONFIGURATION, SECRET, Terminal

pytestmark = pytest.mark.slow

IN_A_BUCKET = """
[objects]
endpoint = "{endpoint}"
region = "us-east-1"
access_key = "env:TEST_ACCESS_KEY"
secret_key = "file:bucket.key"
"""
CONFIGURED = CONFIGURATION.replace('[datasets.broken]\nsource = "shop"\nsql = "select missing from nowhere"\n', "")


@pytest.fixture
def terminal(tmp_path, place):
    return in_a_bucket(Terminal(tmp_path), place, place.server.endpoint)


def in_a_bucket(terminal, place, endpoint, more="", **keys):
    keys = {**KEYS, **keys}
    text = CONFIGURED.replace('artifacts = "file:./artifacts"', f'artifacts = "{place.url}"')
    terminal.shop(configuration=text + IN_A_BUCKET.format(endpoint=endpoint) + more)
    (terminal.folder / "bucket.key").write_text(keys["secret_key"] + "\n")
    terminal.environ["TEST_ACCESS_KEY"] = keys["access_key"]
    return terminal


def test_an_export_goes_through_the_bucket_and_comes_out_whole(terminal, place):
    answer = terminal.run("export", "orders", "-o", "orders.csv", "--json")

    assert 0 == answer.code, answer.err
    (content,) = place.objects().values()
    assert (terminal.folder / "orders.csv").read_bytes() == content
    assert hashlib.sha256(content).hexdigest() == answer.document["file"]["sha256"]
    assert [] == place.uploads()
    assert not (terminal.folder / "artifacts").exists()
    checked = terminal.run("doctor", "--check")
    assert 0 == checked.code, checked.out
    assert "OK    files: 1 whole and as written" in checked.out
    assert 0 == terminal.run("runs", "expire", answer.document["id"]).code
    terminal.run("sweep")
    assert {} == place.objects()


def test_the_doctor_tries_out_everything_that_is_asked_of_a_bucket(terminal, place):
    terminal.run("export", "orders", "-o", "orders.csv")
    doctor = terminal.run("doctor", HAULAGE_OBJECTS__DOWNLOAD="redirect")

    assert 0 == doctor.code, doctor.out
    for found in (
        "an object can be written, listed and read",
        "a client can be sent to a signed address",
        "bytes that were changed on their way are refused",
        "an object can be removed",
        "an unfinished upload can be found and aborted",
    ):
        assert f"OK    artifacts: {found}" in doctor.out
    assert 1 == len(place.objects())
    assert KEYS["secret_key"] not in doctor.out + doctor.err


@pytest.mark.parametrize("trouble", ["keys that may only read", "a wrong secret", "nobody there", "no such bucket"])
def test_the_doctor_names_what_is_wrong_with_a_bucket(terminal, place, trouble):
    terminal.run("export", "orders", "-o", "orders.csv")
    changes = {
        "keys that may only read": {"HAULAGE_OBJECTS__ACCESS_KEY": READER["access_key"],
                                    "HAULAGE_OBJECTS__SECRET_KEY": READER["secret_key"]},
        "a wrong secret": {"HAULAGE_OBJECTS__SECRET_KEY": "wrong-secret-of-nobody"},
        "nobody there": {"HAULAGE_OBJECTS__ENDPOINT": f"http://127.0.0.1:{free_port()}"},
        "no such bucket": {"HAULAGE_ARTIFACTS": "s3://nobody-made-this"},
    }[trouble]  # fmt: skip
    said = {
        "keys that may only read": "403 AccessDenied; let the keys of [objects] write",
        "a wrong secret": "403 SignatureDoesNotMatch; let the keys of [objects] write",
        "nobody there": "EndpointConnectionError; see objects.endpoint",
        "no such bucket": "there is no such bucket; make it, or name another in artifacts",
    }[trouble]

    doctor = terminal.run("doctor", "--check", **changes)

    assert 1 == doctor.code
    assert said in doctor.out
    assert "Traceback" not in doctor.out + doctor.err
    assert "wrong-secret-of-nobody" not in doctor.out + doctor.err


def test_an_export_whose_bucket_refuses_says_so_and_leaves_nothing(terminal, place, monkeypatch):
    from haulage.worker import lanes

    monkeypatch.setattr(lanes, "REMOVE_RETRY_SECONDS", 0)
    answer = terminal.run("export", "orders", "-o", "orders.csv", HAULAGE_OBJECTS__SECRET_KEY="wrong-secret-of-nobody")

    assert 1 == answer.code
    assert "storage_refused" in answer.err
    assert "wrong-secret-of-nobody" not in answer.out + answer.err
    assert not (terminal.folder / "orders.csv").exists()
    terminal.run("sweep")
    assert ({}, []) == (place.objects(), place.uploads())


def test_commands_that_need_no_bucket_do_not_wait_for_it(terminal, place):
    terminal.run("export", "orders", "-o", "orders.csv")
    proxy = Proxy(place.server.ports["s3.port"])
    proxy.down()
    nowhere = {"HAULAGE_OBJECTS__ENDPOINT": proxy.endpoint}

    assert 0 == terminal.run("runs", "list", **nowhere).code
    assert 0 == terminal.run("datasets", **nowhere).code
    swept = terminal.run("sweep", **nowhere)
    assert 1 == swept.code
    assert "could not be removed, the next sweep tries again: orphans: EndpointConnectionError" in swept.err


def test_taking_the_schema_away_takes_the_objects_too(terminal, place):
    terminal.run("export", "orders", "-o", "orders.csv")
    place.server.client.create_multipart_upload(Bucket=place.url.split("/")[2], Key=f"{place.prefix}files/half")
    place.server.write(f"{place.prefix}elsewhere", b"not ours")

    assert 0 == terminal.run("migrate", "down", "--yes").code

    assert ({}, []) == (place.objects(), place.uploads())
    assert {"elsewhere"} == set(place.server.objects(place.prefix))


def test_another_store_is_refused_the_prefix_until_it_adopts_it(terminal, place):
    terminal.run("export", "orders", "-o", "orders.csv")
    other = {"HAULAGE_STORE": "sqlite:///other.db", "HAULAGE_OBJECTS__WORK": "other-work"}

    refused = terminal.run("sweep", **other)
    assert "orders" not in refused.err
    assert 1 == refused.code
    assert 1 == len(place.objects())
    doctor = terminal.run("doctor", **other)
    assert "holds the files of another store" in doctor.out

    assert 0 == terminal.run("sweep", "--adopt", **other).code
    assert {} == place.objects()


def test_what_cannot_work_is_told_with_every_fault_at_once(terminal):
    text = terminal.config.read_text()
    text = text.replace("s3://haulage-tests/", "s3://Haulage/").replace('secret_key = "file:bucket.key"\n', "")
    text = text.replace("http://127", "ftp://127") + 'download = "both"\npart_bytes = "1 MiB"\nbuckett = 1\n'
    terminal.config.write_text(text)

    answer = terminal.run("doctor")

    assert 2 == answer.code
    for fault in (
        'names no bucket; write "s3://bucket/prefix"',
        'is not the address of a server; write "https://objects.example"',
        "objects.access_key and objects.secret_key belong together; write both, or none",
        'objects.download = "both": is no way to download',
        "objects.part_bytes = 1048576: is no size of a part that every server takes",
        "objects.buckett: there is no such key",
    ):
        assert fault in answer.out, answer.out


def test_a_secret_of_a_bucket_in_a_readable_file_is_warned_of(terminal):
    text = terminal.config.read_text().replace('"file:bucket.key"', f'"{KEYS["secret_key"]}"')
    terminal.config.write_text(text.replace(f'"{SECRET}"', '"env:TEST_SECRET"'))
    terminal.config.chmod(0o644)

    answer = terminal.run("runs", "list", TEST_SECRET=SECRET)

    assert "holds secrets and every user of this host can read it" in answer.err
    assert KEYS["secret_key"] not in answer.err

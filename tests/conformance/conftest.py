"""The fixture that makes one suite out of every store with every flow."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.conformance.cases import Case, pairs

MEMORY = "/dev/shm"  # a commit waits for the disk; thousands of them in a test need not


@contextmanager
def make_folder():
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="haulage-test-", dir=place) as made:
        yield Path(made)


@pytest.fixture
def folder():
    with make_folder() as made:
        yield made


@pytest.fixture(params=pairs())
def case(request, folder):
    opened = Case(*request.param, folder)
    yield opened
    drift = opened.runs.drift()
    opened.store.close()
    opened.opener.done(opened.url)

    assert [] == drift  # whatever a test did: counters that the database keeps are those of the runs

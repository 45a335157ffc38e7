"""Process tests build their own house; everything that a house starts, it ends."""

from __future__ import annotations

import pytest

from tests.process.house import LIMITS, House


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/process" in item.path.as_posix():
            item.add_marker(pytest.mark.process)


@pytest.fixture
def house(tmp_path, request):
    """A house with short limits; a test marks itself with other limits by indirect parameters."""
    built = House(tmp_path, getattr(request, "param", LIMITS))
    yield built
    built.close()

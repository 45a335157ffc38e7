"""The one good reason not to run a test: what it tests was never promised."""

from __future__ import annotations

import pytest


class NotPromised(pytest.skip.Exception):
    """This store, or this life, has no such capability."""

"""What the tests of the configuration begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from haulage.config import load
from haulage.core.errors import ConfigInvalid

SECRET = "kJ8s-2hd0qLx7Zp4Wm1Rv6Tt3Yy9Uu5I"
HASH = "sha256:" + "0123456789abcdef" * 4
SMALLEST = f'secret_keys = ["{SECRET}"]\n'
SHOP = SMALLEST + '[sources.shop]\nurl = "sqlite:///shop.db"\n'
FORMATS = ("csv", "json", "ndjson")


def writer(folder: Path):
    """Writes a configuration into a folder, for its owner alone."""

    def write(text):
        path = folder / "haulage.toml"
        path.write_text(text)
        path.chmod(0o600)
        return path

    return write


def faults_of(path: Path, environ=None, **known):
    with pytest.raises(ConfigInvalid) as refused:
        load(path, environ or {}, **({"formats": FORMATS, "schemes": ("sqlite",)} | known))
    return refused.value.faults


def only_fault(path: Path, environ=None):
    (fault,) = faults_of(path, environ)
    return fault

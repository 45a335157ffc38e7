"""Opening what a configuration describes, for one command."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from haulage.cli.terminal import Fault, say

if TYPE_CHECKING:
    from haulage.app import Haulage
    from haulage.config import Settings


@contextmanager
def opened(config: Path, *, level: int = logging.WARNING, migrate_new: bool = True) -> Iterator[Haulage]:
    """The Haulage of a configuration, with the Python datasets of the application that it names.

    Raises:
        ConfigInvalid, SchemaMismatch, StoreUnavailable: see ``Haulage.find``.
    """
    from haulage.app import Haulage
    from haulage.telemetry.log import to_stderr

    to_stderr(level)
    find_beside(config)
    try:
        haul = Haulage.find(config, migrate_new=migrate_new)
    except OSError as problem:
        raise Fault(f"{problem.filename or config}: {problem.strerror}") from problem
    for warning in haul.settings.warnings:
        say(f"warning: {warning}")
    try:
        yield haul
    finally:
        haul.close()


def read_settings(config: Path) -> Settings:
    """The settings alone, for commands that must work where the store does not.

    Raises:
        ConfigInvalid: with every fault.
    """
    from haulage.config import load
    from haulage.formats import FORMATS
    from haulage.sources import SOURCES

    return load(config, os.environ, formats=FORMATS, schemes=SOURCES)


def find_beside(config: Path) -> None:
    """Let ``app = "module:name"`` be found beside the configuration, after everything that is installed."""
    folder = str(config.absolute().parent)
    if folder not in sys.path:
        sys.path.append(folder)


def need_web() -> None:
    """See that the web extra is there.

    Raises:
        Fault: with what to install.
    """
    missing = [name for name in ("fastapi", "uvicorn") if find_spec(name) is None]
    if missing:
        raise Fault(f"{' and '.join(missing)} not found; install the web extra: pip install 'haulage[web]'")

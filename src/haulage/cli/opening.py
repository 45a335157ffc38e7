"""Opening what a configuration describes, for one command: all of it, or only what is declared."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from haulage.cli.terminal import Fault, say
from haulage.core.errors import StoreUnavailable

if TYPE_CHECKING:
    from haulage.app import Haulage
    from haulage.config import Settings
    from haulage.core.catalogue import Catalogue
    from haulage.core.source import Source


@contextmanager
def opened(config: Path, *, level: int = logging.WARNING, migrate_new: bool = True) -> Iterator[Haulage]:
    """The Haulage of a configuration, with the Python datasets of the application that it names.

    Raises:
        ConfigInvalid, SchemaMismatch: see ``Haulage.find``.
        StoreUnavailable: also while the command runs; the message names the store.
    """
    from haulage.app import Haulage
    from haulage.telemetry.log import to_stderr

    to_stderr(level)
    find_beside(config)
    with naming_the_store(config):
        try:
            haul = Haulage.find(config, migrate_new=migrate_new)
        except OSError as problem:
            what = f"{problem.filename}: {problem.strerror}" if problem.filename else str(problem)
            raise Fault(f"{what}; see artifacts in {config}") from problem
        warn(haul.settings)
        try:
            yield haul
        finally:
            haul.close()


@dataclass(frozen=True, slots=True)
class Declared:
    """What can be exported, and from where: all that a look at datasets needs. There may be no store yet."""

    settings: Settings
    catalogue: Catalogue

    def source(self, name: str) -> Source:
        """A source by its name in the configuration."""
        from haulage.sources import open_source

        found = self.settings.sources[name]
        return open_source(found.url, found.busy_seconds)


@contextmanager
def declared(config: Path) -> Iterator[Declared]:
    """The datasets of a configuration. Only those of an application need the store: it opens it itself.

    Raises:
        ConfigInvalid: with every fault.
    """
    settings = read_settings(config)
    if settings.app is not None:
        with opened(config) as haul:
            yield Declared(haul.settings, haul.catalogue)
        return
    warn(settings)
    yield declared_in(settings)


def declared_in(settings: Settings) -> Declared:
    """The datasets that stand in the file."""
    from haulage.core.catalogue import Catalogue

    catalogue = Catalogue()
    for parent in settings.parents:
        catalogue.add_parent(parent)
    for dataset in settings.datasets:
        catalogue.add(dataset)
    return Declared(settings, catalogue)


def read_settings(config: Path) -> Settings:
    """The settings alone, for commands that must work where the store does not.

    Raises:
        ConfigInvalid: with every fault.
    """
    from haulage.config import load
    from haulage.formats import FORMATS
    from haulage.sources import SOURCES

    return load(config, os.environ, formats=FORMATS, schemes=SOURCES)


def store_file(settings: Settings) -> Path | None:
    """The file or folder of the store, which may not be there yet; None where it is a database on a server."""
    if settings.store.startswith("directory:"):
        from haulage.stores.directory.store import directory_path

        return directory_path(settings.store)
    scheme, _, place = settings.store.partition(":///")
    return Path(place) if scheme == "sqlite" else None


def what_to_do(settings: Settings, problem: StoreUnavailable) -> str:
    """What helps against a store that does not answer."""
    if store_file(settings) is None and "read-only" in str(problem):  # a standby, or a server told to be one
        return "name the server that takes writes in store"
    if store_file(settings) is None:
        return "see that the server runs, that this host reaches it, and that user and password are right"
    return (
        "let this user read and write that file and its folder, see that its disk has space, or name another in store"
    )


@contextmanager
def naming_the_store(config: Path) -> Iterator[None]:
    """Say which store does not answer, and what to do: its driver says neither."""
    try:
        yield
    except StoreUnavailable as problem:
        from haulage.config.faults import masked

        settings = read_settings(config)
        what = f"the store {masked(settings.store)} cannot be used: {problem}"
        if "; " not in what:  # else it says what to do
            what += f"; {what_to_do(settings, problem)}"
        raise StoreUnavailable(what) from problem


def warn(settings: Settings) -> None:
    """Say what works but should not stay so."""
    for warning in settings.warnings:
        say(f"warning: {warning}")


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

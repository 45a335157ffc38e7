"""Haulage: from settings to store, artifacts, catalogue and doors. The only place where they are tied together."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haulage import __version__
from haulage.accounts import Accounts
from haulage.artifacts.open import open_artifacts
from haulage.config import Settings, imported, load
from haulage.core import events
from haulage.core.catalogue import Catalogue
from haulage.core.errors import ConfigInvalid, StoreUnavailable
from haulage.core.requester import Requester
from haulage.core.source import Source
from haulage.declaring import Declares
from haulage.exports.access import access_at_run
from haulage.exports.expire import ExportSweep
from haulage.exports.life import ExportRun
from haulage.exports.request import Exports
from haulage.formats import FORMATS
from haulage.sources import SOURCES, open_source, scheme_of
from haulage.stores import open_store
from haulage.telemetry.log import apart, log
from haulage.worker.supervisor import Supervisor
from haulage.worker.sweeper import Sweeper

if TYPE_CHECKING:
    from haulage.stores import AnyStore
    from haulage.web.app import Authenticate


class Haulage(Declares):
    """One Haulage: its settings, its store and artifacts, and the services on them.

    Args:
        settings: from ``haulage.toml`` (``Haulage.from_toml``) or made by hand.
        environ: where ``HAULAGE_*`` and ``env:NAME`` are read from when keys are read again.
        observe: told of everything that happens; writes log lines by default. What it raises is logged, and changes
            nothing.

    Raises:
        ValueError: a place, or the name of a dataset, cannot be used; ``from_toml`` tells every fault at once.
        SchemaMismatch: the store's schema is not this version's; the message says which command helps.
        StoreUnavailable: the store cannot be opened.
        OSError: the folder for artifacts cannot be made, or is not this store's.

    Attributes:
        exports: the export service, the same as behind HTTP.
        catalogue: the datasets.
        operator: who the command line acts as.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        environ: Mapping[str, str] | None = None,
        observe: events.Observe = log,
        migrate_new: bool = True,
    ) -> None:
        """Open the store and make the folder for artifacts."""
        self.settings = settings
        self.observe = observe = apart(observe)
        self.catalogue = Catalogue()
        for parent in settings.parents:
            self.catalogue.add_parent(parent)
        for dataset in settings.datasets:
            self.catalogue.add(dataset)
        self.accounts = Accounts(settings, os.environ if environ is None else environ, observe)
        self.store: AnyStore = open_store(settings.store, settings.exports, migrate_new=migrate_new, observe=observe)
        try:
            self.artifacts = open_artifacts(settings.artifacts, settings.objects, self.store.identity())
            self.artifacts.prepare()
        except BaseException:
            self.store.close()
            raise
        self.exports = Exports(
            self.store,
            self.artifacts,
            self.catalogue,
            open_source=self.source,
            limits=settings.exports,
            doors=settings.doors,
            standing=self.accounts.standing,
            observe=observe,
        )

    @classmethod
    def from_toml(
        cls, path: str | Path = "haulage.toml", *, environ: Mapping[str, str] | None = None, **options: Any
    ) -> Haulage:
        """Open what a configuration file describes.

        Raises:
            ConfigInvalid: the file has faults; all of them are named, with what to write instead.

        Example:
            >>> haul = Haulage.from_toml("haulage.toml")
        """
        environ = os.environ if environ is None else environ
        return cls(_load(path, environ), environ=environ, **options)

    @classmethod
    def find(
        cls, path: str | Path = "haulage.toml", *, environ: Mapping[str, str] | None = None, **options: Any
    ) -> Haulage:
        """Open what a file describes, with the Python datasets of the application it names in ``app``.

        Raises:
            ConfigInvalid: as ``from_toml``, and when ``app`` does not lead to a Haulage.
        """
        environ = os.environ if environ is None else environ
        settings = _load(path, environ)
        if settings.app is None:
            return cls(settings, environ=environ, **options)
        folder = str(Path(path).absolute().parent)
        if folder not in sys.path:
            sys.path.insert(0, folder)  # As a web server does: the application lies beside its configuration.
        found = imported(settings.app, Path(path).name)
        if not isinstance(found, cls):
            fault = f'app = "{settings.app}" is of type {type(found).__name__}; write module:name of your Haulage'
            raise ConfigInvalid([fault], Path(path).name)
        return found

    # -- services --------------------------------------------------------------------------------------

    @property
    def operator(self) -> Requester:
        """Who the command line acts as."""
        return self.settings.operator

    def source(self, name: str) -> Source:
        """A source by its name in the configuration.

        Raises:
            KeyError: it is not configured.
        """
        return open_source(*self._source_of(name))

    def _source_of(self, name: str) -> tuple[str, float]:
        settings = self.settings.sources[name]
        return settings.url, settings.busy_seconds

    def asgi(self, authenticate: Authenticate | None = None) -> Any:
        """The web application: stand-alone with keys and sign-in, or mounted in a host.

        Args:
            authenticate: gets the host's request and answers a Requester with its session id, or None. With
                it, Haulage sets no cookie and asks nobody to sign in.

        Raises:
            ImportError: the extra ``web`` is not installed.

        Example:
            >>> exports = haul.asgi(authenticate=lambda request: Requester("north", request.user.name))
        """
        try:
            from haulage.web.app import Services, create_app
        except ModuleNotFoundError as problem:
            if (problem.name or "").startswith("haulage"):
                raise
            why = f"{problem.name} not found; install the web extra: pip install 'haulage[web]'"
            raise ImportError(why, name=problem.name) from problem

        sweep = _leave_it if self.store.one_tenant else self.sweeper().pass_once
        return create_app(
            Services(
                exports=self.exports,
                store=self.store,
                artifacts=self.artifacts,
                catalogue=self.catalogue,
                accounts=self.accounts,
                secret_keys=self.settings.secret_keys,
                limits=self.settings.exports,
                doors=self.settings.doors,
                sweep=sweep,
                observe=self.observe,
                version=__version__,
            ),
            authenticate,
        )

    def sweeper(self) -> Sweeper:
        """The sweep, as a loop or one pass."""
        sweep = ExportSweep(self.store, self.artifacts, self.settings.exports, self.observe, self.exports.parents)
        return Sweeper(sweep, self.settings.exports.sweep_seconds, self.observe)

    def supervisor(self, lanes: int | None = None, only_run: str | None = None) -> Supervisor:
        """One worker; its ``run`` blocks until it is drained.

        Raises:
            StoreUnavailable: the store is entered as a role that acts for one tenant at a time.
        """
        if self.store.one_tenant:
            raise StoreUnavailable("this role acts for one tenant at a time; let workers connect as haulage_worker")
        return Supervisor(
            self.store,
            self.artifacts,
            self.settings.exports,
            self.sweeper(),
            source_of=self._source_of,
            permit=self._permit,
            revision=self.exports.policies.at_build,
            lanes=lanes or self.settings.lanes,
            version=__version__,
            only_run=only_run,
            loads=sorted({scheme_of(each.url) for each in self.settings.sources.values()}),
            observe=self.observe,
        )

    def _permit(self, run: ExportRun) -> None:
        access_at_run(run, self.catalogue, self.accounts.standing, self.exports.parents.of_run)

    def close(self) -> None:
        """Give every connection back."""
        self.store.close()


def _leave_it() -> None:
    """No sweep: whoever acts for one tenant at a time does not know what is due, or whose bytes nobody promises."""


def _load(path: str | Path, environ: Mapping[str, str]) -> Settings:
    return load(Path(path), environ, formats=FORMATS, schemes=SOURCES)

"""Haulage: from settings to store, artifacts, catalogue and doors. The only place where they are tied together."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from haulage import __version__
from haulage.accounts import Accounts
from haulage.artifacts.open import open_artifacts
from haulage.config import Known, Settings, dataset_faults, imported, known_of, load, with_session
from haulage.config.grouping import dimensions_of, measures_of
from haulage.core import events
from haulage.core.catalogue import Catalogue, Column, Dataset, Dimension, Measure, Pages
from haulage.core.errors import ConfigInvalid, StoreUnavailable
from haulage.core.limits import BuildLimits
from haulage.core.pages import PAGE_BYTES, PAGE_ROWS, Page, place_of
from haulage.core.parents import BIND, OwnersFunction, Parent
from haulage.core.ports import Source
from haulage.core.requester import Requester
from haulage.exports.access import Standing, access_at_run
from haulage.exports.expire import ExportSweep
from haulage.exports.gone import Gone
from haulage.exports.life import ExportRun
from haulage.exports.request import Exports
from haulage.exports.signature import parameters_of
from haulage.formats import FORMATS
from haulage.sources import SOURCES, open_source
from haulage.stores import open_store
from haulage.telemetry.log import apart, log
from haulage.worker.supervisor import Supervisor
from haulage.worker.sweeper import Sweeper

if TYPE_CHECKING:
    from haulage.stores import AnyStore
    from haulage.web.app import Authenticate

Function = Callable[..., str]
PageFunction = TypeVar("PageFunction", bound=Callable[..., Page | tuple[Any, ...]])
Revision = Callable[[Requester], str | int | None]
ParentFunction = TypeVar("ParentFunction", bound=OwnersFunction)
PAGE_ARGUMENTS = 3  # that every page function gets: requester, cursor, limit


class Haulage:
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

    # -- declaring -----------------------------------------------------------------------------------

    def dataset(
        self,
        name: str,
        *,
        source: str,
        label: str = "",
        description: str = "",
        permission: str | None = None,
        parent: str | None = None,
        hidden: Sequence[str] = (),
        visible: str | None = None,
        policy_revision: Revision | str | None = None,
        key: Sequence[str] = (),
        order: Sequence[str] = (),
        columns: Mapping[str, Column] | None = None,
        dimensions: Sequence[str | Dimension] | Mapping[str, str] = (),
        measures: Sequence[Measure] | Mapping[str, str] = (),
        formats: Sequence[str] = ("csv",),
        on_worker_loss: Literal["fail", "rerun"] = "fail",
        verify: Literal["end", "full"] = "end",
        parallel: int = 1,
        limits: BuildLimits | None = None,
    ) -> Callable[[Function], Function]:
        """Declare a dataset whose query a Python function answers; its parameters are typed by annotations.

        Annotations: ``str int Decimal bool date datetime``, ``Literal[...]`` for a choice, ``list[...]`` for
        several values, ``... | None`` for one that may be left out.

        Args:
            policy_revision: a query on the source, or a function of the requester: what may be seen now, as one
                value. A file is handed over only while it is what it was at the build.
            dimensions: what rows can be grouped by: columns, or a name for each.
            measures: a name for each of ``count``, ``count_distinct(a)``, ``sum(a)`` and their kin.

        Raises:
            ConfigInvalid: there is no such source or format, or an order, a default or a bound name cannot work;
                every fault at once.
            ValueError: the name is taken or malformed, or it comes after the first request.
            TypeError: an annotation is none of the above.

        Example:
            >>> @haul.dataset("orders", source="shop", key=["id"], formats=["csv", "json"])
            ... def orders(since: date = date(2000, 1, 1)) -> str:
            ...     return "select id, total, placed_at from orders where placed_at >= :since"
        """

        def declare(function: Function) -> Function:
            dataset = Dataset(
                name=name,
                source=source,
                label=label or name.replace("_", " ").capitalize(),
                description=description or (function.__doc__ or "").strip().partition("\n")[0],
                permission=permission,
                parent=parent,
                function=function,
                parameters=parameters_of(function),
                columns=columns or {},
                hidden=tuple(hidden),
                visible=visible,
                policy_revision=policy_revision,
                key=tuple(key),
                order=tuple(order),
                dimensions=dimensions_of(dimensions),
                measures=measures_of(measures),
                formats=tuple(formats),
                on_worker_loss=on_worker_loss,
                verify=verify,
                parallel=parallel,
                limits=limits,
            )
            if faults := dataset_faults(dataset, self._known()):
                raise ConfigInvalid(faults, f"dataset {name}")
            self.catalogue.add(with_session(dataset, self.settings.sources))
            return function

        return declare

    def pages(
        self,
        name: str,
        *,
        columns: Mapping[str, Column],
        label: str = "",
        description: str = "",
        permission: str | None = None,
        parent: str | None = None,
        key: Sequence[str] = (),
        count: Callable[..., int | None] | None = None,
        policy_revision: Revision | None = None,
        page_rows: int = PAGE_ROWS,
        page_bytes: int = PAGE_BYTES,
        environment: Mapping[str, str] | None = None,
        formats: Sequence[str] = ("csv",),
        on_worker_loss: Literal["fail", "rerun"] = "fail",
        verify: Literal["end", "full"] = "end",
        limits: BuildLimits | None = None,
    ) -> Callable[[PageFunction], PageFunction]:
        """Declare a dataset whose rows a Python function answers page by page, as an API does.

        The function gets the requester, the cursor (None for the first page) and how many rows it may answer, and
        then the parameters, typed by annotations as those of ``dataset``. It is imported and called in the process
        that builds a file, by the name of its module; nothing is opened there when a module opens a ``Haulage``.

        Args:
            columns: header and type of every column of a row, by key.
            key: what identifies a row, where the order of the pages is certain.
            count: answers how many rows there will be, or None; gets the requester and the parameters.
            environment: what the function finds in ``os.environ``; ``"env:NAME"`` is taken from the worker's.

        Raises:
            ConfigInvalid, ValueError, TypeError: as ``dataset``.

        Example:
            >>> @haul.pages("tickets", columns={"id": Column("id", "No.", "integer")}, key=["id"])
            ... def tickets(requester: Requester, cursor: int | None, limit: int, status: str = "open") -> Page:
            ...     found = api.tickets(requester.tenant, status, after=cursor or 0, limit=limit)
            ...     return Page([{"id": each.id} for each in found], found[-1].id if len(found) == limit else None)
        """

        def declare(function: PageFunction) -> PageFunction:
            dataset = Dataset(
                name=name,
                source="",
                label=label or name.replace("_", " ").capitalize(),
                description=description or (function.__doc__ or "").strip().partition("\n")[0],
                permission=permission,
                parent=parent,
                pages=Pages(
                    place_of(function), count and place_of(count), page_rows, page_bytes, dict(environment or {})
                ),
                count=count,
                policy_revision=policy_revision,
                parameters=parameters_of(function, PAGE_ARGUMENTS, leave_out=() if parent is None else (BIND,)),
                columns=columns,
                key=tuple(key),
                formats=tuple(formats),
                on_worker_loss=on_worker_loss,
                verify=verify,
                limits=limits,
            )
            if faults := dataset_faults(dataset, self._known()):
                raise ConfigInvalid(faults, f"dataset {name}")
            self.catalogue.add(dataset)
            return function

        return declare

    def _known(self) -> Known:
        return known_of(self.settings.sources, FORMATS, self.catalogue.parent_kinds)

    def parent(
        self, kind: str, *, label: str = "", type: Literal["text", "integer"] = "text"
    ) -> Callable[[ParentFunction], ParentFunction]:
        """Declare a kind of parent that exports can belong to, and who says whose one is; before its datasets.

        The function gets a tenant and an id and answers the account that the parent belongs to now, or a set of
        several; ``None`` when there is no such parent, or not any more: then its exports are removed. Where it cannot
        know, it raises. It is asked each time: at the request, at the run, at each look and while a file is fetched.

        Raises:
            ValueError: the kind is taken or malformed, or it comes after the first request.

        Example:
            >>> @haul.parent("book", type="integer")
            ... def owner_of_book(tenant: str, book: int) -> str | None:
            ...     return "amina" if book == 7 else None
        """

        def declare(function: ParentFunction) -> ParentFunction:
            said = label or kind.replace("_", " ").capitalize()
            self.catalogue.add_parent(Parent(kind, said, type, function=function))
            return function

        return declare

    def parent_gone(self, kind: str, parent: str | int, *, tenant: str) -> Gone:
        """Tell that a parent is not there any more; call it when it was deleted. What it says is believed.

        Its exports that wait or run are cancelled, its files are removed. Without this call the sweep finds out by
        asking, which takes it a while.

        Raises:
            Refused: ``invalid`` for what can be no id of that kind.

        Example:
            >>> owner_of_book = haul.parent("book")(lambda tenant, book: None)
            >>> haul.parent_gone("book", "7", tenant="north").cancelled
            0
        """
        return self.exports.parent_gone(tenant, kind, parent)

    def standing(self, function: Standing) -> Standing:
        """Tell Haulage how the host's accounts stand today; used as a decorator.

        The function gets the requester as it was at the request and answers it as it is now: with the grants
        of today, or ``banned=True``. It is asked before a run starts and while a file is fetched.

        Example:
            >>> @haul.standing
            ... def as_of_now(asked: Requester) -> Requester:
            ...     return asked if asked.account == "amina" else Requester(asked.tenant, asked.account, banned=True)
        """
        self.accounts.ask_host(function)
        return function

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

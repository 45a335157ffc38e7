"""What a host declares in Python: datasets, page functions, kinds of parents, and how its accounts stand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from haulage.accounts import Accounts
from haulage.config import Known, Settings, dataset_faults, known_of, with_session
from haulage.config.grouping import dimensions_of, measures_of
from haulage.core.catalogue import Catalogue, Column, Dataset, Dimension, Measure, Pages
from haulage.core.errors import ConfigInvalid
from haulage.core.limits import BuildLimits
from haulage.core.pages import PAGE_BYTES, PAGE_ROWS, Page, place_of
from haulage.core.parents import BIND, OwnersFunction, Parent
from haulage.core.requester import Requester
from haulage.exports.access import Standing
from haulage.exports.gone import Gone
from haulage.exports.request import Exports
from haulage.exports.signature import parameters_of
from haulage.formats import FORMATS

Function = Callable[..., str]
PageFunction = TypeVar("PageFunction", bound=Callable[..., Page | tuple[Any, ...]])
Revision = Callable[[Requester], str | int | None]
ParentFunction = TypeVar("ParentFunction", bound=OwnersFunction)
PAGE_ARGUMENTS = 3  # that every page function gets: requester, cursor, limit


class Declares:
    """The declaring half of ``Haulage``."""

    settings: Settings
    catalogue: Catalogue
    accounts: Accounts
    exports: Exports

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

"""The catalogue as the requester sees it, and how many rows the conditions give."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from haulage.core.catalogue import QUERY_NAMES, Column, Dataset, Parameter
from haulage.core.clock import rfc3339
from haulage.core.errors import Fault, Refused
from haulage.core.parents import BIND, Parent
from haulage.core.requester import Requester
from haulage.exports.grouping import Grouping, levels_said
from haulage.exports.offered import formats_of
from haulage.exports.parameters import plain
from haulage.exports.plan import Asked
from haulage.exports.preview import ROWS_MAX
from haulage.formats import COMPRESSIONS, Format
from haulage.web.access import Asking, Asks, no_query
from haulage.web.answers import document, representation
from haulage.web.download import until_gone
from haulage.web.openapi import says
from haulage.web.shapes import DatasetName
from haulage.web.shown import CountsShown, DatasetList, PreviewShown

router = APIRouter(tags=["datasets"])

COUNTS_AT_ONCE = 4  # of one tenant: a count holds a thread for as long as it takes
COUNTS_IN_ALL = 2 * COUNTS_AT_ONCE  # of this process, so that one tenant cannot take every place
RETRY_SECONDS = 2
ROWS = 20  # of a preview
NAMES_MAX = 1_000


POPULATION = {
    "name": "population",
    "in": "query",
    "description": "true counts as well what there is without conditions: every parameter at its default.",
    "schema": {"type": "boolean", "default": False},
}


class Places:
    """How many counts may be under way in this process."""

    def __init__(self) -> None:
        """All are free."""
        self.all = asyncio.Semaphore(COUNTS_IN_ALL)
        self._own: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def own(self, tenant: str) -> asyncio.Semaphore:
        """The places of one tenant; they are kept while somebody holds or waits for one."""
        return self._own.setdefault(tenant, asyncio.Semaphore(COUNTS_AT_ONCE))


@router.get("/datasets", dependencies=[Depends(no_query)], responses=says({200: DatasetList, 304: None}, "invalid"))
def list_datasets(request: Request, asking: Asks) -> Response:
    """Everything that can be exported; ``permitted`` says whether this requester may."""
    columns_of = asking.services.exports.columns
    items = [
        show_dataset(
            each,
            asking.requester,
            columns_of(each) if asking.requester.holds(each.permission) else None,
            asking.services.catalogue.find_parent(each.parent or ""),
        )
        for each in asking.services.catalogue
    ]
    return representation(request, {"items": items})


PARAMETERS = {
    "name": "parameters",
    "in": "query",
    "description": "The dataset's parameters by their names; a list is given by repeating its name. "
    "Where it has parents, parent is the id of one.",
    "style": "form",
    "explode": True,
    "schema": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}},
}


def _listed(name: str, description: str) -> dict[str, Any]:
    schema = {"type": "array", "items": {"type": "string"}, "maxItems": NAMES_MAX}
    return {
        "name": name,
        "in": "query",
        "description": description,
        "style": "form",
        "explode": False,
        "schema": schema,
    }


GROUP_BY = _listed("group_by", "Names of dimensions; also by repeating the name.")
PIVOT = _listed("pivot", "Those of group_by that go across.")
COLUMNS = _listed("columns", "The columns, or the measures of groups.")
SUBTOTALS = {
    "name": "subtotals",
    "in": "query",
    "description": "total, rollup, cube, or levels with ; between them, each as names of dimensions with , between "
    "them; () is the grand total.",
    "schema": {"type": "string", "maxLength": 4_096},
}


@router.get(
    "/datasets/{name}/counts",
    responses=says(
        {200: CountsShown},
        "forbidden", "not_found", "invalid", "source_failed", "source_unavailable", "source_locked", "count_timeout",
    ),
    openapi_extra={"parameters": [PARAMETERS, GROUP_BY, SUBTOTALS, PIVOT, COLUMNS, POPULATION]},
)  # fmt: skip
async def count_rows(request: Request, asking: Asks, name: DatasetName) -> Response:
    """How many rows the conditions give now, or groups, counted in one read transaction; it ends with the client."""
    async with _place(request, asking) as given_up:
        given = _given(request, asking, name)
        given.refuse("limit", "belongs to /preview; a count is of all rows")
        counts = await run_in_threadpool(
            asking.services.exports.counts,
            asking.requester,
            name,
            given.parameters,
            group_by=given.names("group_by"),
            subtotals=levels_said(given.own.get("subtotals")),
            pivot=given.names("pivot"),
            columns=given.names("columns"),
            parent=given.parent,
            population=given.is_true("population"),
            given_up=given_up,
        )
    return document(
        {
            "output_count": counts.output_count,
            "visible_output_count": counts.visible_output_count,
            "population_count": counts.population_count,
            "population_count_computed": counts.population_count_computed,
            "counted_at": rfc3339(counts.counted_at),
        }
    )


@router.get(
    "/datasets/{name}/preview",
    responses=says(
        {200: PreviewShown},
        "forbidden", "not_found", "invalid", "preview_exceeded", "groups_exceeded", "pivot_columns_exceeded",
        "source_failed", "source_unavailable", "source_locked", "count_timeout",
    ),
    openapi_extra={
        "parameters": [
            PARAMETERS,
            GROUP_BY,
            SUBTOTALS,
            PIVOT,
            COLUMNS,
            {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": ROWS_MAX}},
        ]
    },
)  # fmt: skip
async def preview_rows(request: Request, asking: Asks, name: DatasetName) -> Response:
    """The first rows of what an export would write; it ends with the client."""
    async with _place(request, asking) as given_up:
        given = _given(request, asking, name)
        given.refuse("population", "belongs to /counts; leave it out")
        faults, rows = [], given.own.get("limit", str(ROWS))
        if not (rows.isascii() and rows.isdecimal() and len(rows) < 5 and 1 <= int(rows) <= ROWS_MAX):
            faults, rows = [Fault("/query/limit", f"write a number from 1 to {ROWS_MAX}")], "1"
        grouping = Grouping(given.names("group_by"), levels_said(given.own.get("subtotals")), given.names("pivot"))
        asked = Asked(name, "", given.parameters, given.names("columns"), parent=given.parent, grouping=grouping)
        found = await run_in_threadpool(
            asking.services.exports.preview,
            asking.requester,
            asked,
            rows=int(rows),
            given_up=given_up,
            faults=faults,
        )
    grouped = {"marks": found.marks, "dimensions": found.dimensions, "measures": found.measures}
    return document(
        {
            "columns": [{"key": each.key, "header": each.header, "type": each.type} for each in found.columns],
            "rows": found.rows,
            "more": found.more,
            "grouped": None if found.logical_count is None else grouped,
            "logical_count": found.logical_count,
            "snapshot_at": rfc3339(found.snapshot_at),
        }
    )


@asynccontextmanager
async def _place(request: Request, asking: Asking) -> AsyncIterator[Callable[[], bool]]:
    """One of the places for questions to sources; gives what says that the client has gone."""
    seconds = asking.services.limits.build.count_seconds
    places: Places = request.app.state.counting
    async with AsyncExitStack() as held:
        gone = asyncio.create_task(until_gone(request.receive))
        held.callback(gone.cancel)
        try:
            async with asyncio.timeout(seconds):  # to wait for a place; the question itself has its own limit
                await held.enter_async_context(places.own(asking.requester.tenant))
                await held.enter_async_context(places.all)
        except TimeoutError:
            raise Refused("count_timeout", "Too many counts are under way.", retry_after=RETRY_SECONDS) from None
        yield gone.done


@dataclass(frozen=True, slots=True)
class _Given:
    """A query string: the conditions, which parent, and what is the door's own."""

    parameters: dict[str, Any]
    parent: Any
    own: dict[str, str]

    def names(self, key: str) -> list[str] | None:
        """A list of names; None where it is not there."""
        return self.own[key].split(",") if key in self.own else None

    def refuse(self, key: str, why: str) -> None:
        """See that something is not there, as it would change nothing.

        Raises:
            Refused: ``invalid``.
        """
        if key in self.own:
            raise Refused("invalid", faults=[Fault(f"/query/{key}", why)])

    def is_true(self, key: str) -> bool:
        """Say whether it is true; not, where it is not there.

        Raises:
            Refused: ``invalid`` for anything but ``true`` and ``false``.
        """
        text = self.own.get(key, "false")
        if text not in ("true", "false"):
            raise Refused("invalid", faults=[Fault(f"/query/{key}", "write true or false")])
        return text == "true"


def _given(request: Request, asking: Asking, name: str) -> _Given:
    """What a query string says; a name that is repeated, or a list by declaration, is a list."""
    dataset = asking.services.catalogue.find(name)
    many = {parameter.name for parameter in dataset.parameters if parameter.many} if dataset else set()
    given: dict[str, list[str]] = {}
    for key, value in request.query_params.multi_items():  # Once: looking each name up took 8 s for 64 KiB of names.
        given.setdefault(key, []).append(value)
    own = {key: ",".join(given.pop(key)) for key in QUERY_NAMES if key in given}
    parameters = {key: values if key in many or len(values) > 1 else values[0] for key, values in given.items()}
    parent = parameters.pop(BIND, None) if dataset is not None and dataset.parent is not None else None
    return _Given(parameters, parent, own)


def show_dataset(
    dataset: Dataset, requester: Requester, columns: Sequence[Column] | None, parent: Parent | None = None
) -> dict[str, Any]:
    """One dataset; never its query, its predicate or its source."""
    return {
        "name": dataset.name,
        "label": dataset.label or dataset.name,
        "description": dataset.description,
        "permitted": requester.holds(dataset.permission),
        "parent": parent and {"kind": parent.kind, "label": parent.label or parent.kind, "type": parent.type},
        "parameters": [_show_parameter(parameter) for parameter in dataset.parameters],
        "formats": [_show_format(each) for each in formats_of(dataset)],
        "columns": columns and [{"key": each.key, "header": each.header, "type": each.type} for each in columns],
        "dimensions": [{"name": each.name, "label": each.label or each.name} for each in dataset.dimensions],
        "measures": [
            {"name": each.name, "label": each.label or each.name, "function": each.function}
            for each in dataset.measures
        ],
    }


def _show_parameter(parameter: Parameter) -> dict[str, Any]:
    choices = [{"value": value, "label": label or value} for value, label in parameter.choices]
    return {
        "name": parameter.name,
        "type": parameter.type,
        "label": parameter.label or parameter.name,
        "required": parameter.required,
        "default": plain(parameter.default),
        "list": parameter.many,
        "choices": choices or None,
    }


def _show_format(format: Format) -> dict[str, Any]:
    options = [
        {
            "name": option.name,
            "label": option.label,
            "choices": [{"value": choice, "label": choice} for choice in option.choices],
            "default": option.default,
        }
        for option in format.options
    ]
    compressions = [
        {"value": name, "label": name, "missing": COMPRESSIONS[name].missing()} for name in format.compressions
    ]
    return {
        "name": format.name,
        "label": format.label,
        "media_type": format.media_type,
        "options": options,
        "compressions": compressions,
        "missing": format.missing(),
    }

"""How many rows the conditions of a request give, as a door says it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from haulage.core.catalogue import Dataset
from haulage.core.errors import BuildFailed, Refused
from haulage.core.grouping import Grouped, Question
from haulage.core.parents import BIND, ParentRef
from haulage.core.patience import Overdue, within
from haulage.core.reading import Reading
from haulage.core.requester import Requester
from haulage.core.source import Snapshot, Source
from haulage.exports.columns import as_refusal
from haulage.exports.parameters import Resolved
from haulage.exports.reading import reading_of

RETRY_SECONDS = 5  # told to a requester who comes when no worker lives or the queue is full


@dataclass(frozen=True, slots=True)
class Counts:
    """How many rows the conditions give. None is not counted, or not for this requester to know.

    Args:
        population_count: what there is for this requester without conditions, where it was asked for.
    """

    output_count: int | None
    visible_output_count: int | None
    counted_at: int | None
    population_count: int | None = None
    population_count_computed: bool = False


def counts_of_host(
    dataset: Dataset,
    requester: Requester,
    resolved: Resolved,
    seconds: float,
    now: int,
    parent: ParentRef | None = None,
    population: Resolved | None = None,
) -> Counts:
    """What the host's own count function says; nothing else is known of rows that its code makes."""
    if dataset.count is None:
        return Counts(None, None, None)
    above = {} if parent is None else {BIND: parent.bound}
    everybody = None
    try:
        counted = within(seconds, dataset.count, requester, **above, **resolved.values)
        if population is not None:
            everybody = within(seconds, dataset.count, requester, **above, **population.values)
    except Overdue as overdue:
        raise Refused("count_timeout", retry_after=RETRY_SECONDS) from overdue
    except Exception as problem:
        raise Refused("source_failed", f"The dataset {dataset.name!r} could not be counted.") from problem
    at = None if counted is None and everybody is None else now
    return Counts(None, counted, at, everybody, everybody is not None)


def counts_of_source(
    open_source: Callable[[], Source],
    plan: Mapping[str, Any],
    seconds: float,
    *,
    everybody: bool,
    given_up: Callable[[], bool] | None,
    population: Mapping[str, Any] | None = None,
) -> Counts:
    """What a query gives, counted in one read transaction.

    Args:
        everybody: also the rows that its predicate hides.
        population: the same plan without conditions, where that is asked for.
    """
    try:
        with open_source().snapshot() as snapshot:
            visible = snapshot.count(_counted(snapshot, plan), seconds, given_up=given_up)
            if visible is None:
                raise Refused("count_timeout", retry_after=RETRY_SECONDS)
            everything: int | None = visible
            if plan["visible"] is not None and everybody:
                unseen = {**plan, "visible": None}
                everything = snapshot.count(_counted(snapshot, unseen), seconds, given_up=given_up)
            all_of_it = None
            if population is not None:
                all_of_it = snapshot.count(_counted(snapshot, population), seconds, given_up=given_up)
    except BuildFailed as failed:
        raise as_refusal(failed) from failed
    output = everything if everybody else None
    return Counts(output, visible, snapshot.at, all_of_it, all_of_it is not None)


def _counted(snapshot: Snapshot, plan: Mapping[str, Any]) -> Reading:
    """What is counted: rows, or the groups that a grouped export finds by the same statement."""
    reading = reading_of(plan)
    if "grouped" not in plan:
        return reading
    dimensions = Grouped.from_plan(plan["grouped"]).dimensions
    return snapshot.grouped(reading, Question([each.column for each in dimensions]))

"""How many rows the conditions of a request give, as a door says it."""

from __future__ import annotations

from dataclasses import dataclass

from haulage.core.catalogue import Dataset
from haulage.core.errors import Refused
from haulage.core.patience import Overdue, within
from haulage.core.requester import Requester
from haulage.exports.parameters import Resolved

RETRY_SECONDS = 5  # told to a requester who comes when no worker lives or the queue is full


@dataclass(frozen=True, slots=True)
class Counts:
    """How many rows the conditions give. None is not counted, or not for this requester to know."""

    output_count: int | None
    visible_output_count: int | None
    counted_at: int | None
    population_count: int | None = None
    population_count_computed: bool = False


def counts_of_host(dataset: Dataset, requester: Requester, resolved: Resolved, seconds: float, now: int) -> Counts:
    """What the host's own count function says; nothing else is known of rows that its code makes."""
    if dataset.count is None:
        return Counts(None, None, None)
    try:
        counted = within(seconds, dataset.count, requester, **resolved.values)
    except Overdue as overdue:
        raise Refused("count_timeout", retry_after=RETRY_SECONDS) from overdue
    except Exception as problem:
        raise Refused("source_failed", f"The dataset {dataset.name!r} could not be counted.") from problem
    return Counts(None, counted, None if counted is None else now)

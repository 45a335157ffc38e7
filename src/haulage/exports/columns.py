"""Which columns a dataset has: known by its query alone, so its source is asked, and the answer kept a minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from haulage.core.catalogue import Column, Dataset
from haulage.core.clock import now_ms
from haulage.core.errors import BuildFailed, Fault, Refused
from haulage.core.parents import ParentRef
from haulage.core.requester import Requester
from haulage.core.source import Source
from haulage.exports.parameters import defaults_of
from haulage.exports.plan import Wish, freeze, query_of
from haulage.exports.reading import reading_of

KEPT_SECONDS = 60.0


class Columns:
    """Asks the sources for the columns of datasets."""

    def __init__(
        self,
        open_source: Callable[[str], Source],
        evaluate_seconds: float,
        sample_of: Callable[[Dataset], ParentRef | None],
    ) -> None:
        """``open_source`` opens a source by its name; ``sample_of`` is bound where no parent is named."""
        self._sample_of = sample_of
        self._open_source = open_source
        self._evaluate_seconds = evaluate_seconds
        self._kept: dict[str, tuple[float, tuple[Column, ...] | None]] = {}
        self._silent: dict[str, float] = {}  # sources that could not be reached, and when

    def of(self, dataset: Dataset) -> tuple[Column, ...] | None:
        """The columns that a file can have, with the parameters left as they are; None while nobody can tell."""
        kept = self._kept.get(dataset.name)
        if kept is None or time.monotonic() - kept[0] > KEPT_SECONDS:
            kept = self._kept[dataset.name] = (time.monotonic(), self._ask(dataset))
        return kept[1]

    def _ask(self, dataset: Dataset) -> tuple[Column, ...] | None:
        """Ask the source; one that is silent holds up a list of datasets once, and not once for each of them."""
        if not dataset.of_source:
            return tuple(dataset.columns.values())
        if time.monotonic() - self._silent.get(dataset.source, -KEPT_SECONDS) < KEPT_SECONDS:
            return None
        resolved = defaults_of(dataset)
        try:
            sql = query_of(dataset, resolved, self._evaluate_seconds)
            plan = freeze(
                dataset, sql, resolved, Requester("nobody", "nobody"), now_ms(), None, self._sample_of(dataset)
            )
            with self._open_source(dataset.source).snapshot() as snapshot:
                return snapshot.columns(reading_of(plan))
        except BuildFailed as failed:
            if failed.code == "source_unavailable":
                self._silent[dataset.source] = time.monotonic()
            return None
        except Refused:
            return None

    def check(self, wish: Wish, requester: Requester) -> None:
        """See that the chosen columns exist; a wish for all of them needs no look.

        Raises:
            Refused: ``invalid`` with a fault per unknown column, or why the source cannot tell.
        """
        if wish.columns is None:
            return
        if not wish.dataset.of_source:
            if wish.dataset.command is not None:
                raise Refused("invalid", faults=[Fault("/columns", "a command makes the file; leave columns out")])
            if faults := _unknown(wish.columns, list(wish.dataset.columns)):
                raise Refused("invalid", faults=faults)
            return
        reading = reading_of(freeze(wish.dataset, wish.sql, wish.resolved, requester, now_ms(), None, wish.parent))
        try:
            with self._open_source(wish.dataset.source).snapshot() as snapshot:
                known = [column.key for column in snapshot.columns(reading)]
        except BuildFailed as failed:
            raise as_refusal(failed) from failed
        if faults := _unknown(wish.columns, known):
            raise Refused("invalid", faults=faults)

    def faults(self, dataset: Dataset, asked: Sequence[str] | None) -> list[Fault]:
        """A fault per unknown column of a request that cannot be used for other reasons, as far as that can be known.

        The columns that a Python dataset has may depend on its parameters.
        """
        known = None if dataset.function is not None or not asked else self.of(dataset)
        return [] if known is None or asked is None else _unknown(asked, [column.key for column in known])


def _unknown(asked: Sequence[str], known: Sequence[str]) -> list[Fault]:
    return [
        Fault(f"/columns/{index}", f"there is no column {key!r}; there are {', '.join(known)}")
        for index, key in enumerate(asked)
        if key not in known
    ]


def as_refusal(failed: BuildFailed) -> Refused:
    """What a source said, as a door says it."""
    return Refused(failed.code if failed.failure.status else "source_failed")

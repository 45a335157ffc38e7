"""What a requester can look at before asking: columns, counts, the first rows. All by the code that exports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from haulage.core import events
from haulage.core.catalogue import Catalogue, Column, Dataset
from haulage.core.errors import Fault, Refused
from haulage.core.limits import DoorLimits, ExportLimits
from haulage.core.parents import ParentRef
from haulage.core.requester import COUNTS_ALL, Requester
from haulage.core.source import Source
from haulage.exports.access import access_dataset
from haulage.exports.columns import Columns
from haulage.exports.counts import Counts, counts_of_host, counts_of_source
from haulage.exports.grouping import Grouping, grouped_of
from haulage.exports.needs import ExportStore
from haulage.exports.offered import formats_of
from haulage.exports.parameters import Resolved, population_of, resolve_parameters
from haulage.exports.parents import Parents
from haulage.exports.plan import Asked, Wish, check, column_faults, freeze, query_of
from haulage.exports.preview import ROWS_MAX, Preview, preview_of


class Screen:
    """What stands before a request; ``Exports`` is one."""

    def __init__(
        self,
        store: ExportStore,
        catalogue: Catalogue,
        open_source: Callable[[str], Source],
        limits: ExportLimits,
        doors: DoorLimits,
        observe: events.Observe,
    ) -> None:
        """``open_source`` opens a source by its name in the configuration."""
        self._store = store
        self._catalogue = catalogue
        self._open_source = open_source
        self._limits = limits
        self._doors = doors
        self._observe = observe
        self.parents = Parents(catalogue, open_source, doors.host_seconds, observe)
        self._columns = Columns(open_source, doors.evaluate_seconds, self.parents.sample)

    def columns(self, dataset: Dataset) -> tuple[Column, ...] | None:
        """The columns that a file of a dataset can have; None while its source cannot tell."""
        return self._columns.of(dataset)

    def counts(
        self,
        requester: Requester,
        dataset: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        group_by: Sequence[str] | None = None,
        subtotals: str | Sequence[Sequence[str]] | None = None,
        pivot: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        parent: str | int | None = None,
        population: bool = False,
        given_up: Callable[[], bool] | None = None,
    ) -> Counts:
        """Rows that the conditions give, counted now in one read transaction.

        ``output_count`` is None unless the requester holds ``counts.all`` (DECISIONS 23).

        Args:
            group_by: count the groups of these dimensions, which are the regular rows of a grouped export.
            subtotals, pivot, columns: as for an export. They are checked, and change no number: what is added up is no
                regular row, and what goes across is still a group.
            population: count as well what there is with every parameter at its default, where each has one.
            given_up: asked while it is counted; true ends the statement, as nobody waits for the answer.

        Raises:
            Refused: as for a request, and ``count_timeout``.
        """
        declared = access_dataset(self._catalogue, dataset, requester)
        whose = self.parents.read(declared, parent, "/query/parent")
        if whose is not None:
            self.parents.admit(requester, whose)
        resolved = resolve_parameters(declared, parameters or {})
        grouped = grouped_of(declared, Grouping(group_by, subtotals, pivot), columns)
        if faults := column_faults(columns):
            raise Refused("invalid", faults=faults)
        if columns is not None and grouped is None:
            sql = query_of(declared, resolved, self._doors.evaluate_seconds)
            self._columns.check(Wish(declared, resolved, sql, "", {}, None, tuple(columns), whose), requester)
        seconds = (declared.limits or self._limits.build).count_seconds
        without = population_of(declared) if population else None
        if not declared.of_source:
            return counts_of_host(declared, requester, resolved, seconds, self._store.now(), whose, without)

        def planned(resolved: Resolved) -> dict[str, Any]:
            sql = query_of(declared, resolved, self._doors.evaluate_seconds)
            return freeze(declared, sql, resolved, requester, self._store.now(), None, whose, grouped)

        return counts_of_source(
            partial(self._open_source, declared.source),
            planned(resolved),
            seconds,
            everybody=requester.holds(COUNTS_ALL),
            given_up=given_up,
            population=None if without is None else planned(without),
        )

    def preview(
        self,
        requester: Requester,
        asked: Asked,
        *,
        rows: int = 20,
        given_up: Callable[[], bool] | None = None,
        faults: Sequence[Fault] = (),
    ) -> Preview:
        """The first rows of what an export would write, read now in one read transaction, by the plan of the export.

        Args:
            asked: as for an export; format, compression and options do not matter.
            given_up: as for ``counts``.

        Raises:
            Refused: as for a request, ``count_timeout``, ``preview_exceeded``, and where the export itself would have
                too many of them ``groups_exceeded`` or ``pivot_columns_exceeded``.
        """
        declared = access_dataset(self._catalogue, asked.dataset, requester)
        whose = self.parents.read(declared, asked.parent, "/query/parent")
        if whose is not None:
            self.parents.admit(requester, whose)
        if not declared.of_source:
            why = "code of the application makes its rows; there is no preview of them"
            raise Refused("invalid", faults=[*faults, Fault("/path/name", why)])
        able = next((each.name for each in formats_of(declared) if each.missing() is None), declared.formats[0])
        asked = replace(asked, format=able, compression=None, options={})
        wish = self._check(asked, declared, requester, faults, whose)
        plan = freeze(
            declared, wish.sql, wish.resolved, requester, self._store.now(), wish.columns, whose, wish.grouped
        )
        build = declared.limits or self._limits.build
        opened = partial(self._open_source, declared.source)
        return preview_of(opened, plan, min(rows, ROWS_MAX), build, given_up)

    def _check(
        self, asked: Asked, dataset: Dataset, requester: Requester, faults: Sequence[Fault], parent: ParentRef | None
    ) -> Wish:
        try:
            wish = check(asked, dataset, self._doors.evaluate_seconds, faults, parent)
        except Refused as refused:
            if refused.code != "invalid":
                raise
            more = self._columns.faults(dataset, asked.columns if asked.grouping.group_by is None else None)
            raise Refused("invalid", faults=[*refused.faults, *more]) from None
        self._columns.check(wish, requester)
        return wish

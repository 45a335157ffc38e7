"""The first rows of what an export would write, by the same plan and the same code, while somebody looks."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from haulage.core.errors import BuildFailed, Refused
from haulage.core.limits import BuildLimits
from haulage.core.reading import Column
from haulage.core.source import Snapshot, Source
from haulage.exports.columns import as_refusal
from haulage.exports.counts import RETRY_SECONDS
from haulage.exports.grouped import GroupedSnapshot
from haulage.exports.reading import reading_of
from haulage.formats.format import Notices
from haulage.formats.json_values import JsonValues

ROWS_MAX = 200
GROUPS_MAX = 10_000  # that a preview adds up
COLUMNS_MAX = 1_000
EXCEEDED: Mapping[str, Callable[[BuildLimits], tuple[int, int]]] = {  # the limit of the export, and that of a preview
    "groups_exceeded": lambda build: (build.groups, GROUPS_MAX),
    "pivot_columns_exceeded": lambda build: (build.pivot_columns, COLUMNS_MAX),
}
CELL_MAX = 1_000  # characters of a cell; a longer one ends in …
LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Preview:
    """First rows as JSON has them: decimals and long integers as text.

    Args:
        marks: how many of the first columns say what a row is; then come so many dimensions, then the measures.
        logical_count: how many groups there are; None where rows are not grouped.
    """

    columns: tuple[Column, ...]
    rows: list[list[Any]]
    more: bool
    snapshot_at: int | None
    marks: int = 0
    dimensions: int = 0
    measures: int = 0
    logical_count: int | None = None


def preview_of(
    open_source: Callable[[], Source],
    plan: Mapping[str, Any],
    rows: int,
    build: BuildLimits,
    given_up: Callable[[], bool] | None,
) -> Preview:
    """Read so many rows.

    Raises:
        Refused: ``count_timeout`` when it takes longer than ``count_seconds``, ``preview_exceeded`` where there are too
            many groups to be added up now, ``groups_exceeded`` and ``pivot_columns_exceeded`` where the export itself
            has too many, or what the source says.
    """
    most = {"groups": min(build.groups, GROUPS_MAX), "pivot_columns": min(build.pivot_columns, COLUMNS_MAX)}
    source = open_source()
    stop = _Stop(source, build.count_seconds, given_up)
    try:
        with source.snapshot() as snapshot, stop.watching():
            return _read(snapshot, plan, rows, build.sort_bytes, most)
    except BuildFailed as failed:
        if stop.was_used:
            raise Refused("count_timeout", "The first rows took too long.", retry_after=RETRY_SECONDS) from failed
        if failed.code in EXCEEDED:
            own, ours = EXCEEDED[failed.code](build)
            raise Refused(failed.code if own <= ours else "preview_exceeded") from failed
        raise as_refusal(failed) from failed


def _read(snapshot: Snapshot, plan: Mapping[str, Any], rows: int, sort_bytes: int, most: Mapping[str, int]) -> Preview:
    reading, shape = reading_of(plan), {}
    logical: int | None = None
    if "grouped" in plan:
        groups = GroupedSnapshot(snapshot, plan["grouped"], most, cells=False)
        groups.count(reading, 0, sort_bytes)
        snapshot, logical, shape = groups, groups.all_groups, groups.shape
    columns = tuple(each._replace(header=_cut(each.header)) for each in snapshot.columns(reading))
    with closing(snapshot.batches(reading._replace(limit=rows + 1), sort_bytes)) as batches:
        found = list(islice(_shown(row for batch in batches for row in batch), rows + 1))
    return Preview(columns, found[:rows], len(found) > rows, snapshot.at, **shape, logical_count=logical)


def _shown(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[Any]]:
    """Rows as they are shown, one after the other: whole ones may be larger than the memory of a web process."""
    values = JsonValues(Notices(), long_numbers_as_text=True)
    for row in rows:
        yield [_cut(json.loads(values.text(cell))) for cell in row]


def _cut(cell: Any) -> Any:
    if isinstance(cell, str) and len(cell) > CELL_MAX:
        return cell[:CELL_MAX] + "…"
    return cell


class _Stop:
    """Ends what a source does when its time is over, or nobody waits any more."""

    def __init__(self, source: Source, seconds: float, given_up: Callable[[], bool] | None) -> None:
        self._source = source
        self._until = time.monotonic() + seconds
        self._given_up = given_up
        self._done = threading.Event()
        self.was_used = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch from another thread while the caller's waits for the source."""
        thread = threading.Thread(target=self._watch, daemon=True, name="preview")
        thread.start()
        try:
            yield
        finally:
            self._done.set()
            thread.join()

    def _watch(self) -> None:
        while not self._done.wait(LOOK_SECONDS):
            if time.monotonic() >= self._until or (self._given_up is not None and self._given_up()):
                self.was_used = True
                self._source.cancel()  # again and again: between two statements there is nothing to cancel

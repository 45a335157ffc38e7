"""A Python function of the host as a source: it answers a list page by page, each from the cursor of the one before.

Only the child of a run calls it, and imports it there: what it loads, keeps or breaks is gone with the child. One page
is held at a time. There is no snapshot, so count and rows need not agree; a function that reads a snapshot of its own
says so with each page, and ``at`` is known after the last.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from haulage.core.errors import BuildFailed
from haulage.core.pages import Page
from haulage.core.reading import Column, Reading
from haulage.sources.page_values import NoValue, size_of
from haulage.sources.query import Name, chosen, columns_of, without_bound

if TYPE_CHECKING:
    from haulage.core.grouping import Question
    from haulage.core.requester import Requester
    from haulage.core.source import Batches

BATCH_ROWS = 256  # as the sources of SQL have them
BATCH_BYTES = 1024 * 1024
EMPTY_PAGES = 1_000  # one after the other, each with another cursor: nobody's filter is so fine
CAUSE_CHARACTERS = 300
END: Any = object()  # of a page
AHEAD_SECONDS = 60  # that the clock of who made a snapshot may be ahead of ours


def open_source(host: Mapping[str, Any], pages: Mapping[str, Any]) -> PagesSource:
    """The list that a frozen plan names, in a process of its own.

    Args:
        host: what the worker knows and the plan does not: requester, environment, and where modules are found.
        pages: the plan's.
    """
    from haulage.core.requester import Requester

    os.environ.update(host["environment"])
    sys.path[:] = host["path"]
    _open_nothing()
    return PagesSource(Requester.thawed(dict(host["requester"])), pages)


def rehearse() -> None:
    """Import what an operator has declared, and say what is wrong with it, as the last line."""
    order = json.loads(sys.stdin.read())
    problems = open_source(order["host"], order["pages"]).check()
    sys.stdout.write("\n" + json.dumps({"problems": problems}))


class PagesSource:
    """Implements ``core.source.Source``."""

    def __init__(self, requester: Requester, pages: Mapping[str, Any]) -> None:
        """Remember what is to be called; nothing is imported yet."""
        self._requester = requester
        self._pages = pages

    @contextmanager
    def snapshot(self) -> Iterator[PagesSnapshot]:
        """Import the functions; what they read is of whatever instant they read it."""
        count = self._pages["count"]
        yield PagesSnapshot(self._requester, self._pages, imported(self._pages["function"]), count and imported(count))

    def check(self, _reading: Reading | None = None) -> list[str]:
        """Import the functions; every problem as a sentence for the operator."""
        try:
            with self.snapshot():
                return []
        except BuildFailed as failed:
            return [failed.cause or failed.detail]

    def cancel(self) -> None:
        """Nothing: who ends this process ends the function."""


class PagesSnapshot:
    """One reading of a list; implements ``core.source.Snapshot``."""

    session: str | None = None

    def __init__(
        self,
        requester: Requester,
        pages: Mapping[str, Any],
        function: Callable[..., Any],
        count: Callable[..., Any] | None,
    ) -> None:
        """Take the functions and what they are asked with."""
        self._requester = requester
        self._rows: int = pages["page_rows"]
        self._bytes: int = pages["page_bytes"]
        self._function = function
        self._count = count
        self.at: int | None = None
        self.notices: Mapping[str, int] = {}

    def columns(self, reading: Reading) -> tuple[Column, ...]:
        """The columns as they are declared."""
        return columns_of(reading, _shown(reading))

    def count(
        self,
        reading: Reading,
        seconds: float,
        sort_bytes: int | None = None,
        given_up: Callable[[], bool] | None = None,
    ) -> int | None:
        """What the dataset's count function says; None without one, or when it took longer."""
        if self._count is None:
            return None
        from haulage.core.patience import Overdue, within

        with _told(reading, "count"):
            try:
                counted = within(seconds, self._count, self._requester, **values_of(reading))
            except Overdue:
                return None
        if counted is None:
            return None
        if type(counted) is not int or counted < 0:
            raise BuildFailed("list_failed", cause=f"count answered no number of rows, but {_kind(counted)}")
        return counted

    def batches(self, reading: Reading, sort_bytes: int | None = None) -> Batches:
        """The rows of one page after the other, in bounded batches."""
        values, road = values_of(reading), Road()
        instants: set[int | None] = set()
        cursor: Any = None
        while True:
            page = self._page(reading, values, cursor, road.pages + 1)
            rows = yield from self._batches_of(page, reading, road.pages + 1)
            instants.add(_instant(page))
            self.at = instants.copy().pop() if len(instants) == 1 else None
            if page.cursor is None:
                return
            road.go_on(page.cursor, rows)
            cursor = page.cursor

    has_sets = False

    def grouped(self, reading: Reading, _question: Question) -> Reading:
        """Only the rows of a query are grouped; the configuration refuses it."""
        raise BuildFailed("source_failed", cause="rows of a page function are not grouped")

    def stream(self, _reading: Reading, _profile: str) -> None:
        """None: a function makes no files."""

    def _page(self, reading: Reading, values: Mapping[str, Any], cursor: Any, number: int) -> Page:
        with _told(reading, f"page {number}"):
            answer = self._function(self._requester, cursor, self._rows, **values)
        if not isinstance(answer, tuple) or not 2 <= len(answer) <= len(Page._fields):
            cause = f"page {number}: it answered {_kind(answer)}; write return Page(rows, cursor)"
            raise BuildFailed("list_failed", cause=cause)
        return Page(*answer)

    def _batches_of(self, page: Page, reading: Reading, number: int) -> Generator[Sequence[tuple[Any, ...]], None, int]:
        """The rows of one page, which may come one by one; gives how many there were."""
        keys, shown = reading.declared.keys(), [name.key for name in _shown(reading)]
        batch: list[tuple[Any, ...]] = []
        count = size = batch_size = 0
        with _told(reading, f"page {number}"):
            rows = iter(page.rows)
        while True:
            with _told(reading, f"page {number}"):
                row = next(rows, END)  # a None among them is no end
                wrong = "" if row is END or _is_row(row, keys) else _difference(row, keys)
                cells = () if row is END or wrong else tuple([row[key] for key in shown])
            if row is END:
                break
            count += 1
            if count > self._rows:
                raise BuildFailed("page_oversize", f"A page had more than the {self._rows:,} rows asked for.")
            if wrong:
                cause = f"page {number}, row {count}: {wrong}"
                raise BuildFailed("list_failed", cause=without_bound(cause, reading.binds))
            bytes_of_row = _size(cells, shown, reading, f"page {number}, row {count}")
            size += bytes_of_row
            batch_size += bytes_of_row
            if size > self._bytes:
                raise BuildFailed("page_oversize", f"A page had more than the {self._bytes:,} bytes allowed.")
            batch.append(cells)
            if len(batch) == BATCH_ROWS or batch_size >= BATCH_BYTES:
                yield batch
                batch, batch_size = [], 0
        if batch:
            yield batch
        return count


class Road:
    """The cursors of a list, which must lead on. A circle of any length is found in the memory of one (Brent's way)."""

    def __init__(self) -> None:
        """Stand at the beginning."""
        self.pages = 0
        self._empty = 0
        self._mark: str | None = None  # a cursor that must not come again
        self._marked_at, self._next_mark = 0, 1

    def go_on(self, cursor: object, rows: int) -> None:
        """Note where the next page begins.

        Raises:
            BuildFailed: ``list_stalled``.
        """
        self.pages += 1
        self._empty = 0 if rows else self._empty + 1
        if self._empty > EMPTY_PAGES:
            raise BuildFailed("list_stalled", cause=f"{EMPTY_PAGES:,} pages without a row, one after the other")
        try:
            here = json.dumps(cursor, default=lambda value: f"{type(value).__name__} {value}")
        except Exception as problem:
            raise BuildFailed("list_failed", cause=f"page {self.pages}: {_kind(cursor)} is no cursor") from problem
        if here == self._mark:
            since = self.pages - self._marked_at
            raise BuildFailed("list_stalled", cause=f"page {self.pages} has the cursor of {since} pages before")
        if self.pages >= self._next_mark:
            self._mark, self._marked_at, self._next_mark = here, self.pages, 2 * self.pages


# -- what is called --------------------------------------------------------------------------------


def imported(place: str) -> Callable[..., Any]:
    """The function at ``module:name``.

    Raises:
        BuildFailed: ``list_failed``.
    """
    module, _, name = place.partition(":")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except MemoryError:
        raise
    except BaseException as problem:
        cause = f"{place} cannot be imported: {type(problem).__name__}: {problem}"
        raise BuildFailed("list_failed", cause=cause[:CAUSE_CHARACTERS]) from problem
    if not callable(found):
        raise BuildFailed("list_failed", cause=f"{place} is no function")
    return found  # type: ignore[no-any-return]


class Declaring:
    """Stands for ``Haulage`` where a page function is imported: declarations pass, and nothing is opened."""

    def __init__(self, *_arguments: object, **_named: object) -> None:
        """Whatever it is opened with."""

    @classmethod
    def from_toml(cls, *_arguments: object, **_named: object) -> Declaring:
        """As if it was opened."""
        return cls()

    find = from_toml

    def dataset(self, *_arguments: object, **_named: object) -> Callable[[Any], Any]:
        """As if it was declared."""
        return lambda function: function

    pages = parent = dataset

    def standing(self, function: Any) -> Any:
        """As if it was told."""
        return function

    def asgi(self, *_arguments: object, **_named: object) -> Callable[..., Any]:
        """Something to mount, which nobody calls."""
        return lambda *_scope: None

    def __getattr__(self, name: str) -> Any:
        """Say what to do about everything else."""
        raise AttributeError(
            f"haul.{name} is not there in the process that builds a file; "
            "put the page function into a module of its own that does not use it"
        )


def _open_nothing() -> None:
    light = ModuleType("haulage.app")
    vars(light)["Haulage"] = vars(sys.modules["haulage"])["Haulage"] = Declaring
    sys.modules["haulage.app"] = light


# -- values ----------------------------------------------------------------------------------------


def values_of(reading: Reading) -> dict[str, Any]:
    """The parameters as Python values, as at the request."""
    return {name: _value(value, reading.types[name]) for name, value in reading.binds.items()}


def _value(value: Any, kind: str) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_value(each, kind) for each in value)
    if value is None or kind not in ("decimal", "date", "timestamp"):
        return value
    if kind == "decimal":
        from decimal import Decimal

        return Decimal(str(value))
    from datetime import date, datetime

    return date.fromisoformat(value) if kind == "date" else datetime.fromisoformat(value)


def _shown(reading: Reading) -> list[Name]:
    return chosen(reading, [Name(key, key, key) for key in reading.declared])


def _is_row(row: object, keys: Any) -> bool:
    return isinstance(row, Mapping) and row.keys() == keys


def _difference(row: object, keys: Any) -> str:
    if not isinstance(row, Mapping):
        return f"it is {_kind(row)}, and no mapping"
    missing = [key for key in keys if key not in row]
    more = [str(key)[:60] for key in row if key not in keys]
    words = [f"it has no {', '.join(map(repr, missing))}"] if missing else []
    words += [f"{', '.join(map(repr, more))} is not declared in columns"] if more else []
    return "; ".join(words)[:CAUSE_CHARACTERS]


def _instant(page: Page) -> int | None:
    if page.snapshot_at is None:
        return None
    try:
        instant = None if page.snapshot_at.tzinfo is None else round(page.snapshot_at.timestamp() * 1000)
    except Exception:  # noqa: BLE001 - whatever it is, it is the function's
        instant = None
    if instant is None:
        raise BuildFailed("list_failed", cause="snapshot_at is no instant with a zone")
    if instant > (time.time() + AHEAD_SECONDS) * 1000:
        raise BuildFailed("list_failed", cause="snapshot_at lies in the future")
    return instant


def _size(cells: Sequence[Any], keys: Sequence[str], reading: Reading, where: str) -> int:
    size = 0
    for key, cell in zip(keys, cells, strict=True):
        try:
            size += size_of(cell)
        except MemoryError:
            raise
        except Exception as problem:  # also what a mapping of its own raises
            words = str(problem) if isinstance(problem, NoValue) else f"{type(problem).__name__}: {problem}"
            cause = f"{where}, column {key!r}: {without_bound(words, reading.binds)}"
            raise BuildFailed("list_failed", cause=cause[:CAUSE_CHARACTERS]) from problem
    return size


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"


class _told:  # noqa: N801 - reads as a sentence
    """Turn whatever the host's function raises into a failure with a code; its words are for the log."""

    def __init__(self, reading: Reading, where: str) -> None:
        self._binds = reading.binds
        self._where = where

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, _kind: object, problem: BaseException | None, _trace: object) -> None:
        if problem is None or isinstance(problem, MemoryError):
            return  # everything else is the function's, also a KeyboardInterrupt or a SystemExit
        words = without_bound(f"{type(problem).__name__}: {problem}", self._binds)
        raise BuildFailed("list_failed", cause=f"{self._where}: {words}"[:CAUSE_CHARACTERS]) from problem

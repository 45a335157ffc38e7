"""What the operator declares: datasets with their parameters and columns. Sealed before the first request."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from haulage.core.grouping import FUNCTIONS as FUNCTIONS  # noqa: PLC0414 - exported: of a measure
from haulage.core.limits import BuildLimits
from haulage.core.pages import PAGE_BYTES, PAGE_ROWS
from haulage.core.parents import Parent
from haulage.core.reading import Column as Column  # noqa: PLC0414 - exported: it belongs to a declaration, too
from haulage.core.requester import Requester

NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
PARAMETER_TYPES = ("text", "integer", "decimal", "boolean", "date", "timestamp", "choice")
RESERVED_BINDS = ("requester_tenant", "requester_account", "requester_grants", "as_of")  # DECISIONS 38

QUERY_NAMES = ("population", "group_by", "subtotals", "pivot", "columns", "limit")  # a query string's own


@dataclass(frozen=True, slots=True)
class Parameter:
    """One condition that the requester may set; bound in the query as ``:name``.

    Args:
        type: one of ``text integer decimal boolean date timestamp choice``.
        default: used when it is not given; with neither a default nor ``optional`` it must be given.
        optional: not given means NULL.
        many: a list; written ``in (:name)`` in the query.
        choices: value and label, for the type ``choice``.
        end: an end date that includes its day: the *next* day is bound, to be compared with ``<``.
    """

    name: str
    type: str = "text"
    label: str = ""
    default: object = None
    optional: bool = False
    many: bool = False
    choices: tuple[tuple[str, str], ...] = ()
    end: bool = False

    @property
    def required(self) -> bool:
        """Say whether a request must give it."""
        return self.default is None and not self.optional


@dataclass(frozen=True, slots=True)
class Pages:
    """A list that a Python function answers page by page; the child of a run imports it (``sources/pages.py``).

    Args:
        function: ``module:name`` of ``page(requester, cursor, limit, …)``.
        count: ``module:name`` of ``count(requester, …)``, if there is one.
        environment: what the child may know of its worker's environment; ``env:NAME`` is looked up by the worker.
    """

    function: str
    count: str | None = None
    page_rows: int = PAGE_ROWS  # page_oversize; what the function is asked for at once
    page_bytes: int = PAGE_BYTES  # page_oversize
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Made:
    """One format that a command makes, as its operator declares it."""

    suffix: str  # with its dot
    media_type: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """An external program that builds a file; ``core/commands.py`` says how its arguments are filled in.

    Args:
        arguments: the program, with its path, and its words.
        formats: what it makes, by name.
        environment: all that it finds there; ``env:NAME`` is looked up by the worker.
    """

    arguments: tuple[str, ...]
    formats: Mapping[str, Made]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Dimension:
    """What rows can be grouped by.

    Args:
        column: of the query, by its key.
    """

    name: str
    column: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Measure:
    """What is measured of the rows of a group.

    Args:
        function: one of ``count count_distinct sum avg min max``.
        column: of the query, by its key; None counts rows.
    """

    name: str
    function: str
    column: str | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class Dataset:
    """One thing that can be exported. See ``docs/datasets.md`` for what each member does."""

    name: str
    source: str
    label: str = ""
    description: str = ""
    permission: str | None = None
    sql: str = ""
    function: Callable[..., str] | None = field(default=None, compare=False)
    pages: Pages | None = None  # instead of a query
    command: Command | None = None  # instead of a query
    count: Callable[..., int | None] | None = field(default=None, compare=False)  # of pages, for the doors
    parameters: tuple[Parameter, ...] = ()
    columns: Mapping[str, Column] = field(default_factory=dict)  # declared headers and types, by key
    hidden: tuple[str, ...] = ()
    visible: str | None = None
    key: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    dimensions: tuple[Dimension, ...] = ()
    measures: tuple[Measure, ...] = ()
    formats: tuple[str, ...] = ("csv",)
    on_worker_loss: Literal["fail", "rerun"] = "fail"
    verify: Literal["end", "full"] = "end"  # full: the finished file is read back from the disk
    parallel: int = 1  # connections to its source, at most; more than one only while slots are idle
    limits: BuildLimits | None = None  # None: those of the flow
    parent: str | None = None  # the kind of parent that each export of it belongs to
    # A query, or a function of the requester: a file whose answer at its build is not today's is not handed over.
    policy_revision: str | Callable[[Requester], str | int | None] | None = None
    session: Mapping[str, str] = field(default_factory=dict)  # its source's: what is set before the query runs

    @property
    def of_source(self) -> bool:
        """Say whether it is a query on a source; else the host's own code makes the rows."""
        return self.pages is None and self.command is None

    @property
    def environment(self) -> Mapping[str, str]:
        """What code of the host may know of its worker's environment."""
        made_by = self.pages or self.command
        return made_by.environment if made_by else {}

    @property
    def blanked(self) -> Mapping[str, str]:
        """The condition of each column whose cells not everybody sees."""
        return {key: column.visible for key, column in self.columns.items() if column.visible is not None}

    def digest(self, sql: str) -> str:
        """SHA-256 of what decides the bytes of a file: the frozen query and how it is wrapped."""
        parts = [
            self.name,
            self.source,
            sql,
            self.visible,
            list(self.hidden),
            list(self.key),
            list(self.order),
            [[column.key, column.header, column.type] for column in self.columns.values()],
            *([sorted(self.blanked.items())] if self.blanked else []),
            *([sorted(self.session.items())] if self.session else []),  # a digest of before stays what it was
            *([asdict(self.pages)] if self.pages else []),
            *([asdict(self.command)] if self.command else []),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class Catalogue:
    """The datasets by name. The first look seals it: nothing can be added once a request may have seen it."""

    def __init__(self) -> None:
        """Start empty."""
        self._datasets: dict[str, Dataset] = {}
        self._parents: dict[str, Parent] = {}
        self._sealed = False

    def add(self, dataset: Dataset) -> None:
        """Declare a dataset.

        Raises:
            ValueError: the name is taken or malformed, or requests have already been answered.
        """
        self._refuse("dataset", dataset.name, self._datasets)
        self._datasets[dataset.name] = dataset

    def add_parent(self, parent: Parent) -> None:
        """Declare a kind of parent.

        Raises:
            ValueError: as ``add``.
        """
        self._refuse("parent", parent.kind, self._parents)
        self._parents[parent.kind] = parent

    def _refuse(self, what: str, name: str, known: Container[str]) -> None:
        if self._sealed:
            message = f"{what} {name!r} comes too late: declare {what}s before the first request"
            raise ValueError(message)
        if not NAME.fullmatch(name):
            message = f"{what} {name!r}: write a name of small letters, digits and _, at most 63"
            raise ValueError(message)
        if name in known:
            message = f"{what} {name!r} is declared twice"
            raise ValueError(message)

    def find(self, name: str) -> Dataset | None:
        """The dataset of a name, or None."""
        self._sealed = True
        return self._datasets.get(name)

    def find_parent(self, kind: str) -> Parent | None:
        """The kind of parent of a name, or None. The sweep asks too, before any request: this look seals nothing."""
        return self._parents.get(kind)

    @property
    def parent_kinds(self) -> tuple[str, ...]:
        """The kinds that are declared so far; to look at them seals nothing."""
        return tuple(self._parents)

    def __iter__(self) -> Iterator[Dataset]:
        """Every dataset in the order of declaration."""
        self._sealed = True
        return iter(self._datasets.values())

    def __len__(self) -> int:
        """How many there are."""
        return len(self._datasets)

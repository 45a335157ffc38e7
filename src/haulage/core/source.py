"""What a flow needs of the host's data: a source, its snapshots, and what they give."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from haulage.core.reading import Column, Reading

if TYPE_CHECKING:
    from haulage.core.grouping import Question

Batches: TypeAlias = Generator[Sequence[tuple[Any, ...]], None, None]


class Stream(Protocol):
    """Rows that the source itself made into bytes of a file; after the last of them its count is exact."""

    rows: int  # of the chunks given so far; after the last chunk, what the database says it was

    def chunks(self) -> Generator[bytes, None, None]:
        """Whole rows, in bounded pieces; to be closed by the one who reads them.

        Raises:
            BuildFailed: as ``Snapshot.batches``.
        """


class Snapshot(Protocol):
    """One read transaction of a source."""

    at: int | None  # when it began; None where the source has no snapshot, or says so only with its rows
    session: str | None  # what names its session to ``sources.end_session``; None where there is no server

    def columns(self, reading: Reading) -> tuple[Column, ...]:
        """The columns that will be written, named by the query itself."""

    def count(
        self,
        reading: Reading,
        seconds: float,
        sort_bytes: int | None = None,
        given_up: Callable[[], bool] | None = None,
    ) -> int | None:
        """Rows that will be written, or None when counting took longer, or nobody waits for it any more.

        Raises:
            BuildFailed: as ``batches``.
        """

    def batches(self, reading: Reading, sort_bytes: int | None = None) -> Batches:
        """The rows, in bounded batches; to be closed by the one who reads them.

        Raises:
            BuildFailed: ``source_failed`` and its kin, or ``sort_space_exceeded``.
        """

    def stream(self, reading: Reading, profile: str) -> Stream | None:
        """The rows as bytes in a profile of a format, made by the source itself; None where it cannot keep it exactly.

        The bytes are those that the format makes of ``batches``, or what its encoder makes those of (``TakesText``).
        """

    @property
    def has_sets(self) -> bool:
        """Whether its statements can have several levels."""

    def grouped(self, reading: Reading, question: Question) -> Reading:
        """The groups of a reading, as a reading of its own: the dimensions in order, NULL last, then the aggregates.

        Groups are by exact value: two values are one where the export would write them the same.

        Raises:
            BuildFailed: ``source_failed`` for a column that is not there, or that cannot be added up.
        """

    @property
    def notices(self) -> Mapping[str, int]:
        """What the source had to change while it read, by code."""


class Counting(Protocol):
    """A count that is under way beside other reading."""

    def done(self) -> bool:
        """Look whether ``total`` has not to be waited for."""

    def total(self) -> int | None:
        """Wait for it; None when it took too long. Not before it is done, or the rows have been read.

        Raises:
            BuildFailed: as ``Snapshot.count``.
        """

    def again(self) -> int | None:
        """Count once more, where the rows were read, after the last of them: a query may depend on its session."""


@runtime_checkable
class CountsBeside(Protocol):
    """A snapshot that can count its rows while it reads them."""

    def counting(self, reading: Reading, seconds: float) -> Counting | None:
        """Begin to count; None where it is better counted first, as where there is no connection for it."""


class Source(Protocol):
    """The host's data."""

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Open one read transaction.

        Raises:
            BuildFailed: ``source_unavailable``, ``source_locked`` or ``source_failed``.
        """

    def check(self, reading: Reading) -> list[str]:
        """Prepare a query; every problem as a sentence for the operator."""

    def cancel(self) -> None:
        """End what its snapshots are doing now, from another thread: the database itself stops the statement."""

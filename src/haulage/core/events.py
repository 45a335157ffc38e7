"""Everything the product observes, one frozen dataclass each; telemetry decides what becomes a line.

None of them carries a token, a value of a row, SQL, or a bound parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened."""


@dataclass(frozen=True, slots=True)
class WorkerStarted(Event):
    """A worker lives and claims."""

    worker: str
    pid: int


@dataclass(frozen=True, slots=True)
class WorkerDraining(Event):
    """A worker claims no more and lets its running builds finish, for at most ``grace_seconds``."""

    worker: str
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class WorkerRefuses(Event):
    """The store was migrated while this worker lived, and wants a newer one: it claims no more."""

    worker: str
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerStopped(Event):
    """A worker has gone in good order."""

    worker: str


@dataclass(frozen=True, slots=True)
class RunRequested(Event):
    """A run was accepted."""

    flow: str
    run: str
    tenant: str
    account: str
    dataset: str


@dataclass(frozen=True, slots=True)
class RequestRefused(Event):
    """A door said no: to a request for a run or a file, or to somebody who may not, or whom nobody knows."""

    code: str
    tenant: str
    account: str
    what: str


@dataclass(frozen=True, slots=True)
class CancelRequested(Event):
    """A cancel was recorded."""

    flow: str
    run: str
    tenant: str
    account: str


@dataclass(frozen=True, slots=True)
class ExpiryRequested(Event):
    """A ready file was removed before its time."""

    flow: str
    run: str
    tenant: str
    account: str


@dataclass(frozen=True, slots=True)
class FileServed(Event):
    """A download ended; ``whole`` says whether every byte asked for was sent."""

    run: str
    tenant: str
    account: str
    sent_bytes: int
    whole: bool


@dataclass(frozen=True, slots=True)
class FileLinked(Event):
    """A client was sent to a signed address of the bucket; what it fetches there is not seen from here."""

    run: str
    tenant: str
    account: str


@dataclass(frozen=True, slots=True)
class RunClaimed(Event):
    """A worker took a run."""

    flow: str
    run: str
    claim_no: int
    waited_ms: int


@dataclass(frozen=True, slots=True)
class RunSettled(Event):
    """A run ended, or left ``running``, by this move."""

    flow: str
    run: str
    move: str
    state: str
    code: str | None = None
    cause: str | None = None  # for the log only


@dataclass(frozen=True, slots=True)
class LeaseWasLost(Event):
    """A worker found that a run is no longer its own, and discarded what it had."""

    flow: str
    run: str
    claim_no: int


@dataclass(frozen=True, slots=True)
class StoreFailed(Event):
    """The store, or the storage of files, did not answer; another try makes sense after ``wait_seconds``."""

    where: str
    problem: str
    wait_seconds: float


@dataclass(frozen=True, slots=True)
class BytesRemoved(Event):
    """Bytes that no row promised any longer, or that nobody owned, were removed."""

    key: str
    why: str


@dataclass(frozen=True, slots=True)
class RemovalFailed(Event):
    """Bytes could not be removed; the next sweep tries again."""

    key: str
    problem: str


@dataclass(frozen=True, slots=True)
class ArtifactLost(Event):
    """A ready file was found missing or different from what its row says."""

    run: str
    problem: str


@dataclass(frozen=True, slots=True)
class StateQuarantined(Event):
    """A file of the directory store is no record; it was moved to ``quarantine`` and the others go on."""

    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class ParentGone(Event):
    """A parent resource is not there any more: its exports were cancelled, asked to stop, or lost their file."""

    flow: str
    kind: str
    tenant: str
    cancelled: int
    stopping: int
    expired: int


@dataclass(frozen=True, slots=True)
class ParentUnknown(Event):
    """Whose parents of a kind are could not be found out: nothing was allowed for that, and nothing removed."""

    kind: str
    problem: str


@dataclass(frozen=True, slots=True)
class PolicyUnknown(Event):
    """Today's revision of what may be seen of a dataset could not be found out: no file of it was handed over."""

    dataset: str
    problem: str


@dataclass(frozen=True, slots=True)
class KeysNotRead(Event):
    """The changed configuration has faults; keys, grants and bans stay as they were before."""

    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Incident(Event):
    """Something nobody expected; ``problem`` is for the log, ``number`` for the one who reports it."""

    number: str
    where: str
    problem: str


Observe = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Observe nothing."""

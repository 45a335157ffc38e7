"""The life of an export, as a table, and what a row of it holds. Everybody reads this first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from haulage.core.lifecycle import Actor as A
from haulage.core.lifecycle import CancelWish as C
from haulage.core.lifecycle import LeaseUse as L
from haulage.core.lifecycle import Lifecycle, Move


class S(StrEnum):
    """States of an export."""

    QUEUED = "queued"
    RUNNING = "running"
    READY = "ready"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


# fmt: off
class ExportLife(Lifecycle):
    """What an export may do next."""

    flow = "export"
    initial = S.QUEUED
    active = frozenset({S.QUEUED, S.RUNNING})
    #              from       to           by           lease     a cancel is  falls due at
    claim   = Move(S.QUEUED,  S.RUNNING,   A.WORKER,    L.TAKES)
    finish  = Move(S.RUNNING, S.READY,     A.WORKER,    L.ENDS,   C.ABSENT)
    fail    = Move(S.RUNNING, S.FAILED,    A.WORKER,    L.ENDS,   C.ABSENT)
    stop    = Move(S.RUNNING, S.CANCELLED, A.WORKER,    L.ENDS,   C.REQUESTED)
    cancel  = Move(S.QUEUED,  S.CANCELLED, A.REQUESTER)
    lose    = Move(S.RUNNING, S.FAILED,    A.SWEEPER,   L.ENDS,   C.ABSENT,    "lease_until")
    rerun   = Move(S.RUNNING, S.QUEUED,    A.SWEEPER,   L.ENDS,   C.ABSENT,    "lease_until")  # where the dataset says so
    bury    = Move(S.RUNNING, S.CANCELLED, A.SWEEPER,   L.ENDS,   C.REQUESTED, "lease_until")
    overrun = Move(S.RUNNING, S.FAILED,    A.SWEEPER,   L.ENDS,   C.ABSENT,    "finish_by")
    halt    = Move(S.RUNNING, S.CANCELLED, A.SWEEPER,   L.ENDS,   C.REQUESTED, "finish_by")
    starve  = Move(S.QUEUED,  S.FAILED,    A.SWEEPER,   L.NONE,   C.EITHER,    "claim_by")
    abandon = Move(S.QUEUED,  S.FAILED,    A.SWEEPER)                                          # no worker seen for 60 s
    expire  = Move(S.READY,   S.EXPIRED,   A.SWEEPER,   L.NONE,   C.EITHER,    "expires_at")
    mislay  = Move(S.READY,   S.FAILED,    A.SWEEPER)                                          # artifact_lost
# fmt: on


@dataclass(slots=True)  # Not frozen: to make one would take four times as long, a fifth of what a claim does here.
class ExportRun:
    """One row of the exports table, which nobody changes. Instants are milliseconds; None is not known, or not yet.

    Args:
        plan: the frozen query and how it is wrapped (``exports/plan.py``).
        requester: the frozen requester (``core/requester.py``).
        parent_kind, parent: the host's own resource that it belongs to, if it does (``core/parents.py``).
        policy_revision: what may be seen, as it was in the file (``exports/revision.py``).
        artifact_key: names the bytes from the claim on until they are gone.
        reserved_bytes: what a running build may still take of the storage budget.
        stored_bytes: what its finished file takes of it, also while it waits for removal.
        claim_by, finish_by, lease_until, expires_at, retain_until: absolute deadlines.
    """

    # Every run table has these.
    id: str
    tenant: str
    state: str
    requested_at: int
    worker: str | None = None
    claim_no: int = 0
    started_at: int | None = None
    heartbeat_at: int | None = None
    updated_at: int | None = None
    lease_until: int | None = None
    cancel_requested_at: int | None = None
    finished_at: int | None = None
    retain_until: int | None = None
    generation: int = 1
    revision: int = 1
    # Deadlines of this life.
    finish_by: int | None = None
    claim_by: int | None = None
    expires_at: int | None = None
    # Locks: unique while they hold a value, NULL afterwards.
    slot: int | None = None
    active_key: str | None = None
    # What was asked.
    account: str = ""
    dataset: str = ""
    parent_kind: str | None = None
    parent: str | None = None
    dataset_hash: str = ""
    source: str = ""
    format: str = ""
    compression: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    requester: Mapping[str, Any] = field(default_factory=dict)
    as_of: int = 0
    attempts: int = 0
    attempts_max: int = 1
    generation_ms: int = 0
    file_bytes: int = 0
    # What was measured.
    phase: str | None = None
    processed: int | None = None
    total: int | None = None
    logical_count: int | None = None
    notices: tuple[Mapping[str, Any], ...] = ()
    # What came of it.
    snapshot_at: int | None = None
    rows: int | None = None
    bytes: int | None = None
    sha256: str | None = None
    columns: tuple[Mapping[str, Any], ...] | None = None
    file_name: str | None = None
    media_type: str | None = None
    complete: bool | None = None
    policy_revision: str | None = None
    failure_code: str | None = None
    failure_detail: str | None = None
    # Bytes and who promises them.
    artifact_key: str | None = None
    reserved_bytes: int | None = None
    stored_bytes: int | None = None

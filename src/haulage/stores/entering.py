"""What a run holds after a move, and what a claim reserves: the same in every kind of store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, Self

from haulage.core.lifecycle import LeaseUse, Lifecycle, Move
from haulage.core.ports import After, Terms
from haulage.core.progress import Progress


def entering(
    life: type[Lifecycle],
    move: Move,
    values: Mapping[str, Any],
    *,
    now: Moment,
    released: Mapping[str, None],
    retention_ms: int,
) -> dict[str, Any]:
    """What a move writes beside the state: what the lease held is given back, a final state has an end."""
    entered: dict[str, Any] = {}
    if move.lease is LeaseUse.ENDS:
        entered |= {"worker": None, "lease_until": None, **released}
    if life.is_final(move.target):
        entered |= {"active_key": None, "retain_until": now + retention_ms}
        if not life.is_final(move.source):
            entered["finished_at"] = now
    for name, value in values.items():
        entered[name] = now + int(value.seconds * 1000) if isinstance(value, After) else value
    return entered


class Moment(Protocol):
    """An instant: milliseconds as a number, or the database's own now in the statement it stands in."""

    def __add__(self, milliseconds: int, /) -> Self: ...


class Candidate(Protocol):
    """The run that is next, as far as its admission is concerned."""

    @property
    def id(self) -> str: ...
    @property
    def claim_no(self) -> int: ...
    @property
    def attempts(self) -> int: ...
    @property
    def file_bytes(self) -> int: ...
    @property
    def generation_ms(self) -> int: ...


RELEASED: Mapping[str, None] = {
    "slot": None,
    "reserved_bytes": None,
    "phase": None,
}  # what an export gives back with its lease


def admitted(
    run: Candidate, terms: Terms, *, stored_bytes: int, reserved_bytes: int, now: Moment
) -> dict[str, Any] | None:
    """What is set at the claim of an export: space is reserved, its clocks begin; None when it has to wait."""
    free = max(0, terms.store_bytes - stored_bytes)
    room = min(run.file_bytes, free)
    if 0 < room > free - reserved_bytes:
        return None
    return {
        "reserved_bytes": room,
        "attempts": run.attempts + 1,
        "finish_by": now + run.generation_ms + int(terms.grace_seconds * 1000),
        "artifact_key": f"{run.id}.{run.claim_no + 1}",  # the name is stored before a byte is written
        **dict.fromkeys(Progress._fields),
    }

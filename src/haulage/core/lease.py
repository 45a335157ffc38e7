"""The right to work on one run, and how it is lost.

The fence is ``claim_no``: an integer raised at every claim and whenever a sweep takes a run away. Every
write of a worker carries ``id``, the state and ``claim_no``; a row count other than one means that the
lease is gone, and the loser stops its child and discards its bytes. A timestamp or a worker's name is
never a fence: the first loses fractions in some databases, the second is reused.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Held:
    """One claim of one run: what a worker must show to write anything about it."""

    id: str
    tenant: str
    claim_no: int
    worker: str


@dataclass(frozen=True, slots=True)
class Pulse:
    """What one heartbeat learned: is the run still ours, and is a cancel requested?"""

    held: bool
    cancel_requested: bool


class LeaseLost(Exception):
    """The run belongs to somebody else now; this worker can change nothing and publishes nothing."""


class CancelWanted(Exception):
    """The lease holds, but a cancel came first: take the stop path instead of this move."""


def trusted_until(beat_began: float, lease_seconds: float) -> float:
    """When a worker must stop believing in its lease, on its own monotonic clock, in seconds.

    The lease is trusted from when the beat *began*, less a margin of a fifth: the store counted the lease
    from a later moment, so a worker that could not renew stops its child before anybody may take the run.
    (The rule is that of river's leadership lease: trust begins before the question was asked.)
    """
    return beat_began + lease_seconds * 0.8

"""Measured progress: a phase, what was really written, and a total that is known or None."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """What a running export is doing. Phases are progress, not states."""

    COUNTING = "counting"
    AGGREGATING = "aggregating"
    WRITING = "writing"
    PUBLISHING = "publishing"


@dataclass(frozen=True, slots=True)
class Progress:
    """Rows that stand in the file, of how many. ``total`` is None until it was measured."""

    phase: str
    processed: int | None
    total: int | None

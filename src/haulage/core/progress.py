"""Measured progress: a phase, what was really written, and a total that is known or None."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Phase(StrEnum):
    """What a running export is doing. Phases are progress, not states."""

    COUNTING = "counting"
    AGGREGATING = "aggregating"
    WRITING = "writing"
    PUBLISHING = "publishing"


class Progress(NamedTuple):  # not a dataclass: see core/reading.py
    """Rows that stand in the file, of how many. ``total`` is None until it was measured."""

    phase: str
    processed: int | None
    total: int | None

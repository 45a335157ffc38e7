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
    """Records that stand in the file, of how many. ``total`` is None until it was measured.

    Args:
        logical_count: of a grouped file, how many groups those records hold: rows without subtotals and totals.
    """

    phase: str
    processed: int | None
    total: int | None
    logical_count: int | None = None

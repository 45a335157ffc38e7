"""One line of what ``haulage doctor`` answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found out about a subject.

    Args:
        level: ``OK``, ``WARN`` or ``FAIL``; only the last one fails the command.
        do: what the operator can do about it.
    """

    level: str
    subject: str
    what: str
    do: str = ""

"""What of a run's row cannot be read: a disk damages a row as it damages anything.

Such a value is an :class:`Unreadable` in its place, so that lists answer and other runs go on; whoever has to use it
refuses, and names the column. Of what the column holds nothing is told: it may be anything, and of anybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Self

from haulage.exports.life import ExportRun

# Without these nobody can build or allow; a later version may write more.
NEEDED: Mapping[str, frozenset[str]] = {
    "plan": frozenset({"sql", "binds", "types", "visible", "hidden", "order", "columns", "declared", "limits"}),
    "requester": frozenset({"tenant", "account", "grants"}),
}


class Unreadable(dict[str, Any]):
    """Stands where an object or a list of objects was stored, and is empty."""


class UnreadableText(str):
    """Stands where a text was stored."""

    __slots__ = ()

    def __new__(cls) -> Self:
        """There is one sign for it, whatever was there."""
        return super().__new__(cls, "\ufffd")


def unreadable(run: ExportRun) -> tuple[str, ...]:
    """The columns of a run that cannot be read, by name."""
    return tuple(field.name for field in fields(run) if _is_unreadable(field.name, getattr(run, field.name)))


def _is_unreadable(name: str, value: object) -> bool:
    if isinstance(value, (Unreadable, UnreadableText)):
        return True
    return name in NEEDED and not (isinstance(value, Mapping) and NEEDED[name] <= value.keys())


def told(columns: tuple[str, ...]) -> str:
    """A sentence that anybody may read."""
    return f"What was stored in {' and '.join(columns)} of this export cannot be read."

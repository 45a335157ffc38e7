"""The flows, one line each. A store makes a run table of every line; the conformance suite runs over them."""

from __future__ import annotations

from dataclasses import dataclass

from haulage.core.lifecycle import Lifecycle
from haulage.exports.life import ExportLife, ExportRun


@dataclass(frozen=True, slots=True)
class Flow:
    """One flow: its plural name (folders, tables, routes), its life, and what a row holds."""

    name: str
    life: type[Lifecycle]
    record: type


FLOWS = (Flow("exports", ExportLife, ExportRun),)

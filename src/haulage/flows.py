"""The flows, one line each; the conformance suite runs over them."""

from __future__ import annotations

from dataclasses import dataclass

from haulage.core.lifecycle import Lifecycle
from haulage.exports.life import ExportLife


@dataclass(frozen=True, slots=True)
class Flow:
    """One flow: its plural name (folders, tables, routes) and its life."""

    name: str
    life: type[Lifecycle]


FLOWS = (Flow("exports", ExportLife),)

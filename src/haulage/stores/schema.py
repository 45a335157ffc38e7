"""What a store can do, which schema it has, and whether this version works with that. No database is loaded here."""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA_VERSION = 1  # of the newest migration
MIN_WORKER = 1  # the oldest schema version whose workers may claim here


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can do; asked for by capability, never by a store's name."""

    transactions: bool  # what must hold together commits together
    database_clock: bool  # its own clock decides, not the host's
    schema_transactions: bool = True  # a migration that breaks off leaves what was there
    counters: bool = False  # tenants' gates and the budget are kept as rows of their own (counters.py)
    row_security: bool = False  # the database itself keeps tenants apart (tenants.py)
    frees_the_dead: bool = False  # a run whose worker's process has ended is lost at once, before its lease is over


@dataclass(frozen=True, slots=True)
class Schema:
    """How a store's schema compares with the one of this version; None where there is none yet."""

    version: int | None
    min_worker: int | None
    wanted: int = SCHEMA_VERSION
    new: bool = False  # nothing is in the store at all


def too_old(schema: Schema) -> str | None:
    """Why a worker of this version may not claim; None when it may."""
    if schema.min_worker is None or schema.min_worker <= schema.wanted:
        return None
    return (
        f"the store has schema {schema.version} and wants workers of schema {schema.min_worker} or newer; "
        f"this version works with {schema.wanted}: install a newer haulage (pip install --upgrade haulage)"
    )

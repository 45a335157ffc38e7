"""The SQL of a move, made from the :class:`Move` itself: the only statements that change a state.

    guard    state = from, and what the move wants of a cancel
    write    UPDATE … WHERE id and guard, and for a leased move the fence claim_no
    beat     UPDATE … WHERE id, the leased state, and the fence

What an UPDATE sets beside ``revision`` are the values that it is run with (``prepared.py``).
"""

from __future__ import annotations

from sqlalchemy import Table, Update, bindparam, update
from sqlalchemy.sql.elements import ColumnElement

from haulage.core.lifecycle import CancelWish, LeaseUse, Move
from haulage.stores.queue import in_state


def guard_of(table: Table, move: Move) -> tuple[ColumnElement[bool], ...]:
    """What must be so before a move."""
    requested = table.c.cancel_requested_at
    source = in_state(table, move.source)
    if move.cancel is CancelWish.ABSENT:
        return source, requested.is_(None)
    if move.cancel is CancelWish.REQUESTED:
        return source, requested.is_not(None)
    return (source,)


def write_of(table: Table, move: Move) -> Update:
    """The statement of a move; it changes one row, or none where the guard does not hold.

    It answers no columns: MariaDB cannot, and SQLite takes as long to answer fifty of them as to write the row.
    """
    c = table.c
    statement = update(table).where(c.id == bindparam("guard_id"), *guard_of(table, move))
    if move.lease is not LeaseUse.NONE:
        statement = statement.where(c.claim_no == bindparam("guard_claim_no"))
    return statement.values(revision=c.revision + 1)


def beat_of(table: Table, claim: Move, *, with_progress: bool) -> Update:
    """The statement of a heartbeat; it answers whether a cancel is wanted, or nothing where the lease is gone.

    A beat alone is not counted in ``revision``: it changes nothing that a reader would wait for.
    """
    c = table.c
    guard = (
        c.id == bindparam("guard_id"),
        in_state(table, claim.target),
        c.claim_no == bindparam("guard_claim_no"),
    )
    beat = update(table).where(*guard).returning(c.cancel_requested_at)
    return beat.values(revision=c.revision + 1) if with_progress else beat

"""The SQL of a move, made from the :class:`Move` itself: the only statements that change a state.

    guard    state = from, and what the move wants of a cancel
    write    UPDATE … WHERE id and guard, and for a leased move the fence claim_no
    beat     UPDATE … of all runs of a worker, WHERE id, the leased state, and the fence

What a move sets beside ``revision`` are the values that it is run with (``prepared.py``).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Select,
    String,
    Subquery,
    Table,
    Update,
    bindparam,
    case,
    column,
    func,
    literal_column,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.sql.elements import ColumnElement

from haulage.core.lease import Held
from haulage.core.lifecycle import CancelWish, LeaseUse, Lifecycle, Move
from haulage.core.progress import Progress
from haulage.stores.queue import ONE, in_state, still_in


def guard_of(table: Table, move: Move) -> tuple[ColumnElement[bool], ...]:
    """What must be so before a move of a run that its id leads to."""
    requested = table.c.cancel_requested_at
    source = still_in(table, move.source)
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
    return statement.values(state=literal_column(f"'{move.target}'"), revision=c.revision + ONE)


def ask_of(table: Table, life: type[Lifecycle]) -> Update:
    """The statement of a cancel request: it is recorded once, while a worker holds the run."""
    c = table.c
    held = or_(*(still_in(table, state) for state in sorted(life.leased_states())))
    guard = (c.id == bindparam("guard_id"), held, c.cancel_requested_at.is_(None))
    return update(table).where(*guard).values(revision=c.revision + ONE)


def beats_of(document: str) -> Subquery:
    """The beats of a worker as rows; ``document`` is how a database reads them (dialect.py)."""
    numbers = [column(name, BigInteger) for name in ("claim_no", "news", *Progress._fields[1:])]
    return text(document).columns(column("id", String), *numbers, column("phase", String)).subquery("beats")


def row_of_beat(held: Held, progress: Progress | None) -> dict[str, Any]:
    """One beat as it goes to the database."""
    beat = {"id": held.id, "claim_no": held.claim_no, "news": 0}
    return beat if progress is None else beat | {"news": 1, **progress._asdict()}


def beat_guard(table: Table, claim: Move, beats: Any) -> tuple[ColumnElement[bool], ...]:
    """Which row a beat is for."""
    return table.c.id == beats.c.id, in_state(table, claim.target), table.c.claim_no == beats.c.claim_no


def beat_of(table: Table, claim: Move, document: str, clock: ColumnElement[int] | None, *, answers: bool) -> Update:
    """The statement of all heartbeats of a worker; where it can, it answers those that hold.

    A beat without news is not counted in ``revision``: it changes nothing that a reader would wait for.
    """
    c, beats = table.c, beats_of(document)
    now = bindparam("now", type_=BigInteger)
    at = now if clock is None else func.coalesce(now, clock)
    news = beats.c.news == literal_column("1")
    statement = (
        update(table)
        .where(*beat_guard(table, claim, beats))
        .values(
            heartbeat_at=at,
            lease_until=at + bindparam("lease_ms", type_=BigInteger),
            revision=c.revision + beats.c.news,
            updated_at=case((news, at), else_=c.updated_at),
            **{name: case((news, beats.c[name]), else_=c[name]) for name in Progress._fields},
        )
    )
    return statement.returning(*pulse_of(table)) if answers else statement


def pulses_of(table: Table, claim: Move, document: str) -> Select[Any]:
    """What ``beat_of`` answers, for a database whose UPDATE answers nothing."""
    beats = beats_of(document)
    return select(*pulse_of(table)).where(*beat_guard(table, claim, beats))


def pulse_of(table: Table) -> tuple[Column[Any], ...]:
    """Whose beat it was, and whether a cancel is wanted."""
    return table.c.id, table.c.claim_no, table.c.cancel_requested_at

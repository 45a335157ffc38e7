"""What a run may do next: a life is a class body that reads as a table of moves.

Overview. A flow declares its life once (see ``exports/life.py``). Each row is a :class:`Move`: from, to,
by whom, what happens to the lease, what it wants of a cancel request, and the deadline it falls due at.
From that table are derived, never written again: the WHERE of every state change, the CHECK of the table,
the deadline columns, the work list of the sweep, the drawing in the docs and the matrix of refused moves.

Rules. A move is an attribute (``ExportLife.finish``), so a reader and a type checker find its uses.
A move that wants a cancel *absent* cannot follow one that was requested, so a cancelled run never becomes
ready. A move that *ends* a lease is made under the fence of that lease (see ``lease.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar


class Actor(StrEnum):
    """Who makes a move."""

    WORKER = "worker"
    REQUESTER = "requester"
    SWEEPER = "sweeper"


class LeaseUse(StrEnum):
    """What a move does to the right to work on a run."""

    NONE = "none"
    TAKES = "takes"
    ENDS = "ends"


class CancelWish(StrEnum):
    """What a move wants of a cancel request (DECISIONS 1)."""

    ABSENT = "absent"
    REQUESTED = "requested"
    EITHER = "either"


@dataclass(frozen=True, slots=True)
class Move:
    """One allowed change of state."""

    source: str
    target: str
    by: Actor
    lease: LeaseUse = LeaseUse.NONE
    cancel: CancelWish = CancelWish.EITHER
    deadline: str | None = None  # the column whose passing makes the move due
    name: str = field(default="", compare=False)

    def __set_name__(self, owner: type, name: str) -> None:
        """Take the attribute's name, so that a move can say what it is called."""
        object.__setattr__(self, "name", name)

    def allows_cancel(self, cancel_requested: bool) -> bool:
        """Say whether the move may be made while a cancel is, or is not, requested."""
        if self.cancel is CancelWish.ABSENT:
            return not cancel_requested
        if self.cancel is CancelWish.REQUESTED:
            return cancel_requested
        return True


class Lifecycle:
    """Collects the moves of a life. A subclass is a table and nothing else.

    Attributes:
        flow: the flow's name, as doors show it.
        states: every state in the order of the table.
        initial: the state of a new run.
        active: states in which something is still expected to happen; every other state is final.
        moves: the table by name.
    """

    flow: ClassVar[str]
    initial: ClassVar[str]
    active: ClassVar[frozenset[str]]
    moves: ClassVar[dict[str, Move]] = {}
    states: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        """Read the class body as a table and refuse one that cannot end."""
        cls.moves = {name: move for name, move in vars(cls).items() if isinstance(move, Move)}
        seen = dict.fromkeys([cls.initial])
        for move in cls.moves.values():
            seen.update(dict.fromkeys([move.source, move.target]))
        cls.states = tuple(str(state) for state in seen)
        for state in cls.active:
            if not cls.moves_from(state):
                message = f"{cls.__name__}: nothing ever ends the active state {state!r}"
                raise TypeError(message)

    @classmethod
    def moves_from(cls, state: str) -> tuple[Move, ...]:
        """Every move that leaves a state."""
        return tuple(move for move in cls.moves.values() if move.source == state)

    @classmethod
    def is_final(cls, state: str) -> bool:
        """Say whether nothing more is expected to happen to a run in this state."""
        return state not in cls.active

    @classmethod
    def leased_states(cls) -> frozenset[str]:
        """States in which a worker holds the run."""
        return frozenset(str(move.target) for move in cls.moves.values() if move.lease is LeaseUse.TAKES)

    @classmethod
    def due_moves(cls) -> tuple[Move, ...]:
        """The sweep's work list: every move that a deadline makes due."""
        return tuple(move for move in cls.moves.values() if move.deadline is not None)

    @classmethod
    def deadline_columns(cls) -> tuple[str, ...]:
        """One column per deadline of the life, in the order of the table."""
        return tuple(dict.fromkeys(move.deadline for move in cls.moves.values() if move.deadline))


def draw(life: type[Lifecycle]) -> str:
    """The life as a Mermaid state diagram (https://mermaid.js.org/syntax/stateDiagram.html)."""
    lines = ["stateDiagram-v2", f"    [*] --> {life.initial}"]
    for move in life.moves.values():
        label = f"{move.name} ({move.by}"
        if move.deadline:
            label += f", at {move.deadline}"
        if move.cancel is not CancelWish.EITHER:
            label += f", cancel {move.cancel}"
        lines.append(f"    {move.source} --> {move.target}: {label})")
    lines.extend(f"    {state} --> [*]" for state in life.states if not life.moves_from(state))
    return "\n".join(lines) + "\n"

"""How a class body becomes a table of moves, on a small life of its own."""

from __future__ import annotations

import pytest

from haulage.core.lifecycle import Actor, CancelWish, LeaseUse, Lifecycle, Move, draw


class Parcel(Lifecycle):
    """A parcel waits, travels, and arrives or is lost."""

    flow = "parcel"
    initial = "waiting"
    active = frozenset({"waiting", "travelling"})
    take = Move("waiting", "travelling", Actor.WORKER, LeaseUse.TAKES)
    arrive = Move("travelling", "arrived", Actor.WORKER, LeaseUse.ENDS, CancelWish.ABSENT)
    turn_back = Move("travelling", "returned", Actor.WORKER, LeaseUse.ENDS, CancelWish.REQUESTED)
    lose = Move("travelling", "lost", Actor.SWEEPER, LeaseUse.ENDS, CancelWish.ABSENT, "arrive_by")
    rot = Move("waiting", "lost", Actor.SWEEPER, deadline="leave_by")
    recover = Move("lost", "arrived", Actor.REQUESTER)


def test_a_move_knows_what_it_is_called():
    assert ["take", "arrive", "turn_back", "lose", "rot", "recover"] == [move.name for move in Parcel.moves.values()]
    assert Parcel.moves["rot"] is Parcel.rot


def test_states_stand_in_the_order_of_the_table():
    assert ("waiting", "travelling", "arrived", "returned", "lost") == Parcel.states


def test_moves_are_found_by_where_they_begin():
    assert (Parcel.take, Parcel.rot) == Parcel.moves_from("waiting")
    assert () == Parcel.moves_from("arrived")
    assert () == Parcel.moves_from("unheard of")


def test_every_state_that_is_not_active_is_final():
    assert [False, False, True, True, True] == [Parcel.is_final(state) for state in Parcel.states]


def test_a_worker_holds_what_it_took():
    assert {"travelling"} == Parcel.leased_states()


def test_what_has_a_deadline_is_the_work_of_the_sweep():
    assert (Parcel.lose, Parcel.rot) == Parcel.due_moves()
    assert ("arrive_by", "leave_by") == Parcel.deadline_columns()


@pytest.mark.parametrize(
    ("wish", "without", "with_one"),
    [(CancelWish.ABSENT, True, False), (CancelWish.REQUESTED, False, True), (CancelWish.EITHER, True, True)],
)
def test_a_move_says_what_it_wants_of_a_cancel(wish, without, with_one):
    move = Move("a", "b", Actor.WORKER, cancel=wish)

    assert (without, with_one) == (move.allows_cancel(False), move.allows_cancel(True))


def test_a_life_that_never_ends_is_refused():
    with pytest.raises(TypeError, match="nothing ever ends the active state 'travelling'"):
        type(
            "Endless",
            (Lifecycle,),
            {
                "initial": "waiting",
                "active": frozenset({"waiting", "travelling"}),
                "take": Move("waiting", "travelling", Actor.WORKER),
            },
        )


def test_a_life_is_drawn_as_it_stands():
    assert """stateDiagram-v2
    [*] --> waiting
    waiting --> travelling: take (worker)
    travelling --> arrived: arrive (worker, cancel absent)
    travelling --> returned: turn_back (worker, cancel requested)
    travelling --> lost: lose (sweeper, at arrive_by, cancel absent)
    waiting --> lost: rot (sweeper, at leave_by)
    lost --> arrived: recover (requester)
    arrived --> [*]
    returned --> [*]
""" == draw(Parcel)

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
    find = Move("lost", "arrived", Actor.REQUESTER)


def test_a_move_knows_what_it_is_called():
    assert ["take", "arrive", "turn_back", "lose", "rot", "find"] == [move.name for move in Parcel.moves.values()]
    assert Parcel.moves["rot"] is Parcel.rot


def test_states_stand_in_the_order_of_the_table():
    assert ("waiting", "travelling", "arrived", "returned", "lost") == Parcel.states


def test_moves_are_found_by_where_they_begin():
    assert (Parcel.take, Parcel.rot) == Parcel.moves_from("waiting")
    assert () == Parcel.moves_from("arrived")
    assert () == Parcel.moves_from("unheard of")


def test_a_move_is_found_by_both_ends_and_by_who_makes_it():
    assert Parcel.lose is Parcel.find_move("travelling", "lost") if hasattr(Parcel, "find_move") else True
    assert Parcel.rot is Lifecycle.find.__func__(Parcel, "waiting", "lost")
    assert Parcel.rot is Lifecycle.find.__func__(Parcel, "waiting", "lost", by=Actor.SWEEPER)
    assert None is Lifecycle.find.__func__(Parcel, "waiting", "lost", by=Actor.WORKER)
    assert None is Lifecycle.find.__func__(Parcel, "arrived", "waiting")

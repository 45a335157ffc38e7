"""The life of an export in literal words: what is derived from a wrong table agrees with it, this does not."""

from __future__ import annotations

import pytest

from haulage.core.lifecycle import CancelWish, LeaseUse
from haulage.exports.life import ExportLife

# move, from, to, by, what happens to the lease, what it wants of a cancel, the deadline it falls due at
TABLE = [
    ("claim", "queued", "running", "worker", "takes", "either", None),
    ("finish", "running", "ready", "worker", "ends", "absent", None),
    ("fail", "running", "failed", "worker", "ends", "absent", None),
    ("stop", "running", "cancelled", "worker", "ends", "requested", None),
    ("cancel", "queued", "cancelled", "requester", "none", "either", None),
    ("lose", "running", "failed", "sweeper", "ends", "absent", "lease_until"),
    ("rerun", "running", "queued", "sweeper", "ends", "absent", "lease_until"),
    ("bury", "running", "cancelled", "sweeper", "ends", "requested", "lease_until"),
    ("overrun", "running", "failed", "sweeper", "ends", "absent", "finish_by"),
    ("halt", "running", "cancelled", "sweeper", "ends", "requested", "finish_by"),
    ("starve", "queued", "failed", "sweeper", "none", "either", "claim_by"),
    ("abandon", "queued", "failed", "sweeper", "none", "either", None),
    ("expire", "ready", "expired", "sweeper", "none", "either", "expires_at"),
    ("mislay", "ready", "failed", "sweeper", "none", "either", None),
]


def test_the_table_of_moves_is_this_one():
    moves = [
        (name, move.source, move.target, move.by, move.lease, move.cancel, move.deadline)
        for name, move in ExportLife.moves.items()
    ]

    assert TABLE == moves


def test_a_new_export_is_queued():
    assert "queued" == ExportLife.initial


def test_an_export_has_six_states():
    assert ("queued", "running", "ready", "failed", "cancelled", "expired") == ExportLife.states


@pytest.mark.parametrize(
    ("state", "final"),
    [
        ("queued", False),
        ("running", False),
        ("ready", True),
        ("failed", True),
        ("cancelled", True),
        ("expired", True),
    ],
)
def test_nothing_more_is_expected_of_a_final_state(state, final):
    assert final == ExportLife.is_final(state)


def test_a_worker_holds_a_run_only_while_it_is_running():
    assert {"running"} == ExportLife.leased_states()


def test_nothing_follows_a_failure_a_cancel_or_an_expiry():
    assert [(), (), ()] == [ExportLife.moves_from(state) for state in ("failed", "cancelled", "expired")]


def test_a_ready_export_can_only_expire_or_lose_its_file():
    assert ["expired", "failed"] == [move.target for move in ExportLife.moves_from("ready")]


def test_only_a_worker_that_holds_the_run_makes_it_ready():
    into_ready = [move for move in ExportLife.moves.values() if move.target == "ready"]

    assert [ExportLife.finish] == into_ready
    assert LeaseUse.ENDS is ExportLife.finish.lease
    assert CancelWish.ABSENT is ExportLife.finish.cancel


def test_a_running_export_ends_only_under_its_lease():
    assert {"ends"} == {str(move.lease) for move in ExportLife.moves_from("running")}


def test_a_running_export_is_cancelled_only_when_somebody_asked_for_it():
    into_cancelled = {
        move.name: str(move.cancel) for move in ExportLife.moves_from("running") if move.target == "cancelled"
    }

    assert {"stop": "requested", "bury": "requested", "halt": "requested"} == into_cancelled


def test_every_active_state_has_a_clock():
    clocks = {
        state: sorted({move.deadline for move in ExportLife.moves_from(state) if move.deadline})
        for state in ("queued", "running", "ready")
    }

    assert {"queued": ["claim_by"], "running": ["finish_by", "lease_until"], "ready": ["expires_at"]} == clocks

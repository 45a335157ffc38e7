"""Any history of requests, claims, beats, settles, cancels and sweeps leaves the store where a plain model says."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.conformance.model import broken_invariants, machine_over

pytestmark = pytest.mark.slow

HISTORIES = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def test_every_history_ends_where_the_model_says(case):
    run_state_machine_as_test(machine_over(case), settings=HISTORIES)


GOOD = [("a", "queued", "running", 1, 1, 0), ("a", "running", "ready", 1, 0, 0), ("a", "ready", "expired", 1, 0, 0)]


@pytest.mark.parametrize(
    ("history", "wanted"),
    [
        (GOOD, []),
        ([*GOOD, ("a", "expired", "ready", 1, 0, 0)], ["I1: expired -> ready", "I1: a run ended twice"]),
        ([("a", "running", "ready", 1, 0, 1)], ["I6: a cancelled run became ready"]),
        ([GOOD[0], ("a", "queued", "running", 1, 1, 0)], ["I10: a claim without a new fence"]),
        ([("a", "queued", "running", 1, 3, 0)], ["I10: 3 runs in 2 slots"]),
    ],
)
def test_the_invariants_are_told_from_a_history(history, wanted):
    assert wanted == broken_invariants(history)

"""Any history of requests, claims, beats, settles, cancels and sweeps leaves the store where a plain model says.

Time is an argument, so hours pass in a moment; a history is made of one seed, and is the same when it is played again.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import seed as seeded
from hypothesis.stateful import run_state_machine_as_test
from tests.conformance.model import broken_invariants, machine_over

pytestmark = pytest.mark.slow

HISTORIES = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    database=None,  # Else what was found on this machine before would come first, whatever the seed.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def test_every_history_ends_where_the_model_says(case, seed, times):
    long = settings(HISTORIES, max_examples=int(HISTORIES.max_examples * times))
    run_state_machine_as_test(seeded(seed)(machine_over(case)), settings=long)


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

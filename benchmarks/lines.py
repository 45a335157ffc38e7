"""How a figure is printed: one JSON line, with its peer or limit from the same run (docs/benchmarks.md)."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence


def figure(
    name: str,
    value: float,
    unit: str,
    *,
    peer: str,
    peer_value: float,
    ratio: float,
    target: float,
    runs: Sequence[float],
) -> None:
    """Print one figure. ``ratio`` is to the peer, larger is better; ``target`` is what it has to reach."""
    line = {
        "figure": name,
        "value": round(value, 4),
        "unit": unit,
        "peer": peer,
        "peer_value": round(peer_value, 4),
        "ratio": round(ratio, 3),
        "target": round(target, 3),
        "met": ratio >= target,
        "runs": [round(run, 4) for run in runs],
    }
    print(json.dumps(line), flush=True)


def alternating(times: int, ours: Callable[[], float], peer: Callable[[], float]) -> tuple[list[float], list[float]]:
    """Measure both in turns, so that what else the machine does falls on both."""
    pairs = [(ours(), peer()) for _ in range(times)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def against(
    name: str, times: int, ours: Callable[[], float], peer: Callable[[], float], *, called: str, target: float
) -> None:
    """Measure both in turns, and print seconds beside those of the peer."""
    mine, theirs = alternating(times, ours, peer)
    figure(
        name,
        median(mine),
        "s",
        peer=called,
        peer_value=median(theirs),
        ratio=median(theirs) / median(mine),
        target=target,
        runs=mine,
    )


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return statistics.median(values)

"""docs/lives.md draws the lives as they are: a table of moves and the diagram beside it, for every flow."""

from __future__ import annotations

import pytest
from tests.docs.written import DOCS, assert_written

from haulage.core.lifecycle import CancelWish, LeaseUse, draw
from haulage.flows import FLOWS

WHAT = {
    "exports": {
        "claim": "a worker takes the next run of the queue",
        "finish": "the file is whole, published, and has an expiry",
        "fail": "the build ended without a file; a code says why",
        "stop": "the process is reaped and its bytes are gone",
        "cancel": "a run that waits is cancelled at once",
        "lose": "the worker fell silent; its bytes are removed first",
        "rerun": 'the same, where the dataset says `on_worker_loss = "rerun"` and attempts are left',
        "bury": "the same, and somebody had asked for a cancel",
        "overrun": "over its generation time, although its worker still beats",
        "halt": "the same, and somebody had asked for a cancel",
        "starve": "it waited longer than a run may",
        "abandon": "no worker was seen for a minute",
        "expire": "the file is promised no longer; its bytes go at once",
        "mislay": "the file was found missing or damaged",
    }
}


def table(flow):
    lines = ["| move | from | to | by | lease | cancel | due at | what happened |", "|---|---|---|---|---|---|---|---|"]
    for name, move in flow.life.moves.items():
        lease = "" if move.lease is LeaseUse.NONE else move.lease
        cancel = "" if move.cancel is CancelWish.EITHER else move.cancel
        due = f"`{move.deadline}`" if move.deadline else ""
        lines.append(
            f"| {name} | {move.source} | {move.target} | {move.by} | {lease} | {cancel} | {due} "
            f"| {WHAT[flow.name][name]} |"
        )
    return "\n".join(lines)


def test_the_lives_are_drawn_as_they_are():
    parts = [f"## {flow.name.capitalize()}\n\n{table(flow)}\n\n```mermaid\n{draw(flow.life)}```\n" for flow in FLOWS]

    assert_written(DOCS / "lives.md", "lives", "\n" + "\n".join(parts))


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_every_move_is_explained_and_nothing_else(flow):
    assert list(flow.life.moves) == list(WHAT[flow.name])


def test_the_drawing_in_literal_words():
    """A wrong generator agrees with its own output; these lines were written by hand."""
    text = (DOCS / "lives.md").read_text()

    assert "    [*] --> queued\n    queued --> running: claim (worker)\n" in text
    assert "    running --> ready: finish (worker, cancel absent)\n" in text
    assert "    running --> cancelled: bury (sweeper, at lease_until, cancel requested)\n" in text
    assert "    expired --> [*]\n" in text
    assert "| overrun | running | failed | sweeper | ends | absent | `finish_by` |" in text

"""Following a run to its end: what is shown is what was measured, and nothing moves by itself.

On a terminal one line is written over again whenever the row has changed; elsewhere a line is written every
few seconds. While it follows it also sweeps, so that a run ends even when no worker and no web lives.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

from haulage.cli.terminal import number, say
from haulage.core.errors import Refused, StoreUnavailable
from haulage.exports.life import ExportLife, ExportRun
from haulage.exports.show import unit_of

if TYPE_CHECKING:
    from haulage.app import Haulage

LOOK_SECONDS = 0.2  # between two looks at the row
PLAIN_SECONDS = 3.0  # between two lines where there is no terminal
SILENT_SECONDS = 5  # a worker that was not heard of for so long is worth a word
BAR_WIDTH = 30


class Left(Exception):
    """The second Ctrl-C: leave at once. ``recorded`` says whether the store has the cancel."""

    def __init__(self, *, recorded: bool) -> None:
        """Remember it."""
        super().__init__()
        self.recorded = recorded


class Interrupts:
    """Counts Ctrl-C (and TERM) instead of ending the process; restores what was before."""

    def __init__(self) -> None:
        """Nothing is caught before ``with``."""
        self.count = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        """Catch."""
        for number_ in (signal.SIGINT, signal.SIGTERM):
            self._before[number_] = signal.signal(number_, self._caught)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore."""
        for number_, handler in self._before.items():
            signal.signal(number_, handler)

    def _caught(self, _number: int, _frame: FrameType | None) -> None:
        # Only a number is raised here: a handler may run in the middle of anything.
        self.count += 1


def follow(
    haul: Haulage,
    run_id: str,
    interrupts: Interrupts | None,
    *,
    unattended: Callable[[], None] | None = None,
) -> ExportRun:
    """Show a run until it has ended; meanwhile do what is due, for want of a worker that is known to.

    Args:
        interrupts: Ctrl-C cancels the run; None leaves Ctrl-C as it is.
        unattended: called while the run waits and no worker that would claim it is alive: the last one may have died.

    Raises:
        Left: at the second Ctrl-C.
        Refused: the run has gone.
    """
    shown, asked = Shown(), False
    every, swept_at = haul.settings.exports.sweep_seconds, time.monotonic()
    alive_seconds = haul.settings.exports.presence_seconds
    while True:
        if interrupts is not None and interrupts.count and not asked:
            asked = _cancel(haul, run_id, shown)
        if interrupts is not None and interrupts.count > 1:
            shown.close()
            raise Left(recorded=asked)
        try:
            run = haul.exports.get(haul.operator, run_id)
            place = haul.exports.queue_position(run)
            if run.state == "queued" and unattended is not None and not haul.store.workers.claiming(alive_seconds):
                unattended()
            if time.monotonic() - swept_at > every:
                swept_at = time.monotonic()
                haul.sweeper().pass_once()
        except StoreUnavailable:
            shown.line("the store does not answer; still trying")
            time.sleep(1)
            continue
        if ExportLife.is_final(run.state):
            shown.close()
            return run
        shown.line(describe(run, place, haul.store.now(), bar=shown.terminal))
        time.sleep(LOOK_SECONDS)


def _cancel(haul: Haulage, run_id: str, shown: Shown) -> bool:
    try:
        haul.exports.cancel(haul.operator, run_id)
    except Refused:
        return True  # It has ended meanwhile; the next look says how.
    except StoreUnavailable:
        return False
    shown.close()
    say("cancel recorded; waiting until the build has stopped (Ctrl-C again leaves)")
    return True


def describe(run: ExportRun, place: int | None, now: int, *, bar: bool) -> str:
    """A run that has not ended, in one line of what is known."""
    if run.state == "queued":
        return "waiting" if place is None else f"waiting, place {place} (may change)"
    unit = unit_of(run).replace("_", " ")
    words = ["stopping" if run.cancel_requested_at else (run.phase or "starting")]
    if run.processed is not None and run.total is not None:
        percent = 100 if run.total == 0 else run.processed * 100 // run.total
        filled = BAR_WIDTH * percent // 100
        if bar:
            words.append(f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}]")
        words.append(f"{percent} %  {number(run.processed)} of {number(run.total)} {unit}")
    elif run.processed is not None:
        words.append(f"{number(run.processed)} {unit}")
    if run.logical_count is not None:
        words.append(f"({number(run.logical_count)} groups)")
    heard = run.heartbeat_at or run.started_at or now
    if now - heard > SILENT_SECONDS * 1000:
        words.append(f"(last sign of life {(now - heard) // 1000} s ago)")
    return "  ".join(words)


class Shown:
    """What stands on standard error now."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.terminal = sys.stderr.isatty()
        self._text = ""
        self._at = -PLAIN_SECONDS

    def line(self, text: str) -> None:
        """Show a line in place of the last one; without a terminal, now and then."""
        if text == self._text:
            return
        if self.terminal:
            width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
            click.echo("\r" + text[: width - 1].ljust(len(self._text[: width - 1])), nl=False, err=True)
        else:
            if time.monotonic() - self._at < PLAIN_SECONDS:
                return
            self._at = time.monotonic()
            say(text)
        self._text = text

    def close(self) -> None:
        """Leave the line, so that what follows stands below it."""
        if self.terminal and self._text:
            click.echo(err=True)
        self._text = ""

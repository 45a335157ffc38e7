"""The file of an external command: built by it, judged by its report, and taken over as every other file is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from haulage.core.errors import BuildFailed
from haulage.core.progress import Phase, Progress
from haulage.core.reading import TAIL_BYTES
from haulage.exports.build import BuildOrder, Built
from haulage.exports.fits import refuse_over
from haulage.exports.report import read_report

if TYPE_CHECKING:
    from haulage.core.ports import Sink


class Made(Protocol):
    """What a command has left."""

    report: bytes
    size: int  # of its file, when it was opened

    def chunks(self) -> Iterator[bytes]:
        """The file, in bounded pieces."""


class Maker(Protocol):
    """Runs a command to its end; ``sources.command.Command`` is one."""

    def made(self) -> AbstractContextManager[Made]:
        """What it made.

        Raises:
            BuildFailed: ``command_failed``, ``bytes_exceeded`` and its kin.
        """


def deliver(order: BuildOrder, maker: Maker, sink: Sink, report: Callable[[Progress], None]) -> Built:
    """Have the file made, and take it over.

    Raises:
        BuildFailed: with the code of what ended it.
    """
    report(Progress(Phase.WRITING, None, None))
    with maker.made() as made:
        told = read_report(made.report)
        refuse_over(told.rows or 0, order.plan["limits"]["rows"])
        report(Progress(Phase.PUBLISHING, told.rows, None))
        tail = b""
        for chunk in made.chunks():
            sink.write(chunk)
            tail = (tail + chunk[-TAIL_BYTES:])[-TAIL_BYTES:]
        measured = sink.finish(reread=order.plan.get("verify") == "full")
    if (measured.size, measured.tail) != (made.size, tail):
        raise BuildFailed("verify_failed", cause="the file is not the one that the command has left")
    return Built(
        rows=told.rows,
        total=None,
        snapshot_at=None,
        columns=(),
        notices=({"code": "no_snapshot"}, *told.notices),
        bytes=measured.size,
        sha256=measured.sha256,
        etag=measured.etag,
        complete=told.complete,
    )

"""The formats that a dataset offers: ours, by our encoders, or those that its command makes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from haulage.core.catalogue import Dataset
from haulage.exports.life import ExportRun
from haulage.formats import FORMATS, Format


def formats_of(dataset: Dataset) -> Iterator[Format]:
    """Those that a request may name, in the order of their declaration."""
    for name in dataset.formats:
        if (found := format_of(dataset, name)) is not None:
            yield found


def format_of(dataset: Dataset, name: str) -> Format | None:
    """One of them; None where it does not offer that."""
    if name not in dataset.formats:
        return None
    if dataset.command is None:
        return FORMATS.get(name)
    made = dataset.command.formats[name]
    return _made(name, made.label or name.upper(), made.media_type, made.suffix)


def format_made(run: ExportRun) -> Format:
    """The format of a run: its name and media type as they were at the request, where a command makes it."""
    command = run.plan.get("command")
    if command is None:
        return FORMATS[run.format]
    return _made(run.format, run.format, command["media_type"], command["suffix"])


def _made(name: str, label: str, media_type: str, suffix: str) -> Format:
    return Format(name, label, media_type, suffix, options=(), open=_no_encoder)


def _no_encoder(*_: object) -> NoReturn:
    raise AssertionError("a command makes this format")

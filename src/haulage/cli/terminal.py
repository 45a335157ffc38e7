"""How the commands speak: answers on stdout, everything else on stderr; sizes, times, tables for people."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from haulage.core.clock import rfc3339

DONE = 0
FAILED = 1  # the run failed or was cancelled; a check found something
USAGE = 2  # usage or configuration
REFUSED = 3  # permission, limit, or nothing of that name
UNATTENDED = 4  # nothing alive to do the work

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def shared(command: Decorated) -> Decorated:
    """Give a command the two options that every command has."""
    config = click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=False),
        envvar="HAULAGE_CONFIG",
        default="haulage.toml",
        show_default=True,
        show_envvar=True,
        help="The configuration.",
    )
    as_json = click.option("--json", "as_json", is_flag=True, help="Answer with one JSON document on stdout.")
    return config(as_json(command))


def program(*words: str) -> str:
    """A command of this very program that works from any terminal, also where ``haulage`` is not on the path."""
    script = Path(sys.argv[0]).absolute()
    ours = [str(script)] if script.name == "haulage" and script.is_file() else [sys.executable, "-m", "haulage"]
    return shlex.join([*ours, *words])


def example(*lines: str) -> str:
    """What stands at the end of a command's help; the backspace keeps click from joining its lines."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


class Fault(click.ClickException):
    """Something that the one at the terminal can mend; ends with exit code 2."""

    exit_code = USAGE


def say(text: str) -> None:
    """Say something that is no answer."""
    click.echo(text, err=True)


def tell(text: str = "") -> None:
    """Answer in words."""
    click.echo(text)


def print_json(document: object) -> None:
    """Answer with a JSON document on one line."""
    click.echo(json.dumps(document, ensure_ascii=False, default=str))


def moment(instant: int | None) -> str:
    """An instant: in the local zone with its offset on a terminal, in UTC elsewhere."""
    if instant is None:
        return "-"
    if not sys.stdout.isatty():
        return rfc3339(instant) or "-"
    return datetime.fromtimestamp(instant / 1000, UTC).astimezone().isoformat(" ", "seconds")


def number(value: int | None) -> str:
    """A count with its thousands apart; unknown is a dash, never 0."""
    return "-" if value is None else f"{value:,}"


def size(value: int | None) -> str:
    """Bytes for people."""
    if value is None:
        return "-"
    if value < 1024:
        return f"{value} B"
    amount = float(value)
    for unit in ("KiB", "MiB", "GiB"):
        amount /= 1024
        if amount < 1024:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1024:.1f} TiB"


def printable(text: str) -> str:
    """What others have written, on one line and without a sign that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns, each as wide as its widest cell; those whose head begins with ``>`` are set to the right."""
    right = [head.startswith(">") for head in heads]
    lines = [[head.removeprefix(">") for head in heads], *(list(map(printable, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """Names and values, one pair a line."""
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{name.ljust(width)}  {printable(value)}".rstrip() for name, value in pairs)

"""``haulage``: the table of commands, and how each failure ends.

Exit codes: 0 done; 1 the run failed or was cancelled; 2 usage or configuration; 3 refused (permission,
limit); 4 nothing alive to do the work. A command's module is imported when the command is used, so that
``haulage --help`` answers at once and needs no extra.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

from haulage import __version__
from haulage.cli.advice import advice
from haulage.cli.terminal import FAILED, REFUSED, UNATTENDED, USAGE, example, print_json, say
from haulage.core.errors import ConfigInvalid, HaulageError, Refused, SchemaMismatch, StoreUnavailable

# name: module, and what --help says of it. The function in the module has the command's name.
COMMANDS = {
    "demo": ("haulage.cli.demo.command", "Sample data, store, worker and page in one terminal."),
    "init": ("haulage.cli.begin", "Write a commented haulage.toml with a new secret."),
    "keys": ("haulage.cli.begin", "Make bearer keys for programs and sign-in."),
    "up": ("haulage.cli.serve", "Serve the web and work, in one terminal."),
    "serve": ("haulage.cli.serve", "Serve the page and the HTTP interface."),
    "worker": ("haulage.cli.serve", "Build the files that were asked for."),
    "export": ("haulage.cli.exports", "Export a dataset: durable, with progress, cancelled by Ctrl-C."),
    "runs": ("haulage.cli.runs", "List, show, watch, fetch, cancel and expire runs."),
    "parents": ("haulage.cli.parents", "Say that something that exports belong to is gone."),
    "datasets": ("haulage.cli.datasets", "List what can be exported, and check every query."),
    "migrate": ("haulage.cli.operate", "Bring the store's schema up, or take it away."),
    "sweep": ("haulage.cli.operate", "End what is due and remove what nobody needs, once."),
    "doctor": ("haulage.cli.doctor", "Say what is wrong and what to do."),
}


SAID_IN_FULL = ("library_missing", "not_found", "already_final")  # their details leave nothing to add here
OUTPUT_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # of standard output: /dev/full, a full disk
MISTAKEN = ("invalid", "library_missing")  # what was typed or installed has to change; nobody said no
# How a member of a request is given here.
ARGUMENTS = {
    "dataset": "DATASET",
    "format": "--format",
    "columns": "--columns",
    "group_by": "--group-by",
    "subtotals": "--subtotals",
    "pivot": "--pivot",
    "compression": "--compression",
    "options": "--option",
    "parent": "--parent",
}


class LazyCommands(click.Group):
    """Imports a command when it is used; the list of commands comes from the table alone."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(COMMANDS[cmd_name][0]), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            from haulage.config.faults import meant

            ctx.fail(f"There is no command {name!r}; {meant(name, COMMANDS)}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyCommands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=example(
        "haulage demo        everything with sample data", "haulage init        a configuration of your own"
    ),
)
@click.version_option(__version__, message="haulage %(version)s")
def haulage() -> None:
    """Durable exports: every file whole, of one instant, and provable; every run ends."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and end the process with its exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    code = run(given)
    try:
        if sys.stdout is not None:  # it is None where a shell closed it
            sys.stdout.flush()
    except BrokenPipeError:
        _give_up_output()
    except OSError as problem:
        code = _output_failed(problem)
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run a command and give its exit code; whatever it raises on purpose is said here, once."""
    as_json = "--json" in arguments
    try:
        outcome = haulage.main(list(arguments), prog_name="haulage", standalone_mode=False)
    except click.ClickException as problem:
        if as_json:
            print_json({"error": {"code": "usage", "message": problem.format_message(), "faults": []}})
        problem.show()
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        say("stopped")
        return FAILED
    except BrokenPipeError:
        _give_up_output()
        return FAILED
    except HaulageError as problem:
        return _explain(problem, as_json=as_json)
    except OSError as problem:
        if problem.filename is not None or problem.errno not in OUTPUT_FULL:
            raise
        return _output_failed(problem)
    return outcome if isinstance(outcome, int) else 0


def _output_failed(problem: OSError) -> int:
    """What is written to standard output has nowhere to go; a traceback would say no more."""
    _give_up_output()
    say(f"the answer cannot be written: {problem.strerror}")
    return FAILED


def _explain(problem: HaulageError, *, as_json: bool) -> int:
    """Say a failure in words, or as the one JSON document, and choose the exit code."""
    faults: list[object] = []
    if isinstance(problem, Refused):
        faults = [{"pointer": fault.pointer, "detail": fault.detail} for fault in problem.faults]
        lines = [_refused(problem)]
        lines += [f"  - {_named(fault.pointer)}: {fault.detail}" for fault in problem.faults]
    elif isinstance(problem, ConfigInvalid):
        faults = list(problem.faults)
        lines = [str(problem)]
    else:
        lines = [str(problem) or type(problem).__name__]
    code = "config_invalid" if isinstance(problem, ConfigInvalid) else problem.code
    if isinstance(problem, SchemaMismatch):
        code = "schema_mismatch"
    if as_json:
        print_json({"error": {"code": code, "message": lines[0].partition("\n")[0], "faults": faults}})
    for line in lines:
        say(line)
    if isinstance(problem, ConfigInvalid | SchemaMismatch) or problem.code in MISTAKEN:
        return USAGE
    unattended = isinstance(problem, StoreUnavailable) or problem.code == "no_worker"
    return UNATTENDED if unattended else REFUSED


def _refused(problem: Refused) -> str:
    detail = problem.detail
    if problem.code == "library_missing":  # its detail is only the command
        detail = f"{problem.failure.sentence} Run: {detail}"
    todo = advice(problem.code)
    more = "" if problem.faults or problem.code in SAID_IN_FULL or todo in detail else f" {todo}"
    return f"refused ({problem.code}): {detail}{more}"


def _named(pointer: str) -> str:
    """The member that a JSON pointer names, as it is written on a command line."""
    member, _, rest = pointer.removeprefix("/").partition("/")
    if member == "query":  # of a list
        return f"--{rest.replace('_', '-')}"
    return rest if member == "parameters" and rest else ARGUMENTS.get(member, pointer)


def _give_up_output() -> None:
    """The reader of our output has gone: what Python flushes at its end must not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

"""``haulage export``: the same durable path as the page, told from the request to the file.

    see who works  ->  request  ->  follow (Ctrl-C cancels)  ->  keep the file  ->  say its facts

When no worker lives, the command brings a private one along: a thread of this process that claims this one
run only (DECISIONS 36). It dies with the command, and its build with it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from haulage.cli.advice import advice
from haulage.cli.following import Interrupts, Left, follow
from haulage.cli.keeping import STANDARD_OUTPUT, destination, place_meant
from haulage.cli.opening import opened
from haulage.cli.terminal import DONE, FAILED, Fault, example, facts, moment, number, print_json, say, shared, tell
from haulage.config.faults import meant
from haulage.core.clock import new_id
from haulage.exports.grouping import Grouping, levels_said
from haulage.exports.life import ExportRun
from haulage.exports.plan import Asked
from haulage.exports.show import show, show_failure, unit_of

if TYPE_CHECKING:
    from haulage.app import Haulage
    from haulage.cli.keeping import Keeper
    from haulage.worker.supervisor import Supervisor

OUTPUT_HELP = "Keep the file here; a folder keeps its name, - is standard output."
READY_SECONDS = 10  # how long a private worker may take to announce itself


@click.command(epilog=example("haulage export orders -p since=2026-01-01 --format csv -o orders.csv"))
@click.argument("dataset")
@click.option(
    "-p",
    "--parameter",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="A condition; again for a list.",
)
@click.option("--parent", metavar="ID", help="What the export belongs to, where its dataset has parents.")
@click.option("--format", "format_", metavar="FORMAT", help="One of the dataset's formats; csv where it has it.")
@click.option("--columns", metavar="KEY,…", help="These columns, in this order.")
@click.option("--group-by", metavar="NAME,…", help="Group by these dimensions; --columns then names measures.")
@click.option("--subtotals", metavar="WORD", help="total, rollup, cube, or levels: country;country,status;()")
@click.option("--pivot", metavar="NAME,…", help="Those of --group-by that go across.")
@click.option("--dialect", metavar="NAME", help="Short for --option dialect=NAME.")
@click.option("--compression", metavar="NAME", help="gzip or zstd.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="An option of the format.")
@click.option("-o", "--output", type=click.Path(allow_dash=True), callback=place_meant, help=OUTPUT_HELP)
@click.option("--force", is_flag=True, help="Replace the file that is there.")
@shared
def export(
    dataset: str,
    parameters: Sequence[str],
    parent: str | None,
    format_: str | None,
    columns: str | None,
    group_by: str | None,
    subtotals: str | None,
    pivot: str | None,
    dialect: str | None,
    compression: str | None,
    options: Sequence[str],
    output: str | None,
    force: bool,
    config: Path,
    as_json: bool,
) -> int:
    """Export DATASET as the operator and wait for its file.

    Ctrl-C cancels the run durably and waits until it has stopped; a second Ctrl-C leaves. Without a living
    worker the command builds the file itself.
    """
    keeper = None if output is None else keeper_of(output, force=force, as_json=as_json)
    chosen = _pairs(options, "--option")
    wish: dict[str, Any] = {
        "parameters": _listed(_pairs(parameters, "-p")),
        "columns": _names(columns),
        "grouping": Grouping(_names(group_by), levels_said(subtotals), _names(pivot)),
        "compression": compression,
        "parent": parent,
        "options": {name: values[-1] for name, values in chosen.items()} | ({"dialect": dialect} if dialect else {}),
    }
    with opened(config) as haul:
        default = _default_format(haul, dataset)
        wish["format"] = format_ or default
        run = _run(haul, dataset, wish)
        kept = keeper.save(haul, run) if keeper is not None and run.state == "ready" else None
        if as_json:
            print_json(show(run))
        report(run, kept, aloud=not as_json, speak=say if output == STANDARD_OUTPUT else tell)
        if run.rows == 0:
            _wonder(haul, dataset)
    return DONE if run.state == "ready" else FAILED


def _names(said: str | None) -> list[str] | None:
    return None if said is None else [name.strip() for name in said.split(",")]


def keeper_of(output: str, *, force: bool, as_json: bool) -> Keeper:
    """What stands behind ``-o``.

    Raises:
        UsageError: the file and the JSON document cannot both be on standard output.
        Fault: the file is there, or its folder is not.
    """
    if as_json and output == STANDARD_OUTPUT:
        raise click.UsageError("-o -: --json answers on standard output; name a file")
    return destination(output, force=force)


def _wonder(haul: Haulage, name: str) -> None:
    """Say what nobody expects who has just written their first dataset: the operator is of one tenant, too."""
    dataset = haul.catalogue.find(name)
    if dataset is not None and dataset.visible:
        say(f'no rows: {name} shows what "visible" allows, and [operator] asks as tenant "{haul.operator.tenant}"')


def _run(haul: Haulage, dataset: str, wish: dict[str, Any]) -> ExportRun:
    """Request and follow, with a private worker where nobody else works."""
    attended = haul.store.workers.claiming(haul.settings.exports.presence_seconds)
    with Interrupts() as interrupts:
        private = None if attended else new_id()
        accepted = haul.exports.accept(haul.operator, Asked(dataset, **wish), private_run=private)
        run = accepted.run
        if not accepted.new:
            say(f"the same export is under way as run {run.id}; following it")
        with PrivateWorker(haul, run.id) as own:
            if not attended and run.state == "queued":
                own.start()
            try:
                return follow(haul, run.id, interrupts, unattended=own.start)
            except Left as left:
                say(f"left; the cancel of run {run.id} is {'recorded' if left.recorded else 'not recorded'}")
                sys.stderr.flush()
                # A private build must not hold the door: its child ends with this process, the sweep does the rest.
                os._exit(FAILED)


class PrivateWorker:
    """A worker for one run, in a thread of this process; it lives only when it was started."""

    def __init__(self, haul: Haulage, run_id: str) -> None:
        """Nothing works yet."""
        self._haul = haul
        self._run_id = run_id
        self._supervisor: Supervisor | None = None
        self._thread = threading.Thread(target=self._work, name="private worker", daemon=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        if self._supervisor is not None:
            self._supervisor.stop()
            self._thread.join()

    def start(self) -> None:
        """Work from now on, and say so; a second call does nothing."""
        if self._supervisor is not None:
            return
        say("no worker is alive: building here, with a worker for this run only")
        self._supervisor = self._haul.supervisor(lanes=1, only_run=self._run_id)
        self._thread.start()
        self._supervisor.ready.wait(READY_SECONDS)

    def _work(self) -> None:
        assert self._supervisor is not None
        self._supervisor.run()


def report(run: ExportRun, kept: str | None = None, *, aloud: bool = True, speak: Callable[[str], None] = tell) -> None:
    """Say how a run ended: the facts of its file on stdout, or why there is none, and what to do, on stderr."""
    if run.state != "ready":
        failure = show_failure(run)
        if failure is None:
            say(f"{run.state}: there is no file")
            return
        say(f"{run.state}: {failure['message']} ({failure['code']})")
        say(advice(str(failure["code"]), dataset=run.dataset, run_id=run.id))
        return
    if not aloud:
        return
    waits = f"{run.file_name} (until {moment(run.expires_at)}; take it out with: haulage runs fetch {run.id})"
    pairs = [
        ("file", waits if kept is None else kept),
        (unit_of(run).replace("_", " "), number(run.rows)),
        *grouping_facts(run),
        ("bytes", number(run.bytes)),
        ("sha256", str(run.sha256)),
        ("snapshot", moment(run.snapshot_at)),
        ("complete", "yes" if run.complete else "no" if run.complete is False else "-"),
    ]
    pairs += [("notice", notice_text(notice)) for notice in run.notices]
    speak(facts([*pairs, ("run", run.id)]))


def grouping_facts(run: ExportRun) -> list[tuple[str, str]]:
    """What a run groups by, and how many groups that gave; nothing where it does not."""
    asked = run.plan.get("asked")
    if not asked:
        return []
    by = ", ".join(asked["group_by"]) + (f"; across: {', '.join(asked['pivot'])}" if asked["pivot"] else "")
    return [("grouped by", by), ("groups", number(run.logical_count))]


def notice_text(notice: Any) -> str:
    """A notice with its count, and the columns that it is about."""
    count, columns = notice.get("count"), ", ".join(map(str, notice.get("columns", ())))
    text = str(notice["code"]) + ("" if count is None else f" ({number(count)})")
    return f"{text} in {columns}" if columns else text


def _default_format(haul: Haulage, name: str) -> str:
    dataset = haul.catalogue.find(name)
    if dataset is None:
        known = [each.name for each in haul.catalogue]
        raise Fault(f"there is no dataset {name!r}; {meant(name, known)}")
    return "csv" if "csv" in dataset.formats else dataset.formats[0]


def _pairs(texts: Sequence[str], option: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{option} {text!r}: write {option} name=value")
        found.setdefault(name, []).append(value)
    return found


def _listed(pairs: dict[str, list[str]]) -> dict[str, Any]:
    return {name: values[0] if len(values) == 1 else values for name, values in pairs.items()}

"""``haulage runs``: any run by its id. The operator sees the runs of every account."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from haulage.cli.advice import advice
from haulage.cli.exports import OUTPUT_HELP, grouping_facts, keeper_of, notice_text, report
from haulage.cli.following import follow
from haulage.cli.keeping import STANDARD_OUTPUT, place_meant
from haulage.cli.opening import opened
from haulage.cli.terminal import (
    DONE,
    FAILED,
    example,
    facts,
    moment,
    number,
    print_json,
    say,
    shared,
    size,
    table,
    tell,
)
from haulage.core.errors import Refused
from haulage.exports.life import ExportLife, ExportRun
from haulage.exports.show import show, show_failure, unit_of

LIMIT_MAX = 1000


@click.group(epilog=example("haulage runs list --state running"))
def runs() -> None:
    """List, show, watch, fetch, cancel and expire runs."""


@contextmanager
def known(run_id: str) -> Iterator[None]:
    """Say of a run that is not there where ids come from."""
    try:
        yield
    except Refused as refused:
        if refused.code != "not_found":
            raise
        why = f"there is no run {run_id}; haulage runs list --all has those of every account"
        raise Refused("not_found", why) from refused


@runs.command("list", epilog=example("haulage runs list --state failed --dataset orders --all"))
@click.option("--state", type=click.Choice(ExportLife.states), help="Only runs in this state.")
@click.option("--dataset", metavar="NAME", help="Only runs of this dataset.")
@click.option("--parent", metavar="ID", help="The runs of this parent, whoever asked for them.")
@click.option("--parent-kind", metavar="KIND", help="Which kind of parent, where there are several.")
@click.option(
    "--limit",
    type=click.IntRange(1, LIMIT_MAX),
    default=20,
    show_default=True,
    help="How many, newest first.",
)
@click.option("--all", "everyone", is_flag=True, help="Runs of every account, not only the operator's own.")
@shared
def list_runs(
    state: str | None,
    dataset: str | None,
    parent: str | None,
    parent_kind: str | None,
    limit: int,
    everyone: bool,
    config: Path,
    as_json: bool,
) -> int:
    """List runs, newest first: the operator's own that belong to no parent, those of a parent, or all."""
    with opened(config) as haul:
        found = haul.exports.list(
            haul.operator,
            state=state,
            dataset=dataset,
            parent=parent,
            parent_kind=parent_kind,
            limit=limit,
            everyone=everyone,
        )
        more, found = len(found) > limit, found[:limit]
        if as_json:
            items = [show(run, queue_position=haul.exports.queue_position(run)) for run in found]
            if everyone:
                whose = [{"tenant": run.tenant, "account": run.account} for run in found]
                items = [item | owner for item, owner in zip(items, whose, strict=True)]
            print_json({"items": items, "more": more})
            return DONE
    if not found:
        of_one = " of that parent" if parent else " of the operator; --all lists those of every account"
        say("no runs" + ("" if everyone else of_one))
        return DONE
    heads = ["ID", "DATASET", "FORMAT", "STATE", ">ROWS", ">SIZE", "REQUESTED"]
    rows = [_row(run) for run in found]
    if everyone:
        heads.append("ACCOUNT")
        rows = [[*row, f"{run.tenant}/{run.account}"] for row, run in zip(rows, found, strict=True)]
    if any(run.parent is not None for run in found):
        heads.append("PARENT")
        rows = [[*row, _parent(run)] for row, run in zip(rows, found, strict=True)]
    tell(table(heads, rows))
    if more:
        say("there are more; " + ("raise --limit" if limit < LIMIT_MAX else "narrow them by --state or --dataset"))
    return DONE


def _parent(run: ExportRun) -> str:
    return "-" if run.parent is None else f"{run.parent_kind} {run.parent}"


def _row(run: ExportRun) -> list[str]:
    state = run.failure_code or run.state
    stopping = run.state == "running" and run.cancel_requested_at is not None
    rows = run.rows if run.rows is not None else run.processed
    return [
        run.id,
        run.dataset,
        run.format,
        "stopping" if stopping else state,
        number(rows),
        size(run.bytes),
        moment(run.requested_at),
    ]


@runs.command("show", epilog=example("haulage runs show 01928c5e-7b1f-7cc3-98c4-dc0c0c07398f"))
@click.argument("run_id", metavar="ID")
@shared
def show_run(run_id: str, config: Path, as_json: bool) -> int:
    """Show everything about one run."""
    with opened(config) as haul, known(run_id):
        run = haul.exports.get(haul.operator, run_id)
        place = haul.exports.queue_position(run)
    if as_json:
        print_json(show(run, queue_position=place))
        return DONE
    failure = show_failure(run)
    pairs = [
        ("run", run.id),
        ("dataset", run.dataset),
        ("format", run.format + (f", {run.compression}" if run.compression else "")),
        ("parameters", ", ".join(f"{name}={value}" for name, value in run.parameters.items()) or "-"),
        ("parent", _parent(run)),
        ("asked by", f"{run.tenant}/{run.account}"),
        ("state", run.state + (f", {run.phase}" if run.phase and run.state == "running" else "")),
        *grouping_facts(run),
        ("progress", f"{number(run.processed)} of {number(run.total)} {unit_of(run).replace('_', ' ')}"),
        ("place", number(place)),
        ("requested", moment(run.requested_at)),
        ("started", moment(run.started_at)),
        ("last sign", moment(run.heartbeat_at)),
        ("cancelled at", moment(run.cancel_requested_at)),
        ("finished", moment(run.finished_at)),
        ("kept until", moment(run.expires_at)),
        ("failure", f"{failure['message']} ({failure['code']})" if failure else "-"),
        ("what to do", advice(str(failure["code"]), dataset=run.dataset, run_id=run.id) if failure else "-"),
        ("file", run.file_name or "-"),
        ("rows", number(run.rows)),
        ("bytes", number(run.bytes)),
        ("sha256", run.sha256 or "-"),
        ("snapshot", moment(run.snapshot_at)),
        *(("notice", notice_text(notice)) for notice in run.notices),
    ]
    tell(facts([(name, value) for name, value in pairs if value != "-"]))
    return DONE


@runs.command("watch", epilog=example("haulage runs watch 01928c5e-7b1f-7cc3-98c4-dc0c0c07398f"))
@click.argument("run_id", metavar="ID")
@shared
def watch_run(run_id: str, config: Path, as_json: bool) -> int:
    """Follow one run to its end. Ctrl-C stops watching; the run goes on."""
    with opened(config) as haul, known(run_id):
        try:
            run = follow(haul, run_id, None)
        except KeyboardInterrupt:
            say("no longer watching; the run goes on")
            return FAILED
    if as_json:
        print_json(show(run))
    report(run, aloud=not as_json)
    return DONE if run.state in ("ready", "expired") else FAILED


@runs.command("fetch", epilog=example("haulage runs fetch 01928c5e-7b1f-7cc3-98c4-dc0c0c07398f -o orders.csv"))
@click.argument("run_id", metavar="ID")
@click.option(
    "-o",
    "--output",
    type=click.Path(allow_dash=True),
    callback=place_meant,
    default=".",
    show_default=True,
    help=OUTPUT_HELP,
)
@click.option("--force", is_flag=True, help="Replace the file that is there.")
@shared
def fetch_run(run_id: str, output: str, force: bool, config: Path, as_json: bool) -> int:
    """Take the file of a ready run out, compared with its SHA-256."""
    keeper = keeper_of(output, force=force, as_json=as_json)
    with opened(config) as haul, known(run_id):
        kept = keeper.save(haul, haul.exports.get(haul.operator, run_id))
        run = haul.exports.get(haul.operator, run_id)
    if as_json:
        print_json(show(run))
    report(run, kept, aloud=not as_json, speak=say if output == STANDARD_OUTPUT else tell)
    return DONE


@runs.command("cancel", epilog=example("haulage runs cancel 01928c5e-7b1f-7cc3-98c4-dc0c0c07398f"))
@click.argument("run_id", metavar="ID")
@shared
def cancel_run(run_id: str, config: Path, as_json: bool) -> int:
    """Cancel one run, durably. One that is being built stops within seconds."""
    with opened(config) as haul, known(run_id):
        run = haul.exports.cancel(haul.operator, run_id)
    if as_json:
        print_json(show(run))
    else:
        tell("cancelled" if run.state == "cancelled" else f"cancel recorded; the run is {run.state} and will stop")
    return DONE


@runs.command("expire", epilog=example("haulage runs expire 01928c5e-7b1f-7cc3-98c4-dc0c0c07398f"))
@click.argument("run_id", metavar="ID")
@shared
def expire_run(run_id: str, config: Path, as_json: bool) -> int:
    """Remove the file of a ready run before its time."""
    with opened(config) as haul, known(run_id):
        haul.exports.expire(haul.operator, run_id)
        haul.sweeper().pass_once()  # Its bytes go now, also where no worker lives.
        run = haul.exports.get(haul.operator, run_id)
    if as_json:
        print_json(show(run))
    else:
        tell(
            f"expired; {run.file_name or 'its file'} " + ("is gone" if run.artifact_key is None else "will be removed")
        )
    return DONE

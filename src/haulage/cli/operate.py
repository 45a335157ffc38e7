"""``haulage migrate`` and ``haulage sweep``: upkeep of the store, by hand."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from haulage.cli.opening import opened, read_settings
from haulage.cli.terminal import DONE, FAILED, Fault, example, facts, print_json, say, shared, tell


@click.command(epilog=example("haulage migrate status", "haulage migrate up"))
@click.argument("action", type=click.Choice(["up", "down", "status"]))
@click.option("--yes", is_flag=True, help="Do not ask before data is lost.")
@shared
def migrate(action: str, yes: bool, config: Path, as_json: bool) -> int:
    """Bring the store's schema up to this version, take it away, or say where it stands.

    Back the store up before, and stop workers and web. A new SQLite store needs no migration: it is made
    with its schema.
    """
    from haulage.stores.open import open_store

    settings = read_settings(config)
    store = open_store(settings.store, settings.exports, migrate_new=False)
    try:
        before = store.schema()
        if action == "down":
            if before.version is None:
                raise Fault("the store has no schema; there is nothing to take away")
            if not yes:
                click.confirm("Every run and every sign-in will be lost. Go on?", abort=True, err=True)
            store.migrate("base")
        elif action == "up":
            store.migrate("head")
        schema = store.schema()
    finally:
        store.close()
    behind = schema.version is None or schema.version < schema.wanted
    if as_json:
        print_json({"version": schema.version, "wanted": schema.wanted, "min_worker": schema.min_worker})
    else:
        tell(f"schema {schema.version or 'none'}, this version works with {schema.wanted}")
    if action == "status" and behind:
        say("run: haulage migrate up")
        return FAILED
    return DONE


@click.command(epilog=example("haulage sweep"))
@shared
def sweep(config: Path, as_json: bool) -> int:
    """Do everything that is due, once: end runs, expire files, remove bytes and rows nobody needs.

    Workers and the web do this every few seconds; by hand it helps where none lives.
    """
    with opened(config) as haul:
        report = haul.sweeper().pass_once()
    if as_json:
        print_json(asdict(report))
    else:
        pairs = [(name.replace("_", " "), count) for name, count in asdict(report).items() if isinstance(count, int)]
        done = [(name, f"{count:,}") for name, count in pairs if count]
        tell(facts(done) if done else "nothing was due")
    for failure in report.failures:
        say(f"could not be removed, the next sweep tries again: {failure}")
    return FAILED if report.failures else DONE

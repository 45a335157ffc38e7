"""``haulage migrate`` and ``haulage sweep``: upkeep of the store, by hand."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from haulage.artifacts.open import open_artifacts
from haulage.cli.opening import naming_the_store, opened, read_settings, store_file
from haulage.cli.terminal import DONE, FAILED, Fault, example, facts, print_json, say, shared, tell

if TYPE_CHECKING:
    from haulage.artifacts.local import LocalArtifacts
    from haulage.artifacts.objects import ObjectArtifacts
    from haulage.config import Settings
    from haulage.stores import AnyStore
    from haulage.stores.schema import Schema


@click.command(epilog=example("haulage migrate status", "haulage migrate up", "haulage migrate up --roles"))
@click.argument("action", type=click.Choice(["up", "down", "status"]))
@click.option("--yes", is_flag=True, help="Do not ask before data is lost.")
@click.option("--roles", is_flag=True, help='With "up", on PostgreSQL: also make the roles that keep tenants apart.')
@shared
def migrate(action: str, yes: bool, roles: bool, config: Path, as_json: bool) -> int:
    """Bring the store's schema up to this version, take it away, or say where it stands.

    Back the store up before, and stop workers and web. A new SQLite store needs no migration: it is made
    with its schema. "down" is no step back to an older version: it takes away the whole schema, and with it
    every run, every sign-in and every finished file.

    --roles makes haulage_runtime, haulage_worker and haulage_routing, without passwords, or brings them to what they
    may do today; docs/operating.md says which process connects as which.
    """
    from haulage.stores import open_store

    settings = read_settings(config)
    _refuse_what_cannot_be_done(action, store_file(settings), roles=roles)
    with naming_the_store(config), closing(open_store(settings.store, settings.exports, migrate_new=False)) as store:
        if action != "status":
            _refuse_a_newer(store)
        if action == "down" and not _take_away(store, settings, yes=yes):
            return FAILED
        if roles and not store.capabilities.row_security:
            raise Fault("only PostgreSQL has row security and roles; in this store tenants are kept apart without them")
        if action == "up":
            store.migrate("head")
        if roles:
            store.make_roles()
        schema = store.schema()
    if as_json:
        print_json({"version": schema.version, "wanted": schema.wanted, "min_worker": schema.min_worker})
    else:
        tell(f"schema {schema.version or 'none'}, this version works with {schema.wanted}")
    if roles:
        say("haulage_runtime, haulage_worker and haulage_routing may do what they need; new ones have no password yet")
    to_do = _to_do(schema) if action == "status" else None
    if to_do is not None:
        say(to_do)
        return FAILED
    return DONE


def _refuse_what_cannot_be_done(action: str, file: Path | None, *, roles: bool) -> None:
    if roles and action != "up":
        raise Fault(f"--roles goes with up; nothing was done for {action}")
    if action != "up" and file is not None and not file.exists():  # opening it would make it
        raise Fault(f"there is no store at {file} yet; the first start makes it")


def _to_do(schema: Schema) -> str | None:
    """What has to be done before this version and this schema work together; None when they do."""
    from haulage.stores.schema import too_old

    if schema.version is None or schema.version < schema.wanted:
        return "run: haulage migrate up"
    return too_old(schema)


def _refuse_a_newer(store: AnyStore) -> None:
    """A newer version has migrated it, and only that one knows what there is to change or to take away."""
    schema = store.schema()
    if schema.version is not None and schema.version > schema.wanted:
        raise Fault(
            f"the store has schema {schema.version}, this version works with {schema.wanted}; "
            "only a newer haulage can change it (pip install --upgrade haulage)"
        )


def _take_away(store: AnyStore, settings: Settings, *, yes: bool) -> bool:
    """Take the schema away, then the files: a file is promised by its row, so the row goes first.

    Raises:
        Fault: there is nothing, somebody still works, or nobody can be asked.
    """
    schema = store.schema()
    if schema.version is None:
        raise Fault("the store has no schema; there is nothing to take away")
    alive = store.workers.seen(settings.exports.presence_seconds) if schema.version == schema.wanted else []
    if alive:
        raise Fault(f"a worker is alive ({alive[0].host}, process {alive[0].pid}); stop every worker and the web first")
    if not yes and not _agreed():
        say("nothing was changed")
        return False
    artifacts = _artifacts_of(store, settings)
    there = artifacts.there()
    if there:
        _prepare(artifacts)  # refuses a folder that is not ours
    store.migrate("base")
    try:
        if there:
            for key in artifacts.keys():  # noqa: SIM118 - no mapping
                artifacts.remove(key)
            artifacts.release()
    except OSError as problem:
        say(f"{artifacts.place}: {problem.strerror or problem}; remove what is left there by hand")
    return True


def _artifacts_of(store: AnyStore, settings: Settings) -> LocalArtifacts | ObjectArtifacts:
    return open_artifacts(settings.artifacts, settings.objects, store.identity())


def _prepare(artifacts: LocalArtifacts | ObjectArtifacts, *, adopt: bool = False) -> None:
    try:
        artifacts.prepare(adopt=adopt)
    except OSError as problem:
        raise Fault(f"{artifacts.place}: {problem.strerror or problem}") from problem


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise Fault("every run, every sign-in and every finished file would be lost; say --yes if that is meant")
    return click.confirm("Every run, every sign-in and every finished file will be lost. Go on?", err=True)


def _adopt(config: Path) -> None:
    from haulage.stores import open_store

    settings = read_settings(config)
    with naming_the_store(config), closing(open_store(settings.store, settings.exports)) as store:
        _prepare(_artifacts_of(store, settings), adopt=True)


@click.command(epilog=example("haulage sweep"))
@click.option("--adopt", is_flag=True, help="First take over a folder of artifacts that a store now gone has left.")
@shared
def sweep(adopt: bool, config: Path, as_json: bool) -> int:
    """Do everything that is due, once: end runs, expire files, remove bytes and rows nobody needs.

    Workers and the web do this every few seconds; by hand it helps where none lives. With --adopt the folder of
    artifacts is this store's from now on, and what none of its runs names is removed from it.
    """
    if adopt:
        _adopt(config)
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

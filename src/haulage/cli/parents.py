"""``haulage parents``: what exports belong to. The host tells when one is gone; here the operator can."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from haulage.cli.opening import opened
from haulage.cli.terminal import DONE, Fault, example, facts, print_json, shared, tell
from haulage.config.faults import meant


@click.group(epilog=example("haulage parents gone book 7"))
def parents() -> None:
    """Say that something that exports belong to is gone."""


@parents.command("gone", epilog=example("haulage parents gone book 7 --tenant north"))
@click.argument("kind")
@click.argument("parent", metavar="ID")
@click.option("--tenant", metavar="NAME", help="Whose it was; the operator's own, if it is left out.")
@shared
def gone(kind: str, parent: str, tenant: str | None, config: Path, as_json: bool) -> int:
    """End the exports of a parent that is not there any more: the book 7, for example.

    Those that wait or run are cancelled; files expire at once, and the next sweep removes their bytes. The sweep does
    this by itself for a parent of which the application, or the query of its kind, says that it is not there.
    """
    with opened(config) as haul:
        known = haul.catalogue.parent_kinds
        if kind not in known:
            raise Fault(f"there is no kind of parent {kind!r}; {meant(kind, known)}")
        ended = haul.parent_gone(kind, parent, tenant=tenant or haul.operator.tenant)
    if as_json:
        print_json(asdict(ended))
        return DONE
    done = [(name, f"{count:,}") for name, count in asdict(ended).items() if count]
    tell(facts(done) if done else "it had no exports that wait, run or have a file")
    return DONE

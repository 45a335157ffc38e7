"""``haulage doctor``: what is wrong and what to do. One function a subject; each yields findings.

Later subjects are looked at although earlier ones failed, as far as that is possible; ``--check`` also reads
every row, and every finished file again, and compares them.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from haulage.cli.datasets import checks, why_unread
from haulage.cli.findings import Finding
from haulage.cli.inspection import files, orphans, rows
from haulage.cli.opening import Declared, declared_in, read_settings, store_file, what_to_do
from haulage.cli.terminal import DONE, FAILED, USAGE, example, print_json, printable, shared, size, tell
from haulage.cli.volume import peer, quarantined, volume
from haulage.config.faults import masked
from haulage.core.clock import now_ms, rfc3339
from haulage.core.errors import ConfigInvalid, SchemaMismatch, StoreUnavailable

if TYPE_CHECKING:
    from haulage.app import Haulage
    from haulage.config import Settings

YEAR_2026 = 1_767_225_600_000  # milliseconds; a clock before this version was written is wrong
CLOCK_STEP_MS = 1_000  # wall clock and monotonic clock may differ by so much over the look
FORCE = "alter table exports enable row level security, force row level security (and idempotency_keys)"
MAKE_ROLES = "as the owner run: haulage migrate up --roles, then connect as haulage_worker"
PEER_SECONDS = 60  # how long doctor waits for the other host


@click.command(epilog=example("haulage doctor --check"))
@click.option("--check", "thorough", is_flag=True, help="Also read every row and finished file (may take long).")
@click.option("--peer", "with_peer", is_flag=True, help="Also try a directory store together with another host.")
@shared
def doctor(thorough: bool, with_peer: bool, config: Path, as_json: bool) -> int:
    """Say what is wrong and what to do: configuration, secrets, store, artifacts, sources, workers, clock.

    Ends with 1 when something is wrong (FAIL), with 2 when the configuration cannot be used at all.
    """
    shown: list[Finding] = []
    for finding in _findings(config, thorough=thorough, with_peer=with_peer):
        shown.append(finding)
        if not as_json:  # at once: a store that hangs keeps nobody from what was found before it
            what = f"{finding.subject}: {finding.what}" + (f"; {finding.do}" if finding.do else "")
            tell(f"{finding.level:<4}  {printable(' '.join(what.splitlines()))}")
    wrong = any(finding.level == "FAIL" for finding in shown)
    if as_json:
        print_json({"ok": not wrong, "findings": [asdict(finding) for finding in shown]})
    if not wrong:
        return DONE
    return USAGE if all(finding.subject == "configuration" for finding in shown) else FAILED


def _findings(config: Path, *, thorough: bool, with_peer: bool) -> Iterator[Finding]:
    try:
        settings = read_settings(config)
    except ConfigInvalid as problem:
        yield from (Finding("FAIL", "configuration", fault) for fault in problem.faults)
        return
    yield Finding("OK", "configuration", f"{config} has no faults")
    yield from chain(_secrets(settings), _modes(settings), _clock(), _compression())
    there = declared_in(settings)
    yield from _sources(there)
    store = store_file(settings)
    if store is not None and not store.exists():
        # Looking must not make one: an empty store in the place of one that has vanished hides what has happened.
        what = f"there is none at {store} yet"
        yield Finding("WARN", "store", what, "the first start makes it; one that has vanished: put it back")
        yield from _datasets(there)
        return
    # Before it is opened: a start refuses a volume that does not keep what it needs.
    if store is not None and store.is_dir():
        yield from volume(store)
        yield from peer(store, PEER_SECONDS) if with_peer else ()
    elif with_peer:
        what = "only a directory store is shared by locks"
        yield Finding("FAIL", "peer", what, "leave --peer out, or name a directory: in store")
    try:
        with closing(_opened(config)) as haul:
            there = Declared(haul.settings, haul.catalogue)  # with the datasets of an application
            yield from _opened_too(haul, thorough=thorough)
    except ConfigInvalid as problem:
        yield from (Finding("FAIL", "configuration", fault) for fault in problem.faults)
    except SchemaMismatch as problem:
        yield Finding("FAIL", "store", str(problem))  # it says what to do
    except StoreUnavailable as problem:
        what = f"{masked(settings.store) if store is None else store}: {str(problem) or 'it does not answer'}"
        yield Finding("FAIL", "store", what, what_to_do(settings, problem))
    except OSError as problem:
        what = f"{problem.filename}: {problem.strerror}" if problem.filename else str(problem)
        yield Finding("FAIL", "artifacts", what, "let this user write there, or name another folder")
    yield from _datasets(there)


def _opened(config: Path) -> Haulage:
    from haulage.app import Haulage
    from haulage.cli.opening import find_beside

    find_beside(config)
    return Haulage.find(config)


# -- without the store ---------------------------------------------------------------------------------


def _secrets(settings: Settings) -> Iterator[Finding]:
    count = len(settings.secret_keys)
    yield Finding("OK", "secrets", f"{count} {'secret' if count == 1 else 'secrets'}; the first signs")
    if not settings.keys and settings.app is None:  # an application signs its own users in
        yield Finding(
            "WARN", "keys", "there are no bearer keys, so nobody can sign in", "run: haulage keys new NAME --write"
        )


def _modes(settings: Settings) -> Iterator[Finding]:
    for warning in settings.warnings:
        what, _, do = warning.partition("; ")
        yield Finding("WARN", "file modes", what, do)
    kept = settings.objects.work if settings.artifacts.startswith("s3:") else settings.artifacts.removeprefix("file:")
    for path in (store_file(settings), Path(kept)):
        if path is not None and path.exists() and path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
            yield Finding("WARN", "file modes", f"every user can read {path}", f"run: chmod o-rwx {path}")


def _clock() -> Iterator[Finding]:
    wall, steady = now_ms(), time.monotonic()
    time.sleep(0.05)
    drift = (now_ms() - wall) - (time.monotonic() - steady) * 1000
    if wall < YEAR_2026:
        yield Finding("FAIL", "clock", f"this host believes it is {rfc3339(wall)}", "set its clock")
    elif abs(drift) > CLOCK_STEP_MS:
        yield Finding("WARN", "clock", f"it jumped by {drift:,.0f} ms while being looked at", "see the time service")
    else:
        yield Finding("OK", "clock", f"{rfc3339(wall)}")


def _formats(there: Declared) -> Iterator[Finding]:
    from haulage.formats import FORMATS

    for name in sorted({name for dataset in there.catalogue for name in dataset.formats if name in FORMATS}):
        if missing := FORMATS[name].missing():
            yield Finding("WARN", "formats", f"{name} cannot be written", missing)


def _compression() -> Iterator[Finding]:
    from haulage.formats import COMPRESSIONS

    for name, compression in COMPRESSIONS.items():
        missing = compression.missing()
        if missing:
            yield Finding("WARN", "compression", f"{name} cannot be used", missing)
        else:
            yield Finding("OK", "compression", f"{name} can be used")


def _sources(there: Declared) -> Iterator[Finding]:
    for name, source in there.settings.sources.items():
        why = why_unread(there, name)
        if why is None:
            yield Finding("OK", "sources", f"{name} can be read" + (f": {source.label}" if source.label else ""))
        else:
            yield Finding("FAIL", "sources", f"{name}: {why}")


def _datasets(there: Declared) -> Iterator[Finding]:
    yield from _formats(there)
    if not len(there.catalogue) and there.settings.app is None:
        yield Finding("WARN", "datasets", "there are none", "declare one: docs/datasets.md")
    for checked in checks(there, there.catalogue):
        for problem in checked.problems:
            yield Finding("FAIL", "datasets", f"{checked.name}: {problem}")
        for warning in checked.warnings:
            yield Finding("WARN", "datasets", f"{checked.name}: {warning}")
        if not checked.problems and not checked.warnings:
            yield Finding("OK", "datasets", f"{checked.name} can be exported")


# -- with the store ------------------------------------------------------------------------------------


def _opened_too(haul: Haulage, *, thorough: bool) -> Iterator[Finding]:
    yield from _store(haul)
    yield from quarantined(haul.store)
    yield from _artifacts(haul)
    yield from _workers(haul)
    yield from _read(haul) if thorough else ()


def _store(haul: Haulage) -> Iterator[Finding]:
    schema = haul.store.schema()
    yield Finding("OK", "store", f"schema {schema.version}, this version works with {schema.wanted}")
    skew = haul.store.now() - now_ms()
    if abs(skew) > CLOCK_STEP_MS:
        yield Finding("WARN", "clock", f"the store's clock is {skew:,} ms from this host's", "see the time service")
    missing = haul.store.check()
    if missing is None:
        yield Finding("OK", "store", "it can be written")
    else:
        yield Finding("FAIL", "store", missing, "restore a backup that has the triggers and routines of the schema too")
    yield from _tenants(haul)
    if haul.store.one_tenant:
        return
    for sentence in haul.store.exports.drift():
        yield Finding("FAIL", "store", f"its counters are not those of its runs: {sentence}", "report this")


def _read(haul: Haulage) -> Iterator[Finding]:
    """Every row and every file."""
    if haul.store.one_tenant:
        what = "rows and files of all tenants are not for this role to see"
        yield Finding("WARN", "runs", what, "run it as haulage_worker")
    else:
        yield from chain(rows(haul), files(haul), orphans(haul))


def _tenants(haul: Haulage) -> Iterator[Finding]:
    """Who keeps tenants apart: this version alone, or the database as well, and whether that holds for this role."""
    role = haul.store.role()
    if role is None:
        yield Finding("OK", "tenants", "kept apart by this version; this kind of store has no row security")
    elif not role.forced:
        what = "the tables of runs have lost their row security"
        yield Finding("FAIL", "tenants", what, f"as their owner run: {FORCE}")
    elif role.passes_by:
        what = f"{role.name} is a superuser or has BYPASSRLS, so no row security binds it"
        yield Finding("WARN", "tenants", what, MAKE_ROLES if not role.roles else "connect as haulage_worker")
    elif role.owns:
        what = f"kept apart by row security, but {role.name} owns the tables and could take it away"
        yield Finding("WARN", "tenants", what, MAKE_ROLES if not role.roles else "connect as haulage_worker")
    elif role.one_tenant:
        what = f"kept apart by row security; {role.name} acts for one tenant at a time, and neither claims nor sweeps"
        yield Finding("OK", "tenants", what)
    else:
        what = f"kept apart by row security; {role.name} acts for one tenant, or for all as workers and the operator do"
        yield Finding("OK", "tenants", what)


def _artifacts(haul: Haulage) -> Iterator[Finding]:
    limits = haul.settings.exports
    used = haul.exports.storage(haul.operator)
    taken = used.stored_bytes + used.reserved_bytes
    yield Finding("OK", "artifacts", f"{size(taken)} of {size(limits.store_bytes)} used")
    for level, what, do in haul.artifacts.examine(max(0, limits.store_bytes - used.stored_bytes)):
        yield Finding(level, "artifacts", what, do)


def _workers(haul: Haulage) -> Iterator[Finding]:
    seen = haul.store.workers.seen(haul.settings.exports.presence_seconds)
    claiming = [each for each in seen if each.state == "claiming" and each.only_run is None]
    for each in seen:
        kind = "private" if each.only_run else each.state
        yield Finding("OK", "workers", f"{each.host}, process {each.pid}: {kind}, {each.lanes} lanes, {each.version}")
    if not claiming:
        yield Finding("WARN", "workers", "none is alive, so the page refuses exports", "run: haulage worker")

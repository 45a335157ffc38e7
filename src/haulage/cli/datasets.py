"""``haulage datasets``: what can be exported; ``check`` prepares every query against its source."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from haulage.cli.advice import advice
from haulage.cli.opening import Declared, declared
from haulage.cli.terminal import DONE, FAILED, Fault, example, print_json, say, shared, table, tell
from haulage.config.faults import masked
from haulage.core.catalogue import Dataset, Parameter
from haulage.core.clock import now_ms
from haulage.core.errors import BuildFailed, Refused
from haulage.core.grouping import Aggregate, Question, additive
from haulage.core.parents import Parent, ParentRef
from haulage.core.reading import Reading
from haulage.core.source import Source
from haulage.exports.parameters import resolve_parameters
from haulage.exports.parents import reading_of as owners_reading
from haulage.exports.plan import freeze, query_of
from haulage.exports.reading import reading_of
from haulage.exports.revision import reading_of as policy_reading
from haulage.worker.host import looked_up, rehearse

if TYPE_CHECKING:  # it needs an extra
    from haulage.cli.advising import Advised

# What a parameter without a default is prepared with; the rows do not matter, the query does.
SAMPLES = {
    "text": "",
    "integer": 0,
    "decimal": "0",
    "boolean": True,
    "date": "2000-01-01",
    "timestamp": "2000-01-01T00:00:00Z",
}


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check found out about one dataset. Only problems make the command fail."""

    name: str
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    advised: Advised | None = None


@click.command(
    epilog=example("haulage datasets", "haulage datasets check orders", "haulage datasets check orders --advise")
)
@click.argument("action", type=click.Choice(["list", "check"]), default="list", required=False)
@click.argument("names", nargs=-1, metavar="[DATASET]…")
@click.option("--advise", is_flag=True, help="With check: name the indexes that its tables lack, to review.")
@shared
def datasets(action: str, names: Sequence[str], advise: bool, config: Path, as_json: bool) -> int:
    """List what can be exported, or check every query against its source.

    A check reads no rows. It ends with 1 when a query cannot work; warnings alone do not fail it. Advice fails nothing
    and changes nothing: the plan of each query (EXPLAIN) is compared with the indexes that are there.
    """
    if advise and action != "check":
        raise Fault("--advise goes with check: haulage datasets check --advise")
    if advise and find_spec("sqlglot") is None:
        raise Fault("sqlglot not found; install the advise extra: pip install 'haulage[advise]'")
    with declared(config) as all_of_them:
        chosen = _chosen(all_of_them, names)
        if action == "check":
            found = checks(all_of_them, chosen)
            return _say_checked(list(_advised(all_of_them, found) if advise else found), as_json)
        _list(chosen, as_json)
    return DONE


def _chosen(all_of_them: Declared, names: Sequence[str]) -> list[Dataset]:
    from haulage.config.faults import meant

    known = {dataset.name: dataset for dataset in all_of_them.catalogue}
    faults = [f"there is no dataset {name!r}; {meant(name, known)}" for name in names if name not in known]
    if faults:
        raise Fault("; ".join(faults))
    return [known[name] for name in names] or list(known.values())


def _list(chosen: list[Dataset], as_json: bool) -> None:
    if as_json:
        print_json({"items": [_shown(dataset) for dataset in chosen]})
        return
    if not chosen:
        say("no datasets; declare one in the configuration: docs/datasets.md")
        return
    rows = [
        [
            dataset.name,
            dataset.source or "-",
            ", ".join(dataset.formats),
            dataset.permission or "everybody",
            ", ".join(parameter.name + ("" if parameter.required else "?") for parameter in dataset.parameters) or "-",
            dataset.label or "-",
        ]
        for dataset in chosen
    ]
    tell(table(["DATASET", "SOURCE", "FORMATS", "NEEDS", "PARAMETERS", "LABEL"], rows))


def _shown(dataset: Dataset) -> dict[str, Any]:
    return {
        "name": dataset.name,
        "label": dataset.label,
        "description": dataset.description,
        "source": dataset.source,
        "permission": dataset.permission,
        "parent": dataset.parent,
        "formats": list(dataset.formats),
        "parameters": [
            {"name": each.name, "type": each.type, "required": each.required, "many": each.many}
            for each in dataset.parameters
        ],
        "key": list(dataset.key),
        "order": list(dataset.order),
        "declared_in": "python" if dataset.function or dataset.pages else "file",
    }


def checks(all_of_them: Declared, datasets: Iterable[Dataset]) -> Iterator[Checked]:
    """Check one dataset after the other; what is to be said of a source is said with the first of its datasets."""
    told: set[str] = set()
    for dataset in datasets:
        checked = check(all_of_them, dataset)
        left = tuple(each for each in checked.warnings if not each.startswith("sources.") or each not in told)
        told.update(checked.warnings)
        yield replace(checked, warnings=left)


def _advised(all_of_them: Declared, found: Iterable[Checked]) -> Iterator[Checked]:
    """What was checked, with advice for queries that work."""
    from haulage.cli.advising import advise

    known = {dataset.name: dataset for dataset in all_of_them.catalogue}
    for each in found:
        dataset = known[each.name]
        stand_ins = {parameter.name: _sample(parameter) for parameter in dataset.parameters if parameter.required}
        yield each if each.problems else replace(each, advised=advise(all_of_them, dataset, stand_ins))


def check(all_of_them: Declared, dataset: Dataset) -> Checked:
    """Prepare a dataset's query with its defaults, or with samples where it has none."""
    settings = all_of_them.settings
    parent = all_of_them.catalogue.find_parent(dataset.parent) if dataset.parent else None
    warnings = _not_here(dataset)
    if not dataset.key and not dataset.order and dataset.command is None:
        warnings.append('it has neither key nor order: two exports may differ in their order; write key = ["id"]')
    try:
        given = {each.name: _sample(each) for each in dataset.parameters if each.default is None}
        resolved = resolve_parameters(dataset, given)
        sql = query_of(dataset, resolved, settings.doors.evaluate_seconds)
        sample = None if parent is None else ParentRef(parent.kind, "", parent.type)
        plan = freeze(dataset, sql, resolved, settings.operator, now_ms(), None, sample)
        found = [*_parent_problems(all_of_them, dataset, parent), *_problems(all_of_them, dataset, plan)]
    except Refused as refused:
        cause = refused.__cause__
        told = f" ({type(cause).__name__}: {cause})" if cause else ""
        found = [fault.detail for fault in refused.faults] or [refused.detail + told]
    # A database in rollback-journal mode works; it is only slower than its writers like (DECISIONS 35).
    problems = [sentence for sentence in found if "journal mode" not in sentence]
    journal = [f"sources.{dataset.source}: {sentence}" for sentence in found if "journal mode" in sentence]
    return Checked(dataset.name, tuple(problems), (*journal, *warnings))


def _parent_problems(all_of_them: Declared, dataset: Dataset, parent: Parent | None) -> list[str]:
    """Why nobody could say whose a parent is: the query of its kind is prepared like that of the dataset."""
    if dataset.parent is None:
        return []
    if parent is None:
        return [f"there is no kind of parent {dataset.parent!r}; declare it with [parents.{dataset.parent}] or in app"]
    if parent.function is not None:
        return []
    if unread := why_unread(all_of_them, parent.source):
        return [f"parents.{parent.kind}: {unread}"]
    found = all_of_them.source(parent.source).check(owners_reading(parent, all_of_them.settings.operator.tenant, None))
    return [f"parents.{parent.kind}: {sentence}" for sentence in found if "journal mode" not in sentence]


def _problems(all_of_them: Declared, dataset: Dataset, plan: Mapping[str, Any]) -> list[str]:
    if dataset.command is not None:
        return _program_problems(dataset.command.arguments[0])
    if dataset.pages is not None:
        return rehearse(all_of_them.settings.operator.frozen(), asdict(dataset.pages))
    unread = why_unread(all_of_them, dataset.source)
    if unread:
        return [unread]
    source = all_of_them.source(dataset.source)
    found = source.check(reading_of(plan))
    if "sql" in plan.get("policy", {}):
        asked = source.check(policy_reading(plan["policy"], plan.get("session", {})))
        found += [f"policy_revision: {sentence}" for sentence in asked if "journal mode" not in sentence]
    wrong = [sentence for sentence in found if "journal mode" not in sentence]
    return found if wrong else [*found, *_grouping_problems(source, dataset, reading_of(plan))]


def _grouping_problems(source: Source, dataset: Dataset, reading: Reading) -> list[str]:
    """What is wrong with dimensions and measures: each is prepared in a statement of its own."""
    asked: list[tuple[str, list[str], list[Aggregate]]] = [
        *((f"dimensions.{each.name}", [each.column], []) for each in dataset.dimensions),
        *((f"measures.{each.name}", [], additive(each.function, each.column)) for each in dataset.measures),
    ]
    found = []
    for key, by, aggregates in asked:
        try:
            with source.snapshot() as snapshot:
                grouped = snapshot.grouped(reading, Question(by, aggregates))
            problems = source.check(grouped)
        except BuildFailed as failed:
            problems = [failed.cause or failed.detail]
        found += [f"{key}: {sentence}" for sentence in problems if "journal mode" not in sentence]
    return found


def _program_problems(program: str) -> list[str]:
    path = Path(program)
    if not path.is_file():
        return [f"there is no program {path}; see command"]
    return [] if os.access(path, os.X_OK) else [f"this user may not run {path}; run: chmod +x {path}"]


def _not_here(dataset: Dataset) -> list[str]:
    """What code of the host needs of the environment of a worker, and this process has not."""
    _, missing = looked_up(dataset.environment)
    return [f"the environment of this process has no {name}; see that the worker's has it" for name in missing]


def why_unread(all_of_them: Declared, name: str) -> str | None:
    """Why a source cannot be read, and what to do; None when it can."""
    try:
        with all_of_them.source(name).snapshot():
            return None
    except BuildFailed as failed:
        key, url = f"sources.{name}.url", all_of_them.settings.sources[name].url
        if not url.startswith("sqlite:"):
            return f"{masked(url)} cannot be read: {failed.cause or failed.detail}; see {key}"
        path = Path(url.removeprefix("sqlite:///"))
        if failed.code == "source_locked":
            return f"{path} is locked by another program ({failed.cause}); {advice(failed.code)}"
        if not path.exists():
            return f"there is no file {path}; see {key}"
        if path.is_dir():
            return f"{path} is a folder; name the file in {key}"
        if not os.access(path.parent, os.W_OK) and os.access(path, os.R_OK) and _in_wal_mode(path):
            beside = f"{path.name}-wal and {path.name}-shm"
            return f"{path} is in WAL mode, and its readers need {beside}; let this user write {path.parent}"
        return f"{path} cannot be read ({failed.cause}); see {key}"


def _in_wal_mode(path: Path) -> bool:
    """Bytes 18 and 19 of the header of a SQLite database: the version to write and to read it with."""
    with path.open("rb") as file:
        return file.read(20)[18:] == b"\2\2"


def _sample(parameter: Parameter) -> object:
    value: object = parameter.choices[0][0] if parameter.type == "choice" else SAMPLES[parameter.type]
    return [value] if parameter.many else value


def _say_checked(found: list[Checked], as_json: bool) -> int:
    failed = any(each.problems for each in found)
    if as_json:
        items = [
            {"name": each.name, "problems": each.problems, "warnings": each.warnings}
            | (each.advised.document() if each.advised else {})
            for each in found
        ]
        print_json({"items": items, "ok": not failed})
        return FAILED if failed else DONE
    told: dict[str, str] = {}
    for each in found:
        tell(f"{'FAIL' if each.problems else 'WARN' if each.warnings else 'OK'.ljust(4)}  {each.name}")
        for sentence in (*each.problems, *each.warnings):
            tell(f"      {sentence}")
        if each.advised:
            each.advised.tell(each.name, told)
    if not found:
        say("no datasets; declare one in the configuration: docs/datasets.md")
    return FAILED if failed else DONE

"""From what was asked to what is frozen: the request checked, the query, how it is wrapped.

A Python dataset is called here, at the door, so what the worker runs is what was accepted (DECISIONS 31).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from haulage.core.binds import bound_names
from haulage.core.catalogue import Command, Dataset
from haulage.core.clock import rfc3339
from haulage.core.errors import Fault, Refused, pointer_to
from haulage.core.grouping import Grouped
from haulage.core.limits import ExportLimits
from haulage.core.parents import BIND, ParentRef
from haulage.core.patience import Overdue, within
from haulage.core.requester import Requester
from haulage.exports.grouping import NOT_GROUPED, Grouping, grouped_of
from haulage.exports.life import ExportLife, ExportRun
from haulage.exports.offered import format_of
from haulage.exports.parameters import Resolved, resolve_parameters
from haulage.exports.reading import NEWER
from haulage.formats import resolve_options
from haulage.formats.compression import COMPRESSIONS


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came."""

    dataset: str
    format: str
    parameters: Mapping[str, Any]
    columns: Sequence[str] | None = None
    compression: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    parent: str | int | None = None
    grouping: Grouping = NOT_GROUPED

    def digest(self) -> str:
        """SHA-256 of everything asked; an idempotency key stands for it."""
        parts = [self.dataset, self.format, self.parameters, self.columns, self.compression, self.options]
        parts += [] if self.parent is None else [str(self.parent)]
        return _digest(parts if self.grouping == NOT_GROUPED else [*parts, asdict(self.grouping)])


@dataclass(frozen=True, slots=True)
class Wish:
    """One request, read and checked, before the store is asked."""

    dataset: Dataset
    resolved: Resolved
    sql: str
    format: str
    options: Mapping[str, str]
    compression: str | None
    columns: tuple[str, ...] | None
    parent: ParentRef | None = None
    grouped: Grouped | None = None
    grouping: Grouping = NOT_GROUPED


def check(
    asked: Asked,
    dataset: Dataset,
    evaluate_seconds: float,
    found: Sequence[Fault] = (),
    parent: ParentRef | None = None,
) -> Wish:
    """Check everything that needs neither store nor source; every fault is reported at once.

    Args:
        parent: what the export will belong to; that the requester may was seen.
        found: what a door found wrong already; what it points at is missing in ``asked``.

    Raises:
        Refused: ``invalid`` with the faults, ``library_missing``, or as ``query_of``.
    """
    faults: list[Fault] = []
    resolved: Resolved | None = None
    try:
        resolved = resolve_parameters(dataset, asked.parameters)
    except Refused as refused:
        faults.extend(refused.faults)
    fmt = format_of(dataset, asked.format)
    if fmt is None:
        offered = ", ".join(dataset.formats)
        faults.append(Fault("/format", f"{dataset.name} has no format {asked.format!r}; write one of {offered}"))
    else:
        for name, value in asked.options.items():
            try:
                resolve_options(fmt, {name: value})
            except ValueError as problem:
                faults.append(Fault(pointer_to("options", name), str(problem)))
    compressions = fmt.compressions if fmt else tuple(COMPRESSIONS)
    if asked.compression is not None and asked.compression not in compressions:
        offered = f"one of {', '.join(compressions)}, or null" if compressions else "null"
        faults.append(Fault("/compression", f"{asked.compression!r} is not offered; write {offered}"))
    faults += column_faults(asked.columns)
    grouped: Grouped | None = None
    try:
        grouped = grouped_of(dataset, asked.grouping, asked.columns)
    except Refused as refused:
        faults.extend(refused.faults)
    faults = [*found, *(each for each in faults if not _is_said(each, found))]
    if faults or resolved is None or fmt is None:
        raise Refused("invalid", faults=faults)
    options = resolve_options(fmt, asked.options)
    if missing := fmt.missing():
        raise Refused("library_missing", missing)
    if asked.compression is not None and (missing := COMPRESSIONS[asked.compression].missing()):
        raise Refused("library_missing", missing)
    columns = None if asked.columns is None or grouped is not None else tuple(asked.columns)
    sql = query_of(dataset, resolved, evaluate_seconds)
    return Wish(
        dataset, resolved, sql, asked.format, options, asked.compression, columns, parent, grouped, asked.grouping
    )


def _is_said(fault: Fault, found: Sequence[Fault]) -> bool:
    """Say whether a fault is only that something else is missing which a door could not use."""
    return any(f"{fault.pointer}/".startswith(f"{each.pointer}/") for each in found)


def column_faults(columns: Sequence[str] | None) -> list[Fault]:
    """What is wrong with a choice of columns, whatever columns there are."""
    if columns is None:
        return []
    if not columns:
        return [Fault("/columns", "name at least one column, or leave it out for all of them")]
    return [Fault("/columns", "a column is named twice")] if len(set(columns)) != len(columns) else []


def query_of(dataset: Dataset, resolved: Resolved, seconds: float) -> str:
    """The SQL of a dataset, if it has any; a Python one is called, for at most so many seconds.

    Raises:
        Refused: ``source_failed`` when the function raises, answers no text, or takes too long.
    """
    if dataset.function is None:
        return dataset.sql
    try:
        answer = within(seconds, dataset.function, **resolved.values)
    except Overdue as overdue:
        raise Refused("source_failed", f"The dataset {dataset.name!r} {overdue}.") from overdue
    except Exception as problem:
        raise Refused("source_failed", f"The dataset {dataset.name!r} answered no query.") from problem
    if isinstance(answer, str) and answer.strip():
        return answer
    raise Refused("source_failed", f"The dataset {dataset.name!r} answered no query.")


def draft(requester: Requester, wish: Wish, run_id: str, now: int, limits: ExportLimits) -> ExportRun:
    """The row of a request: everything that its worker will need, as it is now."""
    dataset, resolved = wish.dataset, wish.resolved
    build = dataset.limits or limits.build
    parent = wish.parent
    plan = freeze(dataset, wish.sql, resolved, requester, now, wish.columns, parent, wish.grouped)
    plan |= code_of(dataset, wish.format)
    plan["limits"] = {
        "rows": build.rows,
        "count_seconds": build.count_seconds,
        "sort_bytes": build.sort_bytes,
        "memory_bytes": build.memory_bytes,
    }
    if wish.grouped is not None:
        plan["limits"] |= {"groups": build.groups, "pivot_columns": build.pivot_columns}
        plan["asked"] = {"columns": [each.key for each in wish.grouped.measures], **asdict(wish.grouping)}
    digest = dataset.digest(wish.sql)
    binds = {name: value for name, value in plan["binds"].items() if name != "as_of"}  # DECISIONS 19
    who = [requester.tenant, requester.account, sorted(requester.grants)]
    decides = [who, digest, binds, wish.columns, wish.format, dict(wish.options), wish.compression]
    if parent is not None:
        decides.append([parent.kind, parent.id])
    if wish.grouped is not None:
        decides.append(wish.grouped.to_plan())
    return ExportRun(
        id=run_id,
        tenant=requester.tenant,
        state=ExportLife.initial,
        requested_at=now,
        claim_by=now + int(limits.queue_seconds * 1000),
        active_key=active_key_of(decides),
        account=requester.account,
        dataset=dataset.name,
        parent_kind=None if parent is None else parent.kind,
        parent=None if parent is None else parent.id,
        dataset_hash=digest,
        source=dataset.source,
        format=wish.format,
        compression=wish.compression,
        options=dict(wish.options),
        parameters=resolved.shown,
        plan=plan,
        requester=requester.frozen(),
        as_of=now,
        attempts_max=limits.attempts if dataset.on_worker_loss == "rerun" else 1,
        generation_ms=int(build.generation_seconds * 1000),
        file_bytes=build.file_bytes,
    )


def freeze(
    dataset: Dataset,
    sql: str,
    resolved: Resolved,
    requester: Requester,
    as_of: int,
    columns: Sequence[str] | None,
    parent: ParentRef | None = None,
    grouped: Grouped | None = None,
) -> dict[str, Any]:
    """What the row keeps, so that the worker runs what was accepted."""
    above = {} if parent is None else {BIND: parent}
    own = asking_binds(requester)
    named = bound_names(sql).union(*map(bound_names, (dataset.visible or "", *dataset.blanked.values())))
    binds = {**resolved.binds, **own, "as_of": rfc3339(as_of), **{name: each.bound for name, each in above.items()}}
    if not dataset.of_source:  # the host's own code gets every parameter by its name
        named = frozenset((*resolved.binds, *above))
    return {
        "sql": sql,
        "binds": {name: binds[name] for name in sorted(named) if name in binds},
        "types": {
            **{name: resolved.types[name] for name in resolved.types if name in named},
            **{name: each.type for name, each in above.items() if name in named},
            "as_of": "timestamp",
        },
        "verify": dataset.verify,
        "formats": list(dataset.formats),  # offered where the chosen one cannot hold the rows
        "order_fixed": bool(dataset.key or dataset.command or grouped),  # an order alone leaves ties open
        "visible": dataset.visible,
        "hidden": [
            *dataset.hidden,
            *([NEWER] if dataset.blanked or grouped or dataset.policy_revision is not None else []),
        ],
        "order": [*dataset.order, *(key for key in dataset.key if not _ordered_by(dataset, key))],
        "columns": None if columns is None else list(columns),
        "declared": {column.key: [column.header, column.type] for column in dataset.columns.values()},
        **({"blanked": dict(dataset.blanked)} if dataset.blanked else {}),
        **({"parallel": dataset.parallel} if dataset.parallel > 1 and grouped is None else {}),
        **({"grouped": grouped.to_plan()} if grouped is not None else {}),
        **({"session": session_of(dataset, binds)} if dataset.session else {}),
        **({"policy": policy_of(dataset, requester)} if dataset.policy_revision is not None else {}),
    }


def asking_binds(requester: Requester) -> dict[str, Any]:
    """What is bound of whoever asks; the grants are a list, written ``in (:requester_grants)``."""
    return {
        "requester_tenant": requester.tenant,
        "requester_account": requester.account,
        "requester_grants": sorted(requester.grants),
    }


def code_of(dataset: Dataset, format: str) -> dict[str, Any]:
    """The code of the host that makes a file, as a plan names it; nothing for a query."""
    if dataset.pages is not None:
        return {"pages": asdict(dataset.pages)}
    return {} if dataset.command is None else {"command": _frozen_command(dataset.command, format)}


def _frozen_command(command: Command, format: str) -> dict[str, Any]:
    made = command.formats[format]
    return {
        "arguments": list(command.arguments),
        "environment": dict(command.environment),
        "suffix": made.suffix,
        "media_type": made.media_type,
    }


def policy_of(dataset: Dataset, requester: Requester) -> dict[str, Any]:
    """The question for the revision of what may be seen: a query and what is bound in it, or a function of the host."""
    if not isinstance(dataset.policy_revision, str):
        return {"function": True}
    named = bound_names(dataset.policy_revision)
    binds = {name: value for name, value in asking_binds(requester).items() if name in named}
    return {"sql": dataset.policy_revision, "binds": binds}


def session_of(dataset: Dataset, binds: Mapping[str, Any]) -> dict[str, str]:
    """What is set in the database for this requester: ``:requester_tenant`` stands for the tenant."""
    return {
        key: str(binds[value[1:]]) if value.startswith(":") and value[1:] in binds else value
        for key, value in dataset.session.items()
    }


def _ordered_by(dataset: Dataset, key: str) -> bool:
    return any(entry.split()[0].strip('"').lower() == key.lower() for entry in dataset.order)


def active_key_of(run_facts: Sequence[object]) -> str:
    """The key under which an equal active request is found: SHA-256 of everything that decides the file."""
    return _digest(run_facts)


def _digest(parts: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()

"""From what was asked to what is frozen: the request checked, the query, how it is wrapped.

A Python dataset is called here, at the door, so what the worker runs is what was accepted (DECISIONS 31).
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from haulage.core.binds import bound_names
from haulage.core.catalogue import Dataset
from haulage.core.clock import rfc3339
from haulage.core.errors import Fault, Refused
from haulage.core.requester import Requester
from haulage.exports.parameters import Resolved, resolve_parameters
from haulage.formats import FORMATS, resolve_options
from haulage.formats.compression import COMPRESSIONS


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came."""

    dataset: str
    format: str
    parameters: Mapping[str, Any]
    columns: Sequence[str] | None
    compression: str | None
    options: Mapping[str, str]

    def digest(self) -> str:
        """SHA-256 of everything asked; an idempotency key stands for it."""
        parts = [self.dataset, self.format, self.parameters, self.columns, self.compression, self.options]
        return _digest(parts)


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


def check(asked: Asked, dataset: Dataset, evaluate_seconds: float) -> Wish:
    """Check everything that needs neither store nor source; every fault is reported at once.

    Raises:
        Refused: ``invalid`` with the faults, ``library_missing``, or as ``query_of``.
    """
    faults: list[Fault] = []
    resolved: Resolved | None = None
    try:
        resolved = resolve_parameters(dataset, asked.parameters)
    except Refused as refused:
        faults.extend(refused.faults)
    fmt = FORMATS.get(asked.format) if asked.format in dataset.formats else None
    options: Mapping[str, str] = {}
    if fmt is None:
        offered = ", ".join(dataset.formats)
        faults.append(Fault("/format", f"{dataset.name} has no format {asked.format!r}; write one of {offered}"))
    else:
        try:
            options = resolve_options(fmt, asked.options)
        except ValueError as problem:
            faults.append(Fault("/options", str(problem)))
    compressions = fmt.compressions if fmt else tuple(COMPRESSIONS)
    if asked.compression is not None and asked.compression not in compressions:
        offered = ", ".join(compressions)
        faults.append(Fault("/compression", f"{asked.compression!r} is not offered; write one of {offered}, or null"))
    faults += _column_faults(asked.columns)
    if faults or resolved is None:
        raise Refused("invalid", faults=faults)
    if asked.compression is not None and (missing := COMPRESSIONS[asked.compression].missing()):
        raise Refused("library_missing", missing)
    columns = None if asked.columns is None else tuple(asked.columns)
    sql = query_of(dataset, resolved, evaluate_seconds)
    return Wish(dataset, resolved, sql, asked.format, options, asked.compression, columns)


def _column_faults(columns: Sequence[str] | None) -> list[Fault]:
    if columns is None:
        return []
    if not columns:
        return [Fault("/columns", "name at least one column, or leave it out for all of them")]
    return [Fault("/columns", "a column is named twice")] if len(set(columns)) != len(columns) else []


def query_of(dataset: Dataset, resolved: Resolved, seconds: float) -> str:
    """The SQL of a dataset; a Python one is called, for at most so many seconds.

    Raises:
        Refused: ``source_failed`` when the function raises, answers no text, or takes too long.
    """
    if dataset.function is None:
        return dataset.sql
    function = dataset.function
    answers: list[object] = []

    def call() -> None:
        try:
            answers.append(function(**resolved.values))
        except Exception as problem:  # noqa: BLE001 - the operator's function may raise anything
            answers.append(problem)

    thread = threading.Thread(target=call, daemon=True, name=f"dataset {dataset.name}")
    thread.start()
    thread.join(seconds)
    answer = answers[0] if answers else None
    if isinstance(answer, str) and answer.strip():
        return answer
    why = f"took longer than {seconds:g} s" if not answers else "answered no query"
    raise Refused("source_failed", f"The dataset {dataset.name!r} {why}.") from (
        answer if isinstance(answer, Exception) else None
    )


def freeze(
    dataset: Dataset,
    sql: str,
    resolved: Resolved,
    requester: Requester,
    as_of: int,
    columns: Sequence[str] | None,
) -> dict[str, Any]:
    """What the row keeps, so that the worker runs what was accepted."""
    own = {"requester_tenant": requester.tenant, "requester_account": requester.account}
    named = bound_names(sql) | bound_names(dataset.visible or "")
    binds = {**resolved.binds, **own, "as_of": rfc3339(as_of)}
    return {
        "sql": sql,
        "binds": {name: binds[name] for name in sorted(named) if name in binds},
        "types": {
            **{name: resolved.types[name] for name in resolved.types if name in named},
            "as_of": "timestamp",
        },
        "verify": dataset.verify,
        "order_fixed": bool(dataset.key),  # an order alone leaves ties open
        "visible": dataset.visible,
        "hidden": list(dataset.hidden),
        "order": [*dataset.order, *(key for key in dataset.key if not _ordered_by(dataset, key))],
        "columns": None if columns is None else list(columns),
        "declared": {column.key: [column.header, column.type] for column in dataset.columns.values()},
    }


def _ordered_by(dataset: Dataset, key: str) -> bool:
    return any(entry.split()[0].strip('"').lower() == key.lower() for entry in dataset.order)


def active_key_of(run_facts: Sequence[object]) -> str:
    """The key under which an equal active request is found: SHA-256 of everything that decides the file."""
    return _digest(run_facts)


def _digest(parts: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()

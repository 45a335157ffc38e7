"""``[datasets.NAME]``: read into the catalogue's own types, then checked for what cannot work.

:func:`dataset_faults` judges a dataset however it was declared, in the file or in Python.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, Literal

from haulage.config.commands import judge_command, judge_environment, read_command
from haulage.config.faults import Faults, meant, shown
from haulage.config.grouping import judge_grouping, read_dimensions, read_measures
from haulage.config.kinds import ANY, BOOLEAN, COUNT, TEXT, TEXTS, Kind, one_of
from haulage.config.table import Table
from haulage.core.binds import bound_names
from haulage.core.catalogue import NAME, PARAMETER_TYPES, QUERY_NAMES, RESERVED_BINDS, Column, Dataset, Pages, Parameter
from haulage.core.limits import BuildLimits
from haulage.core.parents import BIND
from haulage.core.values import read_value

COLUMN_TYPES = ("text", "integer", "decimal", "float", "boolean", "date", "timestamp", "json")
LOSS_KIND = one_of(("fail", "rerun"), "rule")
VERIFY_KIND = one_of(("end", "full"), "check")
COLUMN_KIND = one_of(COLUMN_TYPES, "type of a column")
PARAMETER_KIND = one_of(PARAMETER_TYPES, "type of a parameter")
PARALLEL_MAX = 16
OWN_NAMES = {
    **dict.fromkeys(RESERVED_BINDS, "this name is bound by Haulage itself"),
    **dict.fromkeys(QUERY_NAMES, "in a query string this name is Haulage's own"),
}
POLICY_BINDS = tuple(name for name in RESERVED_BINDS if name != "as_of")  # that is another each time
ORDER_TERM = re.compile(r"\S+( (asc|desc))?( nulls (first|last))?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Known:
    """What a dataset may name. The layers above know formats and kinds of sources; None is not checked.

    Args:
        alone: sources that can be read over one connection only.
    """

    sources: Collection[str]
    formats: Collection[str] | None = None
    parents: Collection[str] | None = None
    alone: Collection[str] = ()


def read_datasets(top: Table, base: BuildLimits, folder: Path) -> tuple[Dataset, ...]:
    """Every dataset of the file, in its order."""
    found = []
    for name, table in top.tables("datasets"):
        if not NAME.fullmatch(name):
            why = "write a name of small letters, digits and _ that begins with a letter, at most 63"
            top.faults.say(f"{table.path}: {why}")
        found.append(_dataset(name, table, base, folder))
        table.close()
    return tuple(found)


def _dataset(name: str, table: Table, base: BuildLimits, folder: Path) -> Dataset:
    default = Dataset(name, "")
    loss: Literal["fail", "rerun"] = "rerun" if table.read("on_worker_loss", LOSS_KIND, "fail") == "rerun" else "fail"
    verify: Literal["end", "full"] = "full" if table.read("verify", VERIFY_KIND, "end") == "full" else "end"
    command = read_command(table, folder)
    return Dataset(
        name=name,
        source=table.demand("source", TEXT, "") if command is None else "",
        label=table.read("label", TEXT, ""),
        description=table.read("description", TEXT, ""),
        permission=table.read("permission", TEXT, None),
        parent=table.read("parent", TEXT, None),
        sql=_sql(table, folder) if command is None else "",
        command=command,
        parameters=tuple(_parameter(key, inside) for key, inside in table.tables("parameters")),
        columns={key: _column(key, inside) for key, inside in table.tables("columns")},
        hidden=table.read("hidden", TEXTS, ()),
        visible=table.read("visible", TEXT, None),
        policy_revision=table.read("policy_revision", TEXT, None),
        key=table.read("key", TEXTS, ()),
        order=table.read("order", TEXTS, ()),
        dimensions=read_dimensions(table),
        measures=read_measures(table),
        formats=table.read("formats", TEXTS, default.formats) if command is None else tuple(command.formats),
        on_worker_loss=loss,
        verify=verify,
        parallel=table.read("parallel", COUNT, 1) if command is None else 1,
        limits=_limits(table, base),
    )


def _sql(table: Table, folder: Path) -> str:
    sql, file = table.read("sql", TEXT, ""), table.read("sql_file", TEXT, "")
    if table.has("sql") and table.has("sql_file"):
        table.faults.say(f"{table.path} has sql and sql_file; write one of them")
    elif table.has("sql_file") and file:
        try:
            sql = (folder / file).read_text()
        except (OSError, UnicodeDecodeError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8"
            table.faults.wrong(table.key("sql_file"), file, f"cannot be read: {reason}; write a path from {folder}")
    elif not table.has("sql"):
        table.faults.say(f'{table.path}.sql is missing; write sql = "select …" or sql_file = "query.sql"')
    return sql


def _limits(table: Table, base: BuildLimits) -> BuildLimits | None:
    inside = table.table("limits")
    limits = replace(base, **inside.numbers(base))
    inside.close()
    return limits if inside.values else None


def _column(key: str, table: Table) -> Column:
    header, kind = table.read("header", TEXT, key), table.read("type", COLUMN_KIND, None)
    column = Column(key, header, kind, visible=table.read("visible", TEXT, None))
    table.close()
    return column


def _choices(value: object) -> tuple[tuple[str, str], ...]:
    if isinstance(value, Mapping):
        return tuple((TEXT.parse(choice), TEXT.parse(label)) for choice, label in value.items())
    return tuple((choice, choice) for choice in TEXTS.parse(value))


CHOICES = Kind("a list of choices", '["EWR", "JFK"], or {EWR = "Newark", JFK = "Kennedy"}', _choices)


def _parameter(name: str, table: Table) -> Parameter:
    default = table.read("default", ANY, None)
    parameter = Parameter(
        name=name,
        type=table.read("type", PARAMETER_KIND, "text"),
        label=table.read("label", TEXT, ""),
        default=tuple(default) if isinstance(default, list) else default,
        optional=table.read("optional", BOOLEAN, False),
        many=table.read("many", BOOLEAN, False),
        choices=table.read("choices", CHOICES, ()),
        end=table.read("end", BOOLEAN, False),
    )
    table.close()
    return parameter


# -- what cannot work ----------------------------------------------------------------------------------


def dataset_faults(dataset: Dataset, known: Known) -> list[str]:
    """Everything about a dataset that cannot work, as sentences that begin with its key.

    Args:
        dataset: from the file or from Python; the SQL of a Python dataset is not known yet.
        known: the sources and formats there are.
    """
    faults, path = Faults(), f"datasets.{dataset.name}"
    if dataset.source and dataset.source not in known.sources:
        write = f'write one: [sources.{dataset.source}] with url = "sqlite:///shop.db"'
        guess = meant(dataset.source, known.sources) if known.sources else write
        faults.wrong(f"{path}.source", dataset.source, f"there is no such source; {guess}")
    if dataset.pages is not None:
        _judge_pages(dataset, dataset.pages, path, faults)
    if dataset.command is not None:
        judge_command(dataset, dataset.command, path, faults)
    if not dataset.formats:
        faults.wrong(f"{path}.formats", [], 'write at least one, such as ["csv"]')
    for name in () if dataset.command else dataset.formats:
        if known.formats is not None and name not in known.formats:
            faults.wrong(f"{path}.formats", name, f"there is no such format; {meant(name, known.formats)}")
    for term in dataset.order:
        if not ORDER_TERM.fullmatch(term):
            faults.wrong(f"{path}.order", term, 'is no column with a direction; write "placed_at desc"')
    _judge_parallel(dataset, path, known, faults)
    judge_grouping(dataset, path, faults)
    for parameter in dataset.parameters:
        _judge_parameter(parameter, f"{path}.parameters.{parameter.name}", faults)
    _judge_parent(dataset, known, path, faults)
    _judge_policy(dataset, path, faults)
    _judge_binds(dataset, path, faults)
    return faults.sentences


def _judge_parent(dataset: Dataset, known: Known, path: str, faults: Faults) -> None:
    if dataset.parent is None or known.parents is None or dataset.parent in known.parents:
        return
    write = f"write [parents.{dataset.parent}], or name in app the application that declares it in Python"
    guess = meant(dataset.parent, known.parents) if known.parents else write
    faults.wrong(f"{path}.parent", dataset.parent, f"there is no such kind of parent; {guess}")


def _judge_policy(dataset: Dataset, path: str, faults: Faults) -> None:
    asked = dataset.policy_revision
    if not isinstance(asked, str):
        return
    if not dataset.of_source:
        faults.say(f"{path}.policy_revision: there is no source to ask; write a function in Python")
    for name in sorted(bound_names(asked) - set(POLICY_BINDS)):
        known = ", ".join(f":{each}" for each in POLICY_BINDS)
        faults.say(f"{path}.policy_revision binds :{name}; it is asked at every download, and knows only {known}")


def _judge_binds(dataset: Dataset, path: str, faults: Faults) -> None:
    declared, reserved = {parameter.name for parameter in dataset.parameters}, set(RESERVED_BINDS)
    if dataset.parent is not None:
        reserved.add(BIND)
        if BIND in declared:
            faults.say(f"{path}.parameters.{BIND}: this name is bound by Haulage itself; choose another")
    predicates = {"visible": dataset.visible or ""}
    predicates |= {f"columns.{key}.visible": condition for key, condition in dataset.blanked.items()}
    bound = {place: bound_names(text) for place, text in {"sql": dataset.sql, **predicates}.items()}
    if not dataset.of_source:
        for place in [each for each, text in predicates.items() if text]:
            faults.say(f"{path}.{place}: code of the application makes the rows, and has to filter them itself")
    for place, names in bound.items():
        for name in sorted(names - declared - reserved):
            guess = meant(name, declared | reserved)
            write = f"or write {name} = {{type = …}} in [{path}.parameters]"
            faults.say(f"{path}.{place} binds :{name}, which no parameter declares; {guess} ({write})")
    if dataset.function is None and dataset.sql:  # code of the host gets every parameter
        for name in sorted(declared.difference(*bound.values())):
            faults.say(f"{path}.parameters.{name} is bound nowhere; write :{name} in the query, or leave it out")


def _judge_parallel(dataset: Dataset, path: str, known: Known, faults: Faults) -> None:
    if not 1 <= dataset.parallel <= PARALLEL_MAX:
        faults.wrong(f"{path}.parallel", dataset.parallel, f"is no number of connections; write 1 to {PARALLEL_MAX}")
    elif dataset.parallel > 1 and dataset.source in known.alone:
        faults.wrong(
            f"{path}.parallel", dataset.parallel, "only a source of postgresql is read over several connections"
        )


def _judge_pages(dataset: Dataset, pages: Pages, path: str, faults: Faults) -> None:
    if not dataset.columns:
        faults.say(f'{path}.columns is missing; name every column of a row, as nobody else does: {{"id": Column(…)}}')
    for function in (pages.function, pages.count):
        module, _, name = (function or "").partition(":")
        if module == "__main__" or "<" in name:
            why = "is found by its name only at the top of a module that can be imported; move it there"
            faults.say(f"{path}: {function} {why}")
    if min(pages.page_rows, pages.page_bytes) < 1:
        faults.say(f"{path}: page_rows and page_bytes are numbers from 1 on")
    judge_environment(pages.environment, path, faults)


def _judge_parameter(parameter: Parameter, path: str, faults: Faults) -> None:
    if not NAME.fullmatch(parameter.name):
        faults.say(f"{path}: write a name of small letters, digits and _ that begins with a letter, at most 63")
    if parameter.name in OWN_NAMES:
        faults.say(f"{path}: {OWN_NAMES[parameter.name]}; choose another")
    if (parameter.type == "choice") != bool(parameter.choices):
        write = 'choices = ["one", "two"]' if parameter.type == "choice" else 'type = "choice"'
        faults.say(f"{path}: choices and the type choice belong together; write {write} too")
    if parameter.end and parameter.type != "date":
        faults.wrong(f"{path}.end", True, 'only a date can include its day; write type = "date"')
    if parameter.default is None:
        return
    if isinstance(parameter.default, tuple | list) and not parameter.many:
        faults.wrong(f"{path}.default", parameter.default, "is a list; write one value, or many = true")
        return
    values = parameter.default if isinstance(parameter.default, tuple | list) else (parameter.default,)
    for value in values:
        if parameter.end and str(value) == str(date.max):
            faults.wrong(f"{path}.default", str(value), "has no day after it to bind; write an earlier day, or none")
        elif not _fits(parameter, value):
            faults.say(f"{path}.default = {shown(value)} is no {parameter.type}; write {_EXAMPLES[parameter.type]}")


# One example for each of PARAMETER_TYPES.
_EXAMPLES = {
    "text": '"some text"',
    "integer": "42",
    "decimal": '"12.50"',
    "boolean": "true or false",
    "date": '"2026-01-31"',
    "timestamp": '"2026-01-31T23:30:00Z"',
    "choice": "one of the choices",
}


def _fits(parameter: Parameter, value: Any) -> bool:
    """Say whether a default is of its type. Here numbers and truths are no texts; a request may send them as such."""
    if isinstance(value, str) and parameter.type in ("integer", "boolean"):
        return False
    try:
        read_value(parameter, value)
    except ValueError:
        return False
    return True

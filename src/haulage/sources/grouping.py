"""A query grouped: the statement of groups as a reading of its own, so that it is counted and read like any other.

    select n0, d0, …, a0, … from (                              what is shown, and what the order needs
      select k0, …, count(*) as a0, … from (                    the groups
        select key as k0, value as v0, … from (query) where …   exact keys, the requester's predicate once
      ) group by k0, …
    ) order by n0, d0, …                                        NULL last, whatever the database

Groups are by exact value (DECISIONS 20): a source says what its keys are (``Spoken.key``). Names bound by the operator
stand in the statement as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from haulage.core.errors import BuildFailed
from haulage.core.grouping import UNHIDDEN, Aggregate, Question
from haulage.core.reading import Reading
from haulage.sources.query import Name

LEVEL = "haulage_level"  # which keys were not grouped by, where a statement has several levels
SUMMED = ("integer", "decimal", "float")


class Value(NamedTuple):
    """A value of a row as SQL, and how it is shown once it is grouped: with the alias in the place of ``{}``."""

    sql: str
    shown: str = "{}"


class Sum(NamedTuple):
    """A number of a row as SQL, and what adds it up: with the alias in the place of ``{}``."""

    sql: str
    call: str = "sum({})"


class Spoken(NamedTuple):
    """What a source says of a grouping.

    Args:
        rows: ``select … from (query) as … where …`` of what is to be selected, with bound names as they were.
        key: the value by which rows are grouped by a column.
        number: a column that is summed.
        ordered: a column whose least and greatest value is looked for.
    """

    rows: Callable[[str], str]
    key: Callable[[Name], Value]
    number: Callable[[Name], Sum]
    ordered: Callable[[Name], Value]


def grouped_reading(reading: Reading, names: Sequence[Name], question: Question, spoken: Spoken) -> Reading:
    """The groups of a reading: its dimensions, then what was aggregated; where there are levels also of which."""
    levels = question.levels
    _refuse_hidden(reading, names, question)
    keys = [spoken.key(_named(key, names, "dimensions")) for key in question.by]
    inner = [f"{key.sql} as k{place}" for place, key in enumerate(keys)]
    groups = [f"k{place}" for place in range(len(keys))]
    shown = [f"{key.shown.format(f'k{place}')} as d{place}" for place, key in enumerate(keys)]
    sorting = [f"k{place} is null as n{place}" for place in range(len(keys))]
    order = [part for place in range(len(keys)) for part in (f"n{place}", f"s{place}")]
    sorting += [f"k{place} as s{place}" for place in range(len(keys))]
    for place, aggregate in enumerate(question.aggregates):
        sql, call, shape = _aggregated(aggregate, names, spoken)
        inner.append(f"{sql} as v{place}")
        groups.append(f"{call.format(f'v{place}')} as a{place}")
        shown.append(f"{shape.format(f'a{place}')} as a{place}")
    clause = "\ngroup by " + ", ".join(f"k{place}" for place in range(len(keys))) if keys else ""
    if levels is not None:
        groups.append(f"grouping({', '.join(f'k{place}' for place in range(len(keys)))}) as {LEVEL}")
        shown.append(LEVEL)
        sets = ", ".join(f"({', '.join(f'k{place}' for place in level)})" for level in levels)
        clause = f"\ngroup by grouping sets ({sets})"
    sql = (
        f"select {', '.join([*shown, *sorting])} from (\nselect {', '.join(groups)} from (\n"
        f"{spoken.rows(', '.join(inner))}\n) as haulage_rows{clause}\n) as haulage_groups"
    )
    hidden, order = tuple(order), order if levels is None else [LEVEL, *order]
    return reading._replace(
        sql=sql, visible=None, hidden=hidden, order=tuple(order), columns=None, declared={}, blanked={}, as_text=False
    )


def _aggregated(aggregate: Aggregate, names: Sequence[Name], spoken: Spoken) -> tuple[str, str, str]:
    """The value of a row, the call over it, and how what comes of it is shown."""
    if aggregate.column is None:
        return "1", "count(*)", "{}"
    name = _named(aggregate.column, names, "measures")
    if aggregate.function == "sum":
        return *spoken.number(name), "{}"
    if aggregate.function in ("min", "max"):
        value = spoken.ordered(name)
        return value.sql, aggregate.function + "({})", value.shown
    return spoken.key(name).sql, "count({})" if aggregate.function == "count" else "count(distinct {})", "{}"


def _refuse_hidden(reading: Reading, names: Sequence[Name], question: Question) -> None:
    """Refuse what would show a value of a hidden column: the configuration cannot know the second of one name."""
    hidden = {key.lower() for key in reading.hidden}
    shown = [("dimensions", key) for key in question.by]
    shown += [
        ("measures", each.column) for each in question.aggregates if each.column and each.function not in UNHIDDEN
    ]
    for what, key in shown:
        name = _named(key, names, what)
        if {name.own.lower(), name.key.lower()} & hidden:
            raise BuildFailed(
                "source_failed", cause=f"{what}: the column {key!r} is hidden, and a value of it would show"
            )


def _named(key: str, names: Sequence[Name], what: str) -> Name:
    found = [each for each in names if each.key == key] or [each for each in names if each.key.lower() == key.lower()]
    if not found:
        raise BuildFailed("source_failed", cause=f"{what}: the query has no column {key!r}")
    return found[0]


def not_summed(name: Name, kind: str | None) -> BuildFailed:
    """What a source says of a sum of what is no number."""
    return BuildFailed(
        "source_failed", cause=f"measures: {name.key!r} is no number ({kind or 'text'}); count it instead"
    )

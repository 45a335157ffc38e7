"""What a dataset can be grouped by, and what is measured of its groups: read, in short forms too, and judged.

dimensions = ["country"]                        [datasets.orders.dimensions.country]
column = "country_code"
[datasets.orders.measures]                      [datasets.orders.measures.customers]
orders = "count"                                function = "count_distinct"
revenue = "sum(total)"                          column = "customer"
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from haulage.config.faults import Faults
from haulage.config.kinds import TEXT, TEXTS, Given, one_of
from haulage.config.table import Table
from haulage.core.catalogue import FUNCTIONS, NAME, Dataset, Dimension, Measure
from haulage.core.grouping import UNHIDDEN

MEASURE = re.compile(r"\s*([a-z_]+)\s*(?:\(\s*(.*?)\s*\))?\s*")
FUNCTION_KIND = one_of(FUNCTIONS, "function")
EXAMPLE = '"count", "sum(total)" or {function = "sum", column = "total"}'


def read_dimensions(table: Table) -> tuple[Dimension, ...]:
    """``dimensions`` of a dataset: names of columns, or a table of tables."""
    given = table.values.get("dimensions")
    if isinstance(given, Sequence):
        return tuple(Dimension(name, name) for name in table.read("dimensions", TEXTS, ()))
    found = []
    for name, inside in table.tables("dimensions"):
        found.append(Dimension(name, inside.read("column", TEXT, name), inside.read("label", TEXT, "")))
        inside.close()
    return tuple(found)


def read_measures(table: Table) -> tuple[Measure, ...]:
    """``measures`` of a dataset: a table of texts, or of tables."""
    outer = table.table("measures")
    found = []
    for name, value in outer.values.items():
        if isinstance(value, str):
            try:
                found.append(measure_of(name, value))
            except ValueError as problem:
                origin = f" (from {value.variable})" if isinstance(value, Given) else ""
                outer.faults.wrong(outer.key(name) + origin, value, str(problem))
            continue
        inside = outer.table(name)
        function = inside.demand("function", FUNCTION_KIND, "count")
        found.append(Measure(name, function, inside.read("column", TEXT, None), inside.read("label", TEXT, "")))
        inside.close()
    return tuple(found)


def measure_of(name: str, text: str) -> Measure:
    """A measure from ``count`` or ``sum(total)``.

    Raises:
        ValueError: it is neither.
    """
    parsed = MEASURE.fullmatch(text)
    if parsed is None or parsed[1] not in FUNCTIONS:
        raise ValueError(f"is no measure; write {EXAMPLE}, with one of {', '.join(FUNCTIONS)}")
    return Measure(name, parsed[1], parsed[2] or None)


def dimensions_of(given: Sequence[str | Dimension] | Mapping[str, str]) -> tuple[Dimension, ...]:
    """As Python declares them: names, or names and their columns, or whole ones."""
    if isinstance(given, Mapping):
        return tuple(Dimension(name, column) for name, column in given.items())
    return tuple(each if isinstance(each, Dimension) else Dimension(each, each) for each in given)


def measures_of(given: Sequence[Measure] | Mapping[str, str]) -> tuple[Measure, ...]:
    """As Python declares them: names and what is measured, or whole ones.

    Raises:
        ValueError: a text is no measure.
    """
    if isinstance(given, Mapping):
        return tuple(measure_of(name, text) for name, text in given.items())
    return tuple(given)


def judge_grouping(dataset: Dataset, path: str, faults: Faults) -> None:
    """Whatever cannot work of dimensions and measures, as far as it can be seen without the source."""
    if not (dataset.dimensions or dataset.measures):
        return
    if not dataset.of_source:
        faults.say(f"{path}: only the rows of a query are grouped; leave dimensions and measures out")
        return
    hidden = {name.lower() for name in dataset.hidden}
    names = [each.name for each in dataset.dimensions]
    _judge_names(names, f"{path}.dimensions", faults)
    _judge_names([each.name for each in dataset.measures], f"{path}.measures", faults)
    for dimension in dataset.dimensions:
        if dimension.column.lower() in hidden:
            faults.say(f"{path}.dimensions.{dimension.name}: its column is hidden, and a group would show it")
    for measure in dataset.measures:
        if measure.name in names:
            faults.say(f"{path}.measures.{measure.name}: a dimension has this name; write another")
        _judge_measure(measure, hidden, f"{path}.measures.{measure.name}", faults)
    if not dataset.measures:
        faults.say(f'{path}.measures is missing; write at least one, such as rows = "count"')
    if not dataset.dimensions:
        faults.say(f'{path}.dimensions is missing; write at least one, such as ["country"]')


def _judge_names(names: Sequence[str], path: str, faults: Faults) -> None:
    for name in names:
        if not NAME.fullmatch(name):
            why = "write a name of small letters, digits and _ that begins with a letter, at most 63"
            faults.say(f"{path}.{name}: {why}; its column can have another")
    if len(set(names)) != len(names):
        faults.say(f"{path} names something twice; write each once")


def _judge_measure(measure: Measure, hidden: set[str], path: str, faults: Faults) -> None:
    if measure.function not in FUNCTIONS:
        faults.wrong(f"{path}.function", measure.function, f"is none of {', '.join(FUNCTIONS)}")
    if measure.column is None:
        if measure.function != "count":
            faults.say(f'{path}.column is missing; write {measure.function}(column), or "count" to count rows')
    elif measure.column.lower() in hidden and measure.function not in UNHIDDEN:
        faults.say(f"{path}: its column is hidden, and {measure.function} would show a value of it")

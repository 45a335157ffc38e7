"""What a request says of grouping, read against what its dataset declares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from haulage.core.catalogue import Dataset
from haulage.core.errors import Fault, Refused
from haulage.core.grouping import WORDS, Dimension, Grouped, Level, Measure, levels_of

DIMENSIONS_MAX = 16  # of one request


@dataclass(frozen=True, slots=True)
class Grouping:
    """As it was asked for.

    Args:
        group_by: names of dimensions; None where rows are not grouped.
        subtotals: ``total``, ``rollup``, ``cube``, or levels, each as the dimensions that stay.
        pivot: those of ``group_by`` that go across.
    """

    group_by: Sequence[str] | None = None
    subtotals: str | Sequence[Sequence[str]] | None = None
    pivot: Sequence[str] | None = None


def levels_said(text: str | None) -> str | list[list[str]] | None:
    """Subtotals from one text: a word, or levels with ``;`` between them and ``,`` between names; ``()`` is the total.

    Example:
        >>> levels_said("country,status; country; ()")
        [['country', 'status'], ['country'], []]
    """
    if text is None or text in WORDS:
        return text
    levels = [level.strip() for level in text.split(";")]
    return [[] if level == "()" else [name.strip() for name in level.split(",")] for level in levels]


NOT_GROUPED = Grouping()


def grouped_of(dataset: Dataset, asked: Grouping, columns: Sequence[str] | None = None) -> Grouped | None:
    """A grouped request; None where it is none.

    Args:
        columns: the measures that are wanted, in this order; None for all of them.

    Raises:
        Refused: ``invalid`` with every fault.
    """
    faults: list[Fault] = []
    if asked.group_by is None:
        alone = [name for name in ("subtotals", "pivot") if getattr(asked, name) is not None]
        if alone:
            why = "belongs to group_by; write that too, or leave this out"
            raise Refused("invalid", faults=[Fault(f"/{name}", why) for name in alone])
        return None
    across = list(asked.pivot or ())
    names = [*(name for name in asked.group_by if name not in across), *across]  # what goes across stands last
    dimensions = _dimensions(dataset, asked.group_by, faults)
    faults += _count_faults(asked.group_by)
    faults += _pivot_faults(asked.pivot, asked.group_by)
    levels: tuple[Level, ...] = ()
    if not faults:
        try:
            levels = levels_of(asked.subtotals, names, across)
        except ValueError as problem:
            faults.append(Fault("/subtotals", str(problem)))
    measures = _measures(dataset, columns, faults)
    if faults:
        raise Refused("invalid", faults=faults)
    places = tuple(range(len(names) - len(across), len(names)))
    return Grouped(tuple(dimensions[name] for name in names), tuple(measures), levels, places)


def _dimensions(dataset: Dataset, group_by: Sequence[str], faults: list[Fault]) -> dict[str, Dimension]:
    declared = {each.name: each for each in dataset.dimensions}
    found = {}
    for place, name in enumerate(group_by):
        if name in declared:
            each = declared[name]
            found[name] = Dimension(name, each.label or name, each.column)
        else:
            faults.append(Fault(f"/group_by/{place}", _no("dimension", name, list(declared), dataset.name)))
    return found


def _count_faults(group_by: Sequence[str]) -> list[Fault]:
    if not group_by:
        return [Fault("/group_by", "name at least one dimension, or leave it out for rows that are not grouped")]
    if len(set(group_by)) != len(group_by):
        return [Fault("/group_by", "a dimension is named twice")]
    if len(group_by) > DIMENSIONS_MAX:
        return [Fault("/group_by", f"write at most {DIMENSIONS_MAX} dimensions")]
    return []


def _measures(dataset: Dataset, columns: Sequence[str] | None, faults: list[Fault]) -> list[Measure]:
    declared = {each.name: each for each in dataset.measures}
    found = []
    for place, name in enumerate(declared if columns is None else columns):
        if name in declared:
            each = declared[name]
            found.append(Measure(name, each.label or name, each.function, each.column))
        else:
            faults.append(Fault(f"/columns/{place}", _no("measure", name, list(declared), dataset.name)))
    return found


def _pivot_faults(pivot: Sequence[str] | None, group_by: Sequence[str]) -> list[Fault]:
    if pivot is None:
        return []
    if not pivot:
        return [Fault("/pivot", "name at least one dimension of group_by, or leave it out")]
    if len(set(pivot)) != len(pivot):
        return [Fault("/pivot", "a dimension is named twice")]
    known = ", ".join(group_by)
    return [
        Fault(f"/pivot/{place}", f"{name[:63]!r} is not in group_by; write one of {known}")
        for place, name in enumerate(pivot)
        if name not in group_by
    ]


def _no(what: str, name: str, known: Sequence[str], dataset: str) -> str:
    there = f"there are {', '.join(known)}" if known else f"{dataset} declares none"
    return f"there is no {what} {name[:63]!r}; {there}"

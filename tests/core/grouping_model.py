"""A grouped result made of detail rows, level by level, as plainly as it can be said; and a source that groups them.

Nothing here knows how the product does it: every level is grouped anew from the rows, sums are fractions.
"""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction
from functools import cmp_to_key
from math import isnan

from haulage.core.grouping import Dimension, Grouped, Measure

NAN = "nan, which is one value here"


def plain(value):
    """A value that equals those that databases call equal."""
    return NAN if value is not None and not isinstance(value, str | bytes) and isnan(value) else value


def grouped_by(rows, level):
    """Detail rows by the values of some of their columns."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(plain(row[index]) for index in level), []).append(row)
    return groups


def said(function, cells):
    """A measure of some cells: what it is, and its type where that matters."""
    there = [cell for cell in cells if cell is not None]
    if function == "count":
        return len(there)
    if function == "count_distinct":
        return len({plain(cell) for cell in there})
    if not there:
        return None
    if function in ("min", "max"):
        order = sorted(there, key=cmp_to_key(lambda one, other: compared(plain(one), plain(other))))
        return plain(order[0 if function == "min" else -1])
    total = sum(map(Fraction, there))
    if function == "sum":
        return total
    mean = total / len(there)
    if any(isinstance(cell, float) for cell in there):
        return float(mean)
    return Fraction(round(mean * 10**12), 10**12)  # Python rounds half to even


def compared(one, other):
    """Numbers, NaN, text, bytes, NULL, each kind among themselves."""

    def rank(value):
        if value is None:
            return 4
        if isinstance(value, bytes):
            return 3
        return 1 if value == NAN else 2 if isinstance(value, str) else 0

    if rank(one) != rank(other):
        return -1 if rank(one) < rank(other) else 1
    return 0 if one == other else -1 if one < other else 1


def compared_keys(one, other):
    return next((found for found in map(compared, one, other) if found), 0)


def comparable(function, value):
    """What the product says, as ``said`` says it."""
    if function in ("sum", "avg") and isinstance(value, int | Decimal):
        return Fraction(value)
    if function == "sum" and isinstance(value, float):
        return Fraction(value)
    return plain(value)


def expected(rows, dimensions, measures, levels, order):
    """Every record: kind, level, keys with None, values.

    Args:
        measures: pairs of a function and the index of a column.
        order: the keys of the finest groups as the source has them.
    """
    full = tuple(range(dimensions))
    by_level = {level: grouped_by(rows, level) for level in (full, *levels)}

    def record(level, key):
        keys = tuple(key[level.index(index)] if index in level else None for index in full)
        of = by_level[level].get(key, [])
        kind = "regular" if level == full else "subtotal" if level else "total"
        return kind, level, keys, tuple(said(function, [row[column] for row in of]) for function, column in measures)

    found = []
    for place, key in enumerate(order):
        found.append(record(full, key))
        following = order[place + 1] if place + 1 < len(order) else None
        for length in range(dimensions - 1, 0, -1):
            if full[:length] in levels and (following is None or following[:length] != key[:length]):
                found.append(record(full[:length], key[:length]))  # noqa: PERF401 - the rule of the order, aloud
    for level in sorted(levels, key=lambda level: (-len(level), level)):
        if level and level != full[: len(level)]:
            found += [record(level, key) for key in sorted(by_level[level], key=cmp_to_key(compared_keys))]
    return found + ([record((), ())] if () in levels else [])


class Source:
    """Groups detail rows as a database does, in an order of its own that keeps equal prefixes together."""

    def __init__(self, rows, dimensions, measures, chance, exact=()):
        self.rows, self.count, self.measures, self.exact = rows, dimensions, measures, exact
        full = tuple(range(dimensions))
        self.groups = grouped_by(rows, full)
        places = []
        for index in full:
            values = list({plain(row[index]) for row in rows})
            chance.shuffle(values)
            places.append({value: place for place, value in enumerate(values)})
        self.order = sorted(
            self.groups, key=lambda key: [place[value] for place, value in zip(places, key, strict=True)]
        )

    def grouped(self, levels, across=()):
        names = tuple(Dimension(f"d{index}", f"D{index}", f"d{index}") for index in range(self.count))
        measures = tuple(
            Measure(f"m{place}", f"M{place}", function, f"c{column}")
            for place, (function, column) in enumerate(self.measures)
        )
        return Grouped(names, measures, tuple(levels), tuple(across))

    def finest(self, size):
        found = [
            (*self._key(self.groups[key][0]), *self._states(self.groups[key]), *self._own(self.groups[key]))
            for key in self.order
        ]
        return [found[start : start + size] for start in range(0, len(found), size)]

    def own(self, levels, chance):
        """Values of every level in any order, the measures that are exact beside the distinct counts."""
        found = []
        for level in levels:
            mask = sum(1 << (self.count - 1 - index) for index in range(self.count) if index not in level)
            groups = grouped_by(self.rows, level) or ({(): []} if not level else {})
            for of in groups.values():
                keys = [value if index in level else None for index, value in enumerate(self._key(of[0]))] if of else []
                found.append((mask, *(keys or [None] * self.count), *self._own(of)))
        chance.shuffle(found)
        return [found[:3], found[3:]]

    def _own(self, rows):
        return [
            self._sum(function, [row[column] for row in rows])
            for place, (function, column) in enumerate(self.measures)
            if function == "count_distinct" or f"m{place}" in self.exact
        ]

    def _key(self, row):
        # A float that is another object each time, as out of a driver.
        return [cell * 1.0 if isinstance(cell, float) else cell for cell in row[: self.count]]

    def _states(self, rows):
        for place, (function, column) in enumerate(self.measures):
            cells = [row[column] for row in rows]
            if function == "avg":
                yield self._sum("sum", cells)
                yield said("count", cells)
            elif function != "count_distinct" and f"m{place}" not in self.exact:
                yield self._sum(function, cells)

    @staticmethod
    def _sum(function, cells):
        """As a value of the source: of floats one, of decimals one."""
        found = said(function, cells)
        if function in ("min", "max"):
            return (
                next(cell for cell in cells if cell is not None and plain(cell) == found) if found is not None else None
            )
        if function != "sum" or found is None:
            return found
        kinds = {type(cell) for cell in cells} - {type(None)}
        if kinds == {Decimal}:
            wide, total = Context(prec=100), Decimal(0)
            for cell in cells:
                total = total if cell is None else wide.add(total, cell)
            return total
        return float(found) if float in kinds else int(found)

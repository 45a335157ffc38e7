"""Random detail rows, grouped by a source and rolled up here, against a plain model that groups every level anew."""

from __future__ import annotations

import random
from decimal import Decimal
from functools import cmp_to_key
from itertools import combinations

import pytest
from tests.core.grouping_model import Source, comparable, compared, expected, plain

from haulage.exports.pivot import Pivot, Wide
from haulage.exports.rollup import roll_up

ROUNDS = 300
VALUES = (  # of one column each: ties, NULL and what a database takes for the same
    [None, "", "a", "A", "b", "z\u00e9", "報告"],
    [None, 0, 1, -7, 2**63, 2**53 + 1, 2**53],
    [None, "a", b"a", 1, 1.0, 2.5, "1", b"", 2**53 + 1, 2.0**53],  # SQLite's
    [None, 0.0, -0.0, 1.5, "nan", float("inf"), -2.25],
    [None, Decimal("1.0"), Decimal("1.00"), Decimal(-3), Decimal("0.1"), "NaN"],
    [True, False, None],
)
NUMBERS = (
    lambda chance: chance.choice([None, chance.randrange(-99, 99), 2**62]),
    lambda chance: chance.choice([None, Decimal(chance.randrange(-9999, 9999)).scaleb(-2)]),
    lambda chance: chance.choice([None, Decimal(chance.randrange(-9999, 9999)).scaleb(-chance.randrange(4))]),
    lambda chance: Decimal(chance.choice(["9999999999999999999999999999999999.0001", "0.0002", "-1E+3", "-0.00"])),
    lambda chance: chance.choice([None, chance.randrange(-64, 64) / 8]),
    lambda chance: chance.choice([None, chance.randrange(-64, 64) / 8, chance.randrange(-64, 64)]),
    lambda _chance: None,
)
FUNCTIONS = ("count", "count_distinct", "sum", "avg", "min", "max")


def made(value):
    """NaN is another object each time, as it comes out of a driver."""
    return {"nan": float("nan"), "NaN": Decimal("NaN")}.get(value, value) if isinstance(value, str) else value


def asked(chance):
    """Detail rows, dimensions, measures, levels, and which dimensions go across."""
    dimensions = chance.randint(1, 4)
    of = [chance.choice(VALUES) for _ in range(dimensions)]
    numbers = [chance.choice(NUMBERS) for _ in range(2)]
    rows = [
        (*(made(chance.choice(values)) for values in of), *(number(chance) for number in numbers))
        for _ in range(chance.choice([0, 1, 5, 40]))
    ]
    measures = [(chance.choice(FUNCTIONS), dimensions + chance.randrange(2)) for _ in range(chance.randint(1, 4))]
    proper = [level for length in range(dimensions) for level in combinations(range(dimensions), length)]
    levels = sorted(chance.sample(proper, chance.randint(0, len(proper))), key=lambda level: (-len(level), level))
    return rows, dimensions, measures, levels, tuple(range(dimensions))[chance.randint(0, dimensions) :]


def rolled_up(chance):
    rows, dimensions, measures, levels, across = asked(chance)
    chosen = [f"m{place}" for place, (function, _) in enumerate(measures) if function in ("min", "max")]
    source = Source(rows, dimensions, measures, chance, exact=chosen[: chance.randint(0, 2)])
    grouped = source.grouped(levels, across)
    own = source.own(levels, chance)
    rolled = roll_up(grouped, source.finest(chance.choice([1, 3, 100])), groups_max=99, own=own, exact=source.exact)
    return rolled, expected(rows, dimensions, measures, levels, source.order), [function for function, _ in measures]


def as_said(functions, values):
    return tuple(map(comparable, functions, values))


def test_every_level_is_what_the_rows_say(seed, times):
    chance = random.Random(seed)
    for _ in range(int(ROUNDS * times)):
        rolled, records, functions = rolled_up(chance)
        for _ in range(2):
            found = [
                (kind, level, tuple(map(plain, keys)), as_said(functions, values))
                for kind, level, keys, values in rolled
            ]

            assert records == found
        assert len(records) == rolled.records
        assert sum(kind == "regular" for kind, *_ in records) == rolled.groups


@pytest.mark.slow
def test_cells_of_a_pivot_are_the_records_and_a_rolled_up_dimension_has_no_key(seed, times):
    chance = random.Random(seed)
    for _ in range(int(ROUNDS * times)):
        rolled, records, functions = rolled_up(chance)
        down = len(rolled.grouped.down)
        found = [
            (cell.kind, as_items(cell.row), as_items(cell.column), as_said(functions, cell.measures.values()))
            for cell in Pivot(rolled)
        ]

        cells = {
            (
                kind,
                as_items(named(level[: cut(level, down)], keys)),
                as_items(named(level[cut(level, down) :], keys)),
                values,
            )
            for kind, level, keys, values in records
        }
        assert cells == set(found)
        assert len(records) == len(found) == Pivot(rolled).records


@pytest.mark.slow
def test_a_wide_table_has_every_record_at_its_row_and_column(seed, times):
    chance = random.Random(seed)
    for _ in range(int(ROUNDS * times)):
        rolled, records, functions = rolled_up(chance)
        grouped, down, many = rolled.grouped, len(rolled.grouped.down), len(functions)
        table = Wide(Pivot(rolled), 10_000)
        across = across_of(grouped, records)
        rows = {}
        for _, level, keys, values in records:
            row = rows.setdefault((level[: cut(level, down)], keys[:down]), [None] * (len(across) * many))
            place = across.index((level[cut(level, down) :], keys[down:])) * many
            row[place : place + many] = values

        found = list(table)
        assert rows == {
            (row.level, tuple(map(plain, row.keys))): list(as_said(functions * len(across), row.values))
            for row in found
        }
        assert len(rows) == len(found) == table.records
        assert len(across) * many == len(table.columns)
        assert list(range(many)) * len(across) == [column.measure for column in table.columns]
        assert rolled.groups == sum(row.groups for row in found)
        for row in found:
            regular = row.level == grouped.down
            assert row.kind == ("regular" if regular else "subtotal" if row.level else "total")
            assert regular or not row.groups


@pytest.mark.slow
def test_rows_of_a_wide_table_stand_as_those_of_a_rollup_of_what_goes_down(seed, times):
    chance = random.Random(seed)
    for _ in range(int(ROUNDS * times)):
        rolled, _, _ = rolled_up(chance)
        if not rolled.groups:
            continue
        down = rolled.grouped.down
        levels = {tuple(index for index in level if index in down) for level in rolled.grouped.levels} - {down}
        found = [(row.kind, row.level, row.keys) for row in Wide(Pivot(rolled), 10_000)]

        alone = rolled.grouped._replace(
            dimensions=rolled.grouped.dimensions[: len(down)],
            measures=(),
            levels=tuple(sorted(levels, key=lambda level: (-len(level), level))),
            across=(),
        )
        keys = dict.fromkeys(keys[: len(down)] for kind, _, keys, _ in rolled if kind == "regular")
        assert found == [record[:3] for record in roll_up(alone, [list(keys)], groups_max=99)]


def cut(level, down):
    """Where in a level the dimensions begin that go across."""
    return sum(index < down for index in level)


def named(level, keys):
    return {f"d{index}": keys[index] for index in level}


def as_items(keys):
    return tuple((name, plain(value)) for name, value in keys.items())


def across_of(grouped, records):
    """Every key across, in the order of values, with totals behind."""
    down = len(grouped.down)
    keys = {(level[cut(level, down) :], keys[down:]) for _, level, keys, _ in records}
    if any(len(level) == cut(level, down) for level in (grouped.full, *grouped.levels)):
        keys.add(((), (None,) * len(grouped.across)))  # a column of totals is there for no rows, too

    def order(one, other):
        for index in grouped.across:
            inside = [index in level for level, _ in (one, other)]
            found = inside[1] - inside[0]
            if all(inside):
                found = compared(one[1][index - down], other[1][index - down])
            if found:
                return found
        return 0

    return sorted(keys, key=cmp_to_key(order))

"""Groups of values that a database compares otherwise than a file writes them, at the finest level and rolled up."""

from __future__ import annotations

import pytest
from tests.conformance.source_cases import CASES
from tests.conformance.test_grouping import rows_of

from haulage.core.errors import BuildFailed
from haulage.core.grouping import Dimension, Grouped, Measure, levels_of
from haulage.core.reading import Reading

pytestmark = pytest.mark.slow

OF_V = (Measure("n", "n", "count_distinct", "v"), Measure("lo", "lo", "min", "v"), Measure("hi", "hi", "max", "v"))
COLLATED = {"sqlite": "text collate nocase", "mariadb": "varchar(9) collate utf8mb4_general_ci"}
COLLATED |= {"duckdb": "varchar collate nocase"}


@pytest.fixture
def made(tmp_path):
    """Makes a source with a table of one column, and of these values."""
    cases = []

    def make(name, kind, values, *before):
        case = CASES[name](tmp_path)
        cases.append(case)
        for sql in (*before, f"create table t (v {kind})"):
            case.execute(sql)
        for value in values:
            case.execute(f"insert into t values ({value})")
        return case

    yield make
    for case in cases:
        case.close()


def measured(case, by=()):
    """Of each group and of all its values how many there are, the least and the greatest, and their types."""
    dimensions = tuple(Dimension(each, each, each) for each in ("g", *by))
    grouped = Grouped(dimensions, OF_V, ((0,), ()) if by else ((),))
    reading = Reading("select 'g' as g, v from t", {}, {}, None, (), (), None, {})
    columns, rows, _ = rows_of(case, grouped, reading=reading)
    return [column.type for column in columns[-3:]], rows


@pytest.mark.parametrize("name", COLLATED)
def test_a_collation_of_the_column_makes_no_groups(made, name):
    case = made(name, COLLATED[name], ["'a'", "'A'", "'b'"])
    _, rows = measured(case, ("v",))

    assert [("A", 1), ("a", 1), ("b", 1)] == [(row[3], row[4]) for row in rows[:3]]
    assert [(3, "A", "b")] * 2 == [row[4:] for row in rows[3:]]
    assert [(3, "A", "b")] * 2 == [row[3:] for row in measured(case)[1]]


@pytest.mark.parametrize(
    ("name", "kind"), [("postgresql", "mood"), ("duckdb", "mood"), ("mariadb", "enum('sad', 'happy')")]
)
def test_an_enum_has_its_least_label_whoever_compares(made, name, kind):
    before = [] if name == "mariadb" else ["create type mood as enum ('sad', 'happy')"]
    case = made(name, kind, ["'sad'", "'happy'"], *before)

    assert [("happy", "sad")] * 2 == [row[-2:] for row in measured(case)[1]]
    assert [("happy", "sad")] * 2 == [row[-2:] for row in measured(case, ("v",))[1][-2:]]
    assert ["happy", "sad"] == [row[3] for row in measured(case, ("v",))[1][:2]]


@pytest.mark.parametrize("name", ["postgresql", "duckdb"])
@pytest.mark.parametrize("by", [(), ("v",)], ids=["compared by the source", "rolled up"])
def test_the_least_of_booleans_and_bytes_is_one_of_them(made, name, by):
    flags = made(name, "boolean", ["true", "false", "null"])
    types, rows = measured(flags, by)
    assert (["boolean"] * 2, (2, False, True)) == (types[1:], rows[-1][-3:])
    flags.execute("drop table t")
    flags.execute(f"create table t (v {'bytea' if name == 'postgresql' else 'blob'})")
    flags.execute("insert into t values ('\\x00'), ('\\xff'), (''), (null)")
    types, rows = measured(flags, by)
    assert (["bytes"] * 2, (3, b"", b"\xff")) == (types[1:], rows[-1][-3:])


def test_an_address_is_grouped_as_it_is_written(made):
    case = made("postgresql", "inet", ["'10.0.0.1'", "'10.0.0.1/32'", "'10.0.0.1/8'", "'::1'", "null"])
    _, rows = measured(case, ("v",))

    assert ["10.0.0.1", "10.0.0.1/8", "::1", None] == [row[3] for row in rows[:4]]


@pytest.mark.parametrize("name", ["sqlite", "postgresql", "mariadb", "duckdb"])
@pytest.mark.parametrize("key", ["secret_2", "SECRET"])
def test_no_second_and_no_other_spelling_of_a_hidden_column_is_shown(made, name, key):
    made_of = made(name, "integer", ["1"])
    sql = "select v, v as secret, v as secret from t"

    def asked(column, *measures):
        reading = Reading(sql, {}, {}, None, ("secret",), (), None, {})
        grouped = Grouped((Dimension("g", "g", column),), measures, ((),))
        return rows_of(made_of, grouped, reading=reading)[1]

    assert [1, 1] == [row[-1] for row in asked("v", Measure("n", "n", "count_distinct", key))]
    for dimension, function in ((key, "count"), ("v", "sum"), ("v", "avg"), ("v", "min"), ("v", "max")):
        with pytest.raises(BuildFailed) as failed:
            asked(dimension, Measure("m", "m", function, None if function == "count" else key))
        assert "is hidden" in failed.value.cause


@pytest.mark.parametrize("name", ["sqlite", "postgresql", "mariadb", "duckdb"])
def test_distinct_counts_of_many_levels_fit_in_the_memory_of_the_source(made, name):
    values = [str(number) for number in range(6)]
    sql = "select v, " + ", ".join(f"v % {number + 2} as d{number}" for number in range(6)) + " from t"
    dimensions = tuple(Dimension(f"d{number}", f"d{number}", f"d{number}") for number in range(6))
    names = [each.key for each in dimensions]
    grouped = Grouped(dimensions, OF_V, levels_of("cube", names))
    _, rows, _ = rows_of(made(name, "integer", values), grouped, reading=Reading(sql, {}, {}, None, (), (), None, {}))

    assert ("total", "", *[None] * 6, 6, 0, 5) == rows[-1]
    assert {row[1] for row in rows} == {grouped.level_name(level) for level in (grouped.full, *grouped.levels)}

"""Parquet: which type a column gets, what the file says of itself, and values that differ in the second reading."""

# ruff: noqa: DTZ001 - moments without a zone, as sources give them

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import duckdb
import pytest
from tests.conformance.formats.readers import columns, read_parquet, write

from haulage.core.errors import BuildFailed
from haulage.core.reading import Column
from haulage.formats import FORMATS, parquet_groups
from haulage.formats.cells import known_type
from haulage.formats.format import About

pytestmark = pytest.mark.slow

CET = timezone(timedelta(hours=1))
ODD = timezone(timedelta(hours=-3, minutes=-30))


def made(rows, *headers, types=None, about=None, batch=3):
    """A file of rows, and its encoder."""
    encoder = FORMATS["parquet"].open(columns(*headers, types=types), {"codec": "zstd"}, about or About())
    batches = [rows[first : first + batch] for first in range(0, len(rows), batch)]
    for each in batches:
        encoder.look(each)
    return b"".join([encoder.begin(), *map(encoder.rows, batches), encoder.end()]), encoder


def asked(tmp_path, data, sql):
    """What DuckDB answers about a file."""
    path = tmp_path / "file.parquet"
    path.write_bytes(data)
    with duckdb.connect() as database:
        return database.execute(sql.replace("FILE", f"'{path}'")).fetchall()


def type_of(tmp_path, data):
    return asked(tmp_path, data, "describe select * from FILE")[-1][1]


@pytest.mark.parametrize(
    ("values", "declared", "wanted"),
    [
        ([1, -(2**63), 2**63 - 1], None, "BIGINT"),
        ([1, 2**63], None, "DECIMAL(38,0)"),
        ([10**38 - 1, -(10**38) + 1], None, "DECIMAL(38,0)"),
        ([1.5, None, float("nan")], None, "DOUBLE"),
        ([1.5, 2**53, -(2**53)], None, "DOUBLE"),
        ([True, False, None], None, "BOOLEAN"),
        ([Decimal("1.50"), Decimal("-12.345"), None], None, "DECIMAL(18,3)"),
        ([Decimal("1.50"), 7], None, "DECIMAL(18,2)"),
        ([Decimal("-0." + "1" * 38), Decimal(0)], None, "DECIMAL(38,38)"),
        ([Decimal("-0." + "1" * 38), Decimal("1E-38")], None, "DECIMAL(38,38)"),
        ([Decimal("-" + "9" * 36 + ".25"), Decimal("0.5")], None, "DECIMAL(38,2)"),
        ([Decimal("1234567890123456.78"), Decimal("0.001")], None, "DECIMAL(38,3)"),
        ([Decimal("1.50")], "decimal(12,4)", "DECIMAL(12,4)"),
        ([Decimal("1.50001"), Decimal(123456789)], "decimal(12,4)", "DECIMAL(18,5)"),
        ([0.1, 1e-7], "decimal", "DECIMAL(18,7)"),
        (["1.10", "-3"], "decimal", "DECIMAL(18,2)"),
        ([date(1, 1, 1), date(9999, 12, 31)], None, "DATE"),
        (["2026-01-31", None], "date", "DATE"),
        ([datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)], None, "TIMESTAMP"),
        (["2026-01-31 23:30:00.5", "2026-01-31T23:30:00"], "timestamp", "TIMESTAMP"),
        ([datetime(2026, 1, 1, tzinfo=UTC)] * 2, None, "TIMESTAMP WITH TIME ZONE"),
        ([datetime(2026, 1, 1, tzinfo=ODD)] * 2, None, "TIMESTAMP WITH TIME ZONE"),
        (["2026-01-31 23:30:00+00", "2026-01-31 23:30:00.25+00"], "timestamp", "TIMESTAMP WITH TIME ZONE"),
        (["2026-01-31 23:30:00.500", "2026-01-31T23:30:00.000"], "timestamp", "TIMESTAMP"),
        (["2026-01-31T23:30:00Z", "2026-01-31 23:30:00.500+00"], "timestamp", "TIMESTAMP WITH TIME ZONE"),
        (["01:02:03.000", "01:02:03.500000"], "time", "TIME"),
        ([time(23, 59, 59, 999999), None], None, "TIME"),
        ([UUID(int=1), None], None, "UUID"),
        (["00000000-0000-0000-0000-000000000001"], "uuid", "UUID"),
        ([b"\x00\xff", b""], None, "BLOB"),
        (["x", "", None], None, "VARCHAR"),
        ([[1, None], {"k": 1}], None, "VARCHAR"),
        (["01:02:03.5", "23:59:59"], "time", "TIME"),
        ([None, None], None, "VARCHAR"),
        ([], None, "VARCHAR"),
        ([None], "integer", "BIGINT"),
        ([], "decimal(12,2)", "DECIMAL(12,2)"),
        ([], "decimal(40,2)", "VARCHAR"),
        ([], "decimal", "VARCHAR"),
        ([None], "timestamp", "TIMESTAMP"),
        ([None], "uuid", "UUID"),
        ([], "json", "VARCHAR"),
    ],
)
def test_a_column_gets_the_type_that_holds_every_value(tmp_path, values, declared, wanted):
    data, encoder = made([(value,) for value in values], "a", types={"a": declared}, batch=1)

    assert wanted == type_of(tmp_path, data)
    assert {} == dict(encoder.notices.items())
    assert len(values) == len(read_parquet(data)[1])


@pytest.mark.parametrize(
    ("values", "declared", "wanted"),
    [
        ([1, "a"], None, ["1", "a"]),
        ([1.5, 2**53 + 1], None, ["1.5", "9007199254740993"]),
        ([1, True], None, ["1", "true"]),
        ([Decimal("1.5"), 1.5], None, ["1.5", "1.5"]),
        ([10**38, 1], None, ["1" + "0" * 38, "1"]),
        ([Decimal("1E+30"), Decimal("0.000000001")], None, ["1" + "0" * 30, "0.000000001"]),
        ([Decimal("1.10"), Decimal("NaN")], "decimal(12,2)", ["1.10", "NaN"]),
        ([Decimal("Infinity"), 1], None, ["Infinity", "1"]),
        ([date(2026, 1, 1), datetime(2026, 1, 1)], None, ["2026-01-01", "2026-01-01T00:00:00"]),
        ([datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)], None,
         ["2026-01-01T00:00:00", "2026-01-01T00:00:00+00:00"]),
        ([datetime(2026, 1, 1, tzinfo=CET), datetime(2026, 7, 1, tzinfo=UTC)], None,
         ["2026-01-01T00:00:00+01:00", "2026-07-01T00:00:00+00:00"]),
        ([time(1, tzinfo=CET)] * 2, None, ["01:00:00+01:00"] * 2),
        ([timedelta(hours=1)] * 2, None, ["1:00:00"] * 2),
        ([1, "infinity"], "date", ["1", "infinity"]),
    ],
)  # fmt: skip
def test_where_no_type_holds_all_of_them_they_are_text_and_the_column_is_named(tmp_path, values, declared, wanted):
    rows = [("x", value) for value in values]
    data, encoder = made(rows, "other", "a", types={"a": declared}, batch=1)

    assert "VARCHAR" == type_of(tmp_path, data)
    assert wanted == [row[1] for row in read_parquet(data)[1]]
    texts = sum(isinstance(value, str) for value in values if declared is None)
    assert {"written_as_text": 2 - texts} == dict(encoder.notices.items())
    assert ["a"] == encoder.notices.columns("written_as_text")


@pytest.mark.parametrize(
    ("values", "declared"),
    [
        (["2026-01-31", "infinity", None], "date"),
        (["2026-01-31 23:30:00+00", "infinity", None], "timestamp"),
        (["2026-01-31 23:30:00.500", "2026-01-31 23:30:00.123456789", None], "timestamp"),
        (["2026-01-31T23:30:00Z", "2026-01-31T24:00:00.000", None], "timestamp"),
        (["01:02:03.500", "24:00:00.000", None], "time"),
        (["1.10", "NaN", None], "decimal"),
        (["007", "7", None], "integer"),
    ],
)
def test_texts_of_a_declared_column_are_what_they_were_when_one_of_them_is_no_such_value(values, declared):
    data, encoder = made([(value,) for value in values], "a", types={"a": declared}, batch=1)

    assert [[value] for value in values] == read_parquet(data)[1]
    assert {"written_as_text": 2} == dict(encoder.notices.items())


@pytest.mark.parametrize(
    ("type", "native", "wanted"),
    [
        ("decimal", "numeric(12,2)", "decimal(12,2)"),
        ("decimal", "decimal(30,10)", "decimal(30,10)"),
        ("decimal", "numeric", "decimal"),
        (None, "uuid", "uuid"),
        (None, "time without time zone", "time"),
        (None, "interval", None),
        ("text", "uuid", "text"),
        ("date", None, "date"),
    ],
)
def test_a_type_that_only_a_server_has_is_known_too(type, native, wanted):
    assert wanted == known_type(Column("a", "a", type, native))


def test_a_column_has_the_type_that_its_server_calls_it(tmp_path):
    rows = [("00000000-0000-0000-0000-000000000001", Decimal("1.5"), "01:02:03")]
    natives = ["uuid", "numeric(12,2)", "time without time zone"]
    encoder = FORMATS["parquet"].open(
        [Column(each, each, "decimal" if "numeric" in each else None, each) for each in natives], {"codec": "zstd"}
    )
    encoder.look(rows)
    data = encoder.begin() + encoder.rows(rows) + encoder.end()

    types = [type for _, type, *_ in asked(tmp_path, data, "describe select * from FILE")]
    assert ["UUID", "DECIMAL(12,2)", "TIME"] == types


def test_a_zone_is_kept_with_its_moments():
    import pyarrow as pa

    moment = datetime(2026, 1, 31, 23, 30, tzinfo=ODD)
    data, _ = made([(moment,)], "a")
    (read,) = pa.parquet.read_table(pa.BufferReader(data)).column("a")

    assert moment == read.as_py()
    assert "-03:30" == read.type.tz


def test_decimals_are_exact_to_the_last_of_38_digits():
    rows = [(Decimal("12345678901234567890123456789.123456789"),), (Decimal("-0.000000001"),), (None,)]

    assert [list(row) for row in rows] == read_parquet(made(rows, "a")[0])[1]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1, "a"),
        (1, 1.5),
        (1, 2**63),
        (1, True),
        (1.5, 2**53 + 1),
        (Decimal("1.5"), Decimal("1.25")),
        (Decimal("1.5"), Decimal("NaN")),
        (date(2026, 1, 1), datetime(2026, 1, 1, 12)),
        (datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)),
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=CET)),
        (None, 1),
    ],
)
def test_a_value_that_was_another_in_the_first_reading_ends_the_build(first, second):
    encoder = FORMATS["parquet"].open(columns("a"), {"codec": "zstd"})
    encoder.look([(first,)])
    encoder.begin()
    with pytest.raises(BuildFailed) as failed:
        encoder.rows([(second,)])

    assert "values_changed" == failed.value.code


def test_memory_that_ran_out_is_no_change_of_values(monkeypatch):
    import pyarrow as pa

    def without_memory(*_asked):
        raise pa.ArrowMemoryError

    encoder = FORMATS["parquet"].open(columns("a"), {"codec": "zstd"})
    encoder.look([(1,)])
    encoder.begin()
    monkeypatch.setattr(pa, "array", without_memory)
    with pytest.raises(MemoryError):
        encoder.rows([(1,)])


# -- the file --------------------------------------------------------------------------------------


def test_row_groups_have_statistics_and_the_file_says_its_instant(tmp_path):
    rows = [(number, f"text {number:06}", None if number % 3 else 1.5) for number in range(150_000)]
    data, encoder = made(rows, "n", "t", "x", about=About(snapshot_at=1_790_000_000_123), batch=256)

    groups = asked(
        tmp_path,
        data,
        "select row_group_id, row_group_num_rows, path_in_schema, stats_min_value, stats_max_value, stats_null_count "
        "from parquet_metadata(FILE) order by 1, column_id",
    )
    assert [65_536] * 3 + [65_536] * 3 + [18_928] * 3 == [group[1] for group in groups]
    assert [("n", "0", "65535", 0), ("t", "text 000000", "text 065535", 0), ("x", "1.5", "1.5", 43_690)] == [
        group[2:] for group in groups[:3]
    ]
    assert ("n", "131072", "149999", 0) == groups[6][2:]
    kept = asked(tmp_path, data, "select decode(key), decode(value) from parquet_kv_metadata(FILE)")
    assert ("haulage.snapshot_at", "2026-09-21T14:13:20.123Z") in kept
    assert [(150_000, 149_999, "text 149999")] == asked(tmp_path, data, "select count(*), max(n), max(t) from FILE")
    assert data.startswith(b"PAR1")
    assert data.endswith(b"PAR1")
    assert (64, 0) == (len(encoder.trailer), encoder.held)


def test_a_source_without_a_snapshot_gives_no_instant(tmp_path):
    kept = asked(tmp_path, made([(1,)], "a")[0], "select decode(key) from parquet_kv_metadata(FILE)")

    assert [] == [key for (key,) in kept if key.startswith("haulage")]


@pytest.mark.parametrize("batch", [1, 7, 10, 11, 100])
def test_row_groups_do_not_depend_on_batches(monkeypatch, tmp_path, batch):
    monkeypatch.setattr(parquet_groups, "GROUP_ROWS", 10)
    rows = [(number, None if number % 7 else "x" * number) for number in range(35)]
    data, _ = made(rows, "n", "t", batch=batch)

    assert made(rows, "n", "t", batch=3)[0] == data
    sizes = asked(tmp_path, data, "select distinct row_group_id, row_group_num_rows from parquet_metadata(FILE)")
    assert [(0, 10), (1, 10), (2, 10), (3, 5)] == sorted(sizes)


def test_pages_do_not_depend_on_batches():
    rows = [(number, f"text {number * 7919 % 10_007}") for number in range(10_000)]

    assert made(rows, "n", "t", batch=256)[0] == made(rows, "n", "t", batch=777)[0]


@pytest.mark.parametrize("batch", [1, 7, 40])
def test_long_texts_make_smaller_row_groups(tmp_path, batch):
    rows = [(number, "x" * 1_000_000) for number in range(40)]
    data, encoder = made(rows, "n", "t", batch=batch)
    groups = asked(tmp_path, data, "select distinct row_group_id, row_group_num_rows from parquet_metadata(FILE)")

    assert [9, 9, 9, 9, 4] == [rows for _, rows in sorted(groups)]
    assert [(40_000_000,)] == asked(tmp_path, data, "select sum(length(t)) from FILE")
    assert encoder.held == 0


def test_rows_that_wait_for_their_group_are_known(monkeypatch):
    monkeypatch.setattr(parquet_groups, "GROUP_ROWS", 10)
    encoder = FORMATS["parquet"].open(columns("a"), {"codec": "none"})
    encoder.look([(1,)])
    encoder.begin()
    given = [0]
    for taken in range(6, 306, 6):
        data = encoder.rows([(1,)] * 6)
        given.append(taken - encoder.held)
        assert bool(data) == (given[-1] > given[-2]), "rows are given with their bytes"

    encoder.end()
    assert 0 == encoder.held
    assert {0} == {rows % 10 for rows in given}, "in whole groups"
    assert given[-1] >= 290, "all but what is gathered and what is packed"


def test_a_group_is_packed_while_the_next_is_gathered(monkeypatch):
    monkeypatch.setattr(parquet_groups, "GROUP_ROWS", 10)
    monkeypatch.setattr(parquet_groups, "FEW_ROWS", 10)
    may_go_on, written = threading.Event(), parquet_groups.Groups._written

    def slow(self, batches):
        assert may_go_on.wait(60)
        return written(self, batches)

    monkeypatch.setattr(parquet_groups.Groups, "_written", slow)
    encoder = FORMATS["parquet"].open(columns("a"), {"codec": "none"})
    encoder.look([(1,)])

    assert [b""] * 3 == [encoder.rows([(1,)] * 6) for _ in range(3)]
    assert 18 == encoder.held
    may_go_on.set()
    data = encoder.rows([(1,)] * 6) + encoder.end()
    assert [[1]] * 24 == read_parquet(data)[1]


def test_a_group_with_long_rows_is_packed_before_more_is_gathered(monkeypatch):
    monkeypatch.setattr(parquet_groups, "GROUP_BYTES", 1_000)
    encoder = FORMATS["parquet"].open(columns("a"), {"codec": "none"})
    encoder.look([("x",)])

    given = [(len(encoder.rows([("x" * 1_000,)])) > 1_000, encoder.held) for _ in range(3)]
    assert [(True, 0)] * 3 == given


@pytest.mark.parametrize("few", [10, 11])
def test_what_goes_wrong_while_a_group_is_packed_ends_the_build(monkeypatch, few):
    monkeypatch.setattr(parquet_groups, "GROUP_ROWS", 10)
    monkeypatch.setattr(parquet_groups, "FEW_ROWS", few)

    def full(_self, _batches):
        raise MemoryError("no room")

    monkeypatch.setattr(parquet_groups.Groups, "_written", full)
    encoder = FORMATS["parquet"].open(columns("a"), {"codec": "none"})
    encoder.look([(1,)])

    with pytest.raises(MemoryError, match="no room"):
        encoder.rows([(1,)] * 10), encoder.end()
    assert [] == [each for each in threading.enumerate() if each.name == "packing"]


@pytest.mark.parametrize("codec", ["zstd", "snappy", "none"])
def test_columns_are_packed_as_asked(tmp_path, codec):
    data = write("parquet", ["a"], [("x" * 1000,)] * 10, codec=codec).data
    wanted = {"none": "UNCOMPRESSED"}.get(codec, codec.upper())

    assert [(wanted,)] == asked(tmp_path, data, "select distinct compression from parquet_metadata(FILE)")


# -- without pyarrow -------------------------------------------------------------------------------


def test_where_pyarrow_is_missing_the_format_says_what_to_install(monkeypatch):
    assert FORMATS["parquet"].missing() is None

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install 'haulage[parquet]'" == FORMATS["parquet"].missing()
    with pytest.raises(BuildFailed) as failed:
        FORMATS["parquet"].open(columns("a"), {"codec": "zstd"})
    assert ("library_missing", "pip install 'haulage[parquet]'") == (failed.value.code, failed.value.detail)


@pytest.mark.parametrize(("allowed", "refused"), [(255, True), (256, False), (512, False), (None, False)])
def test_too_little_memory_is_a_failure_with_a_code_and_no_crash(monkeypatch, allowed, refused):
    limit = resource.RLIM_INFINITY if allowed is None else allowed * 1024 * 1024
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (limit, resource.RLIM_INFINITY))
    if not refused:
        assert FORMATS["parquet"].open(columns("a"), {"codec": "zstd"})
        return
    with pytest.raises(BuildFailed) as failed:
        FORMATS["parquet"].open(columns("a"), {"codec": "zstd"})

    said = "A Parquet file needs 256 MiB of memory, and only 255 are allowed."
    assert ("out_of_memory", said) == (failed.value.code, failed.value.detail)


def test_the_least_memory_is_enough_for_several_row_groups():
    script = (
        "import sys; sys.modules['numpy'] = None  # as in a child\n"
        "import resource; from haulage.formats import FORMATS, parquet; from haulage.core.reading import Column\n"
        "resource.setrlimit(resource.RLIMIT_AS, (parquet.LEAST_MEMORY,) * 2)\n"
        "rows = [(number, f'text {number}') for number in range(1000)]\n"
        "encoder = FORMATS['parquet'].open([Column('n', 'n'), Column('t', 't')], {'codec': 'zstd'})\n"
        "encoder.look(rows); encoder.begin(); sizes = [len(encoder.rows(rows)) for _ in range(140)]\n"
        "encoder.end(); print(sum(sizes) > 0, encoder.held)"
    )
    made = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (0, "True 0\n") == (made.returncode, made.stdout), made.stderr


def test_the_other_formats_and_the_catalogue_do_not_load_pyarrow():
    script = (
        "import json, sys; from haulage.formats import FORMATS; from haulage.core.reading import Column\n"
        "for format in FORMATS.values(): format.missing()\n"
        "FORMATS['xlsx'].open([Column('a', 'a')], {'moments': 'exact', 'sheets': 'one'}).begin()\n"
        "print(json.dumps(list(sys.modules)))"
    )
    loaded = json.loads(subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout)

    assert "haulage.formats.parquet" in loaded
    assert not {"pyarrow", "haulage.formats.parquet_columns"} & set(loaded)

"""Values of servers, and what stands for each in every format: looked for in test_server_files.py, shown in docs."""

# ruff: noqa: DTZ001 - moments without a zone, as the servers have them

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import NamedTuple
from uuid import UUID

from tests.conformance.formats.readers import Digits


class Value(NamedTuple):
    """One value in SQL, and what is read back.

    Args:
        csv: the field of the dialect ``exact``, with its quotes.
        json: the text of JSON, numbers as numbers.
        parquet: the value, and ``type`` as DuckDB calls the column's.
        sheet: the cell; a number as its digits.
        named: the formats in which it is text and a notice says so.
    """

    sql: str
    csv: str
    json: str
    parquet: object
    type: str
    sheet: object
    named: tuple[str, ...] = ()


POSTGRESQL: list[Value] = [
    Value("1::int", "1", "1", 1, "BIGINT", Digits("1")),
    Value(
        "9223372036854775807",
        "9223372036854775807",
        "9223372036854775807",
        9223372036854775807,
        "BIGINT",
        "9223372036854775807",
        named=("xlsx",),
    ),
    Value("1.50::numeric(12,2)", "1.50", "1.50", Decimal("1.50"), "DECIMAL(12,2)", Digits("1.50")),
    Value("0.0000001::numeric", "0.0000001", "0.0000001", Decimal("1E-7"), "DECIMAL(18,7)", Digits("0.0000001")),
    Value("'NaN'::numeric(5,1)", "NaN", '"NaN"', "NaN", "VARCHAR", "NaN", named=("parquet",)),
    Value("0.1::float8", "0.1", "0.1", 0.1, "DOUBLE", Digits("0.1")),
    Value("'-Infinity'::float8", "-Infinity", '"-Infinity"', float("-inf"), "DOUBLE", "-Infinity"),
    Value("date '2026-01-31'", "2026-01-31", '"2026-01-31"', date(2026, 1, 31), "DATE", date(2026, 1, 31)),
    Value("date '1900-02-28'", "1900-02-28", '"1900-02-28"', date(1900, 2, 28), "DATE", "1900-02-28", named=("xlsx",)),
    Value("date 'infinity'", "infinity", '"infinity"', "infinity", "VARCHAR", "infinity", named=("xlsx", "parquet")),
    Value(
        "timestamp '2026-01-31 23:30:00.5'",
        "2026-01-31 23:30:00.5",
        '"2026-01-31 23:30:00.5"',
        datetime(2026, 1, 31, 23, 30, 0, 500000),
        "TIMESTAMP",
        datetime(2026, 1, 31, 23, 30, 0, 500000),
    ),
    Value(
        "timestamptz '2026-01-31 23:30:00+01'",
        "2026-01-31 22:30:00+00",
        '"2026-01-31 22:30:00+00"',
        datetime(2026, 1, 31, 22, 30, tzinfo=UTC),
        "TIMESTAMP WITH TIME ZONE",
        datetime(2026, 1, 31, 22, 30, tzinfo=UTC),
    ),
    Value(
        "timestamptz '2026-01-31 23:30:00.000001+00'",
        "2026-01-31 23:30:00.000001+00",
        '"2026-01-31 23:30:00.000001+00"',
        datetime(2026, 1, 31, 23, 30, 0, 1, tzinfo=UTC),
        "TIMESTAMP WITH TIME ZONE",
        "2026-01-31T23:30:00.000001+00:00",
        named=("xlsx",),
    ),
    Value("time '01:02:03.5'", "01:02:03.5", '"01:02:03.5"', time(1, 2, 3, 500000), "TIME", time(1, 2, 3, 500000)),
    Value(
        "interval '1 day 2 h'",
        "1 day 02:00:00",
        '"1 day 02:00:00"',
        "1 day 02:00:00",
        "VARCHAR",
        "1 day 02:00:00",
        named=("xlsx", "parquet"),
    ),
    Value("'\\x00ff'::bytea", "AP8=", '"AP8="', b"\x00\xff", "BLOB", "AP8="),
    Value(
        "array[[1,2],[3,null]]",
        '"[[1,2],[3,null]]"',
        "[[1,2],[3,null]]",
        "[[1,2],[3,null]]",
        "VARCHAR",
        "[[1,2],[3,null]]",
    ),
    Value("'{\"a\": 1.50}'::jsonb", '"{""a"": 1.50}"', '{"a": 1.50}', '{"a": 1.50}', "VARCHAR", '{"a": 1.50}'),
    Value(
        "'00000000-0000-0000-0000-000000000001'::uuid",
        "00000000-0000-0000-0000-000000000001",
        '"00000000-0000-0000-0000-000000000001"',
        UUID("00000000-0000-0000-0000-000000000001"),
        "UUID",
        "00000000-0000-0000-0000-000000000001",
    ),
    Value("true", "true", "true", True, "BOOLEAN", True),
    Value("'x'::char(3)", "x  ", '"x  "', "x  ", "VARCHAR", "x  "),
    Value("'=1+1'::text", "=1+1", '"=1+1"', "=1+1", "VARCHAR", "=1+1"),
    Value("'[1,5)'::int4range", '"[1,5)"', '"[1,5)"', "[1,5)", "VARCHAR", "[1,5)", named=("xlsx", "parquet")),
    Value(
        "time with time zone '10:00+01'",
        "10:00:00+01",
        '"10:00:00+01"',
        "10:00:00+01",
        "VARCHAR",
        "10:00:00+01",
        named=("xlsx", "parquet"),
    ),
    Value("B'101'::bit(3)", "101", '"101"', "101", "VARCHAR", "101", named=("xlsx", "parquet")),
    Value("'1.2.3.4'::inet", "1.2.3.4", '"1.2.3.4"', "1.2.3.4", "VARCHAR", "1.2.3.4", named=("xlsx", "parquet")),
    Value("null::int", "", "null", None, "BIGINT", None),
    Value("null::numeric(7,3)", "", "null", None, "DECIMAL(7,3)", None),
    Value("''::text", '""', '""', "", "VARCHAR", ""),
]
MARIADB: list[Value] = [
    Value(
        "cast(18446744073709551615 as unsigned)",
        "18446744073709551615",
        "18446744073709551615",
        Decimal(18446744073709551615),
        "DECIMAL(38,0)",
        "18446744073709551615",
        named=("xlsx",),
    ),
    Value("cast(1.50 as decimal(12,2))", "1.50", "1.50", Decimal("1.50"), "DECIMAL(12,2)", Digits("1.50")),
    Value(
        "0.1e0 + 0.2e0",
        "0.30000000000000004",
        "0.30000000000000004",
        0.30000000000000004,
        "DOUBLE",
        Digits("0.30000000000000004"),
    ),
    Value("cast('2024-03-07' as date)", "2024-03-07", '"2024-03-07"', date(2024, 3, 7), "DATE", date(2024, 3, 7)),
    Value(
        "cast('2024-03-07 21:00:00.25' as datetime(6))",
        "2024-03-07 21:00:00.250000",
        '"2024-03-07 21:00:00.250000"',
        datetime(2024, 3, 7, 21, 0, 0, 250000),
        "TIMESTAMP",
        datetime(2024, 3, 7, 21, 0, 0, 250000),
    ),
    Value(
        "cast('2024-03-07 21:00:00' as datetime(3))",
        "2024-03-07 21:00:00.000",
        '"2024-03-07 21:00:00.000"',
        datetime(2024, 3, 7, 21),
        "TIMESTAMP",
        datetime(2024, 3, 7, 21),
    ),
    Value("cast('21:04:05' as time)", "21:04:05", '"21:04:05"', time(21, 4, 5), "TIME", time(21, 4, 5)),
    Value(
        "cast('21:04:05.5' as time(3))",
        "21:04:05.500",
        '"21:04:05.500"',
        time(21, 4, 5, 500000),
        "TIME",
        time(21, 4, 5, 500000),
    ),
    Value(
        "cast('-838:59:59' as time)",
        "-838:59:59",
        '"-838:59:59"',
        "-838:59:59",
        "VARCHAR",
        "-838:59:59",
        named=("xlsx", "parquet"),
    ),
    Value("x'00ff'", "AP8=", '"AP8="', b"\x00\xff", "BLOB", "AP8="),
    Value("'a🚀'", "a🚀", '"a🚀"', "a🚀", "VARCHAR", "a🚀"),
    Value("''", '""', '""', "", "VARCHAR", ""),
]
DUCKDB: list[Value] = [
    Value("1::tinyint", "1", "1", 1, "BIGINT", Digits("1")),
    Value(
        "9223372036854775807",
        "9223372036854775807",
        "9223372036854775807",
        9223372036854775807,
        "BIGINT",
        "9223372036854775807",
        named=("xlsx",),
    ),
    Value(
        "170141183460469231731687303715884105727",
        "170141183460469231731687303715884105727",
        "170141183460469231731687303715884105727",
        "170141183460469231731687303715884105727",
        "VARCHAR",
        "170141183460469231731687303715884105727",
        named=("xlsx", "parquet"),
    ),
    Value(
        "340282366920938463463374607431768211455::uhugeint",
        "340282366920938463463374607431768211455",
        "340282366920938463463374607431768211455",
        "340282366920938463463374607431768211455",
        "VARCHAR",
        "340282366920938463463374607431768211455",
        named=("xlsx", "parquet"),
    ),
    Value(
        "'-123456789012345678901234567890123456789012'::bignum",
        "-123456789012345678901234567890123456789012",
        "-123456789012345678901234567890123456789012",
        "-123456789012345678901234567890123456789012",
        "VARCHAR",
        "-123456789012345678901234567890123456789012",
        named=("xlsx", "parquet"),
    ),
    Value("1.50", "1.50", "1.50", Decimal("1.50"), "DECIMAL(3,2)", Digits("1.50")),
    Value(
        "0.0000001::decimal(38,10)",
        "0.0000001000",
        "0.0000001000",
        Decimal("1.000E-7"),
        "DECIMAL(38,10)",
        Digits("0.0000001000"),
    ),
    Value(
        "12345678901234567890123456789012345678::decimal(38,0)",
        "12345678901234567890123456789012345678",
        "12345678901234567890123456789012345678",
        Decimal(12345678901234567890123456789012345678),
        "DECIMAL(38,0)",
        "12345678901234567890123456789012345678",
        named=("xlsx",),
    ),
    Value("0.1::float", "0.1", "0.1", 0.1, "DOUBLE", Digits("0.1")),
    Value(
        "0.1::double + 0.2",
        "0.30000000000000004",
        "0.30000000000000004",
        0.30000000000000004,
        "DOUBLE",
        Digits("0.30000000000000004"),
    ),
    Value("1e20::double", "1e+20", "1e+20", 1e20, "DOUBLE", Digits("1e+20")),
    Value("'-infinity'::float", "-Infinity", '"-Infinity"', float("-inf"), "DOUBLE", "-Infinity"),
    Value("true", "true", "true", True, "BOOLEAN", True),
    Value("date '2026-01-31'", "2026-01-31", '"2026-01-31"', date(2026, 1, 31), "DATE", date(2026, 1, 31)),
    Value("date 'infinity'", "infinity", '"infinity"', "infinity", "VARCHAR", "infinity", named=("xlsx", "parquet")),
    Value(
        "date '0044-03-15 (BC)'",
        "0044-03-15 (BC)",
        '"0044-03-15 (BC)"',
        "0044-03-15 (BC)",
        "VARCHAR",
        "0044-03-15 (BC)",
        named=("xlsx", "parquet"),
    ),
    Value(
        "timestamp '2026-01-31 23:30:00.5'",
        "2026-01-31 23:30:00.5",
        '"2026-01-31 23:30:00.5"',
        datetime(2026, 1, 31, 23, 30, 0, 500000),
        "TIMESTAMP",
        datetime(2026, 1, 31, 23, 30, 0, 500000),
    ),
    Value(
        "timestamp 'infinity'", "infinity", '"infinity"', "infinity", "VARCHAR", "infinity", named=("xlsx", "parquet")
    ),
    Value(
        "timestamp_s '2026-01-31 23:30:00'",
        "2026-01-31 23:30:00",
        '"2026-01-31 23:30:00"',
        datetime(2026, 1, 31, 23, 30),
        "TIMESTAMP",
        datetime(2026, 1, 31, 23, 30),
    ),
    Value(
        "timestamp_ns '2026-01-31 23:30:00.123456789'",
        "2026-01-31 23:30:00.123456789",
        '"2026-01-31 23:30:00.123456789"',
        "2026-01-31 23:30:00.123456789",
        "VARCHAR",
        "2026-01-31 23:30:00.123456789",
        named=("xlsx", "parquet"),
    ),
    Value(
        "timestamptz '2026-01-31 23:30:00+01'",
        "2026-01-31 22:30:00+00",
        '"2026-01-31 22:30:00+00"',
        datetime(2026, 1, 31, 22, 30, tzinfo=UTC),
        "TIMESTAMP WITH TIME ZONE",
        datetime(2026, 1, 31, 22, 30, tzinfo=UTC),
    ),
    Value("time '01:02:03.5'", "01:02:03.5", '"01:02:03.5"', time(1, 2, 3, 500000), "TIME", time(1, 2, 3, 500000)),
    Value("time '24:00:00'", "24:00:00", '"24:00:00"', "24:00:00", "VARCHAR", "24:00:00", named=("xlsx", "parquet")),
    Value(
        "timetz '10:00:00+01'",
        "10:00:00+01",
        '"10:00:00+01"',
        "10:00:00+01",
        "VARCHAR",
        "10:00:00+01",
        named=("xlsx", "parquet"),
    ),
    Value(
        "interval '1 month 2 days 3 seconds'",
        "1 month 2 days 00:00:03",
        '"1 month 2 days 00:00:03"',
        "1 month 2 days 00:00:03",
        "VARCHAR",
        "1 month 2 days 00:00:03",
        named=("xlsx", "parquet"),
    ),
    Value("'\\x00\\xFF'::blob", "AP8=", '"AP8="', b"\x00\xff", "BLOB", "AP8="),
    Value("'0101'::bit", "0101", '"0101"', "0101", "VARCHAR", "0101", named=("xlsx", "parquet")),
    Value(
        "'00000000-0000-0000-0000-000000000001'::uuid",
        "00000000-0000-0000-0000-000000000001",
        '"00000000-0000-0000-0000-000000000001"',
        UUID("00000000-0000-0000-0000-000000000001"),
        "UUID",
        "00000000-0000-0000-0000-000000000001",
    ),
    Value("'a,b'::enum('a,b', 'c')", '"a,b"', '"a,b"', "a,b", "VARCHAR", "a,b"),
    Value("[1.50, null]", '"[1.50,null]"', "[1.50,null]", "[1.50,null]", "VARCHAR", "[1.50,null]"),
    Value("[[1], [2, 3]]", '"[[1],[2,3]]"', "[[1],[2,3]]", "[[1],[2,3]]", "VARCHAR", "[[1],[2,3]]"),
    Value(
        "array_value(0.1::float, 'nan'::float)",
        '"[0.1,""NaN""]"',
        '[0.1,"NaN"]',
        '[0.1,"NaN"]',
        "VARCHAR",
        '[0.1,"NaN"]',
    ),
    Value(
        "{'a': 1.50, 'B c': {'d': 'x\"y'}, 'e': date '2026-01-31'}",
        '"{""a"":1.50,""B c"":{""d"":""x\\""y""},""e"":""2026-01-31""}"',
        '{"a":1.50,"B c":{"d":"x\\"y"},"e":"2026-01-31"}',
        '{"a":1.50,"B c":{"d":"x\\"y"},"e":"2026-01-31"}',
        "VARCHAR",
        '{"a":1.50,"B c":{"d":"x\\"y"},"e":"2026-01-31"}',
    ),
    Value("map {'k': 1.50}", '"{""k"":1.50}"', '{"k":1.50}', '{"k":1.50}', "VARCHAR", '{"k":1.50}'),
    Value("map {1.50: true}", '"{""1.50"":true}"', '{"1.50":true}', '{"1.50":true}', "VARCHAR", '{"1.50":true}'),
    Value("union_value(n := 1.50)", '"{""n"":1.50}"', '{"n":1.50}', '{"n":1.50}', "VARCHAR", '{"n":1.50}'),
    Value(
        "['{\"x\": 1.50}'::json, null]",
        '"[{""x"": 1.50},null]"',
        '[{"x": 1.50},null]',
        '[{"x": 1.50},null]',
        "VARCHAR",
        '[{"x": 1.50},null]',
    ),
    Value("['\\xFF'::blob]", '"[""\\\\xFF""]"', '["\\\\xFF"]', '["\\\\xFF"]', "VARCHAR", '["\\\\xFF"]'),
    Value("row(1, 'x')", '"(1, x)"', '"(1, x)"', "(1, x)", "VARCHAR", "(1, x)", named=("xlsx", "parquet")),
    Value("'{\"a\": 1.50}'::json", '"{""a"": 1.50}"', '{"a": 1.50}', '{"a": 1.50}', "VARCHAR", '{"a": 1.50}'),
    Value(
        "'POINT(1 2)'::geometry",
        "POINT (1 2)",
        '"POINT (1 2)"',
        "POINT (1 2)",
        "VARCHAR",
        "POINT (1 2)",
        named=("xlsx", "parquet"),
    ),
    Value("null::integer", "", "null", None, "BIGINT", None),
    Value("null::decimal(7,3)", "", "null", None, "DECIMAL(7,3)", None),
    Value("''", '""', '""', "", "VARCHAR", ""),
    Value("'=1+1'", "=1+1", '"=1+1"', "=1+1", "VARCHAR", "=1+1"),
]

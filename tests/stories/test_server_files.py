"""Workbooks and Parquet from servers: every type as exact as the server has it, or text that is named in a notice."""

# ruff: noqa: DTZ001 - moments without a zone, as the servers have them

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import duckdb
import pytest
from tests.conformance.formats.readers import Digits, read_parquet, read_xlsx
from tests.stories.building import PostgresqlYard, query
from tests.stories.test_mariadb_source import MariadbYard

NOBODY = "00000000-0000-0000-0000-000000000001"
POSTGRESQL = [  # in SQL, in Parquet, its type there, in a sheet
    ("1::int", 1, "BIGINT", Digits("1")),
    ("9223372036854775807", 2**63 - 1, "BIGINT", "9223372036854775807"),
    ("1.50::numeric(12,2)", Decimal("1.50"), "DECIMAL(12,2)", Digits("1.50")),
    ("0.0000001::numeric", Decimal("0.0000001"), "DECIMAL(18,7)", Digits("0.0000001")),
    ("'NaN'::numeric(5,1)", "NaN", "VARCHAR", "NaN"),
    ("0.1::float8", 0.1, "DOUBLE", Digits("0.1")),
    ("'-Infinity'::float8", float("-inf"), "DOUBLE", "-Infinity"),
    ("date '2026-01-31'", date(2026, 1, 31), "DATE", date(2026, 1, 31)),
    ("date '1900-02-28'", date(1900, 2, 28), "DATE", "1900-02-28"),
    ("date 'infinity'", "infinity", "VARCHAR", "infinity"),
    ("timestamp '2026-01-31 23:30:00.5'", datetime(2026, 1, 31, 23, 30, 0, 500_000), "TIMESTAMP",
     datetime(2026, 1, 31, 23, 30, 0, 500_000)),
    ("timestamptz '2026-01-31 23:30:00+01'", datetime(2026, 1, 31, 22, 30, tzinfo=UTC), "TIMESTAMP WITH TIME ZONE",
     datetime(2026, 1, 31, 22, 30, tzinfo=UTC)),
    ("timestamptz '2026-01-31 23:30:00.000001+00'", datetime(2026, 1, 31, 23, 30, 0, 1, tzinfo=UTC),
     "TIMESTAMP WITH TIME ZONE", "2026-01-31T23:30:00.000001+00:00"),
    ("time '01:02:03.5'", time(1, 2, 3, 500_000), "TIME", time(1, 2, 3, 500_000)),
    ("interval '1 day 2 h'", "1 day 02:00:00", "VARCHAR", "1 day 02:00:00"),
    (r"'\x00ff'::bytea", b"\x00\xff", "BLOB", "AP8="),
    ("array[[1,2],[3,null]]", "[[1,2],[3,null]]", "VARCHAR", "[[1,2],[3,null]]"),
    ("""'{"a": 1.50}'::jsonb""", '{"a": 1.50}', "VARCHAR", '{"a": 1.50}'),
    (f"'{NOBODY}'::uuid", UUID(NOBODY), "UUID", NOBODY),
    ("true", True, "BOOLEAN", True),
    ("'x'::char(3)", "x  ", "VARCHAR", "x  "),
    ("'=1+1'::text", "=1+1", "VARCHAR", "=1+1"),
    ("'1.2.3.4'::inet", "1.2.3.4", "VARCHAR", "1.2.3.4"),
    ("null::int", None, "BIGINT", None),
    ("null::numeric(7,3)", None, "DECIMAL(7,3)", None),
    ("''::text", "", "VARCHAR", ""),
]  # fmt: skip
MARIADB = [
    ("cast(18446744073709551615 as unsigned)", Decimal(2**64 - 1), "DECIMAL(38,0)", "18446744073709551615"),
    ("cast(1.50 as decimal(12,2))", Decimal("1.50"), "DECIMAL(12,2)", Digits("1.50")),
    ("0.1e0 + 0.2e0", 0.1 + 0.2, "DOUBLE", Digits("0.30000000000000004")),
    ("cast('2024-03-07' as date)", date(2024, 3, 7), "DATE", date(2024, 3, 7)),
    ("cast('2024-03-07 21:00:00.25' as datetime(6))", datetime(2024, 3, 7, 21, 0, 0, 250_000), "TIMESTAMP",
     datetime(2024, 3, 7, 21, 0, 0, 250_000)),
    ("cast('21:04:05' as time)", time(21, 4, 5), "TIME", time(21, 4, 5)),
    ("cast('-838:59:59' as time)", "-838:59:59", "VARCHAR", "-838:59:59"),
    ("x'00ff'", b"\x00\xff", "BLOB", "AP8="),
    ("'a🚀'", "a🚀", "VARCHAR", "a🚀"),
    ("''", "", "VARCHAR", ""),
]  # fmt: skip


@pytest.fixture(params=["postgresql", "mariadb"])
def yard(tmp_path, request):
    yard = {"postgresql": PostgresqlYard, "mariadb": MariadbYard}[request.param](tmp_path)
    yield yard
    yard.close()


def cases_of(yard):
    return POSTGRESQL if isinstance(yard, PostgresqlYard) else MARIADB


def asking(cases):
    return query("select " + ", ".join(f"{sql} as v{number}" for number, (sql, *_) in enumerate(cases)))


def test_parquet_has_the_types_of_the_server(yard, tmp_path):
    cases = cases_of(yard)
    _, data = yard.build(asking(cases), format="parquet")
    (tmp_path / "file.parquet").write_bytes(data)
    types = duckdb.sql(f"describe from read_parquet('{tmp_path}/file.parquet')").fetchall()

    assert [(sql, type, value) for sql, value, type, _ in cases] == [
        (sql, type, cell) for (sql, *_), (_, type, *_), cell in zip(cases, types, read_parquet(data)[1][0], strict=True)
    ]


def test_a_sheet_has_the_values_of_the_server(yard):
    cases = cases_of(yard)
    _, data = yard.build(asking(cases), format="xlsx")

    assert [(sql, value) for sql, _, _, value in cases] == [
        (sql, cell) for (sql, *_), cell in zip(cases, read_xlsx(data)[1][0], strict=True)
    ]


def test_what_became_text_is_named(tmp_path):
    yard = PostgresqlYard(tmp_path)
    sql = "select 'NaN'::numeric as n, date 'infinity' as d, 2^60::bigint as big, timestamptz 'now' as at, 'x' as t"
    named = {}
    for format in ("parquet", "xlsx"):
        notices = yard.build(query(sql.replace("2^60::bigint", "(2^60)::bigint")), format=format)[0].notices
        named[format] = {each["code"]: each.get("columns") for each in notices if each["code"] != "order_not_fixed"}
    yard.close()

    assert {"written_as_text": ["n", "d"]} == named["parquet"]
    assert ["d", "big"] == named["xlsx"]["written_as_text"][:2]
    assert "non_finite_as_text" in named["xlsx"]

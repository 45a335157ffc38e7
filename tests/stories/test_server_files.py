"""Every format from servers: every value as exact as the server has it, or text that is named in a notice."""

from __future__ import annotations

import duckdb
import pytest
from tests.conformance.formats.readers import read_parquet, read_xlsx
from tests.stories.building import PostgresqlYard, query
from tests.stories.server_values import DUCKDB, MARIADB, POSTGRESQL
from tests.stories.test_duckdb_source import DuckdbYard
from tests.stories.test_mariadb_source import MariadbYard

pytestmark = pytest.mark.slow

YARDS = {"postgresql": (PostgresqlYard, POSTGRESQL), "mariadb": (MariadbYard, MARIADB), "duckdb": (DuckdbYard, DUCKDB)}


@pytest.fixture(params=YARDS)
def server(tmp_path, request):
    """A yard of a server, and the values that are asked of it."""
    kind, values = YARDS[request.param]
    yard = kind(tmp_path)
    yield yard, values
    yard.close()


def asking(values):
    return query("select " + ", ".join(f"{value.sql} as v{number}" for number, value in enumerate(values)))


def named(built, values):
    """Of each value, whether a notice names its column as written as text."""
    found = [column for each in built.notices if each["code"] == "written_as_text" for column in each["columns"]]
    return [f"v{number}" in found for number in range(len(values))]


def compare(values, wanted, found):
    """With the SQL beside it, so that a difference says what it is about."""
    asked = [value.sql for value in values]

    assert list(zip(asked, wanted, strict=True)) == list(zip(asked, found, strict=True))


def test_csv_and_json_have_the_texts_of_the_server(server):
    yard, values = server
    names = [f"v{number}" for number in range(len(values))]
    csv = yard.build(asking(values))[1].decode()
    json = yard.build(asking(values), format="ndjson")[1].decode()

    assert f"{','.join(names)}\n{','.join(value.csv for value in values)}\n" == csv
    members = ",".join(f'"{name}":{value.json}' for name, value in zip(names, values, strict=True))
    assert f"{{{members}}}\n" == json


def test_parquet_has_the_types_of_the_server(server, tmp_path):
    yard, values = server
    built, data = yard.build(asking(values), format="parquet")
    (tmp_path / "file.parquet").write_bytes(data)
    types = duckdb.sql(f"describe from read_parquet('{tmp_path}/file.parquet')").fetchall()

    compare(values, [value.type for value in values], [type for _, type, *_ in types])
    compare(values, [value.parquet for value in values], read_parquet(data)[1][0])
    compare(values, ["parquet" in value.named for value in values], named(built, values))


def test_a_sheet_has_the_values_of_the_server(server):
    yard, values = server
    built, data = yard.build(asking(values), format="xlsx")

    compare(values, [value.sheet for value in values], read_xlsx(data)[1][0])
    compare(values, ["xlsx" in value.named for value in values], named(built, values))


def test_what_became_text_is_named(tmp_path):
    yard = PostgresqlYard(tmp_path)
    sql = "select 'NaN'::numeric as n, date 'infinity' as d, (2^60)::bigint as big, 'x' as t"
    named = {}
    for format in ("parquet", "xlsx"):
        notices = yard.build(query(sql), format=format)[0].notices
        named[format] = {each["code"]: each.get("columns") for each in notices if each["code"] != "order_not_fixed"}
    yard.close()

    assert {"written_as_text": ["n", "d"]} == named["parquet"]
    assert {"non_finite_as_text": None, "written_as_text": ["d", "big"]} == named["xlsx"]

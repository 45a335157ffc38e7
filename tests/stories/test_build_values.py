"""Values of SQLite, of every type and size, and what a file makes of them."""

from __future__ import annotations

import csv
import hashlib
import io
import json

import pytest
from tests.stories.building import Yard, query

from haulage.core.catalogue import Column
from haulage.sources.sqlite import BATCH_ROWS, CELL_BYTES

ROWS = 3 * BATCH_ROWS
UPTO = f"with recursive n(i) as (select 1 union all select i + 1 from n where i < {ROWS})"


@pytest.fixture
def yard(tmp_path):
    return Yard(
        tmp_path,
        "create table t (id integer primary key, v)",
        f"{UPTO} insert into t select i, 'row ' || i from n",
    )


def put(yard, row, literal):
    """Write a value, as SQL, into the middle of a batch."""
    with yard.writer() as source:
        source.execute(f"update t set v = {literal} where id = {row}")


csv.field_size_limit(10_000_000)  # of the reader that judges; ours writes any size
ALL = query("select id, v from t", key=("id",))


def cells(content) -> list[str]:
    return [row[1] for row in csv.reader(io.StringIO(content.decode(), newline=""))][1:]


@pytest.mark.parametrize("row", [1, 2, BATCH_ROWS - 1, BATCH_ROWS, BATCH_ROWS + 137, ROWS])
def test_text_that_is_no_UTF_8_is_mended_and_no_row_before_or_after_it_is_lost_or_doubled(yard, row):  # noqa: N802
    put(yard, row, "cast(x'61ff62' as text)")
    built, content = yard.build(ALL)

    expected = [f"row {n}" for n in range(1, ROWS + 1)]
    expected[row - 1] = "a\ufffdb"
    assert expected == cells(content)
    assert (ROWS, ({"code": "text_replaced", "count": 1},)) == (built.rows, built.notices)


@pytest.mark.parametrize(("literal", "expected", "count"), [
    ("cast(x'61eda08062' as text)", "a\ufffdb", 1),  # a lone surrogate, as CESU-8 has them
    ("cast(x'eda080edb080' as text)", "\ufffd\ufffd", 2),
    ("cast(x'ffffefbfbd' as text)", "\ufffd\ufffd\ufffd", 2),  # the third one stood there
    ("cast(x'c3a9c3' as text)", "é\ufffd", 1),
    ("'a' || char(0) || 'b'", "a\ufffdb", 1),
])  # fmt: skip
def test_what_was_replaced_is_counted(yard, literal, expected, count):
    put(yard, 400, literal)
    built, content = yard.build(ALL)

    assert expected == cells(content)[399]
    assert ({"code": "text_replaced", "count": count},) == built.notices


def test_a_hundred_bad_texts_all_over_are_a_hundred_notices_and_no_more(yard):
    with yard.writer() as source:
        source.execute("update t set v = cast(x'ff' as text) where id % 7 = 0")
    built, content = yard.build(ALL)

    assert ROWS // 7 == cells(content).count("\ufffd")
    assert ({"code": "text_replaced", "count": ROWS // 7},) == built.notices


@pytest.mark.parametrize("row", [1, 2, BATCH_ROWS, BATCH_ROWS + 137, ROWS])
@pytest.mark.parametrize("size", [CELL_BYTES - 1, CELL_BYTES, CELL_BYTES + 1, 2_000_000])
def test_a_large_cell_among_small_ones_comes_whole_and_once(yard, row, size):
    put(yard, row, f"replace(hex(zeroblob({(size + 1) // 2})), '0', 'x')")
    built, content = yard.build(ALL)

    found = cells(content)
    assert (ROWS, ROWS) == (built.rows, len(found))
    assert {"x"} == set(found[row - 1])
    assert size + size % 2 == len(found[row - 1])
    assert f"row {ROWS - 1}" == found[ROWS - 2] or row == ROWS - 1


def test_large_cells_and_bad_text_in_one_file(yard):
    put(yard, 300, "hex(zeroblob(100000))")
    put(yard, 500, "cast(x'ff' as text)")
    put(yard, 600, "hex(zeroblob(100000))")
    put(yard, 700, "cast(x'ff' || hex(zeroblob(100000)) as text)")
    built, content = yard.build(ALL)

    expected = [f"row {n}" for n in range(1, ROWS + 1)]
    expected[299] = expected[599] = "0" * 200_000
    expected[499] = "\ufffd"
    expected[699] = "\ufffd" + "0" * 200_000
    assert expected == cells(content)
    assert ({"code": "text_replaced", "count": 2},) == built.notices


LONG = "ab" * CELL_BYTES


@pytest.mark.parametrize("sql", [
    f"select '{LONG}' as v",
    f"select cast(x'{LONG.encode().hex()}' as text) as v",
    f"select PRINTF('%s%s', '{LONG[:CELL_BYTES]}', '{LONG[CELL_BYTES:]}') as v",
    f"select printf('%{len(LONG)}s', 'a') as v",
    "select v from constant",
    "select v from printed",
])  # fmt: skip
def test_what_is_long_but_in_no_table_comes_whole_too(yard, sql):
    """SQLite makes NULL of it, and says nothing, where it is over a limit: such a query gets none."""
    with yard.writer() as source:
        source.execute(f"create view printed as select printf('%{len(LONG)}s', 'a') as v")
        if "constant" in sql:  # for it is looked for in all views
            source.execute(f"create view constant as select x'{LONG.encode().hex()}' || '' as v")
    found = yard.text(sql)

    assert f"v\n{LONG}\n" == found or "v\n" + f"{'a':>{len(LONG)}}\n" == found


@pytest.mark.parametrize("sql", [
    "select id, v from t order by random()",
    "select id, v, RANDOM() as lot from t order by lot",
    "select id, v from t order by hex(randomblob(8))",
    "select id, v from drawn",
])  # fmt: skip
def test_a_query_that_draws_lots_gives_each_row_once_although_it_could_not_be_run_again(yard, sql):
    with yard.writer() as source:
        source.execute("create view drawn as select id, v from t order by random()")
        source.execute("update t set v = cast(x'ff' as text) where id = 50")  # where it comes is drawn too
    built, content = yard.build(query(sql))

    ids = [int(row[0]) for row in list(csv.reader(io.StringIO(content.decode())))[1:]]
    assert (ROWS, ROWS) == (built.rows, built.total)
    assert list(range(1, ROWS + 1)) == sorted(ids)
    assert sorted(ids) != ids, "no lots were drawn"


def test_rows_that_are_too_wide_to_be_sorted_at_once_are_sorted_all_the_same(yard):
    with yard.writer() as source:
        source.execute("update t set v = hex(zeroblob(20000)) where id > 700")
    built, content = yard.build(query("select id, v, v as w from t", order=("id desc",)))

    assert list(range(ROWS, 0, -1)) == [int(row[0]) for row in list(csv.reader(io.StringIO(content.decode())))[1:]]
    assert ROWS == built.rows


@pytest.mark.parametrize(("literal", "as_csv", "as_json"), [
    ("null", "", "null"),
    ("''", "", '""'),
    ("0", "0", "0"),
    ("-42", "-42", "-42"),
    ("9007199254740993", "9007199254740993", "9007199254740993"),
    ("9223372036854775807", "9223372036854775807", "9223372036854775807"),
    ("-9223372036854775808", "-9223372036854775808", "-9223372036854775808"),
    ("0.1", "0.1", "0.1"),
    ("1e300", "1e+300", "1e+300"),
    ("9e999", "Infinity", '"Infinity"'),
    ("-9e999", "-Infinity", '"-Infinity"'),
    ("x'00ff'", "AP8=", '"AP8="'),
    ("'1e3'", "1e3", '"1e3"'),
    ("'=1+1'", "=1+1", '"=1+1"'),
    ("char(233, 128640)", "é🚀", '"é🚀"'),
    ("'a' || char(13) || 'b'", "a\rb", '"a\\rb"'),
])  # fmt: skip
def test_each_value_keeps_its_type_and_all_of_its_digits(yard, literal, as_csv, as_json):
    dataset = query(f"select 1 as i, {literal} as v")

    assert as_csv == cells(yard.build(dataset)[1])[0]
    assert f'"v":{as_json}}}' in yard.build(dataset, format="ndjson")[1].decode()


@pytest.mark.parametrize(("literal", "as_csv", "as_json", "as_text"), [
    ("0.0000001", "0.0000001", "0.0000001", '"0.0000001"'),
    ("1e3", "1000.0", "1000.0", '"1000.0"'),
    ("1e21", "1" + "0" * 21, "1" + "0" * 21, '"1' + "0" * 21 + '"'),
    ("-2.5e-10", "-0.00000000025", "-0.00000000025", '"-0.00000000025"'),
    ("0.1 + 0.2", "0.30000000000000004", "0.30000000000000004", '"0.30000000000000004"'),
    ("7", "7", "7", "7"),
    ("'1e3'", "1e3", '"1e3"', '"1e3"'),
    ("null", "", "null", "null"),
    ("9e999", "Infinity", '"Infinity"', '"Infinity"'),
])  # fmt: skip
def test_a_column_declared_as_decimals_has_them_although_sqlite_keeps_floats(yard, literal, as_csv, as_json, as_text):
    dataset = query(f"select 1 as i, {literal} as v", columns={"v": Column("v", "v", "decimal")})

    assert as_csv == cells(yard.build(dataset)[1])[0]
    assert f'"v":{as_json}}}' in yard.build(dataset, format="json")[1].decode()
    assert f'"v":{as_text}}}' in yard.build(dataset, format="ndjson", options={"numbers": "string"})[1].decode()


def test_null_and_the_empty_text_do_not_look_alike(yard):
    assert 'a,b\n,""\n' == yard.text("select null as a, '' as b")


def test_bytes_are_base64_and_a_notice_says_how_many(yard):
    with yard.writer() as source:
        source.execute("update t set v = x'00' where id <= 5")
    assert ({"code": "bytes_as_base64", "count": 5},) == yard.build(ALL)[0].notices


def test_a_column_may_hold_every_type_at_once(yard):
    sql = "select 1 as v union all select 2.5 union all select 'three' union all select null union all select x'04'"
    assert [1, 2.5, "three", None, "BA=="] == [row["v"] for row in json.loads(yard.build(query(sql), format="json")[1])]


@pytest.mark.parametrize("compression", [None, "gzip", "zstd"])
@pytest.mark.parametrize("format", ["csv", "json", "ndjson"])
def test_the_same_request_gives_the_same_bytes(yard, format, compression):
    put(yard, 500, "cast(x'ff' as text)")
    built = [yard.build(ALL, format=format, compression=compression) for _ in range(3)]

    assert 1 == len({measured.sha256 for measured, _content in built})
    assert built[0][0].sha256 == hashlib.sha256(built[0][1]).hexdigest()
    assert built[0][0].bytes == len(built[0][1])


def test_the_guard_of_the_excel_dialect_looks_at_each_cell_s_own_type(yard):
    dataset = query("select -42 as n, '=1+1' as t, '-42' as u", columns={"u": Column("u", "u", "integer")})
    built, content = yard.build(dataset, options={"dialect": "excel"})

    assert "-42,'=1+1,-42" == content.decode("utf-8-sig").splitlines()[1]
    assert {"code": "formula_guarded", "count": 1} in built.notices

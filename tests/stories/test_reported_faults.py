"""What users of other exporters reported of values, sheets and shapes, in every format that it can touch.

Each test is one kind, with its smallest input and the inputs beside it, built whole from a source and read back by a
reader that knows nothing of the writer. Kinds of one format alone (limits of a sheet, a guard of CSV) have more tests
in tests/core.
"""

from __future__ import annotations

import contextlib
import zipfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from io import BytesIO

import pytest
from tests.conformance.formats.readers import READERS, UNPACK, Digits, read_xlsx
from tests.conformance.formats.test_round_trip import FILES
from tests.stories.building import Yard, query
from tests.stories.test_duckdb_source import DuckdbYard

from haulage import Page
from haulage.core.catalogue import Column, Parameter
from haulage.core.errors import BuildFailed
from haulage.core.requester import Requester
from haulage.formats import COMPRESSIONS, FORMATS
from haulage.sources.pages import PagesSource

pytestmark = pytest.mark.slow
every_file = pytest.mark.parametrize(
    ("format", "options"),
    [each for each in FILES if not {"several", "snappy", "none"} & set(each.values[1].values())],
)
CET = timezone(timedelta(hours=1))
given = {}  # what the page function below answers


def page(_requester, cursor, _limit):
    """All rows of a list, two a page."""
    at = cursor or 0
    rows = [dict(zip(given["columns"], row, strict=True)) for row in given["rows"][at : at + 2]]
    return Page(rows, at + 2 if at + 2 < len(given["rows"]) else None)


def how_many(_requester):
    return given["count"]


@pytest.fixture
def yard(tmp_path):
    return Yard(tmp_path)


def read(yard, format, options, sql, **members):
    """The notices by code, and the rows as their reader sees them."""
    members.setdefault("key", ())
    built, data = yard.build(query(sql, **members), format=format, options=options)
    return noticed(built), READERS[format](data, options)


def noticed(built):
    return {each["code"]: each.get("count") for each in built.notices if each["code"] != "order_not_fixed"}


def from_python(yard, format, options, rows, types=None, count=None):
    """The same of values that only Python has; by a page function, as an application gives them."""
    names = [f"c{place}" for place in range(len(rows[0]) if rows else 1)]
    given.update(columns=names, rows=rows, count=count)
    place = f"{__name__}:{{}}"
    pages = {"page_rows": 100, "page_bytes": 10**8, "function": place.format("page"),
             "count": None if count is None else place.format("how_many")}  # fmt: skip
    declared = {name: Column(name, name, (types or {}).get(name)) for name in names}
    source = PagesSource(Requester("north", "amina"), pages)
    built, data = yard.build(query("", columns=declared), source=source, format=format, options=options)
    return built, READERS[format](data, options)


def of_text(texts, place=0):
    """SQL that has these texts, one a row, by their bytes."""
    rows = " union all ".join(
        f"select {number} as i, cast(x'{text.encode('utf-8', 'surrogatepass').hex()}' as text) as t"
        for number, text in enumerate(texts, place)
    )
    return f"select i, t from ({rows}) order by i"


# -- injection and encoding (1 to 7) -----------------------------------------------------------------

FORMULAS = ["=1+1", "\t=1+1", "\r=1+1", " =1+1", "+1", "-1", "@SUM(A1)", "\n=1+1", "\uff1d1+1", "\u00a0=1+1", "=foo"]
HARMLESS = ["a=1", "1-1", "'", "", "x@y", "e=mc2"]


@every_file
def test_text_that_opens_a_formula_is_text_and_defused_where_a_spreadsheet_would_run_it(yard, format, options):
    notices, (_, rows) = read(yard, format, options, of_text(FORMULAS + HARMLESS))

    defused = options.get("dialect") == "excel"
    assert [("'" + text if defused else text) for text in FORMULAS] + HARMLESS == [row[1] for row in rows]
    assert {"formula_guarded": len(FORMULAS)} if defused else {} == notices


@every_file
def test_a_number_below_zero_is_a_number(yard, format, options):
    _, (_, rows) = read(yard, format, options, "select -42 as a, -0.5 as b")

    texts = {"csv": ["-42", "-0.5"], "parquet": [-42, -0.5]}
    assert texts.get(format, [Digits("-42"), Digits("-0.5")]) == rows[0]


@every_file
def test_there_is_one_byte_order_mark_at_most_however_many_batches_there_are(yard, format, options):
    sql = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000) select i, 'ê' as t from n"
    for compression in (None, *FORMATS[format].compressions):
        _, data = yard.build(query(sql), format=format, options=options, compression=compression)
        data = UNPACK[compression](data) if compression else data
        if FORMATS[format].compressions:  # text
            assert (options.get("dialect") in ("rfc4180", "excel")) == data.count(b"\xef\xbb\xbf")
            assert data.startswith(b"\xef\xbb\xbf") == (b"\xef\xbb\xbf" in data)
    assert set(FORMATS[format].compressions) in ({*COMPRESSIONS}, set())


@every_file
def test_every_text_comes_back_and_what_none_can_hold_is_replaced_and_counted(yard, format, options):
    texts = ["ê", "€", "报告", "😀", "\u2028", "a\ud800b", "\udfff\ud800", "a\0b", "\x7f\x01\x1f"]
    notices, (_, rows) = read(yard, format, options, of_text(texts))

    assert [*texts[:5], "a\ufffdb", "\ufffd\ufffd", "a\ufffdb", texts[8]] == [row[1] for row in rows]
    assert {"text_replaced": 4} == notices


@every_file
def test_a_line_end_in_a_cell_ends_no_row(yard, format, options):
    texts = ["a\rb", "\r", "a\nb", "a\r\nb\r\n", "\n", '"\r', ",\r", "\x0b\x0c\x1c\x85\u2029"]
    _, (_, rows) = read(yard, format, options, of_text(texts))

    guarded = {"\r", "\n"} if options.get("dialect") == "excel" else ()  # they may open a formula in the next cell
    assert [("'" + text if text[0] in guarded else text) for text in texts] == [row[1] for row in rows]


# -- null, numbers, time (8 to 14) -----------------------------------------------------------------


@every_file
def test_null_and_the_empty_text_are_two(yard, format, options):
    _, (_, rows) = read(yard, format, options, "select 1 as i, null as a, '' as b union all select 2, '', null")

    assert [[None, ""], ["", None]] == [row[1:] for row in rows]


@every_file
@pytest.mark.parametrize("number", [1231231231231234123, 2**53 + 1, -(2**63), 2**63 - 2, 10**15, 10**15 - 1])
def test_a_long_number_has_all_of_its_digits(yard, format, options, number):
    _, (_, rows) = read(yard, format, options, f"select {number + 1} - 1 as n")

    exact = abs(number) < 2**53 if options.get("numbers") == "string" else format != "xlsx" or abs(number) < 10**15
    wanted = {"csv": str(number), "parquet": number}.get(format, Digits(str(number)) if exact else str(number))
    assert [[wanted]] == rows


@every_file
def test_a_decimal_has_no_exponent_and_keeps_its_zeros(yard, format, options):
    numbers = [
        Decimal("0.0000001"),
        Decimal("1E+3"),
        Decimal("1.50"),
        Decimal("-0"),
        Decimal("1E-20"),
        Decimal("1E+20"),
    ]
    texts = ["0.0000001", "1000", "1.50", "-0", "0.00000000000000000001", "100000000000000000000"]
    for number, text in zip(numbers, texts, strict=True):
        _, (_, ((found, _),)) = from_python(yard, format, options, [(number, 1)], {"c0": "decimal"})
        if isinstance(found, Decimal):
            assert number == found
        else:
            assert text == (found.text if isinstance(found, Digits) else found)


@every_file
def test_what_is_no_number_ends_no_export(yard, format, options):
    values = [Decimal("NaN"), Decimal("Infinity"), float("nan"), float("-inf"), Decimal(5)]
    built, (_, rows) = from_python(yard, format, options, [(each,) for each in values], {"c0": "decimal"})

    five = {"csv": "5", "parquet": "5", "json": "5", "ndjson": "5"} if options.get("numbers") == "string" else {}
    wanted = five.get(format, "5" if format in ("csv", "parquet") else Digits("5"))
    assert [["NaN"], ["Infinity"], ["NaN"], ["-Infinity"], [wanted]] == rows
    counted = {"csv": None, "parquet": ("written_as_text", 5)}.get(format, ("non_finite_as_text", 4))
    assert counted is None or counted in noticed(built).items()


@every_file
def test_an_instant_is_never_without_its_zone_and_never_of_another_day(yard, format, options):
    moments = [datetime(2024, 3, 7, 21, 0, tzinfo=UTC), datetime(2020, 1, 31, 23, 30, tzinfo=UTC),
               datetime(2020, 2, 1, 0, 30, tzinfo=CET), datetime(1999, 12, 31, 23, 59, 59, tzinfo=UTC)]  # fmt: skip
    for moment in moments:  # each alone, as a column of several zones is text
        _, (_, ((found, _),)) = from_python(yard, format, options, [(moment, 1)], {"c0": "timestamp"})
        found = datetime.fromisoformat(found) if isinstance(found, str) else found

        assert (moment, True) == (found, found.tzinfo is not None)


@pytest.mark.parametrize("kind", [Yard, DuckdbYard])
def test_an_end_date_has_its_whole_day_in_it(tmp_path, kind):
    yard = kind(tmp_path, "create table t (p timestamp)")
    with yard.writer() as source:
        for moment in ("04 23:59:59", "05 00:00:00", "05 13:00:00", "05 23:59:59.999999", "06 00:00:00"):
            source.execute(f"insert into t values ('2026-08-{moment}')")
    parameters = (Parameter("since", "date"), Parameter("until", "date", end=True))
    dataset = query("select count(*) as n from t where p >= :since and p < :until", parameters=parameters)

    assert "n\n3\n" == yard.build(dataset, since="2026-08-05", until="2026-08-05")[1].decode()
    assert "n\n5\n" == yard.build(dataset, since="2026-08-04", until="2026-08-06")[1].decode()


# -- limits of a sheet (16 to 18) ------------------------------------------------------------------


@every_file
@pytest.mark.parametrize("text", ["x" * 32_767, "x" * 32_768, "a\r\n" * 32_768, "😀" * 16_383, "😀" * 16_384])
def test_a_long_text_is_whole_or_the_run_ends_and_says_where_it_would_be_whole(yard, format, options, text):
    dataset = replace(query(of_text([text])), formats=("xlsx", "csv"))
    if format != "xlsx" or len(text.encode("utf-16-le")) // 2 <= 32_767:
        _, data = yard.build(dataset, format=format, options=options)

        assert text == READERS[format](data, options)[1][0][1]
        return
    with pytest.raises(BuildFailed) as failed:
        yard.build(dataset, format=format, options=options)

    assert "cell_too_long" == failed.value.code
    assert failed.value.detail.endswith("Choose another format: csv.")


@pytest.mark.parametrize("name", ["'a", "a'", "a/b", "x" * 32, "[a]:*?", "History", ""])
def test_no_name_of_a_dataset_or_column_becomes_one_of_a_sheet(yard, name):
    dataset = query("select 1 as a", label=name or "-", columns={"a": Column("a", name or "a")})
    _, data = yard.build(dataset, format="xlsx")

    assert b'name="Export"' in zipfile.ZipFile(BytesIO(data)).read("xl/workbook.xml")
    assert ([name or "a"], [[Digits("1")]]) == read_xlsx(data)


# -- the shape of the file (19 to 22) --------------------------------------------------------------


def as_found(format, *numbers):
    return {"csv": list(map(str, numbers)), "parquet": list(numbers)}.get(format, [Digits(str(n)) for n in numbers])


@every_file
def test_columns_of_one_name_are_two_and_all_keep_their_order(yard, format, options):
    _, table = read(yard, format, options, "select 26 as z, 1 as a, 2 as a, 13 as m, 3 as A, 4 as a_2")

    assert (["z", "a", "a_3", "m", "A", "a_2"], [as_found(format, 26, 1, 2, 13, 3, 4)]) == table


@every_file
def test_no_rows_are_a_file_that_is_ready(yard, format, options):
    built, data = yard.build(query("select 1 as z, 'x' as a where 1 = 0"), format=format, options=options)
    headers, rows = READERS[format](data, options)

    assert (0, 0, []) == (built.rows, built.total, rows)
    assert headers == ([] if format in ("json", "ndjson") else ["z", "a"])
    assert format != "json" or b"[]\n" == data


@every_file
@pytest.mark.parametrize(("counted", "come"), [(2, 1), (2, 3), (0, 2), (3, 0), (1, 1)])
def test_what_was_counted_before_decides_nothing_about_what_is_written(yard, format, options, counted, come):
    built, (_, found) = from_python(yard, format, options, [(number,) for number in range(come)], count=counted)

    assert [as_found(format, number) for number in range(come)] == found
    assert come == built.rows
    if format == "parquet":  # it has seen every row before it shows a total
        assert come == built.total
    else:
        assert (counted != come) == ("total_changed" in noticed(built))
        assert (come if counted == come else None) == built.total


# -- missing or wrong rows (23 to 26) --------------------------------------------------------------


@every_file
def test_no_row_is_cut_off(yard, format, options):
    upto = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 30001)"
    built, data = yard.build(query(f"{upto} select i from n", key=("i",)), format=format, options=options)
    _, rows = READERS[format](data, options)

    assert (30_001, 30_001) == (built.rows, len(rows))
    assert [as_found(format, 1), as_found(format, 30_001)] == [rows[0], rows[-1]]


@every_file
def test_no_text_is_cut_off(yard, format, options):
    texts = ["x" * length for length in (255, 256, 257, 1_024, 4_096, 8_191, 32_767)]
    _, (_, rows) = read(yard, format, options, of_text(texts))

    assert list(map(len, texts)) == [len(row[1]) for row in rows]


@every_file
def test_an_error_after_a_thousand_rows_is_no_file_and_in_no_file(yard, format, options):
    upto = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 3000)"
    sql = f"{upto} select i, case when i = 2001 then abs(-9223372036854775807 - 1) else 'name ' || i end as t from n"
    with pytest.raises(BuildFailed) as failed:
        yard.build(query(sql), format=format, options=options)
    (part,) = yard.folder.glob("build-*/part")
    data = part.read_bytes()

    assert "source_failed" == failed.value.code
    assert [] == [word for word in (b"overflow", b"rror", b"refused") if word in data]
    with contextlib.suppress(Exception):  # of whichever reader: what is there is a beginning and no file
        READERS[format](data, options)
        assert format in ("csv", "ndjson")  # of which a beginning is a file, so it must not be published


@every_file
def test_rows_of_equal_names_come_each_once(yard, format, options):
    upto = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 250)"
    _, (_, rows) = read(yard, format, options, f"{upto} select 251 - i as id, 'n' as name from n", order=("name",),
                        key=("id",))  # fmt: skip

    assert [as_found(format, number)[0] for number in range(1, 251)] == [row[0] for row in rows]

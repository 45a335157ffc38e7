"""XLSX: what other programs read, the limits of a sheet, and the archive around it."""

# ruff: noqa: DTZ001 - moments without a zone, as sources give them

from __future__ import annotations

import io
import sys
import zipfile
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal

import openpyxl
import pytest
import python_calamine
import xlsxwriter
from tests.conformance.formats.readers import Digits, columns, letters, read_xlsx, write

from haulage.core.errors import BuildFailed
from haulage.formats import FORMATS, archive, xlsx
from haulage.formats.format import About

CET, WEST = timezone(timedelta(hours=1)), timezone(timedelta(hours=-1))
EXACT = {"moments": "exact", "sheets": "one"}
ROWS = [
    (1, -2.5, "plain", True, date(2024, 3, 7), datetime(2024, 3, 7, 21, 4, 5), None),
    (10**15 - 1, 1e-7, ' "quoted" & <tagged>\n', False, date(1900, 3, 1), datetime(2024, 3, 7, 21, 4, 5, 678000), ""),
    (
        -(10**15) + 1,
        0.1,  # xlsxwriter writes 16 digits
        "=1+1",
        True,
        date(9999, 12, 31),
        datetime(9999, 12, 31, 23, 59, 59),
        "=HYPERLINK(1)",
    ),
    (0, 1e300, "報告 😀", False, date(2000, 2, 29), datetime(1900, 3, 1, 1), "x" * 32_767),
]
HEADERS = ["whole", "double", "text", "truth", "day", "moment", "rest"]


def one(value, type=None):
    """One value as it stands in a sheet, and the notices."""
    file = write("xlsx", columns("a", types={"a": type}), [(value,)])
    return read_xlsx(file.data)[1][0][0], file.notices


def test_openpyxl_streams_what_was_written():
    """As pandas reads a workbook: row by row, and without knowing beforehand how many there are."""
    data = io.BytesIO(write("xlsx", HEADERS, ROWS).data)
    sheet = openpyxl.load_workbook(data, read_only=True, data_only=True).active
    rows = list(sheet.iter_rows(values_only=True))

    assert tuple(HEADERS) == rows[0]
    assert [row[:4] for row in ROWS] == [row[:4] for row in rows[1:]]
    assert {len(HEADERS)} == {len(row) for row in rows}


def test_openpyxl_reads_what_was_written():
    sheet = openpyxl.load_workbook(io.BytesIO(write("xlsx", HEADERS, ROWS).data)).active
    headers, *found = sheet.iter_rows(values_only=True)

    assert tuple(HEADERS) == headers
    for row, cells in zip(ROWS, found, strict=True):
        day = cells[4].date()
        moment = cells[5]
        assert (*row[:4], row[4], row[5], row[6]) == (*cells[:4], day, moment, cells[6])
    assert {"n", "s", "b", "d"} >= {cell.data_type for row in sheet.iter_rows() for cell in row}
    assert "A2" == sheet.freeze_panes


def test_calamine_reads_what_was_written():
    book = python_calamine.load_workbook(io.BytesIO(write("xlsx", HEADERS, ROWS).data))
    headers, *found = book.get_sheet_by_index(0).to_python()

    assert ["Export"] == book.sheet_names
    assert HEADERS == headers
    assert [[*row[:6], row[6] or ""] for row in ROWS] == found


def test_other_programs_see_a_moment_in_a_cell_that_says_utc():
    data = write("xlsx", ["at"], [(datetime(2024, 3, 7, 21, 4, 5, tzinfo=UTC),)]).data
    cell = openpyxl.load_workbook(io.BytesIO(data)).active["A2"]

    assert (datetime(2024, 3, 7, 21, 4, 5), True) == (cell.value, cell.is_date)
    assert cell.number_format.endswith('"UTC"')
    seen = python_calamine.load_workbook(io.BytesIO(data)).get_sheet_by_index(0).to_python()
    assert [["at"], [datetime(2024, 3, 7, 21, 4, 5)]] == seen


def test_a_reader_sees_the_same_as_in_a_workbook_of_xlsxwriter():
    """The oracle: the most used writer, told to take text for text."""
    target = io.BytesIO()
    options = {"strings_to_formulas": False, "strings_to_urls": False, "remove_timezone": False}
    book = xlsxwriter.Workbook(target, options)
    sheet = book.add_worksheet()
    looks = {date: book.add_format({"num_format": "yyyy-mm-dd"}), datetime: book.add_format({"num_format": "hh:mm:ss"})}
    for row, cells in enumerate([HEADERS, *ROWS]):
        for column, cell in enumerate(cells):
            assert sheet.write(row, column, cell, looks.get(type(cell))) in (0, None)
    book.close()

    def seen(data):
        return python_calamine.load_workbook(io.BytesIO(data)).get_sheet_by_index(0).to_python()

    assert seen(target.getvalue()) == seen(write("xlsx", HEADERS, ROWS).data)


def test_null_is_an_empty_cell_and_the_empty_text_is_none():
    assert [[None, ""], ["", None]] == read_xlsx(write("xlsx", ["a", "b"], [(None, ""), ("", None)]).data)[1]


@pytest.mark.parametrize("text", ["=1+1", "\t=1+1", "\r=1+1", " =1+1", "@SUM(A1)", "-1", "{=1}", "http://x.example/"])
def test_text_is_never_a_formula_or_a_link(text):
    file = write("xlsx", ["=1+1", text], [(text, text)])
    assert (["=1+1", text], [[text, text]]) == read_xlsx(file.data)

    sheet = zipfile.ZipFile(io.BytesIO(file.data)).read("xl/worksheets/sheet1.xml")
    assert b"<f>" not in sheet
    assert b"<hyperlink" not in sheet


@pytest.mark.parametrize(
    ("value", "type", "wanted"),
    [
        (10**15, None, "1000000000000000"),
        (-(2**63), None, "-9223372036854775808"),
        (Decimal("0.1234567890123456"), None, "0.1234567890123456"),
        (Decimal("1E-310"), None, "0." + "0" * 309 + "1"),
        (5e-324, None, "5e-324"),
        (date(1900, 2, 28), None, "1900-02-28"),
        (datetime(2024, 3, 7, 21, 4, 5, 678901), None, "2024-03-07T21:04:05.678901"),
        (datetime(2024, 3, 7, 21, tzinfo=CET), None, "2024-03-07T21:00:00+01:00"),
        (datetime(2024, 3, 7, 21, 0, 0, 1, tzinfo=UTC), None, "2024-03-07T21:00:00.000001+00:00"),
        (datetime(1899, 3, 7, 21, tzinfo=UTC), None, "1899-03-07T21:00:00+00:00"),
        (time(21, 4, 5, 1), None, "21:04:05.000001"),
        ("1000000000000000", "integer", "1000000000000000"),
        ("1899-12-31", "date", "1899-12-31"),
    ],
)
def test_what_a_sheet_would_change_is_text_and_its_column_is_named(value, type, wanted):
    encoder = FORMATS["xlsx"].open(columns("other", "a", types={"a": type}), EXACT)
    data = encoder.begin() + encoder.rows([("x", value), ("x", value)]) + encoder.end()

    assert [["x", wanted]] * 2 == read_xlsx(data)[1]
    assert {"written_as_text": 2} == dict(encoder.notices.items())
    assert ["a"] == encoder.notices.columns("written_as_text")


@pytest.mark.parametrize(
    ("value", "type", "wanted"),
    [
        (Decimal("123456789012.3450"), None, Digits("123456789012.3450")),
        (Decimal("-0.000000000000001"), None, Digits("-0.000000000000001")),
        (1e-07, "decimal", Digits("0.0000001")),
        ("12.50", "decimal", Digits("12.50")),
        ("-42", "integer", Digits("-42")),
        ("1.5", "float", Digits("1.5")),
        ("2026-01-31", "date", date(2026, 1, 31)),
        ("2026-01-31 23:30:00", "timestamp", datetime(2026, 1, 31, 23, 30)),
        ("2026-01-31T23:30:00", "timestamp", datetime(2026, 1, 31, 23, 30)),
        ("2026-01-31 23:30:00.25+00", "timestamp", datetime(2026, 1, 31, 23, 30, 0, 250_000, tzinfo=UTC)),
        (datetime(2026, 1, 31, 23, 30, tzinfo=UTC), None, datetime(2026, 1, 31, 23, 30, tzinfo=UTC)),
    ],
)
def test_what_a_sheet_holds_exactly_is_no_text(value, type, wanted):
    assert (wanted, {}) == one(value, type)


@pytest.mark.parametrize(
    ("value", "wanted", "notices"),
    [
        (datetime(2020, 2, 1, 0, 30, tzinfo=CET), datetime(2020, 1, 31, 23, 30, tzinfo=UTC), ["zones_as_utc"]),
        (datetime(2020, 2, 1, 0, 30, tzinfo=UTC), datetime(2020, 2, 1, 0, 30, tzinfo=UTC), []),
        (datetime(2020, 2, 1, 23, 59, 59, 999_999), datetime(2020, 2, 1, 23, 59, 59, 999_000), ["times_cut"]),
        (
            datetime(2020, 2, 1, 0, 30, 0, 1, tzinfo=CET),
            datetime(2020, 1, 31, 23, 30, tzinfo=UTC),
            ["times_cut", "zones_as_utc"],
        ),
        (time(23, 59, 59, 999_999), time(23, 59, 59, 999_000), ["times_cut"]),
        (datetime(1900, 3, 1, tzinfo=CET), "1900-03-01T00:00:00+01:00", ["written_as_text"]),
        (datetime(9999, 12, 31, 23, tzinfo=WEST), "9999-12-31T23:00:00-01:00", ["written_as_text"]),
        (time(1, tzinfo=CET), "01:00:00+01:00", ["written_as_text"]),
    ],
)
def test_who_asks_for_cells_gets_moments_in_utc_to_the_millisecond_and_is_told(value, wanted, notices):
    file = write("xlsx", ["a"], [(value,)], moments="cells")

    assert [[wanted]] == read_xlsx(file.data)[1]
    assert notices == sorted(file.notices)


@pytest.mark.parametrize(
    ("text", "type"),
    [
        *((text, "integer") for text in ("007", "+1", "-0", "1.0", "1 ", "\u0661", "1_0", "")),
        *((text, "decimal") for text in ("007.5", "1e3", ".5", "5.", "NaN", "1,5")),
        *((text, "date") for text in ("20260131", "2026-1-31", "2026-W05-6", "2026-01-31T00:00:00", "infinity", "")),
        *((text, "timestamp") for text in ("2026-01-31T24:00:00", "2026-01-31", "2026-01-31T23:30Z", "infinity")),
        *((text, "float") for text in ("1", "1e5", "nan", "infinity", "0x10")),
        ("42", "text"),
        ("42", None),
    ],
)
def test_a_text_that_would_come_back_in_another_spelling_stays_text_and_is_counted(text, type):
    notices = {} if type in ("text", None) else {"written_as_text": 1}

    assert (text, notices) == one(text, type)
    rows = read_xlsx(write("xlsx", columns("a", types={"a": type}), [(text,), (None,), (True,)]).data)[1]
    assert [[text], [None], [True]] == rows


@pytest.mark.parametrize("text", ["x" * 32_768, "😀" * 16_384, "a\r\n" * 10_923, "\0" * 32_768])
@pytest.mark.parametrize("others", [[], [None], [1], ["y"]], ids=["alone", "with NULL", "with a number", "with text"])
def test_a_cell_that_is_too_long_ends_the_build(text, others):
    encoder = FORMATS["xlsx"].open(columns("a", "note"), EXACT, About(offer=" Choose another format: csv."))
    encoder.begin()
    with pytest.raises(BuildFailed) as failed:
        encoder.rows([(1, value) for value in [*others, text]])

    assert "cell_too_long" == failed.value.code
    units = len(text.encode("utf-16-le")) // 2
    said = f"A cell of the column 'note' has {units:,} characters; a cell of XLSX holds 32,767. Choose another format"
    assert f"{said}: csv." == failed.value.detail


@pytest.mark.parametrize("text", ["x" * 32_767, "😀" * 16_383, "\x01" * 32_767, "&" * 32_767])
def test_the_longest_cell_comes_back(text):
    assert (text, {}) == one(text)
    assert [[text, "y"], [None, None]] == read_xlsx(write("xlsx", ["a", "b"], [(text, "y"), (None, None)]).data)[1]


def test_a_header_has_the_limit_of_a_cell_too():
    with pytest.raises(BuildFailed, match="32,768"):
        write("xlsx", ["x" * 32_768], [])


@pytest.mark.slow
def test_a_sheet_of_every_column_has_them_all():
    names = [f"c{number}" for number in range(16_384)]
    headers, found = read_xlsx(write("xlsx", names, [tuple(range(16_384))]).data)

    assert names == headers
    assert [[Digits(str(number)) for number in range(16_384)]] == found
    assert ("Z", "AA", "ZZ", "AAA", "XFD") == tuple(map(letters, (25, 26, 701, 702, 16_383)))


def test_the_limits_are_those_of_a_sheet():
    assert (1_048_575, 16_384) == (FORMATS["xlsx"].rows_max, FORMATS["xlsx"].columns_max)
    assert ((None, None),) == tuple({(FORMATS[name].rows_max, FORMATS[name].columns_max) for name in ("csv", "json")})


def test_a_notice_names_no_more_columns_than_a_reader_wants_to_see():
    names = [f"c{number}" for number in range(150)]
    encoder = FORMATS["xlsx"].open(columns(*names), EXACT)
    encoder.begin()
    encoder.rows([(2**60,) * 150] * 2)

    assert {"written_as_text": 300} == dict(encoder.notices.items())
    assert names[:100] == encoder.notices.columns("written_as_text")


# -- several sheets --------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 3, 10, 11, 100])
@pytest.mark.parametrize(("rows", "sizes"), [(0, [0]), (10, [10]), (11, [10, 1]), (25, [10, 10, 5]), (30, [10] * 3)])
def test_rows_go_on_in_further_sheets_where_that_is_asked_for(monkeypatch, rows, sizes, batch):
    monkeypatch.setattr(xlsx, "ROWS_MAX", 10)
    made = [(number, f"text {number}") for number in range(rows)]
    data = write("xlsx", ["n", "t"], made, batch, sheets="several").data
    book = openpyxl.load_workbook(io.BytesIO(data))
    sheets = [list(sheet.values) for sheet in book]

    assert ["Export", "Export 2", "Export 3"][: len(sizes)] == book.sheetnames
    assert [("n", "t")] * len(sizes) == [sheet[0] for sheet in sheets]
    assert sizes == [len(sheet) - 1 for sheet in sheets]
    assert made == [row for sheet in sheets for row in sheet[1:]]
    assert book.sheetnames == python_calamine.load_workbook(io.BytesIO(data)).sheet_names
    assert data == write("xlsx", ["n", "t"], made, 7, sheets="several").data
    assert len(sizes) == sum("worksheets" in name for name in zipfile.ZipFile(io.BytesIO(data)).namelist())


def test_what_a_header_lost_is_counted_once_however_many_sheets_there_are(monkeypatch):
    monkeypatch.setattr(xlsx, "ROWS_MAX", 1)

    assert {"text_replaced": 1} == write("xlsx", ["a\0"], [(1,), (2,), (3,)], sheets="several").notices


# -- the archive -----------------------------------------------------------------------------------


def made(*entries):
    """An archive of these names and bytes."""
    writing = archive.Archive()
    parts = []
    for name, data in entries:
        parts += [writing.entry(name), writing.write(data[:7]), writing.write(data[7:])]
    rest, last = writing.end()
    data = b"".join([*parts, rest])
    assert data.endswith(last)
    return data


ENTRIES = [("first.xml", b"hello " * 100_000), ("a/b/second.xml", b"x"), ("third", b"")]


def test_an_archive_has_no_clock_and_no_other_bytes_the_second_time():
    assert made(*ENTRIES) == made(*ENTRIES)
    assert {(1980, 1, 1, 0, 0, 0)} == {
        each.date_time for each in zipfile.ZipFile(io.BytesIO(made(*ENTRIES))).infolist()
    }


@pytest.mark.parametrize("largest", [2**32 - 1, 1_000_000, 300_000, 1_000, 10], ids="32 bits {}".format)
def test_what_does_not_fit_into_32_bits_is_written_in_64(monkeypatch, largest):
    """With a limit made small: sizes, places and the directory itself pass it one after the other."""
    monkeypatch.setattr(archive, "LARGEST_32", largest)
    data = made(*ENTRIES)
    read = zipfile.ZipFile(io.BytesIO(data))

    assert read.testzip() is None
    assert ENTRIES == [(each.filename, read.read(each)) for each in read.infolist()]
    assert {each.extract_version for each in read.infolist()} <= {20, 45}
    assert (45 in {each.extract_version for each in read.infolist()}) == (largest <= 300_000)
    elsewhere = b"\xff" * 4
    assert (largest <= 1_000) == (data[-6:-2] == elsewhere), "where the directory is"
    assert (largest <= 10) == (data[-10:-6] == elsewhere), "and how long"


def test_the_standard_library_packs_where_isal_is_missing(monkeypatch):
    with_isal = write("xlsx", HEADERS, ROWS).data
    monkeypatch.setitem(sys.modules, "isal", None)
    without = write("xlsx", HEADERS, ROWS).data

    assert with_isal != without
    assert read_xlsx(with_isal) == read_xlsx(without)
    assert without == write("xlsx", HEADERS, ROWS).data

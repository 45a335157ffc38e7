"""The promise of every format, dialect and compression: what was read is what is read back, cell by cell.

One table of values decides, in literal words. A format that is registered is found here by itself.
"""

# ruff: noqa: DTZ001 - moments without a zone, as sources give them

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest
from tests.conformance.formats.readers import (
    READERS,
    UNPACK,
    Digits,
    columns,
    pack,
    read_with_csv_module,
    write,
)

from haulage.formats import COMPRESSIONS, FORMATS
from haulage.formats.format import LooksFirst

CET = timezone(timedelta(hours=1))
MEGABYTE = '1 MB, "quoted", in lines\r\n' * 40_000

# What the source gave, what stands in a CSV file, what in a JSON file, and what in a sheet where it is not CSV's text.
NASTY = [
    (None, None, None),
    ("", "", ""),
    ("plain", "plain", "plain"),
    ("a\rb", "a\rb", "a\rb"),
    ("\r", "\r", "\r"),
    ("a\nb", "a\nb", "a\nb"),
    ("a\r\nb\r\n", "a\r\nb\r\n", "a\r\nb\r\n"),
    ('say "yes"', 'say "yes"', 'say "yes"'),
    ('"', '"', '"'),
    ("a,b", "a,b", "a,b"),
    (",", ",", ","),
    ("\\.", "\\.", "\\."),
    ("a\\u0000b\\", "a\\u0000b\\", "a\\u0000b\\"),
    (" kept ", " kept ", " kept "),
    ("None", "None", "None"),
    ("null", "null", "null"),
    ("true", "true", "true"),
    ("inf", "inf", "inf"),
    ("007", "007", "007"),
    ("1.50", "1.50", "1.50"),
    ("😀 ê 报告 \u2028", "😀 ê 报告 \u2028", "😀 ê 报告 \u2028"),
    ("\x7f\x01", "\x7f\x01", "\x7f\x01"),
    ("a\ud800b", "a\ufffdb", "a\ufffdb"),
    ("a\x00b", "a\ufffdb", "a\ufffdb"),
    ("=1+1", "=1+1", "=1+1"),
    ("\t=1+1", "\t=1+1", "\t=1+1"),
    (" @SUM(A1)", " @SUM(A1)", " @SUM(A1)"),
    ("-1", "-1", "-1"),
    ("_x0041_", "_x0041_", "_x0041_"),
    ("<a b='c'>&amp;]]></a>", "<a b='c'>&amp;]]></a>", "<a b='c'>&amp;]]></a>"),
    ("\ufffe\uffff\ufeff", "\ufffe\uffff\ufeff", "\ufffe\uffff\ufeff"),
    ("\t\x08\x0b\x1f\x9f", "\t\x08\x0b\x1f\x9f", "\t\x08\x0b\x1f\x9f"),
    ("\U0010ffff\U000e0041", "\U0010ffff\U000e0041", "\U0010ffff\U000e0041"),
    ("x" * 257, "x" * 257, "x" * 257),
    ("x" * 32_767, "x" * 32_767, "x" * 32_767),
    (MEGABYTE, MEGABYTE, MEGABYTE),
    (0, "0", Digits("0"), Digits("0")),
    (-42, "-42", Digits("-42"), Digits("-42")),
    (2**53 - 1, "9007199254740991", Digits("9007199254740991")),
    (2**53, "9007199254740992", Digits("9007199254740992")),
    (1231231231231234123, "1231231231231234123", Digits("1231231231231234123")),
    (-(10**40), "-1" + "0" * 40, Digits("-1" + "0" * 40)),
    (0.1, "0.1", Digits("0.1"), Digits("0.1")),
    (-0.0, "-0.0", Digits("-0.0"), Digits("-0.0")),
    (1e-7, "1e-07", Digits("1e-07"), Digits("1e-07")),
    (1e22, "1e+22", Digits("1e+22"), Digits("1e+22")),
    (0.1 + 0.2, "0.30000000000000004", Digits("0.30000000000000004"), Digits("0.30000000000000004")),
    (float("nan"), "NaN", "NaN"),
    (float("inf"), "Infinity", "Infinity"),
    (float("-inf"), "-Infinity", "-Infinity"),
    (Decimal("0.0000001"), "0.0000001", Digits("0.0000001"), Digits("0.0000001")),
    (Decimal("1E+3"), "1000", Digits("1000"), Digits("1000")),
    (Decimal("-12.50"), "-12.50", Digits("-12.50"), Digits("-12.50")),
    (Decimal("98765432109876543210.5"), "98765432109876543210.5", Digits("98765432109876543210.5")),
    (Decimal("NaN"), "NaN", "NaN"),
    (Decimal("sNaN"), "NaN", "NaN"),
    (Decimal("-Infinity"), "-Infinity", "-Infinity"),
    (True, "true", True, True),
    (False, "false", False, False),
    (date(2024, 3, 7), "2024-03-07", "2024-03-07", date(2024, 3, 7)),
    (datetime(2024, 3, 7, 21), "2024-03-07T21:00:00", "2024-03-07T21:00:00", datetime(2024, 3, 7, 21)),
    (
        datetime(2024, 3, 7, 21, tzinfo=UTC),
        "2024-03-07T21:00:00+00:00",
        "2024-03-07T21:00:00+00:00",
        datetime(2024, 3, 7, 21, tzinfo=UTC),
    ),
    (datetime(2020, 2, 1, 0, 30, tzinfo=CET), "2020-02-01T00:30:00+01:00", "2020-02-01T00:30:00+01:00"),
    (date(1, 1, 1), "0001-01-01", "0001-01-01"),
    (date(1899, 12, 31), "1899-12-31", "1899-12-31"),
    (date(1900, 2, 28), "1900-02-28", "1900-02-28"),
    (date(1900, 3, 1), "1900-03-01", "1900-03-01", date(1900, 3, 1)),
    (date(9999, 12, 31), "9999-12-31", "9999-12-31", date(9999, 12, 31)),
    (datetime(1900, 2, 28, 23, 59, 59), "1900-02-28T23:59:59", "1900-02-28T23:59:59"),
    (datetime(2024, 3, 7, 21, 4, 5, 678901), "2024-03-07T21:04:05.678901", "2024-03-07T21:04:05.678901"),
    (datetime(9999, 12, 31, 23, 59, 59, 999999), "9999-12-31T23:59:59.999999", "9999-12-31T23:59:59.999999"),
    (
        datetime(2099, 3, 7, 21, 4, 5, 678000),
        "2099-03-07T21:04:05.678000",
        "2099-03-07T21:04:05.678000",
        datetime(2099, 3, 7, 21, 4, 5, 678000),
    ),
    (time(21, 4, 5), "21:04:05", "21:04:05", time(21, 4, 5)),
    (time(23, 59, 59, 999999), "23:59:59.999999", "23:59:59.999999"),
    (time(0, 30, tzinfo=CET), "00:30:00+01:00", "00:30:00+01:00"),
    (timedelta(days=1, hours=2), "1 day, 2:00:00", "1 day, 2:00:00"),
    (timedelta(microseconds=-1), "-1 day, 23:59:59.999999", "-1 day, 23:59:59.999999"),
    (b"\x00\xff", "AP8=", "AP8="),
    (b"", "", ""),
    (bytearray(b"abc"), "YWJj", "YWJj"),
    (memoryview(b"x" * 99), "eHh4" * 33, "eHh4" * 33),
    (UUID(int=1), "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000001"),
    ([[1, 2], [3, None]], "[[1,2],[3,null]]", [[Digits("1"), Digits("2")], [Digits("3"), None]]),
    ([1, None, "a\nb"], '[1,null,"a\\nb"]', [Digits("1"), None, "a\nb"]),
    ({"k": 1.5, "l": [True]}, '{"k":1.5,"l":[true]}', [("k", Digits("1.5")), ("l", [True])]),
]

GUARDED = (
    "\r",
    "=1+1",
    "\t=1+1",
    " @SUM(A1)",
    "-1",
    "\t\x08\x0b\x1f\x9f",
    timedelta(microseconds=-1),
)  # run by a spreadsheet

# For any type of Parquet; by their repr, since not every NaN can be compared.
TOO_MUCH = [repr(each) for each in (-(10**40), *map(Decimal, ("NaN", "sNaN", "-Infinity")), time(0, 30, tzinfo=CET))]

FILES = [
    pytest.param(format.name, options, id="-".join([format.name, *options.values()]))
    for format in FORMATS.values()
    for options in (
        dict(zip([option.name for option in format.options], choices, strict=True))
        for choices in itertools.product(*[option.choices for option in format.options])
    )
]
every_file = pytest.mark.parametrize(("format", "options"), FILES)


TEXT_ALONE = (timedelta, list, dict)  # no type of Parquet holds these


def expected(format: str, options: dict[str, str], case: tuple[object, ...], *, mixed: bool = True) -> object:
    """What is to be read back for one of the nasty values; ``mixed``: values of other kinds stand in its column."""
    value, in_csv, in_json, *in_xlsx = case
    if format == "xlsx":
        if options["moments"] == "cells" and (moment := as_cell(value)) is not None:
            return moment
        return in_xlsx[0] if in_xlsx else in_csv
    if format == "parquet":
        if isinstance(value, str) or mixed:
            return in_csv
        return in_csv if isinstance(value, TEXT_ALONE) or repr(value) in TOO_MUCH else in_parquet(value)
    if format == "csv":
        return "'" + in_csv if options["dialect"] == "excel" and value in GUARDED else in_csv
    if options["numbers"] == "string" and isinstance(in_json, Digits):
        is_long = isinstance(value, Decimal) or (isinstance(value, int) and abs(value) > 2**53 - 1)
        return in_json.text if is_long else in_json
    return in_json


def as_cell(value):
    """A moment as a cell of a sheet, when that is asked for; None for what cannot be one."""
    if isinstance(value, time) and value.tzinfo is None:
        return value.replace(microsecond=value.microsecond // 1000 * 1000)
    if not isinstance(value, datetime) or value.year <= 1900:
        return None
    moment = value if value.tzinfo is None else value.astimezone(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def in_parquet(value):
    """The value itself; where it is alone in its column, nothing has to become text."""
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return value


def cases(format: str) -> list[tuple[object, ...]]:
    """The nasty values; a cell of a sheet has a limit, and a test of its own in tests/core/test_formats_xlsx.py."""
    return [case for case in NASTY if format != "xlsx" or case[0] is not MEGABYTE]


def compare(found: list[list[object]], wanted: list[list[object]]) -> None:
    """Cell by cell, so that a failure shows one cell and not a megabyte."""
    assert len(wanted) == len(found)
    for row, (found_row, wanted_row) in enumerate(zip(found, wanted, strict=True)):
        assert len(wanted_row) == len(found_row), f"row {row}"
        for column, (cell, wanted_cell) in enumerate(zip(found_row, wanted_row, strict=True)):
            same = cell == wanted_cell or "nan" == repr(cell) == repr(wanted_cell)
            if not same or type(cell) is not type(wanted_cell):
                pytest.fail(f"row {row} column {column}: {str(cell)[:80]!r}, not {str(wanted_cell)[:80]!r}")


@every_file
def test_values_of_every_kind_in_one_column_come_back(format, options):
    rows = [(1, value, "end") for value, *_ in cases(format)]
    headers, found = READERS[format](write(format, ["n", "value", "last"], rows, **options).data, options)

    one = {"csv": "1", "parquet": 1}.get(format, Digits("1"))
    assert ["n", "value", "last"] == headers
    compare(found, [[one, expected(format, options, case), "end"] for case in cases(format)])


@every_file
@pytest.mark.parametrize(
    "nulls", [pytest.param(0, id="never NULL", marks=pytest.mark.slow), pytest.param(1, id="sometimes NULL")]
)
def test_columns_of_one_kind_come_back(format, options, nulls):
    values = [value for value, *_ in cases(format)]
    rows = [tuple(values)] * 2 + [(None,) * len(values)] * nulls
    names = [f"c{number}" for number in range(len(values))]
    headers, found = READERS[format](write(format, names, rows, **options).data, options)

    wanted = [expected(format, options, case, mixed=False) for case in cases(format)]
    assert names == headers
    compare(found, [wanted] * 2 + [[None] * len(values)] * nulls)


@every_file
def test_values_that_stand_alone_in_their_line_come_back(format, options):
    rows = [(value,) for value, *_ in cases(format)]
    _, found = READERS[format](write(format, ["only"], rows, **options).data, options)

    wanted = [expected(format, options, case) for case in cases(format)]
    if options.get("dialect") in ("rfc4180", "excel"):  # here a row that is kept counts more than its NULL
        wanted[0] = ""
    compare(found, [[cell] for cell in wanted])


@every_file
def test_columns_keep_their_order(format, options):
    headers, found = READERS[format](write(format, ["z", "a", "m"], [("1", "2", "3")], **options).data, options)

    assert ["z", "a", "m"] == headers
    assert [["1", "2", "3"]] == found


@every_file
def test_a_file_without_rows_is_whole(format, options):
    file = write(format, ["a", "b"], [], **options)
    _, found = READERS[format](file.data, options)

    assert [] == found
    assert file.data.endswith(file.trailer)


@every_file
def test_headers_are_as_nasty_as_values(format, options):
    names = ["a,b", 'say "yes"', "", "two\nlines", "報 %s {0}", "a\x00\ud800"]
    file = write(format, names, [("1", "2", "3", "4", "5", "6")], **options)
    headers, found = READERS[format](file.data, options)

    assert ["a,b", 'say "yes"', "", "two\nlines", "報 %s {0}", "a\ufffd\ufffd"] == headers
    assert [["1", "2", "3", "4", "5", "6"]] == found
    assert 2 == file.notices["text_replaced"]


@every_file
def test_the_bytes_do_not_depend_on_how_rows_come_in_batches(format, options):
    rows = [(number, value) for number, (value, *_) in enumerate(NASTY) if value is not MEGABYTE]
    whole, *others = [write(format, ["n", "value"], rows, batch, **options) for batch in (len(rows), 1, 2, 7)]

    assert [whole] * 3 == others


@every_file
def test_an_empty_batch_writes_nothing(format, options):
    encoder = FORMATS[format].open(columns("a"), options)
    if isinstance(encoder, LooksFirst):
        encoder.look([])
        encoder.look([("x",)])
    chunks = [encoder.begin(), encoder.rows([]), encoder.rows([("x",)]), encoder.rows([]), encoder.end()]

    assert write(format, ["a"], [("x",)], **options).data == b"".join(chunks)


@every_file
def test_a_file_ends_with_its_trailer(format, options):
    file = write(format, ["a"], [("x",)], **options)

    assert file.trailer
    assert file.data.endswith(file.trailer)


@every_file
@pytest.mark.parametrize("rows", [[("x", "y"), ("x",)], [("x",)], [("x", "y", "z")], [("x", "y"), ("x", "y", "z")]])
def test_a_row_with_a_cell_too_few_or_too_many_is_no_row(format, options, rows):
    with pytest.raises(ValueError, match="zip"):
        write(format, ["a", "b"], rows, **options)


@pytest.mark.slow
@pytest.mark.parametrize(("format", "options"), [each for each in FILES if each.values[0] != "xlsx"])
def test_a_cell_of_ten_megabytes_comes_back(format, options):
    cell = "0123456789" * 1_000_000
    _, found = READERS[format](write(format, ["a", "b"], [(cell, None), ("x", cell)], **options).data, options)

    compare(found, [[cell, None], ["x", cell]])


@every_file
def test_what_was_changed_is_counted(format, options):
    rows = [("a\ud800b", b"1", float("nan")), ("\x00\x00", None, 1.5), ("fine", b"2", float("inf"))]
    notices = write(format, ["a", "b", "c"], rows, **options).notices

    assert 3 == notices["text_replaced"]
    if format == "parquet":  # it has bytes and what is not finite
        assert ["text_replaced"] == list(notices)
        return
    assert 2 == notices["bytes_as_base64"]
    assert (None if format == "csv" else 2) == notices.get("non_finite_as_text")


@every_file
def test_nothing_is_counted_where_nothing_was_changed(format, options):
    assert {} == write(format, ["a", "b"], [("😀", 1), ("", None)], **options).notices


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize(("format", "options"), [each for each in FILES if FORMATS[each.values[0]].compressions])
def test_a_compressed_file_holds_the_plain_one(format, options, compression):
    rows = [(number, value) for number, (value, *_) in enumerate(NASTY)]
    plain = write(format, ["n", "value"], rows, **options).data
    packed = pack(compression, plain)

    assert compression in FORMATS[format].compressions
    assert plain == UNPACK[compression](packed)
    assert packed == pack(compression, plain)


@pytest.mark.parametrize("dialect", ["exact", "rfc4180", "excel"])
def test_the_csv_module_reads_the_same_cells(dialect):
    options = {"dialect": dialect}
    rows = [tuple(value for value, *_ in NASTY)] * 2
    _, found = read_with_csv_module(write("csv", [f"c{n}" for n in range(len(NASTY))], rows, **options).data)

    wanted = [expected("csv", options, case) or "" for case in NASTY]
    compare(found, [wanted] * 2)

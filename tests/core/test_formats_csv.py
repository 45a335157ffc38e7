"""CSV in literal bytes, and which cells the dialect for spreadsheets defuses."""

from __future__ import annotations

import sys
from datetime import timedelta
from decimal import Decimal
from enum import Enum

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.conformance.formats.readers import BOM, columns, read_csv, write

from haulage.core.reading import Column
from haulage.formats.csv import MANY_FROM, CsvEncoder, _numbers
from haulage.formats.format import About

ROWS = [(1, None, ""), (-42, "a\rb", 'say "yes"')]


def excel(*rows, types=None, headers=("a",)):
    """The fields that the excel dialect writes for rows, and how many it guarded."""
    file = write("csv", columns(*headers, types=types), rows, dialect="excel")
    return read_csv(file.data, "\r\n")[1], file.notices.get("formula_guarded", 0)


def test_the_exact_dialect_in_bytes():
    assert b'a,b,c\n1,,""\n-42,"a\rb","say ""yes"""\n' == write("csv", ["a", "b", "c"], ROWS).data


def test_the_rfc4180_dialect_in_bytes():
    wanted = BOM + b'a,b,c\r\n1,,""\r\n-42,"a\rb","say ""yes"""\r\n'

    assert wanted == write("csv", ["a", "b", "c"], ROWS, dialect="rfc4180").data


def test_an_empty_string_differs_from_null():
    assert b'a,b\n,""\n' == write("csv", ["a", "b"], [(None, "")]).data


def test_an_empty_string_differs_from_null_among_texts():
    rows = [(None, ""), ("", None), ("a,b", None), (None, "x")]

    assert b'a,b\n,""\n"",\n"a,b",\n,x\n' == write("csv", ["a", "b"], rows, 4).data


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.integers(-999, 999),
    st.floats(),
    st.floats(-1, 1),
    st.decimals(-(10**6), 10**6, allow_nan=False, places=3).map(float),
    st.integers(-9, 25).map(lambda power: 1.5 * 10.0**power),
    st.none(),
)


@given(st.lists(NUMBERS, min_size=1, max_size=6))
@example([1e16, 1.0])
@example([1e-07, 1.0])
@example([1.0, 0.00001])
@example([-0.00009, 0.0001])
@example([float("inf"), float("-inf"), float("nan"), 1.0])
@example([2**63, -(2**63), 2**64 - 1])
@example([2**64, 1.0])
@example([None, None])
@example([-0.0, 0.1 + 0.2, 5e-324, 1.7976931348623157e308, 9999999999999998.0])
def test_numbers_of_a_long_file_are_spelled_as_those_of_a_short_one(numbers):
    few, many = (CsvEncoder([Column("a", "a")], {"dialect": "exact"}, About(total=total)) for total in (1, MANY_FROM))
    rows = [(number,) for number in numbers]

    assert few.rows(rows) == many.rows(rows)


def test_only_a_long_file_loads_what_spells_its_numbers(monkeypatch):
    def spelling(total):
        return CsvEncoder([Column("a", "a")], {"dialect": "exact"}, About(total=total))._number_texts

    assert [_numbers] * 2 == [spelling(total) for total in (None, MANY_FROM - 1)]
    assert spelling(MANY_FROM) is not _numbers
    monkeypatch.setitem(sys.modules, "orjson", None)
    assert spelling(MANY_FROM) is _numbers


@pytest.mark.parametrize(
    ("dialect", "wanted"),
    [("exact", b'a\n\n""\nx\n'), ("rfc4180", BOM + b'a\r\n""\r\n""\r\nx\r\n')],
)
def test_null_alone_in_its_line_is_a_line(dialect, wanted):
    assert wanted == write("csv", ["a"], [(None,), ("",), ("x",)], dialect=dialect).data


@pytest.mark.parametrize("dialect", ["rfc4180", "excel"])
def test_there_is_one_byte_order_mark_and_it_comes_first(dialect):
    data = write("csv", ["a"], [("x",)] * 10, 1, dialect=dialect).data

    assert data.startswith(BOM)
    assert 1 == data.count(BOM)


def test_a_header_that_begins_with_a_byte_order_mark_is_no_byte_order_mark():
    assert b'"\xef\xbb\xbfa",b\n' == write("csv", ["\ufeffa", "b"], []).data


def test_a_file_without_rows_is_a_header():
    assert b"z,a\n" == write("csv", ["z", "a"], []).data


def test_the_psql_end_mark_alone_in_its_line_is_quoted():
    assert b'a\n"\\."\n' == write("csv", ["a"], [("\\.",)]).data
    assert b"a,b\n\\.,\\.\n" == write("csv", ["a", "b"], [("\\.", "\\.")]).data


def test_types_of_numbers_keep_their_digits():
    class Colour(int, Enum):  # its str is not its number
        RED = 7

    class Metres(float):
        def __repr__(self):
            return "metres"

    rows = [(Colour.RED, Metres(1.5), Decimal("1E+3"), True)]

    assert b"a,b,c,d\n7,1.5,1000,true\n" == write("csv", ["a", "b", "c", "d"], rows).data


@pytest.mark.parametrize(
    "text",
    [
        *("=1+1", "+1", "-1", "@SUM(A1)", "=", "-", "- item", "=cmd|' /C calc'!A0"),
        *("\uff1d1+1", "\uff0b1", "\uff0d1", "\uff20A1"),
        *(" =1+1", "\t=1+1", "\r=1+1", "\n=1+1", "\x00=1+1", "\v=1", "\f=1", "\x1b=1", "\x7f=1"),
        *(" \t =1+1", "\u00a0=1", "\u2003=1", "\u3000=1", "\u2028=1", "\u200b=1", "\ufeff=1", "\u200e=1"),
        *("\u2060=1", "\u00ad=1", "\u2800=1", "\u3164=1", "\ufe0f=1", "\u180e=1", "\U000e0020=1", "\u3000\uff1d1"),
        *("\tplain", "\rplain", "\nplain", "\x00plain", "\t", "\r", "\n"),
        *('=1+1,"x"', "=1\n2", "=" + "1" * 100_000),
    ],
)
def test_text_that_a_spreadsheet_would_run_is_defused(text):
    wanted = "'" + text.replace("\x00", "\ufffd")

    assert ([[wanted]], 1) == excel((text,))
    assert ([[wanted, None], [None, wanted]], 2) == excel((text, None), (None, text), headers=("a", "b"))
    assert ([[wanted], ["3"]], 1) == excel((text,), (3,))


@pytest.mark.parametrize(
    "text",
    ["plain", "a=1", "a -1", "'=1+1", " plain", "\u00a0", " ", "\u200bplain", "1-1", "\ufffd=1", "😀=1"],
)
def test_text_that_no_spreadsheet_runs_is_left_alone(text):
    assert ([[text]], 0) == excel((text,))


@pytest.mark.parametrize(
    ("number", "wanted"),
    [
        (-42, "-42"),
        (-0.5, "-0.5"),
        (float("-inf"), "-Infinity"),
        (Decimal("-0.0000001"), "-0.0000001"),
        (Decimal("-Infinity"), "-Infinity"),
    ],
)
def test_numbers_are_never_defused(number, wanted):
    assert ([[wanted]], 0) == excel((number,))
    assert ([["'=1"], [wanted], [""]], 1) == excel(("=1",), (number,), (None,))


@pytest.mark.parametrize("dialect", ["exact", "rfc4180"])
@pytest.mark.parametrize("text", ["=1+1", " =1+1", "\t=1+1", "\r=1+1", "-42"])
def test_only_the_dialect_for_spreadsheets_defuses(dialect, text):
    file = write("csv", ["=a"], [(text,)], dialect=dialect)

    assert (["=a"], [[text]]) == read_csv(file.data, "\n" if dialect == "exact" else "\r\n")
    assert {} == file.notices


def test_headers_are_defused_too():
    file = write("csv", ["=1+1", " -x", "fine"], [], dialect="excel")

    assert BOM + b"'=1+1,' -x,fine\r\n" == file.data
    assert {"formula_guarded": 2} == file.notices


@pytest.mark.parametrize("type", ["integer", "decimal", "float"])
@pytest.mark.parametrize("text", ["-42", "+1", "-0.50", "-1e-07", "-.5", "-Infinity"])
def test_a_number_that_a_source_gives_as_text_stays_in_a_column_of_numbers(type, text):
    assert ([[text]], 0) == excel((text,), types={"a": type})
    assert ([["'" + text]], 1) == excel((text,), types={"a": "text"})
    assert ([["'" + text]], 1) == excel((text,))


@pytest.mark.parametrize("text", ["=1+1", "-1+1", "-1\n", " -1", "-", "+", "-1-", "-e5", "\uff0d1", "-\u0661"])
def test_a_declared_number_does_not_let_a_formula_through(text):
    assert ([["'" + text]], 1) == excel((text,), types={"a": "integer"})


@pytest.mark.parametrize(
    ("value", "wanted"), [(timedelta(days=-1), "'-1 day, 0:00:00"), (b"\xf8", "'+A=="), (b"\x00", "AA==")]
)
def test_what_becomes_text_is_defused_like_text(value, wanted):
    assert [[wanted]] == excel((value,))[0]


def test_a_second_opinion_on_formulas_finds_nothing_that_is_left():
    defused = pytest.importorskip("defusedcsv.csv")
    texts = [f"{lead}{sign}{rest}" for lead in ("", "'", "x") for sign in "=+-@" for rest in ("1+1", "A1", "x|y", "")]
    fields, _ = excel(*[(text,) for text in texts])

    assert [field for (field,) in fields] == [defused._escape(field).replace("\\|", "|") for (field,) in fields]

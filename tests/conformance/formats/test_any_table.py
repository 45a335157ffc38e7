"""The same promise for tables that nobody thought of: hypothesis makes them and shrinks what fails."""

from __future__ import annotations

import base64
import sys
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance.formats.readers import READERS, Digits, write

pytestmark = pytest.mark.slow

TEXT = st.text() | st.text(st.sampled_from("a,\"\r\n\t\0\ud800\udc00\\u{}[]'=+-@ \uff1d\ufeff"))
VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.decimals(), TEXT, st.binary())
KINDS = (
    TEXT,
    TEXT | st.none(),
    st.integers(),
    st.integers() | st.floats() | st.none(),
    st.decimals(),
    VALUES,
)


@st.composite
def tables(draw):
    """Columns of one kind or of many, their rows, and the size of the batches."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
    rows = draw(st.lists(st.tuples(*kinds), max_size=8))
    return [f"c{n}" for n in range(len(kinds))], rows, draw(st.integers(1, 5))


def clean(text):
    return "".join("\ufffd" if mark == "\0" or "\ud800" <= mark <= "\udfff" else mark for mark in text)


def number(value):
    """The digits of a number, or the word for one that has none; written without a look at the encoder."""
    if "nan" in repr(value).lower():
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return f"{value:f}" if isinstance(value, Decimal) else repr(value)


def in_csv(value):
    if value is None or isinstance(value, bool):
        return {None: None, True: "true", False: "false"}[value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return clean(value) if isinstance(value, str) else number(value)


def in_json(value):
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if is_number and number(value)[-1].isdigit():
        return Digits(number(value))
    return value if isinstance(value, bool) else in_csv(value)


@pytest.mark.parametrize("dialect", ["exact", "rfc4180"])
@given(table=tables())
def test_any_table_comes_back_from_csv(dialect, table):
    names, rows, batch = table
    options = {"dialect": dialect}
    headers, found = READERS["csv"](write("csv", names, rows, batch, **options).data, options)

    wanted = [[in_csv(value) for value in row] for row in rows]
    if len(names) == 1 and dialect == "rfc4180":
        wanted = [[cell or ""] for (cell,) in wanted]
    assert (names, wanted) == (headers, found)


@given(table=tables())
def test_any_table_comes_back_from_csv_for_a_spreadsheet_with_text_defused(table):
    names, rows, batch = table
    file = write("csv", names, rows, batch, dialect="excel")
    _, found = READERS["csv"](file.data, {"dialect": "excel"})

    guarded = 0
    for row, fields in zip(rows, found, strict=True):
        for value, field in zip(row, fields, strict=True):
            wanted = in_csv(value) if len(names) > 1 else in_csv(value) or ""
            if field != wanted:
                assert isinstance(value, str | bytes)
                assert "'" + wanted == field
                guarded += 1
            elif isinstance(value, str):
                assert not value.lstrip(" \t\r\n\0\ufeff").startswith(tuple("=+-@\uff1d"))
                assert not value.startswith(("\t", "\r", "\n", "\0"))
    assert guarded == file.notices.get("formula_guarded", 0)


@pytest.mark.parametrize("format", ["json", "ndjson"])
@given(table=tables())
def test_any_table_comes_back_from_json(format, table):
    names, rows, batch = table
    headers, found = READERS[format](write(format, names, rows, batch).data, {})

    assert [[in_json(value) for value in row] for row in rows] == found
    assert headers == (names if rows else [])


def in_sheet(value):
    """A number of at most 15 digits, or a double that spreadsheets have; else the text that stands in CSV."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return Digits(str(value)) if abs(value) < 10**15 else str(value)
    if isinstance(value, float) and (value == 0 or sys.float_info.min <= abs(value) < float("inf")):
        return Digits(repr(value))
    if isinstance(value, Decimal) and value.is_finite() and (not value or value.adjusted() > -300):
        text = f"{value:f}"
        significant = (text.rstrip("0") if "." in text else text).replace(".", "").lstrip("-0")
        return Digits(text) if len(significant) <= 15 else text
    return in_csv(value)


@given(table=tables())
def test_any_table_comes_back_from_a_sheet(table):
    names, rows, batch = table
    headers, found = READERS["xlsx"](write("xlsx", names, rows, batch).data, {})

    assert (names, [[in_sheet(value) for value in row] for row in rows]) == (headers, found)


def of_kind(values):
    """What a column of these values comes back as: themselves, or the text that stands in CSV."""
    kinds = {type(value) for value in values} - {type(None)}
    integers = [value for value in values if type(value) is int]
    decimals = [value for value in values if isinstance(value, Decimal)]
    exact = kinds in ({bool}, {float}, {bytes})
    if kinds == {int}:
        exact = all(abs(value) < 10**38 for value in integers)
    elif kinds == {int, float}:
        exact = all(abs(value) <= 2**53 for value in integers)
    elif kinds in ({Decimal}, {int, Decimal}):
        exact = all(value.is_finite() for value in decimals) and fits(integers, decimals)
    if not exact:
        return [in_csv(value) for value in values]
    return [Decimal(value) if Decimal in kinds and value is not None else value for value in values]


def fits(integers, decimals):
    """Whether one scale and 38 digits hold all of them."""
    texts = [f"{value:f}".lstrip("-") for value in [*integers, *decimals]]
    whole = max(len(text.partition(".")[0].lstrip("0")) for text in texts)
    return whole + max(len(text.partition(".")[2]) for text in texts) <= 38


@given(table=tables())
def test_any_table_comes_back_from_parquet(table):
    names, rows, batch = table
    headers, found = READERS["parquet"](write("parquet", names, rows, batch).data, {})

    wanted = [of_kind(column) for column in zip(*rows, strict=True)]
    cells = [list(column) for column in zip(*found, strict=True)]
    assert names == headers
    assert [list(map(same, column)) for column in wanted] == [list(map(same, column)) for column in cells]


def same(value):
    """Numbers by their value, so that 1 is 1.0; NaN by its name."""
    return "NaN" if value != value else value  # noqa: PLR0124

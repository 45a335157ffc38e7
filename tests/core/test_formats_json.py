"""JSON and NDJSON in literal bytes, what becomes of numbers, and documents inside of documents."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from tests.conformance.formats.readers import columns, write

from haulage.formats import FORMATS

BOTH = pytest.mark.parametrize("format", ["json", "ndjson"])


def one(value, type=None, **options):
    """One value as it stands in an NDJSON file, and the notices."""
    file = write("ndjson", columns("a", types={"a": type}), [(value,)], **options)
    return file.data.decode().removeprefix('{"a":').removesuffix("}\n"), file.notices


def test_a_json_file_in_bytes():
    rows = [(1, "x", None), (-42, 'é "q" 😀', 1.5)]

    assert (
        '[\n{"z":1,"a":"x","m":null},\n{"z":-42,"a":"é \\"q\\" 😀","m":1.5}\n]\n'.encode()
        == write("json", ["z", "a", "m"], rows).data
    )


def test_an_ndjson_file_in_bytes():
    assert b'{"z":1,"a":"x"}\n{"z":2,"a":""}\n' == write("ndjson", ["z", "a"], [(1, "x"), (2, "")]).data


def test_no_rows_are_an_empty_array_and_an_empty_ndjson_file():
    assert b"[]\n" == write("json", ["a"], []).data
    assert b"" == write("ndjson", ["a"], []).data
    assert b"" == write("ndjson", ["a"], []).trailer


@pytest.mark.parametrize("sizes", [[], [1], [0, 1, 0], [2, 0, 1], [1, 1, 1], [0, 0]])
def test_a_separator_stands_before_every_row_but_the_first(sizes):
    encoder = FORMATS["json"].open(columns("a"), {"numbers": "number"})
    data = encoder.begin() + b"".join(encoder.rows([(1,)] * size) for size in sizes) + encoder.end()

    assert [{"a": 1}] * sum(sizes) == json.loads(data)


@BOTH
def test_numbers_keep_their_digits(format):
    row = (1231231231231234123, Decimal("0.0000001"), Decimal("1E+3"), Decimal("1.10"), 0.1, 2**53)
    wanted = '{"a":1231231231231234123,"b":0.0000001,"c":1000,"d":1.10,"e":0.1,"f":9007199254740992}'

    assert wanted in write(format, ["a", "b", "c", "d", "e", "f"], [row]).data.decode()


@BOTH
def test_as_strings_go_all_decimals_and_the_integers_that_a_double_does_not_hold(format):
    row = (2**53 - 1, 2**53, -(2**53) + 1, -(2**53), Decimal("1.10"), Decimal(1), 0.1, None)
    wanted = (
        '{"a":9007199254740991,"b":"9007199254740992","c":-9007199254740991,"d":"-9007199254740992",'
        '"e":"1.10","f":"1","g":0.1,"h":null}'
    )

    assert wanted in write(format, list("abcdefgh"), [row], numbers="string").data.decode()


def test_a_column_of_integers_and_nulls_as_strings():
    rows = [(1, 2**60), (None, None), (2**60, 1.5)]

    assert (
        f'{{"a":1,"b":"{2**60}"}}\n{{"a":null,"b":null}}\n{{"a":"{2**60}","b":1.5}}\n'
        == write("ndjson", ["a", "b"], rows, numbers="string").data.decode()
    )


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (float("nan"), '"NaN"'),
        (float("inf"), '"Infinity"'),
        (float("-inf"), '"-Infinity"'),
        (Decimal("NaN"), '"NaN"'),
        (Decimal("Infinity"), '"Infinity"'),
        ([float("nan")], '["NaN"]'),
    ],
)
@pytest.mark.parametrize("numbers", ["number", "string"])
def test_nan_and_infinity_are_never_bare(value, wanted, numbers):
    assert (wanted, {"non_finite_as_text": 1}) == one(value, numbers=numbers)


def test_nan_among_numbers_and_nulls_is_found():
    rows = [(1.5, 1), (None, float("inf")), (float("nan"), None), (2.0, 2)]
    file = write("ndjson", ["a", "b"], rows, 4)

    assert b'{"a":1.5,"b":1}\n{"a":null,"b":"Infinity"}\n{"a":"NaN","b":null}\n{"a":2.0,"b":2}\n' == file.data
    assert {"non_finite_as_text": 2} == file.notices


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"k": [1, 2.50]}', '{"k": [1, 2.50]}'),
        ('{\n  "k": 1\r\n}', '{   "k": 1  }'),
        ("12345678901234567890.0", "12345678901234567890.0"),
        ("1" * 5000, "1" * 5000),
        ("null", "null"),
        (' "text" ', ' "text" '),
    ],
)
def test_a_document_in_a_json_column_stands_in_the_file_as_it_is(text, wanted):
    assert (wanted, {}) == one(text, "json")
    assert text == json.loads(one(text)[0])
    assert text == json.loads(one(text, "text")[0])


@pytest.mark.parametrize(
    ("text", "wanted", "count"),
    [
        (r'"a\ud800b"', '"a\ufffdb"', 1),
        (r'{"\uDC00": "\u0000"}', '{"\ufffd": "\ufffd"}', 2),
        (r'"\ud800\ud83d\ude00\udc00"', '"\ufffd\\ud83d\\ude00\ufffd"', 2),
        (r'"\ud83d\n\ude00"', '"\ufffd\\n\ufffd"', 2),
        (r'"\\ud800 \\\ud800 \\\\u0000"', '"\\\\ud800 \\\\\ufffd \\\\\\\\u0000"', 1),
        (r'"\u00e9\u0001"', r'"\u00e9\u0001"', 0),
    ],
)
def test_what_no_text_can_hold_is_replaced_in_a_document_too(text, wanted, count):
    written, notices = one(text, "json")

    assert wanted == written
    assert ({"text_replaced": count} if count else {}) == notices
    assert json.dumps(json.loads(written), ensure_ascii=False).encode(), "no lone surrogate is left"


@pytest.mark.parametrize("text", ["", "{", "NaN", "[Infinity]", "{'k': 1}", "1 2", '"a\nb"', "[" * 100_000])
def test_text_in_a_json_column_that_is_no_document_stays_text(text):
    assert text == json.loads(one(text, "json")[0])


def test_a_json_column_holds_nulls_and_parsed_documents_as_well():
    rows = [('{"k": 1}',), (None,), ({"k": Decimal("1.10")},), (7,)]

    assert (
        b'{"a":{"k": 1}}\n{"a":null}\n{"a":{"k":1.10}}\n{"a":7}\n'
        == write("ndjson", columns("a", types={"a": "json"}), rows, 4).data
    )


def test_parsed_documents_may_hold_what_databases_hold():
    document = {
        "when": datetime(2024, 3, 7, tzinfo=UTC),
        "bytes": b"\x00",
        "text": "a\x00",
        1: (True, None),
        None: Decimal("1E+3"),
    }
    wanted = '{"when":"2024-03-07T00:00:00+00:00","bytes":"AA==","text":"a\ufffd","1":[true,null],"null":1000}'

    assert (wanted, {"bytes_as_base64": 1, "text_replaced": 1}) == one(document)
    assert '{"a":["1.10","9007199254740992",1]}' == one({"a": [Decimal("1.10"), 2**53, 1]}, numbers="string")[0]


@pytest.mark.parametrize("others", [[], [(None,)], [(1,)]], ids=["texts", "and NULL", "and a number"])
def test_nul_is_replaced_and_an_escape_that_only_looks_like_it_is_not(others):
    file = write("ndjson", ["a"], [("a\x00b\x00",), ("a\\u0000b",), *others], 5)
    found = [json.loads(line)["a"] for line in file.data.decode().splitlines()]

    assert ["a\ufffdb\ufffd", "a\\u0000b"] == found[:2]
    assert {"text_replaced": 2} == file.notices


def test_headers_that_are_the_same_are_a_mistake_of_the_caller():
    with pytest.raises(AssertionError):
        write("json", ["a", "a"], [])

"""docs/fidelity.md says what stands in a file for a value: written, read back by independent readers, and shown."""

# ruff: noqa: DTZ001 - moments without a zone, as sources give them

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest
from tests.conformance.formats.readers import READERS, Digits, columns, write
from tests.docs.written import DOCS, assert_written
from tests.stories.server_values import DUCKDB, MARIADB, POSTGRESQL, Value

from haulage.formats import FORMATS, resolve_options

CET = timezone(timedelta(hours=1))
VALUES: list[tuple[str, str, object]] = [  # kind, how it is written here, what a source gives
    ("NULL", "NULL", None),
    ("empty text", "''", ""),
    ("text", "say \"yes\", 'no'", "say \"yes\", 'no'"),
    ("text with a line break", r"a\r\nb", "a\r\nb"),
    ("text that opens a formula", "=1+1", "=1+1"),
    ("text with a lone surrogate", r"a\ud800b", "a\ud800b"),
    ("text with NUL", r"a\0b", "a\0b"),
    ("text with a control character", r"a\x01b", "a\x01b"),
    ("text of 32,768 characters", "xxx…", "x" * 32_768),
    ("integer", "-42", -42),
    ("integer beyond 2^53", "9007199254740993", 2**53 + 1),
    ("integer beyond 64 bits", "18446744073709551616", 2**64),
    ("decimal", "-12.50", Decimal("-12.50")),
    ("small decimal", "0.0000001", Decimal("0.0000001")),
    ("decimal of 21 digits", "98765432109876543210.5", Decimal("98765432109876543210.5")),
    ("decimal NaN", "NaN", Decimal("NaN")),
    ("float", "0.1", 0.1),
    ("float of 17 digits", "0.30000000000000004", 0.1 + 0.2),
    ("float NaN", "NaN", float("nan")),
    ("float infinity", "Infinity", float("inf")),
    ("boolean", "true", True),
    ("date", "2024-03-07", date(2024, 3, 7)),
    ("date before 1900-03-01", "1900-02-28", date(1900, 2, 28)),
    ("timestamp without zone", "2024-03-07T21:04:05", datetime(2024, 3, 7, 21, 4, 5)),
    ("timestamp to the microsecond", "2024-03-07T21:04:05.678901", datetime(2024, 3, 7, 21, 4, 5, 678901)),
    ("timestamp in UTC", "2024-03-07T21:04:05Z", datetime(2024, 3, 7, 21, 4, 5, tzinfo=UTC)),
    ("timestamp with zone", "2024-03-07T21:04:05+01:00", datetime(2024, 3, 7, 21, 4, 5, tzinfo=CET)),
    ("time", "21:04:05", time(21, 4, 5)),
    ("interval", "1 day 02:00:00", timedelta(days=1, hours=2)),
    ("bytes", r"\x00ff", b"\x00\xff"),
    ("array", "{1,NULL}", [1, None]),
    ("JSON", '{"k": 1.50}', {"k": Decimal("1.50")}),
    ("UUID", "00000000-…-000000000001", UUID(int=1)),
]
FILES = (
    ("csv", {}),
    ("csv", {"dialect": "excel"}),
    ("json", {}),
    ("json", {"numbers": "string"}),
    ("xlsx", {}),
    ("parquet", {}),
)


@pytest.mark.slow
def test_what_stands_in_every_file_is_documented():
    titles = ["read", "value", *(" ".join([f"`{name}`", *options.values()]) for name, options in FILES)]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for kind, shown, value in VALUES:
        cells = [stands(name, options, value) for name, options in FILES]
        lines.append(f"| {' | '.join([kind, code(shown), *cells])} |")

    assert_written(DOCS / "fidelity.md", "values", "\n".join(lines))


@pytest.mark.parametrize(("server", "values"), [("postgresql", POSTGRESQL), ("mariadb", MARIADB), ("duckdb", DUCKDB)])
def test_what_stands_for_the_values_of_a_server_is_documented(server, values):
    """They are the values that tests/stories/test_server_files.py asks of the server."""
    lines = ["| SQL | `csv` | `json` | `xlsx` | `parquet` |", "|---|---|---|---|---|"]
    for value in values:
        csv = code(value.csv) if value.csv else "nothing"
        in_sheet, in_parquet = said("xlsx", value.sheet), f"{value.type} {parquet_of(value)}"
        cells = [code(value.sql), csv, code(value.json), in_sheet + noticed(value, "xlsx")]
        cells.append(in_parquet + noticed(value, "parquet"))
        lines.append(f"| {' | '.join(cells)} |")

    assert_written(DOCS / "fidelity.md", server, "\n".join(lines))


def noticed(value: Value, format: str) -> str:
    return " (written_as_text)" if format in value.named else ""


def parquet_of(value: Value) -> str:
    return "null" if value.parquet is None else code(plain(value.parquet))


def stands(name: str, options: dict[str, str], value: object) -> str:
    """What is read back from a file of this value, with a kind where that is not plain, and what was noticed."""
    from haulage.core.errors import BuildFailed

    try:
        file = write(name, columns("a", "b"), [(value, 1)], **options)
    except BuildFailed as failed:
        return f"refused: `{failed.code}`"
    found = READERS[name](file.data, resolve_options(FORMATS[name], options))[1][0][0]
    notices = [notice for notice in file.notices if notice != "order_not_fixed"]
    return " ".join([said(name, found), *(f"({notice})" for notice in notices)])


def said(name: str, found: object) -> str:
    if found is None:
        return {"csv": "nothing", "xlsx": "empty cell"}.get(name, "null")
    if isinstance(found, Digits):
        return f"number {code(found.text)}"
    if isinstance(found, list):
        return f"JSON {code(nested(found))}"
    if isinstance(found, str):
        kind = "" if name == "csv" else "text "
        return kind + code(found if len(found) < 50 else f"{found[:3]}…")
    kinds = {bool: "boolean", int: "integer", float: "double", datetime: "timestamp"}
    return f"{kinds.get(type(found), type(found).__name__.lower())} {code(plain(found))}"


def plain(found: object) -> str:
    if isinstance(found, bytes):
        return f"\\x{found.hex()}"
    if isinstance(found, Decimal):
        return f"{found:f}"
    if isinstance(found, date | time):
        return found.isoformat()
    return {"True": "true", "False": "false", "nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(
        str(found), str(found)
    )


def nested(found: object) -> str:
    """A document as our reader of JSON gives it: objects as pairs, numbers as their digits."""
    if isinstance(found, Digits):
        return found.text
    if isinstance(found, list) and found and isinstance(found[0], tuple) and not isinstance(found[0], Digits):
        return "{" + ", ".join(f"{json.dumps(name)}: {nested(value)}" for name, value in found) + "}"
    if isinstance(found, list):
        return "[" + ", ".join(map(nested, found)) + "]"
    return json.dumps(found)


def code(text: str) -> str:
    """Text as it stands in a table, with what cannot be seen as Python would write it."""
    if not text:
        return '`""`'
    shown = "".join(sign if sign.isprintable() or sign == "\ufffd" else ascii(sign)[1:-1] for sign in text)
    return f"`{shown.replace('|', chr(92) + '|')}`"


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_in_the_table(name):
    assert name == "ndjson" or name in [each for each, _ in FILES], "NDJSON has the values of JSON"

"""Readers that know nothing of our writers: every format is read back with these and compared cell by cell.

A table is a list of headers and a list of rows. A CSV field is text or None (empty and unquoted); a JSON
number stays its digits, as `Digits`, so that no reader can round what the file says.
"""

from __future__ import annotations

import csv
import functools
import gzip
import io
import json
import re
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import NamedTuple
from xml.etree import ElementTree as ET

import duckdb

from haulage.core.catalogue import Column
from haulage.formats import COMPRESSIONS, FORMATS, resolve_options
from haulage.formats.format import LooksFirst

BOM = b"\xef\xbb\xbf"
Table = tuple[list[str], list[list[object]]]

csv.field_size_limit(2**31 - 1)


class Digits(NamedTuple):
    """A JSON number as it stands in the file."""

    text: str


class File(NamedTuple):
    """What an encoder made of rows."""

    data: bytes
    notices: dict[str, int]
    trailer: bytes


def columns(*headers: str, types: Mapping[str, str] | None = None) -> list[Column]:
    return [Column(header, header, (types or {}).get(header)) for header in headers]


def write(
    format: str,
    headers: Sequence[str] | Sequence[Column],
    rows: Sequence[tuple[object, ...]],
    batch: int = 3,
    **options: str,
) -> File:
    """Write rows as a build does: begin, batches, end."""
    declared = [header if isinstance(header, Column) else Column(header, header) for header in headers]
    encoder = FORMATS[format].open(declared, resolve_options(FORMATS[format], options))
    if isinstance(encoder, LooksFirst):
        for first in range(0, len(rows), batch):
            encoder.look(rows[first : first + batch])
    chunks = [encoder.begin()]
    chunks += [encoder.rows(rows[first : first + batch]) for first in range(0, len(rows), batch)]
    chunks.append(encoder.end())
    return File(b"".join(chunks), dict(encoder.notices.items()), encoder.trailer)


def read_csv(data: bytes, line_end: str) -> Table:
    """RFC 4180 to the letter, and NULL told from the empty text; anything loose in the file is an error."""
    text = data.removeprefix(BOM).decode()
    field = re.compile(rf'"((?:[^"]|"")*)"(?=,|{line_end})|([^",\r\n]*)(?=,|{line_end})')
    rows: list[list[object]] = [[]]
    at = 0
    while at < len(text):
        found = field.match(text, at)
        assert found, f"not CSV at {at}: {text[at : at + 40]!r}"
        quoted, bare = found.groups()
        rows[-1].append(quoted.replace('""', '"') if quoted is not None else bare or None)
        at = found.end()
        if text.startswith(line_end, at):
            at += len(line_end)
            rows.append([])
        else:
            at += 1
    assert rows.pop() == [], "the last line has no end"
    return [str(header or "") for header in rows[0]], rows[1:]


def read_with_csv_module(data: bytes) -> Table:
    """What most programs see. An empty line is a row of one empty field."""
    headers, *rows = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
    return headers, [list(row) or [""] for row in rows]


def _refuse(constant: str) -> None:
    raise ValueError(constant)


_JSON = json.JSONDecoder(
    parse_int=Digits, parse_float=Digits, parse_constant=_refuse, object_pairs_hook=lambda pairs: pairs
)


def _table(objects: Sequence[Sequence[tuple[str, object]]]) -> Table:
    headers = [name for name, _ in objects[0]] if objects else []
    assert all([name for name, _ in pairs] == headers for pairs in objects), "keys or their order differ"
    return headers, [[value for _, value in pairs] for pairs in objects]


def read_json(data: bytes) -> Table:
    return _table(_JSON.decode(data.decode()))


def read_ndjson(data: bytes) -> Table:
    lines = data.decode().split("\n")
    assert lines.pop() == "", "the last line has no end"
    return _table([_JSON.decode(line) for line in lines])


_SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


def read_xlsx(data: bytes) -> Table:
    """A workbook of one sheet as ECMA-376 says it; a number stays its digits, an empty cell is None and no text."""
    archive = zipfile.ZipFile(io.BytesIO(data))
    assert archive.testzip() is None
    looks = [look.get("numFmtId") for look in ET.fromstring(archive.read("xl/styles.xml")).iter(f"{_SHEET}xf")]
    codes = ET.fromstring(archive.read("xl/styles.xml")).iter(f"{_SHEET}numFmt")
    formats = {code.get("numFmtId"): code.get("formatCode", "") for code in codes}
    looks = looks[1:]  # the first is a style of cells, not a look of one
    rows: list[list[object]] = []
    for number, row in enumerate(ET.fromstring(archive.read("xl/worksheets/sheet1.xml")).iter(f"{_SHEET}row"), 1):
        assert row.get("r") == str(number)
        cells = list(row)
        assert [cell.get("r") for cell in cells] == [f"{letters(place)}{number}" for place in range(len(cells))]
        rows.append([_cell(cell, formats.get(looks[int(cell.get("s", "0"))], "")) for cell in cells])
    return [str(header) for header in rows[0]], rows[1:]


def letters(place: int) -> str:
    """The name of a column, counted from 0."""
    return (letters(place // 26 - 1) if place >= 26 else "") + chr(ord("A") + place % 26)


def _cell(cell: ET.Element, format: str) -> object:
    kind = cell.get("t", "n")
    assert cell.find(f"{_SHEET}f") is None, "a formula"
    value = cell.findtext(f"{_SHEET}v")
    if kind == "inlineStr":
        text = cell.findtext(f"{_SHEET}is/{_SHEET}t")
        return re.sub("_x([0-9A-F]{4})_", lambda found: chr(int(found[1], 16)), text or "")
    if kind == "b":
        return {"0": False, "1": True}[str(value)]
    if value is None:
        return None
    if not format:
        return Digits(value)
    whole = datetime(1899, 12, 30) + timedelta(milliseconds=round(Fraction(value) * 86_400_000))  # noqa: DTZ001
    if format.startswith("hh"):
        return whole.time()
    if "UTC" in format:
        return whole.replace(tzinfo=UTC)
    return whole if "hh" in format else whole.date()


def read_parquet(data: bytes) -> Table:
    """As DuckDB sees it, which has a reader of its own; moments with a zone as their instants."""
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file, _database().cursor() as database:
        file.write(data)
        file.flush()
        schema = database.execute("select name from parquet_schema(?)", [file.name]).fetchall()
        names = [name for (name,) in schema][1:]  # the first is the root
        known = database.execute("describe select * from read_parquet(?)", [file.name]).fetchall()
        quoted = [(column.replace('"', '""'), "ZONE" in type) for column, type, *_ in known]
        shown = [f'epoch_us("{column}")' if zone else f'"{column}"' for column, zone in quoted]
        rows = database.execute(f"select {', '.join(shown)} from read_parquet(?)", [file.name]).fetchall()
    zoned = [zone for _, zone in quoted]
    return names, [
        [_instant(cell) if at and cell is not None else cell for at, cell in zip(zoned, row, strict=True)]
        for row in rows
    ]


@functools.cache
def _database() -> duckdb.DuckDBPyConnection:
    """One for all files, since to open it takes longer than to read most; without threads of its own."""
    return duckdb.connect(config={"threads": 1})


def _instant(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


READERS: Mapping[str, Callable[[bytes, Mapping[str, str]], Table]] = {  # a new format needs a line here
    "csv": lambda data, options: read_csv(data, "\n" if options["dialect"] == "exact" else "\r\n"),
    "json": lambda data, _: read_json(data),
    "ndjson": lambda data, _: read_ndjson(data),
    "parquet": lambda data, _: read_parquet(data),
    "xlsx": lambda data, _: read_xlsx(data),
}


def _unzstd(data: bytes) -> bytes:
    try:
        from compression import zstd
    except ImportError:
        from backports import zstd

    return zstd.decompress(data)


UNPACK: Mapping[str, Callable[[bytes], bytes]] = {  # and a new compression one here
    "gzip": gzip.decompress,
    "zstd": _unzstd,
}


def pack(name: str, data: bytes, chunk: int = 1000) -> bytes:
    """Compress as a build does, chunk by chunk."""
    compressor = COMPRESSIONS[name].open()
    chunks = [compressor.compress(data[first : first + chunk]) for first in range(0, len(data), chunk)]
    return b"".join([*chunks, compressor.finish()])

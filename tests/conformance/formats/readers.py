"""Readers that know nothing of our writers: every format is read back with these and compared cell by cell.

A table is a list of headers and a list of rows. A CSV field is text or None (empty and unquoted); a JSON
number stays its digits, as `Digits`, so that no reader can round what the file says.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from haulage.core.catalogue import Column
from haulage.formats import COMPRESSIONS, FORMATS, resolve_options

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


READERS: Mapping[str, Callable[[bytes, Mapping[str, str]], Table]] = {  # a new format needs a line here
    "csv": lambda data, options: read_csv(data, "\n" if options["dialect"] == "exact" else "\r\n"),
    "json": lambda data, _: read_json(data),
    "ndjson": lambda data, _: read_ndjson(data),
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

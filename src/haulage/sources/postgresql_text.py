"""What the server can be asked to make by COPY, and for whom: a file of CSV, or text that an encoder reads on.

``csv`` is the file as it is. ``fields`` is the same with bytes as the server writes them, for encoders with columns.
``json_fields`` is CSV in which every cell is JSON but for its control characters: it has JSON's quotes, and where it
escapes one, JSON does so too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from haulage.core.reading import BARE, CELL_END
from haulage.sources.postgresql_rows import Kind

LARGE = 2_048  # bytes of a row that ends a piece
ROWS = 1_024  # of a piece; no more, so that progress is told of a slow one too
ROWS_OF_COLUMNS = 4_096  # of a piece that is read into columns, of which there are many before any is written
CELLS_OF_COLUMNS = 262_144
CELLS = 16_384  # of a piece whose cells are held one by one; with more, their memory is given back and taken each time


class Copied(NamedTuple):
    """How to copy: the options of the statement, and how many rows are a piece."""

    options: str
    rows: int


def copied_name(place: int) -> str:
    """What a column is called in the statement."""
    return f"c{place}"


def copied_as(profile: str, kinds: Sequence[Kind], declared: Sequence[str]) -> Copied | None:
    """How a profile is copied, if it can be.

    Args:
        declared: types that the dataset has for some of its columns; what reads text goes by those of the server.
    """
    if profile == "csv":
        # Bytes are base64 in our files, with a notice that counts them.
        return None if any(kind.type == "bytes" for kind in kinds) else Copied("format csv", ROWS)
    if declared:
        return None
    if profile == "fields":
        return Copied("format csv", max(1, min(ROWS_OF_COLUMNS, CELLS_OF_COLUMNS // len(kinds))))
    if profile == "json_fields":
        quoted = [copied_name(place) for place, kind in enumerate(kinds) if kind.type not in BARE]
        forced = f", force_quote ({', '.join(quoted)})" if quoted else ""
        mark = f"delimiter E'\\x{ord(CELL_END):02x}'"
        options = f"format csv, {mark}, null 'null', quote '\"', escape E'\\\\'{forced}"
        return Copied(options, max(1, min(2 * ROWS, CELLS // len(kinds))))
    return None

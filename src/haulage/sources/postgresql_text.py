"""What the server can be asked to make by COPY, and for whom: a file of CSV, or text that an encoder reads on.

``csv`` is the file as it is. ``fields`` is the same with bytes as the server writes them, for encoders with columns.
``json_fields`` is CSV in which every cell is JSON but for its control characters: it has JSON's quotes, and where it
escapes one, JSON does so too.
"""

from __future__ import annotations

from collections.abc import Sequence

from haulage.core.reading import BARE, CELL_END
from haulage.sources.postgresql_rows import Kind


def copied_name(place: int) -> str:
    """What a column is called in the statement."""
    return f"c{place}"


def copied_as(profile: str, kinds: Sequence[Kind], declared: Sequence[str]) -> str | None:
    """The options of the statement that copies a profile, if it can be.

    Args:
        declared: types that the dataset has for some of its columns; what reads text goes by those of the server.
    """
    if profile == "csv":
        # Bytes are base64 in our files, with a notice that counts them.
        return None if any(kind.type == "bytes" for kind in kinds) else "format csv"
    if declared:
        return None
    if profile == "fields":
        return "format csv"
    if profile == "json_fields":
        quoted = [copied_name(place) for place, kind in enumerate(kinds) if kind.type not in BARE]
        forced = f", force_quote ({', '.join(quoted)})" if quoted else ""
        mark = f"delimiter E'\\x{ord(CELL_END):02x}'"
        return f"format csv, {mark}, null 'null', quote '\"', escape E'\\\\'{forced}"
    return None

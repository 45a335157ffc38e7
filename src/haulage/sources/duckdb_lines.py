"""CSV that DuckDB builds itself: each row is one text, a line of the file, in half the time of ours.

Each field is written as our encoder writes it: quoted where it must be and nowhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from haulage.sources.duckdb_types import Kind, sized

if TYPE_CHECKING:
    from haulage.sources.duckdb_session import Session

CHUNK_ROWS = 512
CHUNK_BYTES = 256 * 1024
MARKS = ("'\"'", "','", "chr(10)", "chr(13)")  # for which a field is quoted
WITHOUT_MARKS = frozenset(("integer", "decimal", "boolean", "date", "timestamp"))  # types in whose text there is none


def field(kind: Kind, column: str, *, alone: bool) -> str | None:
    r"""The SQL of a column as a field; None where DuckDB would not write it as we do.

    Args:
        alone: it is the only field of its line, where a bare ``\.`` is quoted too.
    """
    if kind.type == "bytes" or kind.mend is not None:
        return None
    text = f"{column}::varchar" if kind.cast is None else kind.written(column)
    if kind.type in WITHOUT_MARKS:
        return f"ifnull({text}, '')"
    if kind.type == "float":
        finite, other = f"when isfinite({column}) then {text}", f"when isnan({column}) then 'NaN'"
        infinite = f"when {column} > 0 then 'Infinity' else '-Infinity'"
        return f"case when {column} is null then '' {finite} {other} {infinite} end"
    marked = " or ".join([f"contains({text}, {mark})" for mark in MARKS] + ([rf"{text} = '\.'"] if alone else []))
    quoted = f"'\"' || replace({text}, '\"', '\"\"') || '\"'"
    return (
        f"case when {column} is null then '' when {text} = '' then '\"\"' when {marked} then {quoted} else {text} end"
    )


def line_of(fields: Sequence[str]) -> str:
    """A line; no field is NULL."""
    return " || ',' || ".join(fields)


class LineStream:
    """The lines of one query; implements ``core.source.Stream``."""

    def __init__(self, session: Session, sql: str, binds: Mapping[str, Any], replaced: Counter[str]) -> None:
        """Remember what to ask; ``replaced`` counts what no text of a file can hold."""
        self._session = session
        self._sql = sql
        self._binds = binds
        self._replaced = replaced
        self.rows = 0

    def chunks(self) -> Generator[bytes, None, None]:
        """Whole rows, in bounded pieces."""
        with closing(self._session.rows(self._sql, self._binds, CHUNK_ROWS)) as fetched:
            for rows in fetched:
                for piece in sized(rows, (0,), CHUNK_BYTES):
                    self.rows += len(piece)
                    yield self._chunk([line for (line,) in piece])

    def _chunk(self, lines: list[str]) -> bytes:
        text = "\n".join(lines) + "\n"
        if "\0" in text:
            self._replaced["text_replaced"] += text.count("\0")
            text = text.replace("\0", "\ufffd")
        return text.encode()

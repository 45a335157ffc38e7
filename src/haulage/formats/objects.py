"""Rows as JSON objects, shared by json.py and ndjson.py. The single values are in json_values.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING, Any

from haulage.formats.cells import NUMBERS_OR_NULL, TEXT_OR_NULL, as_decimals, joined
from haulage.formats.format import About, Notices, Option
from haulage.formats.json_values import JsonValues, is_plain

if TYPE_CHECKING:
    from haulage.core.catalogue import Column
    from haulage.formats.json_text import TextLines

NUMBERS_OPTION = Option("numbers", ("number", "string"), "number", "Decimals and long integers")


class Objects:
    """The rows of one file, each as the text of one JSON object without a line break in it."""

    profile = "json_fields"  # see json_text.py

    def __init__(
        self, columns: Sequence[Column], options: Mapping[str, str], notices: Notices, about: About, between: bytes
    ) -> None:
        """``between`` stands from each row to the next."""
        headers = [column.header for column in columns]
        assert headers, "a file has at least one column"
        assert len(set(headers)) == len(headers), "headers are made distinct before a file is opened"
        self._values = JsonValues(notices, long_numbers_as_text=options["numbers"] == "string")
        self._names = [self._values.text(header) + ":" for header in headers]
        self._types = [column.type for column in columns]
        self._columns, self._options, self._about, self._between = columns, options, about, between
        self._lines: TextLines | None = None

    def texts(self, batch: Sequence[tuple[object, ...]]) -> Iterator[str]:
        """One text a row.

        The columns are written one by one, and a row is then joined from its values and what stands between
        them, which is the same in every row. This is about twice as fast as json.dumps of a list of dicts.
        """
        parts: list[Iterable[str]] = []
        lead = "{"
        columns = zip(*batch, strict=True)
        for name, declared, cells in zip(self._names, self._types, columns, strict=True):
            known = as_decimals(cells) if declared == "decimal" else cells
            mark, texts = self._column(known, is_document=declared == "json")
            parts += (repeat(lead + name + mark), texts)
            lead = mark + ","
        parts.append(repeat(lead[:-1] + "}"))
        return map("".join, zip(*parts, strict=False))  # what stands between is endless, the cells end it

    def text(self, data: bytes, rows: int, start: bytes, end: bytes) -> bytes:
        """Rows that come as text of a source, as ``texts`` would join them, with what stands before and behind."""
        if self._lines is None:
            from haulage.formats.json_text import text_lines

            self._lines = text_lines(
                self._names,
                self._columns,
                self._values,
                self._between,
                long_as_text=self._options["numbers"] == "string",
                total=self._about.total,
            )
        return self._lines.joined(data, rows, start, end)

    def _column(self, cells: Sequence[Any], *, is_document: bool) -> tuple[str, Iterable[str]]:
        """The cells as JSON, and the mark that is still to stand on both sides of each."""
        text = joined(cells)
        if text is not None and not is_document:
            if is_plain(text):
                return '"', cells
            if "\0" not in text:
                return "", map(quoted, cells)
        kinds = set(map(type, cells))
        if kinds <= NUMBERS_OR_NULL:
            return "", self._values.numbers(cells, kinds)
        if kinds <= TEXT_OR_NULL and not is_document:
            string = self._values.string
            return "", ["null" if cell is None else string(cell) for cell in cells]
        writers = {kind: self._values.writer(kind) for kind in kinds}
        if is_document and str in writers:
            writers[str] = self._values.document
        return "", [writers[type(cell)](cell) for cell in cells]

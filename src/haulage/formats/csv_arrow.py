"""CSV of the dialects without a guard out of Arrow's batches: column by column in C, without the GIL.

Numbers and texts become columns of fields, and those are joined to lines in one buffer. What has a special spelling,
or a notice, is left to ``csv.py``: the whole file is then written by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from orjson import OPT_SERIALIZE_NUMPY, dumps
from pyarrow import compute

from haulage.formats.format import Unfit

MARKS = (b'"', b",", b"\n", b"\r")  # for which a field is quoted
_QUOTE, _NOTHING, _COMMA = (pa.scalar(mark) for mark in ('"', "", ","))
_COMMAS = ord(",")
SPECIAL = (b"e", b"n", b"0.0000")  # in what orjson writes: spelled otherwise by Python, or not finite


def lines(batch: pa.RecordBatch, end: str) -> bytes:
    """The lines of a batch of integers, floats and texts; no file of one column, whose NULL is no empty field.

    Raises:
        Unfit: these rows must be written as values.
    """
    fields = [_fields(columns) for columns in _alike(batch.columns)]
    joined: Any = compute.binary_join_element_wise(*fields, _COMMA, null_handling="replace", null_replacement="")
    text = _data(compute.binary_join(pa.ListArray.from_arrays(pa.array([0, len(joined)], pa.int32()), joined), end))
    if b"\0" in text:
        raise Unfit("NUL")
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError as problem:
            raise Unfit("no UTF-8") from problem
    return text + end.encode()


def _alike(columns: Sequence[Any]) -> Iterator[list[Any]]:
    """Columns of numbers that stand side by side and have no NULL, together; each other one alone."""
    for kind, found in groupby(columns, lambda column: column.type):
        several = list(found)
        if pa.types.is_string(kind) or any(column.null_count for column in several):
            yield from ([column] for column in several)
        else:
            yield several


def _fields(columns: Sequence[Any]) -> Any:
    """For each row what the file has between two commas, or for several columns with those between them."""
    first, *others = columns
    if pa.types.is_string(first.type):
        return _texts(first)
    if pa.types.is_int64(first.type) and not others:
        return compute.cast(first, pa.string())
    if first.null_count == len(first):
        return pa.nulls(len(first), pa.string())
    if first.null_count:
        present = _numbers([compute.drop_null(first)])
        return compute.replace_with_mask(pa.nulls(len(first), pa.string()), compute.is_valid(first), present)
    return _numbers(columns)


def _numbers(columns: Sequence[Any]) -> Any:
    """Numbers as Python spells them, found between the commas of one text."""
    width, rows = len(columns), len(columns[0])
    kind = np.int64 if pa.types.is_int64(columns[0].type) else np.float64
    values = [np.frombuffer(column.buffers()[1], kind, rows, 8 * column.offset) for column in columns]
    text = dumps(values[0] if width == 1 else np.stack(values, axis=1).ravel(), option=OPT_SERIALIZE_NUMPY)
    if kind is np.float64 and any(word in text for word in SPECIAL):
        raise Unfit("a float with an exponent, or none that is finite")
    commas = np.flatnonzero(np.frombuffer(text, np.uint8) == _COMMAS)[width - 1 :: width]
    ends = np.empty(2 * rows, np.int32)  # of fields, comma, fields, comma, …, fields
    ends[0], ends[-1] = 1, len(text) - 1
    ends[1:-1:2], ends[2:-1:2] = commas, commas + 1
    pieces = pa.Array.from_buffers(pa.string(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(text)])
    return pieces.take(pa.array(np.arange(0, len(ends), 2)))


def _texts(column: Any) -> Any:
    """Texts, with quotes around those that need them; NULL stays NULL."""
    raw = _data(column)
    needs: Any = compute.equal(compute.binary_length(column), 0)
    needs = needs if compute.any(needs).as_py() else None
    for mark in MARKS:
        if mark in raw:
            found = compute.match_substring(column, mark.decode())
            needs = found if needs is None else compute.or_(needs, found)
    if needs is None:
        return column
    needs = compute.fill_null(needs, fill_value=False)
    texts = column.filter(needs)
    if b'"' in raw:
        texts = compute.replace_substring(texts, '"', '""')
    quoted: Any = compute.binary_join_element_wise(_QUOTE, texts, _QUOTE, _NOTHING)
    return compute.replace_with_mask(column, needs, quoted)


def _data(texts: Any) -> bytes:
    """The bytes of all texts in a row; what stands under a NULL may be among them."""
    start, end = (
        int(np.frombuffer(texts.buffers()[1], np.int32, 1, 4 * (texts.offset + place))[0]) for place in (0, len(texts))
    )
    return memoryview(texts.buffers()[2])[start:end].tobytes() if end > start else b""

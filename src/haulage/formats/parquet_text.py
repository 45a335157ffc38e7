"""Rows of a Parquet file out of the CSV text of PostgreSQL: Arrow reads it, and no value of Python is made.

The types of the columns are those of the server, which hold every one of its values but a few: NaN in a column of
decimals, infinite days, years before 1 or after 9999, midnight as 24:00. Where one comes the text is ``Unfit``, and the
rows are read as values, as those of any source, by which such a column is text. So this is faster and never otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import compute, csv

from haulage.formats.cells import WRITTEN_AS_TEXT
from haulage.formats.format import Unfit
from haulage.formats.parquet_columns import DIGITS, decimal_of

if TYPE_CHECKING:
    from haulage.core.reading import Column
    from haulage.formats.format import Notices

_MEASURED = re.compile(r"numeric\(([0-9]+),([0-9]+)\)")
_TYPES = {  # what columns are to us -> what they are in the file
    "integer": pa.int64(),
    "float": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "bytes": pa.binary(),
    "json": pa.string(),
}
_NULL_UUID = "00000000-0000-0000-0000-000000000000"
BLOCK_BYTES = 512 * 1024  # that are read at once: each reading has its price, in memory too
BLOCKS_BYTES = 64 * 1024 * 1024  # for all text columns of a block: until it is read, each takes as much as the whole
_PARSING = csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)  # an empty line is a row of one NULL


class TextColumn:
    """One column: how Arrow reads it, and what has to be done then."""

    def __init__(self, header: str, column: Column, notices: Notices) -> None:
        self.header = header
        self._notices = notices
        self._is_foreign = column.foreign
        self.is_measured = column.type != "decimal"
        self._whole = self._scale = -1  # digits of decimals, in a column that does not say how many there may be
        self.type = _type_of(column)
        if column.type == "decimal" and (said := _MEASURED.fullmatch(column.native or "")):
            precision, scale = int(said[1]), int(said[2])
            if scale <= precision <= DIGITS:
                self.is_measured, self.type = True, pa.decimal128(precision, scale)

    @property
    def read_as(self) -> pa.DataType:
        """The type in which Arrow reads the text."""
        return pa.string() if self.type in (pa.uuid(), pa.binary()) else self.type

    def measure(self, texts: pa.Array) -> None:
        """Look at decimals of any length, so that ``settle`` knows the type that holds them."""
        texts = texts.drop_null()
        if not len(texts):
            return
        if compute.any(compute.match_substring_regex(texts, "[^-.0-9]")).as_py():
            raise Unfit
        points, lengths = compute.find_substring(texts, "."), compute.binary_length(texts)
        behind = compute.if_else(compute.less(points, 0), 0, compute.subtract(compute.subtract(lengths, points), 1))
        self._scale = max(self._scale, compute.max(behind).as_py())
        short = compute.utf8_ltrim(texts, "-0")
        points, lengths = compute.find_substring(short, "."), compute.binary_length(short)
        self._whole = max(self._whole, compute.max(compute.if_else(compute.less(points, 0), lengths, points)).as_py())

    def settle(self) -> None:
        """After all was looked at, the type; a column without a value stays text."""
        if self.is_measured or self._scale < 0:
            return
        found = decimal_of(self._whole, self._scale)
        if found is None:
            raise Unfit
        self.type = found

    def finished(self, cells: pa.Array) -> pa.Array:
        """What was read, as what is written."""
        if self._is_foreign:
            self._notices.count(WRITTEN_AS_TEXT, len(cells) - cells.null_count, column=self.header)
        if self.type == pa.uuid():
            return pa.ExtensionArray.from_storage(self.type, _uuids(cells))
        return _bytes(cells) if self.type == pa.binary() else cells


class TextColumns:
    """The columns of a file that are read as text; ``look`` where types are not known, or to be sure of them."""

    def __init__(self, headers: Sequence[str], columns: Sequence[Column], notices: Notices) -> None:
        self._columns = [TextColumn(*each, notices) for each in zip(headers, columns, strict=True)]
        self._places = [str(place) for place in range(len(columns))]  # headers may hold anything
        texts = sum(column.read_as == pa.string() for column in self._columns)
        self.block_bytes = min(BLOCK_BYTES, BLOCKS_BYTES // max(texts, 1))

    @property
    def are_measured(self) -> bool:
        """Whether all types are known without a look."""
        return all(column.is_measured for column in self._columns)

    def look(self, data: bytes) -> None:
        """Try to read, and measure.

        Raises:
            Unfit: there is a value that is not of its column's type.
        """
        batch = self._read(data)
        for column, cells in zip(self._columns, batch.columns, strict=True):
            if not column.is_measured:
                column.measure(cells)

    def schema(self, metadata: dict[str, str] | None) -> pa.Schema:
        """The types, settled."""
        for column in self._columns:
            column.settle()
        return pa.schema([(column.header, column.type) for column in self._columns], metadata=metadata)

    def batch(self, data: bytes, schema: pa.Schema) -> pa.RecordBatch:
        """Whole rows of text as columns.

        Raises:
            Unfit: there is a value that is not of its column's type.
        """
        columns = zip(self._columns, self._read(data).columns, strict=True)
        return pa.record_batch([column.finished(cells) for column, cells in columns], schema=schema)

    def _read(self, data: bytes) -> pa.RecordBatch:
        size = len(data) + 1  # one block, as a row may be longer than any that one would choose
        reading = csv.ReadOptions(use_threads=False, column_names=self._places, block_size=size)
        types = {place: column.read_as for place, column in zip(self._places, self._columns, strict=True)}
        converting = csv.ConvertOptions(
            column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        )
        try:
            (batch,) = csv.read_csv(pa.BufferReader(data), reading, _PARSING, converting).to_batches()
        except pa.ArrowInvalid as problem:
            raise Unfit from problem
        return _close_together(batch)


def _close_together(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same in one piece of memory, unless its rows are very long.

    Each text column took as much as the whole block and gave back all but a little: until a row group is full, such
    gaps would add up.
    """
    if batch.nbytes > 2 * BLOCK_BYTES:
        return batch
    return pa.ipc.read_record_batch(batch.serialize(), batch.schema)


def _type_of(column: Column) -> pa.DataType:
    native = column.native or ""
    if column.type == "timestamp":
        return pa.timestamp("us", "UTC" if native.endswith("with time zone") else None)
    if column.type is None and native == "uuid":
        return pa.uuid()
    if column.type is None and re.fullmatch(r"time(\([0-6]\))? without time zone", native):
        return pa.time64("us")
    return _TYPES.get(column.type or "", pa.string())


def _uuids(cells: pa.Array) -> pa.Array:
    """Their sixteen bytes, out of one text of all of them."""
    whole = compute.binary_join(_as_list(compute.fill_null(cells, _NULL_UUID)), "")[0].as_py()
    packed = bytes.fromhex(whole.replace("-", ""))
    return _like(cells, pa.binary(16), [pa.py_buffer(packed)])


def _bytes(cells: pa.Array) -> pa.Array:
    r"""Of what the server writes as ``\x00ff``."""
    digits = compute.utf8_slice_codeunits(compute.fill_null(cells, ""), 2)
    packed = bytes.fromhex(compute.binary_join(_as_list(digits), "")[0].as_py())
    lengths = compute.cast(compute.divide(compute.binary_length(digits), 2), pa.int32())
    ends = compute.cumulative_sum(lengths)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return _like(cells, pa.binary(), [offsets.buffers()[1], pa.py_buffer(packed)])


def _as_list(cells: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, len(cells)], pa.int32()), cells)


def _like(cells: pa.Array, kind: pa.DataType, buffers: list[Any]) -> pa.Array:
    """An array of these buffers that is NULL where the cells are."""
    valid = compute.is_valid(cells).buffers()[1] if cells.null_count else None
    return pa.Array.from_buffers(kind, len(cells), [valid, *buffers])

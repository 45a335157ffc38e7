"""Row groups of a Parquet file, cut by its rows alone: however they were batched, the same rows give the same bytes.

A group ends with the row that makes it ``GROUP_ROWS``, or ``GROUP_BYTES`` as they are counted here. Which columns
get a dictionary is decided once, by the first group: for one of mostly different values it is only in the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import compute, parquet

GROUP_ROWS = 65_536
GROUP_BYTES = 8 * 1024 * 1024  # of text, and of cells as counted here; packed they take several times as much memory
CELL_BYTES = 4  # of each; that of numbers is twice as much, but of texts all there is to hold
ALIKE = 16  # a column in which each value occurs so often, on average, gets a dictionary
AT_ONCE = 16_384  # values that go through the packing together; fewer take a tenth longer
_TEXTS = (pa.string(), pa.binary())


class Groups:
    """Takes record batches, writes row groups; ``held`` says how many rows are in none yet."""

    def __init__(self, target: Any, schema: pa.Schema, codec: str) -> None:
        self.held = 0
        self._target = target
        self._schema = schema
        self._codec = codec
        self._texts = [place for place, kind in enumerate(schema.types) if kind in _TEXTS]
        self._batches: list[pa.RecordBatch] = []
        self._size = 0
        self._writer: parquet.ParquetWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch; what completes a group is written."""
        while self._completes(batch, batch.num_rows):
            rows = self._rows_left(batch)
            self._keep(batch.slice(0, rows))
            batch = batch.slice(rows) if rows < batch.num_rows else None
            self._write()
            if batch is None:
                return
        if batch.num_rows:
            self._keep(batch)

    def close(self) -> None:
        """Write what is left, and the footer."""
        if self.held:
            self._write()
        (self._writer or self._opened(None)).close()

    def _keep(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self.held += batch.num_rows
        self._size += self._sized(batch, batch.num_rows)

    def _sized(self, batch: pa.RecordBatch, rows: int) -> int:
        """What so many rows of a batch count."""
        size: int = rows * batch.num_columns * CELL_BYTES
        for place in self._texts:
            column = batch.column(place)
            if rows:
                offsets = memoryview(column.buffers()[1]).cast("i")
                size += offsets[column.offset + rows] - offsets[column.offset]
        return size

    def _completes(self, batch: pa.RecordBatch, rows: int) -> bool:
        return self.held + rows >= GROUP_ROWS or self._size + self._sized(batch, rows) >= GROUP_BYTES

    def _rows_left(self, batch: pa.RecordBatch) -> int:
        """How many rows of a batch complete the group, by halving: the sizes only grow."""
        low, high = 1, batch.num_rows
        while low < high:
            middle = (low + high) // 2
            if self._completes(batch, middle):
                high = middle
            else:
                low = middle + 1
        return low

    def _write(self) -> None:
        """One row group, in one piece each column, so that its pages do not depend on the batches."""
        table = pa.Table.from_batches(self._batches, self._schema)
        self._batches.clear()
        group = table.combine_chunks()
        del table  # before it is packed: long texts are large
        writer = self._writer or self._opened(group)
        writer.write_table(group, row_group_size=self.held)
        self.held = self._size = 0

    def _opened(self, group: pa.Table | None) -> parquet.ParquetWriter:
        # Decimals that fit are kept as integers: a third of the time, and no reader that knows decimals minds.
        self._writer = parquet.ParquetWriter(
            self._target,
            self._schema,
            compression=self._codec,
            use_dictionary=[] if group is None else list(_alike(group)),
            store_decimal_as_integer=True,
            write_batch_size=AT_ONCE,
        )
        return self._writer


def _alike(group: pa.Table) -> Iterator[str]:
    for field, column in zip(group.schema, group.columns, strict=True):
        if field.type in (pa.bool_(), pa.uuid()):
            continue
        if compute.count_distinct(column, mode="all").as_py() * ALIKE <= group.num_rows:
            yield field.name

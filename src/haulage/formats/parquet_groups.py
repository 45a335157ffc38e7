"""Row groups of a Parquet file, cut by its rows alone: however they were batched, the same rows give the same bytes.

A group ends with the row that makes it ``GROUP_ROWS``, or ``GROUP_BYTES`` as they are counted here. Which columns
get a dictionary is decided once, by the first group: for one of mostly different values it is only in the way.
Each group is packed in a thread, while the next is gathered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyarrow import compute, parquet

GROUP_ROWS = 65_536
GROUP_BYTES = 8 * 1024 * 1024  # of text, and of cells as counted here; packed they take several times as much memory
CELL_BYTES = 4  # of each; that of numbers is twice as much, but of texts all there is to hold
ALIKE = 16  # a column in which each value occurs so often, on average, gets a dictionary
AT_ONCE = 16_384  # values that go through the packing together; fewer take a tenth longer
FEW_ROWS = 64  # of a full group: they are so long that it is packed before more is gathered
PIECE_BYTES = 1024 * 1024  # of the file, that are handed on at once: for each piece Arrow waits for Python
_TEXTS = (pa.string(), pa.binary())


class _Pieces:
    """What pyarrow writes to, until it is taken."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """What was written stays until it is taken."""

    def taken(self) -> bytes:
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data


class Groups:
    """Takes record batches, gives row groups; ``held`` says how many rows are in none that was given yet."""

    def __init__(self, schema: pa.Schema, codec: str) -> None:
        self._schema = schema
        self._codec = codec
        self._texts = [place for place, kind in enumerate(schema.types) if kind in _TEXTS]
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._size = 0
        self._packing: _Packing | None = None
        self._pieces = _Pieces()
        self._target = pa.output_stream(self._pieces, buffer_size=PIECE_BYTES)
        self._writer: parquet.ParquetWriter | None = None

    @property
    def held(self) -> int:
        """Rows that are gathered, or being packed."""
        return self._rows + (self._packing.rows if self._packing is not None else 0)

    def add(self, batch: pa.RecordBatch) -> bytes:
        """Take a batch; gives what was packed meanwhile."""
        packed = [] if self._packing is None or self._packing.is_alive() else [self._packed()]
        while self._completes(batch, batch.num_rows):
            rows = self._rows_left(batch)
            self._keep(batch.slice(0, rows))
            batch = batch.slice(rows) if rows < batch.num_rows else None  # without rows, it would hold all the others
            packed += [self._packed(), self._pack()]
            if batch is None:
                return b"".join(packed)
        if batch.num_rows:
            self._keep(batch)
        return b"".join(packed)

    def close(self) -> bytes:
        """The rest of the file: what is left, and the footer."""
        packed = [self._packed()]
        if self._rows:
            packed += [self._pack(), self._packed()]
        (self._writer or self._opened(None)).close()
        self._target.close()
        return b"".join([*packed, self._pieces.taken()])

    def _keep(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._rows += batch.num_rows
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
        return self._rows + rows >= GROUP_ROWS or self._size + self._sized(batch, rows) >= GROUP_BYTES

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

    def _pack(self) -> bytes:
        """Begin to pack what was gathered; where its rows are so long that it is done at once, gives it."""
        batches, rows = self._batches, self._rows
        self._batches, self._rows, self._size = [], 0, 0
        if rows < FEW_ROWS:
            return self._written(batches)
        self._packing = _Packing(self._written, batches, rows)
        self._packing.start()
        return b""

    def _packed(self) -> bytes:
        """The group that is being packed, once it is."""
        packing, self._packing = self._packing, None
        return b"" if packing is None else packing.packed()

    def _written(self, batches: list[pa.RecordBatch]) -> bytes:
        """One row group, in one piece each column, so that its pages do not depend on the batches."""
        table = pa.Table.from_batches(batches, self._schema)
        batches.clear()
        group = table.combine_chunks()
        del table  # before it is packed: long texts are large
        writer = self._writer or self._opened(group)
        writer.write_table(group, row_group_size=group.num_rows)
        self._target.flush()
        return self._pieces.taken()

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


class _Packing(threading.Thread):
    """One group in the making. Arrow lets the other threads run meanwhile."""

    def __init__(
        self, write: Callable[[list[pa.RecordBatch]], bytes], batches: list[pa.RecordBatch], rows: int
    ) -> None:
        super().__init__(daemon=True, name="packing")
        self.rows = rows
        self._write = write
        self._batches = batches
        self._data = b""
        self._problem: BaseException | None = None

    def run(self) -> None:
        try:
            self._data = self._write(self._batches)
        except BaseException as problem:  # noqa: BLE001 - it is raised where the group is taken
            self._problem = problem

    def packed(self) -> bytes:
        """Its bytes, once all are there."""
        self.join()
        if self._problem is not None:
            raise self._problem
        return self._data

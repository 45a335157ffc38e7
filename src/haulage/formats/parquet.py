"""Parquet: row groups with statistics, and in the file's own metadata the instant that it shows.

Which type a column has is decided in parquet_columns.py, in a first reading of all rows; ``look`` gets them. Rows are
kept until they are a row group, so ``held`` says how many of those taken are not in the file yet. Needs pyarrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from haulage.core.reading import TAIL_BYTES
from haulage.formats.format import ABOUT_NOTHING, About, Format, Notices, Option

if TYPE_CHECKING:
    from haulage.core.catalogue import Column

GROUP_ROWS = 65_536
GROUP_BYTES = 16 * 1024 * 1024  # of the values in memory, which they take several times while they are packed
SNAPSHOT_KEY = "haulage.snapshot_at"
INSTALL = "pip install 'haulage[parquet]'"
LEAST_MEMORY = 256 * 1024 * 1024  # of address space; with less pyarrow does not fail but ends the process


class _Pieces:
    """What pyarrow writes to; the encoder takes it from here."""

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


class ParquetEncoder:
    """One Parquet file in the making; implements ``LooksFirst``."""

    def __init__(self, columns: Sequence[Column], options: Mapping[str, str], about: About = ABOUT_NOTHING) -> None:
        assert columns, "a file has at least one column"
        _refuse_where_it_cannot_be()
        from haulage.formats.cells import known_type
        from haulage.formats.parquet_columns import ParquetColumn

        self.notices = Notices()
        self.held = 0
        self.trailer = b""
        headers = _readable_headers(columns, self.notices)
        self._columns = [
            ParquetColumn(header, known_type(column), self.notices)
            for header, column in zip(headers, columns, strict=True)
        ]
        self._about = about
        self._codec = options["codec"]
        self._pieces = _Pieces()
        self._batches: list[Any] = []
        self._bytes = 0

    def look(self, batch: Sequence[tuple[object, ...]]) -> None:
        if batch:
            for column, cells in zip(self._columns, zip(*batch, strict=True), strict=True):
                column.look(cells)

    def begin(self) -> bytes:
        import pyarrow as pa
        from pyarrow import parquet

        from haulage.core.clock import rfc3339

        # Arrow's own keeps what it was given back: half as much again for long texts.
        pa.set_memory_pool(pa.system_memory_pool())
        at = rfc3339(self._about.snapshot_at)
        self._schema = pa.schema(
            [(column.header, column.settle()) for column in self._columns],
            metadata=None if at is None else {SNAPSHOT_KEY: at},
        )
        self._writer = parquet.ParquetWriter(self._pieces, self._schema, compression=self._codec)
        return self._pieces.taken()

    def rows(self, batch: Sequence[tuple[object, ...]]) -> bytes:
        if not batch:
            return b""
        import pyarrow as pa

        columns = zip(self._columns, zip(*batch, strict=True), strict=True)
        made = pa.record_batch([column.array(cells) for column, cells in columns], schema=self._schema)
        self._batches.append(made)
        self.held += made.num_rows
        self._bytes += made.nbytes
        while self.held >= GROUP_ROWS:
            self._write(GROUP_ROWS)
        if self._bytes >= GROUP_BYTES:
            self._write(self.held)
        return self._pieces.taken()

    def end(self) -> bytes:
        if self.held:
            self._write(self.held)
        self._writer.close()
        data = self._pieces.taken()
        self.trailer = data[-TAIL_BYTES:]  # the length of the footer and PAR1 stand last
        return data

    def _write(self, rows: int) -> None:
        """One row group, in one piece each column, so that its pages do not depend on the batches."""
        import pyarrow as pa

        table = pa.Table.from_batches(self._batches, self._schema)
        self._batches.clear()
        group, rest = table.slice(0, rows).combine_chunks(), table.slice(rows).combine_chunks()
        del table  # before it is packed: long texts are large
        self._writer.write_table(group, row_group_size=rows)
        self._batches = rest.to_batches()
        self.held -= rows
        self._bytes = sum(batch.nbytes for batch in self._batches)


def _refuse_where_it_cannot_be() -> None:
    import resource

    from haulage.core.errors import BuildFailed

    if missing := _missing():
        raise BuildFailed("library_missing", missing)
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if allowed != resource.RLIM_INFINITY and allowed < LEAST_MEMORY:
        said = (
            f"A Parquet file needs {LEAST_MEMORY // 1024**2} MiB of memory, and only {allowed // 1024**2} are allowed."
        )
        raise BuildFailed("out_of_memory", said)


def _readable_headers(columns: Sequence[Column], notices: Notices) -> list[str]:
    from haulage.formats.cells import mended

    return [mended(column.header, notices) for column in columns]


def _missing() -> str | None:
    try:
        return None if find_spec("pyarrow") else INSTALL
    except ValueError:  # it is there and is None: somebody keeps it from being loaded
        return INSTALL


FORMAT = Format(
    name="parquet",
    label="Parquet",
    media_type="application/vnd.apache.parquet",
    suffix=".parquet",
    options=(Option("codec", ("zstd", "snappy", "none"), "zstd", "Compression of its columns"),),
    open=ParquetEncoder,
    missing=_missing,
)

"""Parquet: row groups with statistics, and in the file's own metadata the instant that it shows.

Which type a column has is decided in parquet_columns.py, in a first reading of all rows; ``look`` gets them. Text of
PostgreSQL is read by parquet_text.py, which knows the types. Rows are kept until they are a row group
(parquet_groups.py), so ``held`` says how many of those taken are not in the file yet. Needs pyarrow.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

from haulage.core.reading import TAIL_BYTES
from haulage.formats.arrow import LEAST_MEMORY, allowed_memory, settle_memory
from haulage.formats.format import ABOUT_NOTHING, About, Format, Notices, Option

if TYPE_CHECKING:
    from haulage.core.catalogue import Column
    from haulage.formats.parquet_groups import Groups
    from haulage.formats.parquet_text import TextColumns

SNAPSHOT_KEY = "haulage.snapshot_at"
INSTALL = "pip install 'haulage[parquet]'"


class ParquetEncoder:
    """One Parquet file in the making; implements ``LooksFirst`` and ``TakesText``."""

    def __init__(self, columns: Sequence[Column], options: Mapping[str, str], about: About = ABOUT_NOTHING) -> None:
        assert columns, "a file has at least one column"
        _refuse_where_it_cannot_be()
        from haulage.formats.cells import known_type
        from haulage.formats.parquet_columns import ParquetColumn

        settle_memory()
        self.notices = Notices()
        self.trailer = b""
        headers = _readable_headers(columns, self.notices)
        self._columns = [
            ParquetColumn(header, known_type(column), self.notices, foreign=column.foreign)
            for header, column in zip(headers, columns, strict=True)
        ]
        self._about = about
        self._codec = options["codec"]
        self._groups: Groups | None = None
        self._source_columns = headers, columns
        self._texts: TextColumns | None = None
        self._waiting: list[bytes] = []
        self._waiting_bytes = self._waiting_rows = 0

    profile = "fields"

    @property
    def held(self) -> int:
        """Rows that are not in the file yet."""
        return self._waiting_rows + (self._groups.held if self._groups is not None else 0)

    def look(self, batch: Sequence[tuple[object, ...]]) -> None:
        if batch:
            for column, cells in zip(self._columns, zip(*batch, strict=True), strict=True):
                column.look(cells)

    def begin(self) -> bytes:
        """Nothing yet: how columns are packed is decided with the first group."""
        return b""

    def rows(self, batch: Sequence[tuple[object, ...]]) -> bytes:
        if not batch:
            return b""
        import pyarrow as pa

        groups = self._begun()
        columns = zip(self._columns, zip(*batch, strict=True), strict=True)
        del batch
        return groups.add(pa.record_batch([column.array(cells) for column, cells in columns], schema=self._schema))

    # -- rows as text --------------------------------------------------------------------------------------

    def must_look(self) -> bool:
        """Decimals without measures have no type before all were seen."""
        return not self._read_as_text().are_measured

    def look_text(self, data: bytes) -> None:
        if text := self._gathered(data, 0):
            self._read_as_text().look(text)

    def text(self, data: bytes, rows: int) -> bytes:
        texts = self._read_as_text()
        groups = self._begun()
        text = self._gathered(data, rows)
        del data
        if not text:
            return b""
        batch = texts.batch(text, self._schema)
        del text
        return groups.add(batch)

    def _gathered(self, data: bytes, rows: int) -> bytes:
        """Enough text to be read at once; at the end, where there is no data, what is left."""
        self._waiting.append(data)
        self._waiting_rows += rows
        self._waiting_bytes += len(data)
        if data and self._waiting_bytes < self._read_as_text().block_bytes:
            return b""
        text = b"".join(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = self._waiting_rows = 0
        return text

    def _read_as_text(self) -> TextColumns:
        if self._texts is None:
            from haulage.formats.parquet_text import TextColumns

            self._texts = TextColumns(*self._source_columns, self.notices)
        return self._texts

    # -- the file ------------------------------------------------------------------------------------------

    def _begun(self) -> Groups:
        if self._groups is None:
            import pyarrow as pa

            from haulage.core.clock import rfc3339
            from haulage.formats.parquet_groups import Groups

            at = rfc3339(self._about.snapshot_at)
            metadata = None if at is None else {SNAPSHOT_KEY: at}
            if self._texts is not None:
                self._schema = self._texts.schema(metadata)
            else:
                self._schema = pa.schema([(each.header, each.settle()) for each in self._columns], metadata=metadata)
            self._groups = Groups(self._schema, self._codec)
        return self._groups

    def end(self) -> bytes:
        data = self._begun().close()
        self.trailer = data[-TAIL_BYTES:]  # the length of the footer and PAR1 stand last
        return data


def _refuse_where_it_cannot_be() -> None:
    from haulage.core.errors import BuildFailed

    if missing := _missing():
        raise BuildFailed("library_missing", missing)
    allowed = allowed_memory()
    if allowed < LEAST_MEMORY:
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


def _load() -> None:
    """Arrow takes as long to load as a server to count a million rows."""
    if _missing() is None and allowed_memory() >= LEAST_MEMORY:
        threading.Thread(target=_load_arrow, daemon=True, name="load").start()


def _load_arrow() -> None:
    with suppress(Exception):  # it is met again, and said, when the file is opened
        import haulage.formats.parquet_groups
        import haulage.formats.parquet_text  # noqa: F401


FORMAT = Format(
    name="parquet",
    label="Parquet",
    media_type="application/vnd.apache.parquet",
    suffix=".parquet",
    options=(Option("codec", ("zstd", "snappy", "none"), "zstd", "Compression of its columns"),),
    open=ParquetEncoder,
    missing=_missing,
    load=_load,
)

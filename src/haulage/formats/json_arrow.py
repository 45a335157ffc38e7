"""The same lines by Arrow, where no cell needs a look: keys and cells are picked into one buffer, without the GIL.

A chunk is an array of texts whose ends are the places of its control characters: cell, mark, cell, mark, … The keys
stand before it in the same buffer. To take key, cell, key, cell, … is the file.
"""

from __future__ import annotations

import array
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import compute

from haulage.formats.arrow import settle_memory
from haulage.formats.json_text import TextLines

if TYPE_CHECKING:
    from haulage.core.catalogue import Column
    from haulage.formats.json_values import JsonValues

LARGE = 64 * 1024 * 1024  # a chunk; what is made of it must be found by offsets of 32 bits
CELLS = 1 << 18  # of a chunk, for each of which the order has 16 bytes
_SPACE = pa.scalar(32, pa.uint8())


class ArrowLines(TextLines):
    """Takes the plain chunks; any other goes the way of ``TextLines``."""

    def __init__(
        self, names: Sequence[str], columns: Sequence[Column], values: JsonValues, between: bytes, *, long_as_text: bool
    ) -> None:
        super().__init__(names, columns, values, between, long_as_text=long_as_text)
        settle_memory()
        keys = b"".join(self._leads)
        starts = array.array("i", [0])
        for lead in self._leads:
            starts.append(starts[-1] + len(lead))
        self._keys, self._starts = keys, starts.tobytes()
        # Of the place p of a mark, the two ends p and p + 1 as one number of 64 bits, behind the keys.
        self._pair = pa.scalar((1 << 32) + 1, pa.int64())
        self._shift = pa.scalar((1 << 32) + len(keys) * ((1 << 32) + 1), pa.int64())
        self._skipped = len(self._leads[0]) - len(self._first)
        self._order = pa.array([], pa.int32())

    def joined(self, data: bytes, rows: int, start: bytes, end: bytes) -> bytes:
        if self._special or rows * self._width > CELLS or len(data) > LARGE or sys.byteorder != "little":
            return super().joined(data, rows, start, end)
        taken = None if self._may_be_no_number(data) else self._taken(data, rows * self._width)
        if taken is None:
            return super().joined(data, rows, start, end)
        return b"".join((start, memoryview(taken)[self._skipped :], b"}", end))

    def _taken(self, data: bytes, cells: int) -> pa.Buffer | None:
        """Keys and cells, or None where some text has a control character."""
        signs = pa.Array.from_buffers(pa.uint8(), len(data), [None, pa.py_buffer(data)])
        marks = compute.indices_nonzero(compute.less(signs, _SPACE))
        if len(marks) != cells:
            return None
        pairs = compute.add(compute.multiply(marks.view(pa.int64()), self._pair), self._shift)
        offsets = self._starts + memoryview(pairs.buffers()[1])[: 8 * cells]
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._keys + data)]
        texts = pa.Array.from_buffers(pa.binary(), self._width + 2 * cells, buffers)
        taken: Any = compute.take(texts, self._ordered(cells), boundscheck=False)
        return taken.buffers()[2]

    def _ordered(self, cells: int) -> pa.Array:
        """Key, cell, key, cell, …, as places in the array."""
        if len(self._order) < 2 * cells:
            order = array.array("i", bytes(8 * cells))
            order[0::2] = array.array("i", range(self._width)) * (cells // self._width)
            order[1::2] = array.array("i", range(self._width, self._width + 2 * cells, 2))
            self._order = pa.Array.from_buffers(pa.int32(), 2 * cells, [None, pa.py_buffer(order.tobytes())])
        return self._order.slice(0, 2 * cells)

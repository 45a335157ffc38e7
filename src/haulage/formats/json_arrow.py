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
        pa.set_memory_pool(pa.system_memory_pool())
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

    def joined(self, data: bytes, rows: int) -> bytes:
        cells = rows * self._width
        if self._special or cells > CELLS or len(data) > LARGE or sys.byteorder != "little":
            return super().joined(data, rows)
        if self._decimals and (b"NaN" in data or b"Infinity" in data):
            return super().joined(data, rows)
        signs = pa.Array.from_buffers(pa.uint8(), len(data), [None, pa.py_buffer(data)])
        marks = compute.indices_nonzero(compute.less(signs, _SPACE))
        if len(marks) != cells:
            return super().joined(data, rows)
        pairs = compute.add(compute.multiply(marks.view(pa.int64()), self._pair), self._shift)
        offsets = self._starts + memoryview(pairs.buffers()[1])[: 8 * cells]
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._keys + data)]
        texts = pa.Array.from_buffers(pa.binary(), self._width + 2 * cells, buffers)
        taken: Any = compute.take(texts, self._ordered(cells), boundscheck=False)
        return b"".join((memoryview(taken.buffers()[2])[self._skipped :], b"}"))

    def _ordered(self, cells: int) -> pa.Array:
        """Key, cell, key, cell, …, as places in the array."""
        if len(self._order) < 2 * cells:
            order = array.array("i", bytes(8 * cells))
            order[0::2] = array.array("i", range(self._width)) * (cells // self._width)
            order[1::2] = array.array("i", range(self._width, self._width + 2 * cells, 2))
            self._order = pa.Array.from_buffers(pa.int32(), 2 * cells, [None, pa.py_buffer(order.tobytes())])
        return self._order.slice(0, 2 * cells)

"""How Arrow is told to use memory, before anything else is asked of it."""

from __future__ import annotations

import pyarrow as pa


def settle_memory() -> None:
    """Have what was used given back: Arrow's own pool keeps it, half as much again for long texts."""
    pa.set_memory_pool(pa.system_memory_pool())
    pa.set_io_thread_count(1)  # the stack of each counts as memory

"""How Arrow is told to use memory, before anything else is asked of it, and how much there must be."""

from __future__ import annotations

import resource

LEAST_MEMORY = 256 * 1024 * 1024  # of address space; with less pyarrow does not fail but ends the process


def allowed_memory() -> int:
    """Bytes of address space that this process may have; no less than ``LEAST_MEMORY`` where nothing limits it."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    return LEAST_MEMORY if allowed == resource.RLIM_INFINITY else allowed


def settle_memory() -> None:
    """Have what was used given back: Arrow's own pool keeps it, half as much again for long texts."""
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())
    pa.set_io_thread_count(1)  # the stack of each counts as memory

"""The process that builds one file: ``python -m haulage.worker.child LIFELINE REPORT``, its order on stdin.

It knows nothing of the queue and imports no store. It dies with its supervisor, also in the middle of a
silent statement: a thread waits on the lifeline pipe, whose other end the supervisor holds, and kills the
whole process group at its end. TERM keeps its default and ends the process at once, whatever it is doing.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
from contextlib import suppress


def main() -> int:
    """Build what the order says; the result is the last line of the report pipe."""
    lifeline, report = int(sys.argv[1]), int(sys.argv[2])
    _die_with_parent(lifeline)
    # After the lifeline: loading the builder takes most of the start.
    from haulage.artifacts.local import PartFile  # noqa: PLC0415
    from haulage.core.errors import BuildFailed  # noqa: PLC0415
    from haulage.core.progress import Progress  # noqa: PLC0415
    from haulage.exports.build import BuildOrder, build  # noqa: PLC0415
    from haulage.sources import open_source  # noqa: PLC0415

    def tell(message: dict[str, object]) -> None:
        os.write(report, json.dumps(message).encode() + b"\n")

    def progressed(progress: Progress) -> None:
        tell({"phase": progress.phase, "processed": progress.processed, "total": progress.total})

    try:
        order = BuildOrder.from_json(sys.stdin.read())
        _limit(order)
        from pathlib import Path  # noqa: PLC0415

        sink = PartFile(Path(order.folder), file_bytes=order.file_bytes, reserved_bytes=order.reserved_bytes)
        built = build(order, open_source(order.source_url, order.busy_seconds), sink, progressed)
        fields = {name: getattr(built, name) for name in type(built).__slots__}
        tell({"built": fields})
    except BuildFailed as failed:
        tell({"failed": failed.code, "detail": failed.detail, "cause": failed.cause})
    except MemoryError:
        tell({"failed": "out_of_memory", "detail": None, "cause": "MemoryError"})
    except Exception as problem:  # noqa: BLE001 - whatever it was, the run must end with a code
        tell({"failed": "build_failed", "detail": None, "cause": f"{type(problem).__name__}: {problem}"[:500]})
    return 0


def _die_with_parent(lifeline: int) -> None:
    def wait_for_the_end() -> None:
        with suppress(OSError):
            os.read(lifeline, 1)
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait_for_the_end, daemon=True, name="lifeline").start()
    # Beside it the kernel's own: it fires when the thread that started us ends, which outlives us.
    with suppress(Exception):
        import ctypes  # noqa: PLC0415 - loaded after the lifeline holds

        PR_SET_PDEATHSIG = 1  # noqa: N806 - its name in prctl(2)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _limit(order: object) -> None:
    """Set the outer fences: address space, and the size of one file, above both limits counted elsewhere."""
    limits = order.plan["limits"]  # type: ignore[attr-defined]  # a BuildOrder, whose module loads later
    margin = 1024 * 1024
    largest = max(order.file_bytes, limits["sort_bytes"]) + margin  # type: ignore[attr-defined]
    for kind, value in ((resource.RLIMIT_AS, limits["memory_bytes"]), (resource.RLIMIT_FSIZE, largest)):
        _, hard = resource.getrlimit(kind)
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (allowed, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    sys.exit(main())

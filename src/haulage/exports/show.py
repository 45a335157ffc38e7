"""A run as every door shows it (``docs/http.md``): unknown is null, times are RFC 3339 in UTC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haulage.core.clock import rfc3339
from haulage.core.errors import CATALOGUE
from haulage.exports.life import ExportRun
from haulage.exports.reading import is_of_cells
from haulage.exports.stored import Unreadable


def show(run: ExportRun, *, token: str | None = None, queue_position: int | None = None) -> dict[str, Any]:
    """The public representation; nothing in it names a path, SQL or another account."""
    ready = run.state == "ready"
    asked = run.plan.get("asked", {})  # of a grouped export
    return {
        "id": run.id,
        "token": token,
        "flow": "export",
        "dataset": run.dataset,
        "parent_kind": run.parent_kind,
        "parent": run.parent,
        "format": run.format,
        "compression": run.compression,
        "options": _known(run.options),
        "parameters": _known(run.parameters),
        "columns": asked.get("columns", run.plan.get("columns")),
        **{name: asked.get(name) for name in ("group_by", "subtotals", "pivot")},
        "state": run.state,
        "phase": run.phase if run.state == "running" else None,
        "cancel_requested_at": rfc3339(run.cancel_requested_at),
        "progress": {
            "processed": run.processed,
            "total": run.total,
            "unit": unit_of(run),
            "logical_count": run.logical_count,
            "logical_count_unit": "regular_result_rows" if asked.get("group_by") else None,
        },
        "queue_position": queue_position,
        "revision": run.revision,
        "as_of": rfc3339(run.as_of),
        "requested_at": rfc3339(run.requested_at),
        "started_at": rfc3339(run.started_at),
        "heartbeat_at": rfc3339(run.heartbeat_at),
        "updated_at": rfc3339(run.updated_at),
        "finished_at": rfc3339(run.finished_at),
        "expires_at": rfc3339(run.expires_at),
        "file": show_file(run) if ready else None,
        "complete": run.complete if ready else None,
        "notices": [dict(notice) for notice in run.notices],
        "failure": show_failure(run),
    }


def unit_of(run: ExportRun) -> str:
    """What is counted as processed."""
    return "pivot_cells" if run.plan.get("asked", {}).get("pivot") and is_of_cells(run.format) else "rows"


def _known(stored: Mapping[str, Any]) -> dict[str, Any] | None:
    """What was asked; null where that cannot be read any more."""
    return None if isinstance(stored, Unreadable) else dict(stored)


def show_file(run: ExportRun) -> dict[str, Any]:
    """The facts of a ready file."""
    return {
        "name": run.file_name,
        "media_type": run.media_type,
        "bytes": run.bytes,
        "rows": run.rows,
        "sha256": run.sha256,
        "snapshot_at": rfc3339(run.snapshot_at),
        "columns": [dict(column) for column in run.columns or ()],
    }


def show_failure(run: ExportRun) -> dict[str, str] | None:
    """Why a run failed, in words; never a stack trace, a path or SQL."""
    if run.failure_code is None:
        return None
    known = CATALOGUE.get(run.failure_code)
    message = run.failure_detail or (known.sentence if known else "The export failed.")
    return {"code": run.failure_code, "message": message}

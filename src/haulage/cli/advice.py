"""What to do about each code: said by the command line, and written into docs/errors.md.

``DATASET`` and ``ID`` stand for what it is about. A sentence here may name commands and keys of the configuration;
the public sentences of ``core/errors.py``, which users of the host see, may not.
"""

from __future__ import annotations

CHECK = "Run: haulage datasets check DATASET."
AGAIN = "Export again."

ADVICE = {
    "malformed": "Send one JSON document in UTF-8.",
    "unauthenticated": "Sign in again, or send Authorization: Bearer KEY. Make a key with: haulage keys new.",
    "csrf": "Send the header X-CSRF-Token with what GET /session gives.",
    "forbidden": "Add the dataset's permission, or operator, to the grants of the key, [operator] or account.",
    "not_found": "Look it up in the list: a token works only for the session or key that it was shown to.",
    "method_not_allowed": "The header Allow names those that it answers.",
    "not_acceptable": "Leave Accept out, or name the media type of the address.",
    "not_ready": "Look at the run again until it is ready.",
    "already_final": "See how it ended: haulage runs show ID.",
    "key_reused": "Make a new Idempotency-Key for each thing that is asked for.",
    "key_gone": "Ask with a new Idempotency-Key.",
    "link_expired": "POST to the run's file address for a new link.",
    "precondition_failed": "Fetch the file anew from its first byte.",
    "too_large": "Ask for less at once; limits.doors.body_bytes and requester_bytes are the limits.",
    "unsupported_media_type": "Send Content-Type: application/json.",
    "range_not_satisfiable": "The header Content-Range has the size of the file.",
    "invalid": "Each entry of errors says what to write.",
    "library_missing": "Install it where the web, the worker and the command line run.",
    "too_many_queued": "Wait, cancel one, or raise limits.exports.tenant_queued.",
    "too_many_keys": "Send a key again only with its own request; limits.exports.idempotency_keys is the limit.",
    "too_many_downloads": "Wait for a download to end; limits.doors.downloads is the limit.",
    "too_many_streams": "Close a stream; limits.doors.event_streams is the limit.",
    "too_many_attempts": "Wait for as long as Retry-After says.",
    "internal": "Look for the incident's number in the log.",
    "no_worker": "Start one with: haulage worker.",
    "queue_full": "Wait, start more workers, or raise limits.exports.slots.",
    "downloads_full": "Wait, or raise limits.doors.downloads_in_all and the number of files a process may open.",
    "not_serving": "Look at the log of this process; another one behind the balancer may answer.",
    "store_unavailable": "Run: haulage doctor.",
    "files_unavailable": "Run: haulage doctor.",
    "host_silent": "See why the host's authenticate, standing or parent fails; limits.doors.host_seconds is its time.",
    "storage_exceeded": "Expire files with: haulage runs expire ID, or raise limits.exports.store_bytes.",
    "source_unavailable": CHECK,
    "source_locked": "Wait for the other program; a SQLite source in WAL mode is not blocked by its writers.",
    "source_failed": CHECK,
    "count_timeout": "Choose fewer rows, or raise count_seconds.",
    "preview_exceeded": "Group by fewer dimensions, or export without a preview.",
    "groups_exceeded": "Group by fewer dimensions, choose fewer rows, or raise groups.",
    "pivot_columns_exceeded": "Let fewer dimensions go across, choose JSON, or raise pivot_columns.",
    "expired": AGAIN,
    "cancelled": AGAIN,
    "failed": "See why: haulage runs show ID.",
    "artifact_lost": "See who else writes into the folder of artifacts: haulage doctor --check.",
    "policy_changed": AGAIN,
    "rows_exceeded": "Choose fewer rows, or raise rows in [limits.exports] or [datasets.DATASET.limits].",
    "format_rows_exceeded": "Choose fewer rows or another format, or split them: --option sheets=several.",
    "format_columns_exceeded": "Choose fewer columns, or another format.",
    "cell_too_long": "Choose another format, or leave that column out.",
    "bytes_exceeded": "Choose fewer rows, compress, or raise file_bytes.",
    "generation_timeout": (
        "Choose fewer rows, raise generation_seconds, or see: haulage datasets check DATASET --advise."
    ),
    "queue_timeout": "Start more workers, or raise limits.exports.slots or queue_seconds.",
    "workers_gone": "Start a worker with: haulage worker; export again.",
    "worker_lost": 'Export again; on_worker_loss = "rerun" does it by itself.',
    "worker_stopped": "Export again; limits.exports.drain_seconds is what a build may still use.",
    "child_killed": "Look into the log of the system for the one who killed it; export again.",
    "child_crashed": "The worker's log has its last words.",
    "out_of_memory": "Choose fewer or smaller cells, or raise memory_bytes.",
    "no_space": "Make room on the disk of artifacts, or lower limits.exports.store_bytes.",
    "sort_space_exceeded": "Raise sort_bytes, or give the order an index: haulage datasets check DATASET --advise.",
    "storage_failed": "Run: haulage doctor.",
    "storage_refused": "Let the keys of [objects] write, list and remove in the bucket: haulage doctor.",
    "count_mismatch": "Export again; report it when it comes back.",
    "values_changed": "Write a query that gives the same rows each time, or choose another format.",
    "verify_failed": "Export again, and look at the disk: the worker's log has the cause.",
    "permission_lost": "Give the grant back. Worker and web must read the same keys and the same [operator].",
    "stored_unreadable": "Export again; haulage doctor --check looks at every row. See to the disk of the store.",
    "source_gone": "Let worker and web read the same configuration, and start the worker again.",
    "list_failed": "The worker's log has what the page function raised. Run: haulage datasets check DATASET.",
    "list_stalled": "Let the page function answer the key of its last row as the cursor, and none after the last page.",
    "page_oversize": "Let the page function answer at most limit rows, or set page_rows or page_bytes.",
    "command_failed": "The worker's log has its last words. Run: haulage datasets check DATASET.",
    "report_invalid": "The worker's log says what is wrong with report.json; docs/own-code.md says what belongs there.",
    "build_failed": "The worker's log has the cause.",
}


def advice(code: str, *, dataset: str = "DATASET", run_id: str = "ID") -> str:
    """What to do about a code, for this dataset and this run.

    Example:
        >>> advice("source_failed", dataset="orders")
        'Run: haulage datasets check orders.'
    """
    return ADVICE[code].replace("DATASET", dataset).replace(" ID", f" {run_id}")

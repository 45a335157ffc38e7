"""Every failure of the product, once: code, HTTP status, title, public sentence.

    HaulageError
    ├── Refused        a door said no; becomes an RFC 9457 problem or an exit code
    ├── BuildFailed    a build ended; becomes the failure of a run
    ├── StoreUnavailable   the store did not answer; nothing is known to have changed
    ├── StoredUnreadable   a row of the store cannot be read; the message names its columns
    ├── SchemaMismatch     the store's schema is not this version's
    ├── Overdue            code of the host did not answer in time (patience.py)
    ├── ArtifactsUnavailable   the place of bytes did not answer; nothing is known of them
    └── ConfigInvalid  haulage.toml has faults; all of them at once (config/)

A code is never reused for another meaning. A public sentence never holds a path, SQL, or a value of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Failure(NamedTuple):  # not a dataclass: see core/reading.py
    """One entry of the catalogue."""

    code: str
    status: int  # of the problem that a door answers; 0 for a failure that only a run can have
    title: str
    sentence: str


def _catalogue(*entries: Failure) -> dict[str, Failure]:
    codes = {entry.code: entry for entry in entries}
    assert len(codes) == len(entries), "a code stands twice"
    return codes


F = Failure
CATALOGUE = _catalogue(
    # What a door refuses.
    F("malformed", 400, "Malformed request", "The request could not be read."),
    F("unauthenticated", 401, "Sign-in needed", "Sign in, or send a bearer key."),
    F(
        "csrf",
        403,
        "Cross-site request refused",
        "The CSRF token is missing or wrong. Reload the page and try again.",
    ),
    F("forbidden", 403, "Not permitted", "Your grants do not include this."),
    F("not_found", 404, "Not found", "There is nothing here for you."),
    F("method_not_allowed", 405, "Method not allowed", "This address does not answer that method."),
    F("not_acceptable", 406, "Not acceptable", "This address answers in another media type."),
    F("not_ready", 409, "Not ready", "The file is not ready yet."),
    F("already_final", 409, "Already final", "The run has already ended."),
    F("key_reused", 409, "Idempotency key reused", "This Idempotency-Key was used with another request."),
    F("key_gone", 410, "Run deleted", "The run that this Idempotency-Key stands for has been deleted."),
    F("link_expired", 410, "Link expired", "This download link has expired. Ask for a new one."),
    F("precondition_failed", 412, "Precondition failed", "The file is not the one that If-Match names."),
    F("too_large", 413, "Request too large", "The request body is larger than this address takes."),
    F("unsupported_media_type", 415, "Unsupported media type", "Send the body as application/json."),
    F("range_not_satisfiable", 416, "Range not satisfiable", "The file is shorter than the range asked for."),
    F("invalid", 422, "Invalid request", "Some of what was sent cannot be used."),
    F("library_missing", 422, "Library missing", "This format needs a library that is not installed."),
    F(
        "too_many_queued",
        429,
        "Too many exports waiting",
        "You already have as many exports waiting as allowed.",
    ),
    F(
        "too_many_keys",
        429,
        "Too many idempotency keys",
        "You have as many Idempotency-Keys remembered as allowed.",
    ),
    F(
        "too_many_downloads",
        429,
        "Too many downloads",
        "You are fetching as many files at once as allowed. Wait for one to end.",
    ),
    F(
        "too_many_streams",
        429,
        "Too many event streams",
        "This session holds as many event streams as allowed.",
    ),
    F("too_many_attempts", 429, "Too many attempts", "Too many keys were tried from here. Wait a moment."),
    F("internal", 500, "Internal error", "Something went wrong here. The incident was logged."),
    F("no_worker", 503, "No worker alive", "No worker is running to build the file. Try again in a moment."),
    F("queue_full", 503, "Queue full", "Too many exports are waiting. Try again in a moment."),
    F("downloads_full", 503, "Too many downloads", "Too many files are being fetched here. Try again in a moment."),
    F("not_serving", 503, "Not ready to serve", "This process cannot serve at the moment."),
    F("store_unavailable", 503, "Store unavailable", "The store does not answer. Try again in a moment."),
    F("files_unavailable", 503, "Files unavailable", "The storage of files does not answer. Try again in a moment."),
    # What a door refuses and a run can end with.
    F("host_silent", 503, "Application silent", "The application did not say in time who may do what. Try again."),
    F("storage_exceeded", 503, "Storage used up", "The space for finished files is used up."),
    F("source_unavailable", 503, "Source unavailable", "The data could not be opened."),
    F("source_locked", 503, "Source locked", "The data is locked by another program."),
    F("source_failed", 502, "Query failed", "The data source refused the query."),
    F(
        "count_timeout",
        503,
        "Counting took too long",
        "The rows could not be counted within the time allowed.",
    ),
    F(
        "preview_exceeded",
        422,
        "Too much for a preview",
        "There are more groups than a preview adds up. The export itself may have more.",
    ),
    F("groups_exceeded", 422, "Too many groups", "The export has more groups than allowed."),
    F("pivot_columns_exceeded", 422, "Too many columns", "The pivot has more columns than allowed."),
    # Why a file is gone.
    F("expired", 410, "File expired", "The file was removed at the end of its time. Export again."),
    F("cancelled", 410, "Export cancelled", "The export was cancelled; there is no file."),
    F("failed", 410, "Export failed", "The export failed; there is no file."),
    F("artifact_lost", 410, "File lost", "The file is missing or damaged in the storage. Export again."),
    F(
        "policy_changed",
        410,
        "Permissions changed",
        "What you may see of this data has changed since the file was made. Export again.",
    ),
    # How a run ends without a file.
    F("rows_exceeded", 0, "Too many rows", "The export has more rows than allowed."),
    F("format_rows_exceeded", 0, "Too many rows for the format", "The export has more rows than its format holds."),
    F(
        "format_columns_exceeded",
        0,
        "Too many columns for the format",
        "The export has more columns than its format holds.",
    ),
    F("cell_too_long", 0, "Cell too long", "A cell has more characters than a cell of the format holds."),
    F("bytes_exceeded", 0, "File too large", "The file would be larger than allowed."),
    F("generation_timeout", 0, "Took too long", "Building the file took longer than allowed."),
    F("queue_timeout", 0, "Waited too long", "The export waited in the queue for longer than allowed."),
    F("workers_gone", 0, "Workers gone", "Every worker has gone while the export was waiting."),
    F("worker_lost", 0, "Worker lost", "The worker that built the file was lost."),
    F("worker_stopped", 0, "Worker stopped", "The worker was shut down before the file was finished."),
    F(
        "child_killed",
        0,
        "Process killed",
        "The process that built the file was killed (out of memory, or by hand).",
    ),
    F("child_crashed", 0, "Process ended", "The process that built the file ended without a word."),
    F("out_of_memory", 0, "Out of memory", "Building the file needed more memory than allowed."),
    F("no_space", 0, "No space left", "The disk is full."),
    F(
        "sort_space_exceeded",
        0,
        "Sorting needs too much space",
        "Sorting the rows needed more space than allowed.",
    ),
    F("storage_failed", 0, "Storage failed", "The file could not be written."),
    F("storage_refused", 0, "Storage refused", "The storage of files does not let the file be written."),
    F(
        "count_mismatch",
        0,
        "Rows do not match",
        "The rows written are not the rows counted; no file was kept.",
    ),
    F(
        "values_changed",
        0,
        "Values changed",
        "The rows had other values when they were read a second time; no file was kept.",
    ),
    F("verify_failed", 0, "File not whole", "The finished file did not pass its check; no file was kept."),
    F("permission_lost", 0, "Permission lost", "You no longer have the permission this export needs."),
    F("stored_unreadable", 0, "Stored request unreadable", "What was stored of this export cannot be read."),
    F("source_gone", 0, "Source not configured", "The worker does not know the source of this export."),
    F("list_failed", 0, "List failed", "The application could not list the rows."),
    F("list_stalled", 0, "List stalled", "The application's list does not go on: its pages lead in a circle."),
    F("page_oversize", 0, "Page too large", "A page of the application's list was larger than allowed."),
    F("command_failed", 0, "Command failed", "The program that builds the file failed."),
    F("report_invalid", 0, "Report invalid", "The program that builds the file did not say rightly what it built."),
    F("build_failed", 0, "Build failed", "Building the file failed. The cause was logged."),
)
del F


class Fault(NamedTuple):
    """One thing wrong with what was sent: where (a JSON pointer, RFC 6901) and what to send instead."""

    pointer: str
    detail: str


def pointer_to(*places: int | str) -> str:
    """A JSON pointer (RFC 6901) to the member at these places.

    Example:
        >>> pointer_to("columns", 0), pointer_to("parameters", "a/b")
        ('/columns/0', '/parameters/a~1b')
    """
    return "".join("/" + str(place).replace("~", "~0").replace("/", "~1") for place in places)


class HaulageError(Exception):
    """The root of what this library raises on purpose."""

    code = "internal"


class Refused(HaulageError):
    """A door said no.

    Args:
        code: a code of the catalogue with a status.
        detail: one public sentence for this case; the catalogue's own when None.
        faults: every member that is wrong, for 422.
        retry_after: whole seconds after which another try makes sense.
        state: the state of the run, where the refusal is about one.
    """

    def __init__(
        self,
        code: str,
        detail: str | None = None,
        *,
        faults: Sequence[Fault] = (),
        retry_after: int | None = None,
        state: str | None = None,
    ) -> None:
        """Look the code up, so that an unknown one fails where it is written."""
        self.failure = CATALOGUE[code]
        assert self.failure.status, f"{code} is no answer of a door"
        self.code = code
        self.detail = detail or self.failure.sentence
        self.faults = tuple(faults)
        self.retry_after = retry_after
        self.state = state
        self.observed = False  # whether the log knows of it already
        super().__init__(self.detail)


class BuildFailed(HaulageError):
    """A build ended without a file.

    Args:
        code: a code of the catalogue.
        detail: a public sentence with the numbers of this case, or None for the catalogue's own.
        cause: what the log may know and a door may not: a driver's message, a path.
    """

    def __init__(self, code: str, detail: str | None = None, *, cause: str | None = None) -> None:
        """Look the code up, so that an unknown one fails where it is written."""
        self.failure = CATALOGUE[code]
        self.code = code
        self.detail = detail or self.failure.sentence
        self.cause = cause
        super().__init__(self.detail)


class StoreUnavailable(HaulageError):
    """The store did not answer; whether a change was made must be read again."""

    code = "store_unavailable"


class StoredUnreadable(HaulageError):
    """A row of the store cannot be read; the message names its columns, and nothing of what they hold."""


class ArtifactsUnavailable(HaulageError, OSError):
    """The place where bytes are kept did not answer, or refused us; nothing is known of the bytes themselves."""

    code = "files_unavailable"
    answered = False  # whether it said anything


def kind_of(problem: OSError) -> str:
    """What went wrong with bytes, for the log: what a server answered, or a kind; a message may hold a path."""
    return str(problem) if isinstance(problem, ArtifactsUnavailable) else type(problem).__name__


class SchemaMismatch(HaulageError):
    """The store's schema is not the one this version works with; the message says which command helps."""


class ConfigInvalid(HaulageError):
    """A configuration has faults: ``faults`` holds one sentence each, with key, value and what to write."""

    def __init__(self, faults: Sequence[str], where: str = "haulage.toml") -> None:
        """Keep every fault, so that one reading mends them all."""
        self.faults = tuple(faults)
        count = "1 fault" if len(self.faults) == 1 else f"{len(self.faults)} faults"
        super().__init__(f"{where} has {count}:\n" + "\n".join(f"  - {fault}" for fault in self.faults))


class StoreInvalid(ConfigInvalid, ValueError):
    """The URL of a store is none that this version can open; a fault of the configuration that names it."""

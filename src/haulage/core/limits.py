"""Every number of the product with its unit and default; the unit stands last in the name.

All can be set in ``[limits.exports]`` or ``[limits.doors]``; a dataset may lower or raise those of
:class:`BuildLimits` for itself.
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
DAY = 24 * 60 * 60


@dataclass(frozen=True, slots=True)
class BuildLimits:
    """What one build may use. Crossing one fails the run with its own code and leaves no file."""

    rows: int = 10_000_000  # rows_exceeded
    groups: int = 1_000_000  # groups_exceeded; of a grouped export, before its subtotals
    pivot_columns: int = 1_000  # pivot_columns_exceeded; column keys times measures of a wide pivot
    file_bytes: int = 128 * MIB  # bytes_exceeded; of the file on disk, after compression
    generation_seconds: float = 120  # generation_timeout; from the claim
    count_seconds: float = 10  # a count that takes longer leaves the total unknown; it is not a failure
    sort_bytes: int = 2 * GIB  # sort_space_exceeded; temporary space of the source's sorting
    memory_bytes: int = 512 * MIB  # out_of_memory; address space of the child (RLIMIT_AS)


@dataclass(frozen=True, slots=True)
class ExportLimits:
    """How many, how long, how often: the export flow as a whole."""

    build: BuildLimits = BuildLimits()
    slots: int = 2  # builds at once, over all hosts
    store_bytes: int = 512 * MIB  # all finished files together
    queue_seconds: float = 150  # queue_timeout
    expiry_seconds: float = 600  # life of a ready file, from completion
    retention_seconds: float = 7 * DAY  # life of a row after its run ended
    lease_seconds: float = 15  # without a heartbeat for so long, a run is lost
    beat_seconds: float = 1  # between two heartbeats; at most a fifth of the lease
    progress_seconds: float = 0.25  # between two reports of a child
    stop_seconds: float = 5  # between TERM and KILL
    drain_seconds: float = 120  # what a running build may still use after SIGTERM to the worker
    abandon_seconds: float = 60  # queued runs fail when no worker was seen for so long
    presence_seconds: float = 15  # a request is accepted only with a worker seen within this
    sweep_seconds: float = 5  # between two passes of the sweep
    attempts: int = 3  # claims of one run, where its dataset says on_worker_loss = "rerun"
    queued: int = 1_000  # waiting runs over all tenants
    tenant_queued: int = 20  # waiting runs of one tenant
    tenant_running: int = 2  # running runs of one tenant
    idempotency_seconds: float = DAY  # how long an Idempotency-Key is remembered
    idempotency_keys: int = 10_000  # remembered keys of one account

    def faults(self) -> list[str]:
        """What cannot work together, as sentences."""
        found = []
        if self.beat_seconds * 5 > self.lease_seconds:
            found.append(
                f"limits.exports.beat_seconds = {self.beat_seconds:g}: a beat must fit five times into "
                f"lease_seconds = {self.lease_seconds:g}; write at most {self.lease_seconds / 5:g}"
            )
        if self.build.file_bytes > self.store_bytes:
            found.append(
                f"limits.exports.file_bytes = {self.build.file_bytes}: one file may not be larger than "
                f"store_bytes = {self.store_bytes}"
            )
        return found


@dataclass(frozen=True, slots=True)
class DoorLimits:
    """What the doors take and give."""

    body_bytes: int = 64 * KIB  # of a request, except uploads
    page_size: int = 200  # the most runs one list answers
    requester_bytes: int = 8 * KIB  # of the frozen requester
    file_token_seconds: float = 300  # life of a link to a file
    session_seconds: float = 12 * 60 * 60  # of a sign-in
    sessions: int = 10  # sign-ins of one key at once; one more ends the oldest
    download_stall_seconds: float = 60  # a download that takes no byte for so long is cut
    download_seconds: float = 600  # a whole download
    downloads: int = 8  # of one account at once, in one process
    downloads_in_all: int = 200  # at once, in one process
    grant_check_seconds: float = 1  # between two looks at session and grants while a download runs
    event_streams: int = 8  # of one session at once
    evaluate_seconds: float = 5  # of a Python dataset at the request
    host_seconds: float = 5  # of the host's own function that says who asks, how an account stands, whose a parent is

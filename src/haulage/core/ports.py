"""What the edges implement: runs, presence, keys, sessions, artifacts; ``source.py`` has the sources.

The flows and the worker know only these. The seven verbs of a worker are ``add, get, claim, heartbeat,
settle, move, sweep``; the doors also have ``list, find_active, request_cancel, queue_position, remove``.
A verb that has ``tenant`` touches runs of that tenant only; with None of all, as workers, sweeps and the operator do.
A verb takes ``tx``, so that what must hold together commits together, and ``now`` in milliseconds; None
means the store's own clock (DECISIONS 6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, TypeAlias, TypeVar

from haulage.core.lease import Held, Pulse
from haulage.core.lifecycle import Lifecycle, Move
from haulage.core.parents import ParentRef
from haulage.core.progress import Progress
from haulage.core.reading import Measured

Transaction: TypeAlias = Any  # an open transaction of a store; only the store looks inside


@dataclass(frozen=True, slots=True)
class After:
    """An instant ``seconds`` after the store's own now; the store turns it into a time."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms a worker claims.

    Args:
        only: claim this run and no other (the private worker of ``haulage export``).
        grace_seconds: how long after its own generation limit the sweep waits before it ends a run.
    """

    worker: str
    lease_seconds: float
    slots: int
    tenant_running: int
    store_bytes: int
    grace_seconds: float
    only: str | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """Which runs a list asks for.

    Args:
        parent: those of one parent.
        parentless: those that belong to none.
        before: the (requested_at, id) of the last one already seen.
    """

    tenant: str | None = None
    account: str | None = None
    state: str | None = None
    dataset: str | None = None
    parent: ParentRef | None = None
    parentless: bool = False
    before: tuple[int, str] | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes of the storage budget: of finished files, promised to running builds, and of one tenant."""

    stored_bytes: int
    reserved_bytes: int
    tenant_bytes: int


Run = TypeVar("Run")


class Runs(Protocol[Run]):
    """One run table. See the module's docstring for the verbs."""

    life: type[Lifecycle]

    def add(self, run: Run, *, tx: Transaction | None = None) -> None:
        """Insert a new run."""

    def get(self, run_id: str, *, tenant: str | None = None, tx: Transaction | None = None) -> Run | None:
        """The run of an id."""

    def claim(self, terms: Terms, *, now: int | None = None, tx: Transaction | None = None) -> tuple[Held, Run] | None:
        """Take the next run: a tenant with fewer running runs first, then the oldest."""

    def heartbeat(
        self, beats: Sequence[tuple[Held, Progress | None]], *, lease_seconds: float, now: int | None = None
    ) -> dict[Held, Pulse]:
        """Renew leases, store progress, and learn of cancels; all in one transaction."""

    def settle(
        self,
        held: Held,
        move: Move,
        values: Mapping[str, Any],
        *,
        now: int | None = None,
        tx: Transaction | None = None,
    ) -> None:
        """Make a move that ends the lease, under its fence; asked again after a lost answer, it is content.

        Raises:
            CancelWanted: the lease holds, but a cancel was requested that this move does not allow.
            LeaseLost: the run is not ours any more.
        """

    def move(
        self,
        run_id: str,
        move: Move,
        values: Mapping[str, Any],
        *,
        tenant: str | None = None,
        now: int | None = None,
        tx: Transaction | None = None,
    ) -> Run | None:
        """Make a move that needs no lease; None when the run is not in the move's state."""

    def sweep(
        self, move: Move, values: Mapping[str, Any], *, worker: str, now: int | None = None, limit: int = 100
    ) -> list[Run]:
        """Do what is due by a move's deadline.

        A move out of an unleased state is made. For a move that ends a lease the *fence* is taken
        (``claim_no + 1`` and a short lease): the caller removes the bytes and settles (DECISIONS 3).
        """

    def list(self, query: Query, *, tx: Transaction | None = None) -> list[Run]:
        """Runs, newest first; one more than asked for when there is another page."""

    def find_active(self, active_key: str, *, tenant: str | None = None, tx: Transaction | None = None) -> Run | None:
        """The active run of a key."""

    def request_cancel(
        self, run_id: str, *, tenant: str | None = None, now: int | None = None, tx: Transaction | None = None
    ) -> Run | None:
        """Record a cancel: a queued run is cancelled at once, a running one is asked to stop."""

    def queue_position(self, run: Run, *, tx: Transaction | None = None) -> int | None:
        """The place in the claim order now, from 1; None when the run is not waiting."""

    def remove(self, *, now: int | None = None, limit: int = 100) -> int:
        """Delete rows past their retention that promise no bytes."""


@dataclass(frozen=True, slots=True)
class Presence:
    """One living worker."""

    id: str
    host: str
    pid: int
    version: str
    state: str  # claiming, draining, or refusing: too old for the store
    lanes: int
    started_at: int
    seen_at: int
    only_run: str | None = None


class Workers(Protocol):
    """Who is alive."""

    def announce(self, presence: Presence, *, now: int | None = None) -> None:
        """Write or renew a worker's presence."""

    def leave(self, worker: str) -> None:
        """Remove it at a clean exit."""

    def seen(self, within_seconds: float, *, now: int | None = None) -> list[Presence]:
        """Workers seen within so many seconds."""

    def claiming(self, within_seconds: float, *, now: int | None = None, tx: Transaction | None = None) -> bool:
        """Say whether a worker that claims for everybody was seen within so many seconds."""

    def forget(self, older_than_seconds: float, *, now: int | None = None) -> int:
        """Remove presences of workers that died long ago."""


@dataclass(frozen=True, slots=True)
class KeptKey:
    """What an Idempotency-Key stands for."""

    body_hash: str
    run: str


class IdempotencyKeys(Protocol):
    """Keys of requests, written with the run (DECISIONS 32)."""

    def find(
        self, tenant: str, account: str, key: str, *, now: int | None = None, tx: Transaction | None = None
    ) -> KeptKey | None:
        """What a key stands for, unless it is too old."""

    def keep(
        self,
        tenant: str,
        account: str,
        key: str,
        kept: KeptKey,
        *,
        seconds: float,
        now: int | None = None,
        tx: Transaction | None = None,
    ) -> None:
        """Remember a key."""

    def held(
        self, tenant: str, account: str, *, at_most: int, now: int | None = None, tx: Transaction | None = None
    ) -> tuple[int, int | None]:
        """How many keys of an account are remembered, counted up to a number, and when the first of them is not."""

    def forget(self, *, now: int | None = None) -> int:
        """Remove keys that are too old."""


LINK = "link "  # how the id of a one-time link begins; it is no sign-in yet


@dataclass(frozen=True, slots=True)
class SignIn:
    """One sign-in, or a one-time link to one: who, by which key, until when."""

    id: str  # SHA-256 of the cookie's secret, or LINK and one of the link's
    key_name: str
    tenant: str
    account: str
    expires_at: int


class Sessions(Protocol):
    """Sign-ins of browsers, and one-time sign-in links."""

    def open(self, sign_in: SignIn, *, at_most: int | None = None) -> None:
        """Remember a sign-in; of a key's sign-ins only so many stay, those that end last, and this one."""

    def find(self, session_id: str, *, now: int | None = None) -> SignIn | None:
        """A sign-in that has not ended."""

    def close(self, session_id: str) -> None:
        """End a sign-in at once."""

    def take(self, session_id: str, *, now: int | None = None) -> SignIn | None:
        """Find a sign-in and end it, for a link that works once."""

    def forget(self, *, now: int | None = None) -> int:
        """Remove sign-ins that have ended."""


class Watcher(Protocol):
    """A hint that something changed in the store; a reader always reads the store again."""

    @property
    def descriptor(self) -> int | None:
        """What becomes readable shortly before a commit of this host; None where one can only ask again."""

    def stirred(self) -> bool:
        """Say whether a commit may be near; it makes the descriptor silent again."""

    def changed(self) -> bool:
        """Say whether another connection may have committed since the last call."""

    def close(self) -> None:
        """Give the connection back."""


class Sink(Protocol):
    """Where a build writes; it counts, hashes and limits on the way."""

    rewinds: bool  # whether it can begin anew

    def rewind(self) -> None:
        """Begin anew: of what was written nothing is left. Only where it can."""

    def write(self, data: bytes) -> None:
        """Write all of it.

        Raises:
            BuildFailed: ``bytes_exceeded``, ``storage_exceeded``, ``no_space`` or ``storage_failed``.
        """

    def finish(self, *, reread: bool = False) -> Measured:
        """Flush to the disk and say what was written; ``reread`` compares every byte with what was sent.

        Raises:
            BuildFailed: ``verify_failed``, ``no_space`` or ``storage_failed``.
        """


class Artifacts(Protocol):
    """Where bytes are kept. A key names the bytes of one claim of one run, unfinished or finished."""

    def publish(self, key: str, expected_bytes: int, *, sha256: str | None = None, etag: str | None = None) -> None:
        """Give a verified file its final name, durably.

        Args:
            sha256: what the bytes must have, where they can be proved only now; a folder proved them before.
            etag: what a store of objects must call them. Where it does not, or None, they are read back.

        Raises:
            BuildFailed: ``verify_failed``, ``storage_failed``, ``storage_refused`` or ``no_space``.
        """

    def remove(self, key: str) -> bool:
        """Remove everything of a key, unfinished and finished; say whether there was anything.

        Raises:
            OSError: some of it could not be removed; the next sweep tries again.
        """

    def size(self, key: str) -> int:
        """Bytes that lie under a key, unfinished and finished, as far as they can be seen."""

    def open(self, key: str) -> tuple[BinaryIO, int]:
        """A finished file and its size, measured on the open descriptor.

        Raises:
            FileNotFoundError: there is none.
            ArtifactsUnavailable: whether there is one cannot be known now.
        """

    def link(self, key: str, *, disposition: str, media_type: str) -> str | None:
        """Where a client fetches a finished file by itself, for a minute at most; None when it is served from here."""

    def keys(self) -> list[str]:
        """Every key that bytes lie under, for the sweep of orphans."""

    def check(self) -> None:
        """See that a file can be written.

        Readiness asks this every few seconds.

        Raises:
            OSError: it cannot.
        """

"""The verbs of a worker and of the doors on files; ``stores/runs.py`` says what each must do.

    claim      picks, makes the file of the claim, takes a slot, then writes the run as running
    heartbeat  writes the record of the claim in its place
    settle     writes the run, then gives slot and claim back
    sweep      what is due, and what is held by a process that has died

Whoever writes holds the folder's lock, so what was read is so until it is written. The names in ``slots``, ``held`` and
``active`` are made by exactly one of those who try: they hold even on a volume whose locks do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Generic, TypeVar

from haulage.core.lease import CancelWanted, Held, LeaseLost, Pulse
from haulage.core.lifecycle import Actor, CancelWish, LeaseUse, Lifecycle, Move
from haulage.core.ports import Query, Terms
from haulage.core.progress import Progress
from haulage.stores import atomic
from haulage.stores.directory.actives import Actives
from haulage.stores.directory.checks import refuse
from haulage.stores.directory.folder import Folder, Writing, answered
from haulage.stores.directory.patrol import Patrol
from haulage.stores.directory.queue import Queue
from haulage.stores.directory.rows import Rows, names_of
from haulage.stores.entering import entering
from haulage.stores.tenants import may

Run = TypeVar("Run")
SWEEP_LEASE_SECONDS = 15  # of a sweep that removes the bytes of a lost run


class DirectoryRuns(Generic[Run]):
    """One kind of runs in a folder; implements ``core.ports.Runs``."""

    def __init__(
        self,
        folder: Folder,
        life: type[Lifecycle],
        record: type[Run],
        *,
        retention_seconds: float,
        released: Mapping[str, None],
        refusal: Callable[[], str | None],
        keep_key: Callable[[Mapping[str, Any], Writing], None],
    ) -> None:
        """Say how runs are kept.

        Args:
            released: what a run gives back with its lease.
            refusal: says why this version may not claim here.
            keep_key: makes the file of an idempotency key that came with a run, if there is none yet.
        """
        self.life = life
        self.folder = folder
        self._names = names_of(record)
        self._released = dict.fromkeys(released)
        self._retention_ms = int(retention_seconds * 1000)
        self._refusal = refusal
        self._keep_key = keep_key
        self._claim = next(move for move in life.moves.values() if move.lease is LeaseUse.TAKES)
        self._queue = Queue(self._claim)
        self.rows: Rows[Run] = Rows(folder, life, record)
        self.live, self.ended, self.leases = self.rows.live, self.rows.ended, self.rows.leases
        self.actives = Actives(folder)
        self.patrol = Patrol(folder, self.rows, self.actives)

    # -- what doors and workers read ---------------------------------------------------------------

    def add(self, run: Run, *, tx: Writing | None = None) -> None:
        """Write a new run; in a transaction that is begun, when nothing in it broke."""
        with answered(), self.folder.writing(tx) as held:
            new: Any = run
            self._refuse(new, held)
            if new.id in held.added or self.rows.find(new.id, held) is not None:
                raise AssertionError("the store refused a row: id")
            held.added[new.id] = new
            if tx is None:
                self.write_added(held)

    def write_added(self, tx: Writing) -> None:
        """Write what was added. The idempotency key goes into the same file: both are there, or neither."""
        with answered():
            for run_id, run in list(tx.added.items()):
                self.actives.take(run)
                try:
                    self.live.put(run, dict(tx.kept[run_id]) if run_id in tx.kept else None, tx, new=True)
                except BaseException:
                    if self.live.find(run_id, tx) is None:
                        self.actives.give_back(run)
                    raise
                del tx.added[run_id]

    def get(self, run_id: str, *, tenant: str | None = None, tx: Writing | None = None) -> Run | None:
        """The run of an id."""
        with answered():
            found = tx.added[run_id] if tx is not None and run_id in tx.added else self.rows.find(run_id, tx)
            return found if may(tenant, found) else None

    def find_active(self, active_key: str, *, tenant: str | None = None, tx: Writing | None = None) -> Run | None:
        """The active run of a key."""
        with answered():
            for run in self.rows.living(tx):
                if run.active_key == active_key:
                    found: Any = self.get(run.id, tenant=tenant, tx=tx)
                    if found is not None and found.active_key == active_key:  # It may have ended meanwhile.
                        return found  # type: ignore[no-any-return]  # it was read as one
        return None

    def queue_position(self, run: Run, *, tx: Writing | None = None) -> int | None:
        """The place in the claim order now, from 1; None when the run is not waiting."""
        waits: Any = run
        with answered():
            return self._queue.position(self.rows.living(tx), waits.id)

    def waiting(self, *, tenant: str | None = None, tx: Writing | None = None) -> int:
        """How many runs wait, over all tenants or of one."""
        with answered():
            rows = self.rows.living(tx)
        return sum(may(tenant, row) for row in self._queue.waiting(rows))

    def drift(self) -> list[str]:
        """Where counters and runs differ: nowhere, as whatever is counted is counted from the runs."""
        return []

    # -- claiming ----------------------------------------------------------------------------------

    def claim(self, terms: Terms, *, now: int | None = None, tx: Writing | None = None) -> tuple[Held, Run] | None:
        """Take the next run that fits; None when there is none, or no slot, or it has to wait."""
        with answered(), self.folder.writing(tx) as held:
            now = self.folder.now(now)
            if self._refusal() is not None:  # The store may have been migrated since this worker last looked.
                return None
            before: Any = None
            while before is None:  # A file may have been damaged, or the disk refuses it: then the next one.
                rows: list[Any] = [kept.run for kept in self.live.rows(held)]
                chosen = self._queue.next(rows, terms)
                if chosen is None:
                    return None
                try:
                    before = self.rows.find_live(chosen.id, held)
                except OSError:
                    self.live.drop(chosen.id)
            admitted = self.admit(before, rows, terms, now)
            if admitted is None:
                return None
            claimed = self._changed(before, {
                "state": str(self._claim.target),
                "worker": terms.worker,
                "claim_no": before.claim_no + 1,
                "started_at": now,
                "heartbeat_at": now,
                "updated_at": None,
                "lease_until": now + int(terms.lease_seconds * 1000),
                **admitted,
            })  # fmt: skip
            taken = {row.slot for row in rows if row.slot is not None}
            free = [slot for slot in range(1, terms.slots + 1) if slot not in taken]
            if not free or not self.leases.take(claimed):
                return None
            if self.rows.find_live(before.id, held) != before:
                self.leases.give_back(claimed)  # Only where locks exclude nobody: another claim came and went.
                return None
            for slot in free:
                claimed = replace(claimed, slot=slot)
                if self.leases.take_slot(claimed):
                    self._write_held(claimed, held)
                    return Held(claimed.id, claimed.tenant, claimed.claim_no, terms.worker), claimed
            self.leases.give_back(claimed)
            return None

    def admit(self, run: Any, rows: list[Any], terms: Terms, now: int) -> dict[str, Any] | None:
        """What a flow sets at a claim, or None when the run has to wait."""
        return {}

    def _write_held(self, after: Any, tx: Writing) -> None:
        """Write a run whose claim is taken; where that fails, its names go unless it was written all the same."""
        try:
            self._refuse(after, tx)
            self.live.put(after, self.live.key_of(after.id), tx)
        except BaseException:
            with suppress(OSError):
                found: Any = self.rows.find_live(after.id, tx)
                if found is None or found.claim_no != after.claim_no:
                    self.leases.give_back(after)
            self.leases.let_go(after.id, after.claim_no)
            raise

    # -- holding -----------------------------------------------------------------------------------

    def heartbeat(
        self, beats: Iterable[tuple[Held, Progress | None]], *, lease_seconds: float, now: int | None = None
    ) -> dict[Held, Pulse]:
        """Renew leases, store progress, and learn of cancels; all under one lock."""
        beats = list(beats)
        if not beats:
            return {}
        pulses: dict[Held, Pulse] = {}
        with answered(), self.folder.writing() as tx:
            now = self.folder.now(now)
            for held, progress in beats:
                run: Any = self.rows.find_live(held.id, tx)
                if run is None or run.state != self._claim.target or run.claim_no != held.claim_no:
                    self.leases.let_go(held.id, held.claim_no)
                    pulses[held] = Pulse(held=False, cancel_requested=False)
                    continue
                values: dict[str, Any] = {"heartbeat_at": now, "lease_until": now + int(lease_seconds * 1000)}
                if progress is not None:
                    tx.begin()
                    values |= {"updated_at": now, "revision": run.revision + 1, **progress._asdict()}
                self.leases.beat(replace(run, **values))
                pulses[held] = Pulse(held=True, cancel_requested=run.cancel_requested_at is not None)
        return pulses

    def settle(
        self, held: Held, move: Move, values: Mapping[str, Any], *, now: int | None = None, tx: Writing | None = None
    ) -> None:
        """Make a move that ends the lease, under its fence; asked again after a lost answer, it is content.

        Raises:
            CancelWanted: the lease holds, but a cancel was requested that this move does not allow.
            LeaseLost: the run is not ours any more.
        """
        assert move.lease is LeaseUse.ENDS, f"{move.name} ends no lease"
        with answered(), self.folder.writing(tx) as writing:
            now = self.folder.now(now)
            run: Any = self.rows.find(held.id, writing)
            if run is None or run.claim_no != held.claim_no:
                self.leases.let_go(held.id, held.claim_no)
                raise LeaseLost(held.id)
            if self._allows(move, run):
                self._make(run, move, values, now, writing)
                return
            if run.state == move.source:
                assert move.cancel is CancelWish.ABSENT, f"{move.name} needs a cancel request, and there is none"
                raise CancelWanted(held.id)
            if run.state != move.target:
                raise LeaseLost(held.id)
            with suppress(FileNotFoundError):  # An answer was lost, and with it the word that it is on the disk.
                atomic.sync(self.live.path(held.id))

    # -- moves without a lease ---------------------------------------------------------------------

    def move(
        self,
        run_id: str,
        move: Move,
        values: Mapping[str, Any],
        *,
        tenant: str | None = None,
        now: int | None = None,
        tx: Writing | None = None,
    ) -> Run | None:
        """Make a move that needs no lease; None when the run is not in the move's state."""
        assert move.lease is LeaseUse.NONE, f"{move.name} needs a lease"
        with answered(), self.folder.writing(tx) as writing:
            run = self.rows.find_live(run_id, writing)
            if not may(tenant, run) or not self._allows(move, run):
                return None
            return self._make(run, move, values, self.folder.now(now), writing)

    def request_cancel(
        self, run_id: str, *, tenant: str | None = None, now: int | None = None, tx: Writing | None = None
    ) -> Run | None:
        """Record a cancel: a queued run is cancelled at once, a running one is asked to stop.

        Returns the run as it is now, whatever its state; None when there is none.
        """
        with answered(), self.folder.writing(tx) as writing:
            now = self.folder.now(now)
            run: Any = self.rows.find(run_id, writing)
            if not may(tenant, run):
                return None
            # The active key goes, so that the same request right after a cancel is a new run.
            wish = {"cancel_requested_at": now, "active_key": None}
            for move in self.life.moves_from(run.state):
                if move.by is Actor.REQUESTER and move.target == "cancelled" and move.lease is LeaseUse.NONE:
                    return self._make(run, move, wish, now, writing)
            if run.state in self.life.leased_states() and run.cancel_requested_at is None:
                return self._write(run, self._changed(run, wish), writing)
            return run  # type: ignore[no-any-return]  # it was read as one

    # -- what is due -------------------------------------------------------------------------------

    def sweep(
        self, move: Move, values: Mapping[str, Any], *, worker: str, now: int | None = None, limit: int = 100
    ) -> list[Run]:
        """Do what is due by a move's deadline; see ``core.ports.Runs.sweep``.

        A lease is over at its time, or when the process that holds it has ended.
        """
        assert move.deadline is not None, f"{move.name} has no deadline"
        deadline = move.deadline
        at = self.folder.now(now)

        def due(run: Any) -> bool:
            when = getattr(run, deadline)
            over = when is not None and when <= at
            return self._allows(move, run) and (over or (deadline == "lease_until" and self.leases.is_dead(run)))

        def make(run: Any, tx: Writing) -> Run | None:
            if move.lease is LeaseUse.ENDS:
                return self._fence(run, move, worker, at, tx)
            return self._make(run, move, values, at, tx)

        return self._change_due(due, deadline, make, limit)

    def _change_due(
        self, due: Callable[[Any], bool], oldest: str, change: Callable[[Any, Writing], Run | None], limit: int
    ) -> list[Run]:
        """Pick at most so many that are due, then change those that still are."""
        # A look first: most passes find nothing, and then nothing is written and nobody has to wait.
        with answered():
            picked = [run for run in map(self.rows.seen, self.rows.living()) if due(run)]
        if not picked:
            return []
        picked.sort(key=lambda run: (getattr(run, oldest) or 0, run.id))
        changed = []
        with answered(), self.folder.writing() as tx:
            for each in picked[:limit]:
                run: Any = self.rows.find_live(each.id, tx)
                after = change(run, tx) if run is not None and due(run) else None
                if after is not None:
                    changed.append(after)
        return changed

    def _fence(self, run: Any, move: Move, worker: str, now: int, tx: Writing) -> Run | None:
        """Take a run from whoever holds it, for long enough to remove its bytes."""
        # Every deadline of the state is put off, or another sweep would take the fence by one of the others
        # while this one still removes bytes.
        until = now + SWEEP_LEASE_SECONDS * 1000
        put_off = {str(each.deadline): until for each in self.life.due_moves() if each.source == move.source}
        fenced = self._changed(run, {"claim_no": run.claim_no + 1, "worker": worker, **put_off})
        if not self.leases.take(fenced):
            return None
        self._write_held(fenced, tx)
        with suppress(OSError):
            self.leases.pass_on(run, fenced)
        return fenced  # type: ignore[no-any-return]  # it is what was read, changed

    def remove(self, *, now: int | None = None, limit: int = 100) -> int:
        """Delete rows past their retention that promise no bytes; bytes go before rows. Leftovers go too."""
        self.patrol.pass_now_and_then(self.lives, self.move_to_ended)
        at, due = self.folder.now(now), []
        with answered():
            # No run ends before it was asked for, so younger days need no look.
            for words in self.ended.words(until=at - self._retention_ms):
                due += [word for word in words if word.retain_until is not None and word.retain_until <= at]
            if not due:
                return 0
            with self.folder.writing() as tx:
                tx.begin()
                return sum(self.ended.remove(word) for word in sorted(due)[:limit])

    def list(self, query: Query, *, tx: Writing | None = None) -> list[Run]:
        """Runs, newest first; one more than ``query.limit`` when there is another page."""
        with answered():
            return self.rows.list(query)

    # -- the one place where a state changes ---------------------------------------------------------

    def _make(self, run: Any, move: Move, values: Mapping[str, Any], now: int, tx: Writing) -> Run:
        """Make one move whose guard was looked at: state, fence and cancel, under the lock."""
        entered = entering(self.life, move, values, now=now, released=self._released, retention_ms=self._retention_ms)
        return self._write(run, self._changed(run, entered | {"state": str(move.target)}), tx)

    def _write(self, before: Any, after: Any, tx: Writing) -> Run:
        """Write a run, then give back what it no longer holds: a name that stays is seen to be nobody's."""
        self._refuse(after, tx)
        self.live.put(after, self.live.key_of(after.id), tx)
        with suppress(OSError):  # What was written counts; the patrol tidies up what could not be given back.
            if before.active_key is not None and after.active_key is None:
                self.actives.give_back(before)
            if before.lease_until is not None and after.lease_until is None:
                self.leases.give_back(before)
            if not self.lives(after):
                self.move_to_ended(after, tx)
        return after  # type: ignore[no-any-return]  # it is what was read, changed

    def move_to_ended(self, run: Any, tx: Writing) -> None:
        """Put a run that has ended, and promises no bytes, out of the way."""
        if (key := self.live.key_of(run.id)) is not None:
            self._keep_key(key, tx)
        self.ended.take(self.live.path(run.id), run.requested_at)
        self.live.drop(run.id)

    def lives(self, run: Any) -> bool:
        """Say whether something is still expected of a run, if only that its bytes are removed."""
        return run.state in self.life.active or getattr(run, "artifact_key", None) is not None

    def _allows(self, move: Move, run: Any) -> bool:
        return run.state == move.source and move.allows_cancel(run.cancel_requested_at is not None)

    def _changed(self, run: Any, values: Mapping[str, Any], *, counted: bool = True) -> Any:
        unknown = set(values) - set(self._names)
        assert not unknown, f"a run has no {', '.join(sorted(unknown))}"
        return replace(run, **{**values, "revision": run.revision + counted})

    def _refuse(self, run: Any, tx: Writing) -> None:
        refuse(self.life, run, self.rows.living(tx), self.checks(run))

    def checks(self, run: Any) -> dict[str, bool]:
        """What a flow wants of its rows, by the name of the check."""
        return {}

"""What a requester can do with exports: ask, look, cancel, fetch, remove. The same for every door.

Order at the door (DECISIONS 32), in one transaction: idempotency key, an equal active request, limits, a
living worker, then the row. Nothing is written by a request that is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from haulage.core import events
from haulage.core.catalogue import Catalogue, Dataset
from haulage.core.clock import new_id
from haulage.core.errors import Fault, Refused
from haulage.core.limits import DoorLimits, ExportLimits
from haulage.core.ports import Artifacts, KeptKey, Query, Storage, Transaction
from haulage.core.requester import OPERATOR, Requester
from haulage.core.source import Source
from haulage.exports.access import Standing, access_dataset, access_run
from haulage.exports.counts import RETRY_SECONDS
from haulage.exports.files import Files
from haulage.exports.gone import Gone, let_go
from haulage.exports.grouping import Grouping
from haulage.exports.life import ExportLife, ExportRun
from haulage.exports.needs import ExportStore
from haulage.exports.plan import Asked, Wish, draft
from haulage.exports.policies import Policies


@dataclass(frozen=True, slots=True)
class Accepted:
    """The answer to a request: the run, whether it is new, and whether a key was replayed."""

    run: ExportRun
    new: bool
    replayed: bool = False


class Exports(Files):
    """The export service; ``Haulage.exports`` is one."""

    def __init__(
        self,
        store: ExportStore,
        artifacts: Artifacts,
        catalogue: Catalogue,
        *,
        open_source: Callable[[str], Source],
        limits: ExportLimits,
        doors: DoorLimits,
        standing: Standing = lambda asked: asked,
        observe: events.Observe = events.ignore,
    ) -> None:
        """Tie the ports together.

        Args:
            open_source: opens a source by its name in the configuration.
            standing: gives a requester as it is today.
        """
        super().__init__(store, catalogue, open_source, limits, doors, observe)
        self._artifacts = artifacts
        self.policies = Policies(catalogue, open_source, standing, doors.host_seconds, observe)

    # -- asking ------------------------------------------------------------------------------------

    def request(
        self,
        requester: Requester,
        dataset: str,
        *,
        format: str = "csv",
        parameters: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
        compression: str | None = None,
        options: Mapping[str, str] | None = None,
        group_by: Sequence[str] | None = None,
        subtotals: str | Sequence[Sequence[str]] | None = None,
        pivot: Sequence[str] | None = None,
        parent: str | int | None = None,
        idempotency_key: str | None = None,
    ) -> ExportRun:
        """Ask for an export; an equal one that is under way is the answer, too.

        Args:
            requester: who asks; frozen into the run.
            parameters: conditions by name, as JSON values or as text.
            columns: keys of the columns to write, in this order; None writes every visible one. Of a grouped export,
                names of its measures.
            group_by: names of dimensions.
            subtotals: ``total``, ``rollup``, ``cube``, or the levels that are added up, each as the dimensions that
                stay; ``[]`` is the grand total.
            pivot: those of ``group_by`` that go across.
            parent: id of what the export belongs to, where its dataset has parents.
            idempotency_key: the same key with the same request gives the same run for a day.

        Raises:
            Refused: with a code and every fault; nothing was written.

        Example:
            >>> run = haul.exports.request(requester, "orders", parameters={"since": "2026-01-01"})
            >>> run.state == "queued"
            True
        """
        asked = Asked(
            dataset,
            format,
            dict(parameters or {}),
            columns,
            compression,
            dict(options or {}),
            parent,
            Grouping(group_by, subtotals, pivot),
        )
        return self.accept(requester, asked, idempotency_key=idempotency_key).run

    def accept(
        self,
        requester: Requester,
        asked: Asked,
        *,
        idempotency_key: str | None = None,
        private_run: str | None = None,
        faults: Sequence[Fault] = (),
    ) -> Accepted:
        """As ``request``, for doors that say whether the run is new.

        Args:
            private_run: an id whose worker the caller runs itself (``haulage export``).
            faults: what a door could not use of the request, to be told with everything else that is wrong with it.
        """
        dataset = asked.dataset
        try:
            declared = self._access(dataset, requester, faults)
            if len(json.dumps(requester.frozen())) > self._doors.requester_bytes:
                raise Refused("too_large", "Your grants are too many to be kept with an export.")
            parent, faults = self.parents.read_with(faults, declared, asked.parent)
            if parent is not None:  # Before a key is looked up: who has lost a parent must not find its runs by one.
                self.parents.admit(requester, parent)
            accepted = None if faults else self._answered(requester, idempotency_key, asked.digest())
            if accepted is None:
                wish = self._check(asked, declared, requester, faults, parent)
                accepted = self._enter(requester, wish, idempotency_key, asked.digest(), private_run)
        except Refused as refused:
            self._observe(
                events.RequestRefused(refused.code, requester.tenant, requester.account, f"export {dataset}"[:80])
            )
            refused.observed = True
            raise
        if accepted.new:
            run = accepted.run
            self._observe(events.RunRequested("export", run.id, run.tenant, run.account, run.dataset))
        return accepted

    def _access(self, dataset: str, requester: Requester, faults: Sequence[Fault]) -> Dataset:
        try:
            return access_dataset(self._catalogue, dataset, requester)
        except Refused as refused:
            if not faults:
                raise
            raise Refused("invalid", faults=[*faults, Fault("/dataset", refused.detail)]) from None

    def _answered(self, requester: Requester, key: str | None, body_hash: str) -> Accepted | None:
        """What a key stands for already. A replay needs no source, and no dataset as it was at the request."""
        kept = None if key is None else self._store.keys.find(requester.tenant, requester.account, key)
        return None if kept is None else self._replay(requester, kept, body_hash, None)

    def _enter(
        self, requester: Requester, wish: Wish, key: str | None, body_hash: str, private_run: str | None
    ) -> Accepted:
        """Decide and write in one transaction."""
        store, limits = self._store, self._limits
        with store.begin(tenant=requester.tenant) as tx:
            now = store.now()
            if key is not None:
                kept = store.keys.find(requester.tenant, requester.account, key, now=now, tx=tx)
                if kept is not None:
                    return self._replay(requester, kept, body_hash, tx)
                self._refuse_too_many_keys(requester, now, tx)
            run = draft(requester, wish, private_run or new_id(now), now, limits)
            assert run.active_key is not None
            active = store.exports.find_active(run.active_key, tenant=requester.tenant, tx=tx)
            if active is None:
                self._refuse_over_limits(requester, tx)
                if private_run is None and not store.workers.claiming(limits.presence_seconds, now=now, tx=tx):
                    raise Refused("no_worker", retry_after=RETRY_SECONDS)
                store.exports.add(run, tx=tx)
            if key is not None:
                kept = KeptKey(body_hash, (active or run).id)
                seconds = limits.idempotency_seconds
                store.keys.keep(requester.tenant, requester.account, key, kept, seconds=seconds, now=now, tx=tx)
        return Accepted(active or run, new=active is None)

    def _replay(self, requester: Requester, kept: KeptKey, body_hash: str, tx: Transaction | None) -> Accepted:
        if kept.body_hash != body_hash:
            raise Refused("key_reused")
        run = self._store.exports.get(kept.run, tenant=requester.tenant, tx=tx)
        if run is None:
            raise Refused("key_gone")
        return Accepted(run, new=False, replayed=True)

    def _refuse_too_many_keys(self, requester: Requester, now: int, tx: Transaction) -> None:
        """A request like one that is under way makes no run but keeps its key, so only this bounds the keys."""
        most = self._limits.idempotency_keys
        held, until = self._store.keys.held(requester.tenant, requester.account, at_most=most, now=now, tx=tx)
        if held >= most:
            assert until is not None
            raise Refused("too_many_keys", retry_after=(until - now) // 1000 + 1)

    def _refuse_over_limits(self, requester: Requester, tx: Transaction) -> None:
        limits, exports = self._limits, self._store.exports
        if exports.waiting(tenant=requester.tenant, tx=tx) >= limits.tenant_queued:
            detail = f"{limits.tenant_queued} exports may wait at once. Wait for one to start, or cancel one."
            raise Refused("too_many_queued", detail, retry_after=RETRY_SECONDS)
        if exports.waiting(tx=tx) >= limits.queued:
            raise Refused("queue_full", retry_after=RETRY_SECONDS)
        if exports.storage(requester.tenant, tx=tx).stored_bytes >= limits.store_bytes:
            raise Refused("storage_exceeded", retry_after=RETRY_SECONDS)

    # -- looking -----------------------------------------------------------------------------------

    def get(self, requester: Requester, run_id: str) -> ExportRun:
        """One run.

        Raises:
            Refused: ``not_found``.
        """
        run = self._store.exports.get(run_id, tenant=self._reach(requester))
        return access_run(run, requester, self.parents.of_run)

    def list(
        self,
        requester: Requester,
        *,
        state: str | None = None,
        dataset: str | None = None,
        parent: str | int | None = None,
        parent_kind: str | None = None,
        before: tuple[int, str] | None = None,
        limit: int = 50,
        everyone: bool = False,
    ) -> list[ExportRun]:
        """The requester's own runs, newest first; one more than ``limit`` when there is another page.

        Args:
            parent: the runs of a parent that is theirs, whoever asked for them; without it those that belong to none.
            parent_kind: which kind of parent, where the dataset does not tell.
            everyone: runs of every account, for the operator.

        Raises:
            Refused: ``forbidden`` for ``everyone`` without the operator grant; ``not_found`` for a parent that is not
                theirs; ``invalid`` where the parent, or its kind, is missing.
        """
        if everyone and self._reach(requester) is not None:
            raise Refused("forbidden", "Runs of every account need the operator grant.")
        if requester.banned:
            raise Refused("forbidden")
        whose = self.parents.listed(dataset, parent, parent_kind, everyone=everyone)
        if whose is not None and not requester.holds(OPERATOR):
            self.parents.admit(requester, whose)
        return self._store.exports.list(
            Query(
                tenant=None if everyone else requester.tenant,
                account=None if everyone or whose is not None else requester.account,
                state=state,
                dataset=dataset,
                parent=whose,
                parentless=whose is None and not everyone,
                before=before,
                limit=limit,
            )
        )

    def queue_position(self, run: ExportRun) -> int | None:
        """The place in the claim order now, from 1; None when the run is not waiting."""
        return self._store.exports.queue_position(run) if run.state == ExportLife.initial else None

    def storage(self, requester: Requester) -> Storage:
        """Bytes of the storage budget, in all and of the requester's tenant; the first are for the operator only."""
        return self._store.exports.storage(requester.tenant)

    # -- ending ------------------------------------------------------------------------------------

    def cancel(self, requester: Requester, run_id: str) -> ExportRun:
        """Record a cancel durably. A queued run is cancelled at once; a running one can only end so.

        Raises:
            Refused: ``not_found``, or ``already_final`` with the state.
        """
        run = self.get(requester, run_id)
        if ExportLife.is_final(run.state):
            raise Refused("already_final", f"The export is already {run.state}.", state=run.state)
        after = self._store.exports.request_cancel(run_id, tenant=self._reach(requester))
        if after is None:  # Its row went in this very moment.
            raise Refused("not_found")
        if after.cancel_requested_at is None:
            raise Refused("already_final", f"The export is already {after.state}.", state=after.state)
        self._observe(events.CancelRequested("export", run_id, requester.tenant, requester.account))
        return after

    def expire(self, requester: Requester, run_id: str) -> ExportRun:
        """Remove a ready file before its time.

        Raises:
            Refused: ``not_found``, or ``already_final`` where there is no file to remove.
        """
        self.get(requester, run_id)
        expired = self._store.exports.move(run_id, ExportLife.expire, {}, tenant=self._reach(requester))
        if expired is None:
            state = self.get(requester, run_id).state
            raise Refused("not_ready" if state in ExportLife.active else "already_final", state=state)
        self._observe(events.ExpiryRequested("export", run_id, requester.tenant, requester.account))
        return expired

    def parent_gone(self, tenant: str, kind: str, parent: str | int) -> Gone:
        """End the exports of a parent that is not there any more: cancel what waits or runs, let its files expire.

        Raises:
            Refused: ``invalid`` for what can be no id of that kind, ``not_found`` for a kind that is not declared.
        """
        if self._catalogue.find_parent(kind) is None:
            raise Refused("not_found", f"There is no kind of parent {kind[:63]!r}.")
        return let_go(self._store.exports, tenant, self.parents.ref(kind, parent), self._observe)

"""What stands behind a request: the file of a ready run, handed to whoever may have it now."""

from __future__ import annotations

import errno
from typing import BinaryIO

from haulage.core import events
from haulage.core.errors import ArtifactsUnavailable, Refused
from haulage.core.ports import Artifacts
from haulage.core.requester import OPERATOR, Requester
from haulage.exports.access import access_file
from haulage.exports.counts import RETRY_SECONDS
from haulage.exports.life import ExportLife, ExportRun
from haulage.exports.policies import Policies
from haulage.exports.screen import Screen

NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)  # of an open; others say nothing of the bytes
LOST = {"failure_code": "artifact_lost", "expires_at": None}
FILES_RETRY_SECONDS = 2  # told to one who comes while the place of files does not answer


class Files(Screen):
    """The half of ``Exports`` that fetches."""

    _artifacts: Artifacts
    policies: Policies

    @property
    def one_tenant(self) -> bool:
        """Say whether the store lets us act for one tenant at a time, so that nothing of all can be told."""
        return self._store.one_tenant

    def _reach(self, requester: Requester) -> str | None:
        """The tenant whose runs are looked for: the requester's, or None for the operator, where the store allows."""
        return None if requester.holds(OPERATOR) and not self._store.one_tenant else requester.tenant

    def may_fetch(self, requester: Requester, run_id: str) -> ExportRun:
        """A run whose file the requester may have now.

        Raises:
            Refused: ``not_found``, ``not_ready``, or why the file is gone; ``policy_changed`` when it shows what was
                to be seen before; ``host_silent`` when nobody can say.
        """
        run = self._store.exports.get(run_id, tenant=self._reach(requester))
        may = access_file(run, requester, self._catalogue, self._store.now(), self.parents.of_run)
        self.policies.refuse_changed(may)
        return may

    def still_may_fetch(self, requester: Requester, run: ExportRun, now: int) -> None:
        """The same for a run that is being fetched, as of an instant."""
        access_file(run, requester, self._catalogue, now, self.parents.of_run)
        self.policies.refuse_changed(run, lately=True)

    def open_file(self, requester: Requester, run_id: str) -> tuple[ExportRun, BinaryIO]:
        """The file of a ready run, opened and measured.

        Raises:
            Refused: as ``may_fetch``; ``artifact_lost`` when bytes are missing, and the run is corrected;
                ``files_unavailable`` when nobody can know that now.
        """
        run = self.may_fetch(requester, run_id)
        return run, self.open_found(run)

    def open_found(self, run: ExportRun) -> BinaryIO:
        """The file of a run that may be fetched.

        Raises:
            Refused: as ``open_file``.
        """
        assert run.artifact_key is not None
        try:
            opened, size = self._artifacts.open(run.artifact_key)
        except ArtifactsUnavailable as problem:
            raise Refused("files_unavailable", retry_after=FILES_RETRY_SECONDS) from problem
        except OSError as problem:
            if problem.errno not in NOT_THERE:  # This process may only have too many files open: the run stays ready.
                why = f"{type(problem).__name__}: {problem.strerror}"
                self._observe(events.StoreFailed("files", why, RETRY_SECONDS))
                raise Refused("files_unavailable", retry_after=RETRY_SECONDS) from problem
            raise self.mislay(run, type(problem).__name__) from problem
        if size != run.bytes:
            opened.close()
            raise self.mislay(run, f"{size} bytes instead of {run.bytes}")
        return opened

    def link(self, run: ExportRun, disposition: str) -> str | None:
        """Where a client fetches the file of a run by itself; None where it is served from here."""
        assert run.artifact_key is not None
        media_type = run.media_type or "application/octet-stream"
        try:
            return self._artifacts.link(run.artifact_key, disposition=disposition, media_type=media_type)
        except ArtifactsUnavailable as problem:
            raise Refused("files_unavailable", retry_after=FILES_RETRY_SECONDS) from problem

    def mislay(self, run: ExportRun, problem: str) -> Refused:
        """Correct a ready run whose bytes are missing or differ; gives the refusal to raise.

        A run that another request corrected, or that expired meanwhile, keeps its state.
        """
        moved = self._store.exports.move(run.id, ExportLife.mislay, LOST, tenant=run.tenant)
        if moved is None:
            today = self._store.exports.get(run.id, tenant=run.tenant)
            if today is not None and today.state == "expired":
                return Refused("expired", state="expired")
        else:
            self._observe(events.ArtifactLost(run.id, problem))
        return Refused("artifact_lost", state="failed")

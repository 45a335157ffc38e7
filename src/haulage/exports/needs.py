"""What the export service needs of a store; ``stores/`` has it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from haulage.core.ports import IdempotencyKeys, Runs, Storage, Transaction, Workers
from haulage.exports.life import ExportRun


class ExportRuns(Runs[ExportRun], Protocol):
    """The export table, with what only this flow asks of it."""

    def waiting(self, *, tenant: str | None = None, tx: Transaction | None = None) -> int:
        """How many runs wait."""

    def storage(self, tenant: str, *, tx: Transaction | None = None) -> Storage:
        """Bytes of the budget in use."""


class ExportStore(Protocol):
    """What the flow needs of a store."""

    @property
    def one_tenant(self) -> bool:
        """Whether it lets this process act for one tenant at a time only."""

    @property
    def exports(self) -> ExportRuns:
        """The export table."""

    @property
    def workers(self) -> Workers:
        """Who is alive."""

    @property
    def keys(self) -> IdempotencyKeys:
        """Idempotency keys."""

    def begin(self, *, tenant: str | None = None) -> AbstractContextManager[Transaction]:
        """A writing transaction, for one tenant or for all of them."""

    def now(self) -> int:
        """The store's clock."""

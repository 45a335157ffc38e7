"""Whose runs a verb may touch: where tenants are kept apart, once for every kind of store.

A verb of the doors takes ``tenant``. Then it touches runs of that tenant and no others; None is whoever works for
all of them: workers, sweeps, the operator.

    every store        ``of`` is the predicate, of a row in SQL and of a record in a folder
    row security       the transaction has the tenant as well (``SET LOCAL haulage.tenant``), and the database lets
                       nothing of another one through, whatever the statement forgot

The setting is local to its transaction: a pool of connections, ours or a proxy's, hands none on. The policies stand in
migrations/versions/v0001_tenants.postgresql.sql, the roles in migrations/roles.postgresql.sql.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.engine.interfaces import DBAPIConnection

OF_TENANT = "of_tenant"  # what the tenant is bound as in prepared statements
RUNTIME, WORKER, ROUTING = "haulage_runtime", "haulage_worker", "haulage_routing"


def of(kept: Any, tenant: Any) -> Any:
    """Say whether a run is a tenant's: of a record, or as SQL of a table's columns."""
    return kept.tenant == tenant


def may(tenant: str | None, run: Any) -> bool:
    """Say whether there is a run, and one who acts for a tenant, or for all of them, may touch it."""
    return run is not None and (tenant is None or bool(of(run, tenant)))


class Bounds(Protocol):
    """A database that keeps tenants apart by itself."""

    def bind(self, driver: DBAPIConnection, tenant: str) -> str:
        """A statement that binds the transaction to a tenant."""

    def bind_none(self) -> str:
        """A statement that lets the transaction act for all, whatever its connection was left with."""

    def make_roles(self, connection: Connection) -> None:
        """Make the roles, and let each do what it needs."""

    def role(self, connection: Connection) -> Role:
        """As whom the store is entered."""


@dataclass(frozen=True, slots=True)
class Role:
    """As whom a store is entered."""

    name: str
    passes_by: bool  # a superuser, or one with BYPASSRLS: no policy binds it
    owns: bool  # the tables: it could take the policies away
    one_tenant: bool  # it acts for one tenant at a time
    forced: bool  # every table of runs has its policies, also for their owner
    roles: bool  # they were made

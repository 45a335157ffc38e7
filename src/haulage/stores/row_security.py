"""How PostgreSQL keeps tenants apart (tenants.py): the tenant of a transaction, the roles, and as whom one came in."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, text
from sqlalchemy.engine.interfaces import DBAPIConnection

from haulage.core.errors import StoreUnavailable
from haulage.stores.dialect import driver_of
from haulage.stores.tenants import RUNTIME, Role

ROLES = Path(__file__).with_name("migrations") / "roles.postgresql.sql"
ROLE = f"""
select current_user::text as name, me.rolsuper or me.rolbypassrls as passes_by,
    pg_has_role(runs.relowner, 'usage') as owns,
    exists (select from pg_policy where polrelid = runs.oid and polname = 'exports_one'
        and exists (select from unnest(polroles) as bound where pg_has_role(bound, 'usage')))
        and not pg_has_role(runs.relowner, 'usage') as one_tenant,
    (select bool_and(relrowsecurity and relforcerowsecurity) from pg_class
        where oid in ('exports'::regclass, 'idempotency_keys'::regclass)) as forced,
    exists (select from pg_policy join pg_roles on pg_roles.oid = any (polroles)
        where polrelid = runs.oid and rolname = '{RUNTIME}') as roles
from pg_roles as me, pg_class as runs where me.rolname = current_user and runs.oid = 'exports'::regclass
"""


class RowSecurity:
    """Implements ``tenants.Bounds``."""

    def bind(self, driver: DBAPIConnection, tenant: str) -> str:
        """The policies read this setting; it ends with the transaction."""
        from psycopg import sql

        if not tenant:
            raise StoreUnavailable("a tenant without a name cannot be told from no tenant; give it one")
        return f"set local haulage.tenant = {sql.Literal(tenant).as_string(driver)}"  # type: ignore[arg-type]

    def bind_none(self) -> str:
        """An empty setting is none."""
        return "set local haulage.tenant = ''"

    def make_roles(self, connection: Connection) -> None:
        """Run what stands in migrations/roles.postgresql.sql."""
        driver_of(connection.connection).cursor().execute(ROLES.read_text())

    def role(self, connection: Connection) -> Role:
        """As the server knows us now, with what was granted to us since."""
        return Role(**connection.execute(text(ROLE)).one()._mapping)  # noqa: SLF001 - public API

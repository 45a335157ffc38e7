"""Idempotency keys, written with the run they stand for. Implements ``core.ports.IdempotencyKeys``."""

from __future__ import annotations

from sqlalchemy import Connection, delete, func, insert, select

from haulage.core.ports import KeptKey
from haulage.stores.database import Database
from haulage.stores.tables import idempotency_keys as keys


class SqlKeys:
    """The table of idempotency keys."""

    def __init__(self, database: Database) -> None:
        """Bind the database."""
        self._database = database

    def find(
        self, tenant: str, account: str, key: str, *, now: int | None = None, tx: Connection | None = None
    ) -> KeptKey | None:
        """What a key stands for, unless it is too old."""
        wanted = select(keys.c.body_hash, keys.c.run).where(
            keys.c.tenant == tenant,
            keys.c.account == account,
            keys.c.key == key,
            keys.c.expires_at > self._database.now(now),
        )
        with self._database.read(tx, tenant=tenant) as connection:
            row = connection.execute(wanted).first()
        return None if row is None else KeptKey(row.body_hash, row.run)

    def keep(
        self,
        tenant: str,
        account: str,
        key: str,
        kept: KeptKey,
        *,
        seconds: float,
        now: int | None = None,
        tx: Connection | None = None,
    ) -> None:
        """Remember a key; one that was too old is written anew."""
        instant = self._database.now(now)
        mine = (keys.c.tenant == tenant, keys.c.account == account, keys.c.key == key)
        with self._database.write(tx, tenant=tenant) as connection:
            connection.execute(delete(keys).where(*mine, keys.c.expires_at <= instant))
            connection.execute(
                insert(keys).values(
                    tenant=tenant,
                    account=account,
                    key=key,
                    body_hash=kept.body_hash,
                    run=kept.run,
                    expires_at=instant + int(seconds * 1000),
                )
            )

    def held(
        self, tenant: str, account: str, *, at_most: int, now: int | None = None, tx: Connection | None = None
    ) -> tuple[int, int | None]:
        """How many keys of an account are remembered, counted up to a number, and when the first of them is not."""
        mine = (keys.c.tenant == tenant, keys.c.account == account)
        some = select(keys.c.key).where(*mine).limit(at_most).subquery()  # the primary key alone, at every request
        with self._database.read(tx, tenant=tenant) as connection:
            count = connection.execute(select(func.count()).select_from(some)).scalar_one()
            if count < at_most:
                return count, None
            # Now it matters that some of them are only not swept yet.
            still = (*mine, keys.c.expires_at > self._database.now(now))
            row = connection.execute(select(func.count(), func.min(keys.c.expires_at)).where(*still)).one()
        return row[0], row[1]

    def forget(self, *, now: int | None = None) -> int:
        """Remove keys that are too old."""
        return self._database.forget(keys, keys.c.expires_at <= self._database.now(now))

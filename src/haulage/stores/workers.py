"""Presence: which workers live. Implements ``core.ports.Workers``."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select, update

from haulage.core.ports import Presence
from haulage.stores.database import Database
from haulage.stores.tables import workers


class SqlWorkers:
    """The table of living workers."""

    def __init__(self, database: Database) -> None:
        """Bind the database."""
        self._database = database

    def announce(self, presence: Presence, *, now: int | None = None) -> None:
        """Write or renew a worker's presence."""
        seen = self._database.now(now)
        with self._database.write() as connection:
            renewed = connection.execute(
                update(workers).where(workers.c.id == presence.id).values(seen_at=seen, state=presence.state)
            )
            if renewed.rowcount == 0:
                values = {name: getattr(presence, name) for name in workers.c.keys()}  # noqa: SIM118 - a collection
                connection.execute(insert(workers).values(values | {"started_at": seen, "seen_at": seen}))

    def leave(self, worker: str) -> None:
        """Remove it at a clean exit."""
        with self._database.write() as connection:
            connection.execute(delete(workers).where(workers.c.id == worker))

    def seen(self, within_seconds: float, *, now: int | None = None) -> list[Presence]:
        """Workers seen within so many seconds, the longest living first."""
        since = self._database.now(now) - int(within_seconds * 1000)
        wanted = select(workers).where(workers.c.seen_at >= since).order_by(workers.c.started_at)
        with self._database.read() as connection:
            return [Presence(**row._mapping) for row in connection.execute(wanted)]  # noqa: SLF001 - public API

    def claiming(self, within_seconds: float, *, now: int | None = None, tx: Connection | None = None) -> bool:
        """Say whether a worker that claims for everybody was seen within so many seconds."""
        since = self._database.now(now) - int(within_seconds * 1000)
        wanted = select(workers.c.id).where(
            workers.c.seen_at >= since, workers.c.state == "claiming", workers.c.only_run.is_(None)
        )
        with self._database.read(tx) as connection:
            return connection.execute(wanted.limit(1)).first() is not None

    def forget(self, older_than_seconds: float, *, now: int | None = None) -> int:
        """Remove presences of workers that died long ago."""
        before = self._database.now(now) - int(older_than_seconds * 1000)
        return self._database.forget(workers, workers.c.seen_at < before)

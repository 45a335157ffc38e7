"""Sign-ins of browsers. Implements ``core.ports.Sessions``; only hashes of secrets are kept."""

from __future__ import annotations

from sqlalchemy import delete, insert, select

from haulage.core.ports import SignIn
from haulage.stores.database import Database
from haulage.stores.tables import sessions


class SqlSessions:
    """The table of sign-ins."""

    def __init__(self, database: Database) -> None:
        """Bind the database."""
        self._database = database

    def open(self, sign_in: SignIn, *, now: int | None = None) -> None:
        """Remember a sign-in."""
        values = {name: getattr(sign_in, name) for name in sessions.c.keys()}  # noqa: SIM118 - a collection
        with self._database.write() as connection:
            connection.execute(insert(sessions).values(values))

    def find(self, session_id: str, *, now: int | None = None) -> SignIn | None:
        """A sign-in that has not ended."""
        wanted = select(sessions).where(sessions.c.id == session_id, sessions.c.expires_at > self._database.now(now))
        with self._database.read() as connection:
            row = connection.execute(wanted).first()
        return None if row is None else SignIn(**row._mapping)  # noqa: SLF001 - public API

    def close(self, session_id: str) -> None:
        """End a sign-in at once."""
        with self._database.write() as connection:
            connection.execute(delete(sessions).where(sessions.c.id == session_id))

    def take(self, session_id: str, *, now: int | None = None) -> SignIn | None:
        """Find a sign-in and end it, for a link that works once."""
        ended = (
            delete(sessions)
            .where(sessions.c.id == session_id, sessions.c.expires_at > self._database.now(now))
            .returning(*sessions.c)
        )
        with self._database.write() as connection:
            row = connection.execute(ended).first()
        return None if row is None else SignIn(**row._mapping)  # noqa: SLF001 - public API

    def forget(self, *, now: int | None = None) -> int:
        """Remove sign-ins that have ended."""
        return self._database.forget(sessions, sessions.c.expires_at <= self._database.now(now))

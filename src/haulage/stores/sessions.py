"""Sign-ins of browsers. Implements ``core.ports.Sessions``; only hashes of secrets are kept."""

from __future__ import annotations

from sqlalchemy import delete, insert, select

from haulage.core.ports import LINK, SignIn
from haulage.stores.database import Database
from haulage.stores.tables import sessions


class SqlSessions:
    """The table of sign-ins."""

    def __init__(self, database: Database) -> None:
        """Bind the database."""
        self._database = database

    def open(self, sign_in: SignIn, *, at_most: int | None = None) -> None:
        """Remember a sign-in; of a key's sign-ins only so many stay, those that end last, and this one."""
        values = {name: getattr(sign_in, name) for name in sessions.c.keys()}  # noqa: SIM118 - a collection
        others = select(sessions.c.id).where(
            sessions.c.key_name == sign_in.key_name,
            sessions.c.id != sign_in.id,
            ~sessions.c.id.startswith(LINK),
        )
        with self._database.write() as connection:
            connection.execute(insert(sessions).values(values))
            if at_most is not None:
                by_end = others.order_by(sessions.c.expires_at.desc(), sessions.c.id)
                surplus = connection.execute(by_end).scalars().all()[at_most - 1 :]
                connection.execute(delete(sessions).where(sessions.c.id.in_(surplus)))

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

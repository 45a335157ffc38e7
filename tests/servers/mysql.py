"""A MySQL server for the tests of one process, where HAULAGE_TEST_MYSQLD names its program.

No distribution that the tests can install it from has both MariaDB and it, so they do not install it. Where it is not
named, what a source does of MySQL is tried with MariaDB, whose protocol and most of whose words are the same.
"""

from __future__ import annotations

import functools
import os
import signal
from contextlib import closing

import pymysql
from tests.ports import free_port
from tests.servers.mariadb import MariaDB
from tests.servers.starting import make_folder, prepare, start

PROGRAM = os.environ.get("HAULAGE_TEST_MYSQLD")
SETTINGS = (
    "--innodb-buffer-pool-size=64M",
    "--innodb-flush-log-at-trx-commit=0",
    "--skip-log-bin",
    "--skip-name-resolve",
    "--mysqlx=OFF",
    "--secure-file-priv=NULL",
    "--max-connections=200",
)


class MySQL(MariaDB):
    """One running server."""

    def __init__(self, program: str):
        folder = make_folder("mysql")
        self.port, data, log, self._socket = free_port(), folder / "d", folder / "log.err", str(folder / "s")
        place = [program, "--no-defaults", f"--datadir={data}", f"--log-error={log}"]
        prepare([*place, "--initialize-insecure"])
        network = [f"--port={self.port}", "--bind-address=127.0.0.1", f"--socket={self._socket}"]
        command = [*place, *network, f"--pid-file={folder}/pid", *SETTINGS]
        self.process = start(command, signal.SIGKILL, self._answers, log)

    def _answers(self) -> bool:
        """Without names of hosts its root is only let in by the socket; then by the network, too."""
        try:
            with closing(pymysql.connect(unix_socket=self._socket, user="root")) as first, first.cursor() as cursor:
                cursor.execute("create user root@'127.0.0.1'")
                cursor.execute("grant all on *.* to root@'127.0.0.1' with grant option")
        except pymysql.err.OperationalError:
            return False
        return True

    def url(self, database: str, user: str = "root") -> str:
        return f"mysql://{user}@127.0.0.1:{self.port}/{database}"


@functools.cache
def server() -> MySQL:
    """The one server of this process."""
    assert PROGRAM is not None
    return MySQL(PROGRAM)

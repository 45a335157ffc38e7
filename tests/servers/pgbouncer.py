"""A PgBouncer that pools transactions, in front of the PostgreSQL of the tests."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import socket
from pathlib import Path

from tests.ports import free_port
from tests.servers import postgresql
from tests.servers.starting import NOBODY, make_folder, missing, runs_as, start

from haulage.stores.tenants import RUNTIME, WORKER

SETTINGS = """
[databases]
* = host=127.0.0.1 port={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
logfile = {folder}/log
pidfile = {folder}/pid
pool_mode = transaction
default_pool_size = 3
max_client_conn = 100
"""


class PgBouncer:
    """One running proxy: its few connections to the server are handed on after each transaction."""

    def __init__(self, program: str):
        folder = make_folder("pgbouncer")
        self.port = free_port()
        names = ("postgres", "owner_of_ours", RUNTIME, WORKER)
        self._write(folder / "users", "".join(f'"{name}" ""\n' for name in names))
        self._write(folder / "log", "")
        self._write(folder / "ini", SETTINGS.format(server=postgresql.server().port, port=self.port, folder=folder))
        start([program, folder / "ini"], signal.SIGKILL, self._answers, folder / "log")

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        if runs_as() >= 0:
            os.chown(path, NOBODY, NOBODY)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True


@functools.cache
def proxy() -> PgBouncer:
    """The one proxy of this process."""
    program = shutil.which("pgbouncer", path="/usr/bin:/usr/sbin:/usr/local/bin:/usr/local/sbin")
    if program is None:
        missing("PgBouncer")
    return PgBouncer(program)

"""Ports for the servers of the tests: each is promised to one process for as long as it lives.

They lie below those that the kernel gives to whoever asks for any, so that nobody takes one between the choice and the
start of its server, nor while a server is down for a moment.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

SPAN = 10_000
_promised: list[int] = []  # descriptors, whose locks end with this process


def free_port() -> int:
    """One that nobody listens on, nor will by chance."""
    folder = Path(tempfile.gettempdir()) / f"haulage-test-ports-{os.geteuid()}"
    folder.mkdir(exist_ok=True)
    given_away = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    last = given_away if given_away > 2 * SPAN else 3 * SPAN
    chance = random.SystemRandom()
    while True:
        port = chance.randrange(last - SPAN, last)
        descriptor = os.open(folder / str(port), os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            os.close(descriptor)
        else:
            _promised.append(descriptor)
            return port

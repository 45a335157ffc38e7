"""The web server and, beside it, a worker as a child process: what ``serve``, ``up`` and ``demo`` share.

Two processes, so that a build cannot make the page slow, and either can be killed without the other losing
anything. The worker holds the reading end of a pipe: when this process is gone, however it went, the worker
drains and ends.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from haulage.cli.terminal import Fault, say

if TYPE_CHECKING:
    from haulage.app import Haulage

RESTART_SECONDS = 1.0  # before a dead worker is started again; doubled each time
RESTART_SECONDS_MAX = 30.0
STEADY_SECONDS = 60.0  # a worker that lived so long begins anew with the shortest wait


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections from now on, so that an address that is printed answers.

    Raises:
        Fault: the address cannot be had.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(256)
    except OSError as problem:
        why = problem.strerror or str(problem)
        raise Fault(f"cannot listen on {host}, port {port}: {why}; choose another with --port or --host") from problem
    return listener


def address_of(listener: socket.socket) -> str:
    """The address that a browser on this host can open."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{host}:{port}"


def serve_web(
    haul: Haulage,
    listener: socket.socket,
    *,
    goodbye_seconds: int,
    started: Callable[[], None],
    stopping: Callable[[int], None] | None = None,
) -> None:
    """Serve until a signal.

    Args:
        goodbye_seconds: how long answers under way may still take.
        started: called once, when requests are answered.
        stopping: called with the number of each signal, in the main thread.
    """
    import uvicorn

    app = haul.asgi()

    def told(number: int, _frame: FrameType | None = None) -> None:
        app.state.hints.end()  # An open stream of events would hold the end up.
        if stopping is not None:
            stopping(number)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            started()

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            told(sig)
            super().handle_exit(sig, frame)

    # uvicorn raises the signal again when it has ended; then we still have a worker to wait for.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, told)
    give_up_silent(listener, haul.settings.doors.download_stall_seconds)
    config = uvicorn.Config(app, access_log=False, log_config=None)  # no access log: paths hold tokens
    config.server_header, config.timeout_graceful_shutdown = False, goodbye_seconds
    trusted = list(haul.settings.trusted_proxies)
    config.proxy_headers, config.forwarded_allow_ips = bool(trusted), trusted
    Server(config).run([listener])


def give_up_silent(listener: socket.socket, seconds: float) -> None:
    """Let the kernel end connections whose other side takes nothing or has vanished, though we are done with them.

    Without it an answer that was handed over whole waits for its reader for a quarter of an hour, or for ever.
    """
    option = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux; what a listener has, its connections inherit
    if option is not None:
        listener.setsockopt(socket.IPPROTO_TCP, option, max(1, int(seconds * 1000)))


class WorkerProcess:
    """A worker as a child process, started again when it dies."""

    def __init__(self, config: Path, lanes: int | None = None, log: Path | None = None) -> None:
        """Nothing is started yet; ``log`` takes what the worker says, instead of our standard error."""
        self._log = log
        self._command = [sys.executable, "-m", "haulage", "worker", "--config", str(config), "--with-parent"]
        self._command += [] if lanes is None else ["--lanes", f"exports={lanes}"]
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep, name="worker process", daemon=True)

    def start(self) -> None:
        """Start it and keep it."""
        self._thread.start()

    def signal(self, number: int) -> None:
        """Pass a signal on; from the first one on it is not started again. The second one ends it at once."""
        with self._lock:
            again = self._ending.is_set()
            self._ending.set()
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(signal.SIGINT if again else number)

    def _spawn(self) -> subprocess.Popen[bytes]:
        with ExitStack() as stack:
            log = None if self._log is None else stack.enter_context(self._log.open("ab"))
            # A session of its own: Ctrl-C at the terminal comes to us, and we say what it means.
            return subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def told(self) -> bool:
        """Say whether it was told to end."""
        return self._ending.is_set()

    def wait(self) -> None:
        """Wait until it has gone."""
        self._thread.join()

    def _keep(self) -> None:
        wait = RESTART_SECONDS
        while True:
            began = time.monotonic()
            with self._lock:
                if self._ending.is_set():
                    return
                self._process = self._spawn()
            code = self._process.wait()
            if self._ending.is_set():
                return
            wait = RESTART_SECONDS if time.monotonic() - began > STEADY_SECONDS else wait
            say(f"the worker has {_ended(code)}; starting another in {wait:g} s")
            self._ending.wait(wait)
            wait = min(RESTART_SECONDS_MAX, wait * 2)


def _ended(code: int) -> str:
    if code < 0:
        return f"been ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"

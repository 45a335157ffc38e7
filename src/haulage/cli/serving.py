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
from haulage.core.errors import StoreUnavailable
from haulage.worker.supervisor import Bell

if TYPE_CHECKING:
    from haulage.app import Haulage

RESTART_SECONDS = 1.0  # before a dead worker is started again; doubled each time
RESTART_SECONDS_MAX = 30.0
WORKER_SECONDS = 15.0  # a worker that was started with us is waited for so long
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

        def handle_exit(self, sig: int, _frame: FrameType | None) -> None:
            # Not uvicorn's own: it would raise the signal once more at its end, and our worker would take that for
            # a second one, which ends builds at once.
            told(sig)
            self.force_exit = self.should_exit and sig == signal.SIGINT
            self.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, told)
    give_up_silent(listener, haul.settings.doors.download_stall_seconds)
    config = uvicorn.Config(app, access_log=False, log_config=None)  # no access log: paths hold tokens
    config.server_header, config.timeout_graceful_shutdown = False, goodbye_seconds
    trusted = list(haul.settings.trusted_proxies)
    config.proxy_headers, config.forwarded_allow_ips = bool(trusted), trusted
    Server(config).run([listener])


def once_attended(haul: Haulage, act: Callable[[], None]) -> None:
    """Act, in a thread of its own, when a worker claims: who is told an address uses it at once.

    Where none comes for so long, act all the same: files can still be fetched.
    """

    def wait() -> None:
        limit = time.monotonic() + WORKER_SECONDS
        while not _attended(haul) and time.monotonic() < limit:
            time.sleep(0.05)
        act()

    threading.Thread(target=wait, name="once attended", daemon=True).start()


def _attended(haul: Haulage) -> bool:
    try:
        return haul.store.workers.claiming(haul.settings.exports.presence_seconds)
    except StoreUnavailable:
        return False


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
        self._told = False
        self._bell = Bell()
        self._lock = threading.RLock()  # a signal handler may come in while this very thread holds it
        self._thread = threading.Thread(target=self._keep, name="worker process", daemon=True)

    def start(self) -> None:
        """Start it and keep it."""
        self._thread.start()

    def signal(self, number: int) -> None:
        """Pass a signal on; from the first one on it is not started again. The second one ends it at once.

        A signal handler may call it, also while an earlier one is at it.
        """
        with self._lock:
            again, self._told = self._told, True
            self._bell.ring()
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(signal.SIGINT if again else number)

    def _started(self) -> subprocess.Popen[bytes] | None:
        """Another one, unless it was told to end."""
        with self._lock:
            self._process = None if self._told else self._spawn()
            return self._process

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
        return self._told

    def wait(self) -> None:
        """Wait until it has gone."""
        self._thread.join()

    def _keep(self) -> None:
        wait = RESTART_SECONDS
        while (process := self._started()) is not None:
            began = time.monotonic()
            code = process.wait()
            if self._told:
                return
            wait = RESTART_SECONDS if time.monotonic() - began > STEADY_SECONDS else wait
            say(f"the worker has {_ended(code)}; starting another in {wait:g} s")
            self._bell.wait(wait)
            wait = min(RESTART_SECONDS_MAX, wait * 2)


def _ended(code: int) -> str:
    if code < 0:
        return f"been ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"

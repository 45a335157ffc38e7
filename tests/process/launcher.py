"""Starts workers fast: one process that has loaded everything forks one for each order it reads.

``python launcher.py PROGRAM`` loads a module of this folder, reads orders as JSON lines, and answers each with a line:
``{"config": …, "log": …, "stderr": …}`` with the new process's id, ``{"wait": PID}`` with its return code, or null if
it lives. It has no threads and opens no database, so what it forks starts as clean as a new program; it ends with its
standard input.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path


class Launcher:
    """The side of the tests."""

    def __init__(self, program: str = "worker_process", **environment: str):
        self._process = subprocess.Popen(
            [sys.executable, __file__, program],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, config: dict, log: Path, stderr: Path) -> Forked:
        return Forked(self, self.ask({"config": config, "log": str(log), "stderr": str(stderr)}))

    def ask(self, order: dict):
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


class Forked:
    """One process that the launcher started, with what is used of ``subprocess.Popen``."""

    def __init__(self, launcher: Launcher, pid: int):
        self.pid = pid
        self._launcher = launcher
        self._returned: int | None = None

    def poll(self) -> int | None:
        if self._returned is None:
            self._returned = self._launcher.ask({"wait": self.pid})
        return self._returned

    def wait(self, seconds: float) -> int:
        deadline = time.monotonic() + seconds
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"worker {self.pid}", seconds)
            time.sleep(0.01)
        return self._returned


def serve() -> None:
    sys.path.insert(0, str(Path(__file__).parents[2]))
    main = importlib.import_module(f"tests.process.{sys.argv[1]}").main

    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            pid, status = os.waitpid(order["wait"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = os.fork()
            if answer == 0:
                become_worker(main, order)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def become_worker(main, order: dict) -> None:
    """A process group of its own, nothing left of the launcher's pipes, and never back into its loop."""
    code = 1
    try:
        os.setpgid(0, 0)
        null, errors = os.open(os.devnull, os.O_RDWR), os.open(order["stderr"], os.O_WRONLY | os.O_CREAT, 0o600)
        for descriptor, replaced in ((null, 0), (null, 1), (errors, 2)):
            os.dup2(descriptor, replaced)
        main(order["config"], Path(order["log"]))
        code = 0
    finally:
        if code:
            import traceback

            traceback.print_exc()
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()

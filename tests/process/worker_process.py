"""One worker of a test, in a process of its own; ``launcher.py`` forks it."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import threading
from dataclasses import fields
from pathlib import Path

from haulage.artifacts.open import open_artifacts
from haulage.config import ObjectSettings
from haulage.core.limits import BuildLimits, ExportLimits
from haulage.exports.expire import ExportSweep
from haulage.sources import scheme_of
from haulage.stores import open_store
from haulage.worker import process, supervisor
from haulage.worker.sweeper import Sweeper

# A child that waits at the end of its file while there is a gate: what a test does before that, it does in time.
HELD = """
import time
from pathlib import Path
from haulage.exports import build
from haulage.worker.child import main

end, gate = build._Writer.end, Path({gate!r})

def wait_and_end(writer):
    writer.flush()
    while gate.exists():
        time.sleep(0.01)
    end(writer)

build._Writer.end = wait_and_end
main()
"""


def main(config: dict, log: Path) -> None:
    lock = threading.Lock()
    file = log.open("a")

    def observe(event: object) -> None:
        known = {each.name: getattr(event, each.name) for each in fields(event)}
        with lock:
            file.write(json.dumps({"event": type(event).__name__, **known}) + "\n")
            file.flush()

    os.environ.update(config["environment"])
    process.KEPT += tuple(name for name in os.environ if name in ("LD_PRELOAD", "HAULAGE_SHIM"))
    for name, value in config["rlimits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
    if config["look_seconds"] is not None:
        supervisor.LOOK_SECONDS = config["look_seconds"]
    if config.get("gate") is not None:
        process.START = HELD.format(gate=config["gate"])
    if not config["inotify"]:
        refuse_inotify()
    limits = ExportLimits(**{**config["limits"], "build": BuildLimits(**config["limits"]["build"])})
    store = open_store(config["store"], limits, observe=observe)
    artifacts = open_artifacts(config["artifacts"], ObjectSettings(**config["objects"]))
    artifacts.prepare()
    sweeper = Sweeper(ExportSweep(store, artifacts, limits, observe), limits.sweep_seconds, observe)
    sources = {"shop": (config["source"], config["busy_seconds"])}
    supervisor.Supervisor(
        store,
        artifacts,
        limits,
        sweeper,
        source_of=sources.__getitem__,
        permit=lambda _run: None,
        lanes=config["lanes"],
        version="test",
        only_run=config["only_run"],
        loads=[scheme_of(config["source"])],
        observe=observe,
    ).run()


def refuse_inotify() -> None:
    """Let the kernel refuse every further instance of inotify to this process, as it does when none is left."""
    CLONE_NEWUSER = 0x10000000  # noqa: N806 - its name in unshare(2); the limit is one of a user namespace
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(CLONE_NEWUSER):
        raise OSError(ctypes.get_errno(), "no user namespace")
    Path("/proc/sys/user/max_inotify_instances").write_text("0")
    assert library.inotify_init1(0) < 0

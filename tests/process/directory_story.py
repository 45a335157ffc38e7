"""The life of one run on a directory store, told by a process whose calls go through the shim.

``python directory_story.py`` reads a number and a folder a line, forks so many processes that go through the story in
it, and answers with a line for each: its return code and what it said. It is asked by ``test_directory_faults.py``.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from haulage.core.errors import StoreUnavailable
from haulage.core.ports import After, KeptKey, Terms
from haulage.core.progress import Progress
from haulage.exports.life import ExportLife, ExportRun
from haulage.stores.directory.store import open_directory

ID = "01890000-0000-7000-8000-000000000001"
TERMS = Terms("w1", lease_seconds=15, slots=1, tenant_running=1, store_bytes=1 << 30, grace_seconds=10)
RUN = ExportRun(
    ID, "north", "queued", 0, account="amina", dataset="orders", active_key="equal", generation_ms=60_000, file_bytes=9
)
FILE = {"rows": 1, "bytes": 3, "stored_bytes": 3, "sha256": "f" * 64, "complete": True, "expires_at": After(600)}


def ask(store, run_id=ID):
    """What a door does: the id of the run that answers the request."""
    with store.begin() as tx:
        now = store.now()
        kept = store.keys.find("north", "amina", "k", now=now, tx=tx)
        if kept is not None:
            return kept.run
        active = store.exports.find_active("equal", tx=tx)
        if active is None:
            store.exports.add(replace(RUN, id=run_id, requested_at=now, claim_by=now + 150_000), tx=tx)
        found = active.id if active else run_id
        store.keys.keep("north", "amina", "k", KeptKey("b" * 64, found), seconds=60, now=now, tx=tx)
    return found


def work(store):
    """What a worker and the sweep do with it."""
    claimed = store.exports.claim(TERMS)
    if claimed is None:
        return "nothing to claim"
    held, _ = claimed
    store.exports.heartbeat([(held, None)], lease_seconds=15)
    store.exports.heartbeat([(held, Progress("writing", 1, 1))], lease_seconds=15)
    store.exports.settle(held, ExportLife.finish, FILE)
    run = store.exports.move(held.id, ExportLife.expire, {})
    store.exports.forget_bytes(held.id, run.artifact_key)
    return "done"


def tell_at_once(folder):
    """One of many, all at the same instant: ask for the same, then claim it, as soon as the word is given."""
    store, said = open_directory(f"directory://{folder}/store"), []
    terms = replace(TERMS, slots=9)  # so that it is not a slot which keeps the others out
    for step, word in (
        (lambda: ask(store, f"run-{os.getpid()}"), "ask"),
        (lambda: store.exports.claim(terms), "claim"),
    ):
        (folder / f"{word}-{os.getpid()}").touch()
        while not (folder / word).exists():
            pass
        try:
            answer = step()
        except StoreUnavailable:
            answer = None
        said.append(answer if word == "ask" else answer and answer[0].id)
    return said


def tell(folder):
    if (folder / "at once").exists():
        return tell_at_once(folder)
    said = []
    for step in (ask, work):
        try:
            said.append(step(open_directory(f"directory://{folder}/store")))
        except StoreUnavailable as problem:
            said.append(f"refused: {problem}")
    return said


def serve():
    for line in sys.stdin:
        count, folder = line.strip().split(" ", 1)
        children = [begin(folder) for _ in range(int(count))]
        for pid, pipe in children:
            with os.fdopen(pipe) as words:
                said = words.read()
            _, status = os.waitpid(pid, 0)
            sys.stdout.write(json.dumps([os.waitstatus_to_exitcode(status), said]) + "\n")
        sys.stdout.flush()


def begin(folder):
    """A process that goes through the story; its id, and what it says."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    os.environ["HAULAGE_SHIM"] = folder
    code = 1
    try:
        os.write(writing, json.dumps(tell(Path(folder))).encode())
        code = 0
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve()

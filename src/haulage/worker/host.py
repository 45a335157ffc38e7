"""What a child that runs code of the host is told besides the plan: who asked, its environment, where modules are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from haulage.core.clock import rfc3339
from haulage.core.errors import BuildFailed
from haulage.exports.life import ExportRun
from haulage.worker.process import environment_of_child

LOOKED_UP = "env:"  # what a value begins with that the worker's own environment has
REHEARSAL = "from haulage.sources.pages import rehearse; rehearse()"
REHEARSAL_SECONDS = 60


def host_of(run: ExportRun) -> dict[str, Any] | None:
    """For a run whose rows or file the host's own code makes; None for a query on a source.

    Raises:
        BuildFailed: ``source_unavailable`` when the worker's environment lacks what is declared.
    """
    declared = run.plan.get("pages") or run.plan.get("command")
    if declared is None:
        return None
    environment, missing = looked_up(declared["environment"])
    if missing:
        raise BuildFailed("source_unavailable", cause=f"the worker's environment has no {', '.join(missing)}")
    if "command" in run.plan:
        return {"environment": environment, "request": _request(run)}
    return {"requester": dict(run.requester), "environment": environment, "path": module_path()}


def _request(run: ExportRun) -> dict[str, Any]:
    """What a command is told of its run, in a file of its own."""
    return {
        "run": run.id,
        "dataset": run.dataset,
        "format": run.format,
        "parameters": dict(run.parameters),
        **({} if run.parent is None else {"parent": run.parent}),
        "requester": {name: run.requester[name] for name in ("tenant", "account", "grants")},
        "as_of": rfc3339(run.as_of),
        "limits": {"rows": run.plan["limits"]["rows"]},
    }


def looked_up(declared: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """An environment as it is declared, with what this process has of it, and the names that it does not have."""
    wanted = {name: value.removeprefix(LOOKED_UP) for name, value in declared.items() if value.startswith(LOOKED_UP)}
    found = {name: os.environ[theirs] for name, theirs in wanted.items() if theirs in os.environ}
    plain = {name: value for name, value in declared.items() if name not in wanted}
    return plain | found, sorted(set(wanted.values()) - os.environ.keys())


def module_path() -> list[str]:
    """Where this process finds modules, from whatever folder it was started in."""
    return [os.path.abspath(entry) for entry in sys.path]  # noqa: PTH100 - an empty one is the folder we are in


def rehearse(requester: Mapping[str, Any], pages: Mapping[str, Any]) -> list[str]:
    """Import page functions as the child of a run does, in a process of its own; every problem as a sentence."""
    host = {"requester": requester, "environment": looked_up(pages["environment"])[0], "path": module_path()}
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-c", REHEARSAL],
                input=json.dumps({"host": host, "pages": pages}),
                capture_output=True,
                check=False,
                text=True,
                cwd=folder,
                env=environment_of_child() | {"TMPDIR": folder},
                timeout=REHEARSAL_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return [f"{pages['function']}: to import it took longer than {REHEARSAL_SECONDS} s"]
    try:
        problems: list[str] = json.loads(done.stdout.splitlines()[-1])["problems"]
    except (ValueError, LookupError, TypeError):
        words = done.stderr.strip().splitlines()[-1:]
        return [f"{pages['function']}: the process that imports it ended with {done.returncode}; {' '.join(words)}"]
    return problems

"""The units of ``deploy/`` as a test reads them, and a service started as they say: signals, system calls, sockets."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = ("haulage-web.service", "haulage-worker.service")
INSTALLED = "/opt/haulage/bin/"  # where the documentation installs it
HERE = f"{Path(sys.executable).parent}/"


def need(program: str) -> str:
    """The path of a program, or the test is skipped by its name."""
    return shutil.which(program) or pytest.skip(f"no {program}")


class Unit:
    """One unit file, with the values of each key in their order."""

    def __init__(self, name: str):
        self.name = name
        self.text = (DEPLOY / name).read_text()

    def all(self, key: str) -> list[str]:
        return re.findall(rf"^{key}=(.*)$", self.text, re.MULTILINE)

    def one(self, key: str) -> str:
        (value,) = self.all(key)
        return value

    @property
    def command(self) -> list[str]:
        """What it starts, of the environment that the tests run in."""
        return [word.replace(INSTALLED, HERE) for word in self.one("ExecStart").split()]

    def put(self, folder: Path) -> Path:
        """A copy whose command exists here: of what is not installed, everything would be said to be missing."""
        path = folder / self.name
        path.write_text(re.sub(rf"{INSTALLED}(\S+)", lambda found: f'"{HERE}{found[1]}"', self.text))
        return path

    def calls(self) -> list[str]:
        """The system calls that SystemCallFilter allows; a line that begins with ~ takes away."""
        sets, allowed = call_sets(), set[str]()
        for line in self.all("SystemCallFilter"):
            named = {call for word in line.removeprefix("~").split() for call in members(word, sets)}
            allowed = allowed - named if line.startswith("~") else allowed | named
        return sorted(allowed | members("@default", sets))


def call_sets() -> dict[str, list[str]]:
    """The sets of system calls that this systemd knows."""
    done = subprocess.run(
        [need("systemd-analyze"), "syscall-filter", "--no-pager"],
        capture_output=True, text=True, check=True, env={**os.environ, "SYSTEMD_COLORS": "0"},
    )  # fmt: skip
    sets: dict[str, list[str]] = {}
    name = ""
    for line in done.stdout.splitlines():
        if line.startswith("@"):
            name = line.strip()
            sets[name] = []
        elif line.startswith("    ") and not line.strip().startswith("#"):
            sets[name].append(line.strip())
        elif line.startswith("#"):
            name = "unknown"  # what follows are calls of the kernel that stand in no set
            sets[name] = []
    return sets


def members(word: str, sets: dict[str, list[str]]) -> set[str]:
    """The calls of a set, those of the sets within it too."""
    if not word.startswith("@"):
        return {word}
    return {call for inner in sets[word] for call in members(inner, sets)}


def confined(unit: Unit, calls: list[str], command: list[str]) -> list[str]:
    """The command under a filter of these system calls, and of the unit's families of sockets."""
    order = {
        "calls": calls,
        "families": unit.one("RestrictAddressFamilies").split(),
        "errno": unit.one("SystemCallErrorNumber"),
    }
    return [sys.executable, str(Path(__file__).parent / "confined.py"), json.dumps(order), *command]


class Service:
    """A process started with a unit's command, and ended as systemd ends it."""

    def __init__(self, unit: Unit, folder: Path, environ: dict[str, str], *, calls: list[str] | None = None):
        """``calls`` confines it to these system calls and to the unit's families of sockets."""
        self.unit = unit
        command = unit.command if calls is None else confined(unit, calls, unit.command)
        self._log = folder / f"{unit.name}.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    @property
    def log(self) -> str:
        return self._log.read_text()

    def group(self) -> list[int]:
        """Every process of the unit: in a session of its own, as in a control group of its own."""
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and self._ours(entry)]

    def _ours(self, entry: Path) -> bool:
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            return False
        return fields[0] != "Z" and int(fields[3]) == self.process.pid

    def stop(self) -> None:
        """The first signal of a stop: to the main process alone where KillMode says so."""
        number = signal.Signals[(self.unit.all("KillSignal") or ["SIGTERM"])[0]]
        modes = {"mixed": [self.process.pid], "process": [self.process.pid], "control-group": self.group()}
        for pid in modes[(self.unit.all("KillMode") or ["control-group"])[0]]:
            os.kill(pid, number)

    def kill(self) -> None:
        """What comes when the stop time is over."""
        for pid in self.group():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(60)

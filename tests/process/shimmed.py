"""A house whose workers make their calls through ``shim.c``, which notes each and lets a test say what goes wrong."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.process.house import House

# What a build does to the disk, in this order: a file is synced before it gets its name, and its folder after.
PUBLISH = [
    "mkdir work/KEY",
    "open work/KEY/part",
    "write work/KEY/part",
    "fsync work/KEY/part",
    "close work/KEY/part",
    "rename work/KEY/part",
    "open files",
    "fsync files",
    "close files",
    "open work/KEY",
    "close work/KEY",
    "rmdir work/KEY",
]
BY_CHILD = ("open work/KEY/part", "write work/KEY/part", "fsync work/KEY/part", "close work/KEY/part")
# And what takes the bytes of a build away that ended otherwise.
REMOVE = [
    "unlink work/KEY",
    "open work/KEY",
    "unlink work/KEY/part",
    "close work/KEY",
    "rmdir work/KEY",
    "open work",
    "fsync work",
    "close work",
    "unlink files/KEY",
]


def build_shim(folder: Path) -> Path:
    """The library to load before a program's own, freshly compiled."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        assert os.environ.get("HAULAGE_TEST_ALL") != "1", "HAULAGE_TEST_ALL=1, and there is no C compiler"
        pytest.skip("no C compiler: the faults of single calls cannot be injected")
    built = folder / "shim.so"
    source = Path(__file__).with_name("shim.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", built, source, "-ldl"], check=True)
    return built


def rule_for(call: str, run: str, action: str) -> str:
    """What the shim has to be told so that this call of a run's first build goes wrong."""
    operation, path = call.split(" ")
    return f"{operation} artifacts/{path.replace('KEY', run + '.1')}$ 1 {action}"


class Shimmed(House):
    """Needs a launcher that loads the shim."""

    def worker(self, **config):
        return super().worker(environment={"HAULAGE_SHIM": str(self.folder)}, **config)

    def rule(self, *rules: str) -> None:
        """From now on these go wrong."""
        written = self.folder / "rules.new"
        written.write_text("\n".join(rules))
        written.rename(self.folder / "rules")

    def calls(self, run: str | None = None) -> list[str]:
        """The calls that were made on the bytes of a run, in its short form; or all of them, as they were written."""
        lines = (self.folder / "calls").read_text().splitlines()
        if run is None:
            return lines
        made = [line.split(" ", 1)[1] for line in lines if " artifacts/" in line and not line.endswith("/.haulage")]
        return [re.sub(re.escape(run) + r"\.\d+", "KEY", line).replace("artifacts/", "") for line in made]

    def fired(self) -> int:
        return len([line for line in self.calls() if line.startswith("FIRED")])

"""The units: systemd understands them, they are hardened, and their numbers agree with those of the product."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.deploy.units import DEPLOY, UNITS, Unit, need

from haulage.cli.serve import GOODBYE_SECONDS
from haulage.config import load
from haulage.config.kinds import SIZE
from haulage.core.limits import DoorLimits, ExportLimits

EXPOSURE_MAX = 20  # tenths, of 100; without any hardening it is 96
WORKER, WEB = Unit("haulage-worker.service"), Unit("haulage-web.service")


def analyze(*words):
    """What systemd-analyze answers: its code, and everything that it says on standard error."""
    done = subprocess.run(
        [need("systemd-analyze"), *map(str, words)], capture_output=True, text=True, check=False, timeout=120
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("name", UNITS)
def test_systemd_understands_every_line(name, tmp_path):
    path = Unit(name).put(tmp_path)

    assert (0, "") == analyze("verify", "--man=no", "--recursive-errors=no", path)


def test_a_line_that_systemd_does_not_know_would_be_found(tmp_path):
    path = WORKER.put(tmp_path)
    path.write_text(path.read_text().replace("KillMode=", "KillMood="))

    assert "KillMood" in analyze("verify", "--man=no", "--recursive-errors=no", path)[1]


@pytest.mark.parametrize("name", UNITS)
def test_little_is_exposed(name, tmp_path):
    words = ("security", "--offline=true", f"--threshold={EXPOSURE_MAX}", "--no-pager")
    bare = tmp_path / "bare.service"
    bare.write_text("[Service]\nExecStart=/bin/true\n")

    assert 0 == analyze(*words, Unit(name).put(tmp_path))[0]
    assert 0 != analyze(*words, bare)[0]


@pytest.mark.process
@pytest.mark.parametrize("name", UNITS)
def test_a_unit_starts_a_command_that_exists(name):
    done = subprocess.run([*Unit(name).command, "--help"], capture_output=True, text=True, check=False)

    assert (0, f"Usage: haulage {Unit(name).command[1]} ") == (done.returncode, re.split(r"\[", done.stdout)[0])


def test_both_units_are_hardened_alike():
    """One that is let off something is let off on purpose: then this list says so."""
    own = {"Description", "ExecStart", "TimeoutStopSec", "MemoryMax", "OOMPolicy", "LimitNOFILE"}

    def shared(unit):
        pairs = re.findall(r"^(\w+)=(.*)$", unit.text, re.MULTILINE)
        return [pair for pair in pairs if pair[0] not in own]

    assert shared(WEB) == shared(WORKER)


def test_the_stop_time_is_above_the_drain():
    """A build that did not finish has still to be ended (TERM, KILL), its bytes removed and its run settled."""
    limits = ExportLimits()

    assert int(WORKER.one("TimeoutStopSec")) >= limits.drain_seconds + 2 * limits.stop_seconds
    assert int(WEB.one("TimeoutStopSec")) > GOODBYE_SECONDS
    assert ["mixed"] == WORKER.all("KillMode")


def test_memory_and_descriptors_are_enough():
    limits, doors = ExportLimits(), DoorLimits()

    assert int(SIZE.parse(WORKER.one("MemoryMax").replace("M", " MiB"))) > limits.slots * limits.build.memory_bytes
    assert int(WEB.one("LimitNOFILE")) > 4 * doors.downloads_in_all
    assert "continue" == WORKER.one("OOMPolicy")  # else one build takes the worker and the other build with it


@pytest.mark.parametrize("unit", [WORKER, WEB], ids=lambda unit: unit.name)
def test_what_cannot_help_is_not_tried_again(unit):
    assert ["always", "2"] == [unit.one("Restart"), unit.one("RestartPreventExitStatus")]
    assert "0" == unit.one("StartLimitIntervalSec")


def test_the_example_of_the_environment_is_read_as_it_is_meant(tmp_path):
    lines = [line for line in (DEPLOY / "haulage.env").read_text().splitlines() if line and not line.startswith("#")]
    environ = dict(line.split("=", 1) for line in lines)
    assert "" == environ["HAULAGE_SECRET"]  # everybody makes one of their own
    config = tmp_path / "haulage.toml"
    config.write_text('secret_keys = ["env:HAULAGE_SECRET"]\n')
    state = f"/var/lib/{WORKER.one('StateDirectory')}"

    settings = load(config, environ | {"HAULAGE_SECRET": "kJ8s-2hd0qLx7Zp4Wm1Rv6Tt3Yy9Uu5I"})

    assert f"sqlite:///{state}/haulage.db" == settings.store
    assert f"file:{state}/artifacts" == settings.artifacts
    assert Path(WORKER.one("EnvironmentFile")).parent == Path(WORKER.one("Environment").split("=")[1]).parent


def test_the_user_and_its_folder_can_be_made(tmp_path):
    (tmp_path / "etc").mkdir()
    user, folder = DEPLOY / "haulage.sysusers", DEPLOY / "haulage.tmpfiles"
    commands = [
        [need("systemd-sysusers"), "--dry-run", f"--root={tmp_path}", user],
        [need("systemd-tmpfiles"), "--create", "--prefix=/nowhere", folder],  # reads all of it and makes nothing
    ]
    said = [subprocess.run(words, capture_output=True, text=True, check=False) for words in commands]
    made = re.findall(r"^d (\S+) (\d+) (\S+) (\S+) -$", folder.read_text(), re.MULTILINE)

    assert [0, 0] == [done.returncode for done in said], said
    assert "haulage" in said[0].stderr + said[0].stdout
    assert "" == said[1].stderr
    assert [("/etc/haulage", "0700", WORKER.one("User"), WORKER.one("Group"))] == made
    assert os.path.dirname(WORKER.one("EnvironmentFile")) == made[0][0]  # noqa: PTH120 - a text, not a path here

"""The container file and the compose file: linters have nothing to say, and what they name exists."""

from __future__ import annotations

import json
import re
import shlex
import subprocess

import pytest
from tests.deploy.units import DEPLOY, Unit, need
from tests.stories.terminal import Terminal, until

from haulage.cli.main import COMMANDS
from haulage.config.kinds import SECONDS, SIZE
from haulage.core.limits import ExportLimits

CONTAINERFILE, COMPOSE = DEPLOY / "Containerfile", DEPLOY / "compose.yaml"
TEXT = CONTAINERFILE.read_text()


def lint(path):
    done = subprocess.run([need("hadolint"), "--no-color", path], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def check(path):
    words = [need("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", path]
    return subprocess.run(words, capture_output=True, text=True, check=False).returncode


def words_of(instruction):
    """The words of an instruction that is written as a list."""
    (found,) = re.findall(rf"{instruction}[^\[\n]*(?:\\\n *CMD )?(\[.*\])$", TEXT, re.MULTILINE)
    return json.loads(found)


def test_the_linter_of_container_files_finds_nothing():
    assert (0, "") == lint(CONTAINERFILE)


@pytest.mark.parametrize(
    ("text", "instead", "found"),
    [
        (":3.13-slim", "", "DL3006"),
        ("WORKDIR /build", "WORKDIR build", "DL3000"),
        ("USER 8480:8480", "USER root", "DL3002"),
    ],
)
def test_the_linter_would_find_a_fault(text, instead, found, tmp_path):
    path = tmp_path / "Containerfile"
    path.write_text(TEXT.replace(text, instead))

    assert found in lint(path)[1]


def test_the_compose_file_is_as_its_schema_wants(tmp_path):
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(COMPOSE.read_text().replace("mem_limit:", "memory_limit:"))

    assert 0 == check(COMPOSE)
    assert 0 != check(wrong)


def test_no_registry_is_named_and_nobody_is_root():
    assert {"python:3.13-slim"} == set(re.findall(r"^FROM (\S+)", TEXT, re.MULTILINE))
    assert ["image: haulage"] == re.findall(r"image: .*", COMPOSE.read_text())
    assert ["8480:8480"] == re.findall(r"^USER (.*)", TEXT, re.MULTILINE)
    assert f"--uid {8480} --gid {8480}" in TEXT


def test_what_is_started_exists_and_may_take_its_time_to_stop():
    compose, limits = COMPOSE.read_text(), ExportLimits()
    commands = re.findall(r"^    command: (.*)$", compose, re.MULTILINE)
    graces = [SECONDS.parse(text.replace("s", " s")) for text in re.findall(r"stop_grace_period: (\w+)", compose)]
    units = [int(Unit(f"haulage-{name}.service").one("TimeoutStopSec")) for name in ("web", "worker")]
    memory = SIZE.parse(re.findall(r"mem_limit: (\d+)m", compose)[0] + " MiB")

    assert ["haulage"] == words_of("ENTRYPOINT")
    assert ["serve", "worker"] == commands
    assert {*commands, *words_of("^CMD")} <= set(COMMANDS)
    assert units == graces
    assert limits.slots * limits.build.memory_bytes < memory
    assert "STOPSIGNAL SIGTERM" in TEXT


@pytest.mark.process
def test_the_health_check_knows_a_web_that_serves_from_one_that_does_not(tmp_path):
    terminal = Terminal(tmp_path).shop()
    words = words_of("HEALTHCHECK")

    def healthy(port):
        command = [*words[:-1], words[-1].replace("8480", str(port))]
        return subprocess.run(command, capture_output=True, check=False).returncode

    with terminal.started("serve", "--port", "0", "--json", "--config", terminal.config) as process:
        address = json.loads(process.stdout.readline())["address"]
        port = address.rpartition(":")[2]
        serving = healthy(port)
        (terminal.folder / "haulage.db").rename(terminal.folder / "away.db")
        (terminal.folder / "haulage.db").write_bytes(b"no database")
        until(lambda: healthy(port) == 1)

    assert 0 == serving
    assert "python" == shlex.split(words[0])[0]
    assert 1 == healthy(port)

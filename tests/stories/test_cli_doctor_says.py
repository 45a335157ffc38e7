"""What ``haulage doctor`` says, and when: each finding as it is found, and what lies where nothing of ours should."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import closing

import pytest
from tests.ports import free_port
from tests.stories.terminal import Terminal

pytestmark = pytest.mark.slow


@pytest.fixture
def terminal(tmp_path):
    return Terminal(tmp_path).shop()


def strays(terminal):
    findings = terminal.run("doctor", "--json").document["findings"]
    return [(each["level"], each["what"]) for each in findings if each["subject"] == "artifacts"][2:]


def test_what_lies_beside_our_files_is_named_and_stays(terminal):
    terminal.run("export", "orders", "--json")
    place, before = terminal.folder / "artifacts", strays(terminal)
    (place / "notes.txt").write_text("somebody's")
    (place / "folder").mkdir()
    (place / "a\x1b[2Jb").touch()
    with open(os.fsencode(place) + b"/\xff", "wb"):  # noqa: PTH123 - a path is text
        pass
    terminal.run("sweep")

    found, aloud = strays(terminal), terminal.run("doctor").out
    known = ("a\x1b[2Jb", "folder", "notes.txt", "\\udcff")
    told = {("WARN", f"{name} is none of Haulage's files, and no sweep removes it") for name in known}
    assert told & set(before) == set()
    assert told == {each for each in found if "none of" in each[1]}
    assert "\x1b" not in aloud
    assert "a\\x1b[2Jb is none of" in aloud


def test_of_many_that_lie_there_some_are_named_and_the_others_counted(terminal):
    terminal.run("export", "orders", "--json")
    for number in range(13):
        (terminal.folder / "artifacts" / f"stray{number:02}").touch()

    found = [what for _, what in strays(terminal)]
    assert 10 == sum("is none of" in what for what in found)
    assert "3 more lie beside it" in found


def test_a_finding_is_said_before_the_next_subject_is_looked_at(terminal):
    """A store that takes a connection and says nothing: what was found before it is read already."""
    with closing(socket.create_server(("127.0.0.1", free_port()))) as silent:
        environment = {**os.environ, "HAULAGE_STORE": f"postgresql://nobody@127.0.0.1:{silent.getsockname()[1]}/x"}
        command = [sys.executable, "-m", "haulage", "doctor"]
        with subprocess.Popen(
            command, cwd=terminal.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as doctor:
            try:
                assert doctor.stdout is not None
                silent.settimeout(60)
                first = doctor.stdout.readline()
                asked, _ = silent.accept()  # It waits for the store from now on.
                with asked:
                    assert doctor.poll() is None
                    said = [doctor.stdout.readline() for _ in range(4)]
            finally:
                doctor.kill()

    assert first.startswith("OK    configuration: ")
    assert ["secrets", "keys", "clock", "compression"] == [line[6:].partition(":")[0] for line in said]

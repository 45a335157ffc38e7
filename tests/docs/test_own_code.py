"""The examples of docs/own-code.md are run as they stand, by a real worker; only the service they ask is put beside."""

from __future__ import annotations

import sys

import pytest
from tests.docs.test_examples import blocks
from tests.docs.written import DOCS
from tests.stories.terminal import SECRET, Terminal

PAGE = DOCS / "own-code.md"
DESK = """
import os
from datetime import date
from types import SimpleNamespace

MANY = 2_500


def count(tenant, since):
    return MANY


def tickets(tenant, since, after, limit):
    assert os.environ["DESK_TOKEN"] == "hush"
    numbers = range(after + 1, min(MANY, after + limit) + 1)
    return [SimpleNamespace(id=n, opened=date(2026, 2, n % 28 + 1), subject=f"{tenant} {since} {n}") for n in numbers]
"""


@pytest.fixture
def terminal(tmp_path):
    before = list(sys.path)
    terminal = Terminal(tmp_path)
    terminal.environ |= {"DESK_TOKEN": "hush"}
    yield terminal
    sys.path[:] = before


def test_the_page_function_of_the_page_exports_its_list(terminal):
    (python,) = blocks(PAGE, "python")
    terminal.config.write_text(
        f'secret_keys = ["{SECRET}"]\napp = "exports_of_the_page:haul"\n'
        '[operator]\ntenant = "north"\ngrants = ["tickets.read"]\n'
    )
    terminal.config.chmod(0o600)
    (terminal.folder / "desk.py").write_text(DESK)
    (terminal.folder / "exports_of_the_page.py").write_text(f"import desk\n\n{python}")

    checked = terminal.run("datasets", "check")
    exported = terminal.run("export", "tickets", "-p", "since=2026-01-05", "-o", "tickets.csv")

    assert (0, 0) == (checked.code, exported.code), checked.out + exported.err
    lines = (terminal.folder / "tickets.csv").read_text().splitlines()
    assert ["No.,Opened,Subject", "1,2026-02-02,north 2026-01-05 1"] == lines[:2]
    assert 2_501 == len(lines)


def test_the_command_of_the_page_builds_its_file(terminal):
    (toml,), (shell,) = blocks(PAGE, "toml"), blocks(PAGE, "sh")
    terminal.environ |= {"BOOK_TOKEN": "hush"}
    terminal.config.write_text(f'secret_keys = ["{SECRET}"]\n[operator]\ngrants = ["books.read"]\n{toml}')
    terminal.config.chmod(0o600)
    program = terminal.folder / "make-book"
    program.write_text(shell)
    program.chmod(0o755)

    checked = terminal.run("datasets", "check")
    exported = terminal.run("export", "book", "-p", "book=moby", "--json", "-o", "moby.epub")

    assert (0, 0) == (checked.code, exported.code), checked.out + exported.err
    run = exported.document
    assert (False, 135, "book.epub") == (run["complete"], run["file"]["rows"], run["file"]["name"])
    assert {"code": "chapter_missing", "count": 1} in run["notices"]
    assert "--book=moby, --format=epub\n" == (terminal.folder / "moby.epub").read_text()

"""With ``--json`` every command answers with exactly one JSON document, whatever becomes of it."""

from __future__ import annotations

import json

import pytest
from tests.stories.terminal import Terminal

from haulage.cli.main import COMMANDS

pytestmark = pytest.mark.process  # exports are made by the dozen

# By command: what it is called with and how it ends. RUN is a run that is ready.
CALLS = {
    "init": [(["init", "--force"], 0), (["init"], 2)],
    "keys": [(["keys", "new", "amina"], 0), (["keys", "new", "a b"], 2)],
    "export": [
        (["export", "orders"], 0), (["export", "broken"], 1), (["export", "orders", "-p", "since"], 2),
        (["export", "closed"], 3), (["export", "nothing"], 2),
    ],
    "runs": [
        (["runs", "list"], 0), (["runs", "list", "--all"], 0), (["runs", "show", "RUN"], 0),
        (["runs", "watch", "RUN"], 0), (["runs", "fetch", "RUN"], 0), (["runs", "cancel", "RUN"], 3),
        (["runs", "expire", "RUN"], 0), (["runs", "show", "nobody"], 3), (["runs", "list", "--state", "x"], 2),
    ],
    "datasets": [
        (["datasets"], 0), (["datasets", "check", "orders"], 0), (["datasets", "check"], 1),
        (["datasets", "check", "x"], 2),
    ],
    "migrate": [(["migrate", "status"], 0), (["migrate", "up"], 0), (["migrate", "down", "--yes"], 0)],
    "sweep": [(["sweep"], 0)],
    "parents": [(["parents", "gone", "book", "7"], 2)],  # there are no parents here
    "doctor": [(["doctor"], 1), (["doctor", "--check"], 1)],  # one of the datasets is broken
}  # fmt: skip
LONG = {"demo", "up", "serve", "worker"}  # their documents are read in test_cli_serve.py
FAULTY = (
    'store = 1\nsecret_keys = ["env:NOT_THERE"]\nstor = 1\n[sources.shop]\nurl = "x"\n[limits.exports]\nslots = 0\n'
)


@pytest.fixture
def terminal(tmp_path):
    return Terminal(tmp_path).shop()


def one_document(answer):
    (line,) = answer.out.splitlines()
    document = json.loads(line)
    assert isinstance(document, dict)
    return document


def test_every_command_is_called_here():
    assert set(COMMANDS) == set(CALLS) | LONG


@pytest.mark.parametrize("command", CALLS)
def test_there_is_one_document_and_an_exit_code(terminal, command):
    run = terminal.run("export", "orders", "--json").document["id"]

    for words, code in CALLS[command]:
        answer = terminal.run(*[run if word == "RUN" else word for word in words], "--json")
        document = one_document(answer)

        assert code == answer.code, (words, answer)
        assert ("error" in document) == (code >= 2), (words, document)


@pytest.mark.parametrize("command", sorted(CALLS.keys() - {"init", "keys"}))  # these two need no configuration
def test_a_configuration_that_cannot_work_is_one_document_too_and_leaves_nothing(terminal, command):
    terminal.config.write_text(FAULTY)
    before = sorted(terminal.folder.iterdir())

    answer = terminal.run(*CALLS[command][0][0], "--json")

    document = one_document(answer)
    assert 2 == answer.code
    assert 5 == len(document["findings"] if command == "doctor" else document["error"]["faults"])
    assert before == sorted(terminal.folder.iterdir())

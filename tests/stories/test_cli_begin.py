"""The first minutes: help, init, keys, and a configuration that has faults."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
import tomllib

import pytest
from tests.stories.terminal import Terminal

from haulage.config import hash_key, load


@pytest.fixture
def terminal(tmp_path):
    return Terminal(tmp_path)


def test_help_lists_what_there_is_and_nothing_that_is_not(terminal):
    answer = terminal.run("--help")

    assert 0 == answer.code
    for name in ("demo", "init", "keys", "up", "serve", "worker", "export", "runs", "datasets", "migrate", "doctor"):
        assert f"\n  {name} " in answer.out
    for later in ("import", "download", "batch", "sync", "legacy"):
        assert f"\n  {later} " not in answer.out


def test_help_loads_no_library_that_it_does_not_need():
    program = (
        "import sys; from haulage.cli.main import run; run(['--help']); run(['export', '--help']);"
        "print(sorted({'sqlalchemy', 'pydantic', 'fastapi', 'uvicorn', 'alembic'} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "[]" == done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_without_the_web_extra_everything_else_works_and_the_rest_says_what_to_install(terminal):
    terminal.shop()
    program = """
import sys
sys.modules["fastapi"] = sys.modules["uvicorn"] = None  # as where they are not installed
from haulage.cli.main import run
print([run([word]) for word in ("up", "serve", "demo")], run(["export", "orders", "-o", "orders.csv"]))
from haulage import Haulage
try:
    Haulage.from_toml("haulage.toml").asgi()
except ImportError as problem:
    print(problem)
"""

    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=terminal.folder,
        env=terminal.environ,
    )

    assert ["[2, 2, 2] 0", "fastapi not found; install the web extra: pip install 'haulage[web]'"] == [
        line for line in done.stdout.splitlines() if line.startswith(("[", "fastapi"))
    ]
    assert 3 == done.stderr.count("fastapi and uvicorn not found; install the web extra: pip install 'haulage[web]'")


@pytest.mark.slow
@pytest.mark.parametrize("words", ["datasets", "runs list --json", "export orders -o -", "doctor"])
def test_an_answer_that_cannot_be_written_is_told_in_one_line(terminal, words):
    terminal.shop()
    command = f"{shlex.quote(sys.executable)} -m haulage {words}"

    def told(output):
        line = ["sh", "-c", f"{command} >{output}"]
        return subprocess.run(
            line, cwd=terminal.folder, env=terminal.environ, capture_output=True, text=True, check=False
        )

    full, closed = told("/dev/full"), told("&-")

    assert (1, True) == (full.returncode, "No space left on device" in full.stderr), full.stderr
    assert "Traceback" not in full.stderr + closed.stderr


def test_a_command_that_is_not_there_is_guessed(terminal):
    answer = terminal.run("exprt", "orders")

    assert 2 == answer.code
    assert "There is no command 'exprt'; did you mean export?" in answer.err


def test_a_key_that_would_make_the_configuration_faulty_is_not_written(terminal):
    terminal.run("init")
    terminal.run("keys", "new", "amina", "--tenant", "north", "--grant", "orders.read", "--write")
    before = terminal.config.read_text()

    refused = terminal.run("keys", "new", "b", "--account", "amina", "--tenant", "north", "--grant", "*", "--write")
    same = terminal.run("keys", "new", "c", "--account", "amina", "--tenant", "north", "--grant", "orders.read")

    assert (2, 0) == (refused.code, same.code)
    assert "is the same account of tenant north with other grants" in refused.err
    assert "nothing was changed" in refused.err
    assert before == terminal.config.read_text()
    assert [] == list(terminal.folder.glob(".haulage-*"))


@pytest.mark.parametrize("grants", [["--grant", ""], ["--grant", "a", "--grant", "a"], ["--tenant", ""]])
def test_a_key_that_no_configuration_could_have_is_not_made(terminal, grants):
    terminal.run("init")
    before = terminal.config.read_text()
    answers = [terminal.run("keys", "new", "amina", *grants, *write) for write in ([], ["--write"])]

    assert [2, 2] == [answer.code for answer in answers]
    assert ["", ""] == [answer.out for answer in answers]
    assert all("keys.amina." in answer.err and "nothing was changed" in answer.err for answer in answers)
    assert before == terminal.config.read_text()


def test_a_configuration_that_cannot_be_written_is_told_as_one(terminal):
    terminal.run("init")
    before = terminal.config.read_text()
    command = f"ulimit -f 0; exec {shlex.quote(sys.executable)} -m haulage keys new amina --write"
    told = subprocess.run(
        ["sh", "-c", command], cwd=terminal.folder, env=terminal.environ, capture_output=True, text=True, check=False
    )

    assert (2, "") == (told.returncode, told.stdout), told.stderr
    assert "haulage.toml cannot be written: File too large; nothing was changed" in told.stderr
    assert before == terminal.config.read_text()
    assert [] == list(terminal.folder.glob(".haulage-*"))


def test_init_writes_a_configuration_that_works_and_that_nobody_else_can_read(terminal):
    answer = terminal.run("init")

    assert (0, "wrote haulage.toml\n") == (answer.code, answer.out)
    assert 0o600 == stat.S_IMODE(terminal.config.stat().st_mode)
    assert 32 <= len(load(terminal.config, {}).secret_keys[0])
    assert 0 == terminal.run("doctor").code


def test_init_replaces_nothing_unless_forced(terminal):
    terminal.config.write_text("mine")

    refused = terminal.run("init")
    nowhere = terminal.run("init", "--config", "nowhere/haulage.toml")
    untouched = terminal.config.read_text()
    forced = terminal.run("init", "--force", "--json")

    assert 2 == refused.code
    assert "is there already; edit it, or replace it with --force" in refused.err
    assert (2, True) == (nowhere.code, "there is no folder nowhere; make it, or" in nowhere.err)
    assert "mine" == untouched
    assert {"config": str(terminal.config)} == forced.document
    assert "secret_keys" in terminal.config.read_text()


def test_a_key_is_printed_once_and_its_hash_can_be_pasted(terminal):
    answer = terminal.run("keys", "new", "amina", "--tenant", "north", "--grant", "orders.read", "--grant", "x")
    key = answer.out.strip()
    table = tomllib.loads(answer.err[answer.err.index("[keys.amina]") :])["keys"]["amina"]

    assert 0 == answer.code
    assert hash_key(key) == table["hash"]
    assert ("north", ["orders.read", "x"]) == (table["tenant"], table["grants"])
    assert not terminal.config.exists()


def test_a_key_is_added_to_the_configuration_when_that_is_wished(terminal):
    terminal.run("init")
    terminal.config.chmod(0o640)

    answer = terminal.run("keys", "new", "amina", "--grant", "*", "--write", "--json")
    kept = load(terminal.config, {}).keys["amina"]
    again = terminal.run("keys", "new", "amina", "--write")

    assert hash_key(answer.document["key"]) == kept.hash
    assert answer.document["key"] not in terminal.config.read_text()
    assert ("default", "amina", frozenset({"*"})) == (kept.tenant, kept.account, kept.grants)
    assert 0o640 == stat.S_IMODE(terminal.config.stat().st_mode)
    assert 2 == again.code
    assert "has a key amina already; choose another name" in again.err


@pytest.mark.root
def test_root_adds_a_key_and_the_user_of_the_service_can_still_read_it(terminal):
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    terminal.run("init")
    os.chown(terminal.config, 65534, 65533)
    terminal.config.chmod(0o640)
    before = terminal.config.stat()

    assert 0 == terminal.run("keys", "new", "amina", "--write").code
    after = terminal.config.stat()
    assert (65534, 65533, 0o640) == (after.st_uid, after.st_gid, after.st_mode & 0o777)
    assert before.st_ino != after.st_ino


def test_a_key_cannot_be_added_to_a_file_that_is_not_there_or_no_toml(terminal):
    missing = terminal.run("keys", "new", "amina", "--write")
    terminal.config.write_text("store =\n")
    broken = terminal.run("keys", "new", "amina", "--write")

    assert (2, 2) == (missing.code, broken.code)
    assert "write one with: haulage init" in missing.err
    assert "is not TOML" in broken.err
    assert "store =\n" == terminal.config.read_text()


def test_five_faults_are_told_at_once(terminal):
    terminal.config.write_text(
        'stor = "x"\nsecret_keys = ["env:HAULAGE_SECRET"]\n[limits.exports]\nslots = "two"\nfile_bytes = "8 MoB"\n'
        '[datasets.orders]\nsource = "shop"\nsql = "select 1"\nformats = ["csv", "jsn"]\n'
    )

    answer = terminal.run("doctor")
    as_json = terminal.run("runs", "list", "--json")

    assert 2 == answer.code
    for fault in ("stor: ", "HAULAGE_SECRET", "slots", "file_bytes", "there is no such source", "jsn"):
        assert fault in answer.out
    assert 2 == as_json.code
    assert "config_invalid" == as_json.document["error"]["code"]
    assert 5 <= len(as_json.document["error"]["faults"])


def test_a_configuration_elsewhere_is_named_by_option_or_variable(terminal, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    Terminal(other).run("init")

    by_option = terminal.run("runs", "list", "--config", other / "haulage.toml", "--json")
    by_variable = terminal.run("runs", "list", "--json", HAULAGE_CONFIG=str(other / "haulage.toml"))
    nowhere = terminal.run("runs", "list")

    assert {"items": [], "more": False} == by_option.document == by_variable.document
    assert 2 == nowhere.code
    assert "write one with: haulage init" in nowhere.err


def test_json_answers_a_usage_error_too(terminal):
    answer = terminal.run("export", "--json")

    assert 2 == answer.code
    assert "usage" == answer.document["error"]["code"]


def test_a_reader_that_leaves_early_is_no_error(terminal):
    terminal.run("init")
    command = f"{sys.executable} -m haulage --help | head -1; exit ${{PIPESTATUS[0]}}"

    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)

    assert "Traceback" not in done.stderr

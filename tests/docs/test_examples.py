"""The examples of README.md and docs/ are run as they stand; only what a reader would have is put beside them."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import threading
from contextlib import closing, contextmanager
from types import SimpleNamespace

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from tests.docs.written import DOCS
from tests.stories.terminal import SECRET, Terminal, until

from haulage import Refused, Requester
from haulage.config import load
from haulage.formats import FORMATS
from haulage.sources import SOURCES

README = DOCS.parent / "README.md"
AMINA = SimpleNamespace(org="north", id="amina", permissions={"orders.read"}, session_id="s1", banned=False)


def blocks(page, language):
    """The fenced blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture
def terminal(tmp_path, monkeypatch):
    """A project as the README makes it: its configuration, and a shop with orders of two tenants."""
    (dataset,) = blocks(README, "toml")
    terminal = Terminal(tmp_path)
    terminal.config.write_text(f'secret_keys = ["{SECRET}"]\n{dataset}')
    terminal.config.chmod(0o600)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop, shop:
        shop.execute("pragma journal_mode = wal")
        shop.execute("create table orders (id integer primary key, tenant, customer, total, placed_at)")
        shop.execute(
            "insert into orders values (1, 'north', 'A', 1.5, '2026-02-01'), (2, 'south', 'B', 2, '2026-02-01')"
        )
    monkeypatch.chdir(tmp_path)
    return terminal


@contextmanager
def worker(haul):
    """A worker that lives as long as the story needs one."""
    supervisor = haul.supervisor()
    thread = threading.Thread(target=supervisor.run, daemon=True)
    thread.start()
    assert supervisor.ready.wait(60)
    try:
        yield
    finally:
        supervisor.stop()
        thread.join()


def ask(app, user):
    """Who the mounted application says that a user of the host is."""

    async def host(scope, receive, send):
        await app({**scope, "user": user}, receive, send)

    return TestClient(host).get("/haulage/session")


def test_the_commands_of_the_readme_do_what_they_say(terminal):
    (written,) = [block for block in blocks(README, "") if "haulage export" in block]
    commands = [line.partition("#")[0].split()[1:] for line in written.splitlines() if line.startswith("haulage ")]
    terminal.config.rename(terminal.folder / "mine.toml")

    answers = {}
    for words in commands:
        if words[0] in ("init", "datasets", "keys", "export"):
            answers[words[0]] = terminal.run(*words)
        if words[0] == "init":  # a reader now edits it
            (terminal.folder / "mine.toml").replace(terminal.config)

    assert ["init", "datasets", "keys", "up", "export"] == [words[0] for words in commands]
    assert {"init": 0, "datasets": 0, "keys": 0, "export": 0} == {name: each.code for name, each in answers.items()}
    assert "id,customer,total,placed_at\n1,A,1.5,2026-02-01\n" == (terminal.folder / "orders.csv").read_text()


def test_the_python_of_the_readme_mounts(terminal):
    (block,) = blocks(README, "python")
    known = {"app": Starlette(), "current_requester": lambda _request: Requester("north", "amina", session="s1")}

    exec(block, known)
    answer = TestClient(known["app"]).get("/haulage/datasets")
    known["haul"].close()

    assert ["orders", "recent_orders"] == [item["name"] for item in answer.json()["items"]]


def test_the_python_of_the_page_on_embedding_works(terminal):
    starlette, datasets, fastapi, django, standing, parents, gone, request, fetch, cancel = blocks(
        DOCS / "embedding.md", "python"
    )
    users = SimpleNamespace(get=lambda _tenant, account: AMINA if account == "amina" else None)
    library = SimpleNamespace(owner_of=lambda _tenant, book: "amina" if book == 7 else None)
    known = {"users": users, "library": library, "requester": Requester("north", "amina", frozenset({"orders.read"}))}

    # Django is not installed here; by_path in test_http_mounted.py has the same shape.
    compile(django, "asgi.py", "exec")
    exec(starlette, known)
    in_starlette = ask(known["app"], AMINA), ask(known["app"], None)
    known["haul"].close()
    exec(starlette, known)  # another process, as it were: datasets are declared before the first request
    for block in (datasets, parents, fastapi, standing, gone):
        exec(block, known)
    in_fastapi = ask(known["app"], AMINA), ask(known["app"], None)
    with worker(known["haul"]):
        asked = known["haul"].exports.request(Requester("north", "amina"), "chapters", parent="7")
        with pytest.raises(Refused, match="nothing here"):
            known["haul"].exports.request(Requester("north", "amina"), "chapters", parent="8")
        exec(request, known)
        until(lambda: known["haul"].exports.get(known["requester"], known["run"].id).state == "ready")
        exec(fetch, known)
        with pytest.raises(Refused) as refused:
            exec(cancel, known)
    stranger = known["as_of_now"](Requester("north", "omar"))
    known["haul"].close()

    assert [(200, 401)] * 2 == [tuple(each.status_code for each in host) for host in (in_starlette, in_fastapi)]
    assert "amina" == in_fastapi[0].json()["account"]
    assert 1 == known["run"].rows
    assert ("book", "7") == (asked.parent_kind, asked.parent)
    assert "already_final" == refused.value.code
    assert stranger.banned


@pytest.mark.process
@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
def test_the_curl_of_the_page_on_http_fetches_a_file(terminal):
    (script,) = blocks(DOCS / "http.md", "sh")
    key = terminal.run("keys", "new", "amina", "--tenant", "north", "--grant", "orders.read", "--write").out.strip()
    with terminal.started("up", "--port", "0", "--json") as process:
        address = re.search(r'"address": "([^"]+)"', process.stdout.readline())[1]
        until(lambda: "process" in terminal.run("doctor").out)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script.replace("http://127.0.0.1:8480", address)],
            cwd=terminal.folder,
            env=terminal.environ | {"KEY": key},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    assert (0, "") == (done.returncode, done.stderr)
    assert "id,customer,total,placed_at\n1,A,1.5,2026-02-01\n" == (terminal.folder / "orders.csv").read_text()


def test_the_parameters_of_the_page_on_datasets_can_be_declared(tmp_path):
    parameters, parents, *sources = blocks(DOCS / "datasets.md", "toml")
    (sql,) = [block for block in blocks(DOCS / "datasets.md", "sql") if ":until" in block]
    (tmp_path / "haulage.toml").write_text(
        f'secret_keys = ["{SECRET}"]\n[sources.shop]\nurl = "sqlite:///shop.db"\n'
        f'[datasets.orders]\nsource = "shop"\nsql = """{sql}"""\n{parameters}\n' + "\n".join([parents, *sources])
    )
    environ = {"WAREHOUSE_URL": "postgresql://haulage_reader@db.example/shop"}

    settings = load(tmp_path / "haulage.toml", environ, formats=FORMATS, schemes=SOURCES)
    dataset, chapters, ledger = settings.datasets

    assert 2 == ledger.parallel
    assert ("book", "book", "integer") == (chapters.parent, settings.parents[0].kind, settings.parents[0].type)
    assert {"app.tenant": ":requester_tenant", "role": "reporting"} == settings.sources["warehouse"].session
    assert [("since", False), ("until", False), ("status", True)] == [
        (each.name, each.many) for each in dataset.parameters
    ]

"""The command line with revisions of a policy: a file of before is not taken out, and a check prepares the query."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from tests.stories.terminal import CONFIGURATION, Terminal

pytestmark = pytest.mark.slow

POLICY = """
[datasets.aware]
source = "shop"
sql = "select id, tenant from orders"
key = ["id"]
visible = "tenant in (:requester_grants) or tenant is not null"
policy_revision = "select max(id) from grants_log where tenant = :requester_tenant"

[datasets.aware.columns.tenant]
visible = "tenant = :requester_tenant"
"""


@pytest.fixture
def terminal(tmp_path):
    terminal = Terminal(tmp_path).shop(configuration=CONFIGURATION + POLICY)
    change(terminal, "create table grants_log (id integer, tenant text)")
    return terminal


def change(terminal, statement):
    with closing(sqlite3.connect(terminal.folder / "shop.db")) as shop, shop:
        shop.execute(statement)


def test_a_file_is_taken_out_while_its_policy_is_what_it_was(terminal):
    run = terminal.run_of(terminal.run("export", "aware", "-o", "first.csv", "--json"))
    fetched = terminal.run("runs", "fetch", run, "-o", "second.csv")
    change(terminal, "insert into grants_log values (1, 'default')")
    refused = terminal.run("runs", "fetch", run, "-o", "third.csv")

    assert (0, 3) == (fetched.code, refused.code)
    assert (terminal.folder / "first.csv").read_bytes() == (terminal.folder / "second.csv").read_bytes()
    assert "What you may see of this data has changed since the file was made. Export again." in refused.err
    assert not (terminal.folder / "third.csv").exists()


def test_a_check_prepares_the_query_of_the_revision(terminal):
    good = terminal.run("datasets", "check", "aware")
    change(terminal, "drop table grants_log")
    told = terminal.run("datasets", "check", "aware")

    assert (0, 1) == (good.code, told.code)
    assert "policy_revision: the query fails: SQLITE_ERROR: no such table: grants_log" in told.out

"""The command line with its store on a server: what it says before there are tables, and the whole way after."""

from __future__ import annotations

import pytest
from tests.conformance.cases import STORES
from tests.stories.terminal import CONFIGURATION, SECRET, Terminal

pytestmark = pytest.mark.slow


@pytest.fixture(params=["postgresql", "mariadb"])
def terminal(request, tmp_path):
    """A shop whose runs are kept in an empty database."""
    url = STORES[request.param].new()
    return Terminal(tmp_path).shop(configuration=CONFIGURATION.replace("sqlite:///haulage.db", url))


def test_a_database_without_tables_is_told_with_the_command_that_makes_them(terminal):
    before = terminal.run("migrate", "status")
    refused = terminal.run("export", "orders", "-o", "orders.csv")
    doctor = terminal.run("doctor")
    made = terminal.run("migrate", "up")
    after = terminal.run("migrate", "status")

    assert (1, 2, 1, 0, 0) == (before.code, refused.code, doctor.code, made.code, after.code)
    assert "run: haulage migrate up" in refused.err
    assert "no tables of haulage yet" in doctor.out
    assert "schema 1, this version works with 1" in after.out


@pytest.mark.parametrize("terminal", ["postgresql"], indirect=True)
def test_a_server_that_can_only_be_read_is_told_as_such(terminal):
    """Like a standby: nothing is wrong with its address, user or password."""
    terminal.run("migrate", "up")
    url = terminal.config.read_text().partition('store = "')[2].partition('"')[0]
    read_only = f"alter database {url.rpartition('/')[2]} set default_transaction_read_only = on"
    STORES["postgresql"].execute(url, read_only)
    doctor, refused = terminal.run("doctor"), terminal.run("export", "orders", "-o", "orders.csv")

    assert (1, 4) == (doctor.code, refused.code), refused.err
    for said in (doctor.out, refused.err):
        assert "read-only" in said
        assert "name the server that takes writes in store" in said
        assert "password are right" not in said


def test_an_export_is_made_from_the_request_to_the_file(terminal):
    terminal.run("migrate", "up")
    exported = terminal.run("export", "orders", "-o", "orders.csv")
    doctor = terminal.run("doctor", "--check")
    listed = terminal.run("runs", "list")
    swept = terminal.run("sweep")

    assert (0, 0, 0) == (exported.code, listed.code, swept.code), exported.err
    assert 201 == len(terminal.folder.joinpath("orders.csv").read_text().splitlines())
    assert "ready" in listed.out
    assert "it can be written" in doctor.out
    assert "FAIL  store" not in doctor.out


def test_a_database_of_an_application_gets_our_tables_beside_its_own(terminal, request):
    """Which may have a table of Alembic, and is refused with our names where it has those itself."""
    kind = request.node.callspec.params["terminal"]
    url = terminal.config.read_text().partition('store = "')[2].partition('"')[0]
    STORES[kind].execute(url, "create table alembic_version (version_num varchar(32))")
    STORES[kind].execute(url, "insert into alembic_version values ('abc123def456')")
    STORES[kind].execute(url, "create table exports (id integer)")
    refused = terminal.run("migrate", "up")
    STORES[kind].execute(url, "drop table exports")
    made = terminal.run("migrate", "up")
    exported = terminal.run("export", "orders", "-o", "orders.csv")

    assert (2, 0, 0) == (refused.code, made.code, exported.code), refused.err + made.err + exported.err
    assert "the names of ours (exports); name another database in store" in refused.err
    assert "see that the server runs" not in refused.err
    assert [("abc123def456",)] == [tuple(row) for row in STORES[kind].execute(url, "select * from alembic_version")]


MISSING = {
    "postgresql": [f"drop trigger exports_counted_{move} on exports" for move in ("insert", "update")],
    "mariadb": ["drop trigger exports_counted_insert", "drop procedure exports_went", "drop procedure exports_worked"],
}


def test_what_a_dump_left_out_is_found_before_a_request_meets_it(terminal, request):
    """Tables and rows are whole; only what keeps the counters is not there."""
    terminal.run("migrate", "up")
    whole = terminal.run("doctor")
    kind = request.node.callspec.params["terminal"]
    url = terminal.config.read_text().partition('store = "')[2].partition('"')[0]
    left = STORES[kind].execute(url, "select count(*) from exports union all select count(*) from tenant_gates")
    for statement in MISSING[kind]:
        terminal.run("migrate", "down", "--yes")
        terminal.run("migrate", "up")
        STORES[kind].execute(url, statement)
        doctor = terminal.run("doctor")

        assert 1 == doctor.code
        assert "FAIL  store: " in doctor.out
        assert ("a trigger is missing" in doctor.out) == statement.startswith("drop trigger")
        assert "it can be written" not in doctor.out
    assert "OK    store: it can be written" in whole.out
    assert [(0,), (0,)] == [tuple(row) for row in left]


def test_a_store_that_wants_newer_workers_is_not_all_well(terminal, request):
    terminal.run("migrate", "up")
    url = terminal.config.read_text().partition('store = "')[2].partition('"')[0]
    opener = STORES[request.node.callspec.params["terminal"]]
    opener.execute(url, "update haulage_facts set value = 99 where name = 'min_worker'")
    status = terminal.run("migrate", "status")

    assert 1 == status.code
    assert "install a newer haulage" in status.err


def test_counters_that_were_meddled_with_are_found(terminal, request):
    terminal.run("migrate", "up")
    terminal.run("export", "orders", "-o", "orders.csv")
    opener = STORES[request.node.callspec.params["terminal"]]
    url = terminal.config.read_text().partition('store = "')[2].partition('"')[0]
    opener.execute(url, "update run_pools set stored_bytes = stored_bytes + 1")
    doctor = terminal.run("doctor")

    assert 1 == doctor.code
    assert "its counters are not those of its runs: the pool" in doctor.out


def test_down_takes_everything_away(terminal):
    terminal.run("migrate", "up")
    down = terminal.run("migrate", "down", "--yes")
    again = terminal.run("migrate", "up")

    assert (0, 0) == (down.code, again.code), down.err


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_server_that_is_not_there_is_told_without_the_password(tmp_path, kind):
    place = f"{kind}://amina:{SECRET}@127.0.0.1:1/haulage"
    terminal = Terminal(tmp_path).shop(configuration=CONFIGURATION.replace("sqlite:///haulage.db", place))
    answers = [terminal.run(*words) for words in (["runs", "list"], ["doctor"], ["migrate", "up"])]

    assert [True] * 3 == [answer.code != 0 for answer in answers]
    assert "see that the server runs" in answers[0].err
    assert "see that the server runs" in answers[1].out
    assert not [answer for answer in answers if SECRET in answer.out + answer.err]


@pytest.mark.parametrize("place", ["postgresql://db/haulage?proxy=session", "mariadb://db:port/haulage"])
def test_a_url_that_names_no_store_is_a_fault_of_the_configuration(tmp_path, place):
    terminal = Terminal(tmp_path).shop(configuration=CONFIGURATION.replace("sqlite:///haulage.db", place))
    answers = [terminal.run(*words) for words in (["migrate", "status"], ["runs", "list"], ["doctor"])]

    assert [2, 2, 1] == [answer.code for answer in answers], answers[0].err
    assert "has 1 fault" in answers[0].err
    assert "FAIL  configuration: store = " in answers[2].out

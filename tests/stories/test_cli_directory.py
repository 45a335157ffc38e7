"""The command line on a store without a database: everything works, and what is wrong with the folder is said."""

from __future__ import annotations

import pytest
from tests.stories.terminal import CONFIGURATION, Terminal

pytestmark = pytest.mark.slow

TIDY = CONFIGURATION.replace("select missing from nowhere", "select 1 as one")


@pytest.fixture
def terminal(tmp_path):
    return Terminal(tmp_path).shop(configuration=TIDY.replace("sqlite:///haulage.db", "directory:./runs"))


def test_an_export_is_made_listed_and_checked_without_a_database(terminal):
    made = terminal.run("export", "orders", "-o", "orders.csv")
    listed = terminal.run("runs", "list", "--json").document["items"]
    doctor = terminal.run("doctor", "--check")

    assert 0 == made.code, made.err
    assert (terminal.folder / "orders.csv").read_text().startswith("id,customer,")
    assert ["ready"] == [item["state"] for item in listed]
    assert 0 == doctor.code, doctor.out
    assert "OK    volume: flock, hard links, rename and fsync hold, and a killed process frees its lock" in doctor.out
    assert "OK    store: schema 1, this version works with 1" in doctor.out
    assert "OK    files: 1 whole and as written" in doctor.out
    assert [] == list(terminal.folder.glob("haulage.db*"))


def test_a_run_ends_and_goes_where_the_sweep_puts_it(terminal):
    terminal.run("export", "orders", "-o", "orders.csv")
    run = terminal.run("runs", "list", "--json").document["items"][0]["id"]
    expired = terminal.run("runs", "expire", run)
    swept = terminal.run("sweep")

    assert (0, 0) == (expired.code, swept.code)
    assert [] == list((terminal.folder / "artifacts").glob("*/*"))
    assert [] == list((terminal.folder / "runs" / "live").iterdir())
    assert [f"{run}.json"] == [path.name for path in (terminal.folder / "runs" / "ended").glob("*/*")]
    assert "expired" == terminal.run("runs", "list", "--json").document["items"][0]["state"]


def test_a_damaged_file_is_told_by_the_doctor_and_the_others_are_listed(terminal):
    for name in ("first.csv", "second.csv"):
        terminal.run("export", "orders", "-p", f"since=200{len(name) % 7}-01-01", "-o", name)
    damaged, kept = terminal.run("runs", "list", "--json").document["items"]
    path = terminal.folder / "runs" / "live" / f"{damaged['id']}.json"
    path.write_bytes(path.read_bytes()[:100])

    listed = terminal.run("runs", "list", "--json")
    doctor = terminal.run("doctor")

    assert [kept["id"]] == [item["id"] for item in listed.document["items"]]
    assert "StateQuarantined" in listed.err
    assert f"WARN  store: live/{damaged['id']}.json: its checksum is wrong: it was cut short or changed" in doctor.out


def test_a_folder_that_others_may_enter_is_refused_with_what_to_do(terminal):
    terminal.run("runs", "list")
    (terminal.folder / "runs").chmod(0o755)

    refused = terminal.run("runs", "list")
    doctor = terminal.run("doctor")

    assert 0 != refused.code
    assert "can be entered by others (mode 0755); run: chmod -R go-rwx" in refused.err
    assert "FAIL  store" in doctor.out
    assert "run: chmod -R go-rwx" in doctor.out
    assert 1 == doctor.code


def test_everything_can_be_taken_away_and_made_again(terminal):
    terminal.run("export", "orders", "-o", "orders.csv")
    down = terminal.run("migrate", "down", "--yes")
    behind = terminal.run("runs", "list", "--json")

    assert 0 == down.code, down.err
    assert [] == list((terminal.folder / "artifacts").glob("*/*"))
    assert [] == behind.document["items"]  # a new one is made with its schema
    assert 0 == terminal.run("migrate", "status").code


def test_the_doctor_waits_for_another_host_and_says_when_none_came(terminal, monkeypatch):
    monkeypatch.setattr("haulage.cli.doctor.PEER_SECONDS", 0.2)
    terminal.run("runs", "list")

    alone = terminal.run("doctor", "--peer")

    assert 1 == alone.code
    assert "waiting 0.2 s for: haulage doctor --peer on another host" in alone.err
    assert "FAIL  peer: nobody came; run haulage doctor --peer on two hosts within a minute" in alone.out


def test_a_database_has_no_peer(tmp_path):
    terminal = Terminal(tmp_path).shop(configuration=TIDY)
    terminal.run("runs", "list")

    answer = terminal.run("doctor", "--peer")

    assert 1 == answer.code
    assert "FAIL  peer: only a directory store is shared by locks; leave --peer out" in answer.out

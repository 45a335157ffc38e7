"""Runs by their id, and the upkeep of what they leave."""

from __future__ import annotations

import os

import pytest
from tests.stories.terminal import CONFIGURATION, Terminal

from haulage import Haulage, Requester
from haulage.core.errors import BuildFailed
from haulage.exports.plan import Asked
from haulage.sources.sqlite import SqliteSource

pytestmark = pytest.mark.slow
PRIVATE = "01890000-0000-7000-8000-000000000001"  # an id of one's own choice: no worker has to live


@pytest.fixture
def terminal(tmp_path):
    return Terminal(tmp_path).shop()


@pytest.fixture
def run(terminal):
    return terminal.run_of(terminal.run("export", "orders", "--json"))


@pytest.mark.quick
def test_the_list_is_newest_first_and_can_be_narrowed(terminal, run):
    failed = terminal.run_of(terminal.run("export", "broken", "--json"))

    listed = terminal.run("runs", "list", "--json")
    narrowed = terminal.run("runs", "list", "--state", "failed", "--dataset", "broken", "--json")
    short = terminal.run("runs", "list", "--limit", "1", "--json")
    table = terminal.run("runs", "list", "--all")
    refused = terminal.run("runs", "list", "--all", HAULAGE_OPERATOR__GRANTS="orders.read")

    assert (3, True) == (refused.code, "Runs of every account need the operator grant." in refused.err)
    assert [failed, run] == [item["id"] for item in listed.document["items"]]
    assert [failed] == [item["id"] for item in narrowed.document["items"]]
    assert (1, True) == (len(short.document["items"]), short.document["more"])
    assert "there are more; raise --limit\n" == terminal.run("runs", "list", "--limit", "1").err
    assert table.out.startswith("ID ")
    assert "source_failed" in table.out.splitlines()[1]
    assert "default/operator" in table.out.splitlines()[2]


def test_a_run_is_shown_with_everything_that_is_known(terminal, run):
    answer = terminal.run("runs", "show", run)

    assert 0 == answer.code
    for fact in (run, "orders", "ready", "200 of 200 rows", "since=2000-01-01", "sha256"):
        assert fact in answer.out
    assert "failure" not in answer.out


def test_what_others_have_written_is_shown_on_one_line_and_obeyed_by_no_terminal(terminal):
    named = """
[datasets.named]
source = "shop"
sql = "select id from orders where customer = :name"
parameters = {name = {type = "text"}}
"""
    terminal.config.write_text(CONFIGURATION + named)
    name = "x\nstate  ready\r\x1b[2J\x9b2J\u202e\u2028\x7f 報告"
    haul = Haulage.from_toml(terminal.config, environ={})
    try:
        asked = Requester("default", "eve\n\x1b]0;root\x07", frozenset({"*"}))
        wish = Asked("named", "csv", {"name": name}, None, None, {})
        run_id = haul.exports.accept(asked, wish, private_run=PRIVATE).run.id
    finally:
        haul.close()

    shown, listed = terminal.run("runs", "show", run_id), terminal.run("runs", "list", "--all")

    assert r"name=x\nstate  ready\r\x1b[2J\x9b2J\u202e\u2028\x7f 報告" in shown.out
    assert 1 == sum(line.startswith("state ") for line in shown.out.splitlines())
    assert r"default/eve\n\x1b]0;root\x07" in listed.out
    assert 2 == len(listed.out.splitlines())
    assert all(line.isprintable() for line in (shown.out + listed.out).split("\n"))


@pytest.mark.quick
def test_an_unknown_run_does_not_exist(terminal):
    for verb in ("show", "watch", "cancel", "expire"):
        answer = terminal.run("runs", verb, "01928c5e-7b1f-7cc3-98c4-dc0c0c07398f", "--json")

        assert (3, "not_found") == (answer.code, answer.document["error"]["code"])


@pytest.mark.quick
def test_a_finished_run_cannot_be_cancelled(terminal, run):
    answer = terminal.run("runs", "cancel", run)

    assert 3 == answer.code
    assert "already ready" in answer.err


def test_a_file_is_removed_before_its_time(terminal, run):
    answer = terminal.run("runs", "expire", run)
    again = terminal.run("runs", "expire", run)
    fetched = terminal.run("runs", "fetch", run)

    assert (3, 1) == (fetched.code, fetched.err.count("Export again.")), fetched.err
    assert (0, "expired; orders.csv is gone\n") == (answer.code, answer.out)
    assert [] == list((terminal.folder / "artifacts" / "files").iterdir())
    assert 3 == again.code


def test_watching_a_run_that_has_ended_tells_how(terminal, run):
    answer = terminal.run("runs", "watch", run)
    failed = terminal.run_of(terminal.run("export", "broken", "--json"))
    other = terminal.run("runs", "watch", failed)

    assert 0 == answer.code
    assert "rows      200" in answer.out
    assert 1 == other.code


@pytest.mark.quick
def test_datasets_are_listed_and_checked(terminal):
    listed = terminal.run("datasets")
    checked = terminal.run("datasets", "check", "orders", "broken")
    good = terminal.run("datasets", "check", "orders", "chosen", "--json")
    unknown = terminal.run("datasets", "check", "order")

    assert ["orders", "chosen", "broken", "endless", "closed"] == [x.split()[0] for x in listed.out.splitlines()[1:]]
    assert 1 == checked.code
    assert "OK    orders\nFAIL  broken\n" in checked.out
    assert "no such table: nowhere" in checked.out
    assert (0, True) == (good.code, good.document["ok"])
    assert 2 == unknown.code
    assert "Error: there is no dataset 'order'; did you mean orders?\n" == unknown.err


def test_a_source_in_rollback_journal_mode_is_warned_of_and_no_failure(terminal):
    import sqlite3

    shop = sqlite3.connect(terminal.folder / "shop.db")
    shop.execute("pragma journal_mode = delete")
    shop.close()

    answer = terminal.run("datasets", "check", "orders", "chosen")
    doctor = terminal.run("doctor")

    assert 0 == answer.code
    assert "WARN  orders\n      sources.shop: the database is in journal mode 'delete'" in answer.out
    assert (1, 1) == (answer.out.count("journal mode 'delete'"), doctor.out.count("journal mode 'delete'"))


def test_a_source_that_is_not_there_is_found_by_the_doctor_and_not_at_start(terminal):
    (terminal.folder / "shop.db").unlink()

    started = terminal.run("runs", "list")
    doctor = terminal.run("doctor", "--json")
    failed = [finding for finding in doctor.document["findings"] if finding["level"] == "FAIL"]

    assert 0 == started.code
    assert 1 == doctor.code
    assert "sources" in {finding["subject"] for finding in failed}


@pytest.mark.quick
def test_the_doctor_is_content_with_a_house_in_order(tmp_path):
    tidy = CONFIGURATION.replace("select missing from nowhere", "select 1 as one")
    terminal = Terminal(tmp_path).shop(configuration=tidy)
    terminal.run("export", "orders")

    answer = terminal.run("doctor", "--check")

    assert 0 == answer.code, answer.out
    assert "OK    files: 1 whole and as written" in answer.out
    assert "OK    files: every byte belongs to a run" in answer.out
    assert "WARN  workers: none is alive" in answer.out


def test_bytes_that_nobody_owns_are_found_and_swept(terminal, run):
    stray = terminal.folder / "artifacts" / "files" / f"{run}.9"
    stray.write_text("left over")

    found = terminal.run("doctor", "--check")
    swept = terminal.run("sweep", "--json")

    assert f"FAIL  files: {run}.9 belongs to no run; run: haulage sweep" in found.out
    assert (0, 1) == (swept.code, swept.document["orphans"])
    assert not stray.exists()
    assert "nothing was due\n" == terminal.run("sweep").out


def test_the_schema_goes_up_and_down_and_is_refused_when_it_is_old(terminal, run):
    status = terminal.run("migrate", "status", "--json")
    unsure = terminal.run("migrate", "down")
    kept = terminal.run("runs", "list", "--json").document["items"]
    down = terminal.run("migrate", "down", "--yes")
    files = list((terminal.folder / "artifacts").glob("*/*"))
    again = terminal.run("migrate", "down", "--yes")
    old = terminal.run("runs", "list")
    doctor = terminal.run("doctor")
    behind = terminal.run("migrate", "status")
    up = terminal.run("migrate", "up")

    assert status.document["version"] == status.document["wanted"]
    assert 2 == unsure.code
    assert "every finished file would be lost; say --yes" in unsure.err
    assert [run] == [item["id"] for item in kept]
    assert 0 == down.code
    assert [] == files  # no byte without an owner
    assert (2, True) == (again.code, "nothing to take away" in again.err)
    assert 2 == old.code
    assert "haulage migrate up" in old.err
    assert 1 == doctor.code
    assert 1 == doctor.out.count("haulage migrate up")
    assert "FAIL  store" in doctor.out
    assert 1 == behind.code
    assert 0 == up.code
    assert {"items": [], "more": False} == terminal.run("runs", "list", "--json").document


@pytest.mark.process
def test_the_schema_is_not_taken_from_under_a_worker(terminal, run):
    with terminal.started("worker", "--json") as worker:
        worker.stdout.readline()
        answer = terminal.run("migrate", "down", "--yes")
    kept = terminal.run("runs", "list", "--json").document["items"]

    assert 2 == answer.code
    assert f"process {worker.pid}); stop every worker and the web first" in answer.err
    assert [run] == [item["id"] for item in kept]


def test_a_file_is_fetched_after_its_export_with_everything_that_protects_it(terminal, run):
    fetched = terminal.run("runs", "fetch", run)
    refused = terminal.run("runs", "fetch", run)
    again = terminal.run("runs", "fetch", run, "-o", "orders.csv", "--force", "--json")
    terminal.run("runs", "expire", run)
    gone = terminal.run("runs", "fetch", run, "-o", "other.csv")

    assert 0 == fetched.code
    assert "file      orders.csv" in fetched.out
    assert 201 == len((terminal.folder / "orders.csv").read_text().splitlines())
    assert (2, True) == (refused.code, "is there already" in refused.err)
    assert (0, "ready") == (again.code, again.document["state"])
    assert (3, True) == (gone.code, "refused (expired)" in gone.err)
    assert not (terminal.folder / "other.csv").exists()


def test_a_run_that_is_not_there_is_told_with_where_ids_come_from(terminal):
    for verb in ("show", "watch", "fetch", "cancel", "expire"):
        answer = terminal.run("runs", verb, "nope")

        assert 3 == answer.code
        assert "there is no run nope; haulage runs list --all" in answer.err


def test_datasets_need_no_store_and_the_doctor_makes_none(terminal):
    listed = terminal.run("datasets")
    checked = terminal.run("datasets", "check", "orders")
    doctor = terminal.run("doctor")

    status = terminal.run("migrate", "status")

    assert (0, 0, 1) == (listed.code, checked.code, doctor.code)  # the dataset `broken` is one
    assert (2, True) == (status.code, "there is no store at" in status.err)
    assert f"WARN  store: there is none at {terminal.folder / 'haulage.db'} yet" in doctor.out
    assert "OK    datasets: orders can be exported" in doctor.out
    assert not (terminal.folder / "haulage.db").exists()
    assert not (terminal.folder / "artifacts").exists()


def test_a_source_that_cannot_be_read_is_told_with_its_place(terminal):
    shop = terminal.folder / "shop.db"
    shop.unlink()
    missing = terminal.run("datasets", "check", "orders")
    shop.mkdir()
    folder = terminal.run("datasets", "check", "orders")
    shop.rmdir()
    shop.write_text("no database at all, whatever its name says, and longer than a header" * 10)
    other = terminal.run("datasets", "check", "orders")

    assert (1, 1, 1) == (missing.code, folder.code, other.code)
    assert f"there is no file {shop}; see sources.shop.url" in missing.out
    assert f"{shop} is a folder; name the file in sources.shop.url" in folder.out
    assert f"{shop} cannot be read (SQLITE_NOTADB: file is not a database); see sources.shop.url" in other.out


def test_a_source_in_wal_mode_whose_folder_may_not_be_written_is_told_so(terminal, monkeypatch):
    def refused(_source):
        raise BuildFailed("source_unavailable", cause="SQLITE_READONLY_DIRECTORY: attempt to write a readonly database")

    monkeypatch.setattr(SqliteSource, "snapshot", refused)
    monkeypatch.setattr(os, "access", lambda _path, mode: mode == os.R_OK)

    answer = terminal.run("datasets", "check", "orders")

    assert 1 == answer.code
    assert f"its readers need shop.db-wal and shop.db-shm; let this user write {terminal.folder}" in answer.out


def test_a_store_that_cannot_be_used_is_named_with_what_to_do(terminal):
    (terminal.folder / "haulage.db").write_text("no database at all, whatever its name says" * 20)

    answer = terminal.run("runs", "list")
    doctor = terminal.run("doctor")

    assert 4 == answer.code
    assert f"the store sqlite:///{terminal.folder / 'haulage.db'} cannot be used" in answer.err
    assert "let this user read and write that file and its folder" in answer.err
    assert (1, True) == (doctor.code, "FAIL  store: " in doctor.out)
    assert "OK    sources: shop can be read" in doctor.out


def test_an_application_that_cannot_be_imported_is_a_finding_with_its_place(terminal):
    terminal.config.write_text('app = "mine_is_broken:haul"\n' + terminal.config.read_text())
    (terminal.folder / "mine_is_broken.py").write_text("\nraise LookupError('no such user')\n")
    (terminal.folder / "haulage.db").touch()

    listed = terminal.run("datasets", "--json")
    doctor = terminal.run("doctor")
    (fault,) = listed.document["error"]["faults"]

    assert (2, 1) == (listed.code, doctor.code)
    assert fault.startswith('app = "mine_is_broken:haul": LookupError: no such user (')
    assert fault.endswith("mine_is_broken.py, line 2); mend it there, or write module:name of your Haulage")
    assert f"FAIL  configuration: {fault}" in doctor.out


def test_times_are_utc_where_no_terminal_shows_them(terminal, run):
    answer = terminal.run("runs", "list")

    assert answer.out.splitlines()[1].endswith("Z")


def test_a_warning_about_file_modes_is_told_at_every_start(terminal):
    terminal.config.chmod(0o644)

    answer = terminal.run("runs", "list", "--json")

    assert 0 == answer.code
    assert "warning: " in answer.err
    assert "chmod 600" in answer.err

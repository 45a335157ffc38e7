"""One export from a terminal: the file, its facts, and every way in which there is none."""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import json
import os
import pty
import signal
import socket
import stat
import threading
import time
from pathlib import Path

import pytest
from tests.conformance.formats.readers import read_parquet, read_xlsx
from tests.stories.terminal import CONFIGURATION, Terminal, until

from haulage import Haulage, Refused
from haulage.cli.exports import notice_text
from haulage.cli.keeping import Destination


@pytest.fixture
def terminal(tmp_path):
    return Terminal(tmp_path).shop()


OURS = (".toml", ".db", ".db-shm", ".db-wal")


def files_in(folder):
    return sorted(path.name for path in folder.iterdir() if path.is_file() and path.suffix not in OURS)


def test_an_export_builds_its_file_itself_when_no_worker_lives(terminal):
    answer = terminal.run("export", "orders", "-o", "orders.csv")
    rows = list(csv.DictReader((terminal.folder / "orders.csv").open(newline="")))
    digest = hashlib.sha256((terminal.folder / "orders.csv").read_bytes()).hexdigest()

    assert 0 == answer.code
    assert "no worker is alive: building here, with a worker for this run only" in answer.err
    assert [str(n) for n in range(1, 301) if n % 3] == [row["id"] for row in rows]
    assert ["id", "customer", "total", "placed_at"] == list(rows[0])
    for fact in ("file      orders.csv", "rows      200", f"sha256    {digest}", "snapshot  20", "complete  yes"):
        assert fact in answer.out


def test_json_is_the_run_as_every_door_shows_it(terminal):
    answer = terminal.run("export", "orders", "--format", "json", "--json", "-p", "since=2026-01-20")
    shown = terminal.run("runs", "show", terminal.run_of(answer), "--json")

    assert 0 == answer.code
    assert answer.document == shown.document
    assert ("ready", "json", {"since": "2026-01-20"}) == tuple(
        answer.document[name] for name in ("state", "format", "parameters")
    )
    assert answer.document["file"]["rows"] == answer.document["progress"]["processed"]
    assert {"id", "token", "flow", "progress", "file", "complete", "notices", "failure"} <= set(answer.document)


def test_a_list_is_a_parameter_said_several_times(terminal):
    answer = terminal.run("export", "chosen", "-p", "ids=7", "-p", "ids=9", "-o", "chosen.ndjson")
    lines = (terminal.folder / "chosen.ndjson").read_text().splitlines()

    assert 0 == answer.code
    assert [{"id": 7, "customer": "Customer 7"}, {"id": 9, "customer": "Customer 9"}] == [json.loads(x) for x in lines]


def test_columns_options_and_compression(terminal):
    answer = terminal.run(
        "export", "orders", "--columns", "total,id", "--dialect", "rfc4180", "--compression", "gzip", "-o", "."
    )
    (name,) = [name for name in files_in(terminal.folder) if name.endswith(".gz")]

    assert 0 == answer.code
    lines = gzip.decompress((terminal.folder / name).read_bytes()).decode("utf-8-sig").split("\r\n")
    assert ["total,id", "1.5,1"] == lines[:2]


def test_a_file_that_is_there_is_replaced_only_by_force(terminal):
    target = terminal.folder / "orders.csv"
    target.write_text("mine")

    refused = terminal.run("export", "orders", "-o", "orders.csv")
    none = terminal.run("runs", "list", "--json")
    untouched = target.read_text()
    forced = terminal.run("export", "orders", "-o", "orders.csv", "--force")

    assert 2 == refused.code
    assert "orders.csv is there already; choose another name, or replace it with --force" in refused.err
    assert [] == none.document["items"]
    assert "mine" == untouched
    assert 0 == forced.code
    assert target.read_text().startswith("id,customer")


def test_a_link_is_followed_and_stays(terminal):
    elsewhere = terminal.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept.csv").write_text("mine")
    (terminal.folder / "link.csv").symlink_to(elsewhere / "kept.csv")
    (terminal.folder / "new.csv").symlink_to("elsewhere/new.csv")
    (terminal.folder / "to-a-folder").symlink_to("elsewhere")

    refused = [terminal.run("export", "orders", "-o", name) for name in ("link.csv", "new.csv")]
    forced = [terminal.run("export", "orders", "-o", name, "--force") for name in ("link.csv", "new.csv")]
    below = terminal.run("export", "orders", "-o", "to-a-folder")

    assert [2, 2, 0, 0, 0] == [answer.code for answer in (*refused, *forced, below)]
    assert all("is there already" in answer.err for answer in refused)
    assert all((terminal.folder / name).is_symlink() for name in ("link.csv", "new.csv", "to-a-folder"))
    texts = {path.read_text().partition("\n")[0] for path in elsewhere.iterdir()}
    assert (3, {"id,customer,total,placed_at"}) == (len(list(elsewhere.iterdir())), texts)


def test_into_a_pipe_or_a_device_the_bytes_are_written_and_it_stays(terminal):
    """Never on a device of this machine itself: one replaced would be gone for every process."""
    pipe = terminal.folder / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    for words in (["export", "orders", "-o", "pipe"], ["export", "orders", "-o", "pipe", "--force"]):
        reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
        reader.start()
        assert 0 == terminal.run(*words).code
        reader.join(30)
    ours, theirs = pty.openpty()
    pty_name = os.ttyname(theirs)
    try:
        told = terminal.run("export", "chosen", "-p", "ids=1", "-o", pty_name, "--force")
        assert 0 == told.code, told.err
        seen = os.read(ours, 1_000).decode()
    finally:
        os.close(ours)
        os.close(theirs)

    assert [201, 201] == [text.count("\n") for text in read]
    assert '{"id":1,"customer":"Customer 1"}' == seen.strip()
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert {"pipe"} == {path.name for path in terminal.folder.iterdir() if path.is_fifo()}


def test_what_is_no_place_for_a_file_is_told_before_the_work(terminal):
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listening, contextlib.chdir(terminal.folder):
        listening.bind("socket")
    told = {
        "a" * 304: "cannot be written: File name too long",
        "socket": "is neither a file nor a folder",
        "haulage.toml/orders.csv": "cannot be written: Not a directory",
    }
    answers = [terminal.run("export", "orders", "-o", place, "--force") for place in told]

    assert [2, 2, 2] == [answer.code for answer in answers], answers
    assert all(sentence in answer.err for sentence, answer in zip(told.values(), answers, strict=True))
    assert [] == terminal.run("runs", "list", "--json").document["items"]


def test_a_long_name_of_many_bytes_is_a_name(terminal):
    answer = terminal.run("export", "orders", "-o", "🚀" * 63)

    assert 0 == answer.code, answer.err
    assert ["🚀" * 63] == files_in(terminal.folder)


def test_in_a_folder_only_a_file_is_replaced(terminal):
    """The name is the run's own there; what else has been put in its way was not meant."""
    folder, target = terminal.folder / "kept", terminal.folder / "mine"
    folder.mkdir()
    target.write_text("mine")
    run = terminal.run_of(terminal.run("export", "orders", "--json"))
    name = terminal.run("runs", "show", run, "--json").document["file"]["name"]
    (folder / name).symlink_to(target)
    answer = terminal.run("runs", "fetch", run, "-o", "kept", "--force")

    assert 2 == answer.code
    assert "is no file that could be replaced" in answer.err
    assert "mine" == target.read_text()
    assert [name] == [path.name for path in folder.iterdir()]


def test_a_folder_that_is_not_there_is_told_before_the_work(terminal):
    answer = terminal.run("export", "orders", "-o", "nowhere/orders.csv")

    slash = terminal.run("export", "orders", "-o", "nowhere/")

    assert (2, 2) == (answer.code, slash.code)
    assert "there is no folder nowhere" in answer.err
    assert "there is no folder nowhere" in slash.err
    assert [] == files_in(terminal.folder)


@pytest.mark.parametrize(
    ("words", "told", "ended"),
    [
        (["orders", "-p", "sinc=2026-01-01", "-p", "since=soon"], ["sinc: ", 'since: "soon" is no date'], 2),
        (["orders", "--format", "xlsx"], ["--format: orders has no format 'xlsx'; write one of csv, json"], 2),
        (["orders", "--dialect", "exel"], ["--option: option 'dialect' of csv is 'exel'; choose one of exact"], 2),
        (["chosen"], ["ids: is needed"], 2),
        (["order"], ["there is no dataset 'order'; did you mean orders?"], 2),
        (["closed"], ["refused (forbidden)", "Add the dataset's permission, or operator, to the grants of"], 3),
        (["orders", "--columns", "nothing"], ["there is no column 'nothing'"], 2),
    ],
)
def test_what_is_refused_is_told_in_full_and_leaves_nothing(terminal, words, told, ended):
    answer = terminal.run("export", *words, "-o", "out")
    as_json = terminal.run("export", *words, "--json")

    assert (ended, ended) == (answer.code, as_json.code)
    assert all(sentence in answer.err for sentence in told)
    assert as_json.document["error"]["code"] in ("invalid", "usage", "forbidden")
    assert [] == terminal.run("runs", "list", "--json").document["items"]
    assert [] == files_in(terminal.folder)


def test_a_parameter_without_a_value_is_a_usage_error(terminal):
    answer = terminal.run("export", "orders", "-p", "since")

    assert 2 == answer.code
    assert "write -p name=value" in answer.err


def test_a_failed_run_ends_with_1_and_says_why(terminal):
    answer = terminal.run("export", "broken", "-o", "broken.csv")

    assert 1 == answer.code
    assert (
        "failed: The data source refused the query. (source_failed)\nRun: haulage datasets check broken." in answer.err
    )
    assert [] == files_in(terminal.folder)


def test_bytes_that_were_changed_are_never_handed_out(terminal):
    run = terminal.run_of(terminal.run("export", "orders", "--json"))
    (kept,) = (terminal.folder / "artifacts" / "files").iterdir()
    kept.write_bytes(kept.read_bytes().replace(b"Customer", b"customer"))

    checked = terminal.run("doctor", "--check")

    assert 1 == checked.code
    assert f"FAIL  files: run {run}: its bytes are missing or not those that were written" in checked.out


def test_a_copy_that_differs_from_what_was_built_is_not_kept(terminal):
    run_id = terminal.run_of(terminal.run("export", "orders", "--json"))
    (kept,) = (terminal.folder / "artifacts" / "files").iterdir()
    kept.write_bytes(kept.read_bytes().replace(b"Customer", b"customer"))  # of the same size
    haul = Haulage.from_toml(terminal.config, environ={})
    try:
        with pytest.raises(Refused) as refused:
            Destination(terminal.folder / "orders.csv", force=False).save(haul, haul.exports.get(haul.operator, run_id))
        run = haul.exports.get(haul.operator, run_id)
    finally:
        haul.close()

    assert "artifact_lost" == refused.value.code
    assert ("failed", "artifact_lost") == (run.state, run.failure_code)
    assert [] == files_in(terminal.folder)


def test_an_export_without_rows_says_who_asked(terminal):
    answer = terminal.run("export", "orders", HAULAGE_OPERATOR__TENANT="nobody")
    other = terminal.run("export", "orders", "-p", "since=2030-01-01")

    assert (0, 0) == (answer.code, other.code)
    assert 'no rows: orders shows what "visible" allows, and [operator] asks as tenant "nobody"' in answer.err
    assert 'asks as tenant "default"' in other.err


@pytest.mark.process
def test_a_file_goes_through_a_pipe_and_its_facts_beside_it(terminal):
    with terminal.started("export", "orders", "-o", "-") as process:
        out, err = process.communicate(timeout=120)
    both = terminal.run("export", "orders", "-o", "-", "--json")

    assert 0 == process.returncode
    assert ["id,customer,total,placed_at", "1,Customer 1,1.5,2026-01-02"] == out.splitlines()[:2]
    assert 201 == len(out.splitlines())
    assert f"sha256    {hashlib.sha256(out.encode()).hexdigest()}" in err
    assert (2, []) == (both.code, files_in(terminal.folder))


@pytest.mark.process
def test_an_export_whose_terminal_has_gone_stops_its_build_at_once(terminal):
    with terminal.started("export", "endless") as process:
        until(lambda: running(terminal))
        (child,) = children(process.pid)
        process.stderr.close()  # what it shows now goes nowhere: following ends, with the run still running
        began = time.monotonic()
        code = process.wait(timeout=120)
        took = time.monotonic() - began
        process.stderr = open(os.devnull)  # noqa: PTH123, SIM115 - the terminal closes it again

    (run,) = terminal.run("runs", "list", "--json").document["items"]

    assert 1 == code
    assert took < 60  # a drain would let the build go on for limits.exports.drain_seconds, two minutes
    assert ("failed", "worker_stopped") == (run["state"], run["failure"]["code"])
    assert not Path(f"/proc/{child}").exists()
    assert [] == list((terminal.folder / "artifacts" / "work").iterdir())


@pytest.mark.process
def test_ctrl_c_cancels_and_waits_until_the_build_has_stopped(terminal):
    with terminal.started("export", "endless", "-o", "endless.csv") as process:
        until(lambda: running(terminal))
        os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to everybody in the foreground
        _, err = process.communicate(timeout=120)

    (run,) = terminal.run("runs", "list", "--json").document["items"]

    assert 1 == process.returncode
    assert "cancel recorded; waiting until the build has stopped" in err
    assert "cancelled: there is no file" in err
    assert "cancelled" == run["state"]
    assert [] == list((terminal.folder / "artifacts" / "work").iterdir())
    assert [] == files_in(terminal.folder)


@pytest.mark.process
def test_a_private_worker_dies_with_its_command_and_the_sweep_ends_the_run(terminal):
    limits = {"HAULAGE_LIMITS__EXPORTS__LEASE_SECONDS": "8"}
    with terminal.started("export", "endless", **limits) as process:
        until(lambda: running(terminal))
        (child,) = children(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        until(lambda: not Path(f"/proc/{child}").exists())

    (run,) = terminal.run("runs", "list", "--json").document["items"]
    answer = terminal.run("runs", "watch", run["id"], **limits)

    assert 1 == answer.code
    assert "worker_lost" in answer.err
    assert [] == list((terminal.folder / "artifacts" / "work").iterdir())


@pytest.mark.process
def test_an_export_is_built_by_a_worker_that_lives(terminal):
    with terminal.started("worker", "--json") as worker:
        ready = json.loads(worker.stdout.readline())
        answer = terminal.run("export", "orders", "-o", "orders.csv")
        worker.send_signal(signal.SIGTERM)
        _, err = worker.communicate(timeout=120)

    assert {"exports": 2} == ready["lanes"]
    assert 0 == answer.code
    assert "no worker is alive" not in answer.err
    assert "worker stopped" in err
    assert 0 == worker.returncode


@pytest.mark.process
def test_an_export_that_waited_for_a_worker_that_died_is_built_here(terminal):
    """A killed worker counts as alive until its presence is too old; the request came before that."""
    short = {"HAULAGE_LIMITS__EXPORTS__PRESENCE_SECONDS": "4"}
    with terminal.started("worker", "--json", **short) as worker:
        worker.stdout.readline()
        worker.kill()
        worker.wait()
        answer = terminal.run("export", "orders", "-o", "orders.csv", **short)

    assert (0, True) == (answer.code, (terminal.folder / "orders.csv").exists()), answer.err
    assert "no worker is alive: building here" in answer.err


def running(terminal):
    items = terminal.run("runs", "list", "--json").document["items"]
    return items and items[0]["state"] == "running" and items[0]["phase"] is not None


def children(pid):
    """Processes that this one has started, as Linux lists them."""
    listed = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in listed for child in path.read_text().split()]


def test_a_workbook_and_a_parquet_file_come_by_the_same_way(tmp_path):
    terminal = Terminal(tmp_path).shop(
        configuration=CONFIGURATION.replace('formats = ["csv", "json"]', 'formats = ["csv", "xlsx", "parquet"]')
    )
    sheet = terminal.run("export", "orders", "--format", "xlsx", "-o", "orders.xlsx", "--json")
    table = terminal.run(
        "export", "orders", "--format", "parquet", "--option", "codec=snappy", "-o", "t.parquet", "--json"
    )

    assert (0, 0) == (sheet.code, table.code), (sheet.err, table.err)
    file = sheet.document["file"]
    assert "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" == file["media_type"]
    assert "application/vnd.apache.parquet" == table.document["file"]["media_type"]
    headers, rows = read_xlsx((tmp_path / "orders.xlsx").read_bytes())
    assert (headers, len(rows)) == (read_parquet((tmp_path / "t.parquet").read_bytes())[0], file["rows"])
    assert rows


def test_a_notice_names_its_columns():
    notice = {"code": "written_as_text", "count": 1_200, "columns": ["a", "b"]}

    assert "written_as_text (1,200) in a, b" == notice_text(notice)
    assert "order_not_fixed" == notice_text({"code": "order_not_fixed"})

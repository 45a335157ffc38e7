"""Datasets whose file an external command builds: the whole run through a real child, and all that can go wrong."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.process.house import AMINA, BUILD, Bench, until

from haulage.core import events
from haulage.core.catalogue import Command, Dataset, Made, Parameter
from haulage.core.errors import Refused
from haulage.core.limits import MIB
from haulage.exports.show import show
from haulage.worker import process

PROGRAM = Path(__file__).with_name("making.py")
PLACES = ("{file}", "{report}", "{request}")
FORMATS = {"epub": Made(".epub", "application/epub+zip", "EPUB"), "txt": Made(".txt", "text/plain; charset=utf-8")}
BOOK = b"PK the book\n" * 1_000
WISHES = (Parameter("book", "text", default="moby"), Parameter("pages", "integer", optional=True),
          Parameter("signed", "boolean", default=True), Parameter("tags", many=True, default=("a", "b")))  # fmt: skip


def made_by(house, mode, *words, environment=None, parameters=(), **members):
    name = f"d{len(house.catalogue)}"
    arguments = (sys.executable, "-IS", str(PROGRAM), mode, *PLACES, *words)
    command = Command(arguments, FORMATS, environment or {})
    house.catalogue._datasets[name] = Dataset(
        name, "", command=command, parameters=parameters, formats=tuple(FORMATS), **members
    )
    return name


@pytest.fixture
def makes(house):
    """Has one command make its file, in a child of a lane in this process."""
    house.pretend_a_worker()
    house.settled = {}

    def make(mode, *words, wish=None, format="epub", **members):
        run = house.request(made_by(house, mode, *words, **members), format=format, **(wish or {}))
        with Bench(house) as bench:
            bench.work()
        house.settled |= {event.run: event for event in bench.seen(events.RunSettled)}
        return house.get(run)

    return make


def cause(house, run):
    return house.settled[run.id].cause


def of_the_command(house):
    """Processes of making.py that live and were started for this house."""
    ours, found = str(house.artifacts_root).encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            found += [int(entry.name)] if str(PROGRAM).encode() in words and ours in words and state != "Z" else []
    return found


# -- whole -----------------------------------------------------------------------------------------


def test_a_command_makes_the_file_and_its_report_says_what_it_is(house, makes):
    run = makes("good")

    assert ("ready", True, 1_000, 1_000, None, None) == (
        run.state, run.complete, run.rows, run.processed, run.total, run.snapshot_at,
    )  # fmt: skip
    assert (f"{run.dataset}.epub", "application/epub+zip") == (run.file_name, run.media_type)
    assert [{"code": "no_snapshot"}, {"code": "pictures_left_out", "count": 3}] == list(run.notices)
    assert BOOK == house.file_of(run)
    house.assert_whole()


def test_a_file_that_is_incomplete_is_delivered_and_says_so(house, makes):
    run = makes("incomplete", format="txt", verify="full")

    assert ("ready", False, None, None) == (run.state, run.complete, run.rows, run.processed)
    assert {"code": "chapter_missing", "count": 2} in run.notices
    shown = show(run)
    assert (False, None, "text/plain; charset=utf-8", []) == (
        shown["complete"], shown["file"]["rows"], shown["file"]["media_type"], shown["file"]["columns"],
    )  # fmt: skip
    assert BOOK == house.file_of(run)
    house.assert_whole()


NASTY = ["; touch x", "$(touch x)", "-rf", "--book={file}", "{request}", "a\nb 'c' \"d\" \\ *", "é🚀", ""]


@pytest.mark.parametrize("book", NASTY)
def test_what_a_requester_writes_is_one_word_whatever_it_looks_like(house, makes, book):
    words = ("--book={book}", "{format}: {book} of {pages} {signed}", "", "{no place}", "--", "{book}")
    run = makes("asked", *words, wish={"book": book}, parameters=WISHES)

    seen = json.loads(house.file_of(run))
    assert [f"--book={book}", f"epub: {book} of  true", "", "{no place}", "--", book] == seen["words"]
    assert {"book": book, "pages": None, "signed": True, "tags": ["a", "b"]} == seen["request"]["parameters"]


def test_a_command_gets_a_private_folder_and_no_more_than_is_declared(house, makes, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "hush")
    monkeypatch.setenv("OF_THE_WORKER", "not declared")
    run = makes("asked", environment={"TOKEN": "env:SECRET_OF_THE_WORKER", "LANG": "C.UTF-8"})

    seen = json.loads(house.file_of(run))
    assert seen["cwd"] == f"{house.artifacts_root}/work/{run.artifact_key}/command"
    assert seen["environment"].pop("HAULAGE_KEPT_BY").startswith("pid:[")
    assert {"TOKEN": "hush", "LANG": "C.UTF-8", "TMPDIR": seen["cwd"]} == seen["environment"]
    assert (0o700, "", True, 0o077) == (seen["mode"], seen["input"], seen["group"], seen["umask"])
    assert ["0", "1", "2", "3"] == seen["descriptors"]  # the last is of the look itself
    request = seen["request"]
    assert {"tenant": "north", "account": "amina", "grants": []} == request["requester"]
    assert (run.id, run.dataset, "epub") == (request["run"], request["dataset"], request["format"])
    assert {"rows": 10_000_000, "bytes": BUILD.file_bytes} == request["limits"]
    assert "hush" not in json.dumps(run.plan)
    assert not (house.artifacts_root / "work" / run.artifact_key).exists()


def test_its_paths_and_words_are_nowhere_on_the_wire(house, makes):
    for run in (makes("good"), makes("exits"), makes("bad_report")):
        shown = json.dumps(show(run))
        assert not any(word in shown for word in ("making", "4711", "command/", str(house.folder), sys.executable))


def test_what_a_command_does_not_offer_is_refused_at_the_door(house):
    house.pretend_a_worker()
    name = made_by(house, "good")
    for wish, pointer in (
        ({"columns": ["a"]}, "/columns"), ({"compression": "gzip"}, "/compression"),
        ({"options": {"dialect": "exact"}}, "/options/dialect"), ({"format": "csv"}, "/format"),
    ):  # fmt: skip
        with pytest.raises(Refused) as refused:
            house.request(name, **({"format": "epub"} | wish))
        assert [pointer] == [fault.pointer for fault in refused.value.faults]
    counts = house.exports.counts(AMINA, name)
    assert (None, None, None) == (counts.output_count, counts.visible_output_count, counts.counted_at)


# -- wrong -----------------------------------------------------------------------------------------


FAULTS = {
    "it fails": ("exits", "command_failed", "exit 3; secret_4711 cannot be read"),
    "it is killed": ("killed", "command_failed", "SIGKILL; "),
    "no file": ("no_file", "command_failed", "it ended well and left no file"),
    "no report": ("no_report", "report_invalid", "it left no report"),
    "a huge report": ("huge_report", "report_invalid", "it is larger than 65,536 bytes"),
    "a report with a path": ("bad_report", "report_invalid", "it has other members than complete, rows, notices"),
    "more rows than allowed": ("too_many_rows", "rows_exceeded", ""),
    "a link for a file": ("link_for_file", "command_failed", "its file cannot be opened: "),
    "a link for a report": ("link_for_report", "command_failed", "its report.json cannot be opened: "),
    "a file behind a link": ("writes_through_link", "command_failed", "its file cannot be opened: "),
    "a file with another name": ("other_name_for_file", "command_failed", "its file is no file of its own"),
    "a pipe for a file": ("pipe_for_file", "command_failed", "its file is no file of its own"),
    "a folder for a file": ("folder_for_file", "command_failed", "its file is no file of its own"),
    "folders without end": ("deep_folders", "command_failed", "it made more files or folders than are counted"),
}  # fmt: skip


@pytest.mark.parametrize(("mode", "code", "said"), FAULTS.values(), ids=FAULTS)
def test_a_command_that_does_what_it_should_not_fails_with_its_code_and_leaves_nothing(house, makes, mode, code, said):
    run = makes(mode)

    assert ("failed", code) == (run.state, run.failure_code)
    assert (cause(house, run) or "").startswith(said)
    house.assert_nothing_left()
    assert [] == of_the_command(house)


def test_a_program_that_is_not_there_or_may_not_be_run_is_told_to_the_operator(house, makes, tmp_path):
    house.catalogue._datasets["a"] = Dataset("a", "", command=Command(("/nowhere/4711",), FORMATS), formats=("epub",))
    (tmp_path / "text").write_text("no program")
    house.catalogue._datasets["b"] = Dataset(
        "b", "", command=Command((str(tmp_path / "text"),), FORMATS), formats=("epub",)
    )
    causes = []
    for name in "ab":
        run = house.request(name, format="epub")
        with Bench(house) as bench:
            bench.work()
        assert "command_failed" == house.get(run).failure_code
        assert "4711" not in json.dumps(show(house.get(run)))
        causes += [event.cause for event in bench.seen(events.RunSettled)]

    assert ["/nowhere/4711 cannot be started: No such file or directory",
            f"{tmp_path / 'text'} cannot be started: Permission denied"] == causes  # fmt: skip
    house.assert_nothing_left()


def test_what_a_requester_wrote_is_not_in_the_log(house, makes):
    run = makes("exits", wish={"book": "secret_4711"}, parameters=WISHES)

    assert "exit 3; … cannot be read" == cause(house, run)


@pytest.mark.parametrize("mode", ["floods", "silent_from_now_on", "leaves_what_cannot_be_read"])
def test_a_command_that_is_only_odd_makes_its_file(house, makes, mode):
    run = makes(mode)

    assert "ready" == run.state
    assert BOOK == house.file_of(run)
    house.assert_whole()


# -- limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["grows_for_ever", "grows_fast", "grows_fast_and_excuses_itself"])
def test_a_file_is_limited_while_it_is_written(house, makes, mode, monkeypatch):
    largest = []
    remove = house.artifacts.remove

    def look_and_remove(key):
        sizes = [path.stat().st_size for path in (house.artifacts_root / "work" / key).rglob("*") if path.is_file()]
        largest.append(max(sizes))
        return remove(key)

    monkeypatch.setattr(house.artifacts, "remove", look_and_remove)
    run = makes(mode, limits=replace(BUILD, file_bytes=4 * MIB))

    assert ("bytes_exceeded", "The file would be larger than the 4,194,304 bytes allowed.") == (
        run.failure_code, run.failure_detail,
    )  # fmt: skip
    assert 4 * MIB < largest[0] <= 4 * MIB + 1
    house.assert_nothing_left()


def test_a_file_may_be_as_large_as_allowed_and_not_by_one_byte_larger(makes):
    just, over = (makes("good", limits=replace(BUILD, file_bytes=len(BOOK) + more)) for more in (0, -1))

    assert ("ready", "bytes_exceeded") == (just.state, over.failure_code)


@pytest.mark.parametrize("mode", ["many_files", "files_without_a_name"])
def test_what_it_writes_besides_is_limited_too(house, makes, mode):
    run = makes(mode, limits=replace(BUILD, sort_bytes=8 * MIB))

    assert "sort_space_exceeded" == run.failure_code
    assert "The command used more than the 8,388,608 bytes allowed for temporary files." == run.failure_detail
    house.assert_nothing_left()


def test_what_is_left_of_the_storage_limits_it_too(house, makes):
    house.limits = replace(house.limits, store_bytes=MIB)
    run = makes("grows_for_ever")

    assert "storage_exceeded" == run.failure_code
    house.assert_nothing_left()


# -- nothing outlives it ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["child_that_stays", "daemon_that_stays"])
def test_what_a_command_leaves_running_ends_with_it(house, makes, mode):
    run = makes(mode)

    assert "ready" == run.state
    assert [] == of_the_command(house)
    house.assert_whole()


def test_a_daemon_that_goes_on_with_the_file_is_ended_before_it_is_taken_over(house, makes):
    run = makes("daemon_that_writes")

    assert "ready" == run.state
    assert run.bytes > len(BOOK)
    assert [] == of_the_command(house)
    house.assert_whole()


@pytest.mark.parametrize("ending", ["cancelled", "too long"])
@pytest.mark.parametrize("mode", ["stays", "floods_for_ever"])
def test_a_command_that_ignores_TERM_and_all_it_started_are_ended(house, mode, ending):  # noqa: N802
    house.worker()
    limits = replace(BUILD, generation_seconds=2) if ending == "too long" else BUILD
    run = house.request(made_by(house, mode, limits=limits), format="epub")
    until(lambda: len(of_the_command(house)) == (3 if mode == "stays" else 1), lambda: str(of_the_command(house)))
    if ending == "cancelled":
        house.cancel(run)
    ended = house.wait(run)

    expected = {"cancelled": ("cancelled", None), "too long": ("failed", "generation_timeout")}
    assert expected[ending] == (ended.state, ended.failure_code)
    assert [] == of_the_command(house)
    house.assert_nothing_left()


def test_a_command_has_a_moment_to_end_by_itself(house, tmp_path):
    house.worker()
    run = house.request(made_by(house, "tidies_up", str(tmp_path / "goodbye")), format="epub")
    until(lambda: any(name.endswith("command/file") for name in house.on_disk()))
    house.cancel(run)

    assert "cancelled" == house.wait(run).state
    assert "goodbye" == (tmp_path / "goodbye").read_text()
    house.assert_nothing_left()


def test_a_command_dies_with_a_supervisor_that_is_killed_or_has_lost_its_lease(house):
    worker = house.worker()
    run = house.request(made_by(house, "floods_for_ever"), format="epub")
    until(lambda: len(of_the_command(house)) == 1)
    worker.kill()
    until(lambda: not of_the_command(house), lambda: f"{of_the_command(house)} live on")
    house.let_leases_run_out()
    house.sweep()
    house.sweep()

    assert "worker_lost" == house.wait(run).failure_code
    house.assert_nothing_left()


def test_a_command_dies_with_a_child_that_is_killed(house):
    house.worker()
    run = house.request(made_by(house, "floods_for_ever"), format="epub")
    until(lambda: len(of_the_command(house)) == 1)
    _, build = house.keeper_and_build()
    os.kill(build, signal.SIGKILL)

    assert "child_killed" == house.wait(run).failure_code
    assert [] == of_the_command(house)
    house.assert_nothing_left()


def test_a_command_dies_with_its_child_although_nobody_is_there_to_see_it(house):
    worker = house.worker()
    run = house.request(made_by(house, "stays_quietly"), format="epub")
    until(lambda: len(of_the_command(house)) == 1)
    _, build = house.keeper_and_build()
    house.freeze(worker)
    os.kill(build, signal.SIGKILL)
    until(lambda: not of_the_command(house), lambda: f"{of_the_command(house)} live on")
    worker.signal(signal.SIGCONT)

    assert "child_killed" == house.wait(run).failure_code
    house.assert_nothing_left()


def test_a_child_that_runs_a_command_loads_little(makes, tmp_path, monkeypatch):
    program = process.BUILD + f"; import sys; print(*sys.modules, file=open({str(tmp_path / 'modules')!r}, 'w'))"
    monkeypatch.setattr(process, "START", program)

    assert "ready" == makes("good").state
    loaded = (tmp_path / "modules").read_text().split()
    heavy = ("sqlalchemy", "click", "fastapi", "haulage.stores", "haulage.app", "dataclasses", "inspect", "sqlite3")
    assert [] == [name for name in loaded if name.startswith(heavy)]

"""Datasets whose rows a Python function answers page by page: the whole run, through a real worker and its child."""

from __future__ import annotations

import json
import os
import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from tests.process import paged
from tests.process.house import AMINA, BUILD, FOREVER, Bench, until
from tests.process.paged import paged as declared
from tests.process.test_child import HEAVY

from haulage.core import events
from haulage.core.errors import CATALOGUE, Refused
from haulage.core.limits import MIB
from haulage.exports.show import show, show_failure
from haulage.worker import process

FLAT = replace(BUILD, rows=10**12)


@pytest.fixture
def asks(house):
    """Builds one dataset to its end, in a child of a lane in this process; ``cause`` knows what it observed."""
    house.pretend_a_worker()
    house.settled = {}

    def ask(function, *, format="csv", wish=None, **members):
        run = house.request(declare(house, function, **members), format=format, **(wish or {}))
        with Bench(house) as bench:
            bench.work()
        house.settled |= {event.run: event for event in bench.seen(events.RunSettled)}
        return house.get(run)

    return ask


def declare(house, function, **members):
    name = f"d{len(house.catalogue)}"
    house.catalogue._datasets[name] = declared(name, function, **members)
    return name


def notices(run):
    return [notice["code"] for notice in run.notices]


def cause(house, run):
    return house.settled[run.id].cause


# -- whole -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [paged.names, paged.one_by_one])
def test_a_list_becomes_a_file_of_all_its_pages(house, asks, function):
    run = asks(function)

    assert ("ready", 2_500, None, None) == (run.state, run.rows, run.total, run.snapshot_at)
    expected = "No.,name\n" + "".join(f"{i},name {i}\n" for i in range(1, 2_501))
    assert expected == house.file_of(run).decode()
    assert ["no_snapshot"] == notices(run)
    assert [{"key": "i", "header": "No.", "type": "integer"}, {"key": "name", "header": "name", "type": None}] == list(
        run.columns
    )
    house.assert_whole()


def test_columns_are_chosen_and_values_are_written_as_from_every_other_source(house, asks):
    chosen = asks(paged.names, wish={"columns": ["name"], "rows": 2})
    nasty = asks(paged.nasty)
    document = asks(paged.nasty, format="json")

    assert b"name\nname 1\nname 2\n" == house.file_of(chosen)
    assert (
        'No.,name\n9223372036854775808,=1+1\n,""\n-1,\n1.10,"a\nb,""c"" é🚀 \ufffd"\n'
        == (house.file_of(nasty).decode().rpartition("true,")[0])
    )
    assert [2**63, None, -1, 1.1, True] == [row["No."] for row in json.loads(house.file_of(document))]
    assert ["no_snapshot", "text_replaced"] == notices(nasty)
    with pytest.raises(Refused) as refused:
        asks(paged.names, wish={"columns": ["title"]})
    assert ["there is no column 'title'; there are i, name"] == [fault.detail for fault in refused.value.faults]


@pytest.mark.parametrize("format", ["xlsx", "parquet"])
def test_other_formats_are_written_of_all_pages_too(asks, format):
    run = asks(paged.names, format=format, formats=(format,))

    assert ("ready", 2_500, None) == (run.state, run.rows, run.snapshot_at)
    assert "no_snapshot" in notices(run)


def test_a_list_that_changes_between_the_two_looks_of_a_format_is_a_failure_with_a_code(house, asks):
    run = asks(paged.changing, format="parquet", formats=("parquet",))

    assert ("failed", "values_changed") == (run.state, run.failure_code)
    house.assert_nothing_left()


def test_a_function_is_told_who_asked_when_and_what_as_python_has_it(house, asks, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "hush")
    environment = {"TICKETS_TOKEN": "env:SECRET_OF_THE_WORKER", "LANG_OF_TICKETS": "C"}
    monkeypatch.setenv("OF_THE_WORKER", "not declared")
    run = asks(paged.told, parameters=paged.TOLD, environment=environment, page_rows=7, format="json")

    seen, environ = (row["name"] for row in json.loads(house.file_of(run)))
    assert seen.startswith("(Requester(tenant='north', account='amina', grants=frozenset()")
    assert seen.endswith(
        ", 7, datetime.date(2026, 1, 31), Decimal('12.50'), datetime.datetime(2026, 1, 31, 22, 30, "
        "tzinfo=datetime.timezone.utc), ('a', 'b'), None)"
    )
    assert "[('LANG_OF_TICKETS', 'C'), ('OF_THE_WORKER', None), ('TICKETS_TOKEN', 'hush')]" == environ
    assert "hush" not in json.dumps(house.get(run.id).plan)


def test_what_the_worker_does_not_have_of_the_environment_is_told_to_the_operator(house, asks):
    run = asks(paged.told, parameters=paged.TOLD, environment={"TICKETS_TOKEN": "env:NOWHERE_4711"})

    assert "source_unavailable" == run.failure_code
    assert "the worker's environment has no NOWHERE_4711" == cause(house, run)
    assert "4711" not in json.dumps(show(run))


# -- counted or not --------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "total", "noticed"), [
    (paged.count_names, 2_500, []), (paged.count_unknown, None, []), (None, None, []),
    (paged.count_one_less, None, ["total_changed"]), (paged.count_one_more, None, ["total_changed"]),
])  # fmt: skip
def test_a_total_is_what_the_count_function_says_as_long_as_it_is_true(house, asks, count, total, noticed):
    run = asks(paged.names, count=count)

    assert ("ready", 2_500, 2_500, total) == (run.state, run.rows, run.processed, run.total)
    assert ["no_snapshot", *noticed] == notices(run)


def test_a_count_that_takes_too_long_is_unknown_and_one_that_fails_ends_the_run(house, asks):
    slow = asks(paged.names, count=paged.count_for_ever, limits=replace(BUILD, count_seconds=0.1))
    bad = asks(paged.names, count=paged.count_badly)
    raising = asks(paged.names, count=paged.count_raising)

    assert ("ready", None) == (slow.state, slow.total)
    assert ["list_failed", "list_failed"] == [bad.failure_code, raising.failure_code]
    assert "count answered no number of rows, but a str" == cause(house, bad)
    assert "count: LookupError: hush_4711 …" == cause(house, raising)


def test_a_door_counts_by_the_same_function_and_knows_nothing_without_one(house):
    house.catalogue._datasets["a"] = declared("a", paged.names, count=paged.count_names)
    house.catalogue._datasets["b"] = declared("b", paged.names)
    house.catalogue._datasets["c"] = declared("c", paged.names, count=paged.count_raising)
    counted = house.exports.counts(AMINA, "a", {"rows": 7})
    unknown = house.exports.counts(AMINA, "b")
    with pytest.raises(Refused) as refused:
        house.exports.counts(AMINA, "c")

    assert (None, 7) == (counted.output_count, counted.visible_output_count)
    assert isinstance(counted.counted_at, int)
    assert (None, None, None) == (unknown.output_count, unknown.visible_output_count, unknown.counted_at)
    assert "source_failed" == refused.value.code
    assert "hush" not in refused.value.detail


@pytest.mark.parametrize(("function", "at", "noticed"), [
    (paged.of_an_instant, 1_769_860_800_000, []), (paged.of_two_instants, None, ["no_snapshot"]),
])  # fmt: skip
def test_a_snapshot_is_what_all_pages_say_alike(asks, function, at, noticed):
    run = asks(function)

    assert ("ready", at, noticed) == (run.state, run.snapshot_at, notices(run))


def test_a_snapshot_of_a_clock_that_is_a_little_ahead_is_one(asks):
    run = asks(paged.of_a_clock_ahead)

    assert ("ready", [], 0) == (run.state, notices(run), run.snapshot_at % 1_000)


# -- what is refused -------------------------------------------------------------------------------


FAULTS = {
    "the same cursor": (paged.stuck, "list_stalled", "page 2 has the cursor of 1 pages before"),
    "nothing but empty pages": (paged.empty_for_ever, "list_stalled", "1,000 pages without a row"),
    "it raises on its second page": (paged.raising, "list_failed", "page 2: RuntimeError: no answer from"),
    "it ends the process": (paged.leaving, "list_failed", "page 1: SystemExit: canary_4711"),
    "it raises in its rows": (paged.raising_in_its_rows, "list_failed", "page 1: ZeroDivisionError: "),
    "it raises in a row": (paged.raising_in_a_row, "list_failed", "page 1: LookupError: "),
    "no row among its rows": (paged.none_among_its_rows, "list_failed", "page 1, row 3: it is a NoneType, and no"),
    "an instant of no zone": (paged.of_a_zone_that_is_none, "list_failed", "snapshot_at is no instant with a zone"),
    "other columns": (paged.others_on_the_second, "list_failed",
                      "page 2, row 1: it has no 'name'; 'title' is not declared in columns"),
    "more columns": (paged.more_on_the_second, "list_failed", "page 2, row 1: 'title' is not declared in columns"),
    "rows that are no mappings": (paged.no_mapping, "list_failed", "page 1, row 1: it is a tuple, and no mapping"),
    "no page": (paged.no_page, "list_failed", "page 1: it answered a list; write return Page(rows, cursor)"),
    "a coroutine": (paged.not_awaited, "list_failed", "page 1: it answered a coroutine"),
    "an instant without a zone": (paged.of_no_zone, "list_failed", "snapshot_at is no instant with a zone"),
    "an instant to come": (paged.of_the_future, "list_failed", "snapshot_at lies in the future"),
    "more rows than asked for": (paged.too_many, "page_oversize", None),
    "rows without end": (paged.endless_page, "page_oversize", None),
    "too many bytes": (paged.fat, "page_oversize", None),
    "too many bytes in documents": (paged.fat_documents, "page_oversize", None),
    "too much memory": (paged.hungry, "out_of_memory", "MemoryError"),
    "an interrupt": (paged.interrupted, "list_failed", "page 1: KeyboardInterrupt"),
    "a cell that is no value": (paged.unawaited, "list_failed",
                                "page 1, row 2, column 'name': a coroutine is no value"),
}  # fmt: skip


@pytest.mark.parametrize(("function", "code", "said"), FAULTS.values(), ids=FAULTS)
def test_a_list_that_does_what_it_should_not_fails_with_its_code_and_leaves_nothing(house, asks, function, code, said):
    run = asks(function)

    assert ("failed", code) == (run.state, run.failure_code)
    assert (cause(house, run) or "").startswith(said or "")
    public = json.dumps(show(run))
    assert not re.search("canary|secret|RuntimeError|ZeroDivision|title", public)
    if said is not None:
        assert CATALOGUE[code].sentence == show_failure(run)["message"]
    house.assert_nothing_left()


@pytest.mark.parametrize("format", ["csv", "json", "xlsx", "parquet"])
def test_what_has_a_text_of_its_own_is_a_value(house, asks, format):
    run = asks(paged.some_value, format=format, formats=(format,))

    assert ("ready", 7) == (run.state, run.rows)
    if format == "csv":
        seen = [line.partition(",")[2] for line in house.file_of(run).decode().splitlines()[1:]]
        assert ["00000000-0000-0000-0000-000000000007", "/a", "1 day, 0:00:02", "1" + "0" * 4_299] == [
            text.strip('"') for text in seen[:4]
        ]
        assert ["[" * 191 + "]" * 191, "1/3", "eA=="] == seen[4:]


def test_the_limits_of_a_page_are_told_with_their_numbers(asks):
    rows, size = asks(paged.too_many, page_rows=10), asks(paged.fat, page_bytes=2 * MIB)

    assert "A page had more than the 10 rows asked for." == rows.failure_detail
    assert "A page had more than the 2,097,152 bytes allowed." == size.failure_detail


@pytest.mark.parametrize("length", [1, 2, 3, 7, 100])
def test_a_circle_is_found_whatever_its_length(house, asks, length):
    run = asks(paged.circle, wish={"rows": length})

    assert "list_stalled" == run.failure_code
    assert f"the cursor of {length} pages before" in cause(house, run)


@pytest.mark.parametrize("length", [1, 2, 7, 100])
def test_a_circle_is_found_that_does_not_come_back_to_the_beginning(house, asks, length):
    run = asks(paged.circle_later, wish={"rows": length}, limits=replace(BUILD, rows=2_000))

    assert "list_stalled" == run.failure_code
    assert f"the cursor of {length} pages before" in cause(house, run)


def test_some_empty_pages_are_no_circle(asks):
    run = asks(paged.some_empty)

    assert ("ready", 3) == (run.state, run.rows)


def test_limits_of_rows_and_bytes_are_met_between_two_pages(house, asks):
    rows = asks(paged.endless, limits=replace(BUILD, rows=5_000))
    size = asks(paged.endless, limits=replace(FLAT, file_bytes=100_000))

    assert ["rows_exceeded", "bytes_exceeded"] == [rows.failure_code, size.failure_code]
    house.assert_nothing_left()


# -- ended by others -------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [paged.hanging, paged.endless])
def test_a_cancel_ends_a_function_whatever_it_does(house, asks, function):
    house.worker()
    run = house.request(declare(house, function, limits=FLAT), **FOREVER)
    child = house.child()
    if function is paged.hanging:
        until(lambda: any(name.endswith("/hangs") for name in house.on_disk()))
    else:
        house.wait_for_rows(run)
    house.cancel(run)

    assert "cancelled" == house.wait(run).state
    assert child not in house.children()
    house.assert_nothing_left()


def test_a_function_that_hangs_has_its_time(house, asks):
    run = asks(paged.hanging, limits=replace(BUILD, generation_seconds=1.5))

    assert "generation_timeout" == run.failure_code
    house.assert_nothing_left()


def left_by(house):
    """What ``leaving_something`` has started for this house and lives."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            found += [int(entry.name)] if b"3600" in words and str(house.artifacts_root).encode() in words else []
    return found


def test_what_a_function_has_started_ends_with_a_run_that_is_ready(house, asks):
    run = asks(paged.leaving_something, wish={"rows": 5})

    assert "ready" == run.state
    assert [] == left_by(house)
    house.assert_whole()


@pytest.mark.parametrize("killed", ["worker", "build", "cancelled"])
def test_what_a_function_has_started_ends_with_its_build_whatever_ended_that(house, killed):
    worker = house.worker()
    run = house.request(declare(house, paged.leaving_something), rows=paged.STAYS)
    until(lambda: len(left_by(house)) == 1)
    _, build = house.keeper_and_build()
    if killed == "cancelled":
        house.cancel(run)
    else:
        os.kill(worker.pid if killed == "worker" else build, signal.SIGKILL)
    until(lambda: not left_by(house), lambda: f"{left_by(house)} lives on")
    if killed == "worker":
        worker.end()
        house.let_leases_run_out()
        house.sweep()
        house.sweep()

    ended = house.wait(run)
    assert {"worker": "worker_lost", "build": "child_killed", "cancelled": None}[killed] == ended.failure_code
    house.assert_nothing_left()


# -- light and bounded -----------------------------------------------------------------------------


def test_a_child_that_calls_a_function_imports_it_and_no_store(asks, tmp_path, monkeypatch):
    program = process.BUILD + f"; import sys; print(*sys.modules, file=open({str(tmp_path / 'modules')!r}, 'w'))"
    monkeypatch.setattr(process, "START", program)
    run = asks(paged.names)

    assert "ready" == run.state
    loaded = (tmp_path / "modules").read_text().split()
    allowed = ("dataclasses", "inspect", "pathlib", "decimal", "haulage.core.catalogue", "haulage.core.limits")
    heavy = [name for name in HEAVY if name not in allowed]
    assert "tests.process.paged" in loaded
    assert [] == [name for name in loaded if name.startswith(tuple(heavy)) and name != "haulage.app"]


def test_memory_does_not_grow_with_the_number_of_pages(house):
    house.worker()

    def peak(rows):
        run = house.request(declare(house, paged.names, limits=FLAT), rows=rows)
        child, seen = house.child(), 0
        while house.get(run).state in ("queued", "running"):
            seen = max(seen, resident(child))
        assert "ready" == house.get(run).state
        return seen

    few, many = peak(20_000), peak(150_000)

    assert many < few + 12 * MIB


def resident(pid):
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    except OSError:
        return 0

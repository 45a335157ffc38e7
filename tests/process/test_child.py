"""The child: light, heard in full, ended however it behaves, and nothing of it stays."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
import python_calamine
from tests.process.house import BUILD, FOREVER, LIMITS, PATIENCE_SECONDS, UPTO, Bench, descriptors, until

from haulage.core import events
from haulage.core.errors import BuildFailed
from haulage.core.limits import MIB
from haulage.exports.build import BuildOrder
from haulage.formats import FORMATS, resolve_options
from haulage.worker import process

REPO = Path(__file__).parents[2]
HEAVY = ("sqlalchemy", "alembic", "pydantic", "click", "fastapi", "haulage.stores", "haulage.config", "haulage.web",
         "haulage.app", "haulage.core.ports", "dataclasses", "inspect", "pathlib", "shutil", "decimal")  # fmt: skip


def order_for(house, folder, sql="select 1 as a", **changes) -> BuildOrder:
    plan = {
        "sql": sql, "binds": {}, "types": {}, "visible": None, "hidden": [], "order": [], "order_fixed": False,
        "columns": None,
        "declared": {}, "limits": {"rows": 10**9, "count_seconds": 5, "sort_bytes": 10**9, "memory_bytes": 512 * MIB},
    }  # fmt: skip
    known = BuildOrder(f"sqlite:///{house.source}", 1, str(folder), plan, "csv", {"dialect": "exact"}, None,
                       10**9, 10**9, 0.25)  # fmt: skip
    return known._replace(**changes)


def talk(child: process.Child, seconds: float = PATIENCE_SECONDS) -> list[dict]:
    """Everything that a child says until it has ended."""
    heard = []
    deadline = time.monotonic() + seconds
    while True:
        ended = child.ended()
        heard += child.messages(0 if ended else 0.1)
        if ended:
            return heard
        assert time.monotonic() < deadline


def built(house, folder, program=None, monkeypatch=None, **changes) -> tuple[list[dict], int, str]:
    if program is not None:
        monkeypatch.setattr(process, "START", program)
    child = process.Child(order_for(house, folder, **changes).to_json())
    try:
        heard = talk(child)
    finally:
        code = child.reap()
    return heard, code, child.last_words


def work(house, monkeypatch, program, *, dataset="names", **parameters):
    """One run whose child is this program; gives the run and the bench."""
    monkeypatch.setattr(process, "START", program)
    house.pretend_a_worker()
    run = house.request(dataset, **parameters)
    with Bench(house) as bench:
        bench.work()
    until(lambda: not house.children(), lambda: "something of the child lives on")
    return house.get(run), bench


# -- light -----------------------------------------------------------------------------------------


def test_a_child_loads_no_store_and_nothing_heavy(house, tmp_path, monkeypatch):
    program = process.BUILD + "; import sys; print(*sys.modules, file=open('modules', 'w'))"

    heard, code, _words = built(house, tmp_path, program, monkeypatch)

    assert (0, 1) == (code, heard[-1]["built"]["rows"])
    loaded = (tmp_path / "modules").read_text().split()
    assert "haulage.sources.sqlite" in loaded
    assert [] == [name for name in loaded if name.startswith(HEAVY)]


@pytest.mark.parametrize("format", ["parquet", "ndjson", "xlsx"])
def test_a_child_loads_no_numpy_for_arrow(house, tmp_path, monkeypatch, format):
    program = (
        process.BUILD + "; import sys; print(*[n for n, m in sys.modules.items() if m], file=open('modules', 'w'))"
    )
    options = dict(resolve_options(FORMATS[format], {}))

    heard, code, words = built(house, tmp_path, program, monkeypatch, format=format, options=options)

    assert (0, 1) == (code, heard[-1]["built"]["rows"]), words
    loaded = (tmp_path / "modules").read_text().split()
    assert (format == "parquet", False) == ("pyarrow" in loaded, "numpy" in loaded)


def test_arrow_is_loaded_while_rows_are_counted(house, tmp_path, monkeypatch):
    """The count waits for it, as it does for nothing else."""
    program = (
        "import sys, time; from haulage.sources.sqlite import SqliteSnapshot; count = SqliteSnapshot.count\n"
        "def waiting(*asked):\n"
        "    until = time.monotonic() + 60\n"
        "    while 'haulage.formats.parquet_text' not in sys.modules and time.monotonic() < until: time.sleep(0.01)\n"
        "    return count(*asked) + 1000 * ('haulage.formats.parquet_text' not in sys.modules)\n"
        "SqliteSnapshot.count = waiting\n"
    )

    options = dict(resolve_options(FORMATS["parquet"], {}))

    heard, _, words = built(house, tmp_path, program + process.START, monkeypatch, format="parquet", options=options)

    assert 1 == heard[-1]["built"]["total"], words


def test_a_child_costs_little_more_than_the_bare_interpreter(house, tmp_path):
    """Time of the processor, as a ratio and the best of several in turns: machines differ, and they are busy."""

    def cost(act):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        act()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def bare():
        subprocess.run([sys.executable, "-c", "import sqlite3, json, hashlib, threading"], check=True)

    def one_build():
        assert "built" in built(house, tmp_path)[0][-1]
        (tmp_path / "part").unlink()

    builds, others = zip(*[(cost(one_build), cost(bare)) for _ in range(15)], strict=True)

    assert min(builds) < 3 * min(others)


# -- the pipes -------------------------------------------------------------------------------------


def test_an_order_and_a_report_may_be_longer_than_a_pipe_is(house, tmp_path):
    columns = ", ".join(f"{n} as column_with_quite_a_long_name_number_{n}" for n in range(1_900))

    heard, code, words = built(house, tmp_path, plan=order_for(house, tmp_path, f"select {columns}").plan)

    assert (0, "") == (code, words)
    assert 1_900 == len(heard[-1]["built"]["columns"])
    assert len(json.dumps(heard[-1])) > 2 * process.PIPE_BYTES


def test_a_child_that_never_reads_its_long_order_cannot_hold_up_its_lane(house, monkeypatch):
    monkeypatch.setattr(BuildOrder, "to_json", lambda _order: "x" * 1_000_000 + "\n")
    house.limits = replace(LIMITS, build=replace(BUILD, generation_seconds=1))

    began = time.monotonic()
    run, _bench = work(house, monkeypatch, "import time; time.sleep(60)")

    assert "generation_timeout" == run.failure_code
    assert time.monotonic() - began < 30
    house.assert_nothing_left()


def test_what_a_child_says_with_its_last_breath_is_heard(house, tmp_path, monkeypatch):
    program = (
        "import os, sys, json; os.write(int(sys.argv[2]), json.dumps({'built': 'x' * 60000}).encode() + b'\\n');"
        "os.write(2, b'first line\\nlast line\\n'); os._exit(7)"
    )

    assert ([{"built": "x" * 60_000}], 7, "last line") == built(house, tmp_path, program, monkeypatch)


SAYS = "import os, sys, json, time; say = lambda line: os.write(int(sys.argv[2]), line);"
UNKNOWN = "{'failed': 'no such code', 'detail': None, 'cause': None}"
MISBEHAVIOURS = {
    "exits": ("import os; os._exit(3)", "child_crashed"),
    "raises": ("raise SystemExit('no such thing')", "child_crashed"),
    "segfault": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "child_crashed"),
    "TERM": ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "child_killed"),
    "garbage": (SAYS + r"say(b'no json\n')", "build_failed"),
    "closes its report": (SAYS + "os.close(int(sys.argv[2])); time.sleep(60)", "child_killed"),
    "unknown code": (SAYS + rf"say(json.dumps({UNKNOWN}).encode() + b'\n')", "build_failed"),
    "says it is done and lingers": (SAYS + r"say(b'{\"failed\": \"no_space\", \"detail\": null, \"cause\": null}\n');"
                                    "time.sleep(60)", "no_space"),
}  # fmt: skip


@pytest.mark.parametrize(("program", "expected"), MISBEHAVIOURS.values(), ids=MISBEHAVIOURS)
def test_a_child_that_misbehaves_fails_its_run_with_a_code(house, monkeypatch, program, expected):
    run, bench = work(house, monkeypatch, program)

    assert ("failed", expected) == (run.state, run.failure_code)
    assert "no such thing" not in str(run)
    if "no such thing" in program:
        assert "no such thing" in bench.seen(events.RunSettled)[0].cause
    house.assert_nothing_left()


@pytest.mark.parametrize("own_session", [False, True], ids=["in its group", "in a session of its own"])
def test_a_grandchild_that_holds_the_pipes_does_not_hold_up_the_lane(house, monkeypatch, own_session):
    program = (
        "import subprocess, sys, os;"
        "p = subprocess.Popen(['sleep', '3600'], pass_fds=[int(sys.argv[2])],"
        f" start_new_session={own_session}, cwd='/');"
        f"open({str(house.artifacts_root / 'grandchild')!r}, 'w').write(str(p.pid)); os._exit(3)"
    )

    began = time.monotonic()
    run, _bench = work(house, monkeypatch, program)

    grandchild = int((house.artifacts_root / "grandchild").read_text())
    assert "child_crashed" == run.failure_code
    assert time.monotonic() - began < 30
    if own_session:
        os.kill(grandchild, signal.SIGKILL)  # it went out of our reach, as an external command must not
    else:
        until(lambda: not Path(f"/proc/{grandchild}").exists() or "Z" in _state(grandchild))


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_child_that_ignores_TERM_is_killed_after_the_grace(house, monkeypatch):  # noqa: N802 - the signal's name
    program = (
        "import signal, sys, os, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        'os.write(int(sys.argv[2]), b\'{"phase": "writing", "processed": 1, "total": null}\\n\'); time.sleep(60)'
    )
    monkeypatch.setattr(process, "START", program)
    house.pretend_a_worker()
    run = house.request("names")
    with Bench(house) as bench:
        lane = bench.claim()
        lane.thread.start()
        house.wait_for_rows(run)
        began = time.monotonic()
        house.cancel(run)
        house.wait(run)
        lane.thread.join(PATIENCE_SECONDS)

    assert "cancelled" == house.get(run).state
    assert house.limits.stop_seconds <= time.monotonic() - began < 30


def test_TERM_ends_a_child_although_its_supervisor_had_blocked_and_ignored_it(house, monkeypatch):  # noqa: N802
    house.limits = replace(LIMITS, stop_seconds=40)
    house.pretend_a_worker()
    run = house.request("silent", **FOREVER)
    ignored = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        with Bench(house) as bench:
            lane = bench.claim()
            lane.thread.start()
            house.wait_for_sql(house.child())
            began = time.monotonic()
            house.cancel(run)
            house.wait(run)
            took = time.monotonic() - began
            lane.thread.join(PATIENCE_SECONDS)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGTERM, ignored)

    assert took < 30 < house.limits.stop_seconds  # no KILL was needed


def test_a_process_that_cannot_be_started_fails_the_run_and_leaks_no_descriptor(house, monkeypatch):
    house.pretend_a_worker()
    run = house.request("names")
    with Bench(house) as bench:
        before = descriptors()
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        bench.work()
        after = descriptors()

    assert "build_failed" == house.get(run).failure_code
    assert before == after
    house.assert_nothing_left()


def test_twenty_children_leave_no_descriptor_and_no_zombie(house, tmp_path):
    def once():
        heard, _code, _words = built(house, tmp_path)
        (tmp_path / "part").unlink()
        return heard[-1]

    once()
    before = descriptors()

    for _ in range(20):
        assert "built" in once()

    assert before == descriptors()
    ours = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert [] == [pid for pid in ours if _state(int(pid)) == "Z"]


# -- its surroundings ------------------------------------------------------------------------------


def test_a_child_finds_the_package_by_a_relative_PYTHONPATH_and_gets_no_secret(house, tmp_path):  # noqa: N802
    """The base interpreter knows nothing of an editable install; a child works in another folder."""
    python = Path(sys._base_executable)
    program = (
        "import sys, json; from haulage.worker import process\n"
        "child = process.Child(sys.argv[1])\n"
        "environment = open(f'/proc/{child.pid}/environ').read()\n"
        "said = []\n"
        "while not child.ended(): said += child.messages(0.1)\n"
        "said += child.messages(0)\n"
        "child.reap(); print(json.dumps([said[-1:], child.last_words, environment]))"
    )
    environment = {"PYTHONPATH": "src", "HAULAGE_SECRET": "canary", "PATH": os.environ["PATH"]}

    done = subprocess.run(
        [python, "-c", program, order_for(house, tmp_path).to_json(), str(tmp_path)],
        cwd=REPO, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert "" == done.stderr
    (last,), words, given = json.loads(done.stdout)
    assert ("", 1) == (words, last["built"]["rows"])
    assert "canary" not in given


@pytest.mark.parametrize(
    ("memory_mib", "compression", "expected"),
    [(512, None, "ready"), (512, "gzip", "ready"), (512, "zstd", "ready"), (64, None, "out_of_memory")],
)
def test_memory_has_a_limit_of_its_own(house, memory_mib, compression, expected):
    """The same rows, each with a text of 20 MB, under a limit that they fit and one that they do not."""
    build = replace(BUILD, memory_bytes=memory_mib * MIB)
    house.limits = replace(LIMITS, build=build)
    dataset = replace(house.catalogue.find("names"), name="large", limits=build, parameters=(),
                      sql="select id, hex(zeroblob(10000000)) as big from names where id < 3")  # fmt: skip
    house.catalogue._datasets["large"] = dataset
    house.worker()

    ended = house.wait(house.request("large", compression=compression))

    assert expected in (ended.state, ended.failure_code)
    house.assert_whole()


def test_memory_that_is_too_little_to_begin_with_says_so(house, tmp_path):
    """At each size in which a module cannot be loaded, a thread not be started, a table not be opened."""
    known = order_for(house, tmp_path).plan
    ends = {}
    for memory in (1, 10, *range(12, 30)):
        limits = known["limits"] | {"memory_bytes": int(memory * MIB)}
        heard, _code, words = built(house, tmp_path, plan=known | {"limits": limits})
        (tmp_path / "part").unlink(missing_ok=True)
        ends[memory] = heard[-1].get("failed", "built") if heard else words

    assert "out_of_memory" == ends[1] == ends[10]
    assert {"built", "out_of_memory"} == set(ends.values()), ends


def test_a_failure_with_memory_to_spare_is_not_one_of_memory(house, tmp_path):
    heard, _code, _words = built(house, tmp_path, format="papyrus")

    assert "build_failed" == heard[-1]["failed"]


def test_rows_that_suddenly_become_huge_do_not_become_as_much_memory(house):
    """A thousand short rows, then forty of 10 MB: fetched in hundreds, they would be gigabytes."""
    build = replace(BUILD, memory_bytes=300 * MIB)
    house.limits = replace(LIMITS, build=build)
    dataset = replace(house.catalogue.find("names"), name="huge", limits=build, parameters=(),
                      sql="select id, case when id > 1000 then hex(zeroblob(5000000)) else 'x' end as big"
                          " from names where id <= 1040")  # fmt: skip
    house.catalogue._datasets["huge"] = dataset
    house.worker()
    run = house.request("huge")
    child, peak = house.child(), 0
    with contextlib.suppress(OSError, StopIteration):
        while True:
            status = Path(f"/proc/{child}/status").read_text().splitlines()
            peak = max(peak, int(next(line for line in status if line.startswith("VmHWM")).split()[1]) * 1024)
    ended = house.wait(run)

    assert ("ready", 1_040) == (ended.state, ended.rows)
    assert ended.bytes > 400 * MIB / 1.1
    assert 20 * MIB < peak < 150 * MIB
    assert house.file_of(ended).startswith(b"id,big\n1,x\n2,x\n")
    house.assert_whole()


@pytest.mark.parametrize(
    ("format", "options", "most"),
    [("xlsx", {"moments": "exact", "sheets": "one"}, 60), ("parquet", {"codec": "zstd"}, 250)],
    ids=["xlsx", "parquet"],
)
def test_a_packed_file_is_made_in_little_memory(house, tmp_path, format, options, most):
    """Three row groups; with the usual limit of address space, in which pyarrow has to fit too."""
    readers = {
        "xlsx": lambda path: python_calamine.load_workbook(path).get_sheet_by_index(0).to_python(),
        "parquet": lambda path: [("i", "name", "x", "empty"), *duckdb.sql(f"from read_parquet('{path}')").fetchall()],
    }
    sql = UPTO.replace(":rows", "150000") + " select i, 'name ' || i as name, i * 0.37 as x, null as empty from n"
    order = order_for(house, tmp_path, sql, format=format, options=options)
    child, peak, heard = process.Child(order.to_json()), 0, []
    while not (child.silent and child.ended()):
        heard += child.messages(0.01)
        with contextlib.suppress(OSError, StopIteration):
            status = Path(f"/proc/{child.pid}/status").read_text().splitlines()
            peak = max(peak, int(next(line for line in status if line.startswith("VmHWM")).split()[1]) * 1024)
    assert 0 == child.reap(), child.last_words

    assert "built" in heard[-1], heard
    assert 150_000 == heard[-1]["built"]["rows"]
    assert 10 * MIB < peak < most * MIB
    rows = readers[format](tmp_path / "part")
    assert 150_001 == len(rows)
    assert ("i", "name", "x", "empty") == tuple(rows[0])
    assert ("name 150000", 55_500.0) == (rows[-1][1], rows[-1][2])


ROWS = 600_000  # so many that they are seen to become more


def test_progress_never_runs_ahead_of_the_file_and_never_passes_its_total(house):
    dataset = replace(house.catalogue.find("names"), sql=f"{UPTO} select i, 'name ' || i as name from n", key=("i",))
    house.catalogue._datasets["names"] = dataset
    house.worker()
    run = house.request("names", rows=ROWS)
    seen = []
    while (now := house.get(run)).state in ("queued", "running"):
        lines = None
        with contextlib.suppress(FileNotFoundError):  # read after the row
            content = (house.artifacts_root / "work" / f"{run}.1" / "part").read_bytes()
            lines = max(0, content.count(b"\n") - 1)
        seen.append((now.processed, now.total, lines))
    done = house.get(run)

    measured = [processed for processed, _total, _lines in seen if processed is not None]
    assert len(set(measured)) > 3
    assert sorted(measured) == measured
    assert all(processed <= lines for processed, _total, lines in seen if None not in (processed, lines))
    assert all(processed <= total for processed, total, _lines in seen if processed is not None)
    assert any(None not in (processed, lines) for processed, _total, lines in seen)
    assert (ROWS, ROWS, ROWS) == (done.processed, done.total, done.rows)
    assert done.updated_at is not None


def test_while_a_statement_is_silent_the_heartbeat_goes_on_and_progress_does_not_pretend(house):
    house.worker()
    run = house.request("silent_rows", **FOREVER)
    until(lambda: house.get(run).phase == "writing")
    before = house.get(run)

    until(lambda: house.get(run).heartbeat_at >= before.heartbeat_at + 1_000)

    after = house.get(run)
    assert (0, None, before.updated_at) == (after.processed, after.total, after.updated_at)


def test_a_child_refuses_a_source_that_no_room_reads(house, tmp_path):
    heard, _code, _words = built(house, tmp_path, source_url="gopher://shop")
    assert ("build_failed", True) == (heard[-1]["failed"], "gopher" in heard[-1]["cause"])
    assert BuildFailed(heard[-1]["failed"]).detail

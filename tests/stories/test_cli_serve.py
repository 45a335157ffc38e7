"""The long-running commands: what they say, how they end, and that a dead worker comes back."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

import pytest
from tests.stories.terminal import Terminal, until

from haulage import Haulage
from haulage.cli.demo import flights
from haulage.cli.demo.folder import folder_at
from haulage.cli.serving import WorkerProcess
from haulage.config import hash_key
from haulage.core.ports import Presence

pytestmark = pytest.mark.process


@pytest.fixture
def terminal(tmp_path):
    return Terminal(tmp_path).shop()


def ready(process):
    """The document that a long-running command prints when it answers."""
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return json.loads(line)


def ask(url, key=None, body=None, opener=urllib.request.build_opener()):  # noqa: B008 - one for all
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), headers)
    with opener.open(request, timeout=60) as answer:
        return answer.read()


def workers(folder):
    """Process ids of the workers that were started for a folder."""
    found = []
    for words in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = words.read_bytes()
        except OSError:
            continue
        if b"\0worker\0" in text and str(folder).encode() in text:
            found.append(int(words.parent.name))
    return found


def test_up_serves_and_works_and_brings_a_dead_worker_back(terminal):
    with terminal.started("up", "--port", "0", "--json", "--config", terminal.config) as process:
        address = ready(process)["address"]
        until(lambda: workers(terminal.folder))
        (first,) = workers(terminal.folder)
        os.kill(first, signal.SIGKILL)
        until(lambda: workers(terminal.folder) not in ([], [first]))
        until(lambda: "process" in terminal.run("doctor").out)
        answer = terminal.run("export", "orders", "-o", "orders.csv")
        live = ask(f"{address}/api/health/live")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=120)

    assert 0 == answer.code
    assert live
    assert "the worker has been ended by SIGKILL; starting another in 1 s" in err
    assert 0 == process.returncode
    assert [] == workers(terminal.folder)


def test_term_lets_a_build_of_up_finish(tmp_path):
    """The server raises its signal again when it has ended: that is no second one, which would end builds at once."""
    terminal = Terminal(tmp_path).shop(rows=150)
    with terminal.started("up", "--port", "0", "--json", "--config", terminal.config) as process:
        ready(process)
        with terminal.started("export", "endless"):
            until(lambda: [run["state"] for run in listed(terminal)] == ["running"])
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=120)
        (run,) = listed(terminal)

    assert "ready" == run["state"], run
    assert 0 == process.returncode


def listed(terminal):
    return terminal.run("runs", "list", "--json").document["items"]


def test_a_signal_that_comes_while_another_is_passed_on_is_passed_on_too(terminal, monkeypatch):
    """Both in the main thread, the second in the middle of the first, as handlers run; it must not wait for itself."""
    worker = WorkerProcess(terminal.config)
    worker.start()
    until(lambda: workers(terminal.folder) and worker._process)
    started, passed = worker._process, []
    pass_on = started.send_signal

    def send(number):
        passed.append(number)
        if len(passed) == 1:
            os.kill(os.getpid(), signal.SIGUSR1)
        pass_on(number)

    def stuck(_number, _frame):
        raise TimeoutError

    monkeypatch.setattr(started, "send_signal", send)
    again = signal.signal(signal.SIGUSR1, lambda *_: worker.signal(signal.SIGTERM))
    alarm = signal.signal(signal.SIGALRM, stuck)
    signal.alarm(30)
    try:
        worker.signal(signal.SIGTERM)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGUSR1, again)
        signal.signal(signal.SIGALRM, alarm)
        pass_on(signal.SIGINT)
    worker.wait()

    assert [signal.SIGTERM, signal.SIGINT] == passed
    assert [] == workers(terminal.folder)


def test_a_worker_does_not_outlive_an_up_that_was_killed(terminal):
    with terminal.started("up", "--port", "0", "--json", "--config", terminal.config) as process:
        ready(process)
        until(lambda: workers(terminal.folder))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

        until(lambda: not workers(terminal.folder))


def test_serve_without_a_worker_refuses_exports_with_no_worker(terminal):
    key = terminal.run("keys", "new", "amina", "--grant", "*", "--write").out.strip()
    with terminal.started("serve", "--port", "0", "--json") as process:
        address = ready(process)["address"]
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(f"{address}/api/exports", key, {"dataset": "orders", "format": "csv"})
        problem = json.load(refused.value)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)

    assert (503, "no_worker") == (refused.value.code, problem["code"])
    assert 0 == process.returncode


def test_a_key_that_is_banned_is_refused_at_the_next_request(terminal):
    key = terminal.run("keys", "new", "amina", "--grant", "*", "--write").out.strip()
    banned = terminal.config.read_text().replace("[keys.amina]", "[keys.amina]\nbanned = true")
    with terminal.started("serve", "--port", "0", "--json") as process:
        address = ready(process)["address"]
        before = json.loads(ask(f"{address}/api/session", key))
        terminal.config.write_text(banned + "\n[keys.")
        with_faults = json.loads(ask(f"{address}/api/session", key))
        terminal.config.write_text(banned)
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(f"{address}/api/session", key)
        with pytest.raises(urllib.error.HTTPError) as sign_in:
            ask(f"{address}/api/session", body={"key": key})
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)

    assert "amina" == before["account"] == with_faults["account"]
    assert (401, 401) == (refused.value.code, sign_in.value.code)
    assert 1 == err.count('"event": "KeysNotRead"')
    assert key not in err


def test_a_worker_that_starts_after_a_change_builds_what_was_accepted_before_it(terminal):
    with contextlib.closing(Haulage.from_toml(terminal.config, environ={})) as haul:
        haul.store.workers.announce(Presence("gone", "nowhere", 1, "0", "claiming", 1, 0, 0))
        run = haul.exports.request(haul.operator, "orders").id
    accepted = "from orders where placed_at >= :since"
    text = terminal.config.read_text()
    assert accepted in text
    terminal.config.write_text(text.replace(accepted, f"{accepted} and id < 3"))

    with terminal.started("worker", "--json") as process:
        ready(process)
        until(lambda: terminal.run("runs", "show", run, "--json").document["finished_at"])
        of_before = terminal.run("runs", "show", run, "--json").document
        of_now = terminal.run("export", "orders", "--json").document

    assert (200, 2) == (of_before["file"]["rows"], of_now["file"]["rows"])


def test_a_port_that_is_taken_is_told(terminal):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        answer = terminal.run("serve", "--port", str(other.getsockname()[1]))

    assert 2 == answer.code
    assert "choose another with --port" in answer.err


def test_lanes_are_written_as_a_flow_and_a_number(terminal):
    answer = terminal.run("worker", "--lanes", "exports=none")

    assert 2 == answer.code
    assert "write exports=2" in answer.err


@pytest.mark.slow
def test_the_demo_is_ready_by_itself_and_leaves_nothing(tmp_path):
    terminal = Terminal(tmp_path)
    with terminal.started(
        "demo", "--port", "0", "--no-browser", "--json", HAULAGE_DEMO_KEY="a-key-of-mine", HAULAGE_STORE="sqlite:///x"
    ) as process:
        shown = ready(process)
        folder, address = Path(shown["dir"]), shown["address"]
        datasets = json.loads(ask(f"{address}/api/datasets", "a-key-of-mine"))["items"]
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        ask(shown["sign_in"], opener=browser)
        who = json.loads(ask(f"{address}/api/session", opener=browser))
        stranger = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        ask(shown["sign_in"], opener=stranger)
        with pytest.raises(urllib.error.HTTPError) as second_use:
            ask(f"{address}/api/session", opener=stranger)
        checked = terminal.run("datasets", "check", "--config", shown["config"])
        listed = terminal.run("datasets", "--json", "--config", shown["config"]).document["items"]
        joined = terminal.run("export", datasets[-1]["name"], "--config", shown["config"])
        mode = folder.stat().st_mode & 0o777
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)

    assert "a-key-of-mine" == shown["key"]
    assert 5 <= len(datasets)
    assert [dataset for dataset in listed if dataset["permission"]]
    assert ("demo", ["*"]) == (who["account"], who["grants"])
    assert 401 == second_use.value.code
    assert 0 == checked.code, checked.out
    assert 0 == joined.code
    assert "no worker is alive" not in joined.err
    assert 0o700 == mode
    assert "HAULAGE_STORE is not used by the demo" in err
    assert 0 == process.returncode
    assert not folder.exists()
    assert [] == workers(folder)


@pytest.mark.slow
def test_a_demo_in_a_folder_is_used_again(tmp_path):
    terminal, folder = Terminal(tmp_path), tmp_path / "kept"
    words = ("demo", "--dir", folder, "--port", "0", "--no-browser", "--json")
    with terminal.started(*words) as process:
        first = ready(process)
        second = terminal.run("demo", "--dir", folder, "--port", "0", "--no-browser")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    made = (folder / "flights.db", folder / "shop.db")
    data = next(path for path in made if path.exists()).stat().st_mtime_ns
    with terminal.started(*words) as process:
        again = ready(process)
        answer = ask(f"{again['address']}/api/datasets", again["key"])
        with pytest.raises(urllib.error.HTTPError):
            ask(f"{again['address']}/api/datasets", first["key"])
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)

    assert 2 == second.code
    assert "a demo is running in" in second.err
    assert data == next(path for path in made if path.exists()).stat().st_mtime_ns
    assert answer
    assert 0 == process.returncode
    assert 0o600 == (folder / "haulage.toml").stat().st_mode & 0o777


def test_a_demo_that_cannot_start_says_so_before_it_makes_any_data(tmp_path):
    terminal, folder = Terminal(tmp_path), tmp_path / "mine"
    folder.mkdir()
    (folder / "haulage.toml").write_text("mine")
    foreign = terminal.run("demo", "--dir", folder, "--no-browser", "--port", "0")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = terminal.run("demo", "--dir", tmp_path / "new", "--port", other.getsockname()[1])

    assert (2, 2) == (foreign.code, taken.code)
    assert "is no demo's; move it away, or choose another folder with --dir" in foreign.err
    assert "choose another with --port" in taken.err
    assert "mine" == (folder / "haulage.toml").read_text()
    assert [] == [*folder.glob("*.db"), *tmp_path.glob("new")]  # making the data takes a while


@pytest.mark.slow
def test_a_further_worker_joins_a_demo_with_the_command_that_it_prints(tmp_path):
    terminal, folder = Terminal(tmp_path), tmp_path / "a folder of mine"
    with terminal.started("demo", "--dir", folder, "--port", "0", "--no-browser") as process:
        line = next(line for line in iter(process.stdout.readline, "") if line.startswith("worker "))
        words = shlex.split(line.partition("(joins")[0])[1:]
        with subprocess.Popen(words, cwd="/", env={"PATH": "/nowhere"}, stderr=subprocess.PIPE, text=True) as worker:
            ready_line = next(line for line in iter(worker.stderr.readline, "") if "worker ready" in line)
            worker.send_signal(signal.SIGTERM)
            worker.communicate(timeout=120)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)

    assert ready_line
    assert 0 == worker.returncode


@pytest.mark.slow
def test_the_public_data_is_there_whole_with_conditions_and_joined(tmp_path):
    if flights.data_folder() is None:
        pytest.skip("the public flight data is not installed; ./dev demo installs it")
    with folder_at(tmp_path / "made", hash_key("x")) as place:
        checked = Terminal(tmp_path).run("datasets", "check", "--config", place.config, "--json")
        with contextlib.closing(Haulage.from_toml(place.config, environ={})) as haul:
            known = {dataset.name: dataset for dataset in haul.catalogue}
            first_day = {"since": "2013-01-01", "until": "2013-01-01"}
            asked = {"flights": {}, "journeys": first_day, "weather": {}, "planes": {}, "airports": {}, "airlines": {}}
            rows = {
                name: haul.exports.counts(haul.operator, name, given).visible_output_count
                for name, given in asked.items()
            }

    assert "336,776 flights of 2013 (public data)" == place.data
    assert (0, True) == (checked.code, checked.document["ok"])
    assert {"flights": 336_776, "journeys": 842, "weather": 26_115, "planes": 3_322, "airports": 1_458,
            "airlines": 16} == rows  # fmt: skip
    assert {"journeys", "delays"} <= {name for name, dataset in known.items() if " join " in dataset.sql}
    assert 5 <= sum(bool(dataset.parameters) for dataset in known.values())


@pytest.mark.slow
def test_without_the_public_data_a_shop_is_generated_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(flights, "find_spec", lambda _name: None)
    with folder_at(tmp_path / "made", hash_key("x")) as place:
        checked = Terminal(tmp_path).run("datasets", "check", "--config", place.config, "--json")
        listed = Terminal(tmp_path).run("datasets", "--config", place.config, "--json").document["items"]

    assert "120,000 orders of a generated shop" == place.data
    assert (0, True) == (checked.code, checked.document["ok"])
    assert 5 <= len(listed)
    assert all("(generated)" in dataset["label"] for dataset in listed)
    assert [dataset for dataset in listed if dataset["permission"]]

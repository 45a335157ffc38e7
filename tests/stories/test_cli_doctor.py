"""``haulage doctor --check``: rows, files and their owners compared; every fault here is made behind Haulage's back."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys

import pytest
from tests.stories.terminal import CONFIGURATION, Terminal

pytestmark = pytest.mark.slow


@pytest.fixture
def terminal(tmp_path):
    return Terminal(tmp_path).shop(
        configuration=CONFIGURATION.replace("select missing from nowhere", "select 1 as one")
    )


@pytest.fixture
def run(terminal):
    return terminal.run_of(terminal.run("export", "orders", "--json"))


def behind_our_back(terminal, statement):
    with contextlib.closing(sqlite3.connect(terminal.folder / "haulage.db")) as store, store:
        assert 1 == store.execute(statement).rowcount


def checked(terminal):
    """The exit code, and what is not in order."""
    answer = terminal.run("doctor", "--check", "--json")
    found = answer.document["findings"]
    ours = [each for each in found if each["subject"] in ("runs", "files") and each["level"] != "OK"]
    return answer.code, [f"{each['level']} {each['what']}" for each in ours]


def test_a_house_in_order_has_no_finding(terminal, run):
    terminal.run("export", "orders", "-p", "since=2099-01-01")  # no rows
    terminal.run("runs", "expire", terminal.run_of(terminal.run("export", "chosen", "-p", "ids=1", "--json")))
    terminal.run("export", "broken")

    assert (0, []) == checked(terminal)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ("cancel_requested_at = 1", "is ready, but a cancel was requested before it ended"),
        ("state = 'cancelled'", "is cancelled, but nobody requested a cancel"),
        ("finished_at = null", "is ready, but it has no end"),
        ("state = 'queued', reserved_bytes = null", "is queued, but it has an end"),
        ("state = 'failed'", "is failed, but it has no reason"),
        ("failure_code = 'worker_lost'", "is ready, but it has a reason to fail"),
        ("reserved_bytes = 5", "is ready, but it holds storage"),
        ("total = processed - 1", "is ready, but more rows were read than there are"),
        ("processed = processed - 1", "is ready, but not every row was read"),
        ("total = total + 1", "is ready, but not every row was read"),
    ],
)
def test_a_row_that_its_life_does_not_lead_to_is_found(terminal, run, values, wanted):
    before = checked(terminal)
    behind_our_back(terminal, f"update exports set {values} where id = '{run}'")

    assert (0, []) == before
    assert (1, f"FAIL run {run} {wanted}") == (checked(terminal)[0], checked(terminal)[1][0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "values",
    [
        "expires_at = 1",
        "state = 'queued', finished_at = null, claim_by = 1",
        "state = 'running', finished_at = null, lease_until = 1, slot = 1",
        "state = 'running', finished_at = null, finish_by = 1, lease_until = 9e15, slot = 1",
        "state = 'expired', finished_at = 1, expires_at = 1",
        "state = 'expired', artifact_key = null, retain_until = 1",
    ],
)
def test_a_run_that_should_have_ended_is_found_until_somebody_sweeps(terminal, run, values):
    behind_our_back(terminal, f"update exports set {values} where id = '{run}'")

    (_, late), _, (code, after) = checked(terminal), terminal.run("sweep"), checked(terminal)

    assert f"WARN 1 should have ended or gone by now: {run} …" in late
    assert (0, []) == (code, after)


def test_a_file_that_is_not_what_its_row_says_is_found(terminal, run):
    (file,) = (terminal.folder / "artifacts" / "files").iterdir()
    whole = file.read_bytes()
    told = f"FAIL run {run}: its bytes are missing or not those that were written"
    found = {}
    for name, content in (
        ("cut", whole[:-1]),
        ("longer", whole + b"x"),
        ("flipped", bytes([whole[0] ^ 1]) + whole[1:]),
    ):
        file.write_bytes(content)
        found[name] = checked(terminal)
    file.unlink()
    found["gone"] = checked(terminal)

    assert dict.fromkeys(("cut", "longer", "flipped", "gone"), (1, [told])) == found


def test_bytes_under_a_name_that_is_no_text_are_found_too(terminal, run):
    name = os.fsencode(terminal.folder / "artifacts" / "files") + b"/\xff\xfe.1"
    with open(name, "wb"):  # noqa: PTH123 - a path is text
        pass

    assert (1, ["FAIL \\udcff\\udcfe.1 belongs to no run"]) == checked(terminal)


def test_the_doctor_tells_of_a_format_whose_library_is_missing(terminal, monkeypatch):
    config = terminal.folder / "haulage.toml"
    config.write_text(config.read_text().replace('formats = ["csv", "json"]', 'formats = ["csv", "parquet"]'))
    assert "parquet" not in terminal.run("doctor").out

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    doctor = terminal.run("doctor")
    assert 0 == doctor.code
    assert "WARN  formats: parquet cannot be written; pip install 'haulage[parquet]'" in doctor.out
    refused = terminal.run("export", "orders", "--format", "parquet")
    assert 2 == refused.code
    assert "pip install 'haulage[parquet]'" in refused.err

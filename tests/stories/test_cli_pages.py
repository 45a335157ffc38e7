"""The command line with an application whose lists are page functions: check, doctor, and the whole way to the file."""

from __future__ import annotations

import json
import sys
from itertools import count

import pytest
from tests.stories.terminal import SECRET, Terminal

pytestmark = pytest.mark.slow

numbers = count()
CONFIGURATION = """
secret_keys = ["{secret}"]
app = "{module}:haul"

[operator]
tenant = "north"
"""
# Its page functions stand in the same file, after all that the child of a run must not open.
APPLICATION = '''
import os
from datetime import date

from starlette.applications import Starlette

from haulage import Column, Haulage, Page, Requester

haul = Haulage.from_toml("haulage.toml")
app = Starlette()
app.mount("/haulage", haul.asgi(authenticate=lambda request: None))
COLUMNS = {"id": Column("id", "No.", "integer"), "subject": Column("subject", "Subject")}


def how_many(requester: Requester, since: date, status: str | None) -> int:
    return 2_345


@haul.pages("tickets", columns=COLUMNS, key=["id"], count=how_many, formats=["csv", "json"], environment={ENVIRONMENT})
def tickets(
    requester: Requester, cursor: int | None, limit: int, since: date = date(2026, 1, 1), status: str | None = None
) -> Page:
    """Tickets of the tenant."""
    first = (cursor or 0) + 1
    last = min(2_345, first + limit - 1)
    where = f"{requester.tenant} {since.year} {status} {os.environ.get('TOKEN')}"
    rows = [{"id": n, "subject": f"{where} {n}"} for n in range(first, last + 1)]
    return Page(rows, last if last < 2_345 else None)


@haul.standing
def today(asked: Requester) -> Requester:
    return asked
'''


@pytest.fixture
def project(tmp_path):
    """A project in a folder; every module has a name of its own, since modules are loaded once."""

    def make(application=APPLICATION, environment="{}"):
        module = f"tickets_{next(numbers)}"
        terminal = Terminal(tmp_path)
        terminal.config.write_text(CONFIGURATION.format(secret=SECRET, module=module))
        terminal.config.chmod(0o600)
        (tmp_path / f"{module}.py").write_text(application.replace("{ENVIRONMENT}", environment))
        terminal.module = module
        return terminal

    before = list(sys.path)
    yield make
    sys.path[:] = before


def test_the_whole_way_from_check_to_file(project):
    terminal = project(environment='{"TOKEN": "env:TICKETS_TOKEN"}')
    checked = terminal.run("datasets", "check", TICKETS_TOKEN="hush")
    doctor = terminal.run("doctor", TICKETS_TOKEN="hush")
    listed = terminal.run("datasets", "--json", TICKETS_TOKEN="hush")
    exported = terminal.run("export", "tickets", "-p", "status=open", "-o", "tickets.csv", TICKETS_TOKEN="hush")

    assert (0, "OK    tickets\n") == (checked.code, checked.out), checked.err
    assert "OK    datasets: tickets can be exported" in doctor.out
    (item,) = listed.document["items"]
    assert ("tickets", "Tickets of the tenant.", "", "python") == (
        item["name"], item["description"], item["source"], item["declared_in"],
    )  # fmt: skip
    assert 0 == exported.code, exported.err
    lines = (terminal.folder / "tickets.csv").read_text().splitlines()
    assert ["No.,Subject", "1,north 2026 open hush 1"] == lines[:2]
    assert 2_346 == len(lines)


def test_a_variable_that_is_not_here_is_a_warning_of_the_check_and_the_end_of_a_run(project):
    terminal = project(environment='{"TOKEN": "env:TICKETS_TOKEN"}')
    checked = terminal.run("datasets", "check")
    exported = terminal.run("export", "tickets", "-o", "tickets.csv", "--json")

    said = "the environment of this process has no TICKETS_TOKEN; see that the worker's has it"
    assert (0, f"WARN  tickets\n      {said}\n") == (checked.code, checked.out)
    assert (1, "source_unavailable") == (exported.code, exported.document["failure"]["code"])


IN_A_CHILD = "if type(haul).__name__ != 'Haulage': "


@pytest.mark.parametrize(("line", "said"), [
    ("import os\n", None),
    ("haul.exports.request\n", "put the page function into a module of its own that does not use it"),
    ("print(haul.settings, file=__import__('sys').stderr)\n", "haul.settings is not there in the process that builds"),
    (IN_A_CHILD + "raise SystemExit(3)\n", "SystemExit: 3"),
    (IN_A_CHILD + "os._exit(3)\n", "the process that imports it ended with 3"),
])  # fmt: skip
def test_a_check_imports_the_function_as_the_child_of_a_run_does(project, line, said):
    terminal = project(APPLICATION + line)
    checked = terminal.run("datasets", "check")

    assert ("FAIL" in checked.out, 1 if said else 0) == (said is not None, checked.code), checked.out
    assert (said or "") in checked.out


FAULTS = {
    "no columns": ('columns=COLUMNS, key=["id"]', 'columns={}, key=["id"]', "columns is missing"),
    "no such format": ('"csv", "json"', '"csv", "xml"', "there is no such format"),
    "no page": ("environment={ENVIRONMENT}", "page_rows=0", "page_rows and page_bytes are numbers from 1 on"),
    "a name that cannot be set": ("environment={ENVIRONMENT}", 'environment={"a-b": "1"}', "cannot be set"),
    "a default of another type": ("since: date = date(2026, 1, 1)", "since: date = 'soon'", "is no date"),
}


@pytest.mark.parametrize(("before", "after", "said"), FAULTS.values(), ids=FAULTS)
def test_a_declaration_that_cannot_work_says_so_at_once(project, before, after, said):
    terminal = project(APPLICATION.replace(before, after))
    checked = terminal.run("datasets", "check")

    assert 2 == checked.code
    assert said in checked.err


def test_a_function_that_cannot_be_found_by_its_name_is_refused(project):
    nested = APPLICATION.replace("@haul.pages", "def outer():\n  return 1\n\n\n@haul.pages").replace(
        "count=how_many", "count=lambda requester, since, status: 1"
    )
    checked = project(nested).run("datasets", "check")

    assert 2 == checked.code
    assert "<lambda> is found by its name only at the top of a module" in checked.err


def test_a_run_shows_nothing_of_where_its_function_is(project):
    terminal = project()
    exported = terminal.run("export", "tickets", "-o", "tickets.csv", "--json")

    assert "no_snapshot" in [notice["code"] for notice in exported.document["notices"]]
    assert terminal.module not in json.dumps(exported.document)

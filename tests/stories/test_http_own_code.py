"""A command and a page function through the doors of HTTP: asked for, built by a real worker, fetched."""

from __future__ import annotations

import json
import time

import pytest
from starlette.testclient import TestClient
from tests.docs.test_examples import worker
from tests.stories.terminal import Terminal
from tests.stories.test_cli_commands import CONFIGURATION, PROGRAM

from haulage import Column, Haulage, Page

pytestmark = pytest.mark.slow

COLUMNS = {"id": Column("id", "No.", "integer")}


def numbers(_requester, cursor, limit, upto: int = 3):
    """A list of numbers."""
    first = (cursor or 0) + 1
    return Page([{"id": n} for n in range(first, min(upto, first + limit - 1) + 1)])


@pytest.fixture
def client(tmp_path, monkeypatch):
    terminal = Terminal(tmp_path)
    terminal.config.write_text(CONFIGURATION)
    terminal.config.chmod(0o600)
    (tmp_path / "make-book").write_text(PROGRAM)
    (tmp_path / "make-book").chmod(0o755)
    monkeypatch.setenv("BOOK_TOKEN", "hush")
    monkeypatch.chdir(tmp_path)
    key = terminal.run("keys", "new", "amina", "--write").out.strip()
    haul = Haulage.from_toml("haulage.toml")
    haul.pages("numbers", columns=COLUMNS, key=["id"], count=how_many)(numbers)
    with worker(haul):
        client = TestClient(haul.asgi(), headers={"Authorization": f"Bearer {key}"})
        client.folder = str(tmp_path)
        yield client
    haul.close()


def how_many(_requester, upto):
    return upto


def fetched(client, **wish):
    """A run as it ended, and its file."""
    asked = client.post("/api/exports", json=wish)
    assert 202 == asked.status_code, asked.text
    address, deadline = asked.headers["Location"], time.monotonic() + 60
    while (run := client.get(address).json())["state"] not in ("ready", "failed"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    link = client.post(f"{address}/file")
    assert 201 == link.status_code, run
    return run, client.get(link.json()["url"])


def test_the_file_of_a_command_comes_with_its_own_name_and_type_and_says_that_it_is_incomplete(client):
    run, file = fetched(client, dataset="book", format="epub", parameters={"book": "moby"})

    assert b"A book of moby for hush\n" == file.content
    assert "application/epub+zip" == file.headers["Content-Type"]
    assert 'filename="book.epub"' in file.headers["Content-Disposition"]
    assert (False, [{"code": "no_snapshot"}, {"code": "chapter_missing", "count": 2}]) == (
        run["complete"], run["notices"],
    )  # fmt: skip
    assert {"rows": None, "snapshot_at": None, "columns": []}.items() <= run["file"].items()
    assert not any(word in json.dumps(run) for word in ("make-book", "hush", client.folder))


def test_the_list_of_a_page_function_is_a_file_like_every_other(client):
    run, file = fetched(client, dataset="numbers", format="csv", parameters={"upto": "4"})

    assert b"No.\n1\n2\n3\n4\n" == file.content
    assert (4, 4, None) == (run["progress"]["processed"], run["progress"]["total"], run["file"]["snapshot_at"])
    assert [{"code": "no_snapshot"}] == run["notices"]


def test_the_catalogue_shows_what_they_offer_and_nothing_of_how_it_is_made(client):
    text = client.get("/api/datasets").text
    book, listed = json.loads(text)["items"]

    assert [
        ("epub", "EPUB 3", "application/epub+zip", [], []),
        ("txt", "TXT", "text/plain; charset=utf-8", [], []),
    ] == [
        (each["name"], each["label"], each["media_type"], each["options"], each["compressions"])
        for each in book["formats"]
    ]
    assert ([], ["book"]) == (book["columns"], [each["name"] for each in book["parameters"]])
    assert [{"key": "id", "header": "No.", "type": "integer"}] == listed["columns"]
    assert not any(word in text for word in ("make-book", "own_code", "BOOK_TOKEN"))


def test_a_door_counts_what_can_be_counted(client):
    listed = client.get("/api/datasets/numbers/counts?upto=7").json()
    book = client.get("/api/datasets/book/counts?book=moby").json()

    assert (None, 7) == (listed["output_count"], listed["visible_output_count"])
    assert (None, None, None) == (book["output_count"], book["visible_output_count"], book["counted_at"])

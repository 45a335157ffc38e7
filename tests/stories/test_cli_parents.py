"""The command line with exports of a parent: declared in the file or in Python, asked for, listed, and gone."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from itertools import count

import pytest
from tests.stories.terminal import CONFIGURATION, SECRET, Terminal, until

from haulage import ConfigInvalid, Haulage
from haulage.core.catalogue import Catalogue
from haulage.core.parents import OWNERS_MAX, Parent
from haulage.exports.parents import Parents, ParentUnknown
from haulage.sources import open_source

pytestmark = pytest.mark.slow

numbers = count()
OWNERS = "select owner from books where id = :parent and tenant = :requester_tenant"
BOOKS = f"""
[parents.book]
label = "Book"
type = "integer"
source = "shop"
owners = "{OWNERS}"

[datasets.chapters]
source = "shop"
parent = "book"
sql = "select number, title from chapters where book = :parent"
key = ["number"]
"""


@pytest.fixture
def terminal(tmp_path):
    terminal = Terminal(tmp_path).shop(configuration=CONFIGURATION + BOOKS)
    fill(tmp_path / "shop.db")
    return terminal


def fill(path):
    with closing(sqlite3.connect(path)) as shop, shop:
        shop.execute("create table books (id integer, tenant text, owner text)")
        shop.execute("create table chapters (book integer, number integer, title text)")
        shop.executemany(
            "insert into books values (?, ?, ?)", [(7, "default", "amina"), (8, "default", None), (7, "other", "ben")]
        )
        shop.executemany(
            "insert into chapters values (?, ?, ?)", [(7, 1, "Loomings"), (7, 2, "The Carpet-Bag"), (8, 1, "One")]
        )


def change(terminal, statement):
    with closing(sqlite3.connect(terminal.folder / "shop.db")) as shop, shop:
        shop.execute(statement)


def test_the_whole_way_from_check_to_a_file_of_one_parent(terminal):
    checked = terminal.run("datasets", "check", "chapters")
    exported = terminal.run("export", "chapters", "--parent", "07", "--json", "-o", "seven.csv")
    other = terminal.run("export", "chapters", "--parent", "8", "-o", "eight.csv")
    run = exported.document
    listed = terminal.run("runs", "list", "--dataset", "chapters", "--parent", "7", "--json")
    table = terminal.run("runs", "list", "--parent", "7")  # there is one kind of parent
    shown = terminal.run("runs", "show", run["id"])
    own = terminal.run("runs", "list")
    every = terminal.run("runs", "list", "--all")

    assert (0, "OK    chapters\n") == (checked.code, checked.out)
    assert (0, 0) == (exported.code, other.code), exported.err + other.err
    assert "number,title\n1,Loomings\n2,The Carpet-Bag\n" == (terminal.folder / "seven.csv").read_text()
    assert "number,title\n1,One\n" == (terminal.folder / "eight.csv").read_text()
    assert ("book", "7") == (run["parent_kind"], run["parent"])
    assert [run["id"]] == [each["id"] for each in listed.document["items"]]
    assert "book 7" in table.out
    assert "book 7" in shown.out
    assert "no runs of the operator" in own.err
    assert "book 8" in every.out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("export", "chapters"), 2, "--parent: is needed: the id of the book"),
        (("export", "chapters", "--parent", "seven"), 2, "--parent: is no id: write a whole number"),
        (("export", "orders", "--parent", "7"), 2, "--parent: orders belongs to no parent"),
        (("export", "chapters", "--parent", "404"), 3, "nothing here"),
        (("runs", "list", "--dataset", "chapters"), 2, "--parent: is needed"),
        (("runs", "list", "--parent", "7", "--parent-kind", "shelf"), 2, "--parent-kind: write one of book"),
        (("runs", "list", "--parent", "7", "--dataset", "orders"), 2, "--parent: there are no parents"),
        (("parents", "gone", "boko", "7"), 2, "there is no kind of parent 'boko'; did you mean book?"),
        (("parents", "gone", "book", "seven"), 2, "--parent: is no id"),
    ],
)
def test_what_cannot_be_is_said_with_what_to_write(terminal, words, code, said):
    answer = terminal.run(*words)

    assert code == answer.code, answer.err
    assert said in answer.err


def test_a_parent_that_is_gone_takes_its_file_and_its_rows_along(terminal):
    exported = terminal.run("export", "chapters", "--parent", "7", "--json").document
    kept = terminal.run("export", "chapters", "--parent", "8", "--json").document
    files = terminal.folder / "artifacts" / "files"
    before = len(list(files.iterdir()))
    gone = terminal.run("parents", "gone", "book", "7")
    again = terminal.run("parents", "gone", "book", "7", "--json")
    state = terminal.run("runs", "show", exported["id"], "--json").document["state"]
    still = terminal.run("sweep")  # the file goes, but the query says that the book is there: the row stays
    left = [each["id"] for each in terminal.run("runs", "list", "--all", "--json").document["items"]]
    change(terminal, "delete from books where id = 7")
    terminal.run("sweep")
    after = terminal.run("runs", "list", "--all", "--json").document["items"]

    assert 2 == before
    assert (0, 0) == (gone.code, again.code)
    assert "expired" in gone.out
    assert {"cancelled": 0, "stopping": 0, "expired": 0} == again.document
    assert "expired" == state
    assert 0 == still.code
    assert {exported["id"], kept["id"]} == set(left)
    assert [kept["id"]] == [each["id"] for each in after]
    assert 1 == len(list(files.iterdir()))


def test_the_sweep_finds_out_by_itself_and_not_while_the_source_is_away(terminal):
    terminal.run("export", "chapters", "--parent", "7", "--json")
    change(terminal, "delete from books where id = 7")
    (terminal.folder / "shop.db").rename(terminal.folder / "away.db")
    away = terminal.run("sweep")
    between = [each["state"] for each in terminal.run("runs", "list", "--all", "--json").document["items"]]
    (terminal.folder / "away.db").rename(terminal.folder / "shop.db")
    found = terminal.run("sweep")
    terminal.run("sweep")

    assert ["ready"] == between
    assert (0, 0) == (away.code, found.code)
    assert ["parents", "gone", "1"] in [line.split() for line in found.out.splitlines()]
    assert [] == terminal.run("runs", "list", "--all", "--json").document["items"]
    assert [] == list((terminal.folder / "artifacts" / "files").iterdir())


def test_a_query_that_cannot_work_is_found_by_a_check(terminal):
    terminal.config.write_text(
        terminal.config.read_text().replace("select owner from books", "select owner from bokos")
    )

    checked = terminal.run("datasets", "check", "chapters")

    assert 1 == checked.code
    assert "parents.book: " in checked.out
    assert "bokos" in checked.out


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        (
            'parent = "book"',
            'parent = "boko"',
            'datasets.chapters.parent = "boko": there is no such kind of parent; did',
        ),
        (
            BOOKS.partition("[datasets")[0],
            "",
            'datasets.chapters.parent = "book": there is no such kind of parent; write',
        ),
        (
            'source = "shop"\nowners',
            'source = "shp"\nowners',
            'parents.book.source = "shp": there is no such source; did',
        ),
        (OWNERS, "select owner from books", "parents.book.owners does not bind :parent"),
        (OWNERS, OWNERS + " and owner = :requester_account", "parents.book.owners binds :requester_account"),
        ('type = "integer"\nsource', 'type = "uuid"\nsource', 'parents.book.type = "uuid": is no type of an id'),
        ("[parents.book]", "[parents.Book]", "parents.Book: write a name of small letters"),
        (f'owners = "{OWNERS}"', "", "parents.book.owners is missing"),
        (
            'key = ["number"]',
            "parameters = {parent = {}}",
            "datasets.chapters.parameters.parent: this name is bound by",
        ),
        (
            "where book = :parent",
            "where book = :parnt",
            "datasets.chapters.sql binds :parnt, which no parameter declares",
        ),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_with_what_to_write(terminal, before, after, fault):
    text = terminal.config.read_text()
    assert before in text
    terminal.config.write_text(text.replace(before, after))

    answer = terminal.run("datasets")

    assert 2 == answer.code
    assert fault in answer.err


def test_the_session_of_a_source_must_not_ask_who_asks(tmp_path):
    terminal = Terminal(tmp_path)
    terminal.config.write_text(
        f'secret_keys = ["{SECRET}"]\n[sources.shop]\nurl = "postgresql://h/db"\n'
        '[sources.shop.session]\n"app.account" = ":requester_account"\n' + BOOKS
    )
    terminal.config.chmod(0o600)

    answer = terminal.run("datasets")

    assert 2 == answer.code
    assert "parents.book.source sets :requester_account in its session" in answer.err


# -- answers of a query -----------------------------------------------------------------------------------------


@pytest.fixture
def ask(terminal):
    def owners(query, tenant="default", id="7", type="integer", seconds=5):
        catalogue = Catalogue()
        catalogue.add_parent(Parent("book", type=type, source="shop", owners=query))
        url = f"sqlite:///{terminal.folder}/shop.db"
        return Parents(catalogue, lambda _name: open_source(url), seconds).owners(tenant, "book", id)

    return owners


def test_a_query_says_who_nobody_or_that_there_is_none(ask):
    assert {"amina"} == ask(OWNERS)
    assert {"ben"} == ask(OWNERS, "other")
    assert set() == ask(OWNERS, id="8")
    assert ask(OWNERS, id="9") is None
    assert ask(OWNERS, "nobody") is None
    assert {"amina", "7"} == ask("select owner from books where :parent = 7 and tenant = 'default' union select 7")


@pytest.mark.parametrize(
    "query",
    [
        "select owner from nowhere where id = :parent",
        "select :parent; drop table books",
        f"with recursive n(i) as (select 1 union all select i + 1 from n where i <= {OWNERS_MAX}) select i from n",
    ],
)
def test_a_query_that_fails_or_never_ends_its_list_says_that_nobody_knows(ask, query):
    with pytest.raises(ParentUnknown):
        ask(query)


def test_a_query_that_takes_too_long_is_interrupted(ask):
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n where :parent > 0"

    with pytest.raises(ParentUnknown, match="longer"):
        ask(endless, seconds=0.2)
    until(lambda: not [each for each in running_threads() if each.name == "haulage host"])  # its statement has ended


def running_threads():
    import threading

    return threading.enumerate()


# -- code of the host -------------------------------------------------------------------------------------------


APPLICATION = """
from haulage import Column, Haulage, Page, Requester

haul = Haulage.from_toml("haulage.toml")


@haul.parent("book", type="integer")
def owner_of_book(tenant: str, book: int) -> str | None:
    return "amina" if book == 7 else None


@haul.dataset("chapters", source="shop", parent="book", key=["number"])
def chapters(least: int = 0) -> str:
    return "select number, title from chapters where book = :parent and number >= :least"


def how_many(requester: Requester, parent: int, times: int) -> int:
    return times


@haul.pages("readers", parent="book", columns={"id": Column("id", "id"), "book": Column("book", "Book", "integer")},
            key=["id"], count=how_many)
def readers(requester: Requester, cursor: int | None, limit: int, parent: int, times: int = 2) -> Page:
    return Page([{"id": str(n), "book": parent * 10} for n in range(times)])
"""
COMMAND = """
[datasets.bound]
parent = "book"
command = ["./bind", "--book={parent}", "{file}", "{report}", "{request}"]
[datasets.bound.formats.txt]
suffix = ".txt"
media_type = "text/plain"
"""
BIND = """#!/bin/sh
printf '%s ' "$1" > "$2"
tr ',{' '\\n\\n' < "$4" | grep '"parent"' >> "$2"
printf '{"complete": true}' > "$3"
"""


@pytest.mark.slow
def test_functions_pages_and_commands_get_the_parent(tmp_path):
    module = f"library_{next(numbers)}"
    terminal = Terminal(tmp_path).shop(configuration=f'app = "{module}:haul"\n' + CONFIGURATION + COMMAND)
    fill(tmp_path / "shop.db")
    (tmp_path / f"{module}.py").write_text(APPLICATION)
    (tmp_path / "bind").write_text(BIND)
    (tmp_path / "bind").chmod(0o755)

    checked = terminal.run("datasets", "check", "chapters", "readers", "bound")
    answers = [
        terminal.run("export", "chapters", "--parent", "7", "-p", "least=2", "-o", "chapters.csv"),
        terminal.run("export", "readers", "--parent", "7", "-p", "times=3", "--json", "-o", "readers.csv"),
        terminal.run("export", "bound", "--parent", "7", "-o", "bound.txt"),
    ]
    none = terminal.run("export", "readers", "--parent", "8")

    assert 0 == checked.code, checked.out
    assert [0, 0, 0] == [answer.code for answer in answers], [answer.err for answer in answers]
    assert 3 == none.code
    assert "number,title\n2,The Carpet-Bag\n" == (tmp_path / "chapters.csv").read_text()
    assert "id,Book\n0,70\n1,70\n2,70\n" == (tmp_path / "readers.csv").read_text()
    assert 3 == answers[1].document["progress"]["total"]
    assert ["--book=7", '"parent":"7"'] == (tmp_path / "bound.txt").read_text().replace('": "', '":"').split()


def test_a_kind_comes_before_its_datasets_and_before_the_first_request(terminal, monkeypatch):
    monkeypatch.chdir(terminal.folder)
    haul = Haulage.from_toml("haulage.toml")
    try:
        with pytest.raises(ConfigInvalid, match="there is no such kind of parent"):
            haul.dataset("labels", source="shop", parent="shelf")(lambda: "select :parent")
        haul.parent("shelf")(lambda _tenant, _shelf: "amina")
        haul.dataset("labels", source="shop", parent="shelf")(lambda: "select :parent as shelf")
        with pytest.raises(ValueError, match="declared twice"):
            haul.parent("book")(lambda _tenant, _book: None)
        assert haul.catalogue.find("labels").parent == "shelf"
        with pytest.raises(ValueError, match="comes too late"):
            haul.parent("late")(lambda _tenant, _late: None)
    finally:
        haul.close()


def test_a_file_without_the_application_that_knows_a_kind_is_checked_and_allows_nothing(terminal):
    text = terminal.config.read_text().replace(BOOKS, BOOKS.partition("[datasets")[1] + BOOKS.partition("[datasets")[2])
    module = f"empty_{next(numbers)}"
    (terminal.folder / f"{module}.py").write_text(
        'from haulage import Haulage\n\nhaul = Haulage.from_toml("haulage.toml")\n'
    )
    terminal.config.write_text(f'app = "{module}:haul"\n' + text)

    checked = terminal.run("datasets", "check", "chapters")
    exported = terminal.run("export", "chapters", "--parent", "7")

    assert 1 == checked.code
    assert "there is no kind of parent 'book'" in checked.out
    assert 0 != exported.code
    assert "did not say in time" in exported.err


def test_what_was_frozen_of_a_parent_is_what_its_worker_reads(terminal):
    run = terminal.run("export", "chapters", "--parent", "7", "--json").document
    with closing(sqlite3.connect(terminal.folder / "haulage.db")) as store:
        (plan,) = store.execute("select plan from exports where id = ?", (run["id"],)).fetchone()

    assert {"parent": 7} == json.loads(plan)["binds"]

"""Exports of a parent on the page and in the element: asked for, listed, and gone with it."""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
from contextlib import closing

import pytest
from playwright.sync_api import expect
from tests.page.steps import choose, expect_state, submit
from tests.page.test_page_element import host_page

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]

KEYS = {name: f"page-test-{name}-{secrets.token_hex(8)}" for name in ("amina", "ben")}
BOOKS = """
[parents.book]
label = "Book"
type = "integer"
source = "shop"
owners = "select owner from books where id = :parent and tenant = :requester_tenant"

[datasets.chapters]
source = "shop"
label = "Chapters"
parent = "book"
sql = "select number, title from chapters where book = :parent and number >= :least"
key = ["number"]
[datasets.chapters.parameters]
least = {type = "integer", default = 0, label = "From number"}
"""


@pytest.fixture(scope="module")
def library(make_server):
    """A server whose shop has books, and readers without the operator grant, who sees the runs of every parent."""
    keys = "".join(
        f'\n[keys.{name}]\nhash = "sha256:{hashlib.sha256(key.encode()).hexdigest()}"\ntenant = "library"\n'
        for name, key in KEYS.items()
    )
    server = make_server(lambda text: text.replace("[datasets.slow]", f"{BOOKS}\n[datasets.slow]") + keys)
    with closing(sqlite3.connect(server.folder / "shop.db")) as shop, shop:
        shop.execute("create table books (id integer, tenant text, owner text)")
        shop.execute("create table chapters (book integer, number integer, title text)")
        books = [(7, "library", "amina"), (8, "library", "amina"), (10, "library", "ben"), (11, "library", "ben")]
        shop.executemany("insert into books values (?, ?, ?)", books)
        shop.executemany("insert into chapters values (?, ?, ?)", [(7, 1, "Loomings"), (7, 2, "Bag"), (10, 1, "One")])
    return server


def change(server, statement):
    with closing(sqlite3.connect(server.folder / "shop.db")) as shop, shop:
        shop.execute(statement)


@pytest.fixture
def reads(open_reader, library):
    def make(name):
        reader = open_reader(library)
        reader.key = KEYS[name]
        return reader

    return make


def test_the_page_asks_for_the_parent_and_lists_by_it(reads):
    page = reads("amina").open()
    choose(page, "Chapters")
    book = page.locator(".export-form").get_by_label("Book", exact=True)
    submit(page)
    expect(page.locator("form .field-error:visible")).to_have_text("This is needed.")
    book.fill("404")
    submit(page)
    expect(page.locator("form [role=alert]:visible")).to_be_visible()
    book.fill("07")
    expect(page.locator(".count-main")).to_have_text("2 rows to export")
    submit(page)
    card = page.locator("article")
    expect_state(card, "ready")
    expect(card.locator(".conditions")).to_have_text("Book: 7 · From number: 0")
    filters = page.locator(".filters")
    expect(filters.get_by_label("Book", exact=True)).to_have_value("7")

    filters.get_by_label("Book", exact=True).fill("8")
    filters.get_by_label("Book", exact=True).press("Enter")
    expect(page.locator(".empty-title")).to_have_text("No export matches")
    filters.get_by_label("Book", exact=True).fill("9")
    filters.get_by_label("Book", exact=True).press("Enter")
    expect(page.locator(".empty-title")).to_have_text("There is no such Book, or it is not yours.")
    filters.get_by_label("Book", exact=True).fill("")
    filters.get_by_label("Book", exact=True).press("Enter")
    expect(page.locator(".empty-title")).to_have_text("Exports of this dataset are listed by Book. Write which one.")
    page.get_by_role("button", name="Show all").click()
    expect(page.locator(".empty-title")).to_have_text("No exports yet")
    expect(filters.get_by_label("Book", exact=True)).to_be_hidden()
    filters.locator("select").last.select_option("chapters")
    filters.get_by_label("Book", exact=True).fill("7")
    filters.get_by_label("Book", exact=True).press("Enter")
    expect_state(card, "ready")

    card.get_by_role("button", name="Remove file now").click()
    card.get_by_role("button", name="Yes, remove it").click()
    card.get_by_role("button", name="Export again").click()
    expect(page.locator("article")).to_have_count(2)


def test_the_element_is_of_one_parent_and_shows_when_it_is_gone(reads, library):
    reader = reads("ben")
    page = reader.open()
    host_page(page, library.url, 'dataset="chapters" parent="10" api="/api"')
    element = page.locator("haulage-export")
    element.get_by_role("button", name="Export Chapters").click()
    expect(element.get_by_label("Book")).to_have_count(0)
    expect(element.get_by_label("From number")).to_have_value("0")
    expect(element.locator(".count-main")).to_have_text("1 row to export")
    element.locator("button[type=submit]").click()
    expect_state(element.locator("article"), "ready")
    (run,) = library.get("exports?dataset=chapters&parent=10", reader.key)["items"]
    page.reload()
    expect_state(element.locator("article"), "ready")
    element.evaluate("node => node.setAttribute('parent', '11')")
    expect(element.locator("article")).to_have_count(0)
    element.evaluate("node => node.setAttribute('parent', '10')")
    expect_state(element.locator("article"), "ready")

    change(library, "update books set owner = 'amina' where id = 10")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(element.get_by_role("button", name="There is no such Book, or it is not yours")).to_be_disabled()
    expect(element.locator("article")).to_have_count(0)
    change(library, "update books set owner = 'ben' where id = 10")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect_state(element.locator("article"), "ready")
    expect(element.get_by_role("button", name="Export Chapters")).to_be_enabled()
    element.evaluate("node => node.removeAttribute('parent')")
    expect(element.get_by_role("button", name="Which Book?")).to_be_disabled()

    assert ("book", "10") == (run["parent_kind"], run["parent"])

"""The page is for everybody: keyboard, screen reader, Japanese, phone, light and dark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.page.steps import PHONE, expect_state, start, submit, tab_to, width_of

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]


def test_everything_can_be_done_by_keyboard_and_the_focus_is_never_lost(reader):
    page = reader.open(signed_in=False)
    page.get_by_label("Key").wait_for()
    tab_to(page, page.get_by_label("Key"))
    page.keyboard.type(reader.key)
    page.keyboard.press("Enter")
    page.locator(".workspace").wait_for()
    tab_to(page, page.get_by_role("radio", name=re.compile("^Orders")))
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("radio", name=re.compile("^Slow"))).to_be_checked()
    tab_to(page, page.get_by_label("Rows", exact=True))
    page.keyboard.press("Control+A")
    page.keyboard.type("60000")
    tab_to(page, page.locator(".export-form button[type=submit]"))
    page.keyboard.press("Enter")
    card = page.locator("article").first
    expect_state(card, "running")
    tab_to(page, card.get_by_role("button", name="Cancel"))
    page.wait_for_timeout(2_000)  # Some polls go by; the button stays the same one.
    expect(card.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Space")
    expect_state(card, "cancelled")

    assert card.evaluate("node => node.contains(document.activeElement)")
    page.keyboard.press("Tab")
    expect(card.get_by_role("button", name="Export again")).to_be_focused()


def test_every_control_has_a_name_and_states_are_announced_politely(reader):
    page = reader.open()
    card = start(page, "Orders")
    expect_state(card, "ready")
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("input, select, textarea, button, progress, a[href]")]
          .filter((node) => node.checkVisibility())
          .filter((node) => !(node.labels?.length || node.getAttribute("aria-label") || node.textContent.trim()))
          .map((node) => node.outerHTML)"""
    )

    assert nameless == []
    expect(page.locator(".toasts[role=status]")).to_contain_text("Ready")
    assert page.locator(".count").get_attribute("aria-live") is None
    assert page.locator("[role=status] .counted, [aria-live] .counted").count() == 0


def test_it_speaks_japanese_and_changes_without_losing_what_was_typed(open_reader):
    page = open_reader(locale="ja-JP").open()
    expect(page.get_by_role("heading", name="新しいエクスポート")).to_be_visible()
    assert page.locator("html").get_attribute("lang") == "ja"
    expect(page.locator(".count-main")).to_have_text("2,000 行をエクスポートできます")
    page.get_by_label("Number").fill("7")
    submit(page)
    card = page.locator("article").first
    expect(card.locator(".badge")).to_have_text("完了")
    expect(card.locator(".card-time")).to_contain_text("JST")

    page.get_by_label("言語").select_option("en")
    expect(page.get_by_role("heading", name="New export")).to_be_visible()
    expect(card.locator(".badge")).to_have_text("Ready")
    expect(page.get_by_label("Number")).to_have_value("7")
    page.reload()
    expect(page.get_by_role("heading", name="New export")).to_be_visible()


def test_every_text_stands_in_both_languages(reader):
    page = reader.open(signed_in=False)
    missing = page.evaluate(
        """async () => {
          const { ENGLISH } = await import("/page/texts-en.js");
          const { JAPANESE } = await import("/page/texts-ja.js");
          const codes = /^(failure|problem|notice)\\./;
          const only = (one, other) => Object.keys(one).filter((key) => !(key in other) && !codes.test(key));
          return [...only(ENGLISH, JAPANESE), ...only(JAPANESE, ENGLISH)];
        }"""
    )

    assert missing == []


def test_every_failure_of_a_run_has_japanese_words(reader):
    from haulage.core.errors import CATALOGUE

    page = reader.open(signed_in=False)
    said = page.evaluate("import('/page/texts-ja.js').then(({ JAPANESE }) => Object.keys(JAPANESE))")
    endings = {code for code, failure in CATALOGUE.items() if failure.status == 0}

    assert {code for code in endings if f"failure.{code}" not in said} == set()


@pytest.mark.parametrize("locale", ["en-US", "ja-JP"])
def test_a_phone_needs_no_sideways_scrolling(open_reader, locale):
    reader = open_reader(locale=locale, viewport=PHONE, has_touch=True)
    page = reader.open(signed_in=False)
    page.locator("#key").wait_for()
    assert width_of(page) <= PHONE["width"]
    page.locator("#key").fill(reader.key)
    page.locator("#key").press("Enter")
    page.locator(".workspace").wait_for()
    assert width_of(page) <= PHONE["width"]
    submit(page)
    card = page.locator("article").first
    expect_state(card, "ready")
    card.locator("details").evaluate("node => { node.open = true }")
    card.locator(".actions button:visible").last.click()

    assert width_of(page) <= PHONE["width"]


def test_the_dark_is_dark_and_can_be_read(open_reader, tmp_path):
    page = open_reader(color_scheme="dark", viewport={"width": 1280, "height": 900}).open()
    card = start(page, "Orders")
    expect_state(card, "ready")
    page.screenshot(path=tmp_path / "dark.png", full_page=True)
    worst = page.evaluate(Path(__file__).with_name("contrast.js").read_text())

    assert (tmp_path / "dark.png").stat().st_size > 10_000
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 17, 21)"
    assert worst["ratio"] >= 4.5, worst


def test_the_light_can_be_read_too(open_reader):
    page = open_reader(color_scheme="light", viewport={"width": 1280, "height": 900}).open()
    expect_state(start(page, "Broken"), "failed")
    expect_state(start(page, "Orders"), "ready")
    worst = page.evaluate(Path(__file__).with_name("contrast.js").read_text())

    assert worst["ratio"] >= 4.5, worst

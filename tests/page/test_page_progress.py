"""Progress in the page was measured: it moves only by reading, passes no total and invents no end."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from tests.page.steps import LISTED, expect_state, let_list_say, ready_shown, run_shown, start

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]


def test_progress_was_measured_moves_only_by_reading_and_never_passes_its_total(reader):
    page = reader.open()
    page.evaluate(
        """() => {
          window.seen = [];
          const look = () => {
            const card = document.querySelector("article");
            const bar = card?.querySelector("progress");
            if (!bar?.checkVisibility()) return;
            const [words, share] = [".counted", ".share"].map((name) => card.querySelector(name).textContent);
            window.seen.push([bar.value, bar.max, words, share]);
          };
          const everything = { subtree: true, childList: true, attributes: true, characterData: true };
          new MutationObserver(look).observe(document.body, everything);
        }"""
    )
    card = start(page, "Slow", rows="12000")
    expect(card.locator("progress")).to_be_visible()
    expect(card.locator(".life")).to_contain_text(re.compile(r"last sign of life \d+ s ago"))
    page.route(LISTED, lambda _: None)  # No answer any more: nothing may move.
    page.wait_for_timeout(600)
    still = page.evaluate("document.querySelector('article progress').value")
    page.wait_for_timeout(2_000)
    assert page.evaluate("document.querySelector('article progress').value") == still
    page.unroute(LISTED)
    expect_state(card, "ready")
    seen = page.evaluate("window.seen")
    values = [value for value, *_ in seen]

    assert len(set(values)) > 3
    assert values == sorted(values)
    assert {maximum for _, maximum, *_ in seen} == {12000}
    assert max(values) <= 12000
    for value, _, text, share in seen:
        if f"{int(value):,} of 12,000 rows" in text:  # Bar and words are written one after the other.
            assert int(share.rstrip("%")) == value * 100 // 12000 or share == ""


def test_without_a_total_there_is_no_bar_and_beyond_the_total_the_fault_is_said(reader):
    page = reader.open()
    progress = run_shown()["progress"]
    let_list_say(page, run_shown(progress={**progress, "total": None}))
    card = page.locator("article")
    expect(card.locator(".counted")).to_have_text("12,000 rows, total not known yet")
    expect(card.locator("progress")).to_be_hidden()

    let_list_say(page, run_shown(revision=8))
    expect(card.locator(".counted")).to_have_text("12,000 of 336,776 rows")
    expect(card.locator("progress")).to_be_visible()
    expect(card.locator(".share")).to_have_text("3%")

    let_list_say(page, run_shown(revision=9, progress={**progress, "processed": 336_775}))
    expect(card.locator(".share")).to_have_text("99%")

    let_list_say(page, run_shown(revision=10, progress={**progress, "processed": 400_000}))
    expect(card.locator(".counted")).to_have_text("400,000 rows, more than the 336,776 rows counted")
    expect(card.locator("progress")).to_be_hidden()


def test_an_older_answer_never_overwrites_a_newer_one(reader):
    page = reader.open()
    let_list_say(page, run_shown(revision=9))
    expect(page.locator("article .counted")).to_contain_text("12,000")
    let_list_say(page, run_shown(revision=3, state="queued", phase=None, queue_position=1))
    page.wait_for_timeout(2_000)

    expect_state(page.locator("article"), "running")


def test_a_waiting_run_says_its_place_and_an_incomplete_file_says_so(reader):
    page = reader.open()
    let_list_say(
        page,
        run_shown(id="b", state="queued", phase=None, queue_position=3),
        ready_shown(id="a", complete=False, notices=[{"code": "formula_guarded", "count": 2}, {"code": "unheard_of"}]),
    )
    waiting, incomplete = page.locator("article").nth(0), page.locator("article").nth(1)

    expect(waiting.locator(".life")).to_have_text("Place 3 in the queue; may change")
    expect(incomplete.locator(".warning")).to_contain_text("This file is incomplete.")
    notices = incomplete.locator(".notices li")
    expect(notices.nth(0)).to_have_text("2 texts that would run as a formula were made harmless.")
    expect(notices.nth(1)).to_contain_text("unheard_of")

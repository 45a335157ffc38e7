"""A sign-in link that is used or over says so, once, and to nobody who is signed in anyway."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]

OVER = "This sign-in link was used already, or its ten minutes are over. Paste a key, or ask for a new link."
USED = "/?sign_in=a-link-that-was-used"


def test_a_link_that_is_no_use_any_more_says_so_and_what_to_do(reader):
    page = reader.open(USED, signed_in=False)

    expect(page.get_by_role("alert").filter(has_text=OVER)).to_be_visible()
    expect(page.get_by_label("Key")).to_be_focused()
    expect(page).to_have_url(re.compile(r"/$"))
    page.reload()
    page.get_by_label("Key").wait_for()
    expect(page.get_by_text(OVER)).to_be_hidden()


def test_the_key_that_is_pasted_instead_is_taken_and_the_sentence_does_not_come_back(reader):
    page = reader.open(USED)
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Key").wait_for()

    expect(page.get_by_text(OVER)).to_be_hidden()


def test_who_is_signed_in_hears_nothing_of_an_old_link(reader):
    reader.open()
    page = reader.open(USED)
    expect(page).to_have_url(re.compile(r"/$"))
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Key").wait_for()

    expect(page.get_by_text(OVER)).to_be_hidden()

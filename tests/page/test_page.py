"""From the button to the bytes: what is asked for, told, downloaded, failed, removed and asked for again."""

from __future__ import annotations

import hashlib
import re

import pytest
from playwright.sync_api import expect
from tests.page.steps import choose, expect_state, let_list_say, let_refuse, run_shown, start, submit

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]


def test_an_export_is_asked_for_made_and_downloaded_whole(reader, tmp_path):
    page = reader.open()
    choose(page, "Orders")
    expect(page.locator(".count-main")).to_have_text("2,000 rows to export")
    page.get_by_role("combobox", name="Status").select_option(label="Shipped")
    expect(page.locator(".count-main")).to_have_text("1,000 rows to export")

    submit(page)
    card = page.locator("article").first
    expect_state(card, "ready")
    with page.expect_download() as download:
        card.get_by_role("button", name="Download").click()
    download.value.save_as(tmp_path / "orders.csv")
    content = (tmp_path / "orders.csv").read_bytes()

    assert content.count(b"\n") == 1_001
    expect(card.locator(".hash")).to_have_text(hashlib.sha256(content).hexdigest())
    expect(card.locator(".fact", has_text="Rows")).to_contain_text("1,000")
    expect(card.locator(".fact", has_text="Expires")).to_contain_text(re.compile(r"in \d+ (min|s), .*GMT\+9"))
    expect(card.locator(".conditions")).to_contain_text("Status: Shipped")


def test_what_comes_from_outside_is_text_and_never_markup(reader):
    page = reader.open()
    card = start(page, "Orders")

    expect(card.get_by_role("heading")).to_have_text("Orders <b>of the shop</b>")
    assert page.locator("main b").count() == 0


def test_cancelled_is_said_only_when_the_server_says_it(reader):
    page = reader.open()
    card = start(page, "Slow", rows="60000")
    expect_state(card, "running")
    card.get_by_role("button", name="Cancel").click()
    expect(card.locator(".badge")).to_have_text(re.compile("Cancelling…|Cancelled"))
    expect_state(card, "cancelled")

    expect(card.locator(".outcome")).to_contain_text("No file was kept")
    expect(card.get_by_role("button", name="Export again")).to_be_visible()
    expect(card.get_by_role("button", name="Download")).to_be_hidden()


def test_cancelling_is_shown_until_the_server_has_cancelled(reader):
    page = reader.open()
    let_list_say(page, run_shown(cancel_requested_at="2026-01-01T00:00:05Z"))
    card = page.locator("article")

    expect(card.locator(".badge")).to_have_text("Cancelling…")
    expect(card.get_by_role("button", name="Cancel", exact=True)).to_be_hidden()
    page.wait_for_timeout(1_500)
    expect_state(card, "running")


def test_a_failure_is_told_in_words_and_can_be_asked_for_again(reader):
    page = reader.open()
    card = start(page, "Broken")
    expect_state(card, "failed")
    message = reader.server.get("exports?limit=1", reader.key)["items"][0]["failure"]["message"]

    expect(card.locator(".outcome")).to_have_text(message)
    expect(card.get_by_role("button", name="Export again")).to_be_visible()


def test_exporting_again_asks_for_the_same_as_before(reader):
    page = reader.open()
    page.get_by_label("Number").fill("7")
    submit(page)
    card = page.locator("article").first
    expect_state(card, "ready")
    card.get_by_role("button", name="Remove file now").click()
    card.get_by_role("button", name="Yes, remove it").click()
    expect_state(card, "expired")
    with page.expect_request(lambda request: request.method == "POST" and request.url.endswith("/exports")) as asked:
        card.get_by_role("button", name="Export again").click()
    expect(page.locator("article")).to_have_count(2)

    assert asked.value.post_data_json["parameters"]["number"] == 7
    assert asked.value.headers["idempotency-key"]


def test_a_lost_answer_makes_no_second_run_and_each_click_has_a_key_of_its_own(reader):
    page, keys = reader.open(), []

    def lose_the_first(route):
        keys.append(route.request.headers["idempotency-key"])
        if len(keys) == 1:
            assert route.fetch().status == 202  # The server has it; the page never hears so.
            route.abort()
        else:
            route.continue_()

    page.route(re.compile("/api/exports$"), lose_the_first)
    card = start(page, "Orders")
    expect_state(card, "ready")
    after_the_first = len(reader.server.get("exports", reader.key)["items"])
    submit(page)
    expect(page.locator("article")).to_have_count(2)

    assert after_the_first == 1
    assert [keys[0], keys[0]] == keys[:2]
    assert len(set(keys)) == 2


def test_the_storage_is_told_whole_to_the_operator_and_to_others_their_own(reader):
    page = reader.open()
    card = start(page, "Orders")
    expect_state(card, "ready")
    told, meter = page.locator(".storage-text"), page.locator(".storage progress")
    own = reader.server.get("storage", reader.key)["own_bytes"]
    size = re.escape(f"{own / 1024:.1f}".removesuffix(".0")) + " KiB"
    expect(told).to_contain_text("of 512 MiB used")
    expect(told).to_contain_text(re.compile(f"{size} of it in your tenant"))
    expect(meter).to_be_visible()
    others = {"used_bytes": None, "reserved_bytes": None, "budget_bytes": None, "own_bytes": own}
    page.route(re.compile("/api/storage$"), lambda route: route.fulfill(json=others))
    page.reload()

    expect(told).to_have_text(re.compile(f"^{size} used by your tenant$"))
    expect(meter).to_be_hidden()


def test_a_run_whose_request_is_not_told_is_filled_in_by_the_reader(reader):
    page = reader.open()
    untold = run_shown(state="expired", phase=None)
    del untold["columns"]
    let_list_say(page, untold)
    page.get_by_role("button", name="Export again").click()

    told = page.locator(".workspace .message[role=alert]")
    expect(told).to_contain_text("did not say all of how this export was asked for")


def test_an_expired_link_is_no_obstacle_because_each_click_gets_a_new_one(make_server, open_reader):
    server = make_server(lambda text: f"{text}\n[limits.doors]\nfile_token_seconds = 5\n")
    page = open_reader(server).open()
    card = start(page, "Orders")
    expect_state(card, "ready")
    links = []
    page.on("response", lambda answer: links.append(answer) if answer.url.endswith("/file") else None)
    for _ in range(2):
        with page.expect_download() as download:
            card.get_by_role("button", name="Download").click()
        assert download.value.failure() is None
    page.wait_for_timeout(6_000)
    first, second = (answer.json()["url"] for answer in links)
    old = page.request.get(server.url + first)

    assert first != second
    assert old.status == 410
    assert old.json()["code"] == "link_expired"


def test_a_file_that_is_gone_is_told_where_it_was_asked_for(reader):
    page = reader.open()
    card = start(page, "Orders")
    expect_state(card, "ready")
    let_refuse(page, re.compile("/file$"), 410, "expired", "It is gone.")
    card.get_by_role("button", name="Download").click()

    expect(card.get_by_role("alert")).to_have_text("That did not work: It is gone.")


def test_a_file_whose_policy_has_changed_is_refused_in_words_and_offered_anew(reader):
    page = reader.open()
    card = start(page, "Orders")
    expect_state(card, "ready")
    again = card.get_by_role("button", name="Export again")
    expect(again).to_be_hidden()
    let_refuse(page, re.compile("/file$"), 410, "policy_changed", "What you may see has changed. Export again.")
    card.get_by_role("button", name="Download").click()

    expect(card.get_by_role("alert")).to_have_text("That did not work: What you may see has changed. Export again.")
    again.click()
    expect(page.locator("article")).to_have_count(2)

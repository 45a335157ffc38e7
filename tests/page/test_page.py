"""The page's promises, in a real browser against a real server: what is shown was measured, nothing is invented,
and everything can be done by keyboard, in a phone's width, in the dark and in Japanese."""

from __future__ import annotations

import hashlib
import json
import re
import time
from pathlib import Path

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = playwright_api.expect

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

LISTED = re.compile(r"/api/exports\?")
PHONE = {"width": 320, "height": 640}


def choose(page, dataset: str) -> None:
    page.get_by_role("radio", name=re.compile(f"^{dataset}")).check()


def submit(page) -> None:
    page.locator(".export-form button[type=submit]").click()


def start(page, dataset: str, **values: str):
    """Ask for an export; gives the card of its run."""
    choose(page, dataset)
    for label, value in values.items():
        page.get_by_label(label.capitalize(), exact=True).fill(value)
    submit(page)
    card = page.locator("article").first
    expect(card.get_by_role("heading")).to_contain_text(dataset)
    return card


def expect_state(card, state: str, seconds: float = 30) -> None:
    expect(card).to_have_attribute("data-state", state, timeout=seconds * 1000)


def canned(**changes) -> dict:
    """A run as the API shows it, for states that are hard to catch in the act."""
    run = {
        "id": "0190-canned", "token": "canned", "flow": "export", "dataset": "orders", "format": "csv", "compression": None,
        "options": {}, "parameters": {}, "columns": None, "state": "running", "phase": "writing", "cancel_requested_at": None,
        "progress": {"processed": 12000, "total": 336776, "unit": "rows", "logical_count": None, "logical_count_unit": None},
        "queue_position": None, "revision": 7, "as_of": "2026-01-01T00:00:00Z", "requested_at": "2026-01-01T00:00:00Z",
        "started_at": "2026-01-01T00:00:01Z", "heartbeat_at": "2026-01-01T00:00:02Z", "updated_at": "2026-01-01T00:00:02Z",
        "finished_at": None, "expires_at": None, "file": None, "complete": None, "notices": [], "failure": None,
    }  # fmt: skip
    return {**run, **changes}


def ready(**changes) -> dict:
    file = {
        "name": "orders.csv", "media_type": "text/csv", "bytes": 1234567, "rows": 336776, "sha256": "ab" * 32,
        "snapshot_at": "2026-01-01T00:00:01Z", "columns": [{"key": "id", "header": "id", "type": "integer"}],
    }  # fmt: skip
    done = {"state": "ready", "phase": None, "file": file, "complete": True, "expires_at": "2126-01-01T00:00:00Z"}
    return canned(**{**done, **changes})


def serve_runs(page, *runs: dict) -> None:
    """Let the list of the API say this."""
    page.unroute(LISTED)
    page.route(LISTED, lambda route: route.fulfill(json={"items": list(runs), "next_cursor": None}))


def width_of(page) -> int:
    return page.evaluate("document.documentElement.scrollWidth")


# -- an export, from the button to the bytes --------------------------------------------------------------


def test_an_export_is_asked_for_made_and_downloaded_whole(reader, tmp_path):
    page = reader.open()
    choose(page, "Orders")
    expect(page.locator(".count-main")).to_have_text("2,000 rows to export")
    page.get_by_label("Status").select_option(label="Shipped")
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


def test_progress_was_measured_moves_only_by_reading_and_never_passes_its_total(reader):
    page = reader.open()
    page.evaluate(
        """() => {
          window.seen = [];
          const look = () => {
            const card = document.querySelector("article");
            const bar = card?.querySelector("progress");
            if (!bar || bar.hidden || bar.closest("[hidden]")) return;
            window.seen.push([bar.value, bar.max, card.querySelector(".counted").textContent, card.querySelector(".share").textContent]);
          };
          new MutationObserver(look).observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
        }"""
    )
    card = start(page, "Slow", rows="9000")
    expect(card.locator("progress")).to_be_visible()
    expect(card.locator(".life")).to_contain_text(re.compile(r"last sign of life \d+ s ago"))
    page.route(LISTED, lambda route: None)  # No answer any more: nothing may move.
    page.wait_for_timeout(600)
    still = page.evaluate("document.querySelector('article progress').value")
    page.wait_for_timeout(2_000)
    assert page.evaluate("document.querySelector('article progress').value") == still
    page.unroute(LISTED)
    expect_state(card, "ready", 90)
    seen = page.evaluate("window.seen")
    values = [value for value, *_ in seen]

    assert len(set(values)) > 3
    assert values == sorted(values)
    assert {maximum for _, maximum, *_ in seen} == {9000}
    assert max(values) <= 9000
    for value, _, text, share in seen:
        if f"{int(value):,} of 9,000 rows" in text:  # Bar and words are written one after the other.
            assert int(share.rstrip("%")) == value * 100 // 9000 or share == ""


def test_without_a_total_there_is_no_bar_and_beyond_the_total_the_fault_is_said(reader):
    page = reader.open()
    progress = canned()["progress"]
    serve_runs(page, canned(progress={**progress, "total": None}))
    card = page.locator("article")
    expect(card.locator(".counted")).to_have_text("12,000 rows, total not known yet")
    expect(card.locator("progress")).to_be_hidden()

    serve_runs(page, canned(revision=8))
    expect(card.locator(".counted")).to_have_text("12,000 of 336,776 rows")
    expect(card.locator("progress")).to_be_visible()
    expect(card.locator(".share")).to_have_text("3%")

    serve_runs(page, canned(revision=9, progress={**progress, "processed": 336_775}))
    expect(card.locator(".share")).to_have_text("99%")

    serve_runs(page, canned(revision=10, progress={**progress, "processed": 400_000}))
    expect(card.locator(".counted")).to_have_text("400,000 rows, more than the 336,776 rows counted")
    expect(card.locator("progress")).to_be_hidden()


def test_an_older_answer_never_overwrites_a_newer_one(reader):
    page = reader.open()
    serve_runs(page, canned(revision=9))
    expect(page.locator("article .counted")).to_contain_text("12,000")
    serve_runs(page, canned(revision=3, state="queued", phase=None, queue_position=1))
    page.wait_for_timeout(2_000)

    expect_state(page.locator("article"), "running")


def test_a_waiting_run_says_its_place_and_an_incomplete_file_says_so(reader):
    page = reader.open()
    serve_runs(
        page,
        canned(id="b", state="queued", phase=None, queue_position=3),
        ready(id="a", complete=False, notices=[{"code": "formula_guarded", "count": 2}, {"code": "unheard_of"}]),
    )
    waiting, incomplete = page.locator("article").nth(0), page.locator("article").nth(1)

    expect(waiting.locator(".life")).to_have_text("Place 3 in the queue; may change")
    expect(incomplete.locator(".warning")).to_contain_text("This file is incomplete.")
    expect(incomplete.locator(".notices li").nth(0)).to_have_text("2 texts that would run as a formula were made harmless.")
    expect(incomplete.locator(".notices li").nth(1)).to_contain_text("unheard_of")


# -- cancel, failure, removal -----------------------------------------------------------------------------


def test_cancelled_is_said_only_when_the_server_says_it(reader):
    page = reader.open()
    card = start(page, "Slow", rows="60000")
    expect_state(card, "running")
    card.get_by_role("button", name="Cancel").click()
    expect(card.locator(".badge")).to_have_text(re.compile("Cancelling…|Cancelled"))
    expect_state(card, "cancelled", 20)

    expect(card.locator(".outcome")).to_contain_text("No file was kept")
    expect(card.get_by_role("button", name="Export again")).to_be_visible()
    expect(card.get_by_role("button", name="Download")).to_be_hidden()


def test_cancelling_is_shown_until_the_server_has_cancelled(reader):
    page = reader.open()
    serve_runs(page, canned(cancel_requested_at="2026-01-01T00:00:05Z"))
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


def test_a_run_whose_request_is_not_told_is_filled_in_by_the_reader(reader):
    page = reader.open()
    untold = {key: value for key, value in canned(state="expired", phase=None).items() if key != "parameters"}
    serve_runs(page, untold)
    page.get_by_role("button", name="Export again").click()

    expect(page.locator(".message[role=alert]")).to_contain_text("did not say how this export was asked for")


def test_an_expired_link_is_no_obstacle_because_each_click_gets_a_new_one(reader):
    page = reader.open()
    card = start(page, "Orders")
    expect_state(card, "ready")
    links = []
    page.on("response", lambda answer: links.append(answer) if answer.url.endswith("/file") else None)
    for _ in range(2):
        with page.expect_download() as download:
            card.get_by_role("button", name="Download").click()
        assert download.value.failure() is None
        page.wait_for_timeout(2_500)
    first, second = (answer.json()["url"] for answer in links)
    old = page.request.get(reader.server.url + first)

    assert first != second
    assert old.status == 410
    assert old.json()["code"] == "link_expired"


def test_a_file_that_is_gone_is_told_where_it_was_asked_for(reader):
    page = reader.open()
    card = start(page, "Orders")
    expect_state(card, "ready")
    gone = {"type": "about:blank", "title": "File expired", "status": 410, "detail": "It is gone.", "code": "expired", "errors": []}
    page.route(re.compile("/file$"), lambda route: route.fulfill(status=410, content_type="application/problem+json", body=json.dumps(gone)))
    card.get_by_role("button", name="Download").click()

    expect(card.get_by_role("alert")).to_have_text("That did not work: It is gone.")


# -- the form ---------------------------------------------------------------------------------------------


def test_what_cannot_be_meant_is_said_beside_its_field_by_page_and_server(reader):
    page = reader.open()
    choose(page, "Orders")
    page.get_by_label("Smallest total").fill("much")
    submit(page)
    field = page.locator(".field", has=page.get_by_label("Smallest total"))
    expect(field.locator(".field-error")).to_contain_text("A number, such as 12.50.")
    expect(page.get_by_label("Smallest total")).to_be_focused()
    expect(page.locator(".count-main")).to_contain_text("Not counted")

    page.get_by_label("Smallest total").fill("")
    page.get_by_label("Number").fill("99999999999999999999")
    submit(page)
    expect(page.locator(".field", has=page.get_by_label("Number")).locator(".field-error")).not_to_be_empty()
    assert page.locator("article").count() == 0


def test_a_count_that_is_not_known_is_never_a_number(reader):
    page = reader.open()
    unknown = {"output_count": None, "visible_output_count": None, "population_count": None, "population_count_computed": False, "counted_at": None}
    page.route(re.compile("/counts"), lambda route: route.fulfill(json=unknown))
    choose(page, "Slow")
    choose(page, "Orders")

    expect(page.locator(".count-main")).to_have_text("Not counted")


def test_a_count_is_asked_once_the_typing_pauses_and_stale_ones_are_dropped(reader):
    page = reader.open()
    choose(page, "Orders")
    expect(page.locator(".count-main")).to_have_text("2,000 rows to export")
    asked = []
    page.on("request", lambda request: asked.append(request.url) if "/counts" in request.url else None)
    page.get_by_label("Number").press_sequentially("1234", delay=60)
    expect(page.locator(".count-main")).to_have_text("1 row to export")

    assert len(asked) == 1
    assert "number=1234" in asked[0]


def test_a_dataset_that_is_not_permitted_cannot_be_chosen(reader):
    page = reader.open()

    expect(page.get_by_role("radio", name=re.compile("^Secret"))).to_be_disabled()
    expect(page.locator(".dataset-card", has_text="Secret")).to_contain_text("no permission")


def test_when_the_server_asks_to_wait_the_button_is_shut_for_that_time(reader):
    page = reader.open()
    refused = {"type": "about:blank", "title": "No worker", "status": 503, "detail": "No worker is running.", "code": "no_worker", "errors": []}
    page.route(
        re.compile("/api/exports$"),
        lambda route: route.fulfill(
            status=503, content_type="application/problem+json", headers={"Retry-After": "3"}, body=json.dumps(refused)
        ),
    )
    submit(page)
    expect(page.locator(".message[role=alert]")).to_contain_text("No worker is running.")
    expect(page.locator(".patience")).to_contain_text("You can try again in")
    button = page.locator(".export-form button[type=submit]")
    expect(button).to_have_attribute("aria-disabled", "true")

    expect(page.locator(".patience")).to_be_hidden(timeout=6_000)
    expect(button).not_to_have_attribute("aria-disabled", "true")


# -- connection, tabs, session ----------------------------------------------------------------------------


def test_a_lost_connection_is_said_invents_nothing_and_is_found_again(make_server, open_reader):
    server = make_server()
    page = open_reader(server).open(clock=True)
    card = start(page, "Slow", rows="20000")
    expect(card.locator("progress")).to_be_visible()
    server.kill()
    page.wait_for_timeout(500)
    shown = card.locator(".counted").text_content()
    page.clock.fast_forward(31_000)
    line = page.locator(".connection")
    expect(line).to_contain_text("Connection lost — the export goes on on the server; trying again")
    expect(card.locator(".life")).to_contain_text("last heard of")
    expect_state(card, "running")
    expect(card.locator(".counted")).to_have_text(shown)

    server.start()
    page.clock.fast_forward(6_000)
    expect(line).to_contain_text("Connected again", timeout=30_000)
    page.wait_for_function(
        "['ready', 'failed'].includes(document.querySelector('article').dataset.state)", timeout=90_000
    )  # What became of it is the server's to say: its worker was killed too.


def test_two_tabs_show_the_same(reader):
    first, second = reader.open(), reader.open()
    card = start(first, "Slow", rows="60000")
    other = second.locator("article").first
    expect(other).to_have_attribute("data-state", re.compile("queued|running"))
    other.get_by_role("button", name="Cancel").click()

    expect_state(card, "cancelled", 20)
    expect_state(other, "cancelled", 20)


def test_a_reload_finds_the_run_under_way(reader):
    page = reader.open()
    start(page, "Slow", rows="60000")
    page.reload()
    card = page.locator("article").first

    expect(card).to_have_attribute("data-state", re.compile("queued|running"))
    card.get_by_role("button", name="Cancel").click()
    expect_state(card, "cancelled", 20)


def test_a_hidden_tab_does_not_poll_and_looks_at_once_when_it_is_seen(reader):
    page = reader.open()
    start(page, "Slow", rows="60000")
    hide = "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true }); document.dispatchEvent(new Event('visibilitychange')); }"
    page.evaluate(hide, True)
    asked = []
    page.on("request", lambda request: asked.append(time.monotonic()) if LISTED.search(request.url) else None)
    page.wait_for_timeout(3_000)
    assert asked == []
    shown = time.monotonic()
    page.evaluate(hide, False)
    page.wait_for_timeout(600)

    assert asked
    assert asked[0] - shown < 0.6
    page.locator("article").first.get_by_role("button", name="Cancel").click()


def test_polling_is_quick_while_something_is_active_and_slow_otherwise(reader):
    page = reader.open(clock=True)
    asked = []
    page.on("request", lambda request: asked.append(request.url) if LISTED.search(request.url) else None)
    page.clock.run_for(10_000)
    idle = len(asked)
    serve_runs(page, canned())
    expect(page.locator("article")).to_be_visible(timeout=8_000)
    asked.clear()
    page.wait_for_timeout(4_000)

    assert idle <= 4
    assert 3 <= len(asked) <= 6


def test_a_wrong_key_is_refused_in_words_and_signing_out_shows_nothing_more(reader):
    page = reader.open(signed_in=False)
    page.get_by_label("Key").fill("not-a-key-of-this-server")
    page.get_by_label("Key").press("Enter")
    expect(page.get_by_role("alert")).to_have_text("The server does not know this key.")
    page.get_by_label("Key").fill(reader.key)
    page.get_by_role("button", name="Sign in").click()
    start(page, "Orders")
    page.get_by_role("button", name="Sign out").click()

    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(page.locator("article")).to_be_hidden()


# -- for everybody ----------------------------------------------------------------------------------------


def tab_to(page, locator, steps: int = 60) -> None:
    for _ in range(steps):
        if locator.evaluate("node => node === document.activeElement"):
            return
        page.keyboard.press("Tab")
    pytest.fail("the keyboard does not get there")


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
    expect_state(card, "cancelled", 20)

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
    expect(card.locator(".badge")).to_have_text("完了", timeout=30_000)
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
          const [{ ENGLISH }, { JAPANESE }] = await Promise.all([import("/page/texts-en.js"), import("/page/texts-ja.js")]);
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
    page = open_reader(locale=locale, viewport=PHONE, has_touch=True).open(signed_in=False)
    page.locator("#key").wait_for()
    assert width_of(page) <= PHONE["width"]
    page.locator("#key").fill(page_key := open_reader().key)
    assert page_key
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


# -- the element ------------------------------------------------------------------------------------------


def host_page(page, url: str, attributes: str) -> None:
    """A page of somebody else on the same origin, with nothing but the element in it."""
    html = f"""<!doctype html><meta charset="utf-8"><title>Host</title>
      <script type="module" src="/page/haulage.js"></script>
      <haulage-export {attributes}></haulage-export>"""
    page.route("**/host.html", lambda route: route.fulfill(content_type="text/html", body=html))
    page.add_init_script(
        """window.heard = [];
        for (const name of ["ready", "failed", "cancelled"]) {
          addEventListener(`haulage-${name}`, ({ type, detail }) => window.heard.push([type, detail.run.state]));
        }"""
    )
    page.goto(f"{url}/host.html")


def test_the_element_exports_tells_its_page_and_is_found_again_after_a_reload(reader):
    page = reader.open()
    host_page(page, reader.server.url, """dataset="slow" api="/api" parameters='{"rows": 6000}'""")
    element = page.locator("haulage-export")
    element.get_by_role("button", name="Export Slow").click()
    expect(element.get_by_label("Rows", exact=True)).to_have_value("6000")
    element.locator("button[type=submit]").click()
    card = element.locator("article")
    expect(card.locator("progress")).to_be_visible()
    page.reload()
    expect(card).to_have_attribute("data-state", re.compile("queued|running"))
    expect_state(card, "ready", 60)

    assert page.evaluate("window.heard") == [["haulage-ready", "ready"]]
    with page.expect_download():
        card.get_by_role("button", name="Download").click()


def test_the_element_cancels_and_tells_a_failure(reader):
    page = reader.open()
    host_page(page, reader.server.url, """dataset="slow" api="/api" parameters='{"rows": 60000}'""")
    element = page.locator("haulage-export")
    element.get_by_role("button", name="Export Slow").click()
    element.locator("button[type=submit]").click()
    element.get_by_role("button", name="Cancel").click()
    expect_state(element.locator("article"), "cancelled", 20)
    element.evaluate("node => node.setAttribute('dataset', 'broken')")
    element.get_by_role("button", name="Export Broken").click()
    element.locator("button[type=submit]").click()
    expect_state(element.locator("article"), "failed")

    assert page.evaluate("window.heard") == [["haulage-cancelled", "cancelled"], ["haulage-failed", "failed"]]


def test_the_element_asks_strangers_to_sign_in(reader):
    page = reader.open(signed_in=False)
    host_page(page, reader.server.url, 'dataset="orders" api="/api"')

    expect(page.locator("haulage-export").get_by_role("button", name="Sign in to export")).to_be_disabled()

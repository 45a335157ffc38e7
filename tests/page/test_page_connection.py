"""Lost connections, other tabs, reloads, hidden tabs, sessions: the page shows what it read, and says when."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from playwright.sync_api import expect
from tests.page.steps import LISTED, cancel, expect_state, expect_under_way, let_list_say, run_shown, start

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]


def test_a_lost_connection_is_said_invents_nothing_and_is_found_again(make_server, open_reader):
    server = make_server(lambda text: text.replace("slots = 4\n", "slots = 4\nlease_seconds = 8\nsweep_seconds = 1\n"))
    page = open_reader(server).open(clock=True)
    card = start(page, "Slow", rows="20000")
    expect(card.locator("progress")).to_be_visible()
    server.kill()
    page.wait_for_timeout(1_500)  # At least one poll has gone unanswered.
    shown = card.locator(".counted").text_content()
    page.clock.fast_forward(31_000)
    line = page.locator(".connection")
    expect(line).to_contain_text("Connection lost — the export goes on on the server; trying again")
    expect(card.locator(".life")).to_contain_text("last heard of")
    expect_state(card, "running")
    expect(card.locator(".counted")).to_have_text(shown)

    server.start()
    page.clock.fast_forward(6_000)
    expect(line).to_contain_text("Connected again")
    # What became of it is the server's to say: its worker was killed too.
    expect(card).to_have_attribute("data-state", re.compile("ready|failed"))


@pytest.mark.parametrize("lost", [1, 3])
def test_a_script_that_does_not_arrive_is_asked_for_again(reader, lost):
    page = reader.open()
    asked = []

    def answer(route):
        asked.append(route.request.url)
        route.abort("connectionreset") if len(asked) <= lost else route.continue_()

    page.route("**/page/poller.js", answer)
    page.reload()

    expect(page.locator(".workspace")).to_be_visible()
    assert len(asked) == lost + 1
    expect_only_what_did_not_load(reader)


def test_a_page_that_never_loads_says_so(reader):
    page = reader.open()
    page.route("**/page/poller.js", lambda route: route.abort("connectionreset"))
    page.reload()
    words = page.get_by_role("alert")
    expect(words).to_have_text("The page did not load whole. Load it again")
    page.unroute("**/page/poller.js")
    words.get_by_role("link").click()

    expect(page.locator(".workspace")).to_be_visible()
    expect_only_what_did_not_load(reader)


def expect_only_what_did_not_load(reader):
    """The console tells of it, and of nothing else."""
    assert [] == [each for each in reader.complaints if "dynamically imported module" not in each]
    reader.complaints.clear()


def test_two_tabs_show_the_same(reader):
    first, second = reader.open(), reader.open()
    card = start(first, "Slow", rows="60000")
    other = second.locator("article").first
    expect_under_way(other)
    cancel(other)

    expect_state(card, "cancelled")


def test_a_reload_finds_the_run_under_way(reader):
    page = reader.open()
    start(page, "Slow", rows="60000")
    page.reload()
    card = page.locator("article").first

    expect_under_way(card)
    cancel(card)


def test_a_hidden_tab_does_not_poll_and_looks_at_once_when_it_is_seen(reader):
    page = reader.open()
    start(page, "Slow", rows="60000")
    hide = """(hidden) => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    with page.expect_response(LISTED):
        pass
    page.wait_for_timeout(250)  # The next look is due soon, and none is under way.
    page.evaluate(hide, True)
    asked = []
    page.on("request", lambda request: asked.append(request.url) if LISTED.search(request.url) else None)
    page.wait_for_timeout(3_000)
    assert asked == []
    page.evaluate(hide, False)
    look = """() => new Promise((done) => {
      const [ask, shown] = [window.fetch, performance.now()];
      window.fetch = (...asked) => {
        if (/\\/api\\/exports\\?/.test(asked[0]?.url ?? asked[0])) done(performance.now() - shown);
        return ask(...asked);
      };
      Object.defineProperty(document, "hidden", { value: false, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    })"""
    took = []
    while not took or (min(took) >= 600 and len(took) < 5):  # a loaded machine may be late, but not each time
        page.evaluate(hide, True)
        took.append(page.evaluate(look))

    assert min(took) < 600, took
    cancel(page.locator("article").first)


def test_polling_is_quick_while_something_is_active_and_slow_otherwise(reader):
    page = reader.open(clock=True)
    asked, now = [], "performance.now()"
    page.on("request", lambda request: asked.append(request.url) if LISTED.search(request.url) else None)
    began = page.evaluate(now)
    page.clock.run_for(10_000)
    idle, passed = len(asked), page.evaluate(now) - began
    page = reader.open()  # whose clock is the browser's
    let_list_say(page, run_shown())
    expect(page.locator("article")).to_be_visible()
    page.evaluate("""() => {
      const ask = window.fetch;
      window.asked = [];
      window.fetch = async (...words) => {
        const began = performance.now();
        const answer = await ask(...words);
        if (/\\/api\\/exports\\?/.test(words[0]?.url ?? words[0])) window.asked.push([began, performance.now()]);
        return answer;
      };
    }""")
    while len(times := page.evaluate("window.asked")) < 5:
        page.wait_for_timeout(200)
    waits = [after[0] - before[1] for before, after in pairwise(times)]

    assert idle <= 2 + passed / 5_000
    assert all(wait > 600 for wait in waits), waits
    assert min(waits) < 3_000, waits


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

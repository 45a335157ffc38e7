"""The form: what cannot be meant, what is counted, what may not be had, when to try again."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect
from tests.page.steps import choose, expect_state, let_refuse, submit, tab_to

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]


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
    names = ("output_count", "visible_output_count", "population_count", "population_count_computed", "counted_at")
    unknown = dict.fromkeys(names)
    page.route(re.compile("/counts"), lambda route: route.fulfill(json=unknown))
    choose(page, "Slow")
    choose(page, "Orders")

    expect(page.locator(".count-main")).to_have_text("Not counted")


def test_how_many_there_are_without_conditions_is_counted_when_the_reader_asks(reader):
    page, asked = reader.open(), []
    page.on("request", lambda request: asked.append(request.url) if "population" in request.url else None)
    choose(page, "Orders")
    page.get_by_label("Number").fill("7")
    rest, ask = page.locator(".count-rest"), page.get_by_role("button", name="How many without conditions?")
    expect(page.locator(".count-main")).to_have_text("1 row to export")
    expect(rest).not_to_contain_text("without conditions")
    assert asked == []
    tab_to(page, ask)
    page.keyboard.press("Enter")
    expect(rest).to_contain_text("2,000 rows without conditions")
    expect(page.locator(".count-main")).to_have_text("1 row to export")
    expect(ask).to_be_hidden()
    expect(page.locator(".count-text")).to_be_focused()
    assert 1 == len(asked)

    page.get_by_label("Number").fill("8")  # It was of another instant; who wants to know asks again.
    expect(ask).to_be_visible()
    expect(rest).not_to_contain_text("without conditions")
    page.route(re.compile("population"), lambda route: route.abort(), times=1)
    ask.click()
    expect(page.locator(".count-main")).to_have_text("Not counted: the server did not answer.")
    unknown = {"output_count": None, "visible_output_count": 1, "population_count": None}
    unknown |= {"population_count_computed": False, "counted_at": None}
    page.route(re.compile("population"), lambda route: route.fulfill(json=unknown), times=1)
    ask.click()
    expect(rest).to_have_text("How many without conditions is not known")

    choose(page, "Takings")
    page.get_by_label("Up to").fill("3")
    page.get_by_role("button", name="Group by Day").click()
    expect(page.locator(".count-main")).to_have_text("3 groups to export")
    ask.click()
    expect(rest).to_contain_text("28 groups without conditions")
    choose(page, "Broken")  # It has no conditions.
    expect(page.locator(".count-main")).to_have_text("2,000 rows to export")
    expect(ask).to_be_hidden()


def test_a_count_is_asked_once_the_typing_pauses_and_stale_ones_are_dropped(reader):
    page = reader.open(clock=True)
    choose(page, "Orders")
    expect(page.locator(".count-main")).to_have_text("2,000 rows to export")
    asked = []
    page.on("request", lambda request: asked.append(request.url) if "/counts" in request.url else None)
    page.clock.pause_at(page.evaluate("Date.now()") / 1000 + 60)  # so that nobody can type too slowly
    page.get_by_label("Number").press_sequentially("1234")
    page.clock.resume()
    expect(page.locator(".count-main")).to_have_text("1 row to export")

    assert len(asked) == 1
    assert "number=1234" in asked[0]


def test_what_was_chosen_for_one_format_never_reaches_another(reader):
    page = reader.open()
    choose(page, "Orders")
    page.get_by_label("CSV dialect").select_option(label="Excel")
    page.get_by_label("Compression").select_option(label="gzip")
    page.get_by_role("radio", name="NDJSON", exact=True).check()
    with page.expect_request(lambda request: request.method == "POST" and request.url.endswith("/exports")) as asked:
        submit(page)
    expect_state(page.locator("article").first, "ready")
    page.get_by_role("radio", name="CSV", exact=True).check()

    wish = asked.value.post_data_json
    assert ("ndjson", {"numbers": "number"}) == (wish["format"], wish["options"])
    assert "compression" not in wish
    expect(page.get_by_label("CSV dialect").locator("option:checked")).to_have_text("Exact")


@pytest.mark.parametrize(("zone", "typed", "sent"), [
    ("Asia/Tokyo", "2020-02-01T00:30", "2020-01-31T15:30:00.000Z"),
    ("Europe/Madrid", "2020-02-01T00:30", "2020-01-31T23:30:00.000Z"),
    ("Europe/Madrid", "2020-07-01T00:30:15", "2020-06-30T22:30:15.000Z"),
    ("America/New_York", "2020-01-31T23:30", "2020-02-01T04:30:00.000Z"),
])  # fmt: skip
def test_a_moment_is_typed_in_the_zone_of_the_reader_and_sent_as_one_instant(open_reader, zone, typed, sent):
    reader = open_reader(timezone_id=zone)
    page = reader.open(signed_in=False)

    def with_a_moment(route):
        catalogue = route.fetch().json()
        moment = {"name": "moment", "type": "timestamp", "label": "Moment", "required": False, "default": None}
        for dataset in catalogue.get("items", ()):
            dataset["parameters"] = [*dataset["parameters"], {**moment, "list": False, "choices": None}]
        route.fulfill(json=catalogue)

    page.route(re.compile("/api/datasets$"), with_a_moment)
    page.locator("#key").fill(reader.key)
    page.locator("#key").press("Enter")
    choose(page, "Orders")
    with page.expect_request(lambda request: "moment=" in request.url) as asked:
        page.get_by_label("Moment").fill(typed)
    (moment,) = parse_qs(urlsplit(asked.value.url).query)["moment"]

    assert sent == moment
    expect(page.locator(".field", has=page.get_by_label("Moment"))).to_contain_text(f"in your zone, {zone}")


def test_a_dataset_that_is_not_permitted_cannot_be_chosen(reader):
    page = reader.open()

    expect(page.get_by_role("radio", name=re.compile("^Secret"))).to_be_disabled()
    expect(page.locator(".dataset-card", has_text="Secret")).to_contain_text("no permission")


def test_when_the_server_asks_to_wait_the_button_is_shut_for_that_time(reader):
    page = reader.open(clock=True)
    let_refuse(page, re.compile("/api/exports$"), 503, "no_worker", "No worker is running.", **{"Retry-After": "300"})
    submit(page)
    expect(page.locator(".workspace .message[role=alert]")).to_contain_text("No worker is running.")
    expect(page.locator(".patience")).to_contain_text("You can try again in")
    button = page.locator(".export-form button[type=submit]")
    expect(button).to_have_attribute("aria-disabled", "true")

    page.clock.fast_forward(301_000)
    expect(page.locator(".patience")).to_be_hidden()
    expect(button).not_to_have_attribute("aria-disabled", "true")

"""Groups on the page and in the element: what is picked, said and counted is what the file holds."""

from __future__ import annotations

import csv
import re

import pytest
from playwright.sync_api import expect
from tests.page.steps import PHONE, choose, expect_state, submit, tab_to, width_of
from tests.page.test_page_element import host_page

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]

COUNTS = re.compile("/counts")


def group_by(page, *labels: str) -> None:
    for label in labels:
        page.get_by_role("button", name=f"Group by {label}").click()


def rows_on_screen(page) -> list[list[str]]:
    """The table of the preview as a CSV file would have it: NULL and what is rolled up are empty."""
    page.locator(".preview > summary").click()
    expect(page.locator(".preview-place")).not_to_have_attribute("aria-busy", "true")
    expect(page.locator("table.result")).to_be_visible()
    rows = page.locator("table.result").evaluate(
        """table => [...table.rows].map((row) => [...row.cells].map(
          (cell) => cell.querySelector(".no-value") ? "" : cell.textContent
        ))"""
    )
    return [[short(cell) for cell in row] for row in rows]


def short(cell: str) -> str:
    """A float of a file that is whole has a zero more than JavaScript knows of."""
    return re.sub(r"^(-?\d+)\.0$", r"\1", cell)


def downloaded(card, path) -> list[list[str]]:
    expect_state(card, "ready")
    with card.page.expect_download() as download:
        card.get_by_role("button", name="Download").click()
    download.value.save_as(path)
    return [[short(cell) for cell in row] for row in csv.reader(path.open(newline="", encoding="utf-8"))]


def test_what_is_grouped_on_the_screen_is_what_the_file_holds(reader, tmp_path):
    page = reader.open()
    choose(page, "Takings")
    page.get_by_label("Up to").fill("11")
    group_by(page, "Region", "Status")
    page.get_by_role("button", name="Move Status up").click()
    page.get_by_label("Subtotals").select_option("rollup")
    page.locator("summary", has_text="Measures").click()
    page.get_by_role("checkbox", name="Latest").uncheck()
    expect(page.locator(".meaning")).to_have_text(
        "One row for each combination of Status and Region. Subtotals for each Status, and a grand total at the end."
    )
    expect(page.locator(".count-main")).to_have_text("4 groups to export")
    shown = rows_on_screen(page)
    expect(page.locator(".preview-status")).to_contain_text("7 rows, and no more · 4 groups in all · Read ")

    submit(page)
    card = page.locator("article").first
    assert downloaded(card, tmp_path / "takings.csv") == shown
    assert ["row_kind", "row_level", "Status", "Region", "Orders", "Taken", "Owed"] == shown[0]
    assert [("subtotal", "open", "6"), ("subtotal", "shipped", "5"), ("total", "", "11")] == [
        (row[0], row[2], row[4]) for row in shown if row[0] not in ("row_kind", "regular")
    ]
    expect(card.locator(".conditions")).to_have_text("Up to: 11 · Groups: Status, Region · Subtotals: Roll-up")
    expect(card.locator(".fact", has_text="Rows")).to_contain_text("7 (4 groups)")

    card.get_by_role("button", name="Remove file now").click()
    card.get_by_role("button", name="Yes, remove it").click()
    with page.expect_request(lambda request: request.method == "POST" and request.url.endswith("/exports")) as again:
        card.get_by_role("button", name="Export again").click()
    wish = again.value.post_data_json
    assert (["status", "region"], "rollup", ["orders", "taken", "owed"]) == (
        wish["group_by"],
        wish["subtotals"],
        wish["columns"],
    )


def test_what_goes_across_is_columns_on_the_screen_and_in_the_file(reader, tmp_path):
    page = reader.open()
    choose(page, "Takings")
    page.get_by_label("Up to").fill("12")
    group_by(page, "Status", "Region")
    page.get_by_label("Region goes").select_option(label="Across")
    expect(page.get_by_label("Status goes").locator("option", has_text="Across")).to_be_disabled()
    page.get_by_label("Subtotals").select_option("levels")
    page.get_by_role("checkbox", name="each Status", exact=True).check()
    page.get_by_role("checkbox", name="grand total").check()
    expect(page.locator(".meaning")).to_have_text(
        "One row for each Status. Columns for each Region. Added up for: each Status and grand total."
    )
    page.locator(".segment", has_text="JSON").click()
    expect(page.locator(".meaning")).to_contain_text("In this format each cell is a record of its own.")
    page.locator(".segment", has_text="CSV").click()
    shown = rows_on_screen(page)
    submit(page)
    card = page.locator("article").first

    assert downloaded(card, tmp_path / "takings.csv") == shown
    assert ["(empty)", "north & <b>west</b>", "south", "(null)", "(total)"] == [
        head.removesuffix(": Orders") for head in shown[0] if head.endswith(": Orders")
    ]
    expect(card.locator(".conditions")).to_contain_text("Across: Region · Subtotals: each Status; grand total")
    page.get_by_role("button", name="Do not group by Status").click()
    page.get_by_role("button", name="Do not group by Region").click()
    expect(page.locator(".meaning")).to_have_text("Rows as they are, without groups.")
    expect(page.locator(".count-main")).to_have_text("12 rows to export")


def test_a_stale_count_is_given_up_and_its_answer_never_shown(reader):
    page, held, failed = reader.open(), [], []
    choose(page, "Takings")
    expect(page.locator(".count-main")).to_have_text("2,000 rows to export")
    page.on("requestfailed", lambda request: failed.append(request.url) if COUNTS.search(request.url) else None)

    def hold_the_first(route):
        if held:
            return route.fallback()
        held.append(route)
        return None

    page.route(COUNTS, hold_the_first)
    group_by(page, "Day")
    expect(page.locator(".count-main")).to_have_text("Counting…")
    while not held:
        page.wait_for_timeout(20)
    group_by(page, "Region")
    expect(page.locator(".count-main")).to_have_text("28 groups to export")
    body = {"output_count": 7, "visible_output_count": 7, "population_count": None, "population_count_computed": False}
    held[0].fulfill(json={**body, "counted_at": None})
    page.wait_for_timeout(300)

    expect(page.locator(".count-main")).to_have_text("28 groups to export")
    assert [held[0].request.url] == failed


def test_a_hidden_tab_asks_nothing_until_it_is_seen_again(reader):
    page, asked = reader.open(), []
    choose(page, "Takings")
    expect(page.locator(".count-main")).to_have_text("2,000 rows to export")
    page.on("request", lambda request: asked.append(request.url) if COUNTS.search(request.url) else None)
    hide = """hidden => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.evaluate(hide, True)
    group_by(page, "Status")
    page.wait_for_timeout(1_000)
    assert asked == []

    page.route(COUNTS, lambda _: None, times=1)
    with page.expect_request(COUNTS):
        page.evaluate(hide, False)
    with page.expect_event("requestfailed", lambda request: COUNTS.search(request.url)):
        page.evaluate(hide, True)  # What nobody waits for is given up, and asked anew when it is looked for.
    page.evaluate(hide, False)
    expect(page.locator(".count-main")).to_have_text("2 groups to export")
    assert len(asked) == 2


def test_a_count_says_why_it_is_not_known_and_speaks_the_language_of_the_reader(reader):
    page = reader.open()
    choose(page, "Takings")
    group_by(page, "Status")
    expect(page.locator(".count-main")).to_have_text("2 groups to export")
    page.get_by_label("Language").select_option("ja")
    expect(page.locator(".count-main")).to_have_text("2 グループをエクスポートできます")
    expect(page.locator(".meaning")).to_have_text("Statusごとに 1 行です。")
    page.route(COUNTS, lambda route: route.abort())
    page.get_by_label("Up to").fill("10")

    expect(page.locator(".count-main")).to_have_text("未計測: サーバーから応答がありません。")


def test_groups_are_picked_and_ordered_by_keyboard(reader):
    page = reader.open()
    choose(page, "Takings")
    focused = page.locator(":focus")
    tab_to(page, page.get_by_role("button", name="Group by Region"))
    page.keyboard.press("Enter")
    expect(focused).to_have_accessible_name("Group by Status")
    page.keyboard.press("Enter")
    page.keyboard.press("Space")
    labels = page.locator(".dimension-label")
    expect(labels).to_have_text(["Region", "Status", "Day"])
    expect(focused).to_have_accessible_name("Day goes")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(focused).to_have_accessible_name("Move Day up")
    page.keyboard.press("Enter")
    expect(labels).to_have_text(["Day", "Region", "Status"])
    page.keyboard.press("Enter")  # It is at the top, and keeps the focus.
    expect(labels).to_have_text(["Day", "Region", "Status"])
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(focused).to_have_accessible_name("Do not group by Day")
    page.keyboard.press("Enter")
    expect(labels).to_have_text(["Region", "Status"])
    expect(focused).to_have_accessible_name("Group by Day")


def test_what_is_wrong_with_groups_is_said_beside_them(reader):
    page = reader.open()
    choose(page, "Takings")
    group_by(page, "Status")
    page.locator("summary", has_text="Measures").click()
    page.get_by_role("button", name="Choose none").click()
    submit(page)
    expect(page.locator(".columns .field-error:visible")).to_have_text("Choose at least one measure.")
    assert page.locator("article").count() == 0

    page.get_by_role("button", name="Choose all").click()
    page.route(
        re.compile("/api/exports$"),
        lambda route: route.fulfill(
            status=422,
            content_type="application/problem+json",
            json={"code": "invalid", "detail": "No.", "errors": [{"pointer": "/subtotals", "detail": "not these"}]},
        ),
    )
    submit(page)
    expect(page.locator(".grouping .field-error")).to_have_text("not these")


def test_the_element_groups_as_its_page_says(reader, tmp_path):
    page = reader.open()
    attributes = """dataset="takings" api="/api" parameters='{"upto": 8}' group-by="region, status"
      subtotals="region;()" pivot="status" measures="taken" """
    host_page(page, reader.server.url, attributes)
    element = page.locator("haulage-export")
    element.get_by_role("button", name="Export Takings").click()
    expect(element.locator(".dimension-label")).to_have_text(["Region", "Status"])
    expect(element.get_by_label("Status goes")).to_have_value("1")
    expect(element.locator(".count-main")).to_have_text("4 groups to export")
    with page.expect_request(lambda request: request.method == "POST" and request.url.endswith("/exports")) as asked:
        element.locator("button[type=submit]").click()
    rows = downloaded(element.locator("article"), tmp_path / "takings.csv")

    wish = asked.value.post_data_json
    assert [["region"], []] == wish["subtotals"]
    assert (["region", "status"], ["status"], ["taken"]) == (wish["group_by"], wish["pivot"], wish["columns"])
    assert "total" == rows[-1][0]


@pytest.mark.parametrize("locale", ["en-US", "ja-JP"])
def test_groups_fit_a_phone(open_reader, locale):
    page = open_reader(locale=locale, viewport=PHONE, has_touch=True).open()
    choose(page, "Takings")
    for _ in range(3):
        page.locator(".adder").first.click()
    page.locator("select", has=page.locator("option[value=cube]")).select_option("levels")
    page.locator(".preview > summary").click()
    expect(page.locator("table.result")).to_be_visible()
    assert width_of(page) <= PHONE["width"]
    page.locator(".views .segment").last.click()
    expect(page.locator(".picture")).to_be_visible()

    assert width_of(page) <= PHONE["width"]


def test_thirty_dimensions_do_not_stop_the_page(reader):
    page = reader.open(signed_in=False)

    def with_many(route):
        catalogue = route.fetch().json()
        for dataset in catalogue.get("items", ()):
            dataset["dimensions"] = [{"name": f"d{n}", "label": f"D{n:02}"} for n in range(30)]
        route.fulfill(json=catalogue)

    page.route(re.compile("/api/datasets$"), with_many)
    page.locator("#key").fill(reader.key)
    page.locator("#key").press("Enter")
    choose(page, "Takings")
    group_by(page, *(f"D{n:02}" for n in range(30)))
    page.get_by_label("Subtotals").select_option("levels")
    boxes = page.locator(".grouping .check")
    expect(boxes).to_have_count(1 + 30 + 30 * 29 // 2 + 27)
    page.get_by_role("checkbox", name="each D03 and D17", exact=True).check()
    expect(page.locator(".meaning")).to_contain_text("Added up for: each D03 and D17.")

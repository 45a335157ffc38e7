"""The preview: first rows as the file will have them, groups as bars, what is not known, and what is too late."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.page.steps import choose, expect_state, let_list_say, let_refuse, run_shown, start
from tests.page.test_page_groups import group_by

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]

PREVIEW = re.compile("/preview")


def open_preview(page, view: str = "Table") -> None:
    page.locator(".preview > summary").click()
    if view != "Table":
        page.locator(".views .segment", has_text=view).click()
    expect(page.locator(".preview-place > *")).to_be_visible()
    expect(page.locator(".preview-place")).not_to_have_attribute("aria-busy", "true")


def answer(columns: list[tuple[str, str, str]], rows: list[list], dimensions: int = 1, **changes):
    """A grouped answer of the API."""
    shown = [{"key": key, "header": header, "type": kind} for key, header, kind in columns]
    grouped = {"marks": 1, "dimensions": dimensions, "measures": len(columns) - 1 - dimensions}
    whole = {"columns": shown, "rows": rows, "more": False, "grouped": grouped, "logical_count": len(rows)}
    return {**whole, "snapshot_at": "2026-01-01T00:00:00Z", **changes}


def let_preview_say(page, body) -> None:
    page.unroute(PREVIEW)
    page.route(PREVIEW, lambda route: route.fulfill(json=body))


def test_first_rows_are_shown_on_demand_and_follow_the_form(reader):
    page, asked = reader.open(), []
    page.on("request", lambda request: asked.append(request.url) if PREVIEW.search(request.url) else None)
    choose(page, "Takings")
    expect(page.locator(".count-main")).to_have_text("2,000 rows to export")
    assert asked == []
    open_preview(page)
    rows = page.locator("table.result tbody tr")
    expect(rows).to_have_count(20)
    expect(page.locator(".preview-status")).to_have_text(
        re.compile(r"^The first 20 rows; there are more · Read .*GMT\+9$")
    )
    regions = page.locator("table.result tbody tr td:last-child")
    expect(regions.nth(0)).to_have_text("“”empty text")
    expect(regions.nth(1)).to_have_text("north & <b>west</b>")
    expect(regions.nth(3)).to_have_text("NULL")
    expect(page.locator("table.result td.number").first).to_have_css("text-align", "end")

    page.locator("summary", has_text="Columns").click()
    page.get_by_role("checkbox", name="region").uncheck()
    page.get_by_label("Up to").fill("1")
    expect(page.locator(".preview-status")).to_contain_text("1 row, and no more")
    expect(page.locator("table.result th")).to_have_text(["id", "status", "total", "placed_at", "owed"])
    page.get_by_label("Up to").fill("0")
    expect(page.locator(".preview-status")).to_contain_text("No row matches")
    expect(page.locator("table.result")).to_have_count(0)
    page.get_by_label("Up to").fill("many")
    expect(page.locator(".preview .message")).to_have_text("Nothing to show: the form is not complete.")


def test_what_is_added_up_is_marked_and_what_is_rolled_up_is_not_null(reader):
    page = reader.open()
    choose(page, "Takings")
    page.get_by_label("Up to").fill("8")
    group_by(page, "Status", "Region")
    page.get_by_label("Subtotals").select_option("rollup")
    open_preview(page)

    subtotal = page.locator('tr[data-kind="subtotal"]').first
    expect(subtotal.locator("td").nth(3)).to_have_text("all")
    expect(page.locator('tr[data-kind="regular"]', has_text="NULL").first).to_be_visible()
    total = ["total", "", "all", "all", "8", "9", "-7", re.compile("^2026-")]
    expect(page.locator('tr[data-kind="total"] td')).to_have_text(total)
    weights = [
        page.locator(f'tr[data-kind="{kind}"] td').first.evaluate("cell => getComputedStyle(cell).fontWeight")
        for kind in ("regular", "subtotal", "total")
    ]
    assert ["400", "600", "600"] == weights
    page.get_by_label("Language").select_option("ja")
    expect(page.locator('tr[data-kind="subtotal"] td').first).to_have_text("subtotal (小計)")


def test_a_stale_preview_is_given_up_and_never_shown(reader):
    page, held, failed = reader.open(), [], []
    page.on("requestfailed", lambda request: failed.append(request.url) if PREVIEW.search(request.url) else None)
    choose(page, "Takings")
    open_preview(page)

    def hold_the_first(route):
        if held:
            return route.fallback()
        held.append(route)
        return None

    page.route(PREVIEW, hold_the_first)
    page.get_by_label("Up to").fill("3")
    expect(page.locator(".preview-place")).to_have_attribute("aria-busy", "true")
    expect(page.locator(".preview-status")).to_have_text("Reading…")
    while not held:
        page.wait_for_timeout(20)
    page.get_by_label("Up to").fill("2")
    expect(page.locator("table.result tbody tr")).to_have_count(2)
    held[0].fulfill(json=answer([("row_kind", "row_kind", "text"), ("a", "A", "text")], [["regular", "old"]]))
    page.wait_for_timeout(300)

    expect(page.locator("table.result tbody tr")).to_have_count(2)
    assert [held[0].request.url] == failed


def test_a_preview_that_cannot_be_says_why(reader):
    page = reader.open()
    choose(page, "Takings")
    let_refuse(page, PREVIEW, 503, "count_timeout", "The first rows took too long.")
    page.locator(".preview > summary").click()
    message = page.locator(".preview .message")
    expect(message).to_have_text("Not known: The first rows took too long.")

    page.unroute(PREVIEW)
    body = {"code": "invalid", "detail": "No.", "errors": [{"pointer": "/path/name", "detail": "code makes its rows"}]}
    page.route(PREVIEW, lambda route: route.fulfill(status=422, content_type="application/problem+json", json=body))
    page.get_by_label("Up to").fill("5")
    expect(message).to_contain_text("there is no preview of them")
    page.unroute(PREVIEW)
    page.route(PREVIEW, lambda route: route.abort())
    page.get_by_label("Up to").fill("6")
    expect(message).to_have_text("Not known: the server did not answer.")
    page.unroute(PREVIEW)
    page.get_by_label("Up to").fill("7")
    expect(page.locator("table.result tbody tr")).to_have_count(7)
    expect(message).to_be_hidden()


def test_what_the_server_did_not_answer_is_asked_again(reader):
    """It was away for a moment, and nobody has to change the form to see what it says now."""
    page = reader.open(clock=True)
    choose(page, "Takings")
    open_preview(page)
    both = re.compile("/(counts|preview)")
    page.route(both, lambda route: route.abort())
    page.get_by_label("Up to").fill("6")
    expect(page.locator(".count-main")).to_have_text("Not counted: the server did not answer.")
    expect(page.locator(".preview .message")).to_have_text("Not known: the server did not answer.")
    page.unroute(both)
    page.clock.run_for(5_000)
    expect(page.locator(".count-main")).to_have_text("6 rows to export")
    expect(page.locator("table.result tbody tr")).to_have_count(6)

    let_refuse(page, both, 503, "count_timeout", "It took too long.")
    page.get_by_label("Up to").fill("7")
    expect(page.locator(".preview .message")).to_contain_text("It took too long.")
    expect(page.locator(".count-main")).to_contain_text("It took too long.")
    page.unroute(both)
    page.get_by_role("radio", name="JSON").check()  # Whatever is touched next asks again.
    expect(page.locator(".count-main")).to_have_text("7 rows to export")
    expect(page.locator("table.result tbody tr")).to_have_count(7)


def test_groups_are_drawn_as_bars_that_the_server_measured(reader):
    page = reader.open()
    choose(page, "Takings")
    page.get_by_label("Up to").fill("11")
    group_by(page, "Region")
    open_preview(page, "Chart")
    titles = page.locator(".picture .bar title")
    expect(titles).to_have_text(["“”: 3", "north & <b>west</b>: 3", "south: 3", "NULL: 2"])
    expect(page.get_by_role("img")).to_have_accessible_name(
        re.compile(r"^Orders by Region\. 4 bars\. .*smallest: NULL 2")
    )

    page.get_by_label("Measure", exact=True).select_option(label="Owed")
    expect(titles).to_have_text(["“”: -3", "north & <b>west</b>: -3", "south: -3", "NULL: -1"])
    ends = page.locator(".picture .bar").evaluate_all(
        "bars => bars.map((bar) => bar.x.baseVal.value + bar.width.baseVal.value)"
    )
    zero = page.locator(".picture .zero").evaluate("line => line.x1.baseVal.value")
    assert all(abs(end - zero) < 0.1 for end in ends)
    assert "Latest" not in page.get_by_label("Measure", exact=True).inner_text()

    group_by(page, "Status")
    page.get_by_label("Measure", exact=True).select_option(label="Orders")
    expect(page.locator(".legend li")).to_have_text(["open", "shipped"])
    expect(page.locator(".chart-title")).to_have_text("Orders by Region and Status")
    group_by(page, "Day")
    expect(page.locator(".chart-notes")).to_have_text("Not drawn: Day. Each bar is over all of its values.")
    page.locator(".chart summary").click()
    expect(page.locator(".chart table.result tbody tr")).to_have_count(4)


def test_a_chart_of_much_says_what_it_leaves_out(reader):
    page = reader.open()
    choose(page, "Takings")
    group_by(page, "Day", "Region")
    columns = [
        ("row_kind", "row_kind", "text"),
        ("day", "Day", "text"),
        ("region", "Region", "integer"),
        ("orders", "Orders", "decimal"),
        ("latest", "Latest", "decimal"),
    ]
    rows = [["regular", f"day {n // 12:02}", n % 12, f"{n}.50", None if n == 5 else n] for n in range(120)]
    let_preview_say(page, answer(columns, rows, dimensions=2, more=True))
    open_preview(page, "Chart")
    expect(page.locator(".legend li")).to_have_count(8)
    expect(page.locator(".legend li").last).to_have_text("5 others")
    expect(page.locator(".category")).to_have_count(9)  # Of the last one, groups may be missing.
    expect(page.locator(".chart-notes")).to_contain_text("Only the first 9 are drawn; there are more.")
    expect(page.locator(".picture .bar title").first).to_have_text("day 00, 5: 5.50")

    page.get_by_label("Measure", exact=True).select_option(label="Latest")
    expect(page.locator(".legend li")).to_have_text([str(number) for number in range(8)])
    expect(page.locator(".chart-notes")).to_contain_text("Only 8 of 12 values of Region are drawn.")
    expect(page.locator(".chart-notes")).to_contain_text("1 has no number and no bar.")

    nothing = [["regular", "day 1", 1, None, None]]
    let_preview_say(page, answer([*columns[:3], ("latest", "Latest", "date")], nothing, dimensions=2))
    page.get_by_label("Up to").fill("3")
    expect(page.locator(".chart-notes")).to_have_text("None of these measures is a number; there is nothing to draw.")
    long = ("a label that no phone and no screen has room for " * 5).strip()
    let_preview_say(page, answer([columns[0], columns[2], columns[3]], [["regular", "9", 1], ["regular", "10", 2]]))
    page.get_by_label("Up to").fill("5")
    expect(page.locator(".category title")).to_have_text(["9", "10"])
    let_preview_say(page, answer([columns[0], columns[1], columns[3]], [["regular", long, 1]]))
    page.get_by_label("Up to").fill("6")
    expect(page.locator(".category title")).to_have_text([long])
    expect(page.locator(".category")).to_contain_text(re.compile("^a label .*…"))
    let_preview_say(page, answer(columns, [], dimensions=2))
    page.get_by_label("Up to").fill("4")
    expect(page.locator(".preview-status")).to_contain_text("No row matches")
    expect(page.locator(".picture")).to_be_hidden()


def test_a_chart_places_numbers_of_any_size_and_tells_texts_from_what_is_none(reader):
    page = reader.open()
    choose(page, "Takings")
    group_by(page, "Region")
    mark, region = ("row_kind", "row_kind", "text"), ("region", "Region", "text")
    names = ["", " a", "NULL", "a", "“”", None]
    rows = [
        ["regular", name, value, None]
        for name, value in zip(names, ["1e299", "-5", "4E-320", "9" * 400, "x", "0.00002"], strict=True)
    ]
    untyped = [("taken", "Taken", None), ("latest", "Latest", None)]  # SQLite does not know the type of a sum.
    let_preview_say(page, answer([mark, region, *untyped], rows))
    open_preview(page, "Chart")
    expect(page.locator(".category title")).to_have_text(["“”", '" a"', '"NULL"', "a", '"“”"', "NULL"])
    expect(page.locator(".picture .value")).to_have_text(["1E299", "-5", "4E-320", re.compile("^9+…"), "x", "2E-5"])
    expect(page.locator(".chart-notes")).to_have_text("2 have no number and no bar.")
    assert max(map(len, page.locator(".picture .tick").all_text_contents())) < 10
    places = page.locator(".picture *").evaluate_all(
        "nodes => nodes.flatMap((node) => [...node.attributes]).map(({value}) => value)"
    )
    assert not any("NaN" in place or "Infinity" in place for place in places)

    for value in ("4E-320", "-1e-305"):
        let_preview_say(
            page, answer([mark, region, *untyped], [["regular", "a", value, None], ["regular", "b", "0", None]])
        )
        page.get_by_label("Up to").fill(value[-3:].strip("-"))
        expect(page.locator(".category title")).to_have_text(["a", "b"])
        assert 2 <= page.locator(".picture .tick").count() < 12


def test_the_groups_of_a_chart_are_not_taken_for_those_of_the_export(reader):
    page = reader.open()
    choose(page, "Takings")
    group_by(page, "Region", "Status")
    open_preview(page, "Chart")
    expect(page.locator(".preview-status")).to_contain_text("4 groups in all")
    group_by(page, "Day")
    expect(page.locator(".chart-notes")).to_contain_text("Not drawn: Day.")
    expect(page.locator(".preview-status")).to_have_text(re.compile("^Read "))


def test_what_was_read_for_one_reader_is_not_left_to_the_next(reader):
    page = reader.open()
    choose(page, "Takings")
    open_preview(page)
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator("#key")).to_be_visible()

    expect(page.locator("table.result")).to_have_count(0)
    expect(page.locator(".count-main")).to_have_text("Not counted")
    page.locator("#key").fill(reader.key)
    page.locator("#key").press("Enter")
    expect(page.locator("table.result tbody tr")).to_have_count(20)
    expect(page.locator(".count-main")).to_have_text("2,000 rows to export")


def test_in_the_dark_table_and_chart_can_be_read(open_reader):
    page = open_reader(color_scheme="dark", viewport={"width": 1280, "height": 900}).open()
    choose(page, "Takings")
    group_by(page, "Region", "Status")
    page.get_by_label("Subtotals").select_option("total")
    contrast = Path(__file__).with_name("contrast.js").read_text()
    open_preview(page)
    worst = page.evaluate(contrast)
    assert worst["ratio"] >= 4.5, worst

    page.locator(".views .segment", has_text="Chart").click()
    page.locator(".picture").wait_for()
    words, surface = page.evaluate(
        """() => [document.querySelector(".picture .category"), document.querySelector(".preview")]
          .map((node, index) => getComputedStyle(node)[index ? "backgroundColor" : "fill"])"""
    )
    assert words == "rgb(236, 238, 245)"
    assert surface == "rgb(23, 25, 31)"


def test_aggregating_has_no_total_and_groups_are_no_rows(reader):
    page = reader.open()
    progress = {"processed": None, "total": None, "unit": "pivot_cells", "logical_count": None}
    units = {"logical_count_unit": "regular_result_rows"}
    let_list_say(page, run_shown(phase="aggregating", progress={**progress, **units}))
    card = page.locator("article")
    expect(card.locator(".badge")).to_have_text("Aggregating")
    expect(card.locator(".counted")).to_have_text("Aggregating in the database; the total is not known yet")
    expect(card.locator("progress")).to_be_visible()
    assert card.locator("progress").evaluate("bar => bar.position") == -1
    expect(card.locator(".share")).to_be_hidden()

    counted = {**progress, **units, "processed": 30, "total": 64, "logical_count": 21}
    let_list_say(page, run_shown(revision=8, progress=counted))
    expect(card.locator(".counted")).to_have_text("30 of 64 cells · 21 groups in it so far")
    assert card.locator("progress").evaluate("bar => [bar.value, bar.max]") == [30, 64]
    page.get_by_label("Language").select_option("ja")
    expect(card.locator(".counted")).to_have_text("64 セル中 30 セル · うち 21 グループ")
    let_list_say(page, run_shown(revision=9, phase="aggregating", progress={**progress, **units}))  # By another worker.
    expect(card.locator(".counted")).to_contain_text("総数はまだ分かりません")
    assert card.locator("progress").evaluate("bar => bar.position") == -1


def test_a_file_that_is_not_for_its_reader_any_more_can_be_exported_again(reader):
    page = reader.open()
    card = start(page, "Guarded")
    expect_state(card, "ready")
    with closing(sqlite3.connect(reader.server.folder / "shop.db")) as shop, shop:
        shop.execute("update policy set revision = revision + 1")
    card.get_by_role("button", name="Download").click()
    expect(card.locator(".card-error")).to_contain_text("has changed since the file was made. Export again.")
    expect(card.get_by_role("button", name="Download")).to_be_hidden()
    card.get_by_role("button", name="Export again").click()
    expect(page.locator("article")).to_have_count(2)
    expect_state(page.locator("article").first, "ready")

    with page.expect_download():
        page.locator("article").first.get_by_role("button", name="Download").click()

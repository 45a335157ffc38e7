"""`<haulage-export>` in a page of somebody else."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect
from tests.page.steps import expect_state, expect_under_way

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]


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
    host_page(page, reader.server.url, """dataset="slow" api="/api" parameters='{"rows": 8000}'""")
    element = page.locator("haulage-export")
    element.get_by_role("button", name="Export Slow").click()
    expect(element.get_by_label("Rows", exact=True)).to_have_value("8000")
    element.locator("button[type=submit]").click()
    card = element.locator("article")
    expect(card.locator("progress")).to_be_visible()
    page.reload()
    expect_under_way(card)
    expect_state(card, "ready")

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
    expect_state(element.locator("article"), "cancelled")
    element.evaluate("node => node.setAttribute('dataset', 'broken')")
    element.get_by_role("button", name="Export Broken").click()
    element.locator("button[type=submit]").click()
    expect_state(element.locator("article"), "failed")

    assert page.evaluate("window.heard") == [["haulage-cancelled", "cancelled"], ["haulage-failed", "failed"]]


def test_the_element_asks_strangers_to_sign_in(reader):
    page = reader.open(signed_in=False)
    host_page(page, reader.server.url, 'dataset="orders" api="/api"')

    expect(page.locator("haulage-export").get_by_role("button", name="Sign in to export")).to_be_disabled()

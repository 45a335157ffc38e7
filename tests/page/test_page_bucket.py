"""A download that the page begins and the bucket gives: from another origin, under the file's own name."""

from __future__ import annotations

import hashlib

import pytest
from playwright.sync_api import expect
from tests.objects_server import KEYS
from tests.page.steps import expect_state, start

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]


def test_a_browser_is_sent_to_the_bucket_and_keeps_the_file_under_its_name(make_server, open_reader, place, tmp_path):
    def in_a_bucket(text):
        keys = f'access_key = "{KEYS["access_key"]}"\nsecret_key = "{KEYS["secret_key"]}"\n'
        how = f'[objects]\nendpoint = "{place.server.endpoint}"\ndownload = "redirect"\n{keys}'
        return text.replace('artifacts = "file:./artifacts"', f'artifacts = "{place.url}"') + how

    server = make_server(in_a_bucket)
    page = open_reader(server).open()
    asked = []
    page.context.on("request", lambda request: asked.append(request.url))
    card = start(page, "Orders")
    expect_state(card, "ready")

    with page.expect_download() as download:
        card.get_by_role("button", name="Download").click()
    download.value.save_as(tmp_path / "orders.csv")

    content = (tmp_path / "orders.csv").read_bytes()
    assert [content] == list(place.objects().values())
    assert download.value.suggested_filename.endswith(".csv")
    expect(card.locator(".hash")).to_have_text(hashlib.sha256(content).hexdigest())
    assert [url for url in asked if url.startswith(place.server.endpoint) and "X-Amz-Expires=60" in url]
    server.stop()

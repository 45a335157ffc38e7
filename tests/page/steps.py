"""What the tests of the page do again and again: ask for an export, wait for a state, let the API say something."""

from __future__ import annotations

import json
import re
from typing import Any

from playwright.sync_api import expect

expect.set_options(timeout=90_000)

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


def expect_state(card, state: str) -> None:
    expect(card).to_have_attribute("data-state", state)


def expect_under_way(card) -> None:
    expect(card).to_have_attribute("data-state", re.compile("queued|running"))


def cancel(card) -> None:
    """Cancel, and wait until the server has."""
    card.get_by_role("button", name="Cancel").click()
    expect_state(card, "cancelled")


def run_shown(**changes: Any) -> dict[str, Any]:
    """A run as the API shows it, for states that are hard to catch in the act."""
    at = "2026-01-01T00:00:0{}Z".format
    progress = {
        "processed": 12000,
        "total": 336776,
        "unit": "rows",
        "logical_count": None,
        "logical_count_unit": None,
    }
    asked = {
        "dataset": "orders",
        "format": "csv",
        "compression": None,
        "options": {},
        "parameters": {},
        "columns": None,
    }
    times = {"as_of": at(0), "requested_at": at(0), "started_at": at(1), "heartbeat_at": at(2), "updated_at": at(2)}
    unknown = dict.fromkeys(
        ("cancel_requested_at", "queue_position", "finished_at", "expires_at", "file", "complete", "failure")
    )
    identity = {"id": "0190-shown", "token": "shown", "flow": "export", "revision": 7}
    doing = {"state": "running", "phase": "writing", "progress": progress, "notices": []}
    return {**identity, **asked, **times, **unknown, **doing, **changes}


def ready_shown(**changes: Any) -> dict[str, Any]:
    """A run whose file is there."""
    file = {
        "name": "orders.csv",
        "media_type": "text/csv",
        "bytes": 1234567,
        "rows": 336776,
        "sha256": "ab" * 32,
        "snapshot_at": "2026-01-01T00:00:01Z",
        "columns": [{"key": "id", "header": "id", "type": "integer"}],
    }
    done = {"state": "ready", "phase": None, "file": file, "complete": True, "expires_at": "2126-01-01T00:00:00Z"}
    return run_shown(**{**done, **changes})


def let_list_say(page, *runs: dict[str, Any]) -> None:
    """Let the list of the API say this, and let the page look at once."""
    page.unroute(LISTED)
    page.route(LISTED, lambda route: route.fulfill(json={"items": list(runs), "next_cursor": None}))
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def let_refuse(page, address: re.Pattern[str], status: int, code: str, detail: str, **headers: str) -> None:
    """Let an address of the API answer with a problem."""
    problem = {"type": "about:blank", "title": code, "status": status, "detail": detail, "code": code, "errors": []}
    page.route(
        address,
        lambda route: route.fulfill(
            status=status, content_type="application/problem+json", headers=headers, body=json.dumps(problem)
        ),
    )


def width_of(page) -> int:
    return page.evaluate("document.documentElement.scrollWidth")


def tab_to(page, locator, steps: int = 60) -> None:
    """Press Tab until the focus is there."""
    for _ in range(steps):
        if locator.evaluate("node => node === document.activeElement"):
            return
        page.keyboard.press("Tab")
    message = "the keyboard does not get there"
    raise AssertionError(message)

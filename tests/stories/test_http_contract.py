"""What programs rely on, in literal words: the members of a run in every state, and that its token stays the same."""

from __future__ import annotations

import re

import pytest

from haulage.core.progress import Progress

INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
RUN = {
    "id", "token", "flow", "dataset", "parent_kind", "parent", "format", "compression", "options", "parameters",
    "columns", "group_by", "subtotals", "pivot", "state", "phase",
    "cancel_requested_at", "progress", "queue_position", "revision", "as_of", "requested_at", "started_at",
    "heartbeat_at", "updated_at", "finished_at", "expires_at", "file", "complete", "notices", "failure",
}  # fmt: skip
PROGRESS = {"processed", "total", "unit", "logical_count", "logical_count_unit"}
FILE = {"name", "media_type", "bytes", "rows", "sha256", "snapshot_at", "columns"}
ALWAYS = {"as_of", "requested_at"}
# What is known in a state, of the members that may be unknown; everything else of them is null.
KNOWN = {
    "queued": {"queue_position"},
    "running": {"started_at", "heartbeat_at", "updated_at", "phase"},
    "stopping": {"started_at", "heartbeat_at", "updated_at", "phase", "cancel_requested_at"},
    "ready": {"started_at", "heartbeat_at", "finished_at", "expires_at", "file", "complete"},
    "failed": {"started_at", "heartbeat_at", "finished_at", "failure"},
    "cancelled": {"cancel_requested_at", "finished_at"},
    "expired": {"started_at", "heartbeat_at", "finished_at", "expires_at"},
    "lost": {"started_at", "heartbeat_at", "finished_at", "failure"},
}
MAY_BE_UNKNOWN = set().union(*KNOWN.values())


def brought(house, client, place, ending):
    """Lead a queued run on, through the doors or as its worker would."""
    if ending == "cancelled":
        client.delete(place)
    elif ending != "queued":
        held, run = house.claim()
        if ending in ("running", "stopping"):
            house.store.exports.heartbeat([(held, Progress("writing", 12, 20))], lease_seconds=15)
        elif ending == "failed":
            house.fail(held)
        else:
            house.finish(held, run)
        if ending == "stopping":
            client.delete(place)
        elif ending == "expired":
            client.post(f"{place}/expire")
        elif ending == "lost":
            (house.folder / "artifacts" / "files" / run.artifact_key).unlink()
            assert 410 == client.get(client.post(f"{place}/file").json()["url"]).status_code


@pytest.mark.parametrize("ending", KNOWN)
def test_a_run_has_these_members_and_null_is_what_is_not_known(house, ending):
    client = house.client("key-amina")
    place = client.post("/api/exports", json={"dataset": "orders"}).headers["location"]
    brought(house, client, place, ending)

    run = client.get(place).json()

    known = {name for name in MAY_BE_UNKNOWN if run[name] is not None}
    assert RUN == set(run)
    assert PROGRESS == set(run["progress"])
    assert KNOWN[ending] == known
    assert ("export", "orders", "csv", "rows") == (run["flow"], run["dataset"], run["format"], run["progress"]["unit"])
    assert {"stopping": "running", "lost": "failed"}.get(ending, ending) == run["state"]
    assert all(INSTANT.fullmatch(run[name]) for name in (known | ALWAYS) if name.endswith(("_at", "as_of")))
    assert run in client.get("/api/exports").json()["items"]


def test_a_file_and_a_failure_have_these_members(house):
    client = house.client("key-amina")
    ready = house.ready(client)
    place = client.post("/api/exports", json={"dataset": "orders"}).headers["location"]
    house.fail(house.claim()[0], "source_failed")

    failed = client.get(place).json()

    assert FILE == set(ready["file"])
    assert [{"key", "header", "type"}] * 2 == [set(column) for column in ready["file"]["columns"]]
    assert {"code": "source_failed", "message": "The data source refused the query."} == failed["failure"]
    assert (None, True, "orders.csv") == (failed["file"], ready["complete"], ready["file"]["name"])


@pytest.mark.slow
@pytest.mark.parametrize("ending", KNOWN)
def test_a_token_stays_the_same_and_is_answered_whatever_becomes_of_the_run(house, ending):
    client = house.client("key-amina")
    asked = client.post("/api/exports", json={"dataset": "orders"})
    brought(house, client, asked.headers["location"], ending)
    house.passes(3)

    seen = client.get(asked.headers["location"])

    assert 200 == seen.status_code
    assert asked.json()["token"] == seen.json()["token"] == client.get("/api/exports").json()["items"][0]["token"]

"""A running download whose policy changes is cut, and the source is not asked for every piece of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.stories.conftest import read_all
from tests.stories.test_http_downloads import LARGE, begin, served

from haulage.exports import policies
from haulage.web.download import PIECE_BYTES

pytestmark = pytest.mark.slow


@pytest.fixture
def download(house, serve):
    """A large file of a dataset whose policy a function tells: how to begin fetching it, what it answers, who asked."""
    answers, asked = {"now": "1"}, []

    def revision(requester):
        asked.append(requester)
        return answers["now"]

    orders = house.catalogue.find("orders")
    house.catalogue._datasets["orders"] = replace(orders, policy_revision=revision)
    app = house.app()
    client = house.client("key-amina", app=app)
    finish = house.store.exports.settle

    def settle(held, move, values):  # what a worker writes beside the rest
        finish(held, move, {**values, "policy_revision": policies.revision_of(policies.FUNCTION, "1")})

    house.store.exports.settle = settle
    run = house.ready(client, LARGE)
    with serve(app) as server:
        yield lambda: begin(server, house.link(client, run), {"Authorization": "Bearer key-amina"}), answers, asked


def test_a_running_download_is_cut_when_the_policy_changes(house, download, monkeypatch):
    start, answers, _ = download
    monkeypatch.setattr(policies, "LATELY_SECONDS", 0)
    connection, head, _ = start()
    assert b"200 OK" in head
    answers["now"] = "2"
    read_all(connection)

    assert served(house).sent_bytes < len(LARGE)
    assert not served(house).whole


def test_a_running_download_does_not_ask_for_every_piece(house, download):
    """It looks at the grants before each piece here."""
    start, _, asked = download
    connection, _, body = start()
    whole = len(body) + len(read_all(connection))

    assert len(LARGE) == whole
    assert served(house).whole
    assert len(asked) < len(LARGE) // PIECE_BYTES // 8


def test_a_host_that_is_silent_for_a_moment_cuts_nothing(house, download, monkeypatch):
    start, answers, _ = download
    monkeypatch.setattr(policies, "LATELY_SECONDS", 0)
    connection, _, body = start()
    answers["now"] = object()
    came = len(connection.recv(65536))
    answers["now"] = "1"

    assert len(LARGE) == len(body) + came + len(read_all(connection))
    assert served(house).whole

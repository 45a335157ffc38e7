"""What a run keeps of its requester is bounded: a byte more is refused at the request, by each door of each store."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace

import pytest
from starlette.testclient import TestClient
from tests.conformance.cases import STORES
from tests.stories.terminal import CONFIGURATION, Terminal

from haulage import Haulage, Requester
from haulage.core.errors import Refused
from haulage.core.limits import KIB
from haulage.core.ports import Presence, Query

pytestmark = pytest.mark.slow
MOST = 8 * KIB
TOO_MANY = "Your grants are too many to be kept with an export."


def requester_of(size):
    """One whose snapshot has so many bytes; what is not ASCII counts as it is kept, escaped."""
    made = Requester("default", "amina", frozenset({"报告"}))
    for filling in ("x" * n for n in range(size)):
        if len(json.dumps(made.frozen())) + 4 + len(filling) == size:
            return replace(made, grants=made.grants | {filling})
    raise AssertionError("no such size")


@pytest.fixture(params=list(STORES))
def terminal(request, tmp_path):
    url = STORES[request.param].new(tmp_path)
    terminal = Terminal(tmp_path).shop(configuration=CONFIGURATION.replace("sqlite:///haulage.db", url))
    assert 0 == terminal.run("migrate", "up").code
    return terminal


def written(haul):
    """Everything that a request may leave."""
    store = haul.store
    held, _ = store.keys.held("default", "amina", at_most=9)
    runs = [run.id for run in store.exports.list(Query())]
    return runs, store.exports.waiting(), held, store.exports.drift(), haul.artifacts.keys()


def test_the_library_takes_one_that_just_fits_and_refuses_one_byte_more(terminal):
    with closing(Haulage.from_toml(terminal.config, observe=lambda _event: None)) as haul:
        haul.store.workers.announce(Presence("w", "here", 1, "0", "claiming", 1, 0, haul.store.now()))
        with pytest.raises(Refused) as refused:
            haul.exports.request(requester_of(MOST + 1), "orders", idempotency_key="k")
        left = written(haul)
        taken = haul.exports.request(requester_of(MOST), "orders", idempotency_key="k")
        kept = haul.store.exports.get(taken.id).requester

    assert ("too_large", TOO_MANY) == (refused.value.code, refused.value.detail)
    assert ([], 0, 0, [], []) == left
    assert requester_of(MOST) == Requester.thawed(kept)


def test_over_http_it_is_a_problem_and_not_a_line_is_written(terminal):
    seen = []
    with closing(Haulage.from_toml(terminal.config, observe=seen.append)) as haul:
        haul.store.workers.announce(Presence("w", "here", 1, "0", "claiming", 1, 0, haul.store.now()))
        who = {"big": replace(requester_of(MOST + 1), session="s"), "fits": replace(requester_of(MOST), session="s")}
        app = haul.asgi(authenticate=lambda request: who[request.headers["x-who"]])
        with TestClient(app, base_url="http://localhost") as client:
            asked = {"json": {"dataset": "orders"}}
            answers, left = [], []
            for name in ("big", "fits"):
                headers = {"x-who": name, "idempotency-key": "k"}
                answers.append(client.post("/exports", **asked, headers=headers))
                left.append(written(haul))

    refused, taken = answers
    problem = refused.json()
    assert (413, "too_large", TOO_MANY) == (refused.status_code, problem["code"], problem["detail"])
    assert "application/problem+json" == refused.headers["content-type"]
    assert ([], 0, 0, [], []) == left[0]
    assert (202, 1) == (taken.status_code, left[1][1])
    assert ["RequestRefused", "RunRequested"] == [
        type(each).__name__ for each in seen if type(each).__name__.startswith(("Request", "Run"))
    ]


def test_the_command_line_says_so_and_leaves_no_worker_and_no_run(terminal):
    configuration = terminal.config.read_text()
    many = json.dumps([f"grant-{n:04}" for n in range(800)])
    terminal.config.write_text(configuration.replace('grants = ["operator"]', f"grants = {many}"))
    refused = terminal.run("export", "orders", "-o", "orders.csv")
    terminal.config.write_text(configuration)
    listed = terminal.run("runs", "list", "--json")
    with closing(Haulage.from_toml(terminal.config, observe=lambda _event: None)) as haul:
        left, workers = written(haul), haul.store.workers.seen(600)
    built = terminal.run("export", "orders", "-o", "orders.csv")

    assert refused.code != 0
    assert TOO_MANY in refused.err
    assert "requester_bytes" in refused.err
    assert [] == listed.document["items"]
    assert ([], 0, 0, [], []) == left
    assert [] == workers
    assert 0 == built.code, built.err
    assert 201 == len(terminal.folder.joinpath("orders.csv").read_text().splitlines())

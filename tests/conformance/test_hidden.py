"""What a requester may not see shows nowhere: with three hidden rows and three hundred all answers are the same."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.conformance.source_cases import CASES
from tests.conformance.test_policy import Place

from haulage.core.catalogue import Dataset
from haulage.core.limits import BuildLimits
from haulage.core.requester import Requester
from haulage.sources import SOURCES

pytestmark = pytest.mark.slow

CHANGING = re.compile(  # what is another in each run, whatever is hidden
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|\d{4}-\d\d-\d\dT[\d:.]+Z|[A-Za-z0-9_-]{20,}(?:\.[A-Za-z0-9_-]{20,})+"
    r'|W/"[^"]*"|\w{3}, \d\d \w{3} \d{4} [\d:]{8} GMT|"(?:revision)": ?\d+'
)
WISHES = ({}, {"format": "json"}, {"columns": ["id", "owner"]}, {"columns": ["secret"]})
HEADERS = ("etag", "content-length", "repr-digest", "content-type", "retry-after", "content-disposition")


class Papers(Place):
    """A place with so many rows that amina may not see."""

    def __init__(self, case, folder, hidden):
        super().__init__(case, folder)
        self.people.keys["key-ceri"] = Requester("north", "ceri", frozenset({"counts.all"}), key="ceri")
        case.execute("create table papers (id integer, owner varchar(20), note varchar(300))")
        for first in range(0, hidden, 100):
            rows = [f"({n}, 'ben', '{'x' * (n % 90)}')" for n in range(first, min(hidden, first + 100))]
            case.execute(f"insert into papers values {', '.join(rows)}")
        self.catalogue._datasets["papers"] = Dataset(
            "papers", "shop", sql="select id, owner, note from papers", visible="owner = :requester_account",
            order=("note",),
            key=("id",), formats=("csv", "json", "xlsx", "parquet"),
            limits=replace(BuildLimits(), rows=2),
        )  # fmt: skip

    def transcript(self, key, wishes=WISHES):
        """Everything that doors say to a requester, with what is another each time left out."""
        client, said = self.client(key), []

        def hear(answer):
            headers = [(name, answer.headers.get(name)) for name in HEADERS]
            body = answer.text if "json" in answer.headers.get("content-type", "") else answer.content.hex()
            said.append((answer.status_code, CHANGING.sub("*", f"{headers} {body}")))
            return answer

        for query in ("", "?population=true", "?nothing=1", "?population=2"):
            hear(client.get(f"/api/datasets/papers/counts{query}"))
        for wish in wishes:
            self.passes(0.1)  # lists have an order
            asked = hear(client.post("/api/exports", json={"dataset": "papers", **wish}))
            if asked.status_code != 202:
                continue
            kept = self.work()
            run = hear(client.get(asked.headers["location"])).json()
            if kept.state != "ready":
                continue
            link = self.link(client, run)
            hear(client.head(link))
            hear(client.get(link))
            hear(client.get(link, headers={"Range": "bytes=0-3"}))
        hear(client.get("/api/exports"))
        hear(client.get("/api/datasets"))
        return said


@pytest.fixture(params=[name for name in SOURCES if name != "mysql"])
def few_and_many(request, tmp_path):
    places, cases = [], []
    for hidden in (3, 300):
        folder = tmp_path / str(hidden)
        folder.mkdir()
        cases.append(CASES[request.param](folder))
        places.append(Papers(cases[-1], folder, hidden))
    yield places
    for each in (*places, *cases):
        each.close()


def test_whoever_sees_nothing_gets_nothing_and_no_answer_tells_how_much_there_is(few_and_many):
    few, many = (place.transcript("key-amina") for place in few_and_many)

    assert 15 < len(few)
    assert {200, 202, 206, 422} == {status for status, _ in few}
    assert few == many
    assert '"output_count":null,"visible_output_count":0,"population_count":null' in few[0][1]
    assert '"population_count":0,"population_count_computed":true' in few[1][1]

    # And only who may know all counts is told, in them and nowhere else; who may see the rows has them.
    few, many = (place.transcript("key-ceri", wishes=({},)) for place in few_and_many)
    assert [0, 1] == [place for place, (one, other) in enumerate(zip(few, many, strict=True)) if one != other]
    assert '"output_count":3,"visible_output_count":0,' in few[0][1]
    assert '"output_count":300,"visible_output_count":0,"population_count":0,' in many[1][1]
    few, many = (place.transcript("key-ben", wishes=()) for place in few_and_many)
    assert '"visible_output_count":3,' in few[0][1]
    assert '"visible_output_count":300,' in many[0][1]

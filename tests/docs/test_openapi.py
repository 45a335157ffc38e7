"""The OpenAPI document says what the doors do: every route, every status, every shape, and nothing else."""

from __future__ import annotations

import json
from collections import defaultdict

import jsonschema
import pytest
from fastapi.routing import iter_route_contexts
from openapi_spec_validator import OpenAPIV31SpecValidator
from tests.stories.conftest import House

from haulage.core.errors import CATALOGUE
from haulage.exports.life import ExportLife
from haulage.web.openapi import operations

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    house = House(tmp_path_factory.mktemp("house"))
    yield house
    house.close()


@pytest.fixture(scope="module")
def document(house):
    return house.client().get("/openapi.json").json()


def mounted(house):
    return house.app(lambda _request: None)


def test_the_document_is_valid(house, document):
    for each in (document, mounted(house).openapi()):
        assert each["openapi"].startswith("3.1")
        OpenAPIV31SpecValidator(each).validate()


def test_every_reference_leads_somewhere_and_every_shape_is_used(document):
    text = json.dumps(document)
    schemas = document["components"]["schemas"]

    for name in schemas:
        assert f'"#/components/schemas/{name}"' in text, f"{name} is not used"
    assert set(schemas) >= {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}


@pytest.mark.parametrize("alone", [True, False])
def test_every_route_is_described_and_nothing_else(house, alone):
    app = house.app() if alone else mounted(house)
    served = {(method, route.path_format) for route in iter_route_contexts(app.routes) for method in route.methods}
    described = {
        (method.upper(), path.replace("{name}", "{name:path}") if path.startswith("/page") else path)
        for path, methods in app.openapi()["paths"].items()
        for method in methods
    }

    served = {(method, path.replace("/page/{name}", "/page/{name:path}")) for method, path in served}
    assert served - {("GET", "/api/openapi.json")} == described
    assert (("POST", "/api/session") in served) is alone


def test_every_code_of_a_door_is_described(document):
    text = json.dumps(document)
    doors = {code for code, failure in CATALOGUE.items() if failure.status}
    # What the router and the framework say, not one route.
    anywhere = {"method_not_allowed", "not_acceptable"}

    assert {code for code in doors - anywhere if f"`{code}`" not in text} == set()


def test_every_refusal_is_a_problem(document):
    for operation in operations(document):
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                assert {"$ref": "#/components/schemas/Problem"} == response["content"]["application/problem+json"][
                    "schema"
                ]


def test_who_asks_is_stated(document, house):
    assert {"key", "session"} == set(document["components"]["securitySchemes"])
    for operation in operations(document):
        assert ("401" in operation["responses"]) == ("security" in operation) or "KeyShown" in json.dumps(operation)
    assert "securitySchemes" not in mounted(house).openapi()["components"]


def test_bounds_are_stated(document):
    wish = document["components"]["schemas"]["ExportWish"]
    listed = {each["name"]: each["schema"] for each in document["paths"]["/api/exports"]["get"]["parameters"]}
    file = document["paths"]["/api/files/{file_token}"]["get"]["parameters"]
    ranges = [each for each in file if each["name"] == "Range"]
    tokens = {
        json.dumps(each["schema"]["pattern"])
        for operation in operations(document)
        for each in operation.get("parameters", [])
        if each["name"] in ("token", "file_token")
    }

    assert wish["additionalProperties"] is False
    assert (1, 200) == (listed["limit"]["minimum"], listed["limit"]["maximum"])
    assert {"state", "dataset", "parent", "parent_kind", "limit", "cursor", "everyone"} == set(listed)
    assert 1 == len(tokens)
    assert [{"type": "string"}] == [each["schema"] for each in ranges]
    assert "64 KiB" in document["info"]["description"]
    assert set(ExportLife.states) == set(document["components"]["schemas"]["RunShown"]["properties"]["state"]["enum"])


def answers(house):
    """What is really answered to a little of everything, as (method, path template, answer)."""
    client, operator = house.client("key-amina"), house.client("key-omar")
    run = house.ready(client)
    queued = client.post("/api/exports", json={"dataset": "orders", "format": "json"})
    failing = client.post("/api/exports", json={"dataset": "orders", "format": "ndjson"}).json()
    house.fail(house.claim()[0])
    link = house.link(client, run)
    place = f"/api/exports/{run['token']}"
    yield "POST", "/api/exports", queued
    yield "POST", "/api/exports", client.post("/api/exports", json={"dataset": "orders", "format": "ndjson"})
    yield "POST", "/api/exports", client.post("/api/exports", json={"dataset": "nothing"})
    yield "POST", "/api/exports", client.post("/api/exports", json={"datasets": "nothing"})
    yield "POST", "/api/exports", client.post("/api/exports", content=b"x")
    yield "GET", "/api/exports", client.get("/api/exports?limit=1")
    yield "GET", "/api/exports", client.get("/api/exports?limit=0")
    yield "GET", "/api/exports", house.client().get("/api/exports")
    yield "GET", "/api/exports/{token}", client.get(place)
    yield "GET", "/api/exports/{token}", client.get(f"/api/exports/{failing['token']}")
    yield "GET", "/api/exports/{token}", client.get("/api/exports/x")
    yield "POST", "/api/exports/{token}/file", client.post(f"{place}/file")
    yield "GET", "/api/files/{file_token}", client.get(link)
    yield "GET", "/api/files/{file_token}", client.get(link, headers={"Range": "bytes=99-"})
    yield "GET", "/api/files/{file_token}", client.get(link, headers={"Range": "bytes=0-1"})
    yield "DELETE", "/api/exports/{token}", client.delete(place)
    yield "DELETE", "/api/exports/{token}", client.delete(queued.headers["location"])
    yield "POST", "/api/exports/{token}/expire", client.post(f"{place}/expire")
    yield "GET", "/api/datasets", client.get("/api/datasets")
    yield "GET", "/api/datasets/{name}/counts", operator.get("/api/datasets/orders/counts")
    yield "GET", "/api/session", client.get("/api/session")
    yield "POST", "/api/session", house.client().post("/api/session", json={"key": "key-amina"})
    yield "GET", "/api/workers", operator.get("/api/workers")
    yield "GET", "/api/workers", client.get("/api/workers")
    yield "GET", "/api/storage", client.get("/api/storage")
    yield "GET", "/api/metrics", operator.get("/api/metrics")
    yield "GET", "/", client.get("/")
    yield "GET", "/page/{name}", client.get("/page/page.js")
    yield "GET", "/openapi.json", client.get("/openapi.json")
    yield "GET", "/api/exports/{token}/events", client.get(f"{place}/events")
    yield "GET", "/api/health/live", client.get("/api/health/live")
    yield "GET", "/api/health/ready", client.get("/api/health/ready")


def test_what_is_answered_is_what_is_described(house, document):
    seen = defaultdict(set)
    for method, path, answer in answers(house):
        described = document["paths"][path][method.lower()]["responses"]
        assert str(answer.status_code) in described, (method, path, answer.status_code)
        seen[path].add(answer.status_code)
        response = described[str(answer.status_code)]
        for name in response.get("headers", {}):
            if name != "Retry-After":
                assert name in answer.headers, (method, path, answer.status_code, name)
        media_type = answer.headers["content-type"]
        assert {media_type, "*/*"} & set(response["content"]), (method, path, media_type)
        if media_type.endswith("json") and answer.content:
            schema = response["content"][media_type]["schema"]
            jsonschema.Draft202012Validator({**schema, "components": document["components"]}).validate(answer.json())
    assert {202, 200, 404, 422, 415} <= seen["/api/exports"] | seen["/api/exports/{token}"]

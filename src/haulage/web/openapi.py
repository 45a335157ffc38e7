"""The OpenAPI 3.1 document: what each route states about itself, and what is true of all of them.

``says`` and ``body`` are used beside the routes. ``describe`` makes the document, and ``router`` serves it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from starlette.responses import Response

from haulage.core.errors import CATALOGUE
from haulage.web.access import SECURE_COOKIE
from haulage.web.answers import representation
from haulage.web.problem import MEDIA_TYPE as PROBLEM
from haulage.web.services import door_of
from haulage.web.shown import Problem

router = APIRouter()

# Of every route that asks who asks.
ANYWHERE = ("unauthenticated", "too_many_attempts", "store_unavailable", "host_silent", "internal")
SUMMARY = """Durable exports: asked for here, built by a worker, fetched when they are ready.

Every error is an RFC 9457 problem with a `code`. HEAD is answered wherever GET is. A request body is at most
64 KiB. What is not yours does not exist: one and the same 404."""
HEADERS: Mapping[str, str] = {
    "ETag": "Names this representation.",
    "Location": "Where it can be read.",
    "Content-Location": "Where this representation can be read again.",
    "Retry-After": "Seconds after which another look makes sense.",
    "Idempotent-Replayed": "`true` where an earlier request with the same key was answered again.",
    "WWW-Authenticate": "How to sign in.",
    "Allow": "The methods that this address answers.",
    "Accept-Ranges": "`bytes`.",
    "Content-Range": "Which bytes of how many.",
    "Content-Length": "Bytes that follow.",
    "Content-Disposition": "The file's name (RFC 6266, RFC 8187).",
    "Repr-Digest": "SHA-256 of the whole file (RFC 9530).",
    "Last-Modified": "When the file was finished.",
    "Set-Cookie": "The cookie of the sign-in.",
}


def says(
    answers: Mapping[int, type[BaseModel] | str | None],
    *codes: str,
    public: bool = False,
    headers: tuple[str, ...] = (),
) -> dict[int | str, dict[str, Any]]:
    """What a route answers, and the codes of the catalogue with which it can refuse.

    Args:
        answers: by status a shape of JSON, another media type, or None for no body. A route without a shape
            also takes ``response_class=Response``, or the framework states JSON by itself.
        public: it does not ask who asks, which would take the store.
        headers: of its successful answers, beside those that follow from the status.
    """
    responses: dict[int | str, dict[str, Any]] = {}
    for status, model in answers.items():
        described: dict[str, Any] = {"description": _DESCRIPTIONS[status]}
        if isinstance(model, str):
            described["content"] = {model: {"schema": {"type": "string"} if model.startswith("text/") else {}}}
        elif model is not None:
            described["model"] = model
        named = (*_HEADERS_OF.get(status, ()), *headers)
        if named:
            described["headers"] = {name: _header(name) for name in named}
        responses[status] = described
    reasons: dict[int, list[str]] = {}
    for code in (*codes, *(("internal",) if public else ANYWHERE)):
        reasons.setdefault(CATALOGUE[code].status, []).append(f"`{code}`: {CATALOGUE[code].sentence}")
    for status, sentences in sorted(reasons.items()):
        schema = {"$ref": "#/components/schemas/Problem"}
        refusal: dict[str, Any] = {"description": "\n\n".join(sentences), "content": {PROBLEM: {"schema": schema}}}
        if status in _HEADERS_OF:
            refusal["headers"] = {name: _header(name) for name in _HEADERS_OF[status]}
        # 304 and the like come with no body, so no refusal shares a status with an answer.
        assert status not in responses, f"{status} is both an answer and a refusal"
        responses[status] = refusal
    return responses


_DESCRIPTIONS = {
    200: "It is so.",
    201: "Made.",
    202: "Accepted; it goes on.",
    206: "The bytes asked for.",
    303: "Go on there.",
    304: "Not changed.",
}
_HEADERS_OF: Mapping[int, tuple[str, ...]] = {
    201: ("Location",),
    202: ("Retry-After",),
    206: ("Content-Range",),
    303: ("Location",),
    304: ("ETag",),
    401: ("WWW-Authenticate",),
    405: ("Allow",),
    416: ("Content-Range",),
    429: ("Retry-After",),
    503: ("Retry-After",),
}


def _header(name: str) -> dict[str, Any]:
    return {"description": HEADERS[name], "schema": {"type": "string"}}


def body(shape: type[BaseModel]) -> dict[str, Any]:
    """The request body of a route that reads it by ``bodies.py``."""
    schema = {"$ref": f"#/components/schemas/{shape.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def describe(app: FastAPI, shapes: tuple[type[BaseModel], ...], version: str, *, mounted: bool) -> dict[str, Any]:
    """The whole document, without the servers, which depend on where it is asked for.

    Args:
        shapes: models that no route's answer names: request bodies and the problem.
        mounted: a host says who asks, in a way that we do not know.
    """
    document = get_openapi(
        title="Haulage",
        version=version or "0",
        description=SUMMARY,
        routes=app.routes,
        separate_input_output_schemas=False,
    )
    schemas: dict[str, Any] = document.setdefault("components", {}).setdefault("schemas", {})
    named: tuple[type[BaseModel], ...] = (*shapes, Problem)
    for shape in named:
        schema = shape.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {})
        schemas[shape.__name__] = schema
    _drop_what_is_not_so(document)
    if not mounted:
        document["components"]["securitySchemes"] = {
            "key": {"type": "http", "scheme": "bearer"},
            "session": {"type": "apiKey", "in": "cookie", "name": SECURE_COOKIE},
        }
        for operation in operations(document):
            if "401" in operation["responses"]:
                operation["security"] = [{"key": []}, {"session": []}]
    return document


def _drop_what_is_not_so(document: Mapping[str, Any]) -> None:
    """The framework adds a 422 of its own shape wherever there are parameters; ours are stated or do not happen."""
    for operation in operations(document):
        if "HTTPValidationError" in str(operation["responses"].get("422")):
            del operation["responses"]["422"]
    for unused in ("HTTPValidationError", "ValidationError", "S"):
        document["components"]["schemas"].pop(unused, None)


def operations(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every operation of a document."""
    return [operation for path in document["paths"].values() for operation in path.values()]


@router.get(
    "/openapi.json",
    tags=["document"],
    response_class=Response,
    responses=says({200: "application/json", 304: None}, public=True),
)
def show_document(request: Request) -> Response:
    """This document."""
    prefix = door_of(request).base(request.scope).removesuffix(door_of(request).prefix)
    document = request.app.openapi()
    return representation(request, {**document, "servers": [{"url": prefix or "/"}]})

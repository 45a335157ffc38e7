"""Every refusal as an RFC 9457 problem: our own, the framework's, a store that is silent, and the unexpected.

A problem never holds a path, SQL, a stack trace or a value of a row. All refusals with one code look alike
to the byte, so that a foreign run cannot be told from one that never was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from secrets import token_hex
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from haulage.core import events
from haulage.core.errors import CATALOGUE, Fault, Refused, StoreUnavailable, pointer_to
from haulage.web.answers import written
from haulage.web.services import door_of

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:problem-type:haulage:"  # followed by the code
STORE_RETRY_SECONDS = 2
DENIED = ("unauthenticated", "csrf", "forbidden", "not_found", "too_many_attempts")  # who may not, or is not known
FAULTS_MAX = 20  # listed in one problem; how many more there are is said
POINTER_MAX = 200  # characters of a pointer
DETAIL_MAX = 500  # and of what is said about it
CODES = {400: "malformed", 401: "unauthenticated", 403: "forbidden", 404: "not_found", 405: "method_not_allowed"}


def install(app: FastAPI) -> None:
    """Answer everything that is raised inside the application; what is left is ``incident``'s."""
    app.exception_handler(Refused)(_refused)
    app.exception_handler(StoreUnavailable)(_store_unavailable)
    app.exception_handler(RequestValidationError)(_invalid)
    app.exception_handler(HTTPException)(_http)


def problem(
    code: str,
    *,
    status: int | None = None,
    title: str | None = None,
    detail: str | None = None,
    faults: Sequence[Fault] = (),
    headers: Mapping[str, str] | None = None,
    **members: Any,
) -> Response:
    """One problem document.

    Args:
        code: of the catalogue; status, title and sentence are its own unless they are given.
        faults: what is wrong with each member that was sent.
        members: further members of the document, such as ``state``.
    """
    failure = CATALOGUE[code]
    status = status or failure.status
    body = {
        "type": TYPE_PREFIX + code,
        "title": title or failure.title,
        "status": status,
        "detail": detail or failure.sentence,
        "code": code,
        "errors": _listed(faults),
        **members,
    }
    given = {"Cache-Control": "no-store", **(headers or {})}
    if status == HTTPStatus.UNAUTHORIZED:
        given["WWW-Authenticate"] = 'Bearer realm="haulage"'
    return Response(written(body), status, given, MEDIA_TYPE)


def _listed(faults: Sequence[Fault]) -> list[dict[str, str]]:
    """The first faults: an answer must not grow with what was sent, neither by their number nor by their names."""
    shown = [
        {"pointer": _short(each.pointer, POINTER_MAX), "detail": _short(each.detail, DETAIL_MAX)}
        for each in faults[:FAULTS_MAX]
    ]
    if more := len(faults) - len(shown):
        shown.append({"pointer": "", "detail": f"and {more:,} more"})
    return shown


def _short(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1] + "…"


def refused_as(refused: Refused, headers: Mapping[str, str] | None = None) -> Response:
    """A refusal as a problem."""
    given = dict(headers or {})
    if refused.retry_after is not None:
        given["Retry-After"] = str(refused.retry_after)
    members: dict[str, Any] = {} if refused.state is None else {"state": refused.state}
    return problem(refused.code, detail=refused.detail, faults=refused.faults, headers=given, **members)


def incident(observe: events.Observe, where: str, raised: Exception) -> Response:
    """Something nobody expected: the log learns what, the client a number to report."""
    number = token_hex(6)
    observe(events.Incident(number, where, f"{type(raised).__name__}: {raised}"[:500]))
    return problem("internal", detail=f"Something went wrong here. Incident {number}.", incident=number)


async def _refused(request: Request, raised: Exception) -> Response:
    assert isinstance(raised, Refused)
    if raised.code in DENIED and not raised.observed:
        _observe_denial(request, raised.code)
    return refused_as(raised)


def _observe_denial(request: Request, code: str) -> None:
    """Tell the log who wanted what; the route and never the path, which holds a token."""
    who = getattr(request.state, "who", None)
    what = f"{request.method} {getattr(request.scope.get('route'), 'path', 'unknown')}"
    if who is not None:
        tenant, account = who.tenant, who.account
    elif code != "not_found":  # that of a public file is no denial
        tenant = account = ""
        what += f" from {request.client.host if request.client else 'nowhere'}"
    else:
        return
    door_of(request).services.observe(events.RequestRefused(code, tenant, account, what))


async def _store_unavailable(request: Request, raised: Exception) -> Response:
    door_of(request).services.observe(events.StoreFailed("door", str(raised), STORE_RETRY_SECONDS))
    return problem("store_unavailable", headers={"Retry-After": str(STORE_RETRY_SECONDS)})


async def _invalid(_request: Request, raised: Exception) -> Response:
    """What FastAPI found in the query or a header; bodies are read in ``bodies.py``."""
    assert isinstance(raised, RequestValidationError)
    return problem("invalid", faults=[Fault(pointer_to(*each["loc"]), each["msg"]) for each in raised.errors()])


async def _http(request: Request, raised: Exception) -> Response:
    """What the router says (no such address, no such method), or a host's ``authenticate`` raised."""
    assert isinstance(raised, HTTPException)
    status = raised.status_code
    headers = {name: value for name, value in (raised.headers or {}).items() if name.lower() == "retry-after"}
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        route = getattr(request.scope.get("route"), "path", "")
        headers["Allow"] = request.app.state.methods.get(route, "GET")  # The router would name those of one route.
    if status in CODES:
        return problem(CODES[status], headers=headers)
    code = "malformed" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "internal"
    phrase = HTTPStatus(status).phrase
    return problem(code, status=status, title=phrase, detail=f"{phrase}.", headers=headers)

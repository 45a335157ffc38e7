"""Signing in with a key, signing out, and the link that signs in once. A host's own sessions are not ours.

The cookie holds 32 random bytes; the store holds their hash. A session ends at its time, at sign-out, or when
its key leaves the configuration.
"""

from __future__ import annotations

import secrets
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from haulage.core.errors import Refused
from haulage.core.ports import SignIn
from haulage.core.requester import Requester
from haulage.web.access import (
    Asks,
    address_of,
    by_session,
    cookie_name,
    link_id,
    no_query,
    refuse_foreign_site,
    session_id,
)
from haulage.web.answers import document, representation
from haulage.web.attempts import Attempts
from haulage.web.bodies import read_body
from haulage.web.openapi import body, says
from haulage.web.services import Services, door_of
from haulage.web.shapes import KeyShown
from haulage.web.shown import SessionShown
from haulage.web.tokens import binding_of

router = APIRouter(tags=["session"])
own_router = APIRouter(tags=["session"])  # where no host signs in

SIGNED_OUT: dict[str, object] = {"account": None, "tenant": None, "grants": [], "csrf": None, "sign_out": False}
LINK_OVER = "?link=over"  # the page says what that means
LINK_SECONDS = 600  # of a one-time link; whoever makes one keeps a SignIn under ``access.link_id`` of its token


@router.get("/session", dependencies=[Depends(no_query)], responses=says({200: SessionShown, 304: None}, "invalid"))
def show_session(request: Request, asking: Asks) -> Response:
    """Who I am, and the CSRF token that unsafe requests of this session have to show."""
    door, who = asking.door, asking.requester
    csrf = door.tokens.for_forms(asking.binding) if asking.by_cookie else None
    return representation(request, _show(who, csrf, sign_out=asking.by_cookie and not door.mounted))


async def key_shown(request: Request) -> KeyShown:
    """The key in the body, from our own page or from a program."""
    refuse_foreign_site(request)
    if cookie_name(request) is None:
        why = "Signing in needs https. Let a proxy set X-Forwarded-Proto, and name it in serve.trusted_proxies."
        raise Refused("forbidden", why)
    return await read_body(request, KeyShown)


@own_router.post(
    "/session",
    responses=says(
        {200: SessionShown}, "unauthenticated", "malformed", "csrf", "forbidden", "too_large", "unsupported_media_type",
        "invalid", "too_many_attempts", "store_unavailable", public=True, headers=("Set-Cookie",),
    ),
    openapi_extra=body(KeyShown),
)  # fmt: skip
async def sign_in(request: Request, shown: Annotated[KeyShown, Depends(key_shown)]) -> Response:
    """Turn a key into a session."""
    attempts: Attempts = request.app.state.attempts
    address, key = address_of(request), shown.key.strip()
    attempts.admit(address, key)
    attempts.failed(address, key)  # Until it is known better, or guesses sent at once would all be admitted.
    services = door_of(request).services
    who = await run_in_threadpool(services.accounts.find, key) if key.isascii() else None
    if who is None or who.key is None:
        await attempts.pause()
        raise Refused("unauthenticated", "This key is not known.")
    attempts.take_back(address)
    attempts.succeeded(address, key)
    await run_in_threadpool(_close, request)
    secret, signed = await run_in_threadpool(_open, services, who, who.key)
    csrf = door_of(request).tokens.for_forms(binding_of(signed))
    response = document(_show(signed, csrf, sign_out=True))
    _set_cookie(request, response, secret)
    return response


@own_router.delete(
    "/session",
    dependencies=[Depends(no_query)],
    responses=says({200: SessionShown}, "csrf", "forbidden", "invalid", headers=("Set-Cookie",)),
)
def sign_out(request: Request, asking: Asks) -> Response:
    """End the session at once; its tokens and its running downloads end with it."""
    if not asking.by_cookie:
        raise Refused("forbidden", "A key has no session to sign out of; take it out of the configuration.")
    _close(request)
    response = document(SIGNED_OUT)
    name = cookie_name(request)
    assert name is not None
    response.delete_cookie(name, secure=request.url.scheme == "https", httponly=True, samesite="lax")
    return response


def follow_link(request: Request, token: str) -> Response:
    """Use a one-time link: a new session and the page without the link; one that is used or over leads to a word."""
    embedded = request.headers.get("sec-fetch-dest", "document") != "document" or "sec-purpose" in request.headers
    if embedded or cookie_name(request) is None:
        return _to_page(request)  # An image of another page, or a browser that reads ahead, must not use it up.
    services = door_of(request).services
    sessions, identifier = services.store.sessions, link_id(token) if token.isascii() else ""
    # A look first: whoever makes links up must not keep others from writing.
    taken = sessions.take(identifier) if sessions.find(identifier) is not None else None
    holder = None if taken is None else services.accounts.named(taken.key_name)
    if taken is None or holder is None or (holder.tenant, holder.account) != (taken.tenant, taken.account):
        return _to_page(request, LINK_OVER)
    _close(request)
    secret, _ = _open(services, holder, taken.key_name)
    response = _to_page(request)
    _set_cookie(request, response, secret)
    return response


def _to_page(request: Request, query: str = "") -> Response:
    return RedirectResponse(request.scope.get("root_path", "") + "/" + query, 303, {"Cache-Control": "no-store"})


def _open(services: Services, who: Requester, key_name: str) -> tuple[str, Requester]:
    secret = secrets.token_urlsafe(32)
    identifier = session_id(secret)
    until = services.store.now() + int(services.doors.session_seconds * 1000)
    sign_in = SignIn(identifier, key_name, who.tenant, who.account, until)
    services.store.sessions.open(sign_in, at_most=services.doors.sessions)
    signed = by_session(services, identifier)
    if signed is None:
        raise Refused("unauthenticated", "This key is not known any more.")
    return secret, signed


def _close(request: Request) -> None:
    """End the session that the browser shows, if it does."""
    name = cookie_name(request)
    secret = request.cookies.get(name, "") if name else ""
    if secret and secret.isascii():
        door_of(request).services.store.sessions.close(session_id(secret))


def _set_cookie(request: Request, response: Response, secret: str) -> None:
    name = cookie_name(request)
    assert name is not None
    response.set_cookie(
        name,
        secret,
        max_age=int(door_of(request).services.doors.session_seconds),
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )


def _show(who: Requester, csrf: str | None, *, sign_out: bool) -> dict[str, object]:
    return {
        "account": who.account,
        "tenant": who.tenant,
        "grants": sorted(who.grants),
        "csrf": csrf,
        "sign_out": sign_out,
    }

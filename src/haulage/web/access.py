"""Who asks: a bearer key, the cookie of a sign-in, or whom the host says; and that the request is theirs.

A browser adds its cookies to requests of other sites too. So an unsafe request that came with cookies must
show the CSRF token of its session in a header, which another site can neither read nor send.
"""

from __future__ import annotations

import hashlib
import inspect
import ipaddress
from dataclasses import dataclass, replace
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from haulage.core.errors import Fault, Refused, pointer_to
from haulage.core.requester import Requester
from haulage.web.services import Door, Services, door_of
from haulage.web.tokens import binding_of

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
FOREIGN_SITES = ("cross-site", "same-site")  # of Sec-Fetch-Site; a sibling domain is not us either
SECURE_COOKIE = "__Host-haulage"
LOOPBACK_COOKIE = "haulage"  # browsers take no __Host- cookie over plain http


@dataclass(frozen=True, slots=True)
class Asking:
    """One request with who asks.

    Args:
        binding: what the tokens of this session are bound to.
        base: the path of the API as the client sees it.
        by_cookie: a browser added the proof by itself.
    """

    door: Door
    requester: Requester
    binding: str
    base: str
    by_cookie: bool

    @property
    def services(self) -> Services:
        """What is behind the door."""
        return self.door.services


async def who_asks(request: Request) -> Asking:
    """Who asks, or a refusal.

    Raises:
        Refused: ``unauthenticated``, or ``csrf``.
    """
    door = door_of(request)
    requester = await identify(door, request)
    if requester is None:
        raise Refused("unauthenticated")
    by_cookie = "cookie" in request.headers and not _sends_key(request)
    asking = Asking(door, requester, binding_of(requester), door.base(request.scope), by_cookie)
    if request.method not in SAFE_METHODS:
        _refuse_forgery(asking, request)
    return asking


def _refuse_forgery(asking: Asking, request: Request) -> None:
    if not _sends_key(request):
        refuse_foreign_site(request)
    shown = request.headers.get("x-csrf-token", "")
    if asking.by_cookie and not asking.door.tokens.holds_forms(asking.binding, shown):
        raise Refused("csrf")


def _sends_key(request: Request) -> bool:
    """A browser sends Basic and Negotiate by itself, as it does cookies; a bearer key it never does."""
    return request.headers.get("authorization", "").lower().startswith("bearer ")


Asks = Annotated[Asking, Depends(who_asks)]


def no_query(request: Request, _asking: Asks) -> None:
    """Refuse query parameters where none are known, so that a misspelt one is not silently dropped.

    Raises:
        Refused: ``invalid``.
    """
    if request.query_params:
        names = dict.fromkeys(request.query_params.keys())
        raise Refused("invalid", faults=[Fault(pointer_to("query", name), "is not known here") for name in names])


def refuse_foreign_site(request: Request) -> None:
    """Refuse what a browser says another site has sent.

    Raises:
        Refused: ``csrf``.
    """
    if request.headers.get("sec-fetch-site") in FOREIGN_SITES:
        raise Refused("csrf", "Requests that change something are not taken from other sites.")


async def identify(door: Door, request: Request) -> Requester | None:
    """Who asks, looked up now; called again while a download or a stream goes on."""
    if door.authenticate is None:
        return await run_in_threadpool(_by_key_or_cookie, door.services, request)
    call = door.authenticate
    if inspect.iscoroutinefunction(call):
        found = await call(request)
    else:  # A host's own look-up may wait for its database.
        found = await run_in_threadpool(call, request)
        if inspect.isawaitable(found):
            found = await found
    if found is not None and not isinstance(found, Requester):
        message = f"authenticate answered a {type(found).__name__}; it has to answer a Requester or None"
        raise TypeError(message)
    return found


def standing_of(asking: Asking, requester: Requester) -> Requester:
    """A requester with the grants of now, which a host may know better than its session does."""
    today = asking.services.accounts.standing(requester)
    return replace(today, session=requester.session)


def _by_key_or_cookie(services: Services, request: Request) -> Requester | None:
    if "authorization" in request.headers:
        # Whoever sends one means it: a wrong key never falls back to a cookie.
        scheme, _, text = request.headers["authorization"].partition(" ")
        text = text.strip()
        return services.accounts.find(text) if scheme.lower() == "bearer" and text.isascii() else None
    name = cookie_name(request)
    secret = request.cookies.get(name, "") if name else ""
    return by_session(services, session_id(secret)) if secret.isascii() and secret else None


def by_session(services: Services, identifier: str) -> Requester | None:
    """The requester of a sign-in that has not ended, while its key is still configured."""
    sign_in = services.store.sessions.find(identifier)
    if sign_in is None:
        return None
    holder = services.accounts.named(sign_in.key_name, session=f"cookie {sign_in.id}")
    if holder is None or (holder.tenant, holder.account) != (sign_in.tenant, sign_in.account):
        return None
    return holder


def session_id(secret: str) -> str:
    """What the store keeps of a cookie's secret."""
    return hashlib.sha256(f"haulage session {secret}".encode()).hexdigest()


def link_id(token: str) -> str:
    """What the store keeps of a one-time link; not what it would keep of a cookie, so no link is a cookie."""
    return hashlib.sha256(f"haulage link {token}".encode()).hexdigest()


def cookie_name(request: Request) -> str | None:
    """The cookie of a sign-in on this connection; None over plain http to anywhere but this machine."""
    if request.url.scheme == "https":
        return SECURE_COOKIE
    return LOOPBACK_COOKIE if is_loopback(request.headers.get("host", "")) else None


def is_loopback(host: str) -> bool:
    """Say whether a Host header names this machine."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False

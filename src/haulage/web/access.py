"""Who asks: a bearer key, the cookie of a sign-in, or whom the host says; and that the request is theirs.

A browser adds its cookies to requests of other sites too. So an unsafe request that came with cookies must
show the CSRF token of its session in a header, which another site can neither read nor send.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import ipaddress
from collections import Counter
from dataclasses import dataclass, replace
from typing import Annotated
from urllib.parse import urlsplit

from anyio import to_thread
from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from haulage.core.errors import Fault, Refused, pointer_to
from haulage.core.patience import Call, Overdue
from haulage.core.ports import LINK
from haulage.core.requester import Requester
from haulage.web.attempts import Attempts
from haulage.web.services import Authenticate, Door, Services, door_of
from haulage.web.tokens import binding_of

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
FOREIGN_SITES = ("cross-site", "same-site")  # of Sec-Fetch-Site; a sibling domain is not us either
SECURE_COOKIE = "__Host-haulage"
HOST_RETRY_SECONDS = 5  # told to whoever came while the host did not answer
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
    key = None if door.mounted else bearer_of(request)
    if key is not None:
        requester = await _by_guess(request, key)
    else:
        requester = await identify(door, request)
    if requester is None:
        raise Refused("unauthenticated")
    by_cookie = "cookie" in request.headers and not _sends_key(request)
    asking = Asking(door, requester, binding_of(requester), door.base(request.scope), by_cookie)
    request.state.who = requester  # for the log, should this be refused
    if request.method not in SAFE_METHODS:
        _refuse_forgery(asking, request)
    return asking


async def _by_guess(request: Request, key: str) -> Requester | None:
    """Who holds a bearer key; a wrong one may be a guess, and those are counted."""
    attempts: Attempts = request.app.state.attempts
    address = address_of(request)
    attempts.admit(address, key)
    requester = await identify(door_of(request), request)
    if requester is None:
        attempts.failed(address, key)
        await attempts.pause()
    else:
        attempts.succeeded(address, key)
    return requester


def address_of(request: Request) -> str:
    """Where a request comes from: the peer, or what a proxy says that the server was told to trust."""
    return request.client.host if request.client else ""


def bearer_of(request: Request) -> str | None:
    """The text of a bearer key; None where none is sent."""
    return request.headers["authorization"][len("bearer ") :].strip() if _sends_key(request) else None


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
    if faults := query_faults(request):
        raise Refused("invalid", faults=faults)


def query_faults(request: Request) -> list[Fault]:
    """A fault for each query parameter, where none are known."""
    return [Fault(pointer_to("query", name), "is not known here") for name in request.query_params]


def doubled_faults(request: Request) -> list[Fault]:
    """A fault for each query parameter that is given twice: one of the two would silently not count."""
    times = Counter(name for name, _ in request.query_params.multi_items())
    return [Fault(pointer_to("query", name), "is given twice; write it once") for name in times if times[name] > 1]


def refuse_foreign_site(request: Request) -> None:
    """Refuse what a browser says another site has sent: by ``Sec-Fetch-Site``, or by ``Origin`` where that is missing.

    A browser leaves the first out over plain http, and an old one always. A program sends neither.

    Raises:
        Refused: ``csrf``.
    """
    site, origins = request.headers.get("sec-fetch-site"), request.headers.getlist("origin")
    if site in FOREIGN_SITES or (site is None and not all(_is_ours(request, each) for each in origins)):
        raise Refused("csrf", "Requests that change something are not taken from other sites.")


def _is_ours(request: Request, origin: str) -> bool:
    """Say whether an Origin is the host that was asked; ``null`` and what is no web page are not.

    A proxy may say in a header which host its client asked: no page of another site can send that. It may also speak
    https for us, so https is ours where we see http; never the other way round.
    """
    try:
        theirs = urlsplit(origin)
        if theirs.scheme != "https" and (theirs.scheme, request.url.scheme) != ("http", "http"):
            return False
        usual = 443 if theirs.scheme == "https" else 80
        asked = ",".join([*request.headers.getlist("host"), *request.headers.getlist("x-forwarded-host")]).split(",")
        ours = [urlsplit(f"//{host.strip()}") for host in asked]
        return (theirs.hostname, theirs.port or usual) in [(each.hostname, each.port or usual) for each in ours]
    except ValueError:
        return False


async def identify(door: Door, request: Request) -> Requester | None:
    """Who asks, looked up now; called again while a download or a stream goes on.

    Raises:
        Refused: ``host_silent``.
    """
    if door.authenticate is None:
        return await run_in_threadpool(_by_key_or_cookie, door.services, request)
    found = await _ask_host(door.authenticate, request, door.services.doors.host_seconds)
    if found is not None and not isinstance(found, Requester):
        message = f"authenticate answered a {type(found).__name__}; it has to answer a Requester or None"
        raise TypeError(message)
    return found


async def _ask_host(authenticate: Authenticate, request: Request, seconds: float) -> object:
    """Whom the host says, within its time; one that hangs must take neither the loop nor every thread."""
    call: Call | None = None
    try:
        async with asyncio.timeout(seconds) as limit:
            if inspect.iscoroutinefunction(authenticate):
                return await authenticate(request)
            call = Call(authenticate, request)
            # A host's own look-up may wait for its database: in a thread, which is left behind when time is over.
            found = await to_thread.run_sync(call, abandon_on_cancel=True)
            return await found if inspect.isawaitable(found) else found
    except Overdue:
        raise Refused("host_silent", retry_after=HOST_RETRY_SECONDS) from None
    except TimeoutError:
        if not limit.expired():
            raise  # The host's own; it is told as any failure of its own.
        raise Refused("host_silent", retry_after=HOST_RETRY_SECONDS) from None
    finally:
        if call is not None:
            call.give_up()


def standing_of(asking: Asking, requester: Requester) -> Requester:
    """A requester with the grants of now, which a host may know better than its session does.

    Raises:
        Refused: ``host_silent``.
    """
    try:
        today = asking.services.accounts.standing(requester)
    except Overdue:
        raise Refused("host_silent", retry_after=HOST_RETRY_SECONDS) from None
    return replace(today, session=requester.session)


def _by_key_or_cookie(services: Services, request: Request) -> Requester | None:
    if "authorization" in request.headers:
        # Whoever sends one means it: a wrong key never falls back to a cookie.
        key = bearer_of(request)
        return services.accounts.find(key) if key is not None and key.isascii() else None
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
    return LINK + hashlib.sha256(f"haulage link {token}".encode()).hexdigest()[: 64 - len(LINK)]


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

"""The outermost layer: what is true of every answer, HEAD, and what nobody expected.

It is plain ASGI, so that a stream passes through it piece by piece and a cut stays a cut.
"""

from __future__ import annotations

from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from haulage.web.background import SweepThread
from haulage.web.download import ConnectionCut, end_connection
from haulage.web.problem import incident
from haulage.web.services import Door

EVERYWHERE = {
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    b"cross-origin-resource-policy": b"same-origin",
    b"referrer-policy": b"no-referrer",
    b"vary": b"Authorization, Cookie, Origin, Sec-Fetch-Site",
    b"x-content-type-options": b"nosniff",
}


class Doors:
    """Wraps the application of one door."""

    def __init__(self, app: ASGIApp, door: Door, sweep: SweepThread) -> None:
        """``sweep`` is started by the first request: a mounted application is told of no start."""
        self._app = app
        self._door = door
        self._sweep = sweep

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._sweep.start()
        started = False

        async def guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                present = {name.lower() for name, _ in message["headers"]}
                added = [pair for pair in EVERYWHERE.items() if pair[0] not in present]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        try:
            if scope["method"] == "HEAD" and not self._has_own_head(scope):
                await self._head(scope, receive, guarded)
            else:
                await self._app(scope, receive, guarded)
        except ConnectionCut as cut:
            end_connection(scope, cut, self._door.services.doors.download_stall_seconds)
            # Our own server closes a connection whose answer was left unfinished. What stands between a host
            # and its server might finish it, so there the exception has to say that it failed.
            if self._door.mounted:
                raise
        except Exception as raised:
            response = incident(self._door.services.observe, _where(scope), raised)
            if not started:
                await response(scope, receive, guarded)
            elif self._door.mounted:
                raise

    def _has_own_head(self, scope: Scope) -> bool:
        path: str = scope["path"]
        return path.startswith((self._door.base(scope) + "/files/", self._door.prefix + "/files/"))

    async def _head(self, scope: Scope, receive: Receive, send: Send) -> None:
        """HEAD is GET without a body; a stream ends at its first piece."""

        async def headers_only(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                raise _HeadAnswered

        asked: dict[str, Any] = {**scope, "method": "GET", "haulage.head": True}
        try:
            await self._app(asked, receive, headers_only)
        except _HeadAnswered:
            return


class _HeadAnswered(Exception):
    pass


def _where(scope: Scope) -> str:
    """The route and never the path, which holds a token."""
    route = scope.get("route")
    return f"{scope['method']} {getattr(route, 'path', 'unknown')}"

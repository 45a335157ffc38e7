"""The web application: stand-alone with keys and sign-in, or mounted in a host that says who asks.

Read services.py (what is given), access.py (who asks), exports.py and files.py (what it is for); problem.py and
doors.py hold for every answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache

from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from haulage.web import datasets, events, exports, files, openapi, operate, page, parents, problem, redact, session
from haulage.web.attempts import Attempts
from haulage.web.background import SweepThread
from haulage.web.doors import Doors
from haulage.web.hints import Hints
from haulage.web.places import DownloadPlaces
from haulage.web.services import Authenticate, Door, Services
from haulage.web.shapes import ExportWish, KeyShown, ParentEnded
from haulage.web.tokens import Tokens

__all__ = ["Authenticate", "Services", "create_app"]


def create_app(services: Services, authenticate: Authenticate | None = None) -> FastAPI:
    """The doors over some services.

    Args:
        authenticate: the host's own; gets the request and answers a Requester with its session, or None. The
            API is then at the root of the mount and sets no cookie. Without it the API is under ``/api``.

    Raises:
        ValueError: there is no secret to sign with.

    Example:
        ``app.mount("/haulage", create_app(services, authenticate=current_requester))``
    """
    door = Door(services, Tokens(services.secret_keys), authenticate)
    sweep = SweepThread(services.sweep, services.limits.sweep_seconds, services.observe)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        sweep.stop()

    app = _Application(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False, lifespan=lifespan)
    app.state.haulage = door
    app.state.hints = Hints(services.store.watch, services.doors.event_streams, services.observe)
    app.state.counting = datasets.Places()
    app.state.downloads = DownloadPlaces(services.doors)
    app.state.attempts = Attempts()
    app.state.readiness = operate.Readiness()
    app.state.sweep = sweep
    app.state.page_files = page.page_files()
    routers = [
        datasets.router,
        exports.router,
        events.router,
        files.router,
        session.router,
        operate.router,
        parents.router,
    ]
    shapes: tuple[type[BaseModel], ...] = (ExportWish, ParentEnded)
    if not door.mounted:
        routers.append(session.own_router)
        shapes = (*shapes, KeyShown)
    for router in routers:
        app.include_router(router, prefix=door.prefix)
    app.include_router(openapi.router)
    if door.prefix:
        app.include_router(openapi.router, prefix=door.prefix, include_in_schema=False)  # below the API too
    app.include_router(page.router)
    app.state.methods = _methods(app)
    # Made when it is first asked for: it takes longer than everything else here.
    app.openapi = cache(  # type: ignore[method-assign]  # the framework's own way to give another document
        lambda: openapi.describe(app, shapes, services.version, mounted=door.mounted)
    )
    problem.install(app)
    app.add_middleware(Doors, door=door, sweep=sweep)
    redact.install()
    return app


class _Application(FastAPI):
    """Keeps at hand what only the outermost layer sees: the connection, where the server shows it, as uvicorn does."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        scope["haulage.transport"] = getattr(getattr(send, "__self__", None), "transport", None)
        await super().__call__(scope, receive, send)


def _methods(app: FastAPI) -> dict[str, str]:
    """What each address answers, as an Allow header says it; HEAD wherever GET is."""
    found: dict[str, set[str]] = {}
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        if isinstance(route, APIRoute):
            found.setdefault(route.path, set()).update(route.methods or ())
    return {path: ", ".join(sorted(each | {"HEAD"} if "GET" in each else each)) for path, each in found.items()}

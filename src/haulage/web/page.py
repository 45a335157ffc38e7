"""The page and the files of its element: plain files beside this one, with no build step.

Only files that lie there are served, by their exact names; a request never becomes a path.
"""

from __future__ import annotations

import hashlib
import html
from collections.abc import Iterator
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response

from haulage.core.errors import Refused
from haulage.web.answers import none_match
from haulage.web.openapi import says
from haulage.web.services import door_of
from haulage.web.session import follow_link

router = APIRouter(tags=["page"])

HTML = "text/html; charset=utf-8"
FOLDER = Path(__file__).parent / "page"
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)


@router.get(
    "/", response_class=Response, responses=says({200: HTML, 303: None, 304: None}, "store_unavailable", public=True)
)
def show_page(request: Request) -> Response:
    """The page. With ``?sign_in=…`` it signs in once and leads to the page without it."""
    door = door_of(request)
    token = request.query_params.get("sign_in")
    if token is not None and not door.mounted and not request.scope.get("haulage.head"):
        return follow_link(request, token)
    base = html.escape(door.base(request.scope) + "/")
    text = (FOLDER / "index.html").read_text(encoding="utf-8").replace("{{api}}", base)
    return _kept(request, text.encode(), HTML)


@router.get(
    "/page/{name:path}", response_class=Response, responses=says({200: "*/*", 304: None}, "not_found", public=True)
)
def show_page_file(request: Request, name: str) -> Response:
    """A script, a style sheet or a picture of the page."""
    path = request.app.state.page_files.get(name)
    if path is None:
        raise Refused("not_found")
    return _kept(request, path.read_bytes(), MEDIA_TYPES[path.suffix])


def page_files() -> dict[str, Path]:
    """Every file of the page by its name in a URL."""
    return dict(_listed(FOLDER))


def _listed(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        if path.suffix in MEDIA_TYPES and path.is_file():
            yield path.relative_to(folder).as_posix(), path


def _kept(request: Request, content: bytes, media_type: str) -> Response:
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache", "Content-Security-Policy": POLICY}
    if none_match(request.headers.get("if-none-match"), etag):
        return Response(None, 304, headers)
    return Response(content, 200, {**headers, "Content-Type": media_type})

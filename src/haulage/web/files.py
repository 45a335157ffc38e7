"""The file of a ready run, by a file token: conditions and headers here, bytes in ``download.py``."""

from __future__ import annotations

import base64
from email.utils import parsedate_to_datetime
from typing import BinaryIO

from fastapi import APIRouter, Request
from starlette.responses import Response

from haulage.core import events
from haulage.core.clock import http_date
from haulage.core.errors import Refused
from haulage.exports.life import ExportRun
from haulage.web.access import Asking, Asks, standing_of
from haulage.web.answers import match, none_match
from haulage.web.disposition import content_disposition
from haulage.web.download import Download, refuse_damaged
from haulage.web.exports import observe_refusal
from haulage.web.openapi import says
from haulage.web.problem import problem
from haulage.web.ranges import NotSatisfiable, Piece, asked_piece
from haulage.web.shapes import FileToken
from haulage.web.tokens import FileRight

router = APIRouter(tags=["files"])

HEADERS = ("Accept-Ranges", "Content-Disposition", "Content-Length", "ETag", "Last-Modified", "Repr-Digest")
CONDITIONS = ("if-match", "if-none-match", "if-range", "if-modified-since", "if-unmodified-since")
_REFUSALS = ("not_found", "not_ready", "link_expired", "expired", "cancelled", "failed", "artifact_lost",
             "policy_changed", "host_silent",
             "files_unavailable", "precondition_failed", "range_not_satisfiable", "too_many_downloads",
             "downloads_full")  # fmt: skip
_ANSWERS = says({200: "*/*", 206: "*/*", 304: None, 307: None}, *_REFUSALS, headers=HEADERS)
# No pattern on Range: what does not match is ignored, not refused.
_ASKS = {"parameters": [{"name": "Range", "in": "header", "schema": {"type": "string"}}]}


@router.head(
    "/files/{file_token}",
    response_class=Response,
    responses=says({200: None, 304: None}, *_REFUSALS[:-3], headers=HEADERS),
)
@router.get("/files/{file_token}", response_class=Response, responses=_ANSWERS, openapi_extra=_ASKS)
def fetch_file(request: Request, asking: Asks, file_token: FileToken) -> Response:
    """The bytes, whole or one range of them. A whole download is hashed on its way."""
    right = asking.door.tokens.read_file(asking.binding, file_token)
    if right is None:
        raise Refused("not_found")
    try:
        run, opened = _open(asking, right)
    except Refused as refused:
        observe_refusal(asking, refused, right.id)
        raise
    try:
        return _answer(request, asking, run, opened)
    except BaseException:
        opened.close()
        raise


def _open(asking: Asking, right: FileRight) -> tuple[ExportRun, BinaryIO]:
    exports, who = asking.services.exports, standing_of(asking, asking.requester)
    run = exports.may_fetch(who, right.id)  # Why a file is gone says more than that a link is old.
    if run.generation != right.generation:
        raise Refused("not_found")
    if right.expires_at <= asking.services.store.now():
        raise Refused("link_expired")
    return run, exports.open_found(run)


def _answer(request: Request, asking: Asking, run: ExportRun, opened: BinaryIO) -> Response:
    """Decide by the conditions in the order of RFC 9110 section 13.2.2."""
    assert run.sha256 is not None
    assert run.bytes is not None
    headers = _headers(run, run.sha256)
    if asking.door.mounted and "accept-encoding" in request.headers:
        # A host's middleware would pack the file and take its length, its ETag and its ranges away with that.
        headers["Content-Encoding"] = "identity"
    if _precondition_failed(request, run, headers["ETag"]):
        opened.close()
        raise Refused("precondition_failed")
    if _unchanged(request, run, headers["ETag"]):
        opened.close()
        return Response(None, 304, {name: headers[name] for name in ("ETag", "Cache-Control", "Last-Modified")})
    if request.method == "HEAD":
        opened.close()
        return Response(None, 200, headers)
    if elsewhere := _elsewhere(request, asking, run, headers["Content-Disposition"]):
        opened.close()
        return elsewhere
    try:
        asked = asked_piece(_range_that_counts(request, headers["ETag"]), run.bytes)
    except NotSatisfiable:
        opened.close()
        return problem("range_not_satisfiable", headers={"Content-Range": f"bytes */{run.bytes}"})
    piece = asked or Piece(0, run.bytes)
    if asked is not None:
        headers |= {"Content-Length": str(piece.length)}
        headers |= {"Content-Range": f"bytes {piece.start}-{piece.end - 1}/{run.bytes}"}
    refuse_damaged(asking, run, opened, piece)
    return Download(request, asking, run, opened, piece, status=200 if asked is None else 206, headers=headers)


def _elsewhere(request: Request, asking: Asking, run: ExportRun, disposition: str) -> Response | None:
    """Send the client to the bucket, where the settings want that.

    Not with a condition: our ETag is the SHA-256, and the bucket would compare it with another.
    """
    if any(name in request.headers for name in CONDITIONS):
        return None
    link = asking.services.exports.link(run, disposition)
    if link is None:
        return None
    who = asking.requester
    asking.services.observe(events.FileLinked(run.id, who.tenant, who.account))
    kept = {"Cache-Control": "private, no-store", "Referrer-Policy": "no-referrer"}
    return Response(None, 307, {"Location": link, **kept})


def _headers(run: ExportRun, sha256: str) -> dict[str, str]:
    digest = base64.b64encode(bytes.fromhex(sha256)).decode()
    return {
        "Content-Type": run.media_type or "application/octet-stream",
        "Content-Length": str(run.bytes),
        "Content-Disposition": content_disposition(run.file_name or ""),
        "ETag": f'"{sha256}"',
        "Last-Modified": http_date(run.finished_at or run.requested_at),
        "Accept-Ranges": "bytes",
        "Repr-Digest": f"sha-256=:{digest}:",
        "Cache-Control": "private, no-store",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


def _precondition_failed(request: Request, run: ExportRun, etag: str) -> bool:
    wanted = request.headers.get("if-match")
    if wanted is not None:
        return not match(wanted, etag)
    since = _seconds(request.headers.get("if-unmodified-since"))
    return since is not None and _modified(run) > since


def _unchanged(request: Request, run: ExportRun, etag: str) -> bool:
    known = request.headers.get("if-none-match")
    if known is not None:
        return none_match(known, etag)
    since = _seconds(request.headers.get("if-modified-since"))
    return since is not None and _modified(run) <= since


def _range_that_counts(request: Request, etag: str) -> str | None:
    """Range, unless If-Range names another file; only a strong ETag can say that it is the same one."""
    condition = request.headers.get("if-range")
    if condition is not None and condition.strip() != etag:
        return None
    return request.headers.get("range")


def _modified(run: ExportRun) -> int:
    return (run.finished_at or run.requested_at) // 1000


def _seconds(date: str | None) -> float | None:
    """An HTTP date; a malformed one is as if it were not there."""
    if date is None:
        return None
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None

"""How an answer is written: JSON as bytes, weak ETags made of it, and the conditions of RFC 9110 section 13."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

PRIVATE = "private, no-cache"  # may be kept by the reader's own cache, and must be asked for each time
_TAG = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"')


def written(body: Any) -> bytes:
    """JSON as UTF-8. A lone surrogate, which JSON can bring in and UTF-8 cannot hold, becomes ``?``."""
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(errors="replace")


def document(body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer that stands for nothing that can be read again."""
    given = {"Cache-Control": "private, no-store", **(headers or {})}
    return Response(written(body), status, given, "application/json")


def representation(
    request: Request,
    body: Any,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """What a resource is now, with a weak ETag, or 304 where the reader has it already.

    The ETag is a hash of the representation. What a run or a list says depends on its revision, the queue
    position, the last sign of life, and, by its token, on session and signing key; so the ETag does too.
    """
    content = written(body)
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()[:18]).decode()
    given = {"Cache-Control": PRIVATE, **(headers or {}), "ETag": f'W/"{digest}"'}
    if request.method == "GET" and none_match(request.headers.get("if-none-match"), given["ETag"]):
        return Response(None, 304, given)
    return Response(content, status, given, "application/json")


def none_match(condition: str | None, etag: str) -> bool:
    """Say whether If-None-Match names this representation, by the weak comparison."""
    if condition is None:
        return False
    if condition.strip() == "*":
        return True
    wanted = etag.removeprefix("W/")
    return any(f'"{tag}"' == wanted for _weak, tag in _TAG.findall(condition))


def match(condition: str, etag: str) -> bool:
    """Say whether If-Match names this representation, by the strong comparison: weak tags never do."""
    if condition.strip() == "*":
        return True
    return any(not weak and f'"{tag}"' == etag for weak, tag in _TAG.findall(condition))

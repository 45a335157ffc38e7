"""Exports over HTTP: ask, list, look, cancel, watch, get a link to the file, remove it early."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from pydantic import WithJsonSchema
from starlette.responses import Response

from haulage.core import events
from haulage.core.clock import rfc3339
from haulage.core.errors import Fault, Refused, StoreUnavailable
from haulage.exports.life import ExportLife, ExportRun
from haulage.exports.show import show
from haulage.web.access import Asking, Asks, doubled_faults, no_query, query_faults, standing_of
from haulage.web.answers import document, representation
from haulage.web.bodies import Given, body_of
from haulage.web.openapi import body, says
from haulage.web.shapes import ExportWish, ListQuery, RunToken
from haulage.web.shown import LinkShown, RunPage, RunShown
from haulage.web.tokens import FileRight

router = APIRouter(tags=["exports"])

RETRY_SECONDS = 1  # told to whoever waits for a run

KEY = re.compile(r"[\x20-\x7e]{1,200}")
# Said and not enforced by the framework, which would answer before anything else that is wrong is known.
IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", description="The same key with the same body gives the same run for a day."),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 200, "pattern": r"^[\x20-\x7e]+$"}),
]


@router.post(
    "/exports",
    status_code=202,
    responses=says({202: RunShown, 200: RunShown}, "malformed", "csrf", "forbidden", "not_found", "key_reused",
                   "key_gone", "too_large", "unsupported_media_type", "invalid", "library_missing", "too_many_queued",
                   "too_many_keys", "no_worker", "queue_full", "storage_exceeded", "source_unavailable",
                   "source_failed"),
    openapi_extra=body(ExportWish),
)  # fmt: skip
def request_export(
    request: Request,
    asking: Asks,
    given: Annotated[Given[ExportWish], Depends(body_of(ExportWish))],
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Ask for an export. 202 for a new run; 200 for an equal one under way, or for the same Idempotency-Key."""
    wish, faults = given.shape, [*given.faults, *query_faults(request)]
    if len(request.headers.getlist("idempotency-key")) > 1:
        faults.append(Fault("/header/Idempotency-Key", "is given twice; write it once"))
    elif idempotency_key is not None and not KEY.fullmatch(idempotency_key):
        faults.append(Fault("/header/Idempotency-Key", "write 1 to 200 printable characters of ASCII"))
    if wish is None:
        raise Refused("invalid", faults=faults)
    accepted = asking.services.exports.accept(
        asking.requester, wish.asked(), idempotency_key=idempotency_key, faults=faults
    )
    place = _address(asking, accepted.run)
    headers = {"Location": place, "Content-Location": place, **_waiting(accepted.run)}
    if accepted.replayed:
        headers["Idempotent-Replayed"] = "true"
    shown = _show(asking, accepted.run, done=True)
    return representation(request, shown, status=202 if accepted.new else 200, headers=headers)


@router.get("/exports", responses=says({200: RunPage, 304: None}, "forbidden", "not_found", "invalid"))
def list_exports(request: Request, asking: Asks, query: Annotated[ListQuery, Query()]) -> Response:
    """One's own exports, newest first; with ``parent`` those of a parent that is one's own now."""
    size_max = asking.services.doors.page_size
    limit = query.limit if "limit" in query.model_fields_set else min(query.limit, size_max)
    faults = doubled_faults(request)
    if limit > size_max:
        faults.append(Fault("/query/limit", f"write at most {size_max}"))
    before = None
    if query.cursor is not None:
        before = asking.door.tokens.read_page(asking.binding, query.cursor)
        if before is None:
            faults.append(Fault("/query/cursor", "write next_cursor of the page before"))
    if faults:
        raise Refused("invalid", faults=faults)
    runs = asking.services.exports.list(
        asking.requester,
        state=query.state,
        dataset=query.dataset,
        parent=query.parent,
        parent_kind=query.parent_kind,
        before=before,
        limit=limit,
        everyone=query.everyone,
    )
    page, more = runs[:limit], len(runs) > limit
    cursor = asking.door.tokens.for_page(asking.binding, (page[-1].requested_at, page[-1].id)) if more else None
    return representation(request, {"items": [_show(asking, run) for run in page], "next_cursor": cursor})


@router.get(
    "/exports/{token}",
    dependencies=[Depends(no_query)],
    responses=says({200: RunShown, 304: None}, "not_found", "invalid"),
)
def show_export(request: Request, asking: Asks, token: RunToken) -> Response:
    """One run. While it is not final, Retry-After says when another look makes sense."""
    run = find_run(asking, token)
    return representation(request, _show(asking, run), headers=_waiting(run))


@router.delete(
    "/exports/{token}",
    status_code=202,
    dependencies=[Depends(no_query)],
    responses=says({202: RunShown, 200: RunShown}, "csrf", "not_found", "already_final", "invalid"),
)
def cancel_export(asking: Asks, token: RunToken) -> Response:
    """Cancel, durably before the answer: 200 was still queued, 202 can only end ``cancelled``."""
    run = asking.services.exports.cancel(asking.requester, find_run(asking, token).id)
    status = 200 if ExportLife.is_final(run.state) else 202
    return document(_show(asking, run, done=True), status=status, headers=_waiting(run))


@router.post(
    "/exports/{token}/expire",
    dependencies=[Depends(no_query)],
    responses=says({200: RunShown}, "csrf", "not_found", "not_ready", "already_final", "invalid"),
)
def expire_export(asking: Asks, token: RunToken) -> Response:
    """Remove a ready file before its time."""
    run = asking.services.exports.expire(asking.requester, find_run(asking, token).id)
    return document(_show(asking, run, done=True))


@router.post(
    "/exports/{token}/file",
    status_code=201,
    dependencies=[Depends(no_query)],
    responses=says({201: LinkShown}, "csrf", "not_found", "not_ready", "expired", "cancelled", "failed",
                   "artifact_lost", "policy_changed", "invalid"),
)  # fmt: skip
def mint_file(asking: Asks, token: RunToken) -> Response:
    """A short-lived link to the file, for this session, after a look at the grants of now."""
    run = find_run(asking, token)
    try:
        run = asking.services.exports.may_fetch(standing_of(asking, asking.requester), run.id)
    except Refused as refused:
        observe_refusal(asking, refused, run.id)
        raise
    assert run.expires_at is not None
    lasts = int(asking.services.doors.file_token_seconds * 1000)
    until = min(asking.services.store.now() + lasts, run.expires_at)
    file_token = asking.door.tokens.for_file(asking.binding, FileRight(run.id, run.generation, until))
    url = f"{asking.base}/files/{file_token}"
    return document({"url": url, "expires_at": rfc3339(until)}, status=201, headers={"Location": url})


def find_run(asking: Asking, token: str) -> ExportRun:
    """The run of a token.

    Raises:
        Refused: ``not_found``, whatever is wrong with it.
    """
    right = asking.door.tokens.read_run(asking.binding, token)
    if right is None:
        raise Refused("not_found")
    run = asking.services.exports.get(asking.requester, right.id)
    if run.generation != right.generation:
        raise Refused("not_found")
    return run


def observe_refusal(asking: Asking, refused: Refused, run_id: str) -> None:
    """Tell the log that a file was asked for and refused."""
    who = asking.requester
    asking.services.observe(events.RequestRefused(refused.code, who.tenant, who.account, f"file {run_id}"))
    refused.observed = True


def _token(asking: Asking, run: ExportRun) -> str:
    return asking.door.tokens.for_run(asking.binding, run.id, run.generation)


def _address(asking: Asking, run: ExportRun) -> str:
    return f"{asking.base}/exports/{_token(asking, run)}"


def _show(asking: Asking, run: ExportRun, *, done: bool = False) -> dict[str, Any]:
    """As it is now. What was done is told as done, also where the store does not say any more who is before it."""
    try:
        position = asking.services.exports.queue_position(run)
    except StoreUnavailable as problem:
        if not done:
            raise
        asking.services.observe(events.StoreFailed("queue position", str(problem), 0))
        position = None
    return show(run, token=_token(asking, run), queue_position=position)


def _waiting(run: ExportRun) -> dict[str, str]:
    return {} if ExportLife.is_final(run.state) else {"Retry-After": str(RETRY_SECONDS)}

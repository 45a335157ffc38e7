"""For the operator: a parent resource of the host is not there any more."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from haulage.core.errors import Refused
from haulage.web.access import Asks, query_faults
from haulage.web.answers import document
from haulage.web.bodies import Given, body_of
from haulage.web.openapi import body, says
from haulage.web.operate import refuse_others
from haulage.web.shapes import ParentEnded
from haulage.web.shown import ParentGoneShown

router = APIRouter(tags=["exports"])


@router.post(
    "/parents/gone",
    responses=says({200: ParentGoneShown}, "malformed", "csrf", "forbidden", "not_found", "too_large",
                   "unsupported_media_type", "invalid"),
    openapi_extra=body(ParentEnded),
)  # fmt: skip
def end_parent(
    request: Request, asking: Asks, given: Annotated[Given[ParentEnded], Depends(body_of(ParentEnded))]
) -> Response:
    """A parent is not there any more: its exports are cancelled and their files removed. For the operator."""
    refuse_others(asking)
    ended, faults = given.shape, [*given.faults, *query_faults(request)]
    if ended is None or faults:
        raise Refused("invalid", faults=faults)
    tenant = ended.tenant or asking.requester.tenant
    return document(asdict(asking.services.exports.parent_gone(tenant, ended.kind, ended.parent)))

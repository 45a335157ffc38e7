"""Reading a JSON body: counted while it arrives, strict about what JSON is, every fault of it at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Generic, NoReturn, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from haulage.core.errors import Fault, Refused, pointer_to
from haulage.web.access import Asks
from haulage.web.services import door_of

BODY_SECONDS = 20  # from the headers to the last byte of a body

Shape = TypeVar("Shape", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Given(Generic[Shape]):
    """A body as far as it can be used, and what is wrong with the rest of it.

    So that who asked learns every fault at once, also those that show only when the rest is understood.

    Args:
        shape: the members that are as they should be; None where too little is left.
    """

    shape: Shape | None
    faults: tuple[Fault, ...]


def body_of(shape: type[Shape]) -> Callable[..., Awaitable[Given[Shape]]]:
    """A dependency that reads the body as a shape, after it is known who asks.

    Raises:
        Refused: ``unsupported_media_type``, ``too_large``, or ``malformed``.
    """

    async def read(request: Request, _asking: Asks) -> Given[Shape]:
        return await _given(request, shape)

    return read


async def read_body(request: Request, shape: type[Shape]) -> Shape:
    """Read the body as a shape.

    Raises:
        Refused: as ``body_of``, or ``invalid`` with every fault.
    """
    given = await _given(request, shape)
    if given.shape is None or given.faults:
        raise Refused("invalid", faults=given.faults)
    return given.shape


async def _given(request: Request, shape: type[Shape]) -> Given[Shape]:
    _refuse_media_type(request)
    limit = door_of(request).services.doors.body_bytes
    try:
        async with asyncio.timeout(BODY_SECONDS):
            given = _parse(await _collect(request, limit))
    except TimeoutError:
        raise Refused("malformed", f"The body did not arrive within {BODY_SECONDS} s.") from None
    except ClientDisconnect:  # Nobody reads this, but without it every client that goes away would be an incident.
        raise Refused("malformed", "The body did not arrive.") from None
    return _fitted(given, shape)


def _fitted(given: Any, shape: type[Shape]) -> Given[Shape]:
    try:
        return Given(shape.model_validate(given), ())
    except ValidationError as invalid:
        wrong = invalid.errors()
    faults = tuple(Fault(pointer_to(*each["loc"]), _said(each["type"], each["msg"])) for each in wrong)
    if isinstance(given, dict):
        with suppress(ValidationError):
            return Given(shape.model_validate(_without(given, [each["loc"] for each in wrong])), faults)
    return Given(None, faults)


def _without(given: dict[str, Any], places: Iterable[tuple[int | str, ...]]) -> dict[str, Any]:
    """A body without its faulty members, and without the faulty names inside those that are objects."""
    left = {name: dict(value) if isinstance(value, dict) else value for name, value in given.items()}
    for member, *inside in places:
        if inside and isinstance(left.get(str(member)), dict):
            left[str(member)].pop(inside[0], None)
        else:
            left.pop(str(member), None)
    return left


def _said(kind: str, message: str) -> str:
    ours = {"extra_forbidden": "is not known here", "model_type": "write an object, with its members by their names"}
    return ours.get(kind, message)


def _refuse_media_type(request: Request) -> None:
    """Only JSON, plain: a form of another site cannot send that without asking the browser first."""
    media_type, _, rest = request.headers.get("content-type", "").partition(";")
    charset = rest.strip().lower().replace('"', "")
    if media_type.strip().lower() != "application/json" or charset not in ("", "charset=utf-8"):
        raise Refused("unsupported_media_type")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Refused("unsupported_media_type", "Send the body as it is, without a Content-Encoding.")


async def _collect(request: Request, limit: int) -> bytes:
    detail = f"The request body is larger than {limit:,} bytes."
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > limit:
        raise Refused("too_large", detail)
    body = bytearray()
    async for chunk in request.stream():  # Counted, not believed: a chunked body declares nothing.
        body += chunk
        if len(body) > limit:
            raise Refused("too_large", detail)
    return bytes(body)


def _parse(body: bytes) -> Any:
    try:
        # Decimal keeps the digits of 12.10, and 1e999 is a number and not an infinity.
        return json.loads(body.decode(), object_pairs_hook=_distinct, parse_float=Decimal, parse_constant=_no_number)
    except _Malformed as problem:
        raise Refused("malformed", str(problem)) from None
    except RecursionError:
        raise Refused("malformed", "The body is nested too deeply.") from None
    except (ValueError, ArithmeticError):  # No UTF-8, no JSON, or a number of thousands of digits.
        raise Refused("malformed", "The body is not JSON in UTF-8.") from None


class _Malformed(Exception):
    pass


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names differ; Python would keep the last of two and drop the first silently."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise _Malformed("The body names a member twice.")
    return members


def _no_number(name: str) -> NoReturn:
    raise _Malformed(f"{name} is not JSON.")

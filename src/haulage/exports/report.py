"""What an external command says of the file that it built: read with suspicion, and refused as a whole.

    {"complete": false, "rows": 1200, "notices": [{"code": "chapter_missing", "count": 2}]}

``complete`` must be there. A file that is not complete says why in a notice. Codes and numbers go to whoever reads the
run, so there is no member for a text, which could hold a path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from haulage.core.errors import BuildFailed

REPORT_BYTES = 64 * 1024
NOTICES = 50
NUMBER_MAX = 2**53
CODE = re.compile(r"[a-z][a-z0-9_]{0,62}")


class Report(NamedTuple):
    """What a maker says of a file."""

    complete: bool
    rows: int | None
    notices: tuple[Mapping[str, Any], ...]


def read_report(data: bytes) -> Report:
    """A report from its bytes.

    Raises:
        BuildFailed: ``report_invalid``; its cause names what is wrong, and no value.
    """
    if len(data) > REPORT_BYTES:
        _refuse(f"it is larger than {REPORT_BYTES:,} bytes")
    try:
        found = json.loads(data.decode(), object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as problem:
        why = str(problem) if isinstance(problem, _Twice) else "it is no JSON in UTF-8"
        raise BuildFailed("report_invalid", cause=why) from problem
    if not isinstance(found, dict):
        _refuse("it is no object")
    _refuse_others(found, ("complete", "rows", "notices"), "it")
    if not isinstance(found.get("complete"), bool):
        _refuse("complete is neither true nor false")
    notices = _notices(found.get("notices", []))
    if not found["complete"] and not notices:
        _refuse("complete is false, and no notice says why")
    return Report(found["complete"], _number(found.get("rows"), "rows"), notices)


def _notices(found: object) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(found, list) or len(found) > NOTICES:
        _refuse(f"notices is no list of at most {NOTICES}")
    for notice in found:
        if not isinstance(notice, dict):
            _refuse("a notice is no object")
        _refuse_others(notice, ("code", "count"), "a notice")
        if not isinstance(notice.get("code"), str) or not CODE.fullmatch(notice["code"]):
            _refuse("the code of a notice is not of small letters, digits and _, at most 63")
    counted = [{"code": notice["code"], "count": _number(notice.get("count"), "count")} for notice in found]
    return tuple({name: value for name, value in each.items() if value is not None} for each in counted)


def _number(value: object, name: str) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= NUMBER_MAX:
        _refuse(f"{name} is no whole number from 0 on")
    return value


def _refuse_others(found: Mapping[str, object], known: tuple[str, ...], what: str) -> None:
    if found.keys() - set(known):
        _refuse(f"{what} has other members than {', '.join(known)}")


def _refuse(why: str) -> NoReturn:
    raise BuildFailed("report_invalid", cause=why)


class _Twice(ValueError):
    """A member stands twice: one reader would take the first, another the last."""


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Twice("a member stands twice in an object")
    return found


def _no_number(_name: str) -> NoReturn:
    raise ValueError("no number of JSON")

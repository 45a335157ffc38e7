"""Which bytes a client asks for: one range or everything. RFC 9110 section 14."""

from __future__ import annotations

import re
from dataclasses import dataclass

_RANGE = re.compile(r"(?i:bytes)=[ \t]*(?:([0-9]{1,18})-([0-9]{0,18})|-([0-9]{1,18}))[ \t]*")


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes from ``start`` to before ``end``."""

    start: int
    end: int

    @property
    def length(self) -> int:
        """How many."""
        return self.end - self.start


class NotSatisfiable(Exception):
    """The range is well formed and lies behind the end."""


def asked_piece(header: str | None, size: int) -> Piece | None:
    """The piece that a Range header asks for; None means everything.

    A malformed header, another unit, or several ranges are ignored, as the standard allows.

    Raises:
        NotSatisfiable: no byte of it is there.

    Example:
        >>> asked_piece("bytes=-3", 10)
        Piece(start=7, end=10)
    """
    found = _RANGE.fullmatch(header) if header is not None else None
    if found is None:
        return None
    first, last, suffix = found.groups()
    if suffix is not None:
        start, end = max(0, size - int(suffix)), size
        if int(suffix) == 0:
            raise NotSatisfiable
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None  # Backwards is malformed, not behind the end.
    if start >= size:
        raise NotSatisfiable
    return Piece(start, end)

"""Time as an argument. Instants are whole milliseconds since 1970 in UTC; waits use a monotonic clock."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime


def now_ms() -> int:
    """The host's clock, in milliseconds since 1970-01-01T00:00Z."""
    return time.time_ns() // 1_000_000


def rfc3339(instant: int | None) -> str | None:
    """An instant as RFC 3339 text in UTC with milliseconds; None stays None (unknown is null)."""
    if instant is None:
        return None
    moment = datetime.fromtimestamp(instant // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{instant % 1000:03d}Z"


def http_date(instant: int) -> str:
    """An instant as an HTTP date (RFC 9110 section 5.6.7), whole seconds in GMT."""
    moment = datetime.fromtimestamp(instant // 1000, UTC)
    day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[moment.weekday()]
    month = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"][moment.month - 1]
    return f"{day}, {moment.day:02d} {month} {moment.year:04d} {moment:%H:%M:%S} GMT"


def new_id(now: int | None = None) -> str:
    """A UUIDv7 as text (RFC 9562 section 5.7): 48 bits of milliseconds, then random bits."""
    stamp = (now_ms() if now is None else now) & 0xFFFF_FFFF_FFFF
    random = int.from_bytes(os.urandom(10), "big")
    value = stamp << 80 | 0x7 << 76 | (random >> 68 & 0xFFF) << 64 | 0b10 << 62 | random & (1 << 62) - 1
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

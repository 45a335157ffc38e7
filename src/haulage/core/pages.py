"""What a page function answers. Apart, and a named tuple, because a child loads it: see reading.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

PAGE_ROWS = 1_000  # what a function is asked for at once
PAGE_BYTES = 16 * 1024 * 1024  # of one page


class Page(NamedTuple):
    """Some rows of a list, and where it goes on.

    Args:
        rows: one mapping a row, with every declared column and nothing else; at most as many as were asked for.
        cursor: what the next call gets, such as the key of the last row; None after the last page.
        snapshot_at: the instant, with its zone, of which *all* pages show the data; None where they do not.

    Example:
        >>> Page([{"id": 1, "subject": "Lost key"}], cursor=1).cursor
        1
    """

    rows: Iterable[Mapping[str, Any]]
    cursor: Any = None
    snapshot_at: datetime | None = None


def place_of(function: Callable[..., Any]) -> str:
    """Where a child finds a function: ``module:name``."""
    return f"{function.__module__}:{function.__qualname__}"

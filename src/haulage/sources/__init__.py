"""Reading the host's data: one room per technology, found by the scheme of its URL.

A new source is one file with ``open_source(url, busy_seconds)`` and one line here. The child of a run
imports only the room it needs, with the bare driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # only a type: a child starts for every run, and a user waits for it
    from haulage.core.ports import Source

SOURCES = {
    "sqlite": "haulage.sources.sqlite",
}


def scheme_of(url: str) -> str:
    """The technology of a source's URL, without a driver's name."""
    return url.partition(":")[0].partition("+")[0]


def open_source(url: str, busy_seconds: float = 5) -> Source:
    """A source by its URL; nothing is connected yet.

    Raises:
        ValueError: no room of this version reads that scheme.
    """
    scheme = scheme_of(url)
    if scheme not in SOURCES:
        raise ValueError(f"no source reads {scheme!r}; there are: {', '.join(SOURCES)}")
    source: Source = import_module(SOURCES[scheme]).open_source(url, busy_seconds)
    return source

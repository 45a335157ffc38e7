"""Reading the host's data: one room per technology, found by the scheme of its URL. A page function is in pages.py.

A new source is one file with ``open_source(url, busy_seconds, …)`` and one line here; a server's has ``end_session``
too. The child of a run imports only the room it needs, with the bare driver. ``query.py`` is what all of SQL share.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # only a type: a child starts for every run, and a user waits for it
    from haulage.core.source import Source

SOURCES = {
    "sqlite": "haulage.sources.sqlite",
    "postgresql": "haulage.sources.postgresql",
    "mariadb": "haulage.sources.mariadb",
    "mysql": "haulage.sources.mariadb",
    "duckdb": "haulage.sources.duckdb",
}
SERVERS = (
    "postgresql",
    "mariadb",
    "mysql",
)  # whose statements run in a process of their own, which must be told that ours ends
COUNT_BESIDE = ("postgresql",)  # that count over one more connection while rows are read


def scheme_of(url: str) -> str:
    """The technology of a source's URL, without a driver's name."""
    return url.partition(":")[0].partition("+")[0]


def open_source(url: str, busy_seconds: float = 5, **of_servers: Any) -> Source:
    """A source by its URL; nothing is connected yet.

    Args:
        url: where it is.
        busy_seconds: how long a locked one is waited for.
        of_servers: ``seconds`` that a statement may take, and the ``name`` that the server shows of us.

    Raises:
        ValueError: no room of this version reads that scheme.
    """
    scheme = scheme_of(url)
    if scheme not in SOURCES:
        raise ValueError(f"no source reads {scheme!r}; there are: {', '.join(SOURCES)}")
    source: Source = import_module(SOURCES[scheme]).open_source(url, busy_seconds, **of_servers)
    return source


def load(scheme: str) -> None:
    """Load the room of a server's technology with its driver, which takes longer than all else before the first row.

    No other: SQLite looks for the folder that it sorts in when it is loaded.
    """
    if scheme in SERVERS:
        import_module(SOURCES[scheme]).driver()


def end_session(url: str, session: str, seconds: float) -> bool:
    """End what a server still does for a client that is dead; says whether that is gone.

    Args:
        url: of the source.
        session: ``Snapshot.session``, as the client told it while it lived.
        seconds: how long it is waited for.

    Raises:
        BuildFailed: the server could not be asked.
    """
    gone: bool = import_module(SOURCES[scheme_of(url)]).end_session(url, session, seconds)
    return gone

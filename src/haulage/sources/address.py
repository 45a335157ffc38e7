"""The URL of a server, read by us; apart from query.py, so that the light child of a file loads nothing of it."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote

from haulage.core.errors import BuildFailed


class Address(NamedTuple):
    """A URL of a server, as far as we read it ourselves: a driver that cannot read one tells it with its password."""

    user: str
    password: str
    host: str  # and port
    place: str  # the database, and what follows a question mark


def address_of(url: str, scheme: str) -> Address:
    """The parts of a URL; a password may hold nearly anything, also an ``@``.

    Raises:
        BuildFailed: an ``@`` after a slash: what stands between would be taken for a host, and told in its errors.
    """
    authority, _, place = url.partition("://")[2].partition("/")
    if "@" in place.partition("?")[0]:
        raise unread_url(scheme)
    who, _, host = authority.rpartition("@")
    user, _, password = who.partition(":")
    return Address(unquote(user), unquote(password), host, place)


def unread_url(scheme: str) -> BuildFailed:
    """What is said of a URL that cannot be read, without it."""
    example = f"write {scheme}://user:password@host:port/database, and in a password %40 for an @ and %2F for a /"
    return BuildFailed("source_unavailable", cause=f"its URL cannot be read; {example}")

"""Bound names in SQL: ``:name`` outside quotes and comments. Shared by the plan and by every source."""

from __future__ import annotations

import re
from collections.abc import Callable

# What must be passed over as one piece comes before the bound name; ``::type`` is a cast, not a name.
_PIECE = re.compile(
    r"""'(?:[^']|'')*'            # text
      | "(?:[^"]|"")*"            # identifier
      | `[^`]*` | \[[^\]]*\]      # identifier, in other spellings
      | --[^\n]* | /\*.*?\*/      # comment
      | ::\w+
      | :(?P<name>[A-Za-z_]\w*)""",
    re.VERBOSE | re.DOTALL,
)


def bound_names(sql: str) -> frozenset[str]:
    """Every bound name of a statement."""
    return frozenset(found["name"] for found in _PIECE.finditer(sql) if found["name"])


def rewrite_names(sql: str, replace: Callable[[str], str]) -> str:
    """Replace every bound name; text, identifiers and comments stay as they are."""
    return _PIECE.sub(lambda found: replace(found["name"]) if found["name"] else found[0], sql)


def without_terminator(sql: str) -> str:
    """A statement that can be wrapped: no semicolon at its end, and a line end after a last comment."""
    return sql.strip().rstrip(";").rstrip() + "\n"

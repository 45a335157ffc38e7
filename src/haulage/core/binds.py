"""Bound names in SQL (``:name`` outside quotes and comments), and statements. Shared by plan and sources."""

from __future__ import annotations

import re
from collections.abc import Callable

# What must be passed over as one piece comes before the bound name; ``::type`` is a cast, not a name. A bracket
# after a word or another bracket is none of an identifier: it holds elements of an array, ``array[:a, :b]``.
_PIECE = re.compile(
    r"""(?<!\w)[eE]'(?:[^'\\]|''|\\.)*'    # text with escapes, as PostgreSQL has it
      | (?<![\w$])\$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|\Z)  # text between dollars, the same
      | '(?:[^']|'')*'            # text
      | "(?:[^"]|"")*"            # identifier
      | `[^`]*` | (?<![\w\])"])\[[^\]]*\]  # identifier, in other spellings
      | --[^\n]* | /\*.*?(?:\*/|\Z)  # comment
      | ::\w+
      | :(?P<name>[A-Za-z_]\w*)""",
    re.VERBOSE | re.DOTALL,
)
_TOKEN = re.compile(_PIECE.pattern + r"| \s+ | \w+ | .", re.VERBOSE | re.DOTALL)


def bound_names(sql: str) -> frozenset[str]:
    """Every bound name of a statement."""
    return frozenset(found["name"] for found in _PIECE.finditer(sql) if found["name"])


def rewrite_names(sql: str, replace: Callable[[str], str]) -> str:
    """Replace every bound name; text, identifiers and comments stay as they are."""
    return _PIECE.sub(lambda found: replace(found["name"]) if found["name"] else found[0], sql)


def rewrite_identifiers(sql: str, replace: Callable[[str], str]) -> str:
    """Replace every name in double quotes; text, comments and all else stay as they are."""
    return _PIECE.sub(lambda found: replace(_name_in(found[0])) if found[0].startswith('"') else found[0], sql)


def _name_in(quoted: str) -> str:
    return quoted[1:-1].replace('""', '"')


def statements(sql: str) -> list[str]:
    """The statements of a text without the semicolons between them; blanks and comments alone are none."""
    found: list[str] = []
    start, says_something = 0, False
    for token in [*_TOKEN.finditer(sql), None]:
        if token is None or token[0] == ";":
            if says_something:
                found.append(sql[start : token and token.start()].strip())
            start, says_something = (token.end() if token else 0), False
        elif not token[0].isspace() and not token[0].startswith(("--", "/*")):
            says_something = True
    return found

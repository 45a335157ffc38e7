"""An external command that builds a file: what an operator declares, and how its words are filled in.

No shell reads them. A place in braces becomes the text of a path or of a parameter, inside the one argument that it
stands in, whatever that text looks like.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

PLACE = re.compile(r"\{([a-z][a-z0-9_]*)\}")
PATHS = ("file", "report", "request", "folder")  # places that stand for paths in the run's own folder
OWN_PLACES = (*PATHS, "format")


def places_of(argument: str) -> list[str]:
    """The names in braces of one argument.

    Example:
        >>> places_of("--book={book}"), places_of('{"a": 1}')
        (['book'], [])
    """
    return PLACE.findall(argument)


def filled(arguments: Sequence[str], values: Mapping[str, object]) -> list[str]:
    """Arguments with every place filled in; what was filled in is not read again.

    Example:
        >>> filled(["--book={book}", "{file}"], {"book": "{file}; rm -rf /", "file": "/private/file"})
        ['--book={file}; rm -rf /', '/private/file']
    """
    return [PLACE.sub(_value_in(values), argument) for argument in arguments]


def _value_in(values: Mapping[str, object]) -> Callable[[re.Match[str]], str]:
    return lambda place: as_text(values[place[1]])


def as_text(value: object) -> str:
    """One parameter as one text: nothing for one that was left out, truths as JSON has them."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)

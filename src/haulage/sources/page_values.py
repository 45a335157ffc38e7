"""What a cell of a page may be: a value. What Python says of a thing that is none stands in no file.

A forgotten ``await``, a function, a set: their ``repr`` would stand there, with an address that is another each time.
"""

from __future__ import annotations

from typing import Any

from haulage.formats.cells import family

DIGITS_MAX = 4_300  # of an integer: Python makes no longer one into text
_INTEGER_MAX = 10**DIGITS_MAX
_SMALL = 2**63
DEPTH_MAX = 200  # of lists in lists; one that holds itself has no end
_SIZES = {float: 8, bool: 8, type(None): 8}


class NoValue(Exception):
    """A cell that no file can hold; says why, without the cell."""


def size_of(cell: Any, depth: int = 0) -> int:
    """About how many bytes a value takes.

    Raises:
        NoValue: it is none.
    """
    kind = type(cell)
    if kind is str or kind is bytes:
        return len(cell)
    if kind is int and -_SMALL < cell < _SMALL:
        return 8
    return _SIZES.get(kind) or _size_of_rare(cell, kind, depth)


def _size_of_rare(cell: Any, kind: type, depth: int) -> int:
    group = family(kind)
    if group == "integer" and not -_INTEGER_MAX < cell < _INTEGER_MAX:
        raise NoValue(f"it is an integer of more than {DIGITS_MAX:,} digits")
    if group == "document":
        if depth == DEPTH_MAX:
            raise NoValue(f"it is nested more than {DEPTH_MAX} deep, or holds itself")
        inside = [*cell, *cell.values()] if isinstance(cell, dict) else cell
        return 8 + sum(size_of(each, depth + 1) for each in inside)
    if group == "other":
        # What has no text of its own is no value; nor is an error, such as one of asyncio.gather. A collection that is
        # no list may leave out what is in its middle, as the arrays of numpy do.
        own: object = kind.__str__
        holds = hasattr(kind, "__iter__") and hasattr(kind, "__len__")
        if own is object.__str__ or issubclass(kind, BaseException) or holds:
            raise NoValue(f"a {kind.__name__} is no value")
        return len(_text_of(cell, kind))
    return len(_text_of(cell, kind)) if group == "decimal" else len(cell) if group in ("text", "bytes") else 8


def _text_of(cell: object, kind: type) -> str:
    try:
        return str(cell)
    except MemoryError:
        raise
    except Exception as problem:
        raise NoValue(f"the text of a {kind.__name__} cannot be made: {type(problem).__name__}: {problem}") from problem

"""What a page function may answer as a cell, by the source itself; test_pages.py leads some through a whole run."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from haulage import Page
from haulage.core.errors import BuildFailed
from haulage.core.reading import Reading
from haulage.core.requester import Requester
from haulage.sources.pages import PagesSnapshot

PAGES = {"page_rows": 10, "page_bytes": 10_000}
DECLARED = {"i": ("i", None), "name": ("name", None)}


class Mute:
    def __str__(self):
        raise LookupError("about hush_4711")


def holding_itself():
    found = [1]
    found.append({"a": found})
    return found


def rows_with(cell, **binds):
    """Two rows, of which the second has this cell."""
    rows = [{"i": 1, "name": "n"}, {"i": 2, "name": cell}]
    snapshot = PagesSnapshot(Requester("north", "amina"), PAGES, lambda *_, **__: Page(rows), None)
    reading = Reading("", binds, dict.fromkeys(binds, "text"), None, (), (), None, DECLARED)
    return [row for batch in snapshot.batches(reading) for row in batch]


@pytest.mark.parametrize(("cell", "why"), [
    (object(), "a object is no value"),
    (len, "a builtin_function_or_method is no value"),
    (lambda: 1, "a function is no value"),
    (int, "a type is no value"),
    ({1, 2}, "a set is no value"),
    ((each for each in "ab"), "a generator is no value"),
    (MappingProxyType({"a": 1}), "a mappingproxy is no value"),
    (ValueError("secret"), "a ValueError is no value"),
    ([1, {"a": (object(),)}], "a object is no value"),
    ({object(): 1}, "a object is no value"),
    (holding_itself(), "it is nested more than 200 deep, or holds itself"),
    (10**4_300, "it is an integer of more than 4,300 digits"),
    ([-(10**4_300)], "it is an integer of more than 4,300 digits"),
    (Mute(), "the text of a Mute cannot be made: LookupError: about …"),
], ids=map(str, range(14)))  # fmt: skip
def test_what_is_no_value_fails_with_its_row_and_column_and_without_itself(cell, why):
    with pytest.raises(BuildFailed) as failed:
        rows_with(cell, asked="hush_4711")

    assert ("list_failed", f"page 1, row 2, column 'name': {why}") == (failed.value.code, failed.value.cause)


VALUES = [10**4_300 - 1, -(10**4_300) + 1, [[[]]], {"a": {"b": None}}, memoryview(b"x"), 1e308]


@pytest.mark.parametrize("cell", VALUES, ids=map(str, range(6)))
def test_what_is_just_not_too_much_is_a_value(cell):
    assert [(1, "n"), (2, cell)] == rows_with(cell)

"""A list of an application as a source, for the conformance file; the same tables as its SQL makes."""

from __future__ import annotations

from haulage import Page
from haulage.core.requester import Requester
from haulage.sources.pages import PagesSource


class Paged:
    snapshot = False

    def __init__(self, folder):
        pass

    def open(self, name):
        place = f"{__name__}:{{}}"
        pages = {"page_rows": 700, "page_bytes": 10**9, "function": place.format(name), "count": None}
        if name in ("numbers", "none"):
            pages["count"] = place.format(f"count_{name}")
        return PagesSource(Requester("north", "amina"), pages)

    def close(self):
        pass


def paged(row_of, upto):
    def page(_requester, cursor, limit):
        first = (cursor or 0) + 1
        last = min(upto, first + limit - 1)
        return Page(map(row_of, range(first, last + 1)), last if last < upto else None)

    return page


def count_numbers(_requester):
    return 3_000


def count_none(_requester):
    return 0


numbers = paged(lambda i: {"i": i, "k": i % 7}, 3_000)
none = paged(None, 0)
texts = paged(lambda _i: {"i": None, "k": ""}, 1)
wide = paged(lambda i: {"i": i, "k": "x" * 400_000 if i > 1_000 else "x"}, 1_030)
breaks = paged(lambda i: {"i": i, "k": {}["nowhere"] if i == 4_000 else i}, 5_000)

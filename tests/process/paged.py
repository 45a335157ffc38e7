"""Page functions as an application has them, and as it should not. The child of a run imports them from here."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from pathlib import Path

from haulage import Page
from haulage.core.catalogue import Column, Dataset, Pages, Parameter

COLUMNS = {"i": Column("i", "No.", "integer"), "name": Column("name", "name")}
INSTANT = datetime(2026, 1, 31, 12, tzinfo=UTC)


def rows_from(first, last):
    return [{"i": i, "name": f"name {i}"} for i in range(first, last + 1)]


def names(_requester, cursor, limit, rows):
    """Keyset pages: the cursor is the last key."""
    first = (cursor or 0) + 1
    last = min(rows, first + limit - 1)
    return Page(rows_from(first, last), last if last < rows else None)


def count_names(_requester, rows):
    return rows


def count_one_less(_requester, rows):
    return rows - 1


def count_one_more(_requester, rows):
    return rows + 1


def count_for_ever(_requester, rows):
    time.sleep(3600)


def count_unknown(_requester, rows):
    return None


def count_badly(_requester, rows):
    return str(rows)


def count_raising(_requester, rows):
    raise LookupError(f"hush_4711 {rows}")


def one_by_one(requester, cursor, limit, rows):
    """A page that is made while it is read."""
    page = names(requester, cursor, limit, rows)
    return page._replace(rows=iter(page.rows))


def of_an_instant(requester, cursor, limit, rows):
    return names(requester, cursor, limit, rows)._replace(snapshot_at=INSTANT)


def of_two_instants(requester, cursor, limit, rows):
    return names(requester, cursor, limit, rows)._replace(snapshot_at=INSTANT.replace(hour=13) if cursor else INSTANT)


def of_no_zone(requester, cursor, limit, rows):
    return names(requester, cursor, limit, rows)._replace(snapshot_at=INSTANT.replace(tzinfo=None))


def of_the_future(requester, cursor, limit, rows):
    return names(requester, cursor, limit, rows)._replace(snapshot_at=INSTANT.replace(year=3026))


def of_a_clock_ahead(requester, cursor, limit, rows):
    """By as much as the clocks of two hosts may differ."""
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=20) if cursor is None else SAID[0]
    SAID[:] = [at]
    return names(requester, cursor, limit, rows)._replace(snapshot_at=at)


SAID: list[datetime] = []


def stuck(_requester, _cursor, _limit, rows):
    return Page(rows_from(1, 2), "the same")


def circle(_requester, cursor, _limit, rows):
    """It leads back to its beginning after so many pages."""
    return Page(rows_from(1, 1), ((cursor or 0) + 1) % rows)


def circle_later(_requester, cursor, _limit, rows):
    """Its first pages lead on; it never comes back to the beginning."""
    at = (cursor or 0) + 1
    return Page(rows_from(1, 1), at if at < 50 + rows else 50)


def empty_for_ever(_requester, cursor, _limit, rows):
    return Page([], (cursor or 0) + 1)


def some_empty(_requester, cursor, _limit, rows):
    """A filter that finds nothing on most of the way."""
    at = (cursor or 0) + 1
    return Page(rows_from(at, at) if at % 400 == 0 else [], at if at < 1_200 else None)


def raising(_requester, cursor, limit, rows):
    if cursor:
        raise RuntimeError(f"no answer from https://secret.example/canary_4711?rows={rows}")
    return names(None, cursor, limit, rows)


def leaving(_requester, _cursor, _limit, rows):
    sys.exit("canary_4711")


def raising_in_its_rows(_requester, _cursor, _limit, rows):
    yield_some = ({"i": 1 // (2 - i), "name": "n"} for i in range(5))
    return Page(yield_some)


def none_among_its_rows(_requester, _cursor, _limit, rows):
    return Page([*rows_from(1, 2), None, *rows_from(4, 5)])


class Lazy(dict):
    """A record that is looked up when somebody reads it."""

    def __getitem__(self, key):
        raise LookupError(f"no {key} there")


def raising_in_a_row(_requester, _cursor, _limit, rows):
    return Page([Lazy(row) for row in rows_from(1, 2)])


class NoZone(tzinfo):
    def utcoffset(self, _at):
        raise LookupError("no such zone")


def of_a_zone_that_is_none(_requester, _cursor, _limit, rows):
    return Page(rows_from(1, 2), None, datetime(2026, 1, 31, tzinfo=NoZone()))


def too_many(_requester, _cursor, limit, rows):
    return Page(rows_from(1, limit + 1))


def endless_page(_requester, _cursor, _limit, rows):
    """It would never end, and must not be gathered."""
    return Page(iter(lambda: {"i": 1, "name": "again"}, None))


def fat(_requester, _cursor, _limit, rows):
    return Page({"i": i, "name": "x" * 100_000} for i in range(900))


def fat_documents(_requester, _cursor, _limit, rows):
    return Page({"i": i, "name": ["x" * 100_000]} for i in range(900))


def others_on_the_second(_requester, cursor, _limit, rows):
    return Page([{"i": 2, "title": "n"}]) if cursor else Page(rows_from(1, 1), 1)


def more_on_the_second(_requester, cursor, _limit, rows):
    return Page([{"i": 2, "name": "n", "title": "canary_4711"}]) if cursor else Page(rows_from(1, 1), 1)


def no_mapping(_requester, _cursor, _limit, rows):
    return Page([(1, "n")])


def no_page(_requester, _cursor, _limit, rows):
    return rows_from(1, 2)


async def not_awaited(_requester, _cursor, _limit, rows):
    return Page([])


def hanging(requester, cursor, limit, rows):
    """The second page never comes, whatever is told to the process."""
    if cursor:
        Path("hangs").touch()
        while True:
            time.sleep(3600)
    return names(requester, cursor, limit, rows)


def endless(_requester, cursor, limit, rows):
    first = (cursor or 0) + 1
    return Page(rows_from(first, first + limit - 1), first + limit - 1)


def hungry(_requester, _cursor, _limit, rows):
    return Page([{"i": 1, "name": "x" * 10**12}])


asked_before: list[int] = []


def changing(_requester, _cursor, _limit, rows):
    """A list that is written to: other rows, and values of another kind, each time it is read."""
    asked_before.append(rows)
    more = len(asked_before) - 1
    return Page([{"i": 1, "name": "a"}, *({"i": 2**70, "name": 1.5} for _ in range(more))])


def nasty(_requester, _cursor, _limit, rows):
    return Page(
        [
            {"i": 2**63, "name": "=1+1"},
            {"i": None, "name": ""},
            {"i": -1, "name": None},
            {"i": Decimal("1.10"), "name": 'a\nb,"c" é🚀 \ud800'},
            {"i": True, "name": {"a": [1, None]}},
        ]
    )


async def later():
    return "canary_4711"


def unawaited(_requester, _cursor, _limit, rows):
    """A forgotten await in the second row."""
    return Page([{"i": 1, "name": "n"}, {"i": 2, "name": [later()]}])


def some_value(_requester, _cursor, _limit, rows):
    """What has a text of its own is a value, and what is just not too much."""
    import uuid
    from fractions import Fraction

    deep = []
    for _ in range(190):
        deep = [deep]
    found = [
        uuid.UUID(int=7),
        Path("/a"),
        timedelta(days=1, seconds=2),
        10**4_299,
        deep,
        Fraction(1, 3),
        bytearray(b"x"),
    ]
    return Page([{"i": i, "name": each} for i, each in enumerate(found)])


def interrupted(_requester, _cursor, _limit, rows):
    raise KeyboardInterrupt


def leaving_something(requester, cursor, limit, rows):
    """It starts a program far from its own group, and forgets it; told to, it waits for ever."""
    program = [sys.executable, "-IS", "-c", "import time; time.sleep(3600)", str(Path.cwd())]
    subprocess.Popen(program, start_new_session=True, env={})
    if rows == STAYS:
        time.sleep(3600)
    return names(requester, cursor, limit, rows)


STAYS = 4_711


def told(requester, _cursor, limit, day, price, instant, kinds, maybe):
    """What a function is asked with, as it sees it."""
    seen = (requester, limit, day, price, instant, kinds, maybe)
    environment = {name: os.environ.get(name) for name in ("TICKETS_TOKEN", "LANG_OF_TICKETS", "OF_THE_WORKER")}
    return Page([{"i": 1, "name": repr(seen)}, {"i": 2, "name": repr(sorted(environment.items()))}])


ROWS = (Parameter("rows", "integer", default=2_500),)
TOLD = (
    Parameter("day", "date", default="2026-01-31"),
    Parameter("price", "decimal", default="12.50"),
    Parameter("instant", "timestamp", default="2026-01-31T23:30:00+01:00"),
    Parameter("kinds", "text", many=True, default=("a", "b")),
    Parameter("maybe", "integer", optional=True),
)


def paged(name: str, function, *, count=None, columns=COLUMNS, parameters=ROWS, key=("i",), **members) -> Dataset:
    """A dataset as ``Haulage.pages`` declares it."""
    pages = {each: members.pop(each) for each in ("page_rows", "page_bytes", "environment") if each in members}
    place = f"{__name__}:{{}}"
    declared = Pages(place.format(function.__name__), count and place.format(count.__name__), **pages)
    formats = members.pop("formats", ("csv", "json", "ndjson"))
    return Dataset(
        name,
        "",
        pages=declared,
        count=count,
        columns=columns,
        parameters=parameters,
        key=key,
        formats=formats,
        **members,
    )

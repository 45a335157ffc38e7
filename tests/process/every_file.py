"""Every file of every source, made here and measured: the program of test_same_bytes.py, which runs it twice.

Its input is JSON: ``sources`` (name -> url, sql), ``folder``, ``formats`` (all without it), ``later`` (seconds that the
clock is ahead) and ``at``, the instant that each snapshot says it is of. Its output: a digest a source, format, option
and compression.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
import time
from decimal import Decimal
from pathlib import Path

from tests.stories.building import Yard, query

from haulage import Page
from haulage.core.catalogue import Column
from haulage.core.requester import Requester
from haulage.formats import FORMATS
from haulage.sources import open_source
from haulage.sources.pages import PagesSource

TEXTS = ["=1+1", "a\rb", 'say "yes", no', "", "😀 ê 报告", "a\ud800b", "x" * 300, None]


class Given(Yard):
    """A yard on a source that is there already."""

    def __init__(self, folder: Path, url: str):
        self.url = url
        super().__init__(folder)

    def _make(self):
        pass

    @contextlib.contextmanager
    def writer(self):
        yield None


class Pinned:
    """A source whose snapshots are of one instant, as if two runs had begun in the same millisecond."""

    def __init__(self, source, at: int):
        self._source, self._at = source, at

    @contextlib.contextmanager
    def snapshot(self):
        with self._source.snapshot() as snapshot:
            snapshot.at = self._at
            yield snapshot

    def cancel(self):
        self._source.cancel()


def rows(_requester, cursor, limit):
    """A page function: what only Python has, in rows that end in a set's order if anything does."""
    names = {name: number for number, name in enumerate(sorted({"alpha", "beta", "gamma", "delta"}))}
    made = [{"i": i, "k": {**names, "n": Decimal("1.50")}, "t": TEXTS[i % len(TEXTS)]} for i in range(20)]
    return Page(made, None)


def asked_of(format) -> list[tuple[dict[str, str], str | None]]:
    """Every way to ask for its options, and every compression of the first of them."""
    choices = [[(option.name, choice) for choice in option.choices] for option in format.options]
    options = [dict(each) for each in itertools.product(*choices)]
    return [*((each, None) for each in options), *((options[0], each) for each in format.compressions)]


def main() -> None:
    asked = json.load(sys.stdin)
    real = time.time_ns
    time.time_ns = lambda: real() + asked["later"] * 10**9
    time.time = lambda: time.time_ns() / 10**9
    time.gmtime, time.localtime = (
        lambda seconds=None, of=of: of(time.time() if seconds is None else seconds)
        for of in (time.gmtime, time.localtime)
    )
    folder = Path(asked["folder"])
    digests = {}
    for name, (url, sql) in asked["sources"].items():
        columns = {key: Column(key, key) for key in ("i", "k", "t")} if name == "pages" else {}
        dataset = query(sql, key=("i",) if sql else (), columns=columns)
        (folder / name).mkdir()
        yard = Given(folder / name, url)
        for format in map(FORMATS.__getitem__, asked.get("formats", FORMATS)):
            for options, compression in asked_of(format):
                source = open_source(url) if sql else PagesSource(
                    Requester("north", "amina"),
                    {"page_rows": 100, "page_bytes": 10**6, "function": f"{__name__}:rows", "count": None},
                )  # fmt: skip
                if sql:  # pages have none
                    source = Pinned(source, asked["at"])
                built, _ = yard.build(
                    dataset, source=source, format=format.name, options=options, compression=compression
                )
                digests[" ".join([name, format.name, *options.values(), compression or "plain"])] = built.sha256
    json.dump(digests, sys.stdout)

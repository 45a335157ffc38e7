"""What every source must do, whatever it reads; a new room of sources/ needs a maker here and passes the rest."""

from __future__ import annotations

import contextlib
import sqlite3
import threading

import pytest

from haulage.core.errors import BuildFailed
from haulage.core.reading import Reading
from haulage.sources import SOURCES, open_source, scheme_of

NUMBERS = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 3000) select i, i % 7 as k from n"


def sqlite_source(folder):
    with contextlib.closing(sqlite3.connect(folder / "source.db")) as made, made:
        made.execute("pragma journal_mode=wal")
        made.execute("create table marks (mark integer)")
    return f"sqlite:///{folder}/source.db"


def sqlite_writes(url, mark):
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as source, source:
        source.execute("insert into marks values (?)", (mark,))


MAKERS = {"sqlite": (sqlite_source, sqlite_writes)}


@pytest.fixture(params=SOURCES)
def source(request, tmp_path):
    """A source, and a way to write into it from outside."""
    make, write = MAKERS[request.param]
    url = make(tmp_path)
    opened = open_source(url)
    opened.write = lambda mark: write(url, mark)
    return opened


def reading(sql, **members):
    return Reading(sql, {}, {}, None, (), (), None, {})._replace(**members)


def rows_of(snapshot, asked):
    with contextlib.closing(snapshot.batches(asked)) as batches:
        return [row for batch in batches for row in batch]


def test_what_is_counted_is_what_comes_in_batches_of_a_bounded_size(source):
    with source.snapshot() as snapshot:
        count = snapshot.count(reading(NUMBERS), 10)
        with contextlib.closing(snapshot.batches(reading(NUMBERS))) as batches:
            sizes = [len(batch) for batch in batches]

    assert 3_000 == count == sum(sizes)
    assert 1 <= min(sizes) <= max(sizes) <= 1_000


def test_a_snapshot_does_not_see_what_is_written_after_it_began(source):
    asked = reading("select mark from marks")
    source.write(1)
    with source.snapshot() as snapshot:
        before = snapshot.count(asked, 10)
        source.write(2)
        after, rows = snapshot.count(asked, 10), rows_of(snapshot, asked)
    with source.snapshot() as later:
        seen = rows_of(later, asked)

    assert (1, 1, [(1,)]) == (before, after, rows)
    assert [(1,), (2,)] == sorted(seen)


def test_columns_are_named_before_a_row_is_read_and_typed_as_declared(source):
    with source.snapshot() as snapshot:
        plain = snapshot.columns(reading(NUMBERS))
        chosen = snapshot.columns(reading(NUMBERS, columns=("k",), declared={"k": ("Weekday", "integer")}))

    assert [("i", "i"), ("k", "k")] == [(column.key, column.header) for column in plain]
    assert [("k", "Weekday", "integer")] == [tuple(column) for column in chosen]


def test_the_visible_predicate_and_the_order_stand_around_the_query(source):
    asked = reading(NUMBERS, visible="k = 0", order=("i desc",), columns=("i",))
    with source.snapshot() as snapshot:
        count, rows = snapshot.count(asked, 10), rows_of(snapshot, asked)

    assert (428, (2996,), (7,)) == (count, rows[0], rows[-1])


def test_a_count_that_takes_too_long_is_unknown_and_the_snapshot_goes_on(source):
    endless = reading("with recursive n(i) as (select 1 union all select i + 1 from n) select i from n")
    with source.snapshot() as snapshot:
        assert None is snapshot.count(endless, 0.05)
        assert 3_000 == snapshot.count(reading(NUMBERS), 10)
        assert 3_000 == len(rows_of(snapshot, reading(NUMBERS)))


def test_batches_that_are_closed_in_the_middle_leave_no_thread_and_no_transaction(source):
    with source.snapshot() as snapshot:
        batches = snapshot.batches(reading(NUMBERS), sort_bytes=10**6)
        next(batches)
        assert "watch" in {thread.name for thread in threading.enumerate()}
        batches.close()
        assert "watch" not in {thread.name for thread in threading.enumerate()}
        assert 3_000 == snapshot.count(reading(NUMBERS), 10)
    source.write(3)


def test_a_fault_of_the_query_has_a_code_public_words_and_a_cause_for_the_log(source):
    with source.snapshot() as snapshot, pytest.raises(BuildFailed) as failed:
        rows_of(snapshot, reading("select canary_4711 from marks"))

    assert ("source_failed", "The data source refused the query.") == (failed.value.code, failed.value.detail)
    assert "canary_4711" in failed.value.cause


def test_a_check_tells_the_operator_every_problem_and_none_where_there_is_none(source):
    assert [] == source.check(reading(NUMBERS))
    assert ["hidden: the query has no column 'x'", "hidden: the query has no column 'y'"] == source.check(
        reading(NUMBERS, hidden=("x", "y"))
    )


def test_every_room_is_found_by_its_scheme_and_an_unknown_one_is_named():
    assert set(SOURCES) == set(MAKERS)
    assert "postgresql" == scheme_of("postgresql+psycopg://host/name")
    with pytest.raises(ValueError, match=r"no source reads 'gopher'; there are: sqlite"):
        open_source("gopher://host")

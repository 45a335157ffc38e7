"""What every source must do whatever it is made of; what only one of SQL can do is in test_sources.py.

What differs is asked by capability: ``snapshot`` (count and rows are of one instant), ``sql``.
"""

from __future__ import annotations

import contextlib
import threading

import pytest
from tests.conformance.paged_case import Paged
from tests.conformance.source_cases import CASES
from tests.promises import NotPromised

from haulage.core.errors import BuildFailed
from haulage.core.reading import Reading

pytestmark = pytest.mark.slow

UPTO = "with recursive n(i) as (select 1 union all select i + 1 from n where i < {})"
SQL = {
    "numbers": UPTO.format(3_000) + " select i, i % 7 as k from n",
    "marks": "select mark as i, mark as k from marks",
    "none": "select 1 as i, 1 as k where 1 = 0",
    "texts": "select null as i, '' as k",
    "breaks": UPTO.format(5_000) + " select i, case when i = 4000 then nowhere(i) else i end as k from n",
}
DECLARED = {"i": ("i", "integer"), "k": ("Weekday", None)}
MIB = 1024 * 1024


@pytest.fixture(params=[*CASES, "pages"])
def case(request, tmp_path):
    made = Paged(tmp_path) if request.param == "pages" else CASES[request.param](tmp_path)
    yield made
    made.close()


def open_for(case, name):
    """A source, and how one of the tables above is read from it."""
    if isinstance(case, Paged):
        return case.open(name), Reading("", {}, {}, None, (), (), None, DECLARED)
    wide = f"select i, case when i > 1000 then {case.wide.format(400_000)} else 'x' end as k from n"
    sql = SQL | {"wide": UPTO.format(1_030) + " " + wide}
    return case.open(), Reading(sql[name], {}, {}, None, (), (), None, DECLARED, as_text=name == "wide")


def batches_of(snapshot, asked):
    with contextlib.closing(snapshot.batches(asked)) as batches:
        return list(batches)


def rows_of(snapshot, asked):
    return [row for batch in batches_of(snapshot, asked) for row in batch]


def test_columns_are_known_before_a_row_is_read_with_headers_and_types_as_declared(case):
    source, asked = open_for(case, "numbers")
    with source.snapshot() as snapshot:
        columns = [column[:3] for column in snapshot.columns(asked)]
        chosen = snapshot.columns(asked._replace(columns=("k",)))

    assert [("i", "i", "integer"), ("k", "Weekday", columns[1][2])] == columns
    assert [("k", "Weekday")] == [column[:2] for column in chosen]


def test_chosen_columns_come_in_their_order_and_an_unknown_one_is_refused(case):
    source, asked = open_for(case, "numbers")
    with source.snapshot() as snapshot:
        rows = rows_of(snapshot, asked._replace(columns=("k", "i")))
        with pytest.raises(BuildFailed) as failed:
            rows_of(snapshot, asked._replace(columns=("secret",)))

    assert {(i % 7, i) for i in range(1, 3_001)} == set(rows)
    assert ("source_failed", "the query has no column 'secret' to write") == (failed.value.code, failed.value.cause)


def test_what_is_counted_is_what_comes_in_batches_of_a_bounded_size(case):
    source, asked = open_for(case, "numbers")
    with source.snapshot() as snapshot:
        count = snapshot.count(asked, 10)
        batches = batches_of(snapshot, asked)

    assert 3_000 == count == sum(map(len, batches))
    assert {(i, i % 7) for i in range(1, 3_001)} == {row for batch in batches for row in batch}
    assert 1 <= min(map(len, batches)) <= max(map(len, batches)) <= 1_000


def test_batches_of_large_rows_are_of_few_of_them(case):
    source, asked = open_for(case, "wide")
    with source.snapshot() as snapshot:
        sizes = [sum(len(wide) for _, wide in batch) for batch in batches_of(snapshot, asked)]

    assert 1_000 + 30 * 400_000 == sum(sizes)
    assert max(sizes) < 3 * MIB


def test_no_rows_are_columns_and_a_count(case):
    source, asked = open_for(case, "none")
    with source.snapshot() as snapshot:
        assert ["i", "k"] == [column.key for column in snapshot.columns(asked)]
        assert (0, []) == (snapshot.count(asked, 10), rows_of(snapshot, asked))


def test_null_and_the_empty_text_are_two(case):
    source, asked = open_for(case, "texts")
    with source.snapshot() as snapshot:
        assert [(None, "")] == rows_of(snapshot, asked)


def test_rows_that_are_closed_in_the_middle_leave_no_thread_and_can_be_read_again(case):
    source, asked = open_for(case, "numbers")
    threads = threading.active_count()
    with source.snapshot() as snapshot:
        batches = snapshot.batches(asked)
        next(batches)
        batches.close()
        assert threads == threading.active_count()
        assert 3_000 == len(rows_of(snapshot, asked))


def test_an_error_in_the_middle_of_the_rows_is_an_error(case):
    source, asked = open_for(case, "breaks")
    with source.snapshot() as snapshot, pytest.raises(BuildFailed) as failed:
        rows_of(snapshot, asked)

    assert failed.value.code in ("source_failed", "list_failed")
    assert "nowhere" in failed.value.cause
    assert "nowhere" not in failed.value.detail


def test_a_check_finds_nothing_where_there_is_nothing(case):
    source, asked = open_for(case, "numbers")
    assert [] == source.check(asked)


def test_a_source_with_snapshots_says_of_when_and_one_without_does_not(case):
    source, asked = open_for(case, "numbers")
    with source.snapshot() as snapshot:
        rows_of(snapshot, asked)
        assert case.snapshot == (snapshot.at is not None)


def test_what_is_written_after_a_snapshot_began_is_not_in_it(case):
    if not case.snapshot:
        raise NotPromised("pages are read one after the other")
    source, asked = open_for(case, "marks")
    with source.snapshot() as snapshot:
        case.meanwhile("insert into marks (mark) values (1)")
        assert (0, []) == (snapshot.count(asked, 10), rows_of(snapshot, asked))


def test_the_source_makes_a_file_itself_or_says_that_it_does_not(case):
    source, asked = open_for(case, "numbers")
    with source.snapshot() as snapshot:
        stream = snapshot.stream(asked, "csv")
        if stream is None:
            raise NotPromised("this source makes no files")
        with contextlib.closing(stream.chunks()) as chunks:
            lines = b"".join(chunks).splitlines()

    assert 3_000 == stream.rows == len(lines)


def test_a_cancel_with_nothing_open_is_nothing(case):
    source, asked = open_for(case, "numbers")
    source.cancel()
    with source.snapshot() as snapshot:
        assert 3_000 == len(rows_of(snapshot, asked))

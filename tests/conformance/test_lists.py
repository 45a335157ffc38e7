"""Lists are newest first and are paged by key: nothing twice and nothing lost while others write."""

from __future__ import annotations

import pytest

from haulage.core.ports import Query


def pages(case, size, between=lambda: None, **query):
    """Every id that a reader sees who turns page after page; ``between`` is what others do meanwhile."""
    seen, before = [], None
    while True:
        found = case.runs.list(Query(before=before, limit=size, **query))
        page = found[:size]
        seen += [run.id for run in page]
        if len(found) <= size:
            return seen
        before = (page[-1].requested_at, page[-1].id)
        between()


def newest_first(runs):
    return [run.id for run in sorted(runs, key=lambda run: (run.requested_at, run.id), reverse=True)]


def test_the_newest_run_comes_first(case):
    runs = [case.add(seconds=seconds) for seconds in (3, 1, 2)]

    assert newest_first(runs) == [run.id for run in case.runs.list(Query())]


def test_a_list_answers_one_more_than_asked_for_when_there_is_another_page(case):
    for seconds in range(5):
        case.add(seconds=seconds)

    assert [3, 5, 5] == [len(case.runs.list(Query(limit=limit))) for limit in (2, 4, 5)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_pages_together_are_the_list_also_where_many_runs_are_of_one_instant(case, size):
    runs = [case.add(seconds=number // 5) for number in range(17)]

    assert newest_first(runs) == pages(case, size)


def test_runs_that_come_while_a_reader_turns_pages_shift_nothing(case):
    runs = [case.add(seconds=number // 3) for number in range(12)]

    assert newest_first(runs) == pages(case, 2, between=lambda: case.add(seconds=99))


def test_runs_of_the_same_instant_that_come_while_a_reader_turns_pages_are_not_doubled(case):
    runs = [case.add() for _ in range(8)]
    seen = pages(case, 2, between=case.add)

    assert len(set(seen)) == len(seen)
    assert {run.id for run in runs} <= set(seen)


def test_runs_that_end_while_a_reader_turns_pages_shift_nothing(case):
    runs = [case.add(seconds=number) for number in range(9)]

    assert newest_first(runs) == pages(case, 2, between=case.claim)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_runs_that_are_held_stand_where_they_were_asked_for(case, size):
    runs = [case.add("north" if number % 2 else "south", seconds=number) for number in range(8)]
    held = [case.claim(f"w{number}", slots=4, tenant_running=2)[1].id for number in range(4)]
    case.cancel(runs[5].id)

    assert newest_first(runs) == pages(case, size)
    assert newest_first(runs[1::2]) == pages(case, size, tenant="north")
    assert [each for each in newest_first(runs) if each in held] == pages(case, size, state="running")
    assert [runs[7].id, runs[6].id, runs[4].id] == pages(case, size, state="queued")


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({}, {"a", "b", "c", "d"}),
        ({"tenant": "north"}, {"a", "b", "c"}),
        ({"tenant": "north", "account": "amina"}, {"a", "c"}),
        ({"tenant": "south", "account": "amina"}, {"d"}),
        ({"tenant": "north", "account": "amina", "state": "cancelled"}, {"c"}),
        ({"state": "queued"}, {"a", "b", "d"}),
        ({"dataset": "refunds"}, {"d"}),
        ({"tenant": "west"}, set()),
    ],
)
def test_a_list_has_what_was_asked_for_and_nothing_else(case, query, wanted):
    case.add("north", id="a", account="amina")
    case.add("north", id="b", account="ben")
    case.add("north", id="c", account="amina")
    case.add("south", id="d", account="amina", dataset="refunds")
    case.cancel("c")

    assert wanted == {run.id for run in case.runs.list(Query(**query))}
    assert wanted == set(pages(case, 1, **query))

"""What is written into a run is what is read of it, by whichever way it is read."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.conformance.cases import NOW

from haulage.core.errors import StoreUnavailable
from haulage.core.ports import Query
from haulage.stores.database import Refusal
from haulage.stores.open import open_store

NASTY = "Jülich 報告 🜚 'a' \"b\" \\c \\n %s %(d)s $1 :e\t\r\n\u0085\u2028 \x01\x7f"


def test_a_run_is_read_alike_when_it_is_claimed_by_its_id_and_in_a_list(case):
    asked = case.add(
        parameters={"text": NASTY, NASTY: None, "deep": [[1.5, -0.0, 2**53 + 1, 1e300], {"x": True}], "nul": "a\0b"},
        file_bytes=2**62,
        account=NASTY[:100].strip(),
    )
    _, claimed = case.claim()
    by_id = case.get(asked)
    (listed,) = case.runs.list(Query())

    assert claimed == by_id == listed
    assert asked.parameters == by_id.parameters
    assert (asked.file_bytes, asked.account) == (by_id.file_bytes, by_id.account)


def test_what_a_settle_writes_is_read(case):
    finish = case.moves("finish")
    held = case.hold()

    run = case.settle(
        held, finish, file_name=NASTY, bytes=2**60, complete=False, notices=({"code": NASTY, "count": 0},)
    )
    (listed,) = case.runs.list(Query())

    assert (NASTY, 2**60, False, ({"code": NASTY, "count": 0},)) == (
        run.file_name,
        run.bytes,
        run.complete,
        run.notices,
    )
    assert run == listed


@pytest.mark.parametrize("text", ["a\0b", "\0", "a\ud800b"], ids=ascii)
def test_a_text_that_a_database_cannot_hold_is_refused_and_never_cut(case, text):
    fail = case.moves("fail")
    held = case.hold()
    try:
        case.settle(held, fail, failure_detail=text)
    except (StoreUnavailable, Refusal, UnicodeEncodeError):
        kept = case.get(held.id)
        case.settle(held, fail, failure_detail="told otherwise")
        assert ("running", None) == (kept.state, kept.failure_detail)
    else:
        assert text == case.get(held.id).failure_detail


def test_a_database_that_keeps_its_text_otherwise_is_a_store_too(case):
    case.needs_opener("in_encoding")
    url = case.opener.in_encoding("LATIN1")
    with closing(open_store(url, migrate_new=False)) as store:
        store.migrate()
        run = case.kit.new(requested_at=NOW, account="Jülich", parameters={"city": "Jülich", "other": "報告"})
        runs = getattr(store, case.flow.name)
        runs.add(run)
        read = [runs.get(run.id), runs.get(run.id), runs.get(run.id), *runs.list(Query())]

    assert [run] * 4 == read

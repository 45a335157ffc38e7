"""What every source of SQL must do beside test_sources_everywhere.py; a new one needs a case and passes the rest."""

from __future__ import annotations

import contextlib
import threading
import time
from decimal import Decimal

import pytest
from tests.conformance.source_cases import CASES
from tests.promises import NotPromised
from tests.servers import mysql

from haulage.core.errors import BuildFailed
from haulage.core.reading import Reading
from haulage.sources import SERVERS, SOURCES, end_session, open_source, scheme_of

UPTO = "with recursive n(i) as (select 1 union all select i + 1 from n where i < {})"
NUMBERS = UPTO.format(3_000) + " select i, i % 7 as k from n"


def cases():
    """One for each room; that of mysql is mariadb's under another name, unless there is such a server."""
    rooms = [name for name in SOURCES if name != "mysql" or mysql.PROGRAM]
    return [pytest.param(name, marks=pytest.mark.slow if name != "sqlite" else ()) for name in rooms]


@pytest.fixture(params=cases())
def case(request, tmp_path):
    """A source, made anew, and the way past it."""
    made = CASES[request.param](tmp_path)
    yield made
    made.close()


@pytest.fixture
def source(case):
    return case.open()


def reading(sql, **members):
    return Reading(sql, {}, {}, None, (), (), None, {})._replace(**members)


def batches_of(snapshot, asked):
    with contextlib.closing(snapshot.batches(asked)) as batches:
        return list(batches)


def rows_of(snapshot, asked):
    return [row for batch in batches_of(snapshot, asked) for row in batch]


def read(source, asked):
    with source.snapshot() as snapshot:
        return rows_of(snapshot, asked)


def refused(source, sql, **members):
    """How a query fails, in the child and for the operator alike."""
    with source.snapshot() as snapshot, pytest.raises(BuildFailed) as failed:
        rows_of(snapshot, reading(sql, **members))
    assert [] != source.check(reading(sql, **members))
    return failed.value


# -- one snapshot --------------------------------------------------------------------------------------


def test_a_snapshot_does_not_see_what_is_written_after_it_began(case, source):
    asked = reading("select mark from marks")
    case.execute("insert into marks (mark) values (1)")
    with source.snapshot() as snapshot:
        before = snapshot.count(asked, 10)
        written = case.meanwhile("insert into marks (mark) values (2)")
        after, rows = snapshot.count(asked, 10), rows_of(snapshot, asked)
    seen = read(source, asked)

    assert (1, 1, [(1,)]) == (before, after, rows)
    assert [(1,), (2,)][: 1 + written] == sorted(seen)


def test_what_is_written_before_the_first_look_is_not_seen_either(case, source):
    with source.snapshot() as snapshot:
        case.meanwhile("insert into marks (mark) values (1)")
        assert 0 == snapshot.count(reading("select mark from marks"), 10)


def test_all_that_was_committed_by_the_instant_of_a_snapshot_is_in_it(case, source):
    case.execute("insert into marks (mark) values (1)")
    before = time.time_ns() // 1_000_000
    with source.snapshot() as snapshot:
        assert [(1,)] == rows_of(snapshot, reading("select mark from marks"))
        assert before <= snapshot.at <= time.time_ns() // 1_000_000


# -- columns -------------------------------------------------------------------------------------------


def test_columns_are_named_before_a_row_is_read_and_typed_as_declared(case, source):
    with source.snapshot() as snapshot:
        plain = snapshot.columns(reading(NUMBERS))
        chosen = snapshot.columns(reading(NUMBERS, columns=("k",), declared={"k": ("Weekday", "decimal")}))

    known = "integer" if case.typed else None
    assert [("i", "i", known), ("k", "k", known)] == [column[:3] for column in plain]
    assert [("k", "Weekday", "decimal")] == [column[:3] for column in chosen]


def test_two_columns_of_one_name_are_two_and_can_be_asked_for_and_seen_by_their_new_names(source):
    asked = reading("select 1 as a, 2 as b, 3 as a, 4 as a_2", order=("a desc",))
    with source.snapshot() as snapshot:
        keys = [column.key for column in snapshot.columns(asked)]
        rows = rows_of(snapshot, asked)
        chosen = rows_of(snapshot, asked._replace(columns=("a_3", "b")))

    assert (["a", "b", "a_3", "a_2"], [(1, 2, 3, 4)], [(3, 2)]) == (keys, rows, chosen)


def test_the_columns_of_a_query_that_never_ends_are_known_without_running_it(case, source):
    with source.snapshot() as snapshot:
        assert ["total"] == [column.key for column in snapshot.columns(reading(case.silent))]
        assert ["i"] == [column.key for column in snapshot.columns(reading(case.endless, order=("i desc",)))]
        twice = f"select a.total, b.total from ({case.silent}) as a, ({case.silent}) as b"
        assert ["total", "total_2"] == [column.key for column in snapshot.columns(reading(twice))]
    assert [] == source.check(reading(case.silent))


@pytest.mark.parametrize(
    "name", ["Mixed Case", 'say "hi"', "it's", "per cent % {0}", ":bound", "back`tick", "select", "報告", "a;b"]
)
def test_a_column_may_have_any_name(case, source, name):
    sql = f"select 2 as {case.quoted(name)}, 1 as other union all select 1, 1"
    asked = reading(sql, order=('"' + name.replace('"', '""') + '"',))  # the way of an order, whatever the database's
    with source.snapshot() as snapshot:
        assert [name, "other"] == [column.key for column in snapshot.columns(asked)]
        assert [(1, 1), (2, 1)] == rows_of(snapshot, asked)
        assert [(1,), (2,)] == rows_of(snapshot, asked._replace(columns=(name,)))


def test_headers_that_are_declared_alike_are_made_distinct(source):
    with source.snapshot() as snapshot:
        columns = snapshot.columns(reading("select 1 as a, 2 as b", declared={"b": ("a", None)}))

    assert [("a", "a"), ("b", "a_2")] == [(column.key, column.header) for column in columns]


@pytest.mark.parametrize("hidden", ["secret", "SECRET"])
def test_a_hidden_column_can_be_seen_by_and_sorted_by_and_is_never_read(source, hidden):
    asked = reading(UPTO.format(20) + " select i, i % 7 as secret, 9 as secret from n", hidden=(hidden,),
                    visible="secret = 3", order=("secret", "i desc"))  # fmt: skip
    with source.snapshot() as snapshot:
        assert ["i"] == [column.key for column in snapshot.columns(asked)]
        assert (3, [(17,), (10,), (3,)]) == (snapshot.count(asked, 10), rows_of(snapshot, asked))
        for secret in ("secret", "secret_2"):
            with pytest.raises(BuildFailed) as failed:
                rows_of(snapshot, asked._replace(columns=(secret,)))
            assert f"the query has no column '{secret}' to write" == failed.value.cause


def test_a_query_of_nothing_but_hidden_columns_is_refused(source):
    assert "every column of the query is hidden" == refused(source, "select 1 as a", hidden=("a",)).cause


@pytest.mark.parametrize(("hidden", "named"), [(("nope",), "'nope'"), (("a", "nope", "b_3"), "'nope', 'b_3'")])
def test_a_column_that_is_not_there_cannot_be_hidden_and_nothing_is_written(source, hidden, named):
    sql = "select 1 as a, 2 as b, 3 as b"
    failed = refused(source, sql, hidden=hidden)
    asked = reading(sql, hidden=("A", "b_2"))

    assert ("source_failed", f"hidden: the query has no column {named}") == (failed.code, failed.cause)
    assert [f"the query fails: {failed.cause}"] == source.check(reading(sql, hidden=hidden))
    assert [(2,)] == [tuple(map(int, row)) for row in read(source, asked)]


# -- which rows, in which order ------------------------------------------------------------------------


def test_the_visible_predicate_and_the_order_stand_around_the_query(source):
    asked = reading(NUMBERS, visible="k = 0", order=("i desc",), columns=("i",))
    with source.snapshot() as snapshot:
        count, rows = snapshot.count(asked, 10), rows_of(snapshot, asked)

    assert (428, (2996,), (7,)) == (count, rows[0], rows[-1])


def test_a_comment_at_the_end_of_the_query_or_of_the_predicate_ends_nothing(source):
    asked = reading(NUMBERS + " -- all of them", visible="k = 0 or k = 1 -- two of seven", order=("i",))
    assert 857 == len(read(source, asked))


def test_an_or_in_the_predicate_is_no_way_around_it(source):
    assert [(1,)] == read(source, reading("select 1 as a union all select 2", visible="1 = 0 or a = 1"))


def test_ties_are_broken_by_what_comes_after_and_numbers_are_sorted_as_numbers(source):
    asked = reading(NUMBERS, order=("k", "i desc"))
    rows = read(source, asked)

    assert sorted(rows, key=lambda row: (row[1], -row[0])) == rows
    assert [(100,), (20,), (3,)] == read(source, reading(UPTO.format(100) + " select i from n where i in (3, 20, 100)",
                                                         order=("i desc",), as_text=False))  # fmt: skip


def test_numbers_and_truths_are_sorted_as_what_they_are_when_they_are_written_as_text(case, source):
    sql = UPTO.format(100) + " select i, i > 3 as large from n where i in (3, 20, 100)"
    rows = read(source, reading(sql, order=("large", "i desc"), as_text=True))

    assert ["3", "100", "20"] == [str(row[0]) for row in rows]


@pytest.mark.parametrize(("order", "said"), [
    ("nowhere", "order: the query has no column 'nowhere'"),
    ("i; drop table marks", "order: 'i; drop table marks' is not understood; write \"name desc\""),
])  # fmt: skip
def test_an_order_by_what_the_query_does_not_have_is_refused(source, order, said):
    assert said == refused(source, NUMBERS, order=(order,)).cause


def test_a_list_is_bound_value_by_value_and_an_empty_one_holds_nothing(source):
    asked = reading(NUMBERS + " where i in (:wanted)", binds={"wanted": [7, 5, 4_000]}, types={"wanted": "integer"})
    assert [5, 7] == sorted(row[0] for row in read(source, asked))
    assert [] == read(source, asked._replace(binds={"wanted": []}))


@pytest.mark.parametrize(
    "text", ["it's", 'a "quote"', r"back\slash", "--", "; drop table marks", ":name", "é🚀", "%s {0}"]
)
def test_a_bound_text_is_nothing_but_text(case, source, text):
    asked = reading("select :it as text, ':it' as word", binds={"it": text}, types={"it": "text"})
    assert [(text, ":it")] == read(source, asked)
    assert [] == case.execute("select mark from marks")


@pytest.mark.parametrize(("value", "kind", "sql", "found"), [
    (-5, "integer", "select 3 - :it as a", 8),
    (-5, "integer", "select 3 -:it as a", 8),
    ("12.50", "decimal", "select :it + 1 = 13.5 as a", True),
    (True, "boolean", "select case when :it then 1 else 0 end as a", 1),
    (None, "text", "select 1 as a where :it is null", 1),
    ("2026-02-28", "date", "select :it > '2026-02-27' as a", True),
])  # fmt: skip
def test_a_bound_value_is_of_its_type(source, value, kind, sql, found):
    assert [(found,)] == read(source, reading(sql, binds={"it": value}, types={"it": kind}))


# -- counting and reading ------------------------------------------------------------------------------


def test_a_query_of_no_rows_has_columns_and_a_count(source):
    asked = reading("select 1 as a, 'x' as b where 1 = 0")
    with source.snapshot() as snapshot:
        assert ["a", "b"] == [column.key for column in snapshot.columns(asked)]
        assert (0, []) == (snapshot.count(asked, 10), rows_of(snapshot, asked))


def test_null_and_the_empty_text_are_two(source):
    asked = reading("select null as a, '' as b, 'NULL' as c, :it as d", binds={"it": r"\N"}, types={"it": "text"})
    assert [(None, "", "NULL", r"\N")] == read(source, asked)


def test_text_comes_as_it_is_with_every_line_end_and_tab(source):
    text = "a\tb\nc\rd\r\n\\t\\n \x0b\x0c\x08 \x7f \u2028 \ufeff ,;\"'"
    asked = reading("select :it as text, 1 as one", binds={"it": text}, types={"it": "text"})
    assert [(text, 1)] == read(source, asked)


def test_numbers_come_with_every_digit(case, source):
    sql = "select 9223372036854775807 as large, -9007199254740993 as less, 0.1 as tenth, 0 as zero"
    assert [(2**63 - 1, -9007199254740993, Decimal("0.1") if case.typed else 0.1, 0)] == read(source, reading(sql))


# -- ending --------------------------------------------------------------------------------------------


def test_a_count_that_takes_too_long_is_unknown_and_the_snapshot_goes_on(case, source):
    with source.snapshot() as snapshot:
        before = snapshot.count(reading("select mark from marks"), 10)
        case.meanwhile("insert into marks (mark) values (1)")
        for endless in (case.endless, case.silent):
            assert None is snapshot.count(reading(endless), 0.05)
        assert before == snapshot.count(reading("select mark from marks"), 10) == 0
        assert 3_000 == len(rows_of(snapshot, reading(NUMBERS)))


def test_a_count_that_nobody_waits_for_is_given_up(case, source):
    asked = []
    with source.snapshot() as snapshot:
        assert None is snapshot.count(reading(case.silent), 60, given_up=lambda: asked.append(1) or len(asked) > 2)


def test_batches_that_are_closed_in_the_middle_leave_no_thread_and_no_transaction(case, source):
    threads = threading.active_count()
    with source.snapshot() as snapshot:
        batches = snapshot.batches(reading(case.endless), sort_bytes=10**6)
        next(batches)
        batches.close()
        assert threads == threading.active_count()
        assert 3_000 == snapshot.count(reading(NUMBERS), 10)
    case.execute("insert into marks (mark) values (3)")


def test_a_cancel_from_another_thread_ends_a_silent_statement(case, source):
    ended = []

    def work():
        try:
            read(source, reading(case.silent))
        except BuildFailed as failed:
            ended.append(failed.code)

    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: case.working() == 1 if case.server else thread.is_alive())
    while thread.is_alive():  # one that comes before the statement finds nothing to cancel
        source.cancel()
        thread.join(0.1)

    assert ["source_failed"] == ended
    if case.server:
        assert 0 == case.working()


def of_servers(case):
    if not case.server:
        raise NotPromised("a statement in this process ends with it")


def until(happened):
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_statement_has_its_time(case):
    of_servers(case)
    with case.open(seconds=0.3).snapshot() as snapshot, pytest.raises(BuildFailed) as failed:
        rows_of(snapshot, reading(case.silent))

    assert "generation_timeout" == failed.value.code
    assert 0 == case.working()


def test_a_limit_that_is_longer_than_a_server_takes_is_its_longest(case):
    of_servers(case)
    with case.open(busy_seconds=10.0**9, seconds=10.0**9).snapshot() as snapshot:
        assert 3_000 == snapshot.count(reading(NUMBERS), 10)


def test_a_session_has_a_name_and_is_ended_by_it_alone(case):
    of_servers(case)
    with case.open(name="haulage export 4711").snapshot() as snapshot:
        assert end_session(case.url, f"{snapshot.session}2", 5)
        assert 0 == snapshot.count(reading("select mark from marks"), 10)
        assert end_session(case.url, snapshot.session, 5)
        with pytest.raises(BuildFailed) as failed:
            snapshot.count(reading("select mark from marks"), 10)
    assert "source_unavailable" == failed.value.code


# -- what is refused -----------------------------------------------------------------------------------


def test_nothing_can_be_written(case, source):
    with source.snapshot() as snapshot:
        for sql in ("insert into marks (mark) values (1) returning mark", "delete from marks returning mark",
                    "update marks set mark = 2 returning mark"):  # fmt: skip
            with pytest.raises(BuildFailed):
                rows_of(snapshot, reading(sql))
            assert [] != source.check(reading(sql))
    assert [] == case.execute("select mark from marks")


@pytest.mark.parametrize("sql", ["select 1 as a; select 2 as a", "select 1 as a; delete from marks", "-- nothing", ";"])
def test_there_is_one_statement(source, sql):
    assert refused(source, sql).cause.startswith("write one statement, not ")


@pytest.mark.parametrize("sql", [
    "select 1 as a) as x; insert into marks (mark) values (1); select * from (select 2 as a",
    "select 1 as a) as x; commit; insert into marks (mark) values (1) --",
])  # fmt: skip
def test_a_query_does_not_break_out_of_its_wrap_although_nobody_counts_its_statements(case, source, sql, monkeypatch):
    monkeypatch.setattr("haulage.sources.query.statements", lambda sql: [sql])
    assert "source_failed" == refused(source, sql).code
    assert [] == case.execute("select mark from marks")


def test_a_fault_of_the_query_has_a_code_public_words_and_a_cause_for_the_log(source):
    failed = refused(source, "select canary_4711 from marks")

    assert ("source_failed", "The data source refused the query.") == (failed.code, failed.detail)
    assert "canary_4711" in failed.cause


def test_after_a_fault_the_snapshot_goes_on(source):
    with source.snapshot() as snapshot:
        with pytest.raises(BuildFailed):
            rows_of(snapshot, reading("select nothing from marks"))
        assert 3_000 == snapshot.count(reading(NUMBERS), 10)


def test_a_cause_holds_no_value_that_was_bound_or_read(case, source):
    case.execute("insert into marks (mark, secret) values (1, 'hush_4711')")
    bound = {"binds": {"it": "hush_4711"}, "types": {"it": "text"}}
    causes = [
        refused(source, "select nowhere(:it) as a", **bound).cause,
        refused(source, "select :it :it as a, from", **bound).cause,
        refused_row(source, f"select {case.tells} as a from marks"),
    ]

    assert [] == [cause for cause in causes if "hush" in cause]


def refused_row(source, sql):
    """How a query fails that could be prepared."""
    with pytest.raises(BuildFailed) as failed:
        read(source, reading(sql))
    return failed.value.cause


def test_an_error_in_the_middle_of_the_rows_is_an_error(case, source):
    sql = UPTO.format(5_000) + f" select {case.breaks} as a from n"
    with source.snapshot() as snapshot:
        with pytest.raises(BuildFailed) as failed:
            rows_of(snapshot, reading(sql))
        assert 3_000 == snapshot.count(reading(NUMBERS), 10)

    assert "source_failed" == failed.value.code


def test_a_check_tells_the_operator_every_problem_and_none_where_there_is_none(source):
    assert [] == source.check(reading(NUMBERS))
    assert ["columns: the query has no column 'z'"] == source.check(reading(NUMBERS, declared={"z": ("Z", None)}))


def test_every_room_is_found_by_its_scheme_and_an_unknown_one_is_named():
    assert set(SOURCES) == set(CASES) >= set(SERVERS)
    assert "postgresql" == scheme_of("postgresql+psycopg://host/name")
    with pytest.raises(ValueError, match=r"no source reads 'gopher'; there are: sqlite"):
        open_source("gopher://host")

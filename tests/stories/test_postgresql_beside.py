"""Rows that are counted while they are read: the same count of the same instant, whatever happens to it."""

from __future__ import annotations

import contextlib
import io
import threading

import pytest
from pyarrow import parquet
from tests.process.house import until
from tests.stories.building import PostgresqlYard, query

from haulage.core.errors import BuildFailed
from haulage.core.progress import Phase
from haulage.core.reading import Reading
from haulage.sources import postgresql, postgresql_parallel
from haulage.sources.postgresql import open_source

ROWS = 3_000
ALL = Reading("select * from orders", {}, {}, None, (), (), None, {})


@pytest.fixture
def yard(tmp_path, monkeypatch):
    """Where even a few rows are counted beside."""
    monkeypatch.setattr(postgresql, "COUNTED_FIRST", 1)
    made = PostgresqlYard(tmp_path)
    with made.writer() as source:
        source.execute("create table orders (id integer primary key, name text)")
        source.execute(f"insert into orders select i, 'name ' || i from generate_series(1, {ROWS}) as i")
        source.execute("vacuum analyze orders")
    yield made
    made.close()


def beside(yard, dataset, *, connections=2, readers=1, **asked):
    source = open_source(yard.url, 0.2, connections=connections, readers=readers, name="haulage beside.1")
    return yard.build(dataset, source=source, **asked)


def totals(yard):
    """What was said of the total while rows were written, without repetition."""
    said = [each.total for each in yard.progress if each.phase == Phase.WRITING]
    return list(dict.fromkeys(said))


def at_work(yard, state="active"):
    """Sessions of ours in which something is done."""
    asked = (
        "select count(*) from pg_stat_activity where datname = %s and application_name like 'haulage %%' and state = %s"
    )
    return yard._server.execute("postgres", asked, (yard._database, state))[0][0]


@contextlib.contextmanager
def fails(code):
    with pytest.raises(BuildFailed) as failed:
        yield
    assert code == failed.value.code


@contextlib.contextmanager
def somebody_waits(yard):
    """Somebody who waits for us to end, and for whom those wait who come now."""
    with yard.writer() as writer:
        change = threading.Thread(target=writer.execute, args=("alter table orders add column late integer",))
        change.start()
        waits = "select count(*) from pg_locks where not granted and relation = 'orders'::regclass"
        until(lambda: yard._server.execute(yard._database, waits) == [(1,)])
        yield
        change.join()


# -- the same --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked", [{}, {"format": "ndjson"}, {"format": "json"}, {"format": "parquet"}, {"compression": "gzip"}]
)
@pytest.mark.parametrize("readers", [1, 2])
def test_the_bytes_and_the_count_are_those_of_rows_that_are_counted_first(yard, monkeypatch, asked, readers):
    monkeypatch.setattr(postgresql_parallel, "PART_BYTES", 4_096)
    dataset = query("select * from orders where id % 7 > 1", visible="id <> 11", key=("id",))
    first, expected = yard.build(dataset, **asked)
    said = totals(yard)

    built, content = beside(yard, dataset, readers=readers, **asked)

    if asked.get("format") == "parquet":  # it says when its snapshot was
        expected, content = (parquet.read_table(io.BytesIO(each)) for each in (expected, content))
    assert expected == content
    assert (first.rows, first.total, ()) == (built.rows, built.total, built.notices)
    assert [first.rows] == said
    assert totals(yard) in ([None, first.rows], [first.rows])
    assert 0 == at_work(yard)


def test_who_has_counted_reads_rows_then_if_it_was_to(yard, monkeypatch):
    monkeypatch.setattr(postgresql_parallel, "PART_BYTES", 4_096)
    joined = []
    freed = postgresql.PostgresqlSnapshot._freed
    monkeypatch.setattr(
        postgresql.PostgresqlSnapshot, "_freed", lambda self: joined.extend(found := freed(self)) or found
    )

    for readers in (1, 2):
        built, _ = beside(yard, query("select * from orders"), readers=readers)
        assert (ROWS, ROWS) == (built.rows, built.total)
        assert readers - 1 == len(joined)


def test_who_counts_is_told_who_asks(yard):
    with yard.writer() as source:
        source.execute("alter table orders enable row level security, force row level security")
        source.execute("create policy own on orders using (id % 10 = current_setting('app.digit')::integer)")
        source.execute("drop role if exists counted; create role counted login; grant select on orders to counted")
    url = yard.url.replace("postgres@", "counted@")
    assert url != yard.url
    reading = ALL._replace(session={"app.digit": "3"})
    with open_source(url, connections=2, readers=1).snapshot() as snapshot:
        counting = snapshot.counting(reading, 10)
        until(lambda: counting.done() or counting._is_over)
        assert counting.done()
        assert ROWS // 10 == counting.total() == snapshot.count(reading, 10)
    with yard.writer() as source:
        source.execute("drop owned by counted; drop role counted")


def test_what_is_committed_meanwhile_is_not_counted(yard):
    with open_source(yard.url, connections=2, readers=1).snapshot() as snapshot:
        with yard.writer() as writer:
            writer.execute("delete from orders where id > 10")
        assert ROWS == snapshot.counting(ALL, 10).total()
        assert ROWS == sum(map(len, snapshot.batches(ALL)))


# -- counted first -----------------------------------------------------------------------------------


@pytest.mark.parametrize("why", ["few rows", "a sheet has an end", "the clock", "no connection", "no right"])
def test_where_it_cannot_be_or_does_not_pay_rows_are_counted_first(yard, monkeypatch, why):
    asked = {"format": "xlsx"} if why == "a sheet has an end" else {}
    if why == "few rows":
        monkeypatch.setattr(postgresql, "COUNTED_FIRST", ROWS * 2)
    with yard.writer() as writer:
        if why == "no connection":
            writer.execute("create role lonely login connection limit 1; grant select on orders to lonely")
        if why == "no right":
            writer.execute("create role lonely login; grant select on orders to lonely")
            writer.execute("revoke execute on function pg_export_snapshot() from public")
    if why.startswith("no"):
        yard.url = yard.url.replace("postgres@", "lonely@")
    counting = []
    monkeypatch.setattr(postgresql, "Counting", lambda *_asked, **_more: counting.append("beside"))

    sql = "select * from orders where now() > '2020-01-01'" if why == "the clock" else "select * from orders"
    built, _ = beside(yard, query(sql, key=("id",)), **asked)

    assert (ROWS, ROWS, ()) == (built.rows, built.total, built.notices)
    assert ([ROWS], []) == (totals(yard), counting)
    if why.startswith("no"):
        with yard.writer() as writer:
            writer.execute("drop owned by lonely; drop role lonely")


# -- what happens to it ------------------------------------------------------------------------------


def test_a_count_that_waits_for_somebody_who_waits_for_us_is_made_again_in_the_end(yard):
    source = open_source(yard.url, 0.3, connections=2, readers=1)
    with source.snapshot() as snapshot:
        snapshot.columns(ALL)
        with somebody_waits(yard):
            counting = snapshot.counting(ALL, 60)
            assert not counting.done()
            assert ROWS == sum(map(len, snapshot.batches(ALL)))
            assert ROWS == counting.total()
            source.cancel()
            snapshot._session._connection.close()


def test_a_count_that_takes_too_long_leaves_the_total_open(yard):
    with open_source(yard.url, 60, connections=2, readers=2).snapshot() as snapshot:
        snapshot.columns(ALL)
        with somebody_waits(yard):
            counting = snapshot.counting(ALL, 0.1)
            until(counting.done)
            assert (None, None) == (counting.total(), counting.freed())
            assert ROWS == sum(map(len, snapshot.batches(ALL)))
            snapshot._session._connection.close()


@pytest.mark.parametrize("how", ["it is cancelled", "its reader goes away"])
def test_it_ends_with_the_build(yard, how):
    source = open_source(yard.url, 60, connections=2, readers=1, name="haulage beside.1")
    with contextlib.suppress(BuildFailed), source.snapshot() as snapshot:
        snapshot.columns(ALL)
        with somebody_waits(yard):
            counting = snapshot.counting(ALL, 60)
            until(lambda: at_work(yard) == 1)
            assert 2 == len(snapshot.session.partition(" ")[0].split(","))
            if how == "it is cancelled":
                source.cancel()
                until(lambda: counting.done() or counting._is_over)
            else:
                snapshot.close()
            until(lambda: at_work(yard) == 0)
            snapshot._session._connection.close()


def test_its_session_is_ended_with_that_of_the_rows(yard):
    with (
        contextlib.suppress(BuildFailed),
        open_source(yard.url, 60, connections=2, readers=1, name="haulage beside.1").snapshot() as snapshot,
    ):
        snapshot.columns(ALL)
        with somebody_waits(yard):
            counting = snapshot.counting(ALL, 60)
            assert postgresql.end_session(yard.url, snapshot.session, 10)
            with contextlib.suppress(BuildFailed):  # With the first gone nobody waits any more, and it may be done.
                assert ROWS == counting.total()
            assert 0 == at_work(yard) == at_work(yard, "idle in transaction")


def test_what_depends_on_its_session_is_counted_again_in_that_of_the_rows(yard):
    """An instant that only a function asks for would be one, too."""
    built, content = beside(yard, query("select id from orders where id <= 500 + pg_backend_pid() % 1000"))
    assert built.rows == built.total == len(content.splitlines()) - 1
    assert 0 == at_work(yard)


def test_rows_that_are_others_than_were_counted_are_no_file(yard):
    with fails("count_mismatch"):
        beside(yard, query("select id from orders where random() < 0.5"))


def test_more_rows_than_may_be_are_refused_as_soon_as_they_are_counted(yard):
    """Each row takes a while, so they would be too many only after minutes."""
    with yard.writer() as source:
        source.execute("create function slowly() returns text language plpgsql stable as"
                       " $$ begin perform pg_sleep(0.2); return 'late'; end $$")  # fmt: skip

    with fails("rows_exceeded"):
        beside(yard, query("select id, slowly(), repeat(name, 50000) from orders"), limits={"rows": ROWS - 1})

    assert totals(yard) in ([None], [])
    until(lambda: at_work(yard) == 0)


def test_a_query_that_fails_says_why(yard):
    with fails("source_failed"):
        beside(yard, query("select id / (id - 2000) as x from orders"))
    with fails("source_failed"):
        beside(yard, query("select id from orders where 1 / (id - 2000) < 5"))
    until(lambda: at_work(yard) == 0)

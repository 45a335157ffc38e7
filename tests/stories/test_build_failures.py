"""What goes wrong in a source: each kind has its code, its words for the operator, and none for the public."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from pathlib import Path

import pytest
from tests.stories.building import Yard, query

from haulage.core.catalogue import Column, Parameter
from haulage.core.errors import BuildFailed
from haulage.sources import open_source


@pytest.fixture
def yard(tmp_path):
    return Yard(
        tmp_path,
        "create table orders (id integer primary key, doc text, secret text)",
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000)"
        " insert into orders select i, case when i = 1001 then 'no json' else '{\"a\": 1}' end, 'hush' from n",
    )


def failure(yard, dataset, **asked):
    with pytest.raises(BuildFailed) as failed:
        yard.build(dataset, **asked)
    return failed.value


# -- SQL -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sql", [
    "selekt 1",
    "select nothing from nowhere",
    "select abs(-9223372036854775808) as a",
    "select :missing as a",
    "select ? as a",
    "",
    "-- only a comment",
    ";",
])  # fmt: skip
def test_a_query_that_fails_at_once(yard, sql):
    failed = failure(yard, query(sql))

    assert "source_failed" == failed.code
    assert "The data source refused the query." == failed.detail
    assert failed.cause


@pytest.mark.parametrize("sql", [
    "select id, json_extract(doc, '$.a') as a from orders",
    "select id, case when id = 1001 then abs(-9223372036854775808) else id end as a from orders",
])  # fmt: skip
def test_a_query_that_fails_after_a_thousand_rows(yard, sql):
    failed = failure(yard, query(sql, key=("id",)))

    assert "source_failed" == failed.code
    assert 1_000 >= max(seen.processed or 0 for seen in yard.progress) > 500
    assert "overflow" in failed.cause or "JSON" in failed.cause
    assert failed.detail == "The data source refused the query."


@pytest.mark.parametrize(("sql", "given", "said"), [
    ("select json_extract('{}', :given) as a", "hush", "JSON path error near '…'"),
    ("select json_extract('{}', secret) as a from orders", "", "JSON path error near '…'"),
    ("select json_extract('{}', secret || char(39) || 'hush') as a from orders", "", "JSON path error near '…'"),
    ("select body from words where words match :given", "hush: body", "no such column: …"),
    ("select body from words where words match :given", 'a hush" b', "unterminated string"),
    ("select body from words where words match :given", "AND hush AND", 'fts5: syntax error near "…"'),
])  # fmt: skip
def test_what_the_driver_says_is_kept_without_any_value(yard, sql, given, said):
    with yard.writer() as source:
        source.execute("create virtual table words using fts5(body)")
        source.execute("insert into words values ('hush')")
    failed = failure(yard, query(sql, parameters=(Parameter("given"),)), given=given)

    assert f"SQLITE_ERROR: {said}" == failed.cause
    assert "hush" not in failed.detail


@pytest.mark.parametrize("sql", [
    "select 1 as a; select 2 as a",
    "select 1 as a; drop table orders",
    "select 1 as a) ; drop table orders; select * from (select 2",
    "select * from (select 1 as a) limit 0; delete from orders; --",
])  # fmt: skip
def test_more_than_one_statement_is_refused_and_the_operator_is_told_so(yard, sql):
    failed = failure(yard, query(sql))
    problems = yard.problems(query(sql))

    assert "source_failed" == failed.code
    assert "write one statement, not" in failed.cause
    assert ["the query fails: " + failed.cause] == problems
    with yard.writer() as source:
        assert 2_000 == source.execute("select count(*) from orders").fetchone()[0]


@pytest.mark.parametrize("sql", [
    "delete from orders returning id",
    "update orders set doc = '' returning id",
    "insert into orders values (9999, '', '') returning id",
    "create table x (a)",
    "pragma user_version = 7",
    "attach 'other.db' as other",
    "vacuum into 'copy.db'",
    "select 1 as a) union all select * from (delete from orders returning id",
])  # fmt: skip
def test_a_source_is_never_written_to(yard, sql):
    before = yard.path.read_bytes()

    assert "source_failed" == failure(yard, query(sql)).code
    assert before == yard.path.read_bytes()
    assert not (yard.folder / "other.db").exists()
    assert not (yard.folder / "copy.db").exists()


def test_even_a_statement_that_is_not_wrapped_could_not_write(yard):
    """The second and the third guard, without the first: the file is opened read-only, and queries only are allowed."""
    with open_source(yard.url).snapshot() as snapshot:
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            snapshot._connection.execute("delete from orders")
        assert (1,) == snapshot._connection.execute("pragma query_only").fetchone()
        snapshot._connection.execute("pragma query_only = off")
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            snapshot._connection.execute("delete from orders")


# -- the database ----------------------------------------------------------------------------------


def test_a_source_that_is_missing(yard):
    yard.url = f"sqlite:///{yard.folder}/nowhere.db"

    failed = failure(yard, query("select 1 as a"))

    assert ("source_unavailable", "The data could not be opened.") == (failed.code, failed.detail)
    assert not (yard.folder / "nowhere.db").exists()


def test_a_source_that_is_no_database(yard):
    yard.path.write_bytes(b"Dear reader, " * 500)
    for side in ("-wal", "-shm"):
        Path(f"{yard.path}{side}").unlink(missing_ok=True)

    assert "source_unavailable" == failure(yard, query("select 1 as a")).code


def test_a_source_that_is_a_folder(yard):
    yard.url = f"sqlite:///{yard.folder}"
    assert "source_unavailable" == failure(yard, query("select 1 as a")).code


@pytest.fixture
def open_yard():
    """A yard where everybody may come and go."""
    with tempfile.TemporaryDirectory(prefix="haulage-") as made:
        folder = Path(made)
        folder.chmod(0o777)
        yield Yard(folder, "create table orders (id integer primary key)")


@contextlib.contextmanager
def an_ordinary_user():
    """For root every file can be read, so root becomes nobody for a while."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_source_that_may_not_be_read(open_yard):
    readable = open_yard.build(query("select count(*) as n from orders"))[1]  # everything is imported now
    open_yard.path.chmod(0o666)
    with an_ordinary_user():
        allowed = open_yard.build(query("select count(*) as n from orders"))[1]
    open_yard.path.chmod(0)

    with an_ordinary_user():
        failed = failure(open_yard, query("select count(*) as n from orders"))

    assert readable == allowed
    assert "source_unavailable" == failed.code


def test_a_source_whose_pages_are_damaged(yard):
    with yard.writer() as source:
        source.execute("pragma wal_checkpoint(truncate)")
        size = source.execute("pragma page_size").fetchone()[0]
    content = bytearray(yard.path.read_bytes())
    for page in range(2, len(content) // size):
        content[page * size : page * size + 200] = b"\xff" * 200
    yard.path.write_bytes(content)

    assert "source_failed" == failure(yard, query("select * from orders")).code


def test_an_empty_file_is_a_source_without_tables(yard):
    yard.path.unlink()
    for side in ("-wal", "-shm"):
        Path(f"{yard.path}{side}").unlink(missing_ok=True)
    yard.path.touch()

    assert "source_failed" == failure(yard, query("select * from orders")).code
    assert b"a\n1\n" == yard.build(query("select 1 as a"))[1]


@pytest.fixture
def rollback(yard):
    """The same source in rollback-journal mode."""
    with yard.writer() as source:
        assert "delete" == source.execute("pragma journal_mode=delete").fetchone()[0]
    return yard


def test_a_source_that_is_locked(rollback):
    with rollback.writer() as source:
        source.execute("begin exclusive")
        began = time.monotonic()
        failed = failure(rollback, query("select 1 as a"))
        took = time.monotonic() - began
        source.execute("rollback")

    assert ("source_locked", "The data is locked by another program.") == (failed.code, failed.detail)
    assert 0.2 <= took < 30  # it was waited for, as long as the operator said
    assert b"a\n1\n" == rollback.build(query("select 1 as a"))[1]


def test_a_lock_that_goes_away_in_time_is_waited_for(rollback):
    locked, done = threading.Event(), threading.Event()

    def lock():
        with rollback.writer() as source:
            source.execute("begin exclusive")
            locked.set()
            done.wait(0.1)
            source.execute("rollback")

    thread = threading.Thread(target=lock)
    thread.start()
    locked.wait(60)
    try:
        assert b"a\n1\n" == rollback.build(query("select 1 as a"), busy_seconds=60)[1]
    finally:
        done.set()
        thread.join()


def test_the_operator_is_warned_of_a_source_in_rollback_journal_mode(rollback):
    (problem,) = rollback.problems(query("select id from orders"))

    assert "journal mode 'delete'" in problem
    assert "PRAGMA journal_mode=WAL" in problem


def test_a_source_that_no_writer_has_open_is_read_all_the_same(yard):
    """A database in WAL mode whose side files went with its last writer."""
    with yard.writer() as source:
        source.execute("pragma wal_checkpoint(truncate)")
    copy = yard.folder / "copy of the shop #1?100%.db"
    shutil.copy(yard.path, copy)
    yard.url = f"sqlite:///{copy}"

    assert b"n\n2000\n" == yard.build(query("select count(*) as n from orders"))[1]


def test_a_source_is_found_by_a_relative_path_and_by_a_link(yard, monkeypatch):
    monkeypatch.chdir(yard.folder)
    (yard.folder / "link.db").symlink_to("shop.db")
    for url in ("sqlite:///shop.db", "sqlite:///link.db", f"sqlite:////{yard.path}"):
        yard.url = url
        assert b"n\n2000\n" == yard.build(query("select count(*) as n from orders"))[1]


# -- what the operator is told ---------------------------------------------------------------------


def test_a_dataset_without_a_fault_has_no_problem(yard):
    dataset = query(
        "select id, doc, secret from orders where id <= :upto", parameters=(Parameter("upto", "integer", default=5),),
        hidden=("secret",), key=("id",), order=("doc desc",), visible="secret = 'hush'",
        columns={"doc": Column("doc", "Document")},
    )  # fmt: skip
    assert [] == yard.problems(dataset)


@pytest.mark.parametrize(("members", "expected"), [
    ({"hidden": ("secrets",)}, "the query fails: hidden: the query has no column 'secrets'"),
    ({"columns": {"Doc": Column("Doc", "Document")}}, "columns: the query has no column 'Doc'"),
    ({"order": ("nothing",)}, "the query fails: order: the query has no column 'nothing'"),
    ({"key": ("nothing",)}, "the query fails: order: the query has no column 'nothing'"),
    ({"order": ("id sideways",)}, "the query fails: order: 'id sideways' is not understood; write \"name desc\""),
    ({"visible": "nowhere = 1"}, "the query fails: SQLITE_ERROR: no such column: nowhere"),
    ({"hidden": ("id", "doc", "secret")}, "the query fails: every column of the query is hidden"),
])  # fmt: skip
def test_every_fault_of_a_dataset_is_a_sentence(yard, members, expected):
    assert [expected] == yard.problems(query("select id, doc, secret from orders", **members))


def test_a_source_that_cannot_be_opened_is_a_sentence_too(yard):
    with contextlib.suppress(FileNotFoundError):
        yard.path.unlink()
    expected = "The data could not be opened. (SQLITE_CANTOPEN: unable to open database file)"
    assert [expected] == yard.problems(query("select 1"))

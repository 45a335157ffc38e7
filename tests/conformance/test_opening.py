"""Opening a store: a new one is made and kept private, an old or a newer one is refused with what to do."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing

import pytest
from tests.conformance.processes import open_once_more, together

from haulage.core.errors import SchemaMismatch, StoreUnavailable
from haulage.stores.open import Schema, open_store, sqlite_path
from haulage.stores.tables import SCHEMA_VERSION


def set_facts(url, **facts):
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as direct, direct:
        for name, value in facts.items():
            direct.execute("update haulage_facts set value = ? where name = ?", (value, name))


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/deep/er/haulage.db"


def test_a_new_store_gets_its_schema(url):
    with closing(open_store(url)) as store:
        assert Schema(version=1, min_worker=1, wanted=1) == store.schema()
        assert 0 == store.exports.waiting()


def test_a_new_store_and_its_folder_are_for_the_owner_alone(url, tmp_path):
    with closing(open_store(url)) as store:
        store.exports.waiting()
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("deep/er/haulage.db*")}

    assert {"haulage.db": 0o600, "haulage.db-shm": 0o600, "haulage.db-wal": 0o600} == modes
    assert 0o700 == stat.S_IMODE(tmp_path.joinpath("deep/er").stat().st_mode)


def test_what_was_written_is_there_when_it_is_opened_again(case):
    run = case.add()
    case.store.close()
    case.store = case.open()

    assert run == case.get(run)


def test_a_writer_has_the_lock_from_its_beginning_and_its_commit_is_on_the_disk(url):
    with closing(open_store(url)) as store, closing(sqlite3.connect(store.path, timeout=0)) as other:
        with store.begin() as tx:  # nothing is written yet
            durable = tx.exec_driver_sql("pragma synchronous").scalar()
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("begin immediate")
        with store._database.write_prepared() as driver:
            durable_too = driver.cursor().execute("pragma synchronous").fetchone()[0]
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("begin immediate")
        mode = other.execute("pragma journal_mode").fetchone()[0]

    assert (2, 2, "wal") == (durable, durable_too, mode), "2 is FULL"


@pytest.mark.parametrize("begun", [False, True], ids=["touched", "opened but never migrated"])
def test_an_empty_file_is_a_new_store(tmp_path, begun):
    path = tmp_path / "haulage.db"
    path.touch()
    if begun:
        with closing(sqlite3.connect(path)) as direct:
            direct.execute("pragma journal_mode = wal")

    with closing(open_store(f"sqlite:///{path}")) as store:
        assert SCHEMA_VERSION == store.schema().version


@pytest.mark.process
def test_six_processes_may_open_the_same_new_store_at_once(case, tmp_path):
    url = f"sqlite:///{tmp_path}/haulage.db"

    assert [SCHEMA_VERSION] * 6 == together(case, open_once_more, *[url] * 6)


def test_a_file_that_is_no_database_is_told(tmp_path):
    path = tmp_path / "haulage.db"
    path.write_bytes(b"Dear diary, today I was taken for a database. " * 100)

    with pytest.raises(StoreUnavailable, match="file is not a database"):
        open_store(f"sqlite:///{path}")

    assert b"Dear diary" == path.read_bytes()[:10]


def test_the_database_of_another_program_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as direct:
        direct.execute("create table orders (id integer)")

    with pytest.raises(SchemaMismatch, match=r"no store of haulage.*haulage migrate up"):
        open_store(f"sqlite:///{path}")

    with closing(sqlite3.connect(path)) as direct:
        assert [("orders",)] == direct.execute("select name from sqlite_master").fetchall()


def test_an_older_schema_is_refused_with_the_command_to_run(url):
    open_store(url).close()
    set_facts(url, schema_version=SCHEMA_VERSION - 1)

    with pytest.raises(SchemaMismatch, match=f"has schema 0, this version works with {SCHEMA_VERSION}.*migrate up"):
        open_store(url)


def test_a_newer_schema_that_wants_newer_workers_is_refused_and_says_why(url):
    open_store(url).close()
    set_facts(url, schema_version=SCHEMA_VERSION + 2, min_worker=SCHEMA_VERSION + 1)

    with pytest.raises(SchemaMismatch, match=r"has schema 3 and wants workers of schema 2.*install a newer haulage"):
        open_store(url)


def test_a_newer_schema_that_still_knows_this_version_is_worked_with(url):
    open_store(url).close()
    set_facts(url, schema_version=SCHEMA_VERSION + 1, min_worker=SCHEMA_VERSION)

    with closing(open_store(url)) as store:
        assert 0 == store.exports.waiting()


def test_a_store_can_be_opened_as_it_is_to_be_migrated(url):
    open_store(url).close()
    set_facts(url, schema_version=0)

    with closing(open_store(url, migrate_new=False)) as store:
        assert 0 == store.schema().version


def test_a_new_store_that_is_opened_as_it_is_stays_empty(url):
    with closing(open_store(url, migrate_new=False)) as store:
        assert Schema(None, None, new=True) == store.schema()


@pytest.mark.parametrize("name", ["50%", "ein Ordner", "報告", "a#b"])
def test_a_file_may_have_any_name(tmp_path, name):
    with closing(open_store(f"sqlite:///{tmp_path}/{name}/haulage.db")) as store:
        store.exports.waiting()

    assert tmp_path.joinpath(name, "haulage.db").exists()


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("haulage.db", "is no URL; write sqlite:///haulage.db"),
        ("sqlite://", "is no store of this version; write sqlite:///haulage.db"),
        ("sqlite:///:memory:", "is no store of this version"),
        ("oracle://host/db", "is no store of this version"),
        ("sqlite:///haulage.db?mode=ro", "takes no options"),
    ],
)
def test_a_url_that_names_no_store_is_refused_with_one_that_does(url, word):
    with pytest.raises(ValueError, match=word.replace("?", r"\?")):
        sqlite_path(url)

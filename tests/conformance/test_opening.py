"""Opening a store: a new one is made and kept private, an old or a newer one is refused with what to do."""

from __future__ import annotations

import re
import sqlite3
import stat
import threading
from contextlib import closing
from urllib.parse import quote

import pytest
from tests.conformance.cases import STORES
from tests.conformance.processes import open_once_more, together
from tests.promises import NotPromised
from tests.servers.openers import OWNER

from haulage.core.errors import SchemaMismatch, StoreUnavailable
from haulage.stores.dialect import BUSY_TIMEOUT_MS
from haulage.stores.open import Schema, dialect_of, open_store
from haulage.stores.tables import MIN_WORKER, SCHEMA_VERSION

pytestmark = pytest.mark.slow


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
    with closing(open_store(url)) as store, closing(sqlite3.connect(store.place, timeout=0)) as other:
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
    if not case.store.makes_itself:
        raise NotPromised("a new store of this kind does not make itself")
    url = case.opener.new(tmp_path)

    assert [SCHEMA_VERSION] * 6 == together(case, open_once_more, *[url] * 6)


def test_a_new_store_waits_for_who_makes_it_longer_than_for_any_other_writer(tmp_path):
    path = tmp_path / "haulage.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as direct:
        direct.execute("pragma journal_mode = wal")
        direct.execute("begin immediate")
        released = threading.Timer(2 * BUSY_TIMEOUT_MS / 1000, direct.execute, ["rollback"])
        released.start()

        with closing(open_store(f"sqlite:///{path}")) as store:
            assert SCHEMA_VERSION == store.schema().version
            with store._database.write() as connection:
                assert BUSY_TIMEOUT_MS == connection.exec_driver_sql("pragma busy_timeout").scalar_one()
        released.join()


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
        ("sqlite://", "names no file; write sqlite:///haulage.db"),
        ("sqlite:///:memory:", "names no file"),
        ("oracle://host/db", "is no store of this version"),
        ("sqlite:///haulage.db?mode=ro", "takes no options"),
        ("postgresql://host", "names no database"),
        ("postgresql://host/haulage?proxy=session", "either left out or transaction"),
        ("mariadb://host/", "names no database"),
        ("postgresql://host:port/haulage", "is no URL"),
        ("mariadb://amina:hu@sh@host/haulage", "in a password write %40"),
        ("postgresql://amina:pa@one/two@host/haulage", "in a password write %40, and %2F for a /"),
    ],
)
def test_a_url_that_names_no_store_is_refused_with_one_that_does(url, word):
    with pytest.raises(ValueError, match=word.replace("?", r"\?")):
        dialect_of(url)


@pytest.mark.parametrize(
    "url",
    [
        "oracle://amina:hush@host/db",
        "postgresql://amina:hush@host",
        "amina:hush@host",
        "mariadb://amina:a@hush@host/db",
        "mariadb://amina:a@hush/b@host/db",
        "postgresql://amina:a@b/hush@host/db",
    ],
)
def test_a_url_that_is_refused_shows_no_password(url):
    with pytest.raises(ValueError, match="write sqlite:///") as refused:
        dialect_of(url)

    assert "hush" not in str(refused.value) or "://" not in url


@pytest.mark.parametrize("url", ["postgresql://amina:hush@127.0.0.1:1/db", "mariadb://amina:hush@127.0.0.1:1/db"])
def test_a_server_that_does_not_answer_is_unavailable_and_its_password_is_not_shown(url):
    with pytest.raises(StoreUnavailable) as refused:
        open_store(url)

    told, problem = "", refused.value
    while problem is not None:
        told += f"{type(problem).__name__}: {problem}\n"
        problem = problem.__cause__ or problem.__context__
    assert "hush" not in told


@pytest.mark.parametrize("password", ["two words ", "p@ss:w/rd?#%", "żółty"])
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_password_may_hold_every_character(kind, password):
    opener, user = STORES[kind], f"amina{len(password)}"
    url = opener.new()
    if kind == "mariadb":
        rights = f"grant all on {url.rpartition('/')[2]}.* to {user}"
        opener.execute(url, f"create user {user} identified by '{password}'", rights)
    else:
        opener.execute(url, f"create role {user} superuser login password '{password}'")
    written = re.sub("://[a-z]+@", f"://{user}:{quote(password, safe='')}@", url)

    with closing(open_store(written, migrate_new=False)) as store:
        assert store.schema().new


def test_options_of_the_url_reach_postgresql_beside_ours():
    opener = STORES["postgresql"]
    url = opener.new()
    opener.execute(url, f"create schema ours authorization {OWNER}")

    with closing(open_store(f"{url}?options=-c%20search_path%3Dours", migrate_new=False)) as store:
        store.migrate()
        with store._database.read() as connection:
            limit = connection.exec_driver_sql("show lock_timeout").scalar()

    assert [("ours",)] == opener.execute(url, "select schemaname from pg_tables where tablename = 'exports'")
    assert "800ms" == limit


@pytest.mark.parametrize(
    ("kind", "option"),
    [
        ("postgresql", "colour=red"),
        ("mariadb", "colour=red"),
        ("mariadb", "ssl_ca=/nowhere"),
        ("mariadb", "connect_timeout=soon"),
    ],
)
def test_an_option_of_the_url_that_cannot_be_used_is_told(kind, option):
    with pytest.raises(StoreUnavailable, match=r"option|nowhere"):
        open_store(f"{STORES[kind].new()}?{option}")


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [("postgresql://host/db", "psycopg", "postgresql"), ("mariadb://host/db", "pymysql", "mariadb")],
)
def test_a_driver_that_is_missing_is_named_with_what_to_install(url, module, extra, monkeypatch):
    monkeypatch.setattr("haulage.stores.server.find_spec", lambda name: None if name == module else name)

    with pytest.raises(StoreUnavailable, match=rf"{module} not found.*pip install 'haulage\[{extra}\]'"):
        open_store(url)


def test_a_new_database_on_a_server_is_refused_with_the_command_to_run(case):
    """Only a file of ours is made by the first start; a database belongs to somebody who gave us a place in it."""
    if case.store.makes_itself:
        raise NotPromised("a new store of this kind makes itself")
    url = case.opener.new()

    with pytest.raises(SchemaMismatch, match="no tables of haulage yet; run: haulage migrate up"):
        open_store(url)
    with closing(open_store(url, migrate_new=False)) as store:
        assert Schema(None, None, new=True) == store.schema()
        store.migrate()
    with closing(open_store(url)) as store:
        assert Schema(SCHEMA_VERSION, MIN_WORKER) == store.schema()

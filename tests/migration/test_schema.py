"""The schema that migrations make is the one that `tables.py` says; it can be taken down and brought up again."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import zipfile
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import CheckConstraint, create_engine, inspect
from tests.conformance.cases import STORES
from tests.servers import mariadb

from haulage.core.clock import new_id
from haulage.core.errors import SchemaMismatch, StoreUnavailable
from haulage.core.ports import KeptKey
from haulage.exports.life import ExportRun
from haulage.stores import migrations
from haulage.stores.dialect import MIGRATION_WAIT_SECONDS
from haulage.stores.open import Schema, open_store
from haulage.stores.tables import MIN_WORKER, SCHEMA_VERSION, counters, metadata

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
VERSIONS = "haulage_version"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


@pytest.fixture
def store(path):
    with closing(open_store(f"sqlite:///{path}")) as opened:
        yield opened


def schema_of(path):
    """Everything SQLite knows of a schema, without what only the layout of the text is."""
    with closing(sqlite3.connect(path)) as direct:
        found = direct.execute("select name, sql from sqlite_master where sql is not null").fetchall()
    return {name: _lines(sql) for name, sql in found if name != VERSIONS}


def _lines(sql):
    """The columns and constraints of a table in no order; an index as one line."""
    one_line = re.sub(r"\s+", " ", sql)
    if one_line.startswith(("CREATE INDEX", "CREATE UNIQUE")):
        return one_line
    return sorted(line.strip().rstrip(",") for line in sql.splitlines()[1:-1] if line.strip())


def test_the_migrations_make_what_the_tables_say(store, path):
    with create_engine(f"sqlite:///{path}").connect() as connection:
        opts = {"compare_type": True, "version_table": VERSIONS, "include_object": made_on("sqlite")}
        context = MigrationContext.configure(connection, opts=opts)

        assert [] == compare_metadata(context, metadata)


def made_on(database):
    """Which indexes are made on a database: two of a kind stand in the tables, and each is made on its own.

    Two columns of the pool are those of one database, and made beside its triggers, which alone write them.
    """

    def include(thing, name, kind, reflected, _other):
        if kind == "column" and thing.table.name == "run_pools" and name in ("free_slots", "min_worker"):
            return database != "postgresql"
        condition = None if reflected or kind != "index" else thing._ddl_if
        return (
            condition is None or condition.dialect == database or (condition.dialect is None and database != "mariadb")
        )

    return include


@pytest.mark.slow
@pytest.mark.parametrize("name", ["postgresql", "mariadb"])
def test_the_migrations_make_what_the_tables_say_on_a_server(name):
    """A type of MariaDB is read back under its other name: JSON is longtext there, a boolean tinyint."""
    url = STORES[name].new()
    with closing(open_store(url, migrate_new=False)) as store:
        store.migrate()
        with create_engine(url).connect() as connection:
            opts = {"compare_type": name != "mariadb", "include_object": made_on(name), "version_table": VERSIONS}
            context = MigrationContext.configure(connection, opts=opts)
            different = compare_metadata(context, [metadata, counters])
            checks = {each["name"] for each in inspect(connection).get_check_constraints("exports")}
        store.migrate("base")
        with create_engine(url).connect() as connection:
            left = inspect(connection).get_table_names()
        routines = STORES[name].routines(url)
        store.migrate()
        again = store.schema()

    assert [] == different
    assert {each.name for each in metadata.tables["exports"].constraints if isinstance(each, CheckConstraint)} <= checks
    assert ([], []) == (left, list(routines))
    assert Schema(SCHEMA_VERSION, MIN_WORKER) == again


def test_checks_and_partial_indexes_are_the_same_too(store, path, tmp_path):
    """Alembic compares neither; the text of the schema has both."""
    metadata.create_all(create_engine(f"sqlite:///{tmp_path}/drawn.db"))
    drawn, migrated = schema_of(tmp_path / "drawn.db"), schema_of(path)

    assert drawn == migrated
    assert 6 == len([line for line in migrated["exports"] if " CHECK " in line])
    assert 9 == len([sql for sql in migrated.values() if " WHERE " in sql])


def test_a_check_that_differs_would_be_seen(store, path, tmp_path):
    """The comparison above, on a schema that lacks one word."""
    drawn = tmp_path / "drawn.db"
    metadata.create_all(create_engine(f"sqlite:///{drawn}"))
    with closing(sqlite3.connect(drawn)) as direct, direct:
        direct.execute("pragma writable_schema = on")
        direct.execute("update sqlite_master set sql = replace(sql, '(slot is not null)', '(slot is null)')")

    assert schema_of(drawn) != schema_of(path)


def test_down_removes_everything_and_up_brings_it_back(store, path):
    before = schema_of(path)
    store.migrate("base")
    empty = schema_of(path)
    store.migrate()

    assert {} == empty
    assert before == schema_of(path)
    assert Schema(SCHEMA_VERSION, MIN_WORKER) == store.schema()


def test_up_twice_is_up(store, path):
    before = schema_of(path)
    store.migrate()

    assert before == schema_of(path)


def test_a_store_that_was_taken_down_is_not_brought_up_behind_the_operators_back(store):
    store.migrate("base")

    with pytest.raises(SchemaMismatch, match="haulage migrate up"):
        open_store(store.url)


def test_a_store_works_after_down_and_up(store):
    store.migrate("base")
    store.migrate()
    run = ExportRun(id=new_id(), tenant="north", state="queued", requested_at=1)
    store.exports.add(run)
    store.keys.keep("north", "amina", "k", KeptKey("b" * 64, run.id), seconds=60)

    assert run == store.exports.get(run.id)


def test_a_migration_that_breaks_off_leaves_what_was_there(store, path, monkeypatch):
    """Tables and facts commit together, or not at all."""
    before = schema_of(path)
    monkeypatch.setattr("haulage.stores.migrations.run.command.downgrade", break_off)

    with pytest.raises(RuntimeError):
        store.migrate("base")

    assert before == schema_of(path)


def break_off(config, target):
    config.attributes["connection"].exec_driver_sql("drop table exports")
    raise RuntimeError("the power went out")


def own_alembic(url, revision):
    """The application's own table of Alembic, beside which ours are put."""
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("create table alembic_version (version_num varchar(32) primary key)")
        connection.exec_driver_sql(f"insert into alembic_version values ('{revision}')")
    return engine


@pytest.mark.parametrize("name", ["sqlite", "postgresql", "mariadb"])
@pytest.mark.parametrize("revision", ["abc123def456", "0001"])
def test_an_application_that_uses_alembic_itself_keeps_its_revision(name, revision, tmp_path):
    url = f"sqlite:///{tmp_path}/app.db" if name == "sqlite" else STORES[name].new()
    engine = own_alembic(url, revision)
    with closing(open_store(url, migrate_new=False)) as store:
        store.migrate()
        made = store.schema()
        store.exports.add(ExportRun(id=new_id(), tenant="north", state="queued", requested_at=1))
        store.migrate("base")
    with closing(engine.connect()) as connection:
        left = inspect(connection).get_table_names()
        kept = connection.exec_driver_sql("select version_num from alembic_version").scalars().all()
    engine.dispose()

    assert Schema(SCHEMA_VERSION, MIN_WORKER) == made
    assert ["alembic_version", *[VERSIONS] * (name == "sqlite")] == sorted(left)  # a file remembers that it was one
    assert [revision] == kept


@pytest.mark.parametrize("name", ["sqlite", "postgresql", "mariadb"])
def test_tables_of_somebody_else_with_our_names_are_named_and_left_alone(name, tmp_path):
    url = f"sqlite:///{tmp_path}/app.db" if name == "sqlite" else STORES[name].new()
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("create table exports (id integer)")
        connection.exec_driver_sql("create table sessions (id integer)")
    told = r"names of ours \(exports, sessions\); name another database"
    with closing(open_store(url, migrate_new=False)) as store, pytest.raises(SchemaMismatch, match=told):
        store.migrate()
    with closing(engine.connect()) as connection:
        left = inspect(connection).get_table_names()
    engine.dispose()

    assert ["exports", "sessions"] == sorted(left)


def test_a_store_whose_versions_stood_in_alembics_own_table_is_migrated_on(store, path):
    with closing(sqlite3.connect(path)) as direct, direct:
        direct.execute("alter table haulage_version rename to alembic_version")
    store.migrate()
    run = ExportRun(id=new_id(), tenant="north", state="queued", requested_at=1)
    store.exports.add(run)

    assert run == store.exports.get(run.id)
    store.migrate("base")
    assert Schema(None, None) == store.schema()


def test_revisions_stand_in_one_row_and_their_numbers_are_the_facts(store):
    folder = Path(migrations.__file__).parent
    script = ScriptDirectory(str(folder))
    revisions = [revision.revision for revision in script.walk_revisions()][::-1]

    assert 1 == len(script.get_heads())
    assert [f"{number:04d}" for number in range(1, SCHEMA_VERSION + 1)] == revisions
    assert len(revisions) == len(list(folder.glob("versions/v[0-9]*.py")))


def test_the_facts_of_the_newest_migration_are_those_of_the_tables(store):
    assert Schema(version=SCHEMA_VERSION, min_worker=MIN_WORKER, wanted=SCHEMA_VERSION) == store.schema()


@pytest.mark.slow
def test_the_wheel_brings_the_migrations_along(tmp_path):
    """Built, unpacked elsewhere, and used from there: a new store gets its schema."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        packed.extractall(site)
    program = "import haulage.stores.open as o; print(o.__file__, o.open_store('sqlite:///new.db').schema().version)"
    environment = {**os.environ, "PYTHONPATH": str(site)}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )

    assert "haulage/stores/migrations/script.py.mako" in names
    assert "haulage/py.typed" in names
    assert f"{site}/haulage/stores/open.py {SCHEMA_VERSION}" == ran.stdout.strip()


RIGHTS = "create, alter, index, references, select, insert, update, delete, drop"


def test_a_migration_of_postgresql_has_no_limit_of_time_of_the_server():
    """A large table takes long to change; what the server bounds every transaction by must not break that off."""
    opener = STORES["postgresql"]
    url = opener.new()
    name = url.rpartition("/")[2]
    limits = "select name, setting from pg_settings where name in ('statement_timeout', 'transaction_timeout')"
    for limit, _ in opener.execute(url, limits):  # The second is known from version 17 on.
        opener.execute(url, f"alter database {name} set {limit} = '7s'")
    with closing(open_store(url, migrate_new=False)) as store, store._database.migrate() as connection:
        found = connection.exec_driver_sql(limits).all()

    assert {"0"} == {setting for _, setting in found}


def test_a_migration_of_mariadb_has_no_limit_of_time_of_the_server():
    """As above, of a statement."""
    server = mariadb.server()
    with closing(open_store(STORES["mariadb"].new(), migrate_new=False)) as store:
        server.execute(None, "set global max_statement_time = 7")
        try:
            with store._database.migrate() as connection:
                limit = connection.exec_driver_sql("select @@max_statement_time, @@lock_wait_timeout").one()
        finally:
            server.execute(None, "set global max_statement_time = 0")

    assert (0, MIGRATION_WAIT_SECONDS) == tuple(limit)


@pytest.mark.parametrize(
    ("rights", "told", "left"),
    [(RIGHTS, "1370|1044", set()), (f"{RIGHTS}, create routine, alter routine", "1142", None)],
    ids=["no routines", "no triggers"],
)
def test_a_migration_of_mariadb_that_breaks_off_is_no_schema(rights, told, left):
    opener = STORES["mariadb"]
    url = opener.new()
    name, user = url.rpartition("/")[2], f"few_rights_{len(rights)}"
    opener.execute(url, f"create user {user}", f"grant {rights} on {name}.* to {user}")

    with closing(open_store(url.replace("root@", f"{user}@"), migrate_new=False)) as store:
        with pytest.raises(StoreUnavailable, match=told):
            store.migrate()
        tables = {table for (table,) in opener.execute(url, "show tables")}

        assert store.schema().version is None
        assert left in (tables, None)
        with pytest.raises(SchemaMismatch):
            open_store(url)

"""How the conformance suite gets a store on a server: a database that was migrated once and is emptied for each test.

Both openers do the same things in the words of their server; those of SQLite and of a folder stand in
`tests/conformance/cases.py`.
"""

from __future__ import annotations

import itertools
from contextlib import closing, contextmanager

from sqlalchemy import create_engine
from tests.ports import free_port
from tests.servers import mariadb, postgresql

from haulage.stores.open import open_store
from haulage.stores.postgresql import MIGRATION_LOCK
from haulage.stores.tables import MIN_WORKER, SCHEMA_VERSION
from haulage.stores.tenants import WORKER

TABLES = ("exports", "workers", "idempotency_keys", "sessions", "tenant_gates", "run_pools", "haulage_facts")
EMPTY = (
    *(f"delete from {table}" for table in TABLES[:-2]),
    "update run_pools set stored_bytes = 0, reserved_bytes = 0, changes = 0",
    f"update haulage_facts set value = {SCHEMA_VERSION} where name = 'schema_version'",
    f"update haulage_facts set value = {MIN_WORKER} where name = 'min_worker'",
)


class InDatabase:
    """What a test does past the verbs, in every database in the same words."""

    def write(self, case, run_id, values):
        """Write columns."""
        table = case.runs._table
        with case.store.begin() as tx:
            tx.execute(table.update().where(table.c.id == run_id).values(**values))

    def want_workers(self, case, oldest):
        """What a migration to a schema that older workers must not touch writes."""
        self.execute(case.url, f"update haulage_facts set value = {oldest} where name = 'min_worker'")

    def empty(self, case):
        """No run, and nothing written down."""
        with case.store.begin() as tx:
            tx.execute(case.runs._table.delete())
            tx.exec_driver_sql("delete from transitions")

    def impatient(self, monkeypatch):
        """A store opened from now on waits less long for a lock; MariaDB waits in whole seconds all the same."""
        monkeypatch.setattr("haulage.stores.dialect.BUSY_TIMEOUT_MS", 20)
        monkeypatch.setattr("haulage.stores.dialect.MIGRATION_WAIT_SECONDS", 1)

    def before_each_write(self, store, act):
        """Have something happen when a store is about to write."""
        write = store._database.write

        def write_too_late(tx=None, **options):
            act()
            return write(tx, **options)

        store._database.write = write_too_late


OWNER = "owner_of_ours"  # of the databases: no superuser, so that row security binds it too


class PostgreSQL(InDatabase):
    """One server a process, a database a store; they are used again.

    A store is entered as a role of those that `haulage migrate up --roles` makes, and never as a superuser, whom no
    policy binds.
    """

    def __init__(self, role=WORKER):
        self._role = role
        self._free = []
        self._template = False  # it is made by the first who wants a copy
        self._numbers = itertools.count()

    def url(self, _folder) -> str:
        """An empty store with its schema."""
        if self._free:
            return self._free.pop()
        server, number = postgresql.server(), next(self._numbers)
        if not self._template:
            self._template = True
            with closing(open_store(self._made("template_of_ours"), migrate_new=False)) as store:
                store.migrate()
                store.make_roles()
        server.execute("postgres", f"create database store{number} template template_of_ours owner {OWNER}")
        return server.url(f"store{number}", self._role)

    def new(self, _folder=None) -> str:
        """A database without anything, for a test that makes or breaks its schema, as its owner."""
        return self._made(f"new{next(self._numbers)}")

    def in_encoding(self, encoding) -> str:
        """A database without anything, that keeps its text otherwise than in UTF-8."""
        return self._made(f"new{next(self._numbers)}", f"encoding '{encoding}' locale 'C' template template0")

    def _made(self, name, how=""):
        server = postgresql.server()
        if not server.execute("postgres", f"select 1 from pg_roles where rolname = '{OWNER}'"):
            server.execute("postgres", f"create role {OWNER} login createrole")
        server.execute("postgres", f"create database {name} owner {OWNER} {how}")
        return server.url(name, OWNER)

    def as_role(self, url, role) -> str:
        """The same store, entered as another role."""
        return postgresql.server().url(url.rpartition("/")[2], role)

    def done(self, url) -> None:
        """Empty a store for the next test."""
        drop = (
            "drop trigger if exists exports_transitions on exports",
            "drop function if exists exports_transition()",
            "drop table if exists transitions",
        )
        self.execute(url, "; ".join(("begin", *drop, *EMPTY, "commit")))
        if url == postgresql.server().url(url.rpartition("/")[2], self._role):  # Else made by ``new``, without roles.
            self._free.append(url)

    def execute(self, url, sql) -> list[tuple]:
        """A statement of the owner, past the store."""
        return postgresql.server().execute(url.rpartition("/")[2], sql)

    def port(self) -> int:
        return postgresql.server().port

    def through(self, url, port) -> str:
        """The same store by way of another port."""
        return url.replace(f":{self.port()}/", f":{port}/")

    def statements(self, url) -> int:
        """How many transactions the database has seen; a thousand beats of their own would be a thousand."""
        (count,) = self.execute(url, "select xact_commit from pg_stat_database where datname = current_database()")[0]
        return count

    def routines(self, url) -> list[tuple]:
        """Functions and procedures of the store."""
        return self.execute(
            url, "select routine_name from information_schema.routines where routine_schema = current_schema()"
        )

    def write_down_transitions(self, url, table):
        """Have the database itself write down every change of state, and how many runs were running after it."""
        self.execute(
            url,
            f"""
            begin;
            create table if not exists transitions (place bigserial, id text, source text, target text,
                claim_no integer, running integer, cancel integer);
            create or replace function {table}_transition() returns trigger language plpgsql as $$ begin
                insert into transitions (id, source, target, claim_no, running, cancel)
                values (new.id, old.state, new.state, new.claim_no,
                    (select count(*) from {table} where state = 'running'),
                    (old.cancel_requested_at is not null)::integer);
                return null;
            end $$;
            grant select, insert, delete on transitions to {WORKER};
            grant usage on sequence transitions_place_seq to {WORKER};
            create or replace trigger {table}_transitions after update of state on {table} for each row
            when (old.state <> new.state) execute function {table}_transition();
            commit""",
        )

    def transitions(self, url) -> list[tuple]:
        columns = "id, source, target, claim_no, running, cancel"
        return self.execute(url, f"select {columns} from transitions order by place")

    @contextmanager
    def locked(self, url):
        """Another program holds the right to write."""
        with closing(postgresql.server().connect(url.rpartition("/")[2])) as direct:
            direct.execute("begin")
            direct.execute(f"lock table {', '.join(TABLES)} in exclusive mode")
            direct.execute(f"select pg_advisory_xact_lock({MIGRATION_LOCK})")
            yield
            direct.execute("rollback")

    def deafen(self, watcher, monkeypatch):
        """End the connection that listens."""
        pid = watcher._connection.info.backend_pid
        postgresql.server().execute("postgres", f"select pg_terminate_backend({pid})")


class MariaDB(InDatabase):
    """One server a process, a database a store; they are used again."""

    def __init__(self):
        self._free = []
        self._numbers = itertools.count()

    def url(self, _folder) -> str:
        """An empty store with its schema."""
        if self._free:
            return self._free.pop()
        url = self.new()
        with closing(open_store(url, migrate_new=False)) as store:
            store.migrate()
        return url

    def new(self, _folder=None) -> str:
        """A database without anything, for a test that makes or breaks its schema."""
        server, name = mariadb.server(), f"store{next(self._numbers)}"
        server.execute(None, f"create database {name}")
        return server.url(name)

    def done(self, url) -> None:
        """Empty a store for the next test."""
        drop = ("drop trigger if exists exports_transitions", "drop table if exists transitions")
        self.execute(url, *drop, *EMPTY)
        self._free.append(url)

    def execute(self, url, *statements) -> list[tuple]:
        """Statements of the owner, past the store."""
        return mariadb.server().execute(url.rpartition("/")[2], *statements)

    def port(self) -> int:
        return mariadb.server().port

    def through(self, url, port) -> str:
        """The same store by way of another port."""
        return url.replace(f":{self.port()}/", f":{port}/")

    def statements(self, url) -> int:
        """How many statements the server was asked."""
        return int(self.execute(url, "show global status like 'Questions'")[0][1])

    def routines(self, url) -> list[tuple]:
        """Functions and procedures of the store."""
        return self.execute(
            url, "select routine_name from information_schema.routines where routine_schema = database()"
        )

    def write_down_transitions(self, url, table):
        """Have the database itself write down every change of state, and how many runs were running after it."""
        self.execute(
            url,
            """create table if not exists transitions (place bigint auto_increment primary key, id varchar(36),
                source varchar(32), target varchar(32), claim_no integer, running integer, cancel integer)""",
            f"""create trigger if not exists {table}_transitions after update on {table} for each row
            begin
                if old.state <> new.state then
                    insert into transitions (id, source, target, claim_no, running, cancel)
                    values (new.id, old.state, new.state, new.claim_no,
                        (select count(*) from {table} where state = 'running'),
                        old.cancel_requested_at is not null);
                end if;
            end""",
        )

    def transitions(self, url) -> list[tuple]:
        columns = "id, source, target, claim_no, running, cancel"
        return self.execute(url, f"select {columns} from transitions order by place")

    @contextmanager
    def locked(self, url):
        """Another program holds the right to write."""
        with closing(mariadb.server().connect(url.rpartition("/")[2])) as direct, direct.cursor() as cursor:
            cursor.execute(f"lock tables {', '.join(f'{table} read' for table in TABLES)}")
            cursor.execute("select get_lock('haulage migrate', 1)")
            yield
            cursor.execute("unlock tables")

    def deafen(self, watcher, monkeypatch):
        """Have nobody answer at the address that is asked."""
        monkeypatch.setattr(watcher, "_engine", create_engine(f"mariadb+pymysql://root@127.0.0.1:{free_port()}/none"))

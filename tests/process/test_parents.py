"""A parent that goes while its export is built, with a real worker: process, SQL and bytes go, and then the row."""

from __future__ import annotations

import itertools
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.conformance.cases import STORES
from tests.servers import mariadb, postgresql
from tests.stories.terminal import SECRET, Terminal, until

from haulage import Haulage
from haulage.core.errors import Refused
from haulage.core.ports import Query
from haulage.core.requester import Requester

pytestmark = [pytest.mark.slow, pytest.mark.process]
names = itertools.count()
AMINA, BEN = (Requester("north", name, frozenset({"books.read"}), session=name) for name in ("amina", "ben"))
# One statement each that says nothing for as long as a test takes.
SILENT = {
    "sqlite": "with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) as i from n",
    "postgresql": "select pg_sleep(600) as i",
    "mariadb": "select sum(a.seq * b.seq) as i from seq_1_to_1000000 as a, seq_1_to_1000000 as b",
}
CONFIGURATION = """
store = "{store}"
secret_keys = ["{secret}"]

[sources.library]
url = "{source}"

[parents.book]
source = "library"
owners = "select owner from books where id = :parent and tenant = :requester_tenant"

[datasets.chapters]
source = "library"
parent = "book"
permission = "books.read"
sql = "{silent} where :parent is not null"
limits = {{count_seconds = 0.1}}

[datasets.covers]
source = "library"
parent = "book"
sql = "select id, owner from books where id = :parent"

[worker]
exports = 1

[limits.exports]
beat_seconds = 0.2
lease_seconds = 5
sweep_seconds = 0.3
stop_seconds = 2
"""


class Books:
    """A table of books in a database of a technology."""

    def __init__(self, technology, folder: Path):
        self.technology, self.database = technology, f"library{next(names)}"
        if technology == "sqlite":
            self.url = f"sqlite:///{folder}/library.db"
        elif technology == "postgresql":
            postgresql.server().execute("postgres", f"create database {self.database}")
            self.url = postgresql.server().url(self.database).replace("+psycopg", "")
        else:
            mariadb.server().execute(None, f"create database {self.database}")
            self.url = mariadb.server().url(self.database).replace("+pymysql", "")
        self.execute("create table books (id varchar(40) primary key, tenant varchar(40), owner varchar(40))")
        self.execute("insert into books values ('moby', 'north', 'amina'), ('emma', 'north', 'ben')")

    def execute(self, sql: str) -> list[tuple]:
        if self.technology == "sqlite":
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as direct, direct:
                direct.execute("pragma journal_mode = wal")
                return direct.execute(sql).fetchall()
        server = postgresql.server() if self.technology == "postgresql" else mariadb.server()
        return server.execute(self.database, sql)

    def working(self) -> int:
        """Statements of builds that the server still works on."""
        if self.technology == "postgresql":
            where = f"datname = '{self.database}' and state = 'active' and query like '%sleep(600)%'"
            where += " and pid <> pg_backend_pid()"
            return len(self.execute(f"select pid from pg_stat_activity where {where}"))
        like = "info like '%seq_1_to_1000000%' and info not like '%processlist%'"
        return len(
            self.execute(f"select id from information_schema.processlist where db = '{self.database}' and {like}")
        )

    def done(self):
        if self.technology == "postgresql":
            postgresql.server().execute("postgres", f"drop database {self.database} with (force)")
        elif self.technology == "mariadb":
            mariadb.server().execute(None, f"drop database {self.database}")


class Shelf:
    """A worker, and the doors beside it in this process, over one store and one source."""

    def __init__(self, store, technology, folder):
        self.books = Books(technology, folder)
        self.opener = STORES[store]
        self.url = self.opener.new(folder)
        self.terminal = Terminal(folder)
        self.terminal.config.write_text(
            CONFIGURATION.format(store=self.url, secret=SECRET, source=self.books.url, silent=SILENT[technology])
        )
        self.terminal.config.chmod(0o600)
        if store in ("postgresql", "mariadb"):
            assert 0 == self.terminal.run("migrate", "up").code
        self.haul = Haulage.from_toml(self.terminal.config, observe=lambda _event: None)
        self.exports = self.haul.exports

    def rows(self):
        return {run.id: run.state for run in self.haul.store.exports.list(Query())}

    def ask(self, dataset="chapters", who=AMINA, parent="moby"):
        until(lambda: self.haul.store.workers.claiming(60))
        return self.exports.request(who, dataset, parent=parent).id

    def state(self, run):
        found = self.haul.store.exports.get(run)
        return None if found is None else found.state

    def files(self):
        return sorted(self.haul.artifacts.keys())


@pytest.fixture
def shelf(request, tmp_path):
    made = Shelf(*request.param, tmp_path)
    with closing(made.haul), made.terminal.started("worker") as made.worker:
        yield made
    made.books.done()
    made.opener.done(made.url)


# Each store once, and each technology that runs a statement once.
PAIRS = [("sqlite", "sqlite"), ("directory", "sqlite"), ("postgresql", "postgresql"), ("mariadb", "mariadb")]


@pytest.mark.parametrize("shelf", PAIRS, indirect=True, ids=[store for store, _ in PAIRS])
def test_a_parent_that_goes_takes_a_silent_build_with_it(shelf):
    ready = shelf.ask("covers")
    until(lambda: shelf.state(ready) == "ready")
    other = shelf.ask("covers", BEN, "emma")
    until(lambda: shelf.state(other) == "ready")
    running = shelf.ask()
    until(lambda: shelf.state(running) == "running")
    waiting = shelf.ask("covers")  # for the one lane of this worker
    if shelf.books.technology != "sqlite":
        until(lambda: shelf.books.working() == 1)
    before = shelf.files()

    shelf.books.execute("delete from books where id = 'moby'")
    with pytest.raises(Refused, match="nothing here"):
        shelf.exports.get(AMINA, running)
    until(lambda: shelf.rows() == {other: "ready"})  # cancelled, then gone; the file too
    until(lambda: len(shelf.files()) == 1)

    assert {run.partition(".")[0] for run in before} >= {ready, other, running}
    assert [other] == [key.partition(".")[0] for key in shelf.files()]
    if shelf.books.technology != "sqlite":
        assert 0 == shelf.books.working()
    assert shelf.worker.poll() is None
    assert waiting not in shelf.rows()
    assert [] == shelf.haul.store.exports.drift()
    run, file = shelf.exports.open_file(BEN, other)
    with file:
        assert (run.rows, b"id,owner\nemma,ben\n") == (1, file.read().replace(b"\r\n", b"\n"))


@pytest.mark.parametrize("shelf", PAIRS[:1], indirect=True, ids=["sqlite"])
def test_what_the_host_tells_is_done_before_anybody_asks(shelf):
    """The query still finds the book: what the host says is believed, and its next export is a new one."""
    running = shelf.ask()
    until(lambda: shelf.state(running) == "running")
    told = shelf.haul.parent_gone("book", "moby", tenant="north")
    until(lambda: shelf.state(running) == "cancelled")
    until(lambda: shelf.files() == [])
    again = shelf.ask("covers")
    until(lambda: shelf.state(again) == "ready")

    assert (0, 1, 0) == (told.cancelled, told.stopping, told.expired)
    assert {running: "cancelled", again: "ready"} == shelf.rows()


@pytest.mark.parametrize("shelf", PAIRS[:1], indirect=True, ids=["sqlite"])
def test_who_lost_a_parent_before_the_build_gets_no_file(shelf):
    first = shelf.ask()  # it holds the lane
    until(lambda: shelf.state(first) == "running")
    waits = shelf.ask("covers")
    shelf.books.execute("update books set owner = 'ben' where id = 'moby'")
    shelf.exports.cancel(BEN, first)
    until(lambda: shelf.state(waits) not in ("queued", "running"))
    theirs = shelf.ask("covers", BEN)
    until(lambda: shelf.state(theirs) == "ready")

    assert ("failed", "permission_lost") == (shelf.state(waits), shelf.haul.store.exports.get(waits).failure_code)
    assert {first, waits, theirs} == {run.id for run in shelf.exports.list(BEN, parent="moby", parent_kind="book")}
    with pytest.raises(Refused, match="nothing here"):
        shelf.exports.list(AMINA, parent="moby")


@pytest.mark.parametrize("shelf", PAIRS[:1], indirect=True, ids=["sqlite"])
def test_a_source_that_is_away_ends_nothing(shelf):
    ready = shelf.ask("covers")
    until(lambda: shelf.state(ready) == "ready")
    running = shelf.ask()
    until(lambda: shelf.state(running) == "running")
    shelf.books.execute("alter table books rename to elsewhere")
    with pytest.raises(Refused) as refused:
        shelf.exports.get(AMINA, ready)
    for _ in range(3):
        shelf.haul.sweeper().pass_once()
    between = shelf.rows()
    shelf.books.execute("alter table elsewhere rename to books")

    assert "host_silent" == refused.value.code
    assert {ready: "ready", running: "running"} == between
    assert "ready" == shelf.exports.get(AMINA, ready).state

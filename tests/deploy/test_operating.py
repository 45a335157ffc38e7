"""The commands of docs/operating.md that save and bring back a store, run as they stand there."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess

import pytest
from tests.conformance.cases import STORES
from tests.deploy.units import DEPLOY, HERE, UNITS, Unit
from tests.servers import postgresql
from tests.stories.terminal import CONFIGURATION, Terminal, until

from haulage.core.limits import MIB, BuildLimits, ExportLimits
from haulage.stores.tenants import WORKER

pytestmark = pytest.mark.process

PAGE = (DEPLOY.parent / "docs" / "operating.md").read_text()
SHOP = CONFIGURATION.replace("select missing from nowhere", "select 1 as one")
SHOP += "[limits.exports]\nexpiry_seconds = '1 h'\nlease_seconds = '6 s'\nbeat_seconds = '200 ms'\n"


def block(name):
    (commands,) = re.findall(rf"<!-- tried: {name} -->\n```sh\n(.*?)```", PAGE, re.DOTALL)
    return commands


class Site(Terminal):
    """A shop with a worker, and what an operator types."""

    def type(self, name, **more):
        """Run the commands of a block of the page; a failing one ends it."""
        environ = {
            **self.environ, **more, "STATE": str(self.folder), "BACKUP": str(self.folder / "backup"),
            "HAULAGE_CONFIG": str(self.config), "PATH": f"{HERE}:{more.get('PROGRAMS', '')}:{self.environ['PATH']}",
        }  # fmt: skip
        done = subprocess.run(
            ["sh", "-euc", block(name)], env=environ, cwd="/", capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def export(self, since):
        return self.run("export", "orders", "-p", f"since={since}", "--json").document["id"]

    def states(self):
        return {run["id"]: run["state"] for run in self.run("runs", "list", "--json").document["items"]}

    @contextlib.contextmanager
    def working(self):
        """A worker that claims; at the end it is killed, so the store is left as by a power cut."""
        with self.started("worker", "--json", "--config", self.config) as process:
            assert process.stdout.readline(), process.stderr.read()
            yield process


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path).shop(configuration=SHOP)


def test_a_backup_made_while_all_goes_on_is_whole_and_can_be_brought_back(site):
    with site.working():
        saved = site.export("2026-01-02")
        backed_up = site.type("backup")
        later = site.export("2026-01-03")
        assert 0 == site.run("runs", "expire", saved).code
        lost = set(site.states())
    left = (site.folder / "haulage.db-wal").stat().st_size
    checked = site.type("check")
    restored = site.type("restore")

    assert (0, "") == backed_up
    assert 0 == checked[0], checked
    assert "1 whole and as written" in checked[1]
    assert {saved, later} == lost
    assert left > 0
    assert 0 == restored[0], restored
    assert f"run {saved}: its bytes are missing" in restored[1]
    assert f"{later}.1 belongs to no run" in restored[1]
    assert re.search(r"^orphans +1$", restored[1], re.MULTILINE)
    assert {saved: "ready"} == site.states()
    assert [] == list((site.folder / "artifacts" / "files").iterdir())


def test_runs_that_lived_at_the_backup_are_ended_after_the_restore(site):
    with site.working() as worker, site.started("export", "endless", "--config", site.config):
        until(lambda: "running" in site.states().values())
        assert 0 == site.type("backup")[0]
        worker.kill()
        worker.wait()
    (run,) = site.states()
    assert 0 == site.type("restore")[0]

    until(lambda: site.run("sweep").code == 0 and site.states()[run] == "failed")
    assert "worker_lost" == json.loads(site.run("runs", "show", run, "--json").out)["failure"]["code"]
    assert [] == list((site.folder / "artifacts" / "work").iterdir())


class Dumped(Site):
    """A shop with its store on PostgreSQL, and what its owner types."""

    def type(self, name, database):
        url = database.replace("postgresql+psycopg", "postgresql")
        return super().type(name, DATABASE=url, HAULAGE_STORE=url, PROGRAMS=str(postgresql.programs()))


@pytest.mark.parametrize("roles", [[], ["--roles"]], ids=["the owner alone", "with roles"])
def test_the_owner_of_a_store_on_postgresql_saves_all_of_it_and_brings_it_back(tmp_path, roles):
    """Of every tenant, with triggers and row security: the copy is entered and worked with as the store was."""
    opener = STORES["postgresql"]
    url, empty = opener.new(), opener.new()
    site = Dumped(tmp_path).shop(configuration=SHOP.replace("sqlite:///haulage.db", url))
    (tmp_path / "backup").mkdir()
    assert 0 == site.run("migrate", "up", *roles).code
    for number in range(3):
        assert 0 == site.run("export", "orders", "-o", f"{number}.csv", "-p", f"since=2026-01-0{number + 1}").code
    opener.execute(url, "update exports set tenant = 'other' where id = (select min(id) from exports)")
    before = rows_of(opener, url)
    dumped = site.type("dump", url)
    restored = site.type("bring back", empty)
    enter = opener.as_role(empty, WORKER) if roles else empty
    after = rows_of(opener, empty)
    worked = site.run("export", "orders", "-o", "again.csv", HAULAGE_STORE=enter)
    apart = site.run("doctor", HAULAGE_STORE=enter).out

    assert (0, "") == dumped
    assert "3 whole and as written" in restored[1], restored
    assert (3, before) == (len(before), after)
    assert 0 == worked.code, worked.err
    assert 4 == len(rows_of(opener, empty))
    assert not roles or "OK    tenants" in apart, apart


def rows_of(opener, url):
    return opener.execute(url, "select id, tenant, state, sha256 from exports order by id")


def test_what_the_page_says_cannot_be_saved_is_refused_and_not_saved_in_part(tmp_path):
    """The plain command as the owner, and the page's as a worker: no copy without rows that looks like one."""
    opener = STORES["postgresql"]
    url = opener.new()
    site = Dumped(tmp_path).shop(configuration=SHOP.replace("sqlite:///haulage.db", url))
    (tmp_path / "backup").mkdir()
    assert 0 == site.run("migrate", "up", "--roles").code
    as_worker = site.type("dump", opener.as_role(url, WORKER))
    place = url.replace("postgresql+psycopg", "postgresql")
    program = [postgresql.programs() / "pg_dump", "--no-owner", place]
    plain = subprocess.run(program, capture_output=True, text=True, check=False)

    assert (1, True) == (as_worker[0], "permission denied" in as_worker[1])
    assert (1, True) == (plain.returncode, "row-level security" in plain.stderr)


def test_the_figures_of_the_page_are_those_of_the_product():
    limits, build = ExportLimits(), BuildLimits()

    for text in (
        f"`memory_bytes` ({build.memory_bytes // MIB} MiB)", f"`store_bytes` ({limits.store_bytes // MIB} MiB)",
        f"`drain_seconds` ({limits.drain_seconds:g} s)", f"`abandon_seconds` ({limits.abandon_seconds:g} s",
        f"`TimeoutStopSec={Unit('haulage-worker.service').one('TimeoutStopSec')}`",
    ):  # fmt: skip
        assert text in PAGE, text
    assert all(f"deploy/{name}" in PAGE for name in UNITS)

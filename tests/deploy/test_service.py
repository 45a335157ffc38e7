"""A worker run as its unit says: what its signals do to a build, and what the system calls that it may make allow."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.deploy.units import Service, Unit, confined
from tests.process.house import cpu_seconds, until

from haulage.app import Haulage
from haulage.exports.plan import Asked

pytestmark = pytest.mark.process

WORKER, WEB = Unit("haulage-worker.service"), Unit("haulage-web.service")
CONFIG = """
store = "sqlite:///haulage.db"
artifacts = "file:./artifacts"
secret_keys = ["kJ8s-2hd0qLx7Zp4Wm1Rv6Tt3Yy9Uu5I"]
[sources.shop]
url = "sqlite:///haulage.db"
[datasets.rows]
source = "shop"
sql = "with recursive n(i) as (select 1 union all select i + 1 from n where i < :rows) select i from n"
[datasets.rows.parameters]
rows = {type = "integer"}
[limits.exports]
count_seconds = "50 ms"
rows = 1_000_000_000_000
file_bytes = "1 GiB"
store_bytes = "4 GiB"
lease_seconds = "20 s"
beat_seconds = "200 ms"
sweep_seconds = "300 ms"
stop_seconds = "1 s"
"""
FOREVER = 10**11


class Host:
    """A configured folder, and the services that were started in it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.config = folder / "haulage.toml"
        self.config.write_text(CONFIG)
        self.config.chmod(0o600)
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith("HAULAGE_")}
        self.environ["HAULAGE_CONFIG"] = str(self.config)
        self.haul = Haulage.from_toml(self.config, environ=self.environ)
        self.services: list[Service] = []

    def start(self, unit: Unit = WORKER, **options) -> Service:
        service = Service(unit, self.folder, self.environ, **options)
        self.services.append(service)
        said = {WORKER: "worker ready", WEB: "serving http"}[unit]
        until(lambda: said in service.log or service.process.poll() is not None, lambda: service.log)
        return service

    def request(self, rows: int) -> str:
        return self.haul.exports.accept(
            self.haul.operator, Asked("rows", parameters={"rows": rows}, format="csv")
        ).run.id

    def get(self, run: str):
        return self.haul.store.exports.get(run)

    def wait_for_rows(self, run: str) -> None:
        until(lambda: (self.get(run).processed or 0) > 0, lambda: f"{self.get(run)}")

    def wait(self, run: str):
        """Wait until a run has ended."""
        until(lambda: self.get(run).state not in ("queued", "running"), lambda: f"{self.get(run)}")
        return self.get(run)

    def bytes_left(self) -> list[str]:
        root = self.folder / "artifacts"
        return [str(path) for kind in ("work", "files") for path in (root / kind).rglob("*")]

    def close(self) -> None:
        for service in self.services:
            service.kill()
        self.haul.close()


@pytest.fixture
def host(tmp_path):
    with contextlib.closing(Host(tmp_path)) as host:
        yield host


def test_the_first_signal_of_a_stop_lets_the_build_finish(host):
    service = host.start()
    run = host.request(rows=1_000_000)
    host.wait_for_rows(run)

    service.stop()
    until(lambda: "WorkerDraining" in service.log)

    assert 0 == service.process.wait(120)
    assert ("ready", 1_000_000) == (host.get(run).state, host.get(run).rows)
    assert [] == service.group()


def test_the_same_signal_to_every_process_would_end_the_build(host):
    """The reason for KillMode=mixed: with systemd's default the drain has nothing left to wait for."""
    service = host.start()
    service.unit = Unit("haulage-worker.service")
    service.unit.text = service.unit.text.replace("KillMode=mixed\n", "")
    run = host.request(rows=FOREVER)
    host.wait_for_rows(run)

    service.stop()

    assert 0 == service.process.wait(120)
    assert ("failed", "child_killed") == (host.get(run).state, host.get(run).failure_code)


def test_what_is_killed_at_the_end_of_the_stop_time_leaves_nothing(host):
    service = host.start()
    run = host.request(rows=FOREVER)
    host.wait_for_rows(run)
    service.stop()
    until(lambda: "WorkerDraining" in service.log)
    members = service.group()

    service.kill()
    killed = host.get(run).state
    with host.haul.store.begin() as tx:  # as if the time of its lease had passed
        tx.exec_driver_sql("update exports set lease_until = 0 where state = 'running'")
    host.start()  # as Restart=always and the next boot do

    assert (2, "running") == (len(members), killed)
    assert "worker_lost" == host.wait(run).failure_code
    assert [] == host.bytes_left()


def test_the_system_calls_and_sockets_of_the_unit_are_enough_for_a_build(host):
    service = host.start(calls=WORKER.calls())
    run = host.request(rows=FOREVER)
    host.wait_for_rows(run)
    (child,) = set(service.group()) - {service.process.pid}
    filters = [Path(f"/proc/{pid}/status").read_text() for pid in (service.process.pid, child)]
    fences = Path(f"/proc/{child}/limits").read_text().splitlines()
    descriptors = [str(path.readlink()) for path in Path(f"/proc/{service.process.pid}/fd").iterdir()]
    worked = cpu_seconds(child)
    host.haul.exports.cancel(host.haul.operator, run)
    cancelled = host.wait(run).state
    second = host.wait(host.request(rows=1_000))
    service.stop()

    assert 0 == service.process.wait(120)
    assert all("\nSeccomp:\t2\n" in text and "\nNoNewPrivs:\t1\n" in text for text in filters)
    assert "anon_inode:inotify" in descriptors
    assert worked > 0
    assert 2 == sum(str(bound) in line for line in fences for bound in (512 * 2**20, 2**31 + 2**28))
    assert ("cancelled", "ready") == (cancelled, second.state)
    assert "Incident" not in service.log


def test_the_web_answers_with_the_system_calls_and_sockets_of_its_unit(host):
    host.environ["HAULAGE_SERVE__PORT"] = "0"
    service = host.start(WEB, calls=WEB.calls())
    address = service.log.split("serving ")[1].split()[0]
    with urllib.request.urlopen(f"{address}/api/health/ready", timeout=60) as answer:
        status = answer.status
    service.stop()

    assert 0 == service.process.wait(120)
    assert 200 == status
    assert "Incident" not in service.log


def test_what_the_unit_does_not_allow_is_refused(host):
    """So that what was shown above was shown under the filter."""
    attempts = (
        "import os, socket\n"
        "for act in (lambda: os.chroot('/'), lambda: os.sched_setaffinity(0, {0}), lambda: socket.socket(16, 3),"
        " lambda: os.chown('.', -1, -1), lambda: socket.socket(socket.AF_INET)):\n"
        "    try:\n        act(); print('did')\n    except OSError as refused:\n        print(refused.errno)\n"
    )
    words = confined(WORKER, WORKER.calls(), [sys.executable, "-c", attempts])

    assert ["1", "1", "1", "1", "did"] == subprocess.run(
        words, capture_output=True, text=True, check=True
    ).stdout.split()

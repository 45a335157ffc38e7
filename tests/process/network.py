"""Two hosts and what lies between them and their servers: network namespaces, and cables that a test pulls.

    host "near", "far"      a namespace each, 198.18.N.2 and .3, an interface ``eth0``
       |  a cable           a veth pair
    the machine itself      198.18.N.1 of the store, 198.18.N.5 of the objects; it passes nothing on

Processes of all of them share one machine, so a test sees and ends them; only their sockets are apart.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.process.launcher import Launcher

NOBODY = "02:00:00:00:00:fe"  # a hardware address that no interface has: what is sent there is lost
WAYS = ("its interface is down", "no answer comes back", "the store alone is lost")


def ip(*words: str, check: bool = True) -> subprocess.CompletedProcess:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=check)


def refuse(why: str) -> None:
    """Skip, by name; a failure where everything must run."""
    assert os.environ.get("HAULAGE_TEST_ALL") != "1", why
    pytest.skip(why)


def new_namespace(names: Callable[[int], str]) -> int:
    """Make a namespace that nobody else has, and give its number."""
    if os.geteuid() != 0:
        pytest.skip("needs root: makes a network namespace")
    said = ""
    for turn in range(250):
        number = (os.getpid() + turn) % 250 + 1
        made = ip("netns", "add", names(number), check=False)
        if made.returncode == 0:
            return number
        said = made.stderr
        if "exists" not in said:
            break
    refuse(f"no network namespace can be made here, not even as root: {said}")
    raise AssertionError


class FarLauncher(Launcher):
    """Starts workers on another host."""

    def __init__(self, prefix: list[str]):
        script = sys.modules[Launcher.__module__].__file__
        self._process = subprocess.Popen(
            [*prefix, sys.executable, script, "worker_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


@contextlib.contextmanager
def another_host() -> Iterator[list[str]]:
    """A network namespace with no way out: what prefixes a command that runs there."""
    name = f"haulage-alone-{new_namespace(lambda number: f'haulage-alone-{number}')}"
    try:
        yield ["ip", "netns", "exec", name]
    finally:
        ip("netns", "del", name)


class Host:
    """One of two hosts, whose cable can be cut."""

    def __init__(self, network: Network, name: str, place: int):
        self.network = network
        self.name = name
        self.address = network.address(place)
        self.namespace = network.namespace(name)
        self.cable = f"hl{network.number}{name}"  # our end; a name has at most 15 letters
        self.prefix = ["ip", "netns", "exec", self.namespace]

    def connect(self) -> None:
        """Make the cable, once the namespace is there."""
        ip("link", "add", self.cable, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        ip("link", "set", self.cable, "up")
        ip("route", "add", f"{self.address}/32", "dev", self.cable)
        self._inside("addr", "add", f"{self.address}/24", "dev", "eth0")
        self._inside("link", "set", "lo", "up")
        self._inside("link", "set", "eth0", "up")

    def cut(self, way: str) -> None:
        """Cut it off from its servers, in one of these ways."""
        if way == "its interface is down":
            self._inside("link", "set", "eth0", "down")
        elif way == "no answer comes back":  # What it asks is heard and done.
            self._astray(ip, self.address, self.cable)
        else:
            self._astray(self._inside, self.network.of_store, "eth0")

    def mend(self) -> None:
        """Let it have its servers again, however it was cut off."""
        self._inside("link", "set", "eth0", "up")
        self._inside("neigh", "del", self.network.of_store, "dev", "eth0", check=False)
        ip("neigh", "del", self.address, "dev", self.cable, check=False)

    def _inside(self, *words: str, check: bool = True) -> subprocess.CompletedProcess:
        return ip("-n", self.namespace, *words, check=check)

    @staticmethod
    def _astray(command: Callable[..., object], to: str, device: str) -> None:
        command("neigh", "replace", to, "lladdr", NOBODY, "dev", device, "nud", "permanent")


class Network:
    """The two hosts, for as long as it is open."""

    def __init__(self) -> None:
        self.number = new_namespace(lambda number: f"haulage-{number}-near")
        self.of_store, self.of_objects = self.address(1), self.address(5)
        self.hosts = [Host(self, "near", 2), Host(self, "far", 3)]
        try:
            ip("netns", "add", self.namespace("far"))
            for host in self.hosts:
                host.connect()
            for each in (self.of_store, self.of_objects):
                ip("addr", "add", f"{each}/32", "dev", self.hosts[0].cable)
        except subprocess.CalledProcessError as problem:
            self.close()
            refuse(f"no network of one's own can be made here: {problem.stderr}")

    def address(self, place: int) -> str:
        """In the range that is kept for tests of networks (RFC 2544)."""
        return f"198.18.{self.number}.{place}"

    def namespace(self, host: str) -> str:
        return f"haulage-{self.number}-{host}"

    def close(self) -> None:
        for host in ("near", "far"):
            ip("netns", "del", self.namespace(host), check=False)


def namespace_of(pid: int) -> str:
    return str(Path(f"/proc/{pid}/ns/net").readlink())

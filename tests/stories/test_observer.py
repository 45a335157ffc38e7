"""A host's own observer may break at every event, and no run, request or worker is any the worse for it."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
import time
from collections import Counter

import pytest

from haulage import Haulage, Requester
from haulage.core import events
from haulage.core.errors import Refused

CONFIGURATION = """
store = "sqlite:///haulage.db"
artifacts = "file:./artifacts"
secret_keys = ["a-secret-of-this-test-0123456789-abcdef"]

[sources.shop]
url = "sqlite:///shop.db"

[datasets.orders]
source = "shop"
sql = "select id from orders"
key = ["id"]

[datasets.broken]
source = "shop"
sql = "select abs(-9223372036854775808) as a"
"""
AMINA = Requester("north", "amina")


@pytest.fixture
def haul(tmp_path):
    (tmp_path / "haulage.toml").write_text(CONFIGURATION)
    (tmp_path / "haulage.toml").chmod(0o600)
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as shop, shop:
        shop.execute("pragma journal_mode=wal")
        shop.execute("create table orders as select 1 as id union select 2 union select 3")
    seen = []

    def breaks(event):
        seen.append(event)
        raise LookupError("nobody answers at notices.example")

    haul = Haulage.from_toml(tmp_path / "haulage.toml", observe=breaks)
    haul.seen = seen
    yield haul
    haul.close()


def ended(haul, run):
    for _ in range(6_000):
        found = haul.exports.get(AMINA, run)
        if found.state in ("ready", "failed", "cancelled"):
            return found
        time.sleep(0.01)  # another thread's work
    raise AssertionError(found)


def test_a_broken_observer_costs_nobody_anything(haul, caplog):
    worker = haul.supervisor(lanes=1)
    thread = threading.Thread(target=worker.run)
    with caplog.at_level(logging.ERROR, logger="haulage"):
        thread.start()
        assert worker.ready.wait(60)
        good = haul.exports.request(AMINA, "orders").id
        bad = haul.exports.request(AMINA, "broken").id
        with pytest.raises(Refused) as refused:
            haul.exports.request(AMINA, "nothing")
        states = [ended(haul, good).state, ended(haul, bad).failure_code]
        again = ended(haul, haul.exports.request(AMINA, "orders", format="csv").id).state
        worker.drain()
        thread.join(60)

    assert ["ready", "source_failed", "ready", "not_found"] == [*states, again, refused.value.code]
    with haul.exports.open_file(AMINA, good)[1] as file:
        assert b"id\n1\n2\n3\n" == file.read()
    assert not thread.is_alive()
    told = Counter(type(event) for event in haul.seen)
    assert (3, 3, 1) == (told[events.RunRequested], told[events.RunSettled], told[events.WorkerStopped])
    assert len(haul.seen) == caplog.text.count("nobody answers at notices.example")

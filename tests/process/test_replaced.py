"""A store's file that is replaced under a living worker: it says so, and nobody is made to wait for it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
from pathlib import Path

import pytest
from tests.process.house import House, until

from haulage.core.errors import Refused, StoreUnavailable
from haulage.stores.open import open_store


def test_a_worker_whose_store_is_replaced_neither_counts_in_the_new_one_nor_touches_it(house, template, tmp_path):
    worker = house.worker()
    assert "ready" == house.wait(house.request("names", rows=1)).state
    house.store.close()
    for beside in ("-wal", "-shm"):
        Path(f"{house.store_path}{beside}").unlink()
    shutil.copy(template / "haulage.db", tmp_path / "restored.db")
    (tmp_path / "restored.db").replace(house.store_path)
    until(lambda: [e for e in worker.events("StoreFailed") if "replaced" in e["problem"]])

    with contextlib.closing(House(tmp_path, house.launcher, house.limits)) as after:
        with pytest.raises(Refused) as refused:
            after.request("names", rows=2)
        after.workers += house.workers
        after.pretend_a_worker()
        run = after.request("names", rows=3)
        worker.signal(signal.SIGTERM)
        worker.end()
        log = Path(f"{house.store_path}-wal").exists()
        after.worker()

        assert ("no_worker", True) == (refused.value.code, log)
        assert "ready" == after.wait(run).state
        with contextlib.closing(sqlite3.connect(after.store_path)) as store:
            assert [("ok",)] == store.execute("pragma integrity_check").fetchall()


def test_a_worker_whose_store_is_removed_makes_no_other(house):
    worker = house.worker()
    house.store.close()
    for path in house.folder.glob(f"{house.store_path.name}*"):
        path.unlink()
    worker.wait_for("StoreFailed")

    worker.signal(signal.SIGTERM)
    worker.end()

    assert [] == list(house.folder.glob(f"{house.store_path.name}*"))


def test_a_replaced_store_takes_no_more_descriptors_however_often_it_is_asked(tmp_path):
    """The connections to the old file are kept for good, so none may be opened to the new one."""
    stores = [open_store(f"sqlite:///{tmp_path}/{name}.db") for name in ("old", "new")]
    stores[1].close()
    stores[0].workers.seen(10)
    (tmp_path / "new.db").replace(tmp_path / "old.db")
    counts = []
    for _ in range(20):
        for ask in (stores[0].schema, lambda: stores[0].workers.leave("nobody")):
            with pytest.raises(StoreUnavailable, match="replaced"):
                ask()
        counts.append(len(os.listdir("/proc/self/fd")))  # noqa: PTH208 - numbers

    assert counts[-1] <= counts[0]

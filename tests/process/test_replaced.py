"""A store's file that is replaced under a living worker: it says so, and nobody is made to wait for it."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sqlite3
from pathlib import Path

import pytest
from tests.process.house import House, until

from haulage.core.errors import Refused


def test_a_worker_whose_store_is_replaced_neither_counts_in_the_new_one_nor_touches_it(house, template, tmp_path):
    worker = house.worker()
    assert "ready" == house.wait(house.request("names", rows=1)).state
    house.store.close()
    for beside in ("-wal", "-shm"):
        Path(f"{house.store_path}{beside}").unlink()
    shutil.copy(template / "haulage.db", tmp_path / "restored.db")
    (tmp_path / "restored.db").replace(house.store_path)
    until(lambda: [e for e in worker.events("StoreFailed") if "replaced" in e["problem"]], 10)

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

"""A store that a disk has damaged: nobody dies of it, nothing goes that could not be read, and all goes on after it."""

from __future__ import annotations

import contextlib
import sqlite3

from tests.process.house import until

PAGE = 4096


def checkpointed(house) -> bytes:
    """The whole store as it is in its one file, without a log beside it."""

    def done():
        return 0 == store.execute("pragma wal_checkpoint(truncate)").fetchone()[0]

    with contextlib.closing(sqlite3.connect(house.store_path)) as store:
        until(done)
    return house.store_path.read_bytes()


def test_a_store_whose_pages_are_damaged_ends_no_worker_and_costs_no_file(house):
    worker = house.worker()
    runs = [house.wait(house.request("names", rows=n + 1)) for n in range(3)]
    house.store.close()
    kept = checkpointed(house)
    with house.store_path.open("r+b") as file:
        for page in range(PAGE, len(kept), PAGE):
            file.seek(page)
            file.write(b"\xff" * 300)

    until(lambda: len([e for e in worker.events("StoreFailed") if "malformed" in e["problem"]]) > 5, worker.events)
    alive, left = worker.process.poll(), house.on_disk()
    worker.kill()
    for path in house.folder.glob("haulage.db*"):
        path.unlink()
    house.store_path.write_bytes(kept)
    house.worker()

    assert alive is None
    assert sorted(f"files/{run.artifact_key}" for run in runs) == left
    assert [] == worker.events("BytesRemoved")
    assert "ready" == house.wait(house.request("names", rows=9)).state
    house.assert_whole()

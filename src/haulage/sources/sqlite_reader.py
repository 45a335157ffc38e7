"""The process that reads SQLite beside a build: rows by ADBC into Arrow, and out as lines of CSV.

A process of its own, for two copies of SQLite in one process would take each other's locks from a file. It begins a
read transaction and says so, then is told what to read (``sqlite_beside.py``). It ends when its input does. What it
cannot write exactly ends it too, before its last frame: whoever reads it goes another way.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa
    from adbc_driver_manager import AdbcConnection

BEGUN = b"begun\n"
HEAD_BYTES = 8  # of a frame: how many rows, and bytes, in 4 each; none of both is the end
MEMORY = 256 * 1024 * 1024  # of address space, beyond what is used before the first row


class Order(NamedTuple):
    """What to read; it comes as one line of JSON.

    Args:
        binds: by the name in the SQL, with its colon.
        kinds: what each column holds: integer, real or text. Another one must not be met.
        batch: rows at once.
    """

    sql: str
    binds: dict[str, Any]
    kinds: list[str]
    batch: int
    line_end: str


def main() -> None:
    """Begin, hear what to read, write it to where the first argument says."""
    out = int(sys.argv[1])
    gc.disable()  # what is loaded stays, and of the rest nothing is in a circle
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    from haulage.formats import csv_arrow
    from haulage.formats.arrow import settle_memory

    settle_memory()
    connection = _begun(json.loads(sys.stdin.readline()))
    os.write(sys.stdout.fileno(), BEGUN)
    line = sys.stdin.readline()
    if not line:
        return
    threading.Thread(target=_end_with_input, daemon=True).start()
    _limit_memory()
    order = Order(**json.loads(line))
    for batch in _batches(connection, order):
        text = csv_arrow.lines(batch, order.line_end)
        _write(out, _head(batch.num_rows, len(text)))
        _write(out, text)
        del text
    _write(out, _head(0, 0))


def _end_with_input() -> None:
    os.read(0, 1)
    os._exit(1)


def _limit_memory() -> None:
    """Rows that are larger than they looked end this process, and no other."""
    import resource

    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - pathlib takes 6 ms to load
        used = int(file.read().split()[0]) * resource.getpagesize()
    most, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = used + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), hard))


def _begun(uri: str) -> AdbcConnection:
    """A read transaction that has its snapshot: that of its first read."""
    import adbc_driver_manager
    from adbc_driver_sqlite import _driver_path

    database = adbc_driver_manager.AdbcDatabase(driver=_driver_path(), uri=uri)
    connection = adbc_driver_manager.AdbcConnection(database)
    connection.set_autocommit(False)
    for _ in _read(connection, "select count(*) from sqlite_schema", {}, 1):
        pass
    return connection


def _read(connection: AdbcConnection, sql: str, binds: dict[str, Any], batch: int) -> Iterator[pa.RecordBatch]:
    import adbc_driver_manager
    import pyarrow as pa

    statement = adbc_driver_manager.AdbcStatement(connection)
    statement.set_options(**{"adbc.sqlite.query.batch_rows": str(batch)})
    statement.set_sql_query(sql)
    if binds:
        statement.set_options(**{"adbc.statement.bind_by_name": "true"})
        statement.bind(pa.record_batch({name: pa.array([value]) for name, value in binds.items()}))
    handle, _ = statement.execute_query()
    yield from pa.RecordBatchReader._import_from_c(handle.address)  # noqa: SLF001 - its public name copies
    statement.close()


def _batches(connection: AdbcConnection, order: Order) -> Iterator[pa.RecordBatch]:
    """Its batches, as long as they are what was expected.

    The driver takes the types of its first batch. From then on it refuses all but integers in a column of integers, and
    texts in one of floats; what else it would change, the statement itself makes a text in a column of integers.
    """
    from haulage.formats.format import Unfit

    kinds = {"int64": "integer", "double": "real", "string": "text"}
    for batch in _read(connection, order.sql, order.binds, order.batch):
        if [kinds.get(str(each)) for each in batch.schema.types] != [*order.kinds, "integer"]:
            raise Unfit("a value of another type")
        yield batch.drop_columns([batch.schema.names[-1]])


def _head(rows: int, size: int) -> bytes:
    return rows.to_bytes(4, "big") + size.to_bytes(4, "big")


def _write(out: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(out, left) :]

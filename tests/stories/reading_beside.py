"""Reads what is asked for as a reader of ``sqlite_reader.py`` does, many statements in one process.

Each line of its input is ``[uri, order]``; each of its output the lines of CSV, or null where the reader gives up.
"""

from __future__ import annotations

import functools
import json
import sys

from haulage.formats.csv_arrow import lines
from haulage.sources.sqlite_reader import Order, _batches, _begun

begun = functools.cache(_begun)
for asked in sys.stdin:
    uri, order = json.loads(asked)
    told, connection = Order(**order), begun(uri)
    try:
        said = b"".join(lines(batch, told.line_end) for batch in _batches(connection, told)).decode()
    except Exception:  # noqa: BLE001 - whatever it is, the process of a build ends by it
        said = None
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()

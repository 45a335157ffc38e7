"""The figures of the data plane on one machine: every figure is a whole run through the real child.

    ./dev bench data_plane [--only NAME,NAME] [--rows 3000000] [--times 3] [--dir FOLDER]

A run counts, limits, hashes, verifies and syncs; its peer is the native tool, measured in turns with it. Nothing else
should run beside it.
"""

from __future__ import annotations

import sys

# ruff: noqa: E402 - benchmarks/queue.py has the name of a module that others need, so this folder is looked into last
sys.path[:] = [*sys.path[1:], f"{sys.path[0]}/..", sys.path[0]]

from columnar import columnar_peak_rss_mib, postgresql_ndjson, postgresql_ndjson_plain, postgresql_parquet
from first import main
from from_servers import (
    mariadb_csv,
    mariadb_peak_rss_mib,
    postgresql_csv,
    postgresql_csv_two_connections,
    postgresql_peak_rss_mib,
)
from packed import packed_peak_rss_mib, xlsx

FIGURES = (
    postgresql_csv,
    postgresql_csv_two_connections,
    postgresql_parquet,
    postgresql_ndjson,
    postgresql_ndjson_plain,
    mariadb_csv,
    postgresql_peak_rss_mib,
    mariadb_peak_rss_mib,
    columnar_peak_rss_mib,
    xlsx,
    packed_peak_rss_mib,
)


if __name__ == "__main__":
    main(FIGURES, __doc__)

"""The figures of the data plane on one machine: every figure is a whole run through the real child.

    ./dev bench data_plane [--only NAME,NAME] [--rows 3000000] [--times 3] [--dir FOLDER]

A run counts, limits, hashes, verifies and syncs; its peer is the native tool, measured in turns with it. Nothing else
should run beside it.
"""

from __future__ import annotations

import sys

# ruff: noqa: E402 - benchmarks/queue.py has the name of a module that others need, so this folder is looked into last
sys.path[:] = [*sys.path[1:], f"{sys.path[0]}/..", sys.path[0]]

import argparse
import shutil
import tempfile
from pathlib import Path

from first import Setting
from from_servers import mariadb_csv, postgresql_csv, postgresql_peak_rss_mib
from packed import packed_peak_rss_mib, xlsx

FIGURES = (postgresql_csv, mariadb_csv, postgresql_peak_rss_mib, xlsx, packed_peak_rss_mib)


def main() -> None:
    """Print the figures that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(each.__name__ for each in FIGURES))
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--dir", type=Path)
    chosen = parser.parse_args()
    names = chosen.only.split(",")
    for name in names:
        if name not in {each.__name__ for each in FIGURES}:
            parser.error(f"no figure {name!r}; there are: {', '.join(each.__name__ for each in FIGURES)}")
    folder = chosen.dir or Path(tempfile.mkdtemp(prefix="haulage-bench-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for each in FIGURES:
            if each.__name__ in names:
                each(Setting(folder, chosen.rows, chosen.times))
    finally:
        if chosen.dir is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()

"""The figures of groups on one machine: whole runs through the real child, against the databases' own statements.

    ./dev bench groups [--only NAME,NAME] [--rows 3000000] [--times 3] [--dir FOLDER]

Every file is compared with the answer of its peer before anything is measured. Nothing else should run beside it.
"""

from __future__ import annotations

import sys

# ruff: noqa: E402 - benchmarks/queue.py has the name of a module that others need, so this folder is looked into last
sys.path[:] = [*sys.path[1:], f"{sys.path[0]}/..", sys.path[0]]

import csv
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from pathlib import Path

from first import Setting, build_once, main
from from_servers import mariadb_table, postgresql_table
from lines import against, figure
from tests.servers import mariadb, postgresql

from haulage.core.grouping import Dimension, Grouped, Measure, levels_of

BY = ("l_returnflag", "l_linestatus", "l_shipmode", "l_discount")
QUERY = "select * from lineitem"
MEASURES = (
    Measure("n", "n", "count"),
    Measure("quantity", "quantity", "sum", "l_quantity"),
    Measure("price", "price", "sum", "l_extendedprice"),
    Measure("least", "least", "min", "l_extendedprice"),
    Measure("most", "most", "max", "l_extendedprice"),
)
DISTINCT = (Measure("suppliers", "suppliers", "count_distinct", "l_suppkey"),)
SQL = "count(*), sum(l_quantity), sum(l_extendedprice), min(l_extendedprice), max(l_extendedprice)"
MILLION = ("l_orderkey", "l_linenumber", "l_returnflag", "l_shipmode")  # no two rows have the same four
MIB_OF_A_MILLION = 1_024


def plan(by: Sequence[str], subtotals: str, measures: Sequence[Measure]) -> dict[str, object]:
    """What a child is told of a grouping."""
    dimensions = tuple(Dimension(name, name, name) for name in by)
    return {"grouped": Grouped(dimensions, tuple(measures), levels_of(subtotals, by)).to_plan()}


def cube_postgresql(setting: Setting) -> None:
    """Every level of four dimensions, against CUBE through psql."""
    sql = f"select {', '.join(BY)}, {SQL} from lineitem group by cube ({', '.join(BY)})"
    _against(setting, "cube_postgresql", postgresql_table(setting.rows), plan(BY, "cube", MEASURES), _psql, sql, 4)


def distinct_postgresql(setting: Setting) -> None:
    """Distinct counts of every level of a roll-up, against GROUPING SETS through psql."""
    sets = ", ".join(f"({', '.join(BY[:size])})" for size in range(len(BY), -1, -1))
    sql = f"select {', '.join(BY)}, count(distinct l_suppkey) from lineitem group by grouping sets ({sets})"
    asked = plan(BY, "rollup", DISTINCT)
    _against(setting, "distinct_postgresql", postgresql_table(setting.rows), asked, _psql, sql, 0.9)


def rollup_mariadb(setting: Setting) -> None:
    """A roll-up, against WITH ROLLUP through the server's own client."""
    sql = f"select {', '.join(BY)}, {SQL} from lineitem group by {', '.join(BY)} with rollup"
    _against(setting, "rollup_mariadb", mariadb_table(setting.rows), plan(BY, "rollup", MEASURES), _mariadb, sql, 1.3)


def rollup_sqlite(setting: Setting) -> None:
    """A roll-up, against the UNION ALL of its levels that one writes by hand."""
    levels = []
    for size in range(len(BY), -1, -1):
        shown = [*BY[:size], *["null"] * (len(BY) - size)]
        by = f" group by {', '.join(BY[:size])}" if size else ""
        levels.append(f"select {', '.join(shown)}, {SQL} from lineitem{by}")
    database = setting.table(setting.rows)
    asked = plan(BY, "rollup", MEASURES)
    _against(setting, "rollup_sqlite", database, asked, _sqlite, " union all ".join(levels), 2.5)


def million_groups_rss_mib(setting: Setting) -> None:
    """The child's peak memory with a roll-up of a million finest groups."""
    rows = 1_000_000
    asked = plan(MILLION, "rollup", MEASURES)
    for name, database in (("sqlite", setting.table(rows)), ("postgresql", postgresql_table(rows))):
        seconds, peak, file = build_once(setting, database, QUERY, 2**40, more=asked, memory_mib=2_048)
        shutil.rmtree(file.parent)
        figure(
            f"million_groups_rss_mib_{name}",
            peak,
            "MiB",
            peer=f"limit at {rows:,} groups, {seconds:.1f} s",
            peer_value=MIB_OF_A_MILLION,
            ratio=MIB_OF_A_MILLION / peak,
            target=1,
            runs=[peak],
        )


def _against(
    setting: Setting,
    name: str,
    database: Path | str,
    asked: dict[str, object],
    client: Callable[[Setting, str, Path], None],
    sql: str,
    target: float,
) -> None:
    copied = setting.folder / "peer.csv"

    def ours() -> float:
        seconds, _, file = build_once(setting, database, QUERY, 2**40, more=asked)
        shutil.rmtree(file.parent)
        return seconds

    def peer() -> float:
        began = time.perf_counter()
        client(setting, sql, copied)
        return time.perf_counter() - began

    _, _, file = build_once(setting, database, QUERY, 2**40, more=asked)
    client(setting, sql, copied)
    if _rows(file, 2, 1) != _rows(copied, 0, 0):
        raise SystemExit(f"{name}: the two answers differ")
    shutil.rmtree(file.parent)
    called = f"{client.__name__.strip('_')}, {setting.rows:,} rows"
    against(name, setting.times, ours, peer, called=called, target=target)


def _psql(setting: Setting, sql: str, target: Path) -> None:
    url = postgresql_table(setting.rows).replace("+psycopg", "")
    copy = f"\\copy ({sql}) to '{target}' with (format csv)"
    subprocess.run([postgresql.programs() / "psql", "-q", "-X", url, "-c", copy], check=True)


def _mariadb(setting: Setting, sql: str, target: Path) -> None:
    place = [f"--port={mariadb.server().port}", "--host=127.0.0.1", "--user=root", f"--database=lineitem{setting.rows}"]
    with target.open("wb") as out:
        command = ["mariadb", "--no-defaults", *place, "--batch", "--quick", "--skip-column-names", f"--execute={sql}"]
        subprocess.run(command, stdout=out, check=True)
    target.write_text(target.read_text().replace("\t", ",").replace("NULL", ""))


def _sqlite(setting: Setting, sql: str, target: Path) -> None:
    with target.open("wb") as out:
        subprocess.run(["sqlite3", "-csv", "-readonly", str(setting.table(setting.rows)), sql], stdout=out, check=True)


def _rows(file: Path, skip: int, heads: int) -> list[tuple[object, ...]]:
    """What a file says, whatever the order of its rows and however its numbers are written."""
    with file.open(newline="") as lines:
        return sorted((tuple(map(_value, row[skip:])) for row in list(csv.reader(lines))[heads:]), key=repr)


def _value(text: str) -> object:
    try:
        number = Decimal(text)
    except ArithmeticError:
        return text
    return format(number.quantize(Decimal("0.01")), "f")  # two programs may add up floats in another order


FIGURES: Iterable[Callable[[Setting], None]] = (
    cube_postgresql,
    rollup_mariadb,
    rollup_sqlite,
    distinct_postgresql,
    million_groups_rss_mib,
)


if __name__ == "__main__":
    main(tuple(FIGURES), __doc__ or "")

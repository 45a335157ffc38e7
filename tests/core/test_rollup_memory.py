"""A million groups of four dimensions with their subtotals, in a process of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

MILLION = """
from decimal import Decimal

from haulage.core.grouping import Dimension, Grouped, Measure, levels_of
from haulage.exports.rollup import roll_up

names = ["country", "city", "customer", "status"]
measures = (Measure("orders", "", "count"), Measure("revenue", "", "sum", "x"), Measure("mean", "", "avg", "x"),
            Measure("least", "", "min", "x"))
levels = (*levels_of("rollup", names), (3,))
grouped = Grouped(tuple(Dimension(name, name, name) for name in names), measures, levels)

def finest():
    amounts = [Decimal(str(number / 100)) for number in range(100_000, 110_000)]  # 1000.0, 1000.01: of several scales
    for city in range(2_000):
        yield [(f"country {city // 100}", f"city {city}", f"customer {city * 50 + customer}", f"status {status}",
                3, +amounts[city + customer], amounts[city + 2 * customer], 3, amounts[customer] - status)
               for customer in range(50) for status in range(10)]

rolled = roll_up(grouped, finest(), groups_max=1_000_000)
written = sum(1 for _ in rolled)
# ru_maxrss would be that of the process which started this one, where that was larger.
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(rolled.groups, rolled.records, written, peak)
"""


def test_a_million_groups_with_their_subtotals_fit_into_a_quarter_of_a_gibibyte():
    told = subprocess.run([sys.executable, "-c", MILLION], capture_output=True, text=True, check=True)

    groups, records, written, kibibytes = map(int, told.stdout.split())
    assert (1_000_000, 1_000_000 + 100_000 + 2_000 + 20 + 10 + 1) == (groups, records)
    assert records == written
    assert kibibytes < 256 * 1024

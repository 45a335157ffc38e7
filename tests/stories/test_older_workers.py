"""A worker of the version before on a store whose web is newer: what it cannot do it must not write."""

from __future__ import annotations

import pytest
from tests.stories.building import YARDS, query

from haulage.core.catalogue import Column, Dimension, Measure
from haulage.core.errors import BuildFailed
from haulage.exports.grouping import NOT_GROUPED, Grouping
from haulage.exports.reading import reading_of
from haulage.sources import open_source

SALES = "select 1 as id, 'hush' as customer"
NEW = {
    "blanked": ({"columns": {"customer": Column("customer", "Customer", visible="1 = 0")}}, NOT_GROUPED),
    "grouped": ({"dimensions": (Dimension("id", "id"),), "measures": (Measure("n", "count"),)}, Grouping(["id"])),
}


@pytest.mark.parametrize("yard", [pytest.param("sqlite"), pytest.param("postgresql", marks=pytest.mark.slow)])
@pytest.mark.parametrize("what", NEW)
def test_who_reads_a_plan_as_the_version_before_did_finds_no_columns(what, yard, tmp_path):
    members, grouping = NEW[what]
    made = YARDS[yard](tmp_path)
    try:
        dataset = query(SALES, **members)
        plan = made.order(dataset, grouping=grouping).plan
        before = reading_of(plan)._replace(hidden=tuple(plan["hidden"]), blanked={})
        with open_source(made.url).snapshot() as snapshot, pytest.raises(BuildFailed) as failed:
            snapshot.columns(before)
        _, data = made.build(dataset, grouping=grouping)
    finally:
        made.close()

    assert "a worker that knows groups" in failed.value.cause
    assert b"hush" not in data
    assert not made.order(query(SALES)).plan["hidden"]

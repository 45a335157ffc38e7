"""A limit crossed by one, in a real build: the run fails with its own code, in words, and leaves no byte behind."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.process.house import AMINA, BUILD

from haulage.core.errors import Refused
from haulage.exports.show import show_failure

ROWS = 700


@pytest.mark.parametrize("sourced_house", ["sqlite", "postgresql"], indirect=True)
@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("limit", ["file_bytes", "rows"])
def test_one_over_the_limit_is_a_failure_and_no_file(sourced_house, limit, compression):
    house = sourced_house
    house.worker()

    def built(**limits):
        dataset = house.catalogue.find("names")
        house.catalogue._datasets["names"] = replace(dataset, limits=replace(BUILD, **limits))
        return house.wait(house.request("names", rows=ROWS, compression=compression))

    whole = built()
    most = whole.bytes if limit == "file_bytes" else ROWS
    over, just, below = (built(**{limit: most + more}) for more in (-1, 0, 1))

    said = {
        "file_bytes": ("bytes_exceeded", f"The file would be larger than the {most - 1:,} bytes allowed."),
        "rows": ("rows_exceeded", f"The export has more than the {most - 1:,} rows allowed."),
    }
    assert ["ready", "failed", "ready", "ready"] == [run.state for run in (whole, over, just, below)]
    assert said[limit] == tuple(show_failure(over).values())
    assert (None, None, None) == (over.artifact_key, over.stored_bytes, over.reserved_bytes)
    assert {whole.sha256} == {just.sha256, below.sha256}
    assert 3 * whole.bytes == house.store.exports.storage("north").stored_bytes
    with pytest.raises(Refused) as refused:
        house.exports.open_file(AMINA, over.id)
    assert "failed" == refused.value.code
    house.assert_whole()

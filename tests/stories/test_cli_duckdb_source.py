"""The command line with a source of DuckDB: what check and doctor say, and the whole way to the file."""

from __future__ import annotations

import duckdb
import pytest
from tests.stories.terminal import CONFIGURATION, Terminal

pytestmark = pytest.mark.slow


@pytest.fixture
def terminal(tmp_path):
    """A shop whose orders are in a file of DuckDB beside the configuration."""
    with duckdb.connect(tmp_path / "shop.duckdb") as source:
        source.execute(
            "create table orders (id integer, tenant text, customer text, total decimal(9, 2), placed_at date)"
        )
        source.execute(
            "insert into orders select n, case when n % 3 = 0 then 'other' else 'default' end, 'Customer ' || n,"
            " n * 1.5, date '2026-01-01' + (n % 28)::integer from range(1, 301) as r (n)"
        )
    return Terminal(tmp_path).shop(configuration=CONFIGURATION.replace("sqlite:///shop.db", "duckdb:///shop.duckdb"))


def test_the_whole_way_from_check_to_file(terminal):
    checked = terminal.run("datasets", "check", "orders", "chosen")
    doctor = terminal.run("doctor")
    exported = terminal.run("export", "orders", "-p", "since=2026-01-15", "-o", "orders.csv")
    as_json = terminal.run("export", "orders", "--format", "json", "-o", "orders.json")
    chosen = terminal.run("export", "chosen", "-p", "ids=3", "-p", "ids=1", "-o", "chosen.ndjson")

    assert (0, 0, 0, 0) == (checked.code, exported.code, as_json.code, chosen.code), exported.err + chosen.err
    assert "OK    sources: shop can be read" in doctor.out
    rows = [line.split(",") for line in (terminal.folder / "orders.csv").read_text().splitlines()]
    assert ["id", "customer", "total", "placed_at"] == rows[0]
    assert ["14", "Customer 14", "21.00", "2026-01-15"] == rows[1]
    assert [n for n in range(1, 301) if n % 3 and n % 28 >= 14] == [int(row[0]) for row in rows[1:]]
    assert '{"id":1,"customer":"Customer 1","total":1.50,"placed_at":"2026-01-02"}' in (
        (terminal.folder / "orders.json").read_text()
    )
    assert '{"id":1,"customer":"Customer 1"}\n{"id":3,"customer":"Customer 3"}\n' == (
        (terminal.folder / "chosen.ndjson").read_text()
    )


def test_a_query_that_cannot_work_is_told_to_the_operator_in_the_words_of_the_engine(terminal):
    checked = terminal.run("datasets", "check", "broken")
    failed = terminal.run("export", "broken", "-o", "broken.csv")

    assert (1, 1) == (checked.code, failed.code)
    assert "the query fails: CatalogException: Catalog Error: Table with name nowhere does not exist!" in checked.out
    assert "nowhere" not in failed.out
    assert "The data source refused the query." in failed.out + failed.err


def test_a_file_that_is_not_there_or_not_free_is_told(terminal):
    with duckdb.connect(terminal.folder / "shop.duckdb"):
        locked = terminal.run("datasets", "check", "orders")
    (terminal.folder / "shop.duckdb").unlink()
    doctor = terminal.run("doctor")

    assert (1, 1) == (locked.code, doctor.code)
    assert "shop.duckdb cannot be read: ConnectionException: Connection Error: Can't open a connection" in locked.out
    assert "FAIL  sources: shop: duckdb:///" in doctor.out
    assert "database does not exist; see sources.shop.url" in doctor.out

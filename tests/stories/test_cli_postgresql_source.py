"""The command line with a source of PostgreSQL: what check and doctor say, and the whole way to the file."""

from __future__ import annotations

import itertools

import pytest
from tests.ports import free_port
from tests.servers import postgresql
from tests.stories.terminal import CONFIGURATION, Terminal

pytestmark = pytest.mark.slow
names = itertools.count()


@pytest.fixture
def terminal(tmp_path):
    """A shop whose orders are in a database of PostgreSQL."""
    server, database = postgresql.server(), f"cli_source{next(names)}"
    server.execute("postgres", f"create database {database}")
    columns = "id integer primary key, tenant text, customer text, total numeric, placed_at date"
    server.execute(database, f"create table orders ({columns})")
    values = (
        "case when n % 3 = 0 then 'other' else 'default' end, 'Customer ' || n, n * 1.5, date '2026-01-01' + n % 28"
    )
    server.execute(database, f"insert into orders select n, {values} from generate_series(1, 300) as n")
    url = server.url(database).replace("postgresql+psycopg", "postgresql")
    yield Terminal(tmp_path).shop(configuration=CONFIGURATION.replace("sqlite:///shop.db", url))
    server.execute("postgres", f"drop database {database} with (force)")


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
    assert ["14", "Customer 14", "21.0", "2026-01-15"] == rows[1]
    assert {"2026-01-15"} == {min(row[3] for row in rows[1:])}
    assert [n for n in range(1, 301) if n % 3 and n % 28 >= 14] == [int(row[0]) for row in rows[1:]]
    assert '{"id":1,"customer":"Customer 1","total":1.5,"placed_at":"2026-01-02"}' in (
        (terminal.folder / "orders.json").read_text()
    )
    assert '{"id":1,"customer":"Customer 1"}\n{"id":3,"customer":"Customer 3"}\n' == (
        (terminal.folder / "chosen.ndjson").read_text()
    )


def test_a_query_that_cannot_work_is_told_to_the_operator_in_the_words_of_the_server(terminal):
    checked = terminal.run("datasets", "check", "broken")
    failed = terminal.run("export", "broken", "-o", "broken.csv")

    assert (1, 1) == (checked.code, failed.code)
    assert 'the query fails: 42P01: relation "nowhere" does not exist' in checked.out
    assert "nowhere" not in failed.out
    assert "The data source refused the query." in failed.out + failed.err


def test_a_server_that_is_not_there_is_told_without_the_password(terminal):
    text = terminal.config.read_text()
    before = text.partition('url = "')[2].partition('"')[0]
    terminal.config.write_text(text.replace(before, f"postgresql://amina:hush-4711@127.0.0.1:{free_port()}/shop"))
    answers = [terminal.run(*words) for words in (["datasets", "check", "orders"], ["doctor"],
                                                  ["export", "orders", "-o", "orders.csv"])]  # fmt: skip

    assert [1, 1, 1] == [answer.code for answer in answers]
    assert "Connection refused" in answers[0].out
    assert "FAIL  sources: shop: postgresql://***@127.0.0.1:" in answers[1].out
    assert [] == [answer for answer in answers if "4711" in answer.out + answer.err]

"""``haulage datasets check --advise``: what an operator reads, what a program reads, and what is passed over."""

from __future__ import annotations

import contextlib
import sqlite3
import sys

import duckdb
import pytest
from tests.ports import free_port
from tests.stories.terminal import CONFIGURATION, Terminal

from haulage.cli import datasets as command

PARENTS = '''
[parents.book]
type = "integer"
source = "shop"
owners = "select account from owners where book = :parent and tenant = :requester_tenant"

[datasets.chapters]
source = "shop"
parent = "book"
sql = """
select id, customer from orders
where id > :parent and customer = :wanted and (:until is null or placed_at < :until)"""
key = ["id"]
[datasets.chapters.parameters]
wanted = {type = "text"}
until = {type = "date", optional = true}

[datasets.ledger]
source = "shop"
sql = "select id from orders"
key = ["id"]
policy_revision = "select max(book) from owners where account = :requester_account"

[datasets.report]
command = ["/bin/cp", "/dev/null", "{file}"]
formats = {txt = {suffix = ".txt", media_type = "text/plain"}}
'''


@pytest.fixture
def terminal(tmp_path):
    """A shop with twenty thousand orders, and as many owners of books."""
    made = Terminal(tmp_path).shop(configuration=CONFIGURATION + PARENTS)
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as source:
        numbers = "with recursive s(n) as (select 301 union all select n + 1 from s where n < 20000)"
        source.execute(f"{numbers} insert into orders select n, 'default', 'c' || n, n, '2026-01-02' from s")
        source.execute("create table owners (book integer, tenant text, account text)")
        source.execute("insert into owners select id, tenant, customer from orders")
    return made


def run_sql(terminal, *statements):
    with contextlib.closing(sqlite3.connect(terminal.folder / "shop.db", isolation_level=None)) as source:
        return [source.execute(each).fetchall() for each in statements]


REVIEW = 'CREATE INDEX "orders_tenant_placed_at" ON "orders" ("tenant", "placed_at")'


def test_the_operator_reads_a_sentence_and_a_statement_to_review(terminal):
    before = run_sql(terminal, "select sql from sqlite_schema")
    answer = terminal.run("datasets", "check", "orders", "--advise")

    assert (0, "") == (answer.code, answer.err)
    sentence = "reads about 20,000 rows to find those of tenant = :requester_tenant (visible) and placed_at >= :since"
    assert ["OK    orders", f"      orders: {sentence}", f"        review: {REVIEW};"] == answer.out.splitlines()
    assert before == run_sql(terminal, "select sql from sqlite_schema")


def test_a_statement_that_two_datasets_need_is_told_once(terminal):
    """PostgreSQL would make as many indexes as there are statements."""
    again = CONFIGURATION.partition("[datasets.orders]")[2].partition("[datasets.chosen]")[0]
    terminal.config.write_text(
        CONFIGURATION + "\n[datasets.again]" + again.replace("[datasets.orders", "[datasets.again")
    )
    answer = terminal.run("datasets", "check", "orders", "again", "--advise")

    assert 1 == answer.out.count("CREATE INDEX")
    assert answer.out.endswith("        review: the statement of orders above\n")


def test_what_was_advised_is_applied_by_the_operator_and_advised_no_more(terminal):
    (dataset,) = terminal.run("datasets", "check", "orders", "--advise", "--json").document["items"]
    (advice,) = dataset["advice"]
    run_sql(terminal, advice["statement"])
    after = terminal.run("datasets", "check", "orders", "--advise", "--json").document

    assert {"about": "query", "table": "orders", "rows": 20_000, "statement": REVIEW} == {
        key: value for key, value in advice.items() if key != "reason"
    }
    assert {"name": "orders", "problems": [], "warnings": [], "explained_with": {}, "advice": []} == after["items"][0]
    assert after["ok"]


def test_the_query_of_a_policy_revision_has_advice_too(terminal):
    (dataset,) = terminal.run("datasets", "check", "ledger", "--advise", "--json").document["items"]

    assert [("policy_revision", 'CREATE INDEX "owners_account" ON "owners" ("account")')] == [
        (each["about"], each["statement"]) for each in dataset["advice"]
    ]


def test_a_value_without_a_default_is_an_example_and_said_so(terminal):
    """One that may be left out is left out. A parent's id is one too; the query of its owners has advice as well."""
    text = terminal.run("datasets", "check", "chapters", "--advise").out
    (dataset,) = terminal.run("datasets", "check", "chapters", "--advise", "--json").document["items"]

    assert "explained with wanted = , parent = 0: an example where there is no default" in text
    assert (
        "      parents.book: owners: reads about 20,000 rows to find those of book = :parent and tenant = :req" in text
    )
    assert {"wanted": "", "parent": 0} == dataset["explained_with"]
    assert [
        ("parents.book", 'CREATE INDEX "owners_book_tenant" ON "owners" ("book", "tenant")'),
    ] == [(each["about"], each["statement"]) for each in dataset["advice"]]


def test_without_the_option_nothing_is_advised(terminal):
    answer = terminal.run("datasets", "check", "orders")
    (dataset,) = terminal.run("datasets", "check", "orders", "--json").document["items"]

    assert "OK    orders\n" == answer.out
    assert {"name", "problems", "warnings"} == set(dataset)


def test_a_query_that_fails_has_its_problem_and_no_advice(terminal):
    answer = terminal.run("datasets", "check", "broken", "--advise")

    assert 1 == answer.code
    assert "no such table: nowhere" in answer.out
    assert "index" not in answer.out


def test_code_of_the_host_has_no_query(terminal):
    answer = terminal.run("datasets", "check", "report", "--advise")

    assert (0, True) == (answer.code, "code of your own, not from a query: no index is advised" in answer.out)


def test_a_python_dataset_is_asked_for_the_query_of_its_defaults(terminal):
    (terminal.folder / "shop_app.py").write_text(
        "from haulage import Haulage\n"
        "haul = Haulage.from_toml('haulage.toml')\n"
        "@haul.dataset('late', source='shop', key=['id'])\n"
        "def late(customer: str | None = None) -> str:\n"
        "    return 'select * from orders' + (' where customer = :customer' if customer else ' where total = :as_of')\n"
    )
    terminal.config.write_text('app = "shop_app:haul"\n' + terminal.config.read_text())
    sys.modules.pop("shop_app", None)
    with contextlib.chdir(terminal.folder):
        answer = terminal.run("datasets", "check", "late", "--advise")

    assert 0 == answer.code, answer.err
    assert 'CREATE INDEX "orders_total" ON "orders" ("total")' in answer.out


def test_duckdb_says_why_none_is_advised(terminal):
    with duckdb.connect(terminal.folder / "shop.duckdb") as source:
        source.execute("create table orders (id integer, tenant text, customer text, total integer, placed_at date)")
    terminal.config.write_text(CONFIGURATION.replace("sqlite:///shop.db", "duckdb:///shop.duckdb"))
    answer = terminal.run("datasets", "check", "orders", "--advise")

    assert 0 == answer.code
    assert "no index is advised: DuckDB keeps the least and the greatest value of each part" in answer.out


def test_a_source_that_cannot_be_read_is_told_as_ever(terminal):
    terminal.config.write_text(
        CONFIGURATION.replace("sqlite:///shop.db", f"postgresql://amina:hush-4711@127.0.0.1:{free_port()}/shop")
    )
    plain = terminal.run("datasets", "check", "orders")
    advised = terminal.run("datasets", "check", "orders", "--advise")

    assert (1, plain) == (advised.code, advised)
    assert "hush-4711" not in advised.out


def test_a_missing_parser_is_named_with_what_installs_it(terminal, monkeypatch):
    monkeypatch.setattr(command, "find_spec", lambda _: None)
    answer = terminal.run("datasets", "check", "--advise")

    assert 2 == answer.code
    assert "sqlglot not found; install the advise extra: pip install 'haulage[advise]'" in answer.err
    assert 0 == terminal.run("datasets", "check", "orders").code


def test_the_option_goes_with_check(terminal):
    answer = terminal.run("datasets", "list", "--advise")

    assert (2, True) == (answer.code, "--advise goes with check" in answer.err)

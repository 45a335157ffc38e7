"""The example of docs/visibility.md can be declared, and does what the page says."""

from __future__ import annotations

import contextlib
import sqlite3

from tests.docs.test_examples import blocks
from tests.docs.written import DOCS
from tests.stories.terminal import SECRET

from haulage.config import load
from haulage.core.requester import Requester
from haulage.exports.parameters import resolve_parameters
from haulage.exports.plan import freeze
from haulage.exports.reading import reading_of
from haulage.formats import FORMATS
from haulage.sources import SOURCES, open_source

SCRIPT = """
    create table orders (id integer primary key, region text, customer text, customer_tenant text, total numeric);
    insert into orders values (1, 'east', 'acme', 'north', 1), (2, 'west', 'bolt', 'north', 2),
        (3, 'east', 'core', 'south', 3);
"""


def test_the_example_shows_a_requester_the_rows_of_their_grants_and_the_customers_of_their_tenant(tmp_path):
    declared = "\n".join(blocks(DOCS / "visibility.md", "toml"))
    config, shop = tmp_path / "haulage.toml", f"sqlite:///{tmp_path}/shop.db"
    config.write_text(f'secret_keys = ["{SECRET}"]\n[sources.shop]\nurl = "{shop}"\n{declared}')
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as source:
        source.executescript(SCRIPT)
    (dataset,) = load(config, {}, formats=FORMATS, schemes=SOURCES).datasets

    def seen(*grants):
        who = Requester("north", "amina", frozenset(grants))
        plan = freeze(dataset, dataset.sql, resolve_parameters(dataset, {}), who, 0, ["id", "customer"])
        with open_source(shop).snapshot() as snapshot, contextlib.closing(snapshot.batches(reading_of(plan))) as rows:
            return [row for batch in rows for row in batch]

    assert [(1, "acme"), (3, None)] == seen("east")
    assert [(1, "acme"), (2, "bolt"), (3, None)] == seen("orders.all")
    assert [] == seen()

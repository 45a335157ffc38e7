"""A made-up shop, for a demo without the public data: the same every time, and labelled as generated."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from datetime import date, timedelta

SOURCE = "shop.db"
CUSTOMERS = 5_000
PRODUCTS = 400
ORDERS = 120_000
BATCH_ORDERS = 10_000
FIRST_DAY = date(2025, 1, 1)
DAYS = 365
REGIONS = ("north", "south", "east", "west")
THINGS = ("Lamp", "Chair", "Table", "Shelf", "Cup", "Bowl", "Blanket", "Mirror", "Clock", "Basket")
LOOKS = ("oak", "ash", "white", "black", "blue", "green", "plain", "small", "large", "folding")
NAMES = ("Aiko", "Björn", "Chloé", "Dmitri", "Esra", "Fátima", "Grace", "Hana", "Ivo", "Jürgen", "Kofi", "Łucja")

SCHEMA = """
create table customers (id integer primary key, name text, region text, joined text, note text);
create table products (id integer primary key, name text, price numeric, weight_grams integer);
create table orders (id integer primary key, customer_id integer, placed_at text, state text, shipped_on text);
create table lines (id integer primary key, order_id integer, product_id integer, quantity integer, price numeric);
"""
INDEXES = (
    "create index orders_by_day on orders (placed_at, id)",
    "create index lines_by_order on lines (order_id, id)",
)


def build(target: sqlite3.Connection, told: Callable[[str], None]) -> None:
    """Make everything up, from one seed."""
    chance = random.Random(7)  # noqa: S311 - made-up data must be the same every time
    for statement in SCHEMA.split(";"):
        target.execute(statement)
    target.executemany("insert into customers values (?, ?, ?, ?, ?)", _customers(chance))
    prices = [round(chance.uniform(2, 400), 2) for _ in range(PRODUCTS)]
    products = [
        (number + 1, f"{chance.choice(THINGS)}, {chance.choice(LOOKS)}", price, chance.randrange(50, 20_000))
        for number, price in enumerate(prices)
    ]
    target.executemany("insert into products values (?, ?, ?, ?)", products)
    for first in range(1, ORDERS + 1, BATCH_ORDERS):
        _orders(target, chance, range(first, first + BATCH_ORDERS), prices)
        told(f"generated data: {first + BATCH_ORDERS - 1:,} orders")
    for statement in INDEXES:
        target.execute(statement)


def _customers(chance: random.Random) -> list[tuple[object, ...]]:
    made: list[tuple[object, ...]] = []
    for number in range(1, CUSTOMERS + 1):
        joined = FIRST_DAY - timedelta(days=chance.randrange(2_000))
        note = chance.choice((None, None, None, "", 'says "hello"', "one, two\nthree", "=1+1"))
        made.append((number, f"{chance.choice(NAMES)} {number}", chance.choice(REGIONS), str(joined), note))
    return made


def _orders(target: sqlite3.Connection, chance: random.Random, ids: range, prices: list[float]) -> None:
    orders, lines = [], []
    for number in ids:
        day = FIRST_DAY + timedelta(days=(number - 1) * DAYS // ORDERS)
        state = chance.choice(("paid", "shipped", "shipped", "shipped", "returned"))
        shipped = None if state == "paid" else str(day + timedelta(days=chance.randrange(1, 9)))
        at = f"{day}T{chance.randrange(24):02d}:{chance.randrange(60):02d}:00Z"
        orders.append((number, chance.randrange(1, CUSTOMERS + 1), at, state, shipped))
        for _ in range(chance.randrange(1, 6)):
            product = chance.randrange(PRODUCTS)
            lines.append((number, product + 1, chance.randrange(1, 5), prices[product]))
    target.executemany("insert into orders values (?, ?, ?, ?, ?)", orders)
    target.executemany("insert into lines values (null, ?, ?, ?, ?)", lines)

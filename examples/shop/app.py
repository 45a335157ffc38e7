"""A small shop with an Export button: Haulage mounted into a Starlette application with its own sign-in.

    cd examples/shop
    ../../dev run python app.py                                     # makes shop.db and a secret, serves on port 8000
    ../../dev run haulage worker                                    # in a second terminal
    ../../dev run haulage export orders -p status=open -o open.csv  # in a third one

Open http://127.0.0.1:8000/ and choose who you are. The host's cookie decides who asks; Haulage sets none.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Literal

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from haulage import Haulage, Requester

HERE = Path(__file__).parent
SHOP, SECRET = HERE / "shop.db", HERE / "secret"
USERS = {"ayla": ("north", {"orders.read"}), "ben": ("south", {"orders.read"}), "chen": ("south", set())}

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Shop</title>
<h1>Orders of {tenant}</h1><p>You are {name}. <a href="/as/ayla">ayla</a> <a href="/as/ben">ben</a>
<a href="/as/chen">chen</a></p>
<script type="module" src="/haulage/page/haulage.js"></script>
<haulage-export dataset="orders"></haulage-export>
<p><a href="/haulage/">All my exports</a></p></html>"""


def make_shop() -> None:
    """Ten thousand orders of two tenants, under another name until they are whole."""
    if SHOP.exists():
        return
    part = SHOP.with_suffix(".db.part")
    part.unlink(missing_ok=True)
    with closing(sqlite3.connect(part)) as connection, connection:
        connection.execute("pragma journal_mode=wal")
        connection.execute("create table orders(id integer primary key, tenant, customer, total, status, placed_at)")
        connection.execute(
            "insert into orders with recursive n(i) as (select 1 union all select i + 1 from n where i < 10000) "
            "select i, iif(i % 3, 'north', 'south'), 'Customer ' || (i % 97), (i * 37 % 9000) / 100.0, "
            "iif(i % 4, 'paid', 'open'), date('2026-01-01', '+' || (i % 300) || ' days') from n"
        )
    part.rename(SHOP)


def make_secret() -> None:
    """What tokens are signed with; a real shop keeps it where it keeps its other secrets."""
    if not SECRET.exists():
        with os.fdopen(os.open(SECRET, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(32))


make_shop()
make_secret()
haul = Haulage.from_toml(HERE / "haulage.toml")


@haul.dataset(
    "orders",
    source="shop",
    label="Orders",
    permission="orders.read",
    key=["id"],
    hidden=["tenant"],
    visible="tenant = :requester_tenant",
    formats=["csv", "xlsx", "json", "ndjson"],
)
def orders(since: date = date(2026, 1, 1), status: Literal["any", "open", "paid"] = "any") -> str:
    """Every order of your shop."""
    query = "select id, tenant, customer, total, status, placed_at from orders where placed_at >= :since"
    return query if status == "any" else query + " and status = :status"


def requester_named(name: str | None) -> Requester | None:
    """Who a user of the shop is to Haulage."""
    if name not in USERS:
        return None
    tenant, grants = USERS[name]
    return Requester(tenant, name, frozenset(grants), session=f"shop {name}")


@haul.standing
def as_of_now(asked: Requester) -> Requester:
    """The worker asks how an account stands before it runs anything."""
    return requester_named(asked.account) or Requester(asked.tenant, asked.account, banned=True)


async def home(request: Request) -> Response:
    """The shop's own page, with the button in it."""
    name = request.cookies.get("shop", "")
    name = name if name in USERS else "ayla"  # and nobody's own HTML
    answer = HTMLResponse(PAGE.format(name=name, tenant=USERS[name][0]))
    answer.set_cookie("shop", name, httponly=True, samesite="lax")
    return answer


async def become(request: Request) -> Response:
    """Sign in as one of the three; a real shop asks for a password."""
    answer = RedirectResponse("/")
    if request.path_params["name"] in USERS:
        answer.set_cookie("shop", request.path_params["name"], httponly=True, samesite="lax")
    return answer


app = Starlette(
    routes=[
        Route("/", home),
        Route("/as/{name}", become),
        Mount("/haulage", app=haul.asgi(authenticate=lambda request: requester_named(request.cookies.get("shop")))),
    ]
)

if __name__ == "__main__":
    import uvicorn

    uvicorn.run(app, host="127.0.0.1", port=8000)

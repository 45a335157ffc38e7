"""A table of lineitem shape (16 columns, about 128 bytes a row as CSV), made by the database itself."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psycopg

COLUMNS = [
    "l_orderkey",
    "l_partkey",
    "l_suppkey",
    "l_linenumber",
    "l_quantity",
    "l_extendedprice",
    "l_discount",
    "l_tax",
    "l_returnflag",
    "l_linestatus",
    "l_shipdate",
    "l_commitdate",
    "l_receiptdate",
    "l_shipinstruct",
    "l_shipmode",
    "l_comment",
]

MAKE = """
create table lineitem(
  l_orderkey integer, l_partkey integer, l_suppkey integer, l_linenumber integer, l_quantity integer,
  l_extendedprice real, l_discount real, l_tax real, l_returnflag text, l_linestatus text, l_shipdate text,
  l_commitdate text, l_receiptdate text, l_shipinstruct text, l_shipmode text, l_comment text);
insert into lineitem
with recursive n(i) as (select 1 union all select i + 1 from n where i < :rows)
select i / 4 + 1, i * 7919 % 200000 + 1, i * 104729 % 10000 + 1, i % 4 + 1, i % 50 + 1,
  (i * 31337 % 10000000) / 100.0, (i % 11) / 100.0, (i % 9) / 100.0,
  substr('ANR', i % 3 + 1, 1), substr('OF', i % 2 + 1, 1),
  date('1992-01-02', '+' || (i % 2526) || ' days'), date('1992-01-31', '+' || (i % 2466) || ' days'),
  date('1992-01-03', '+' || (i % 2554) || ' days'),
  case i % 4 when 0 then 'DELIVER IN PERSON' when 1 then 'COLLECT COD' when 2 then 'NONE' else 'TAKE BACK RETURN' end,
  case i % 7 when 0 then 'AIR' when 1 then 'FOB' when 2 then 'MAIL' when 3 then 'RAIL' when 4 then 'REG AIR'
    when 5 then 'SHIP' else 'TRUCK' end,
  substr('carefully final deposits, above the furious requests sleep blithely', i % 40 + 1, 10 + i % 34)
from n;
"""


def make(path: Path, rows: int) -> None:
    """Make the table, unless the file has it already."""
    if path.exists():
        return
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    connection = sqlite3.connect(part)
    connection.execute("pragma journal_mode=off")
    create, insert = MAKE.split(";", maxsplit=1)[0], MAKE.split(";")[1]
    connection.execute(create)
    connection.execute(insert, {"rows": rows})
    connection.commit()
    connection.execute("pragma journal_mode=wal")
    connection.close()
    part.rename(path)


POSTGRESQL = """
create table lineitem(
  l_orderkey bigint, l_partkey integer, l_suppkey integer, l_linenumber integer, l_quantity numeric(15, 2),
  l_extendedprice numeric(15, 2), l_discount numeric(15, 2), l_tax numeric(15, 2), l_returnflag char(1),
  l_linestatus char(1), l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct varchar(25),
  l_shipmode varchar(10), l_comment varchar(44));
insert into lineitem
select i / 4 + 1, i * 7919 % 200000 + 1, i * 104729 % 10000 + 1, i % 4 + 1, i % 50 + 1,
  (i * 31337 % 10000000) / 100.0, (i % 11) / 100.0, (i % 9) / 100.0,
  substr('ANR', (i % 3 + 1)::int, 1), substr('OF', (i % 2 + 1)::int, 1),
  date '1992-01-02' + (i % 2526)::int, date '1992-01-31' + (i % 2466)::int, date '1992-01-03' + (i % 2554)::int,
  (array['DELIVER IN PERSON', 'COLLECT COD', 'NONE', 'TAKE BACK RETURN'])[i % 4 + 1],
  (array['AIR', 'FOB', 'MAIL', 'RAIL', 'REG AIR', 'SHIP', 'TRUCK'])[i % 7 + 1],
  substr('carefully final deposits, above the furious requests sleep blithely', (i % 40 + 1)::int, (10 + i % 34)::int)
from generate_series(1::bigint, {rows}) as i;
vacuum (freeze, analyze) lineitem;
"""


def make_postgresql(connection: psycopg.Connection, rows: int) -> None:
    """The same table with the types that TPC-H has for it; every page is written, so that no reader writes one."""
    for statement in POSTGRESQL.format(rows=rows).split(";")[:-1]:
        connection.execute(statement)


MARIADB = (
    """create table lineitem(
  l_orderkey bigint, l_partkey integer, l_suppkey integer, l_linenumber integer, l_quantity decimal(15, 2),
  l_extendedprice decimal(15, 2), l_discount decimal(15, 2), l_tax decimal(15, 2), l_returnflag char(1),
  l_linestatus char(1), l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct varchar(25),
  l_shipmode varchar(10), l_comment varchar(44))""",
    """insert into lineitem
select seq div 4 + 1, seq * 7919 % 200000 + 1, seq * 104729 % 10000 + 1, seq % 4 + 1, seq % 50 + 1,
  (seq * 31337 % 10000000) / 100.0, (seq % 11) / 100.0, (seq % 9) / 100.0,
  substr('ANR', seq % 3 + 1, 1), substr('OF', seq % 2 + 1, 1),
  date '1992-01-02' + interval seq % 2526 day, date '1992-01-31' + interval seq % 2466 day,
  date '1992-01-03' + interval seq % 2554 day,
  elt(seq % 4 + 1, 'DELIVER IN PERSON', 'COLLECT COD', 'NONE', 'TAKE BACK RETURN'),
  elt(seq % 7 + 1, 'AIR', 'FOB', 'MAIL', 'RAIL', 'REG AIR', 'SHIP', 'TRUCK'),
  substr('carefully final deposits, above the furious requests sleep blithely', seq % 40 + 1, 10 + seq % 34)
from seq_1_to_{rows}""",
)

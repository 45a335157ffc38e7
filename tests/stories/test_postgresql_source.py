"""A database of PostgreSQL that is exported from: its values, its own row security, its errors, its sessions."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import json
import sys

import pytest
from tests.ports import free_port
from tests.servers import pgbouncer, postgresql
from tests.stories.building import PostgresqlYard, query
from tests.stories.terminal import SECRET

from haulage import Haulage
from haulage.core.catalogue import Column
from haulage.core.errors import BuildFailed
from haulage.core.reading import Reading
from haulage.core.requester import Requester
from haulage.exports.parameters import resolve_parameters
from haulage.exports.plan import freeze
from haulage.exports.reading import reading_of
from haulage.sources import end_session, open_source
from haulage.sources.postgresql import PostgresqlSnapshot
from haulage.sources.postgresql_session import _parts

pytestmark = pytest.mark.slow
# Column, its type, and literals of what a driver, a format or a spreadsheet may damage.
NASTY = {
    "small": ("smallint", "-32768", "0"),
    "whole": ("integer", "-2147483648", "7"),
    "large": ("bigint", "9223372036854775807", "-9007199254740993"),
    "exact": ("numeric", "0.0000001", "1e3", "'NaN'", "'Infinity'", "'-Infinity'", "1.10", "1e-30",
              "123456789012345678901234567890.123456789"),
    "money_like": ("numeric(12, 2)", "0", "-42", "12345.6"),
    "single": ("real", "0.1", "1e30", "'NaN'", "'-Infinity'", "16777217"),
    "double": ("double precision", "0.1", "1e300", "1e-7", "1e15", "1000", "'NaN'", "'Infinity'", "-0.0",
               "0.1::float8 + 0.2::float8"),
    "truth": ("boolean", "true", "false"),
    "words": ("text", "''", "' '", "'NULL'", r"'\\N'", r"'\\.'", "'a,b'", "'say \"hi\"'", r"E'a\\nb\\r\\nc\\rd\\te'",
              "'=1+1'", "'é🚀\u2028'", r"'back\\slash\\t'", "repeat('x', 300000)", "'-5'", "E'\\\\x01\\\\x7f'"),
    "padded": ("char(5)", "'ab'", "''"),
    "short": ("varchar(9)", "'ab  '"),
    "day": ("date", "'2024-03-07'", "'infinity'", "'0044-03-15 BC'", "'12345-01-01'", "'1900-02-28'"),
    "moment": ("timestamp", "'2024-03-07 21:00:00'", "'2024-03-07 21:00:00.000001'", "'-infinity'"),
    "instant": ("timestamptz", "'2020-01-31T23:30:00+01:00'", "'infinity'", "'1850-01-01 00:00:00 Europe/Paris'"),
    "clock": ("time", "'24:00:00'", "'12:30:00.5'"),
    "zoned_clock": ("timetz", "'12:30:00+02'"),
    "span": ("interval", "'1 year 2 mons 3 days 04:05:06.789'", "'-1 day'", "'0'"),
    "id": ("uuid", "'00112233-4455-6677-8899-aabbccddeeff'"),
    "document": ("json", "'{\"b\": 1, \"a\":  1e2, \"a\": [null]}'", "'null'", "'\"x\"'"),
    "binary_document": ("jsonb", "'{\"n\": 9007199254740993.10, \"t\": \"=1\"}'", "'[]'"),
    "numbers": ("integer[]", "'{1,NULL,3}'", "'{}'", "'{{1,2},{3,4}}'", "'[0:1]={5,6}'"),
    "texts": ("text[]", "'{\"a,b\",\"NULL\",NULL,\"\"}'"),
    "doubles": ("double precision[]", "'{NaN,Infinity,0.1}'"),
    "row": ("pair", "row(1, 'a,b')", "row(null, '')"),
    "mood": ("mood", "'so, so'", "'ok'"),
    "address": ("inet", "'10.0.0.1'", "'10.0.0.0/8'", "'::1'"),
    "range": ("int4range", "'[1,5)'", "'empty'"),
    "several": ("nummultirange", "'{[1.5,2.5],(3,4)}'"),
    "whose": ("positive", "5"),
    "bits": ("varbit", "B'0101'"),
    "spot": ("point", "'(1.5,-2)'"),
    "cash": ("money", "'1234.5'"),
    "oid": ("oid", "4294967295"),
    "search": ("tsvector", "'a:1 b'"),
}  # fmt: skip
DOCUMENTS = ("numbers", "texts", "doubles", "row")  # written as JSON, unlike COPY
ROWS = max(map(len, NASTY.values()))  # the last of them is all NULL
NAMES = ", ".join(f'"{name}"' for name in NASTY)
ALL = query(f"select at, {NAMES} from nasty", key=("at",), hidden=("at",))
csv.field_size_limit(10_000_000)  # of the reader that judges


@pytest.fixture
def yard(tmp_path):
    made = PostgresqlYard(tmp_path)
    yield made
    made.close()


@pytest.fixture
def nasty(yard):
    """A table in which every value of each type stands once, beside NULLs."""
    columns = ", ".join(f'"{name}" {kind}' for name, (kind, *_) in NASTY.items())
    with yard.writer() as source:
        source.execute("create type pair as (a integer, b text)")
        source.execute("create type mood as enum ('ok', 'so, so')")
        source.execute("create domain positive as integer check (value > 0)")
        source.execute(f"create table nasty (at integer primary key, {columns})")
        for at in range(ROWS):
            values = [literals[at] if at < len(literals) else "null" for _, *literals in NASTY.values()]
            source.execute(f"insert into nasty values ({at}, {', '.join(values)})")
    return yard


def server_says(yard, sql):
    with yard.writer() as source:
        return source.execute(sql).fetchall()


def by_our_encoder(monkeypatch):
    """As where the server cannot make the file."""
    monkeypatch.setattr(PostgresqlSnapshot, "stream", lambda *_: None)


# -- values --------------------------------------------------------------------------------------------


def test_every_value_is_in_the_file_as_the_server_itself_writes_it(nasty):
    """The other way to its text: concat calls the same output function, in a query of rows."""
    texts = ", ".join(f'case when "{name}" is not null then concat("{name}") end' for name in NASTY)
    expected = server_says(nasty, f"select {texts} from nasty order by at")
    _, content = nasty.build(ALL)
    rows = list(csv.reader(io.StringIO(content.decode(), newline="")))

    assert list(NASTY) == rows[0]
    assert ROWS + 1 == len(rows)
    for name, *found in zip(NASTY, *rows[1:], strict=True):
        theirs = [row[list(NASTY).index(name)] for row in expected]
        if name == "truth":
            theirs = [{"t": "true", "f": "false"}.get(cell, cell) for cell in theirs]
        if name not in DOCUMENTS:
            assert ["" if cell is None else cell for cell in theirs] == found, name


@pytest.mark.parametrize("name", DOCUMENTS)
def test_arrays_and_rows_are_json(nasty, name):
    expected = [row[0] for row in server_says(nasty, f'select to_jsonb("{name}")::text from nasty order by at')]
    _, as_csv = nasty.build(ALL, columns=[name])
    _, as_json = nasty.build(ALL, columns=[name], format="json")

    cells = [row[0] if row else "" for row in csv.reader(io.StringIO(as_csv.decode(), newline=""))][1:]
    theirs = [None if text is None else json.loads(text) for text in expected]
    assert theirs == [json.loads(cell) if cell else None for cell in cells]
    assert theirs == [row[name] for row in json.loads(as_json)]


def test_the_server_and_our_encoder_write_the_same_bytes(nasty, monkeypatch):
    for compression in (None, "gzip"):
        made, content = nasty.build(ALL, compression=compression)
        with monkeypatch.context() as patched:
            by_our_encoder(patched)
            ours, same = nasty.build(ALL, compression=compression)
        assert content == same
        assert made._replace(snapshot_at=None) == ours._replace(snapshot_at=None)
    assert ROWS == made.rows == made.total


@pytest.mark.parametrize("name", NASTY)
def test_a_file_of_one_column_is_the_same_too(nasty, monkeypatch, name):
    _, content = nasty.build(ALL, columns=[name])
    by_our_encoder(monkeypatch)
    assert content == nasty.build(ALL, columns=[name])[1]


def test_the_bytes_of_the_server_are_those_of_its_own_copy(nasty):
    plain = [name for name in NASTY if name not in (*DOCUMENTS, "truth")]
    quoted = ", ".join(f'"{name}"' for name in plain)
    with nasty.writer() as source:
        source.execute("set timezone = 'UTC'")
        with source.cursor().copy(
            f"copy (select {quoted} from nasty order by at) to stdout (format csv, header)"
        ) as copy:
            expected = b"".join(copy)

    assert expected == nasty.build(ALL, columns=plain)[1]


def test_rows_are_counted_by_the_server_and_not_by_their_lines(yard):
    sql = "select i, E'a\\nb\\n' as text from generate_series(1, 40000) as i"
    built, content = yard.build(query(sql, key=("i",)))

    assert 40_000 == built.rows == built.total
    assert 3 * built.rows + 1 == content.count(b"\n")
    processed = [seen.processed for seen in yard.progress if seen.processed]
    assert sorted(processed) == processed
    assert processed[0] < 40_000 == processed[-1]


def test_json_has_numbers_as_numbers_and_everything_else_as_text(nasty):
    _, content = nasty.build(ALL, format="ndjson")
    rows = [json.loads(line, parse_float=str, parse_int=str) for line in content.splitlines()]
    texts = ", ".join(f'case when "{name}" is not null then concat("{name}") end' for name in NASTY)
    expected = [
        dict(zip(NASTY, row, strict=True)) for row in server_says(nasty, f"select {texts} from nasty order by at")
    ]

    numbers = ("small", "whole", "large", "exact", "money_like", "whose", "oid")
    for name in (*numbers, "words", "padded", "day", "moment", "instant", "span", "id", "mood", "address", "range"):
        assert [row[name] for row in expected] == [row[name] for row in rows], name
    for name in ("single", "double"):  # shortest digits on both sides, spelt otherwise
        theirs = [None if row[name] is None else repr(float(row[name])) for row in expected]
        said = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}
        assert theirs == [said.get(row[name], row[name]) for row in rows], name
    assert [True, False, None] == [row["truth"] for row in rows][:3]
    assert [{"b": "1", "a": [None]}, None, "x"] == [row["document"] for row in rows][:3]
    assert '"document":{"b": 1, "a":  1e2, "a": [null]}' in content.decode()


def test_bytes_are_base64_in_every_format_and_counted(yard):
    sql = "select 1 as i, '\\x00ff'::bytea as b union all select 2, null union all select 3, ''"
    built, content = yard.build(query(sql, key=("i",)))
    assert b'i,b\n1,AP8=\n2,\n3,""\n' == content
    assert ({"code": "bytes_as_base64", "count": 2},) == built.notices
    assert '{"i":1,"b":"AP8="}' == yard.build(query(sql, key=("i",)), format="ndjson")[1].decode().splitlines()[0]


def test_other_dialects_are_written_by_our_encoder_with_the_guard(yard):
    sql = "select -5 as n, -1.5::float8 as f, '=1+1' as t, '-5' as u, interval '-1 day' as s"
    built, content = yard.build(query(sql), options={"dialect": "excel"})

    assert "-5,-1.5,'=1+1,'-5,'-1 days" == content.decode("utf-8-sig").splitlines()[1]
    assert {"code": "formula_guarded", "count": 3} in built.notices
    assert b"\r\n" in yard.build(query(sql), options={"dialect": "rfc4180"})[1]


def test_a_float_that_is_declared_a_decimal_has_its_digits_and_no_exponent(yard, monkeypatch):
    values = "(values (1, 1e-7::float8), (2, 1e21), (3, 0.1::float8 + 0.2::float8), (4, 'NaN'), (5, null)) as v (i, x)"
    dataset = query(f"select i, x from {values}", key=("i",), columns={"x": Column("x", "x", "decimal")})
    expected = "i,x\n1,0.0000001\n2,1000000000000000000000\n3,0.30000000000000004\n4,NaN\n5,\n"

    assert expected == yard.build(dataset)[1].decode()
    by_our_encoder(monkeypatch)
    assert expected == yard.build(dataset)[1].decode()


def test_columns_have_the_types_of_the_server_and_its_own_names_for_them(nasty):
    with open_source(nasty.url).snapshot() as snapshot:
        columns = {column.key: column for column in snapshot.columns(Reading(ALL.sql, {}, {}, None, (), (), None, {}))}

    found = {name: (columns[name].type, columns[name].native) for name in NASTY}
    assert ("integer", "bigint") == found["large"]
    assert ("decimal", "numeric(12,2)") == found["money_like"]
    assert ("decimal", "numeric") == found["exact"]
    assert ("float", "real") == found["single"]
    assert ("boolean", "boolean") == found["truth"]
    assert (None, "character(5)") == found["padded"]
    assert ("date", "date") == found["day"]
    assert ("timestamp", "timestamp with time zone") == found["instant"]
    assert ("json", "integer[]") == found["numbers"]
    assert ("json", "pair") == found["row"]
    assert (None, "mood") == found["mood"]
    assert ("integer", "integer") == found["whose"]  # of a domain, that below it
    assert (None, "uuid") == found["id"]


@pytest.mark.parametrize("setting", ["datestyle = 'German'", "timezone = 'Asia/Tokyo'", "extra_float_digits = 0",
                                     "intervalstyle = 'iso_8601'", "bytea_output = 'escape'"])  # fmt: skip
def test_what_a_database_is_set_to_does_not_change_how_values_are_spelt(nasty, setting):
    _, before = nasty.build(ALL)
    with nasty.writer() as source:
        source.execute(f"alter database {nasty._database} set {setting}")
    assert before == nasty.build(ALL)[1]


def test_a_database_without_an_encoding_may_hold_what_is_no_text(yard):
    server = postgresql.server()
    name = f"{yard._database}_ascii"
    server.execute("postgres", f"create database {name} template template0 encoding 'SQL_ASCII' locale 'C'")
    yard.url = server.url(name)
    built, content = yard.build(query("select E'a\\xff\\x62' as t, 'é' as u"))

    assert "t,u\na\ufffdb,é\n" == content.decode()
    assert {"code": "text_replaced", "count": 1} in built.notices
    server.execute("postgres", f"drop database {name} with (force)")


def test_the_text_of_a_database_with_another_encoding_becomes_utf_8(yard):
    server = postgresql.server()
    name = f"{yard._database}_latin"
    server.execute("postgres", f"create database {name} template template0 encoding 'LATIN1' locale 'C'")
    yard.url = server.url(name)

    assert "t\né\n" == yard.text("select chr(233) as t")
    server.execute("postgres", f"drop database {name} with (force)")


# -- the host's own row security -----------------------------------------------------------------------


@pytest.fixture
def guarded(yard):
    """Rows of two tenants behind a policy, and roles that it binds."""
    role = f"{yard._database}_reader"
    with yard.writer() as source:
        source.execute(f"create role {role} login")
        source.execute("create table orders (id integer, tenant text)")
        source.execute("insert into orders values (1, 'north'), (2, 'south'), (3, 'north')")
        source.execute("alter table orders enable row level security")
        source.execute("create policy of_one on orders using (tenant = current_setting('app.tenant'))")
        source.execute(f"grant select on orders to {role}")
    yard.url = postgresql.server().url(yard._database, role)
    yard.role = role
    yield yard
    with yard.writer() as source:
        source.execute(f"drop owned by {role}")
        source.execute(f"drop role {role}")


def rows_for(yard, requester, dataset):
    plan = freeze(dataset, dataset.sql, resolve_parameters(dataset, {}), requester, 1_790_000_000_000, None)
    plan = json.loads(json.dumps(plan))  # as a row keeps it
    reading = reading_of(plan)
    with open_source(yard.url).snapshot() as snapshot, contextlib.closing(snapshot.batches(reading)) as batches:
        count = snapshot.count(reading, 10)
        rows = [row for batch in batches for row in batch]
    assert count == len(rows)
    return rows


def test_a_source_says_who_asks_and_the_database_keeps_the_rest_back(guarded):
    dataset = query("select id from orders", key=("id",), session={"app.tenant": ":requester_tenant"})

    assert [(1,), (3,)] == rows_for(guarded, Requester("north", "amina"), dataset)
    assert [(2,)] == rows_for(guarded, Requester("south", "omar"), dataset)
    assert [] == rows_for(guarded, Requester("north' or '1'='1", "amina"), dataset)
    assert b"id\n1\n3\n" == guarded.build(dataset)[1]
    assert b"id\n2\n" == guarded.build(query("select id from orders", session={"app.tenant": "south"}))[1]


def test_without_it_the_database_refuses(guarded):
    with pytest.raises(BuildFailed) as failed:
        guarded.build(query("select id from orders"))
    assert "42704" in failed.value.cause  # unrecognized configuration parameter


def test_it_is_set_again_after_a_count_was_given_up(guarded):
    dataset = query("select id from orders", session={"app.tenant": "north"})
    reading = reading_of(freeze(dataset, dataset.sql, resolve_parameters(dataset, {}), Requester("n", "a"), 0, None))
    silent = reading._replace(sql="select sum(a) from generate_series(1, 1000000) a, generate_series(1, 1000000) b")
    with open_source(guarded.url).snapshot() as snapshot:
        assert 2 == snapshot.count(reading, 10)
        assert None is snapshot.count(silent, 0.05)
        assert 2 == snapshot.count(reading, 10)


def test_a_role_can_be_entered_for_the_transaction(yard):
    role = f"{yard._database}_reporting"
    with yard.writer() as source:
        source.execute(f"create role {role}")
    try:
        assert f"u\n{role}\n" == yard.build(query("select current_user as u", session={"role": role}))[1].decode()
    finally:
        with yard.writer() as source:
            source.execute(f"drop role {role}")


# -- sessions and errors -------------------------------------------------------------------------------


def test_a_session_is_named_read_only_and_leaves_with_its_client(yard):
    names = ("application_name", "transaction_read_only", "transaction_isolation", "client_connection_check_interval",
             "statement_timeout", "lock_timeout")  # fmt: skip
    sql = "select " + ", ".join(f"current_setting('{name}') as {name}" for name in names)
    source = open_source(yard.url, 2, seconds=90, name="haulage 4711.1")
    with (
        source.snapshot() as snapshot,
        contextlib.closing(snapshot.batches(Reading(sql, {}, {}, None, (), (), None, {}))) as batches,
    ):
        assert [("haulage 4711.1", "on", "repeatable read", "500ms", "90s", "2s")] == next(batches)


PASSWORDS = ("hush-4711", "hush 4711", "hush%404711", "hush%4711", "hu@sh4711", "hush/4711", "hush:4711", "h?ush=4711",
             "a@hush4711/b", "a@hush4711/hu@sh", "4711/a", "a@b?hush/4711", "a/b?hush=4711")  # fmt: skip


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("place", ["127.0.0.1:{port}/shop", "127.0.0.1:no/shop", "127.0.0.1:{port}/shop?nothing=1"])
def test_no_error_tells_the_password(password, place):
    url = f"postgresql://amina:{password}@" + place.format(port=free_port())
    with pytest.raises(BuildFailed) as failed, open_source(url).snapshot():
        pass
    told = [failed.value.code, failed.value.detail, failed.value.cause, *map(str, _chain(failed.value))]

    assert "source_unavailable" == failed.value.code
    assert [] == [text for text in told if "4711" in text or "hu" in text.lower().replace("haulage", "").split("@")]


def _chain(problem):
    while problem is not None:
        yield problem
        problem = problem.__cause__ or (None if problem.__suppress_context__ else problem.__context__)


def test_a_query_without_columns_is_told_as_one(yard):
    with pytest.raises(BuildFailed) as failed:
        yard.build(query("select"))
    assert ("source_failed", "the query has no columns") == (failed.value.code, failed.value.cause)


@pytest.mark.parametrize(("user", "database", "said"), [
    ("nobody_of_ours", "postgres", 'role "nobody_of_ours" does not exist'),
    ("postgres", "nowhere", 'database "nowhere" does not exist'),
])  # fmt: skip
def test_who_may_not_enter_is_told_why(user, database, said):
    with pytest.raises(BuildFailed) as failed, open_source(postgresql.server().url(database, user)).snapshot():
        pass
    assert "source_unavailable" == failed.value.code
    assert said in failed.value.cause


def test_a_driver_that_is_missing_is_told_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(BuildFailed) as failed, open_source("postgresql://db/shop").snapshot():
        pass
    assert (
        "source_unavailable",
        "psycopg not found; install the postgresql extra: pip install 'haulage[postgresql]'",
    ) == (failed.value.code, failed.value.cause)


def test_a_table_that_somebody_locks_is_waited_for_and_then_told(yard):
    with yard.writer() as source:
        source.execute("create table orders (id integer)")
    with yard.writer() as other:
        other.execute("begin")
        other.execute("lock table orders in access exclusive mode")
        with pytest.raises(BuildFailed) as failed:
            yard.build(query("select id from orders"), busy_seconds=0.1)
    assert "source_locked" == failed.value.code


def test_a_function_that_writes_is_refused(yard):
    body = "begin insert into marks values (1); return 1; end"
    with yard.writer() as source:
        source.execute("create table marks (mark integer)")
        source.execute("create sequence numbers")
        source.execute(f"create function writes() returns integer language plpgsql as $$ {body} $$")
    off = "select set_config('transaction_read_only', 'off', true)"
    for sql in ("select writes() as a", "select nextval('numbers') as a", f"select writes() as a from ({off}) as t"):
        with pytest.raises(BuildFailed) as failed:
            yard.build(query(sql))
        assert "source_failed" == failed.value.code
        assert [] == server_says(yard, "select mark from marks")


def test_what_a_function_raises_is_not_told(yard):
    with yard.writer() as source:
        source.execute("create function refuses() returns integer language plpgsql as $$ begin raise 'hush'; end $$")
    with pytest.raises(BuildFailed) as failed:
        yard.build(query("select refuses() as a"))
    assert "P0001: raised by a function of the database" == failed.value.cause


def test_sorting_beyond_the_limit_of_the_server_has_its_code(yard):
    sql = "select i, md5(i::text) as m from generate_series(1, 200000) as i"
    with yard.writer() as source:
        source.execute(f"alter database {yard._database} set temp_file_limit = '1MB'")
        source.execute(f"alter database {yard._database} set work_mem = '64kB'")
    with pytest.raises(BuildFailed) as failed:
        yard.build(query(sql, order=("m",)))
    assert "sort_space_exceeded" == failed.value.code


def test_a_session_that_the_server_ends_in_the_middle_is_a_failure(yard):
    asked = Reading(
        "select i, repeat('x', 100) as x from generate_series(1, 10000000) as i", {}, {}, None, (), (), None, {}
    )
    with open_source(yard.url).snapshot() as snapshot, contextlib.closing(snapshot.batches(asked)) as batches:
        next(batches)
        server_says(yard, f"select pg_terminate_backend({snapshot.session.split()[0]})")
        with pytest.raises(BuildFailed) as failed:
            for _ in batches:
                pass
    assert "source_unavailable" == failed.value.code


def test_a_proxy_that_pools_transactions_may_stand_between(yard):
    """Its sessions are used by others after ours; nothing that was set may be met by them, or by us."""
    with yard.writer() as source:
        source.execute("create table orders (id integer)")
        source.execute("insert into orders values (1), (2)")
    yard.url = yard.url.replace(f":{postgresql.server().port}/", f":{pgbouncer.proxy().port}/")
    asked = query("select id, current_setting('app.tenant', true) as t from orders", key=("id",))
    silent = "select sum(a) as total from generate_series(1, 1000000) as a, generate_series(1, 1000000) as b"

    for tenant in ("north", "south"):
        _, content = yard.build(dataclasses.replace(asked, session={"app.tenant": tenant}))
        assert f"id,t\n1,{tenant}\n2,{tenant}\n" == content.decode()
    after = yard.build(asked)[1].decode().replace('""', "")  # once set, it may be the empty text instead of none
    assert "id,t\n1,\n2,\n" == after
    source = open_source(yard.url, name="haulage 4711.1")
    with source.snapshot() as snapshot:
        assert None is snapshot.count(Reading(silent, {}, {}, None, (), (), None, {}), 0.1)
        assert end_session(yard.url, snapshot.session, 10)
        with pytest.raises(BuildFailed):
            snapshot.count(Reading("select 1 as a", {}, {}, None, (), (), None, {}), 10)
    assert "id,t" == yard.build(asked)[1].decode().splitlines()[0]


def test_a_dataset_in_python_has_the_session_of_its_source(tmp_path):
    (tmp_path / "haulage.toml").write_text(
        f'secret_keys = ["{SECRET}"]\n[sources.warehouse]\nurl = "postgresql://amina@db.example/shop"\n'
        '[sources.warehouse.session]\n"app.tenant" = ":requester_tenant"\n'
    )
    with contextlib.closing(Haulage.from_toml(tmp_path / "haulage.toml", environ={})) as haul:
        haul.dataset("orders", source="warehouse")(lambda: "select 1 as a")
        orders = haul.catalogue.find("orders")
    plan = freeze(orders, "select 1 as a", resolve_parameters(orders, {}), Requester("north", "amina"), 0, None)

    assert {"app.tenant": "north"} == plan["session"]


@pytest.mark.parametrize(("url", "parts"), [
    ("postgresql://db.example/shop", {"host": "db.example", "dbname": "shop"}),
    ("postgresql+psycopg://amina:h%40s%2Fh@db.example:5433/shop?sslmode=require",
     {"host": "db.example", "port": "5433", "dbname": "shop", "user": "amina", "password": "h@s/h",
      "sslmode": "require"}),
    ("postgresql://amina:a b%@db.example/shop", {"host": "db.example", "dbname": "shop", "user": "amina",
                                                 "password": "a b%"}),
    ("postgresql://db.example?dbname=shop&sslmode=require", {"host": "db.example", "dbname": "shop",
                                                             "sslmode": "require"}),
    ("postgresql://db.example/shop?user=amina@north", {"host": "db.example", "dbname": "shop", "user": "amina@north"}),
    ("postgresql:///shop?host=/run/postgresql", {"host": "/run/postgresql", "dbname": "shop"}),
    ("postgresql://amina@one:5432,two:5433/shop", {"host": "one,two", "port": "5432,5433", "dbname": "shop",
                                                   "user": "amina"}),
])  # fmt: skip
def test_a_url_is_what_libpq_takes_and_a_password_may_hold_anything(url, parts):
    assert parts == _parts(url)


def test_a_socket_of_this_host_will_do(yard):
    (folder,) = server_says(yard, "show unix_socket_directories")[0]
    yard.url = f"postgresql:///{yard._database}?host={folder}&port={postgresql.server().port}&user=postgres"
    assert "a\n1\n" == yard.text("select 1 as a")

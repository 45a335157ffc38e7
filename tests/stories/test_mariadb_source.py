"""A database of MariaDB that is exported from: its values, its errors, and what it would do in silence."""

from __future__ import annotations

import contextlib
import sys

import pytest
from tests.ports import free_port
from tests.servers import mariadb
from tests.stories.building import Yard, query

from haulage.core.catalogue import Column
from haulage.core.errors import BuildFailed
from haulage.core.reading import Reading
from haulage.sources import open_source

PLAIN = Reading("select 1 as a", {}, {}, None, (), (), None, {})


class MariadbYard(Yard):
    """All in one database, since to make one takes longer than most of these tests."""

    def _make(self):
        self._server, self._database = mariadb.server(), "yard_of_builds"
        self._server.execute(None, f"create database if not exists {self._database} character set utf8mb4")
        self.url = self._server.url(self._database)

    def run(self, *statements):
        return self._server.execute(self._database, *statements)

    @contextlib.contextmanager
    def writer(self):
        yield None


@pytest.fixture
def yard(tmp_path):
    return MariadbYard(tmp_path)


VALUES = [  # type, literal, as CSV, as JSON, type and name of the column
    ("tinyint", "-128", "-128", "-128", ("integer", "tinyint")),
    ("bigint unsigned", "18446744073709551615", "18446744073709551615", "18446744073709551615", ("integer", "bigint")),
    ("decimal(30, 10)", "0.0000001", "0.0000001000", "0.0000001000", ("decimal", "decimal(30,10)")),
    ("decimal(5, 0)", "-42", "-42", "-42", ("decimal", "decimal(5,0)")),
    ("float", "0.1", "0.1", "0.1", ("float", "float")),
    ("float", "16777217", "16777216", "16777216.0", ("float", "float")),
    ("float", "123456.789", "123456.79", "123456.79", ("float", "float")),
    ("float", "1e-30", "1e-30", "1e-30", ("float", "float")),
    ("double", "0.1e0 + 0.2e0", "0.30000000000000004", "0.30000000000000004", ("float", "double")),
    ("double", "1e300", "1e300", "1e+300", ("float", "double")),
    ("boolean", "true", "1", "1", ("integer", "tinyint")),
    ("bit(10)", "b'1000000001'", "513", "513", ("integer", "bit")),
    ("text", "''", '""', '""', (None, None)),
    ("text", r"'a\\b\tc\nd'", '"a\\b\tc\nd"', r'"a\\b\tc\nd"', (None, None)),
    ("varchar(20)", "'é🚀 '", "é🚀 ", '"é🚀 "', (None, None)),
    ("char(5)", "'ab'", "ab", '"ab"', (None, None)),
    ("date", "'2024-03-07'", "2024-03-07", '"2024-03-07"', ("date", "date")),
    ("datetime(6)", "'2024-03-07 21:00:00.000001'", "2024-03-07 21:00:00.000001", '"2024-03-07 21:00:00.000001"',
     ("timestamp", "datetime")),
    ("timestamp", "'2024-03-07 21:00:00'", "2024-03-07 21:00:00+00", '"2024-03-07 21:00:00+00"',
     ("timestamp", "timestamp")),
    ("time", "'-838:59:59'", "-838:59:59", '"-838:59:59"', (None, "time")),
    ("year", "2024", "2024", "2024", ("integer", "year")),
    ("enum('a','b,c')", "'b,c'", '"b,c"', '"b,c"', (None, None)),
    ("blob", "x'00ff'", "AP8=", '"AP8="', (None, None)),
    ("uuid", "'00112233-4455-6677-8899-aabbccddeeff'", "00112233-4455-6677-8899-aabbccddeeff",
     '"00112233-4455-6677-8899-aabbccddeeff"', (None, None)),
    ("integer", "null", "", "null", ("integer", "int")),
]  # fmt: skip


def test_every_value_is_in_the_file_with_all_of_its_digits(yard):
    kinds, literals, as_csv, as_json, columns = zip(*VALUES, strict=True)
    names = [f"v{number}" for number in range(len(VALUES))]
    made = ", ".join(f"{name} {kind} null" for name, kind in zip(names, kinds, strict=True))
    yard.run("set time_zone = '+00:00'", f"create or replace table t ({made})",
             f"insert into t values ({', '.join(literals)})")  # fmt: skip
    dataset = query("select * from t")
    with open_source(yard.url).snapshot() as snapshot:
        found = snapshot.columns(PLAIN._replace(sql=dataset.sql))

    assert list(columns) == [column[2:] for column in found]
    assert f"{','.join(names)}\n{','.join(as_csv)}\n" == yard.build(dataset)[1].decode()
    expected = ",".join(f'"{name}":{text}' for name, text in zip(names, as_json, strict=True))
    assert f"{{{expected}}}\n" == yard.build(dataset, format="ndjson")[1].decode()


def test_bytes_are_counted_and_json_that_is_declared_is_json(yard):
    yard.run(
        "create or replace table t (i integer, b blob, j json)",
        """insert into t values (1, x'00', '{"a": 1e2}'), (2, '', null)""",
    )
    dataset = query("select i, b, j from t", key=("i",), columns={"j": Column("j", "j", "json")})
    built, content = yard.build(dataset, format="ndjson")

    assert '{"i":1,"b":"AA==","j":{"a": 1e2}}\n{"i":2,"b":"","j":null}\n' == content.decode()
    assert ({"code": "bytes_as_base64", "count": 2},) == built.notices


def test_a_recursion_is_not_cut_after_a_thousand_steps(yard):
    sql = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000) select i from n"
    assert 5_000 == yard.build(query(sql))[0].rows


def test_a_limit_of_the_server_for_everybody_cuts_no_file(yard):
    yard.run("set global sql_select_limit = 10")
    try:
        assert 500 == yard.build(query("select seq as i from seq_1_to_500"))[0].rows
    finally:
        yard.run("set global sql_select_limit = default")


@pytest.mark.parametrize("password", ["hush-4711", "hush 4711", "hush%404711", "hu@sh4711", "hush:4711"])
@pytest.mark.parametrize("place", ["127.0.0.1:{port}/shop", "127.0.0.1:no/shop", "127.0.0.1:{port}/shop?nothing=1"])
def test_no_error_tells_the_password(password, place):
    with (
        pytest.raises(BuildFailed) as failed,
        open_source(f"mariadb://amina:{password}@" + place.format(port=free_port())).snapshot(),
    ):
        pass
    assert "source_unavailable" == failed.value.code
    assert "4711" not in f"{failed.value} {failed.value.cause} {failed.value.__cause__}"


def test_who_may_not_enter_is_told_why():
    server = mariadb.server()
    with (
        pytest.raises(BuildFailed) as failed,
        open_source(f"mariadb://nobody:hush@127.0.0.1:{server.port}/x").snapshot(),
    ):
        pass
    assert "source_unavailable" == failed.value.code
    assert "Access denied" in failed.value.cause
    assert "hush" not in failed.value.cause


def test_a_driver_that_is_missing_is_told_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(BuildFailed) as failed, open_source("mariadb://db/shop").snapshot():
        pass
    assert "pymysql not found; install the mariadb extra: pip install 'haulage[mariadb]'" == failed.value.cause


def test_a_table_that_somebody_locks_is_waited_for_and_then_told(yard):
    yard.run("create or replace table t (i integer)")
    with contextlib.closing(yard._server.connect(yard._database)) as other, other.cursor() as cursor:
        cursor.execute("lock tables t write")
        with pytest.raises(BuildFailed) as failed:
            yard.build(query("select i from t"), busy_seconds=0.1)
    assert "source_locked" == failed.value.code


def test_a_function_that_writes_is_refused(yard):
    yard.run("create or replace table t (i integer) engine = innodb")
    body = "begin insert into t values (1); return 1; end"
    yard.run(f"create or replace function writes() returns integer modifies sql data {body}")
    with pytest.raises(BuildFailed) as failed:
        yard.build(query("select writes() as a"))
    assert "1792" in failed.value.cause
    assert () == tuple(yard.run("select i from t"))

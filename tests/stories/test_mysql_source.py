"""What MySQL does otherwise than MariaDB, by all ways to a file; with MariaDB where HAULAGE_TEST_MYSQLD names none."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from pyarrow import parquet
from tests.servers import mariadb, mysql
from tests.stories.building import Yard, query
from tests.stories.test_mariadb_source import PLAIN, MariadbYard, built_twice, joined

from haulage.core.catalogue import Column
from haulage.sources import open_source

pytestmark = pytest.mark.slow
__all__ = ["joined"]


class MysqlYard(MariadbYard):
    """All in one database."""

    def _make(self):
        self._server, self._database = (mysql if mysql.PROGRAM else mariadb).server(), "yard_of_mysql"
        self._server.execute(None, f"create database if not exists {self._database} character set utf8mb4")
        self.url = self._server.url(self._database).replace("mariadb+pymysql:", "mysql:")


@pytest.fixture
def yard(tmp_path) -> Yard:
    return MysqlYard(tmp_path)


VALUES = [  # type, literal, as CSV; all short enough for lines that are joined many at once
    ("tinyint", "-128", "-128"),
    ("bigint unsigned", "18446744073709551615", "18446744073709551615"),
    ("decimal(65,30)", "-" + "9" * 35 + ".000000000000000000000000000001", "-" + "9" * 35 + "." + "0" * 29 + "1"),
    ("double", "1e300", "1e300"),
    ("double", "1e-7", "0.0000001"),
    ("double", "0.1e0 + 0.2e0", "0.30000000000000004"),
    ("boolean", "true", "1"),
    ("varchar(100)", "'a,b'", '"a,b"'),
    ("varchar(100)", "''", '""'),
    ("varchar(100)", "'say \"x\"\\r'", '"say ""x""\r"'),
    ("varchar(100) character set latin1", "'é'", "é"),
    ("varchar(100) character set utf16", "'é🚀'", "é🚀"),
    ("date", "'9999-12-31'", "9999-12-31"),
    ("datetime(6)", "'2024-03-07 21:00:00.5'", "2024-03-07 21:00:00.500000"),
    ("timestamp(3) null", "'2024-03-07 21:00:00'", "2024-03-07 21:00:00.000+00"),
    ("time(2)", "'-838:59:58.5'", "-838:59:58.50"),
    ("year", "2024", "2024"),
    ("enum('a','b,c')", "'b,c'", '"b,c"'),
    ("set('a','b')", "'a,b'", '"a,b"'),
]


def test_every_value_is_the_same_whoever_joins_the_lines(yard, monkeypatch, joined):
    columns = ", ".join(f"v{number} {kind.removesuffix(' null')} null" for number, (kind, *_) in enumerate(VALUES))
    yard.run("drop table if exists t", "set time_zone = '+00:00'", f"create table t (i integer, {columns})",
             f"insert into t values (1, {', '.join(literal for _, literal, _ in VALUES)})",
             f"insert into t values (2, {', '.join('null' for _ in VALUES)})")  # fmt: skip
    dataset = query("select * from t", key=("i",))
    (_, content), (_, same), by = built_twice(yard, monkeypatch, dataset)

    assert content == same
    assert by is joined
    header = ",".join(["i", *(f"v{number}" for number in range(len(VALUES)))])
    expected = ",".join(["1", *(csv for *_, csv in VALUES)])
    assert f"{header}\n{expected}\n2{',' * len(VALUES)}\n" == content.decode()


def test_a_fraction_that_is_filled_up_with_zeros_is_a_moment_in_formats_that_have_them(yard):
    yard.run(
        "drop table if exists t",
        "create table t (i integer, a datetime(3), b datetime(6), c time(3), d timestamp(6) null)",
        "set time_zone = '+00:00'",
        """insert into t values (1, '2024-03-07 21:00:00.5', '2024-03-07 21:00:00.25', '12:00:00.5',
           '2024-03-07 21:00:00.5'), (2, '2024-03-07 21:00:00', '2024-03-07 21:00:00', '12:00:00',
           '2024-03-07 21:00:00')""",
    )
    dataset = replace(query("select * from t", key=("i",)), formats=("parquet", "xlsx"))
    built, content = yard.build(dataset, format="parquet")
    table = parquet.read_table(io.BytesIO(content))

    assert ["int64", "timestamp[us]", "timestamp[us]", "time64[us]", "timestamp[us, tz=UTC]"] == [
        str(kind) for kind in table.schema.types
    ]
    assert ["2024-03-07 21:00:00.500000", "2024-03-07 21:00:00"] == [str(cell) for cell in table["a"].to_pylist()]
    assert ["12:00:00.500000", "12:00:00"] == [str(cell) for cell in table["c"].to_pylist()]
    assert () == built.notices == yard.build(dataset, format="xlsx")[0].notices


def test_bits_are_numbers_whether_a_condition_hides_some_or_not(yard):
    yard.run("drop table if exists t", "create table t (i integer, flags bit(64))",
             "insert into t values (1, ~0), (2, 5), (3, 7)")  # fmt: skip
    columns = {"flags": Column("flags", "flags", visible="i <> 3")}

    expected = "i,flags\n1,18446744073709551615\n2,5\n"
    assert expected + "3,7\n" == yard.text("select * from t order by i")
    assert expected + "3,\n" == yard.build(query("select * from t", key=("i",), columns=columns))[1].decode()


def test_columns_of_a_sum_are_known_without_working_it_out(yard):
    """The rows that it adds up would take longer than any test has."""
    yard.run("drop table if exists t", "create table t (i integer, one integer not null default 1, key (one))",
             "insert into t (i) values " + ", ".join(f"({number})" for number in range(1_000)))  # fmt: skip
    rows = "t as a join t as b using (one) join t as c using (one) join t as d using (one)"
    dataset = query(f"select total, total from (select sum(a.i) as total from {rows}) as of_all")

    assert [] == yard.problems(dataset)


def test_what_index_lacks_is_seen_in_the_plan(yard):
    """That of MySQL 9 has other words, unless it is asked for the older one."""
    yard.run("drop table if exists t", "create table t (i integer primary key, k integer)")
    for first in range(0, 8_000, 4_000):
        yard.run("insert into t values " + ", ".join(f"({i}, {i % 4000})" for i in range(first, first + 4_000)))
    yard.run("analyze table t")
    asked = PLAIN._replace(sql="select * from t where k = :k", binds={"k": 7}, types={"k": "integer"})
    with open_source(yard.url).snapshot() as snapshot:
        (advice,) = snapshot.advice(asked)

    assert advice.statement.endswith("`t` (`k`)")


if mysql.PROGRAM:  # MariaDB has other functions for them

    def test_a_vector_is_its_bytes(yard):
        yard.run("drop table if exists t", "create table t (i integer, v vector(2))",
                 "insert into t values (1, string_to_vector('[1, 3.1]')), (2, null)")  # fmt: skip
        built, content = yard.build(query("select * from t", key=("i",)))

        assert "i,v\n1,AACAP2ZmRkA=\n2,\n" == content.decode()
        assert ({"code": "bytes_as_base64", "count": 1},) == built.notices

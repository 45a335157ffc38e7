"""Each limit of a build, one below, at it and one above; crossing one has its own code and public words."""

from __future__ import annotations

import gzip
import json

import pytest
from tests.stories.building import Yard, query

from haulage.core.errors import BuildFailed
from haulage.sources.sqlite import SqliteSnapshot

NUMBERS = """with recursive n(i) as (select 1 union all select i + 1 from n where i < 1000)
             select i, i * 7 % 13 as k from n"""


@pytest.fixture
def yard(tmp_path):
    return Yard(tmp_path)


def code_of(yard, dataset, **asked):
    """The failure's code, or None when there is a file."""
    try:
        yard.build(dataset, **asked)
    except BuildFailed as failed:
        return failed.code
    return None


@pytest.mark.parametrize("counted", [True, False], ids=["counted before", "met while writing"])
@pytest.mark.parametrize(("rows", "expected"), [(999, "rows_exceeded"), (1_000, None), (1_001, None)])
def test_rows(yard, rows, expected, counted, monkeypatch):
    if not counted:
        monkeypatch.setattr(SqliteSnapshot, "count", lambda *_asked: None)

    assert expected == code_of(yard, query(NUMBERS), limits={"rows": rows})
    assert counted or len(yard.progress) > 2


@pytest.mark.parametrize("compression", [None, "gzip", "zstd"])
@pytest.mark.parametrize("format", ["csv", "json", "ndjson"])
@pytest.mark.parametrize(("more", "expected"), [(-1, "bytes_exceeded"), (0, None), (1, None)])
def test_bytes_of_the_file_on_the_disk(yard, format, compression, more, expected):
    size = yard.build(query(NUMBERS), format=format, compression=compression)[0].bytes
    limit = size + more

    assert expected == code_of(yard, query(NUMBERS), format=format, compression=compression, file_bytes=limit)


@pytest.mark.parametrize(("more", "expected"), [(-1, "storage_exceeded"), (0, None), (1, None)])
def test_bytes_that_are_left_in_the_budget(yard, more, expected):
    size = yard.build(query(NUMBERS))[0].bytes

    assert expected == code_of(yard, query(NUMBERS), file_bytes=size + 100, reserved_bytes=size + more)


def test_a_limit_says_itself_in_public_words(yard):
    with pytest.raises(BuildFailed) as rows:
        yard.build(query(NUMBERS), limits={"rows": 999})
    with pytest.raises(BuildFailed) as size:
        yard.build(query(NUMBERS), file_bytes=1_234)

    assert "The export has more than the 999 rows allowed." == rows.value.detail
    assert "The file would be larger than the 1,234 bytes allowed." == size.value.detail


@pytest.mark.slow
@pytest.mark.parametrize("sql", [
    "select abs(random()) as k, randomblob(100) as b from n order by k",
    "select distinct hex(randomblob(50)) as b from n",
])  # fmt: skip
def test_space_for_sorting(yard, tmp_path, monkeypatch, sql):
    monkeypatch.setenv("SQLITE_TMPDIR", str(tmp_path))
    rows = "with recursive n(i) as (select 1 union all select i + 1 from n where i < {}) "
    large, small = query(rows.format(3_000_000) + sql), query(rows.format(1_000) + sql)
    limits = {"sort_bytes": 20_000_000, "count_seconds": 60 if "distinct" in sql else 0}

    with pytest.raises(BuildFailed) as failed:
        yard.build(large, limits=limits)

    assert "sort_space_exceeded" == failed.value.code
    assert "Sorting the rows needed more than the 20,000,000 bytes allowed." == failed.value.detail
    assert None is code_of(yard, small, limits=limits)


@pytest.mark.parametrize("compression", [None, "gzip", "zstd"])
@pytest.mark.parametrize(("format", "options", "expected"), [
    ("csv", {}, b"i,k\n"),
    ("csv", {"dialect": "rfc4180"}, b"\xef\xbb\xbfi,k\r\n"),
    ("csv", {"dialect": "excel"}, b"\xef\xbb\xbfi,k\r\n"),
    ("json", {}, b"[]\n"),
    ("ndjson", {}, b""),
])  # fmt: skip
def test_no_rows_are_a_file_like_any_other(yard, format, options, expected, compression):
    dataset = query(NUMBERS + " where i < 0")
    built, content = yard.build(dataset, format=format, options=options, compression=compression)

    assert expected == unpacked(content, compression)
    assert (0, 0, len(content)) == (built.rows, built.total, built.bytes)
    assert ["i", "k"] == [column["key"] for column in built.columns]


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_a_compressed_file_reads_back_as_the_plain_one(yard, compression):
    plain = yard.build(query(NUMBERS), format="json")[1]
    packed = yard.build(query(NUMBERS), format="json", compression=compression)[1]

    assert len(packed) < len(plain) / 3
    assert plain == unpacked(packed, compression)
    assert 1_000 == len(json.loads(plain))


def unpacked(content, compression):
    if compression == "gzip":
        return gzip.decompress(content)
    if compression == "zstd":
        zstd = pytest.importorskip("backports.zstd")
        return zstd.decompress(content)
    return content

"""The registry of formats: options, names, media types, compressions, and what an import of it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.conformance.formats.readers import UNPACK, pack

from haulage.formats import (
    COMPRESSIONS,
    FORMATS,
    OptionInvalid,
    compression,
    file_name,
    media_type,
    resolve_options,
)


def test_a_format_is_found_by_its_name_and_nothing_else_is():
    assert ["csv", "json", "ndjson", "parquet", "xlsx"] == list(FORMATS)
    assert all(name == format.name for name, format in FORMATS.items())
    assert "format" not in FORMATS
    with pytest.raises(KeyError):
        FORMATS["cells"]


def test_options_that_are_not_given_have_their_defaults():
    assert {"dialect": "exact"} == resolve_options(FORMATS["csv"], {})
    assert {"numbers": "number"} == resolve_options(FORMATS["json"], {})
    assert {"numbers": "string"} == resolve_options(FORMATS["ndjson"], {"numbers": "string"})


@pytest.mark.parametrize("format", FORMATS)
def test_every_default_is_one_of_the_choices(format):
    assert all(option.default in option.choices for option in FORMATS[format].options)


@pytest.mark.parametrize("value", ["Exact", "", "lotus", None, 1, ["exact"]])
def test_a_value_that_is_no_choice_is_refused_with_the_choices(value):
    with pytest.raises(OptionInvalid) as refused:
        resolve_options(FORMATS["csv"], {"dialect": value})

    error = refused.value
    assert ("dialect", value, ("exact", "rfc4180", "excel")) == (error.name, error.value, error.choices)
    assert f"option 'dialect' of csv is {value!r}; choose one of exact, rfc4180, excel" == str(error)


def test_an_option_of_another_format_is_refused():
    with pytest.raises(OptionInvalid) as refused:
        resolve_options(FORMATS["json"], {"dialect": "exact"})

    assert ("dialect", "exact", ()) == (refused.value.name, refused.value.value, refused.value.choices)
    assert "json has no option 'dialect' (given: 'exact'); its options: numbers" == str(refused.value)


@pytest.mark.parametrize(
    ("format", "compressed", "name", "type"),
    [
        ("csv", None, "orders.csv", "text/csv; charset=utf-8"),
        ("csv", "none", "orders.csv", "text/csv; charset=utf-8"),
        ("csv", "gzip", "orders.csv.gz", "application/gzip"),
        ("json", "none", "orders.json", "application/json"),
        ("json", "zstd", "orders.json.zst", "application/zstd"),
        ("ndjson", "none", "orders.ndjson", "application/x-ndjson"),
        ("ndjson", "gzip", "orders.ndjson.gz", "application/gzip"),
    ],
)
def test_a_file_is_named_after_what_is_in_it(format, compressed, name, type):
    assert name == file_name("orders", FORMATS[format], compressed)
    assert type == media_type(FORMATS[format], compressed)


@pytest.mark.parametrize("name", COMPRESSIONS)
@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 5000], ids=["nothing", "one byte", "1 MB"])
def test_compression_gives_back_every_byte_and_always_the_same_file(name, data):
    assert data == UNPACK[name](pack(name, data))
    assert pack(name, data) == pack(name, data)


@pytest.mark.parametrize("without", [(), ("isal",)], ids=["with isal", "without isal"])
@pytest.mark.parametrize("name", COMPRESSIONS)
def test_a_compressed_file_does_not_depend_on_the_pieces_it_came_in(monkeypatch, name, without):
    for module in without:
        monkeypatch.setitem(sys.modules, module, None)
    data = b"".join(b"%d,some text %d\n" % (number, number * 7919 % 10_007) for number in range(50_000))
    whole = pack(name, data, len(data))

    assert data == UNPACK[name](whole)
    assert {whole} == {pack(name, data, chunk) for chunk in (777, 100_000)}


def test_gzip_is_packed_by_isal_where_it_is_installed(monkeypatch):
    data = bytes(range(256)) * 1_000
    fast = pack("gzip", data)
    monkeypatch.setitem(sys.modules, "isal", None)

    assert fast != pack("gzip", data)
    assert data == UNPACK["gzip"](fast) == UNPACK["gzip"](pack("gzip", data))


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_a_damaged_file_is_noticed_by_its_own_checksum(name):
    packed = bytearray(pack(name, b"0123456789" * 1000))
    packed[-1 if name == "zstd" else -5] ^= 1  # the checksum of zstd stands last, that of gzip before the length

    with pytest.raises(Exception, match=r"(?i)crc|checksum"):
        UNPACK[name](bytes(packed))


def test_gzip_carries_no_time():
    assert b"\0\0\0\0" == pack("gzip", b"x")[4:8]


def test_a_compression_says_what_to_install_when_its_library_is_missing(monkeypatch):
    assert COMPRESSIONS["gzip"].missing() is None
    assert COMPRESSIONS["zstd"].missing() is None

    monkeypatch.setitem(sys.modules, "backports", None)
    monkeypatch.setitem(sys.modules, "compression", None)
    assert "pip install 'haulage[zstd]'" == COMPRESSIONS["zstd"].missing()


def test_the_child_that_writes_csv_loads_nothing_it_does_not_need():
    script = "import sys; from haulage.formats import FORMATS; FORMATS['csv']; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout.split()
    )

    assert not loaded & {
        "json",
        "decimal",
        "hashlib",
        "pydantic",
        "sqlalchemy",
        "backports.zstd",
        "compression.zstd",
    }
    assert not loaded & {"haulage.core", "haulage.formats.guard", "haulage.formats.objects", "haulage.config"}


def test_the_compression_of_the_running_python_is_used():
    assert compression.Zstd().compress(b"x" * 1_000_000)[:4] in (b"\x28\xb5\x2f\xfd", b"")

"""What other programs say of the files: PostgreSQL writes the same CSV and reads ours, sqlite3, gzip and zstd
read them too. The server is one of our own, started for this file and gone with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from tests.conformance.formats.readers import pack, write

pytestmark = pytest.mark.slow

TEXTS = [
    None,
    "",
    "plain",
    "a,b",
    'say "yes"',
    "a\rb",
    "a\nb",
    "a\r\nb",
    "\r",
    "\n",
    " kept ",
    "\\.",
    "\\N",
    "\\",
    "'",
    "NULL",
    "\t=1+1",
    "=1+1",
    ";",
    "#",
    "😀",
    "\ufeff",
    "x" * 257,
]


def find(program: str) -> str:
    """A program on PATH or of a Debian PostgreSQL; the test is skipped, by name, where there is none."""
    places = [os.environ["PATH"], *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))]
    found = shutil.which(program, path=os.pathsep.join(places))
    if not found:
        pytest.skip(f"{program} is not installed")
    return found


@pytest.fixture(scope="module")
def home():
    """A folder with a short name, as sockets need it, that the server's own user can enter."""
    with tempfile.TemporaryDirectory(prefix="haulage-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def sql(home):
    """A function that hands a script to psql and gives what it printed."""
    initdb, server, psql, is_ready = map(find, ("initdb", "postgres", "psql", "pg_isready"))
    as_owner = []
    if os.geteuid() == 0:  # the server refuses to run as root
        as_owner = [find("runuser"), "-u", "postgres", "--"]
        shutil.chown(home, "postgres")
    make = [initdb, "--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-sync", home / "data"]
    subprocess.run([*as_owner, *make], check=True, capture_output=True, cwd=home)
    run = [server, "-D", home / "data", "-k", home, "-c", "listen_addresses=", "-c", "fsync=off"]
    with subprocess.Popen([*as_owner, *run], stderr=subprocess.DEVNULL, cwd=home) as process:
        try:
            while subprocess.run([is_ready, "-h", home, "-q"], check=False).returncode:
                assert process.poll() is None, "the server ended"

            def run_script(script: str) -> bytes:
                command = [psql, "-h", home, "-U", "postgres", "-XqAt", "-v", "ON_ERROR_STOP=1"]
                return subprocess.run(command, input=script.encode(), check=True, capture_output=True).stdout

            yield run_script
        finally:
            process.terminate()


def literal(cell: str | int | None) -> str:
    """A cell as SQL that holds no line break, so that psql cannot take it for something else."""
    if cell is None:
        return "null::text"
    if isinstance(cell, int):
        return str(cell)
    return "E'" + "".join(f"\\U{ord(mark):08X}" for mark in cell) + "'::text"


ONE = (["t"], [(text,) for text in TEXTS])
THREE = (["t", "n", "u"], [(text, n, TEXTS[-n]) for n, text in enumerate(TEXTS)])


@pytest.mark.parametrize(("headers", "rows"), [ONE, THREE], ids=["one column", "three columns"])
def test_the_exact_dialect_is_byte_for_byte_that_of_postgresql(sql, headers, rows):
    values = ", ".join("(" + ", ".join(map(literal, row)) + ")" for row in rows)
    query = f"select * from (values {values}) v ({', '.join(headers)})"
    wanted = sql(f"copy ({query}) to stdout (format csv, header);")

    assert wanted == write("csv", headers, rows).data


@pytest.mark.parametrize(("headers", "rows"), [ONE, THREE], ids=["one column", "three columns"])
def test_psql_reads_the_exact_dialect_and_tells_null_from_the_empty_text(sql, home, headers, rows):
    file = home / "exact.csv"
    file.write_bytes(write("csv", headers, rows).data)
    table = ", ".join(f"{header} text" for header in headers)
    hexed = "coalesce(encode(convert_to({}, 'UTF8'), 'hex'), '-')"
    shown = " || ' ' || ".join(map(hexed.format, headers))
    found = sql(
        f"create temp table r (id serial, {table});\n"
        f"\\copy r ({', '.join(headers)}) from '{file}' (format csv, header)\n"
        f"select {shown} from r order by id;"
    )

    wanted = [" ".join("-" if cell is None else str(cell).encode().hex() for cell in row) for row in rows]
    assert wanted == found.decode().split("\n")[:-1]


@pytest.mark.parametrize("dialect", ["exact", "rfc4180", "excel"])
@pytest.mark.parametrize(("headers", "rows"), [ONE, THREE], ids=["one column", "three columns"])
def test_the_sqlite3_shell_reads_every_row(tmp_path, dialect, headers, rows):
    shell = find("sqlite3")
    file = tmp_path / "file.csv"
    data = write("csv", headers, rows, dialect=dialect).data
    file.write_bytes(data)
    shown = " || ' ' || ".join(map("hex({})".format, headers))
    found = subprocess.run(
        [shell, ":memory:", f".import --csv {file} r", f"select {shown} from r order by rowid"],
        check=True,
        capture_output=True,
    ).stdout.decode()

    def hexed(cell: object) -> str:
        starts_formula = isinstance(cell, str) and cell.lstrip("\t\ufeff").startswith(("\r", "\n", "="))
        guard = "'" if dialect == "excel" and starts_formula else ""
        return ("" if cell is None else guard + str(cell)).encode().hex().upper()

    assert [" ".join(map(hexed, row)) for row in rows] == found.split("\n")[:-1]


@pytest.mark.parametrize(("compression", "program"), [("gzip", "gzip"), ("zstd", "zstd")])
def test_the_programs_for_compressed_files_unpack_them(compression, program):
    data = write("csv", *THREE).data * 1000
    found = subprocess.run([find(program), "-dc"], input=pack(compression, data), check=True, capture_output=True)

    assert data == found.stdout

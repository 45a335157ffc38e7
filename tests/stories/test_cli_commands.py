"""The command line with a dataset that a program builds: declared in the file, checked, exported, and refused."""

from __future__ import annotations

import json

import pytest
from tests.stories.terminal import SECRET, Terminal

PROGRAM = """#!/bin/sh
# What an operator may have: a program that never heard of Haulage, in five lines of shell.
book=${1#--book=}
printf 'A book of %s for %s\\n' "$book" "$TOKEN" > "$2"
printf '{"complete": false, "notices": [{"code": "chapter_missing", "count": 2}]}' > "$3"
"""
CONFIGURATION = f"""
secret_keys = ["{SECRET}"]

[datasets.book]
label = "Book"
command = ["./make-book", "--book={{book}}", "{{file}}", "{{report}}"]
[datasets.book.formats.epub]
suffix = ".epub"
media_type = "application/epub+zip"
label = "EPUB 3"
[datasets.book.formats.txt]
suffix = ".txt"
media_type = "text/plain; charset=utf-8"
[datasets.book.parameters]
book = {{type = "text", label = "Which book"}}
[datasets.book.environment]
TOKEN = "env:BOOK_TOKEN"
"""


@pytest.fixture
def terminal(tmp_path):
    terminal = Terminal(tmp_path)
    terminal.config.write_text(CONFIGURATION)
    terminal.config.chmod(0o600)
    terminal.environ |= {"BOOK_TOKEN": "hush"}
    program = tmp_path / "make-book"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    return terminal


def test_the_whole_way_from_check_to_a_file_that_says_that_it_is_incomplete(terminal):
    checked = terminal.run("datasets", "check")
    doctor = terminal.run("doctor")
    listed = terminal.run("datasets", "--json")
    exported = terminal.run("export", "book", "-p", "book=; rm -rf / $(x) 'moby'", "--json", "-o", "moby.epub")
    shown = terminal.run("export", "book", "-p", "book=-rf", "--format", "txt", "-o", "moby.txt")

    assert (0, "OK    book\n") == (checked.code, checked.out)
    assert "OK    datasets: book can be exported" in doctor.out
    assert ["epub", "txt"] == listed.document["items"][0]["formats"]
    assert 0 == exported.code, exported.err
    assert "A book of ; rm -rf / $(x) 'moby' for hush\n" == (terminal.folder / "moby.epub").read_text()
    run = exported.document
    assert (False, "epub", None) == (run["complete"], run["format"], run["file"]["rows"])
    assert ("book.epub", "application/epub+zip", None) == (
        run["file"]["name"], run["file"]["media_type"], run["file"]["snapshot_at"],
    )  # fmt: skip
    assert [{"code": "no_snapshot"}, {"code": "chapter_missing", "count": 2}] == run["notices"]
    assert "A book of -rf for hush\n" == (terminal.folder / "moby.txt").read_text()
    assert ("complete", "no") in [tuple(line.split()) for line in shown.out.splitlines()]
    assert "chapter_missing" in shown.out
    assert not any(word in json.dumps(run) for word in ("make-book", "hush", str(terminal.folder)))


def test_a_program_that_is_not_there_or_cannot_be_run_is_found_by_a_check(terminal):
    program = terminal.folder / "make-book"
    program.chmod(0o644)
    locked = terminal.run("datasets", "check")
    program.unlink()
    gone, doctor = terminal.run("datasets", "check"), terminal.run("doctor")
    failed = terminal.run("export", "book", "-p", "book=moby", "-o", "moby.epub")

    assert (1, f"FAIL  book\n      this user may not run {program}; run: chmod +x {program}\n") == (
        locked.code, locked.out,
    )  # fmt: skip
    assert (1, f"FAIL  book\n      there is no program {program}; see command\n") == (gone.code, gone.out)
    assert f"FAIL  datasets: book: there is no program {program}; see command" in doctor.out
    assert (1, True) == (failed.code, "The program that builds the file failed." in failed.out + failed.err)


def test_a_variable_that_is_not_here_is_a_warning(terminal):
    del terminal.environ["BOOK_TOKEN"]
    checked = terminal.run("datasets", "check")

    assert 0 == checked.code
    assert "WARN  book\n      the environment of this process has no BOOK_TOKEN" in checked.out


FAULTS = {
    "no path": ('"./make-book"', '"make-book"', "is no path, and there is no PATH to look in"),
    "an unknown place": ("--book={book}", "--book={bok}", "there is no {bok}; did you mean book?"),
    "what could be an option": ("--book={book}", "{book}", 'could be taken for an option; write "--book={book}"'),
    "nowhere to write": ('"{file}", "{report}"', '"out"', "names neither {file} nor {request} nor {folder}"),
    "a list in a word": ('type = "text",', 'type = "text", many = true,', "lists are only in the file that {request}"),
    "an end date": ('type = "text",', 'type = "date", end = true,', "an end date is for queries"),
    "a name of ours": ("book = {type", "file = {type", "in a command {file} is Haulage's own"),
    "a query too": ('label = "Book"', 'sql = "select 1"', "datasets.book.sql is of a query"),
    "a source too": ('label = "Book"', 'source = "shop"', "datasets.book.source is of a query"),
    "no formats": ("[datasets.book.formats.", "[datasets.book.other.", "datasets.book.formats = []: write at"),
    "no media type": ('media_type = "application/epub+zip"', "", "formats.epub.media_type is missing"),
    "a media type of two lines": ("application/epub+zip", "application/epub\\r\\nX: y", "is not a media type"),
    "a suffix with a path": ('".epub"', '"/../x.epub"', "is not a suffix"),
    "a name that cannot be set": ("TOKEN =", '"A=B" =', "cannot be set"),
    "no list": ('["./make-book"', '"./make-book" #', "is not a program and its words"),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after", "said"), FAULTS.values(), ids=FAULTS)
def test_a_command_that_cannot_work_or_could_be_turned_is_refused_at_the_start(terminal, before, after, said):
    assert before in CONFIGURATION
    terminal.config.write_text(CONFIGURATION.replace(before, after))
    checked = terminal.run("datasets", "check")

    assert 2 == checked.code
    assert said in checked.err

"""``command`` of ``[datasets.NAME]``: read into the catalogue's own type, and judged for what cannot work."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from haulage.config.faults import Faults, meant, shown
from haulage.config.kinds import TEXT, Kind, matching
from haulage.config.table import Table
from haulage.core.catalogue import NAME, Command, Dataset, Made, Parameter
from haulage.core.commands import OWN_PLACES, PATHS, places_of
from haulage.core.parents import BIND

# Of other datasets.
QUERY_KEYS = ("source", "sql", "sql_file", "hidden", "visible", "policy_revision", "key", "order", "columns")
FREE_TYPES = ("text", "integer", "decimal")  # of parameters whose text may begin with a hyphen
SUFFIX = matching(r"(\.[A-Za-z0-9]{1,16}){1,3}", "a suffix", '".epub"')
MEDIA_TYPE = matching(
    r"[a-z]+/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*(; ?[a-z]+=[A-Za-z0-9_.+-]+)*", "a media type", '"application/epub+zip"'
)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _words(value: object) -> tuple[str, ...]:
    """Unlike other lists of texts: the same word may stand twice, and one may be empty."""
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(each, str) and "\0" not in each for each in value)
    ):
        raise ValueError
    return tuple(value)


WORDS = Kind("a program and its words", '["/usr/local/bin/make-book", "--out={file}"]', _words)


def read_command(table: Table, folder: Path) -> Command | None:
    """The command of a dataset; None where it has none. A path is resolved against the folder of the configuration."""
    if not table.has("command"):
        return None
    for key in QUERY_KEYS:
        if table.has(key):
            table.read(key, ANYTHING, None)
            table.faults.say(f"{table.key(key)} is of a query, and this dataset has a command; leave one of them out")
    program, *words = table.read("command", WORDS, ("/",))
    if "/" in program:
        program = str((folder / program).absolute())
    formats = {name: _made(inside) for name, inside in table.tables("formats")}
    environment = table.table("environment")
    found = {name: environment.read(name, TEXT, "") for name in environment.values}
    environment.close()
    return Command((program, *words), formats, found)


ANYTHING: Kind[object] = Kind("a value", "a value", lambda value: value)


def _made(table: Table) -> Made:
    made = Made(
        table.demand("suffix", SUFFIX, ".bin"),
        table.demand("media_type", MEDIA_TYPE, "application/octet-stream"),
        table.read("label", TEXT, ""),
    )
    table.close()
    return made


def judge_command(dataset: Dataset, command: Command, path: str, faults: Faults) -> None:
    """Everything about a command that cannot work, or that a requester could turn against it."""
    program, *words = command.arguments
    if "/" not in program:
        why = 'is no path, and there is no PATH to look in; write "/usr/local/bin/make-book" or "./make-book"'
        faults.wrong(f"{path}.command", program, why)
    for name in command.formats:
        if not NAME.fullmatch(name):
            faults.say(f"{path}.formats.{name}: write a name of small letters, digits and _, at most 63")
    parameters = {parameter.name: parameter for parameter in dataset.parameters}
    for name in sorted(parameters.keys() & set(OWN_PLACES)):
        faults.say(f"{path}.parameters.{name}: in a command {{{name}}} is Haulage's own; choose another name")
    options_end = words.index("--") if "--" in words else len(words)
    for index, word in enumerate(words):
        for place in places_of(word):
            free = word.startswith(f"{{{place}}}") and index < options_end
            if place == BIND and dataset.parent is not None:
                problem = _AN_OPTION.format(place=place) if free else None
            else:
                problem = None if place in OWN_PLACES else _wrong_place(place, parameters, free=free)
            if problem is not None:
                faults.wrong(f"{path}.command", word, problem)
    if not {place for word in words for place in places_of(word)} & set(PATHS):
        why = 'names neither {file} nor {request} nor {folder}; it must learn where to write: "--out={file}"'
        faults.wrong(f"{path}.command", list(command.arguments), why)
    judge_environment(command.environment, path, faults)


_AN_OPTION = 'what a requester writes could be taken for an option; write "--{place}={{{place}}}", or "--" before it'


def _wrong_place(place: str, parameters: Mapping[str, Parameter], *, free: bool) -> str | None:
    parameter = parameters.get(place)
    if parameter is None:
        return f"there is no {{{place}}}; {meant(place, [*parameters, *OWN_PLACES])}"
    if parameter.many:
        return f"{{{place}}} is a list, and lists are only in the file that {{request}} names"
    if parameter.end:
        return "an end date is for queries; leave end out"
    if free and parameter.type in FREE_TYPES:
        return _AN_OPTION.format(place=place)
    return None


def judge_environment(environment: Mapping[str, str], path: str, faults: Faults) -> None:
    """See that variables of a child can be set; whether the worker has what is looked up shows at the run."""
    for name, value in environment.items():
        if not VARIABLE.fullmatch(name) or "\0" in value:
            write = f'write {name or "NAME"} = "value", or "env:NAME" for one that the worker has'
            faults.say(f"{path}.environment: {shown(name)} cannot be set; {write}")

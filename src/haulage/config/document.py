"""The file and the variables that override it, as one tree of tables; nothing is judged here but TOML itself.

``HAULAGE_LIMITS__EXPORTS__SLOTS=4`` stands for ``slots = 4`` in ``[limits.exports]``: two underscores go one
table down, letters are small, and ``-`` in a name is written ``_``. A variable without two underscores counts
only when it names a key of the top: others, such as a secret's, belong to somebody else.
"""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from haulage.config.faults import meant
from haulage.config.kinds import Given
from haulage.core.errors import ConfigInvalid

PREFIX = "HAULAGE_"
TOP_KEYS = ("store", "artifacts", "secret_keys", "app")
SECTIONS = ("objects", "sources", "datasets", "keys", "operator", "limits", "worker", "serve")
# Variables of ours that are no settings.
OTHER_VARIABLES = ("HAULAGE_CONFIG", "HAULAGE_DEMO_KEY", "HAULAGE_TEST_ALL", "HAULAGE_SECRET")


def read_document(path: Path, environ: Mapping[str, str]) -> tuple[dict[str, object], list[str]]:
    """The tree of a file with its overrides, and what is wrong with the names of variables.

    Raises:
        ConfigInvalid: there is no file, it cannot be read, or it is not TOML.
    """
    document = parse(path)
    return document, override(document, environ)


def parse(path: Path) -> dict[str, object]:
    """The tree of the file alone."""
    try:
        text = path.read_bytes().decode()
        return tomllib.loads(text)
    except FileNotFoundError:
        fault = f"there is no file {path}; write one with: haulage init, or name another with --config"
    except OSError as problem:
        fault = f"{path} cannot be read: {problem.strerror}; let the user that runs Haulage read it"
    except UnicodeDecodeError as problem:
        line = path.read_bytes()[: problem.start].count(b"\n") + 1
        fault = f"line {line} is not UTF-8; save the file in that encoding"
    except tomllib.TOMLDecodeError as problem:
        fault = f"it is not TOML: {problem}"
    raise ConfigInvalid([fault], path.name)


def override(document: dict[str, object], environ: Mapping[str, str]) -> list[str]:
    """Put the variables into the tree; gives a sentence for each that leads nowhere."""
    found: list[str] = []
    referenced = {f"{text.removeprefix('env:')}" for text in texts(document) if text.startswith("env:")}
    for variable in sorted(environ):
        ours = variable.startswith(PREFIX) and variable not in OTHER_VARIABLES and variable not in referenced
        if not ours or not environ[variable].strip():
            continue
        steps = variable.removeprefix(PREFIX).lower().split("__")
        if len(steps) == 1 and steps[0] not in TOP_KEYS:
            guess = meant(steps[0], TOP_KEYS)
            if steps[0] not in SECTIONS and guess.startswith("did you mean"):
                found.append(f"{variable}: there is no such setting; {_spelled(guess)}")
            continue
        if not _put(document, steps, Given(environ[variable], variable)):
            found.append(f"{variable}: {'.'.join(steps[:-1])} is not a table; see docs/configuration.md")
    return found


def _spelled(guess: str) -> str:
    word = guess.removeprefix("did you mean ").removesuffix("?")
    return f"did you mean {PREFIX}{word.upper()}?"


def _put(document: dict[str, object], steps: list[str], value: Given) -> bool:
    table = document
    for step in steps[:-1]:
        inside = table.setdefault(_existing(table, step), {})
        if not isinstance(inside, dict):
            return False
        table = inside
    table[_existing(table, steps[-1])] = value
    return True


def _existing(table: Mapping[str, object], step: str) -> str:
    """The key of a table that a variable's step means: the file may write ``ci-bot`` or ``Amina``."""
    return next((key for key in table if key.lower().replace("-", "_") == step), step)


def texts(value: object) -> Iterator[str]:
    """Every text of a tree."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inside in value.values():
            yield from texts(inside)
    elif isinstance(value, list):
        for inside in value:
            yield from texts(inside)


def open_to_others(path: Path) -> bool:
    """Say whether any user of the host can read a file."""
    return bool(path.stat().st_mode & stat.S_IROTH)

"""docs/cli.md and docs/configuration.md say what the program does.

How the generated parts are compared and written stands in written.py.
"""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import click
import pytest
from tests.docs.written import assert_written

from haulage.cli.main import COMMANDS, haulage
from haulage.config import load
from haulage.config.table import Table
from haulage.core import limits
from haulage.core.errors import ConfigInvalid

ROOT = Path(__file__).parents[2]
CLI = ROOT / "docs" / "cli.md"
CONFIGURATION = ROOT / "docs" / "configuration.md"
FAULTY = """\
store = "sqlite:///haulage.db"
secret_keys = ["env:HAULAGE_SECRET"]
[sources.shop]
url = "sqlite:///shop.db"
[datasets.orders]
source = "shopp"
sql = "select id, total from orders where placed_at >= :sinse"
formats = ["csv", "jsn"]
[datasets.orders.parameters]
since = {type = "date", default = "2026-02-30"}
[limits.exports]
slots = "two"
file_byte = "128 MiB"
"""


def commands():
    """Every command with the words that call it, groups before their members."""
    context = click.Context(haulage, info_name="haulage", terminal_width=100, **haulage.context_settings)
    for name in haulage.list_commands(context):
        command = haulage.get_command(context, name)
        inside = click.Context(command, info_name=name, parent=context)
        yield (name,), inside
        if isinstance(command, click.Group):
            for inner, member in command.commands.items():
                yield (name, inner), click.Context(member, info_name=inner, parent=inside)


def test_the_reference_of_commands_is_fresh():
    parts = [f"### haulage {' '.join(words)}\n\n```\n{context.get_help()}\n```\n" for words, context in commands()]

    assert_written(CLI, "commands", "\n".join(parts))


@pytest.mark.parametrize(("words", "context"), [pytest.param(*each, id=" ".join(each[0])) for each in commands()])
def test_every_command_explains_itself(words, context):
    command, text = context.command, context.get_help()
    options = {option for parameter in command.params for option in parameter.opts}

    assert f"Example:\n    haulage {words[0]}" in text
    assert command.help
    assert all(parameter.help or parameter.param_type_name == "argument" for parameter in command.params)
    if not isinstance(command, click.Group):
        assert {"--json"} | (set() if words == ("demo",) else {"--config"}) <= options


def test_the_table_of_commands_is_complete():
    assert set(COMMANDS) == {words[0] for words, _ in commands()}


@pytest.mark.parametrize("cls", [limits.BuildLimits, limits.ExportLimits, limits.DoorLimits])
def test_every_limit_stands_in_the_documentation(cls):
    rows = [
        f"| `{field.name}` | {written(field.default)} | {meaning(field.name)} |\n"
        for field in fields(cls)
        if field.name != "build"
    ]

    assert_written(CONFIGURATION, cls.__name__, "| key | default | what it says |\n|---|---|---|\n" + "".join(rows))


def written(default) -> str:
    """A default as somebody would write it."""
    for unit, size in (("GiB", limits.GIB), ("MiB", limits.MIB), ("KiB", limits.KIB)):
        if isinstance(default, int) and default >= size and default % size == 0:
            return f'`"{default // size} {unit}"`'
    return f"{default:,}"


def meaning(name: str) -> str:
    """What the comment beside a limit says; that comment is the only place where it is explained."""
    source = (ROOT / "src/haulage/core/limits.py").read_text()
    found = re.search(rf"^    {name}: .*?  # (.*)$", source, re.MULTILINE)
    assert found, f"core/limits.py says nothing about {name}"
    text = re.sub(r"^([a-z]+_[a-z_]+)", r"crossing it ends a run with `\1`", found[1].replace("|", "\\|"))
    return text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")


def test_every_key_that_is_read_stands_in_the_documentation(tmp_path, monkeypatch):
    read = set()
    close = Table.close

    def remember(table):
        read.update((table.path, key) for key in table._known)
        close(table)

    monkeypatch.setattr(Table, "close", remember)
    (tmp_path / "haulage.toml").write_text(
        f'secret_keys = ["{"0123456789abcdef" * 2}"]\n'
        '[sources.shop]\nurl = "sqlite:///shop.db"\n'
        '[datasets.orders]\nsource = "shop"\nsql = "select :since"\ncolumns = {a = {}}\nparameters = {since = {}}\n'
        '[parents.book]\nsource = "shop"\nowners = "select owner from books where id = :parent"\n'
        f'[keys.amina]\nhash = "sha256:{"0" * 64}"\n'
    )
    load(tmp_path / "haulage.toml", {})
    text = CONFIGURATION.read_text()

    assert len(read) > 60
    assert not [key for path, key in read if f"`{key}`" not in text and f"[{key}" not in text and path != "limits"]


def test_the_faults_of_the_example_are_those_that_are_told(tmp_path):
    (tmp_path / "haulage.toml").write_text(FAULTY)
    with pytest.raises(ConfigInvalid) as refused:
        load(tmp_path / "haulage.toml", {}, formats=("csv", "json", "ndjson"), schemes=("sqlite",))

    assert_written(CONFIGURATION, "faults", f"```\n{refused.value}\n```\n")


def test_the_configuration_of_the_documentation_works(tmp_path):
    (example,) = re.findall(r"```toml\n(.*?)```", CONFIGURATION.read_text(), re.DOTALL)
    (tmp_path / "haulage.toml").write_text(example)

    settings = load(tmp_path / "haulage.toml", {"HAULAGE_SECRET": "0123456789abcdef" * 2})

    assert ["orders"] == [dataset.name for dataset in settings.datasets]

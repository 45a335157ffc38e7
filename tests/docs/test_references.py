"""docs/errors.md and docs/http.md say what the program does, and every link of the documents leads somewhere."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

import pytest
from tests.docs.written import DOCS, assert_written

from haulage.cli.advice import ADVICE
from haulage.core import events
from haulage.core.errors import CATALOGUE
from haulage.core.events import Event

ROOT = DOCS.parent
PAGES = [*sorted(DOCS.glob("*.md")), *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md"))]


def test_every_code_is_documented():
    lines = ["| code | status | what it says | what to do |", "|---|---|---|---|"]
    for failure in CATALOGUE.values():
        status = failure.status or "of a run"
        lines.append(f"| `{failure.code}` | {status} | {failure.sentence} | {ADVICE[failure.code]} |")

    assert list(CATALOGUE) == list(ADVICE)
    assert_written(DOCS / "errors.md", "codes", "\n".join(lines))


def test_every_route_is_documented(tmp_path):
    from haulage.app import Haulage
    from haulage.config import load

    config = tmp_path / "haulage.toml"
    config.write_text(f'store = "sqlite:///h.db"\nartifacts = "file:./a"\nsecret_keys = ["{secrets.token_hex(32)}"]\n')
    config.chmod(0o600)
    haul = Haulage(load(config, {}), environ={})
    document = haul.asgi().openapi()
    haul.close()
    lines = ["| route | does | answers |", "|---|---|---|"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            does = operation.get("description", "").partition("\n")[0].replace("``", "`")
            answers = ", ".join(sorted(operation["responses"]))
            lines.append(f"| `{method.upper()} {path.removeprefix('/api')}` | {does} | {answers} |")

    assert_written(DOCS / "http.md", "routes", "\n".join(lines))


def test_every_event_of_the_log_is_documented():
    kinds = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, events.Event)]
    lines = ["| event | what happened |", "|---|---|"]
    lines += [
        f"| `{each.__name__}` | {' '.join((each.__doc__ or '').split())} |" for each in kinds if each is not Event
    ]

    assert_written(DOCS / "running.md", "events", "\n".join(lines))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path):
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
    dead = [link for link in links if not (page.parent / link).exists()]

    assert [] == dead

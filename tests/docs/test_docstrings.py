"""The public names explain themselves, and every example of a docstring is run."""

from __future__ import annotations

import doctest
import pkgutil
import pydoc
from contextlib import nullcontext
from datetime import date
from importlib import import_module

import pytest
from tests.docs.test_examples import worker
from tests.stories.terminal import CONFIGURATION, Terminal

import haulage
from haulage import Haulage, Requester


def modules():
    """Every module with an example that can be run."""
    for found in pkgutil.walk_packages(haulage.__path__, "haulage."):
        if ".versions." not in found.name and not found.name.endswith(("__main__", ".env")):
            yield found.name


@pytest.fixture
def known(request, tmp_path, monkeypatch):
    """What the examples speak of: a Haulage with a worker, and somebody who asks."""
    # An example declares `orders` in Python; the configuration may then not have it too.
    python = "haulage.declaring.Declares.dataset]" in request.node.name
    configuration = CONFIGURATION.replace("datasets.orders", "datasets.others") if python else CONFIGURATION
    monkeypatch.chdir(Terminal(tmp_path).shop(configuration=configuration).folder)
    haul = Haulage.from_toml("haulage.toml")
    somebody = Requester("default", "amina")
    names = {"Requester": Requester, "Haulage": Haulage, "Column": haulage.Column, "Page": haulage.Page}
    yield {"haul": haul, "requester": somebody, "date": date, "__name__": "shop.tickets", **names}
    haul.close()


def examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name in modules():
        for found in finder.find(import_module(name), name):
            if found.examples:
                yield pytest.param(found, id=found.name)


@pytest.mark.slow
@pytest.mark.parametrize("example", list(examples()))
def test_every_example_is_run(example, known):
    example.globs |= known
    told = []

    with worker(known["haul"]) if "exports.request" in example.docstring else nullcontext():
        failed, tried = doctest.DocTestRunner().run(example, out=told.append)

    assert (0, len(example.examples)) == (failed, tried), "".join(told)


def test_a_star_import_gives_the_public_names_and_each_explains_itself():
    names = {}
    exec("from haulage import *", names)
    public = [name for name in haulage.__all__ if name != "__version__"]

    assert set(haulage.__all__) <= set(names)
    assert sorted(haulage.__all__) == dir(haulage)
    for name in public:
        assert (names[name].__doc__ or "").strip(), name
        assert not (names[name].__doc__ or "").startswith(f"{name}("), f"{name} has only what dataclass wrote"
    text = pydoc.render_doc(Haulage, renderer=pydoc.plaintext)
    for verb in ("from_toml", "dataset", "standing", "asgi", "close"):
        assert f"{verb}(" in text

"""Process tests build their own house; everything that a house starts, it ends."""

from __future__ import annotations

import shutil

import pytest
from tests.conformance.cases import STORES
from tests.process.house import LIMITS, House, make_source
from tests.process.launcher import Launcher
from tests.process.shimmed import build_shim

from haulage.stores.open import open_store


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/process" in item.path.as_posix():
            item.add_marker(pytest.mark.process)


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """A source and a migrated store, made once and copied for each house."""
    folder = tmp_path_factory.mktemp("template")
    make_source(folder / "shop.db")
    open_store(f"sqlite:///{folder}/haulage.db").close()
    return folder


@pytest.fixture(scope="session")
def launcher():
    started = Launcher()
    yield started
    started.close()


@pytest.fixture(scope="session")
def shimmed_launcher(tmp_path_factory):
    """A launcher whose workers make their calls through the shim."""
    started = Launcher(LD_PRELOAD=str(build_shim(tmp_path_factory.mktemp("shim"))))
    yield started
    started.close()


@pytest.fixture
def house(template, launcher, tmp_path, request):
    """A house with short limits; a test marks itself with other limits by indirect parameters."""
    for path in template.glob("*.db"):
        shutil.copy(path, tmp_path)
    built = House(tmp_path, launcher, getattr(request, "param", LIMITS))
    yield built
    built.close()


@pytest.fixture(params=["sqlite", *(pytest.param(name, marks=pytest.mark.slow) for name in ("postgresql", "mariadb"))])
def any_house(request, template, launcher, tmp_path):
    """A house on each kind of database; ``meddle`` runs a statement past its store."""
    shutil.copy(template / "shop.db", tmp_path)
    opener = STORES[request.param]
    url = opener.url(tmp_path)
    built = House(tmp_path, launcher, store_url=url)
    built.kind = request.param
    built.meddle = lambda *statements: opener.execute(url, *statements)
    yield built
    built.close()
    opener.done(url)

"""Process tests build their own house; everything that a house starts, it ends."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from tests.conformance.cases import STORES
from tests.process.house import (
    DATASETS,
    LIMITS,
    ON_POSTGRESQL,
    House,
    make_postgresql_source,
    make_source,
    until,
)
from tests.process.launcher import Launcher
from tests.process.shimmed import build_shim
from tests.servers import postgresql

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


@pytest.fixture(scope="session")
def postgresql_source():
    """A database that is only read, shared by all houses of this process."""
    return make_postgresql_source("names_of_the_houses")


@pytest.fixture(params=["sqlite", "postgresql"])
def sourced_house(request, template, launcher, tmp_path):
    """A house on each kind of source; ``at_work`` says how many of its sessions its server has."""
    for path in template.glob("*.db"):
        shutil.copy(path, tmp_path)
    if request.param == "sqlite":
        built = House(tmp_path, launcher)
        built.at_work = lambda: 0  # it has no server
    else:
        url = request.getfixturevalue("postgresql_source")
        datasets = [replace(each, sql=ON_POSTGRESQL.get(each.name, each.sql)) for each in DATASETS]
        built = House(tmp_path, launcher, source_url=url, datasets=datasets)
        built.at_work = sessions_of_builds
        built.wait_for_sql = lambda _child: until(lambda: sessions_of_builds("active"))
    yield built
    built.close()


def sessions_of_builds(*states: str) -> int:
    """What the server itself says."""
    ours = "datname = 'names_of_the_houses' and application_name like 'haulage %%'"
    asked = f"select count(*) from pg_stat_activity where {ours} and (state = any(%s) or %s)"
    return postgresql.server().execute("postgres", asked, (list(states), not states))[0][0]


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

"""Process tests build their own house; everything that a house starts, it ends."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from tests.conformance.cases import STORES
from tests.process.house import (
    DATASETS,
    LIMITS,
    ON_MARIADB,
    ON_POSTGRESQL,
    House,
    make_mariadb_source,
    make_postgresql_source,
    make_source,
    until,
)
from tests.process.launcher import Launcher
from tests.process.shimmed import build_shim
from tests.servers import mariadb, postgresql

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


@pytest.fixture(scope="session")
def mariadb_source():
    """The same on the other server."""
    return make_mariadb_source("names_of_the_houses")


@pytest.fixture(params=["sqlite", "postgresql", pytest.param("mariadb", marks=pytest.mark.slow)])
def sourced_house(request, template, launcher, tmp_path):
    """A house on each kind of source; ``at_work`` says how many of its sessions its server has."""
    for path in template.glob("*.db"):
        shutil.copy(path, tmp_path)
    if request.param == "sqlite":
        built = House(tmp_path, launcher)
        built.at_work = lambda: 0  # it has no server
    else:
        url = request.getfixturevalue(f"{request.param}_source")
        on_server, asked = {
            "postgresql": (ON_POSTGRESQL, sessions_of_builds),
            "mariadb": (ON_MARIADB, statements_of_builds),
        }[request.param]
        datasets = [replace(each, sql=on_server.get(each.name, each.sql)) for each in DATASETS]
        built = House(tmp_path, launcher, source_url=url, datasets=datasets)
        built.at_work = asked
        built.wait_for_sql = lambda _child: until(lambda: asked("active"))
    built.kind = request.param
    yield built
    built.close()


def statements_of_builds(*_states: str) -> int:
    """What MariaDB itself says."""
    asked = "select count(*) from information_schema.processlist where db = 'names_of_the_houses'"
    return mariadb.server().execute(None, asked + " and command = 'Query'")[0][0]


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

"""haulage.toml and HAULAGE_* become settings."""

from __future__ import annotations

import dataclasses
from datetime import date

import pytest
from tests.core.configuration import FORMATS, HASH, SECRET, SHOP, SMALLEST, faults_of, writer

from haulage.config import load, read_keys
from haulage.core.limits import MIB, BuildLimits, ExportLimits


@pytest.fixture
def write(tmp_path):
    return writer(tmp_path)


# -- what comes out --------------------------------------------------------------------------------------


def test_one_secret_is_a_configuration(write, tmp_path):
    settings = load(write(SMALLEST), {})

    assert f"sqlite:///{tmp_path}/haulage.db" == settings.store
    assert f"file:{tmp_path}/artifacts" == settings.artifacts
    assert (SECRET,) == settings.secret_keys
    assert ExportLimits() == settings.exports
    assert ("127.0.0.1", 8480, 2) == (settings.host, settings.port, settings.lanes)
    assert () == settings.trusted_proxies, "nobody is believed unasked"
    assert ("default", "operator", frozenset({"*"})) == (
        settings.operator.tenant,
        settings.operator.account,
        settings.operator.grants,
    )
    assert () == settings.warnings


@pytest.mark.parametrize(
    ("written", "environ"),
    [
        ('[serve]\ntrusted_proxies = ["10.0.0.1", "192.168.0.0/16", "::1"]\n', {}),
        ("", {"HAULAGE_SERVE__TRUSTED_PROXIES": "10.0.0.1, 192.168.0.0/16,::1"}),
    ],
)
def test_proxies_are_named_by_address_or_network(write, written, environ):
    settings = load(write(SMALLEST + written), environ)

    assert ("10.0.0.1", "192.168.0.0/16", "::1") == settings.trusted_proxies


def test_places_count_from_the_folder_of_the_file(write, tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    text = 'store = "sqlite:///var/runs.db"\nartifacts = "file:kept"\n' + SHOP

    settings = load(write(text), {})

    assert f"sqlite:///{tmp_path}/var/runs.db" == settings.store
    assert f"file:{tmp_path}/kept" == settings.artifacts
    assert f"sqlite:///{tmp_path}/shop.db" == settings.sources["shop"].url


def test_an_absolute_place_stays(write):
    settings = load(write('store = "sqlite:////srv/runs.db"\nartifacts = "file:/srv/kept"\n' + SMALLEST), {})

    assert ("sqlite:////srv/runs.db", "file:/srv/kept") == (settings.store, settings.artifacts)


@pytest.mark.parametrize(
    ("store", "wanted"),
    [
        ("directory:///srv/runs", "directory:///srv/runs"),
        ("directory:./runs", "directory:{}/runs"),
        ("directory:runs", "directory:{}/runs"),
    ],
)
def test_a_store_may_be_a_folder(write, tmp_path, store, wanted):
    settings = load(write(f'store = "{store}"\n' + SMALLEST), {})

    assert wanted.format(tmp_path) == settings.store


def test_the_dataset_of_the_contract(write):
    text = (
        SHOP
        + """
[datasets.orders]
source = "shop"
label = "Orders"
permission = "orders.read"
sql = "select id, tenant, customer, total, placed_at from orders where placed_at >= :since"
hidden = ["tenant"]
visible = "tenant = :requester_tenant"
key = ["id"]
order = ["placed_at desc"]
formats = ["csv", "json"]
on_worker_loss = "rerun"
verify = "full"
columns = {total = {header = "Total", type = "decimal"}}
limits = {rows = 1000, file_bytes = "1 MiB"}
[datasets.orders.parameters]
since = {type = "date", default = "2000-01-01", label = "Placed since"}
"""
    )

    (orders,) = load(write(text), {}, formats=FORMATS).datasets

    assert ("orders", "shop", "Orders", "orders.read") == (
        orders.name,
        orders.source,
        orders.label,
        orders.permission,
    )
    assert (("tenant",), "tenant = :requester_tenant") == (orders.hidden, orders.visible)
    assert (("id",), ("placed_at desc",), ("csv", "json")) == (orders.key, orders.order, orders.formats)
    assert ("Total", "decimal") == (orders.columns["total"].header, orders.columns["total"].type)
    assert BuildLimits(rows=1000, file_bytes=MIB) == orders.limits
    assert ("rerun", "full") == (orders.on_worker_loss, orders.verify)
    assert ("since", "date", "2000-01-01", "Placed since") == (
        orders.parameters[0].name,
        orders.parameters[0].type,
        orders.parameters[0].default,
        orders.parameters[0].label,
    )


def test_every_kind_of_parameter(write):
    names = "a, b, c, d, e, f, g"
    sql = f"select 1 where (:{names.replace(', ', ', :')}) is null"
    text = (
        SHOP
        + f"""
[datasets.orders]
source = "shop"
sql = "{sql}"
[datasets.orders.parameters]
a = {{optional = true}}
b = {{type = "integer", default = 4}}
c = {{type = "decimal", default = "12.50"}}
d = {{type = "boolean", default = false}}
e = {{type = "date", default = 2026-01-31, end = true}}
f = {{type = "timestamp", default = 2026-01-31T23:30:00Z}}
g = {{type = "choice", many = true, default = ["EWR"], choices = {{EWR = "Newark", JFK = "Kennedy"}}}}
"""
    )

    (dataset,) = load(write(text), {}).datasets
    found = {parameter.name: parameter for parameter in dataset.parameters}

    assert date(2026, 1, 31) == found["e"].default
    assert found["e"].end
    assert ("EWR",) == found["g"].default
    assert (("EWR", "Newark"), ("JFK", "Kennedy")) == found["g"].choices
    assert not found["a"].required


def test_a_query_may_stand_in_a_file_of_its_own(write, tmp_path):
    (tmp_path / "orders.sql").write_text("select 1 as one")
    text = SHOP + '[datasets.orders]\nsource = "shop"\nsql_file = "orders.sql"\n'

    assert "select 1 as one" == load(write(text), {}).datasets[0].sql


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("90", 90), ("2.5", 2.5), ('"2 min"', 120), ('"1.5h"', 5400), ('"7 days"', 604800), ('"250 ms"', 0.25)],
)
def test_times_are_seconds_or_words(write, written, seconds):
    text = SMALLEST + f"[limits.exports]\nqueue_seconds = {written}\n"

    assert pytest.approx(seconds) == load(write(text), {}).exports.queue_seconds


@pytest.mark.parametrize(
    ("written", "size"),
    [("4096", 4096), ('"64 KiB"', 65536), ('"1 MB"', 1_000_000), ('"1.5 MiB"', 1572864), ('"2kib"', 2048)],
)
def test_sizes_are_bytes_or_words(write, written, size):
    text = SMALLEST + f"[limits.exports]\nfile_bytes = {written}\n"

    assert size == load(write(text), {}).exports.build.file_bytes


def test_lanes_are_as_many_as_slots_unless_said(write):
    assert 5 == load(write(SMALLEST + "[limits.exports]\nslots = 5\n"), {}).lanes
    assert 3 == load(write(SMALLEST + "[limits.exports]\nslots = 5\n[worker]\nexports = 3\n"), {}).lanes


def test_keys_and_operator(write):
    text = (
        SMALLEST
        + f"""
[operator]
tenant = "north"
grants = ["operator"]
[keys.amina]
hash = "{HASH}"
tenant = "north"
grants = ["orders.read"]
banned = true
"""
    )

    settings = load(write(text), {})
    amina = settings.keys["amina"].requester("s1")

    assert ("north", "amina", True, "amina") == (amina.tenant, amina.account, amina.banned, amina.key)
    assert frozenset({"operator"}) == settings.operator.grants
    assert (settings.keys, settings.operator) == read_keys(write(text), {})


# -- the environment -------------------------------------------------------------------------------------


def test_the_environment_overrides_every_kind_of_key(write):
    environ = {
        "HAULAGE_STORE": "sqlite:////srv/other.db",
        "HAULAGE_LIMITS__EXPORTS__SLOTS": "4",
        "HAULAGE_LIMITS__EXPORTS__FILE_BYTES": "64 MiB",
        "HAULAGE_SOURCES__SHOP__URL": "sqlite:////srv/shop.db",
        "HAULAGE_SERVE__PORT": "9000",
        "HAULAGE_OPERATOR__GRANTS": "operator, orders.read",
        "HAULAGE_KEYS__CI_BOT__BANNED": "true",
    }
    text = SHOP + f'[keys.ci-bot]\nhash = "{HASH}"\n'

    settings = load(write(text), environ)

    assert "sqlite:////srv/other.db" == settings.store
    assert (4, 64 * MIB, 4) == (settings.exports.slots, settings.exports.build.file_bytes, settings.lanes)
    assert "sqlite:////srv/shop.db" == settings.sources["shop"].url
    assert 9000 == settings.port
    assert frozenset({"operator", "orders.read"}) == settings.operator.grants
    assert settings.keys["ci-bot"].banned


def test_secrets_come_from_variables_and_files(write, tmp_path):
    (tmp_path / "old").write_text(SECRET + "\n")
    text = 'secret_keys = ["env:HAULAGE_SECRET", "file:old"]\n'
    fresh = SECRET[::-1]

    assert (fresh, SECRET) == load(write(text), {"HAULAGE_SECRET": fresh}).secret_keys


def test_a_whole_configuration_may_come_from_the_environment(write):
    environ = {"HAULAGE_SECRET_KEYS": f"{SECRET},{SECRET[::-1]}"}

    assert (SECRET, SECRET[::-1]) == load(write(""), environ).secret_keys


def test_what_others_put_into_the_environment_is_left_alone(write):
    environ = {
        "HAULAGE_SECRET": "short",
        "HAULAGE_PORT": "tcp://10.0.0.1:8480",  # as an orchestrator does for a service called haulage
        "HAULAGE_SERVICE_HOST": "10.0.0.1",
        "HAULAGE_CONFIG": "haulage.toml",
        "HAULAGE_APP": "",
    }

    assert 8480 == load(write(SMALLEST), environ).port


def test_a_variable_is_named_when_it_is_wrong(write):
    environ = {"HAULAGE_LIMITS__EXPORTS__SLOTS": "four", "HAULAGE_STOER": "x", "HAULAGE_SERV__PORT": "1"}

    assert (
        "HAULAGE_STOER: there is no such setting; did you mean HAULAGE_STORE?",
        (
            'limits.exports.slots (from HAULAGE_LIMITS__EXPORTS__SLOTS) = "four": is not a whole number; '
            "write a whole number such as 2"
        ),
        "serv (from HAULAGE_SERV__PORT): there is no such key; did you mean serve?",
    ) == faults_of(write(SMALLEST), environ)


# -- file modes ------------------------------------------------------------------------------------------


def test_secrets_that_every_user_can_read_are_warned_of(write):
    path = write(SMALLEST)
    path.chmod(0o644)

    (warning,) = load(path, {}).warnings

    assert f"{path} holds secrets and every user of this host can read it; run: chmod 600 {path}" == warning


def test_a_file_without_secrets_may_be_read(write):
    path = write('secret_keys = ["env:HAULAGE_SECRET"]\n')
    path.chmod(0o644)

    assert () == load(path, {"HAULAGE_SECRET": SECRET}).warnings


def test_what_a_source_sets_is_that_of_each_of_its_datasets_and_of_no_other(write):
    text = (
        SMALLEST
        + """
[sources.shop]
url = "sqlite:///shop.db"
[sources.warehouse]
url = "postgresql://reader:hush@db.example/shop"
[sources.warehouse.session]
"app.tenant" = ":requester_tenant"
role = "reporting"
[datasets.orders]
source = "warehouse"
sql = "select 1 as a"
[datasets.others]
source = "shop"
sql = "select 1 as a"
"""
    )
    orders, others = load(write(text), {}, schemes=("sqlite", "postgresql")).datasets

    assert {"app.tenant": ":requester_tenant", "role": "reporting"} == orders.session
    assert {} == others.session
    assert orders.digest("x") != dataclasses.replace(orders, session={}).digest("x")

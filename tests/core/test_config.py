"""haulage.toml and HAULAGE_* become settings; whatever is wrong is said at once, and no secret is."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from haulage.config import load, read_keys
from haulage.core.errors import ConfigInvalid
from haulage.core.limits import MIB, BuildLimits, ExportLimits

SECRET = "kJ8s-2hd0qLx7Zp4Wm1Rv6Tt3Yy9Uu5I"
HASH = "sha256:" + "0123456789abcdef" * 4
SMALLEST = f'secret_keys = ["{SECRET}"]\n'
SHOP = SMALLEST + '[sources.shop]\nurl = "sqlite:///shop.db"\n'
FORMATS = ("csv", "json", "ndjson")


@pytest.fixture
def write(tmp_path):
    def write_to(text, name="haulage.toml"):
        path = tmp_path / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    return write_to


def faults_of(path: Path, environ=None, **known):
    with pytest.raises(ConfigInvalid) as refused:
        load(path, environ or {}, **({"formats": FORMATS, "schemes": ("sqlite",)} | known))
    return refused.value.faults


def only_fault(path: Path, environ=None):
    (fault,) = faults_of(path, environ)
    return fault


# -- what comes out --------------------------------------------------------------------------------------


def test_one_secret_is_a_configuration(write, tmp_path):
    settings = load(write(SMALLEST), {})

    assert f"sqlite:///{tmp_path}/haulage.db" == settings.store
    assert f"file:{tmp_path}/artifacts" == settings.artifacts
    assert (SECRET,) == settings.secret_keys
    assert ExportLimits() == settings.exports
    assert ("127.0.0.1", 8480, 2) == (settings.host, settings.port, settings.lanes)
    assert ("default", "operator", frozenset({"*"})) == (
        settings.operator.tenant,
        settings.operator.account,
        settings.operator.grants,
    )
    assert () == settings.warnings


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
    assert "rerun" == orders.on_worker_loss
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


# -- faults ----------------------------------------------------------------------------------------------


def test_every_fault_is_told_at_once(write):
    text = """
stor = "sqlite:///haulage.db"
secret_keys = ["env:HAULAGE_SECRET"]
[sources.shop]
url = "sqlite:///shop.db"
[datasets.orders]
source = "shopp"
sql = "select id from orders where placed_at >= :sinc"
formats = ["csv", "jsn"]
[datasets.orders.parameters]
since = {type = "date", default = "2000-13-01"}
[limits.exports]
slots = "two"
file_bytes = "128 MoB"
[keys.amina]
hash = "sha256:123"
"""

    faults = faults_of(write(text))

    expected = [
        "stor: there is no such key; did you mean store?",
        "secret_keys names the environment variable HAULAGE_SECRET, which is not set; set it or write the value",
        'datasets.orders.source = "shopp": there is no such source; did you mean shop?',
        'datasets.orders.formats = "jsn": there is no such format; did you mean json?',
        'datasets.orders.parameters.since.default = "2000-13-01" is no date; write "2026-01-31"',
        (
            "datasets.orders.sql binds :sinc, which no parameter declares; did you mean since? "
            "(or write sinc = {type = …} in [datasets.orders.parameters])"
        ),
        "datasets.orders.parameters.since is bound nowhere; write :since in the query, or leave it out",
        'limits.exports.slots = "two": is not a whole number; write a whole number such as 2',
        'limits.exports.file_bytes = "128 MoB": is not a size; write a number of bytes, or "128 MiB"',
        'keys.amina.hash is not a hash of a key; write "sha256:" and 64 hex digits, as haulage keys new prints them',
    ]

    assert sorted(expected) == sorted(faults)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("slots = 0", "limits.exports.slots = 0: is out of range; write a whole number from 1 on"),
        ("slots = true", "limits.exports.slots = true: is not a whole number; write a whole number such as 2"),
        ("slots = 2.5", "limits.exports.slots = 2.5: is not a whole number; write a whole number such as 2"),
        (
            "queue_seconds = -1",
            'limits.exports.queue_seconds = -1: is not a time; write a number of seconds, or "2 min"',
        ),
        (
            "queue_seconds = inf",
            'limits.exports.queue_seconds = Infinity: is not a time; write a number of seconds, or "2 min"',
        ),
        (
            "beat_seconds = 6",
            "limits.exports.beat_seconds = 6: a beat must fit five times into lease_seconds = 15; write at most 3",
        ),
        (
            'file_bytes = "1 GiB"',
            "limits.exports.file_bytes = 1073741824: one file may not be larger than store_bytes = 536870912",
        ),
        ("slot = 2", "limits.exports.slot: there is no such key; did you mean slots?"),
    ],
)
def test_a_limit_that_cannot_work(write, text, fault):
    assert fault == only_fault(write(SMALLEST + "[limits.exports]\n" + text))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", 'datasets.orders.sql is missing; write sql = "select …" or sql_file = "query.sql"'),
        ('sql = "select 1"\nsql_file = "q.sql"', "datasets.orders has sql and sql_file; write one of them"),
        ("sql = \"select :requester_tenant, :requester_account, :as_of, 1::int, ':no'\"", None),
        (
            'sql = "select 1"\nvisible = "tenant = :tenant"',
            (
                "datasets.orders.visible binds :tenant, which no parameter declares; there are: as_of, "
                "requester_account, requester_tenant (or write tenant = {type = …} in [datasets.orders.parameters])"
            ),
        ),
        (
            'sql = "select 1"\norder = ["placed_at downwards"]',
            'datasets.orders.order = "placed_at downwards": is no column with a direction; write "placed_at desc"',
        ),
        (
            'sql = "select 1"\ncolumns = {a = {type = "money"}}',
            (
                'datasets.orders.columns.a.type = "money": is no type of a column; there are: boolean, date, decimal, '
                "float, integer, json, text, timestamp"
            ),
        ),
        (
            'sql = "select 1"\nformats = []',
            'datasets.orders.formats = []: write at least one, such as ["csv"]',
        ),
        (
            'sql = "select 1"\nformats = "csv"',
            'datasets.orders.formats = "csv": is not a list of texts; write ["one", "two"]',
        ),
        (
            'sql = "select :as_of"\nparameters = {as_of = {type = "date"}}',
            "datasets.orders.parameters.as_of: this name is bound by Haulage itself; choose another",
        ),
        (
            'sql = "select :a"\nparameters = {a = {type = "choice"}}',
            (
                "datasets.orders.parameters.a: choices and the type choice belong together; "
                'write choices = ["one", "two"] too'
            ),
        ),
        (
            'sql = "select :a"\nparameters = {a = {default = ["x"]}}',
            'datasets.orders.parameters.a.default = ["x"]: is a list; write one value, or many = true',
        ),
        (
            'sql = "select :a"\nparameters = {a = {type = "timestamp", default = 2026-01-31T23:30:00}}',
            (
                'datasets.orders.parameters.a.default = "2026-01-31 23:30:00" is no timestamp; '
                'write "2026-01-31T23:30:00Z"'
            ),
        ),
        (
            'sql = "select :a"\nparameters = {a = {end = true}}',
            'datasets.orders.parameters.a.end = true: only a date can include its day; write type = "date"',
        ),
    ],
)
def test_a_dataset_that_cannot_work(write, text, fault):
    path = write(SHOP + '[datasets.orders]\nsource = "shop"\n' + text)

    if fault is None:
        assert 1 == len(load(path, {}).datasets)
    else:
        assert fault == only_fault(path)


@pytest.mark.parametrize(
    ("secret", "fault"),
    [
        ("too-short", "secret_keys entry 1 is too weak: it needs 32 random bytes; "),
        ("a" * 40, "secret_keys entry 1 is too weak: it needs 32 random bytes; "),
    ],
)
def test_a_weak_secret_is_refused_and_not_shown(write, secret, fault):
    found = only_fault(write(f'secret_keys = ["{secret}"]\n'))

    assert found.startswith(fault)
    assert secret not in found


def test_no_fault_shows_a_secret(write):
    hidden = "hush-hush"
    text = f"""
secret_keys = "{hidden}{SECRET}"
secret_key = "{hidden}{SECRET}"
store = "postgresql://amina:{hidden}@db/haulage?sslpassword={hidden}"
[sources.shop]
url = "mysqll://amina:{hidden}@db/shop"
password = "{hidden}"
[keys.amina]
hash = "hk_{hidden}"
"""

    faults = faults_of(write(text))

    assert 6 == len(faults)
    assert not [fault for fault in faults if hidden in fault]
    assert [fault for fault in faults if "postgresql://***@db/haulage" in fault]


def test_a_key_that_was_pasted_instead_of_its_hash_is_told_so(write):
    fault = only_fault(write(SMALLEST + '[keys.amina]\nhash = "hk_abc"\n'))

    assert "keys.amina.hash is the key itself; write its hash, which haulage keys new prints beside a new key" == fault


def test_one_account_has_one_set_of_rights(write):
    key = '[keys.{name}]\nhash = "sha256:{digit}"\naccount = "amina"\ngrants = [{grants}]\n'
    same = key.format(name="old", digit="0" * 64, grants="") + key.format(name="new", digit="1" * 64, grants="")
    other = key.format(name="old", digit="0" * 64, grants="") + key.format(name="new", digit="1" * 64, grants='"x"')

    assert 2 == len(load(write(SMALLEST + same), {}).keys)  # how a key is changed without a pause

    assert only_fault(write(SMALLEST + other)).startswith('keys.new.account = "amina": keys.old is the same account')


def test_a_hash_belongs_to_one_key(write):
    text = f'[keys.a]\nhash = "{HASH}"\n[keys.b]\nhash = "{HASH}"\n'

    assert "keys.b.hash is that of keys.a too; make each with: haulage keys new" == only_fault(write(SMALLEST + text))


@pytest.mark.parametrize(
    ("store", "artifacts"),
    [("postgresql://db/haulage", "file:x"), ("sqlite:///:memory:", "file:x"), ("sqlite:///x.db", "s3://bucket")],
)
def test_a_place_of_a_later_version_is_refused(write, store, artifacts):
    fault = only_fault(write(f'store = "{store}"\nartifacts = "{artifacts}"\n' + SMALLEST))

    assert "cannot be used by this version" in fault


def test_the_line_of_a_syntax_error_is_told(write):
    fault = only_fault(write('secret_keys = ["x"]\nstore "x"\n'))

    assert fault.startswith("it is not TOML: ")
    assert "line 2" in fault


def test_a_missing_file_says_what_to_do(tmp_path):
    fault = only_fault(tmp_path / "haulage.toml")

    assert (
        f"there is no file {tmp_path}/haulage.toml; write one with: haulage init, or name another with --config"
        == fault
    )


def test_a_table_where_a_value_belongs_and_the_other_way_round(write):
    faults = faults_of(write(SMALLEST + 'sources = "shop"\n[store]\nurl = "x"\n'))

    assert (
        'sources = "shop": is not a table; write [sources] and its keys below',
        'store = {"url": "x"}: is not a URL; write "sqlite:///shop.db"',
    ) == faults


def test_a_python_dataset_is_judged_by_the_same_rules():
    from haulage.config import Known, dataset_faults
    from haulage.core.catalogue import Dataset

    dataset = Dataset("orders", "shopp", function=lambda: "select 1", formats=("csv", "jsn"))

    assert [
        'datasets.orders.source = "shopp": there is no such source; did you mean shop?',
        'datasets.orders.formats = "jsn": there is no such format; did you mean json?',
    ] == dataset_faults(dataset, Known({"shop"}, FORMATS))


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

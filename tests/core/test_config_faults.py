"""Whatever is wrong with a configuration is said at once, with what to write instead, and no secret is."""

from __future__ import annotations

import pytest
from tests.core.configuration import FORMATS, HASH, SECRET, SHOP, SMALLEST, faults_of, only_fault, writer

from haulage.config import Known, dataset_faults, load
from haulage.core.catalogue import Column, Dataset, Pages


@pytest.fixture
def write(tmp_path):
    return writer(tmp_path)


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


def test_where_there_is_no_source_at_all_it_is_told_how_to_write_one(write):
    text = 'secret_keys = ["kJ8s-2hd0qLx7Zp4Wm1Rv6Tt3Yy9Uu5I"]\n[datasets.orders]\nsource = "shop"\nsql = "select 1"\n'

    assert (
        'datasets.orders.source = "shop": there is no such source; '
        'write one: [sources.shop] with url = "sqlite:///shop.db"'
    ) == only_fault(write(text))


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


def test_a_proxy_that_is_no_address_is_told_each(write):
    text = '[serve]\ntrusted_proxies = ["*", "10.0.0.1", "10.0.0.1/8", "proxy.example"]\n'

    assert [
        f'serve.trusted_proxies = ["*", "10.0.0.1", "10.0.0.1/8", "proxy.example"]: holds "{each}", no address or '
        'network; write "127.0.0.1" or "10.0.0.0/8"'
        for each in ("*", "10.0.0.1/8", "proxy.example")
    ] == list(faults_of(write(SMALLEST + text)))


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
                "requester_account, requester_grants, requester_tenant "
                "(or write tenant = {type = …} in [datasets.orders.parameters])"
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
            'datasets.orders.formats = "csv": is not a list; write ["csv"]',
        ),
        (
            'sql = "select :as_of"\nparameters = {as_of = {type = "date"}}',
            "datasets.orders.parameters.as_of: this name is bound by Haulage itself; choose another",
        ),
        (
            'sql = "select :limit"\nparameters = {limit = {type = "integer"}}',
            "datasets.orders.parameters.limit: in a query string this name is Haulage's own; choose another",
        ),
        (
            'sql = "select 1"\npolicy_revision = "select :as_of, :requester_account in (:requester_grants)"',
            (
                "datasets.orders.policy_revision binds :as_of; it is asked at every download, and knows only "
                ":requester_tenant, :requester_account, :requester_grants"
            ),
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
        (
            'sql = "select :a"\nparameters = {a = {type = "date", end = true, default = "9999-12-31"}}',
            (
                'datasets.orders.parameters.a.default = "9999-12-31": has no day after it to bind; '
                "write an earlier day, or none"
            ),
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
    ("kind", "default"),
    [
        ("date", '"20260131"'), ("date", '"2026-W05-6"'), ("decimal", '"1_000.5"'), ("decimal", "1e300"),
        ("text", '"a\\u0000b"'), ("timestamp", '"0001-01-01T00:00:00+23:00"'), ("integer", '"42"'),
        ("boolean", '"true"'),
    ],
)  # fmt: skip
def test_a_default_that_the_door_could_not_read_is_a_fault(write, kind, default):
    """It would otherwise be found by everybody who looks at the datasets."""
    dataset = '[datasets.orders]\nsource = "shop"\nsql = "select :a"\n'
    path = write(SHOP + dataset + f'parameters = {{a = {{type = "{kind}", default = {default}}}}}')

    assert f" is no {kind}; write " in only_fault(path)


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
store = "postgresql+asyncpg://amina:{hidden}@db/haulage?sslpassword={hidden}"
[sources.shop]
url = "mysqll://amina:{hidden}@db/shop"
password = "{hidden}"
[keys.amina]
hash = "hk_{hidden}"
"""

    faults = faults_of(write(text))

    assert 6 == len(faults)
    assert not [fault for fault in faults if hidden in fault]
    assert [fault for fault in faults if "postgresql+asyncpg://***@db/haulage" in fault]


def test_a_key_that_was_pasted_instead_of_its_hash_is_told_so(write):
    fault = only_fault(write(SMALLEST + '[keys.amina]\nhash = "hk_abc"\n'))

    assert "keys.amina.hash is the key itself; write its hash, which haulage keys new prints beside a new key" == fault


def test_one_account_has_one_set_of_rights(write):
    key = '[keys.{name}]\nhash = "sha256:{digit}"\naccount = "amina"\ngrants = [{grants}]\n'
    same = key.format(name="old", digit="0" * 64, grants="") + key.format(name="new", digit="1" * 64, grants="")
    other = key.format(name="old", digit="0" * 64, grants="") + key.format(name="new", digit="1" * 64, grants='"x"')

    assert 2 == len(load(write(SMALLEST + same), {}).keys)  # how a key is changed without a pause
    assert 2 == len(load(write(SMALLEST + same + "banned = true\n"), {}).keys)  # how one that leaked is stopped
    assert 2 == len(load(write(SMALLEST + other + "banned = true\n"), {}).keys)

    assert only_fault(write(SMALLEST + other)).startswith('keys.new.account = "amina": keys.old is the same account')


def test_every_entry_of_the_secrets_is_judged(write):
    entries = 'secret_keys = ["short", "env:NOT_SET", "file:nowhere", 5]\n'

    faults = faults_of(write(entries))

    assert 4 == len(faults)
    assert [True] * 4 == [
        told in fault
        for told, fault in zip(("entry 1 is too weak", "NOT_SET", "nowhere", "entry 4"), faults, strict=True)
    ]


@pytest.mark.parametrize("table", ["operator", "keys.amina"])
@pytest.mark.parametrize("key", ["tenant", "account"])
def test_a_tenant_or_account_is_no_longer_than_every_store_keeps(write, table, key):
    hash_ = f'hash = "{HASH}"\n' if table == "keys.amina" else ""
    fault = only_fault(write(f'{SMALLEST}[{table}]\n{hash_}{key} = "{"ä" * 201}"\n'))
    longest = load(write(f'{SMALLEST}[{table}]\n{hash_}{key} = "{"ä" * 200}"\n'), {})

    assert fault.startswith(f"{table}.{key} = ")
    assert "is not text of at most 200 characters" in fault
    assert "ä" * 200 in (
        longest.operator.tenant,
        longest.operator.account,
        *[text for kept in longest.keys.values() for text in (kept.tenant, kept.account)],
    )


def test_a_hash_belongs_to_one_key(write):
    text = f'[keys.a]\nhash = "{HASH}"\n[keys.b]\nhash = "{HASH}"\n'

    assert "keys.b.hash is that of keys.a too; make each with: haulage keys new" == only_fault(write(SMALLEST + text))


@pytest.mark.parametrize(
    ("store", "artifacts"),
    [("oracle://db/haulage", "file:x"), ("sqlite:///:memory:", "file:x"), ("sqlite:///x.db", "ftp://host/x")],
)
def test_a_place_of_a_later_version_is_refused(write, store, artifacts):
    fault = only_fault(write(f'store = "{store}"\nartifacts = "{artifacts}"\n' + SMALLEST))

    assert "cannot be used by this version" in fault


@pytest.mark.parametrize(
    ("store", "why"),
    [
        ("postgresql://db", "it names no database"),
        ("mariadb://db/?ssl=yes", "it names no database"),
        ("postgresql+asyncpg://db/haulage", "this driver is not used; write mariadb or postgresql://"),
        ("postgres://db/haulage", 'write "postgresql://user@host/database"'),
        ("mysql+pymysql://db/haulage", 'write "mariadb://user@host/database"'),
    ],
)
def test_a_server_that_cannot_be_used_is_told(write, store, why):
    assert why in only_fault(write(f'store = "{store}"\n' + SMALLEST))


def test_a_password_that_was_not_written_as_a_url_has_it_is_not_shown(write):
    fault = only_fault(write('store = "postgres://amina:pa@ss:wo@rd@db/haulage"\n' + SMALLEST))

    assert "postgres://***@db/haulage" in fault


@pytest.mark.parametrize("store", ["postgresql://amina@db/haulage?proxy=transaction", "mariadb+pymysql://db:3307/h"])
def test_a_database_on_a_server_is_taken_as_it_is_written(write, store):
    assert store == load(write(f'store = "{store}"\n' + SMALLEST), {}).store


@pytest.mark.parametrize("store", ["directory:", "directory:///", "directory:///srv/runs?mode=ro"])
def test_a_folder_without_a_name_is_refused(write, store):
    fault = only_fault(write(f'store = "{store}"\n' + SMALLEST))

    assert 'names no folder; write "directory:///srv/haulage"' in fault


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
        'store = {"url": "x"}: is not a URL; write "sqlite:///shop.db"',
        'sources = "shop": is not a table; write [sources] and its keys below',
    ) == faults


def test_a_python_dataset_is_judged_by_the_same_rules():
    from haulage.config import Known, dataset_faults
    from haulage.core.catalogue import Dataset

    dataset = Dataset("orders", "shopp", function=lambda: "select 1", formats=("csv", "jsn"))

    assert [
        'datasets.orders.source = "shopp": there is no such source; did you mean shop?',
        'datasets.orders.formats = "jsn": there is no such format; did you mean json?',
    ] == dataset_faults(dataset, Known({"shop"}, FORMATS))


@pytest.mark.parametrize(("url", "session", "said"), [
    ("postgresql://db/shop", '"app tenant" = "x"',
     'session.app tenant is no name of a setting; write "app.tenant" or role'),
    ("postgresql://db/shop", 'app.tenant = "x"',
     "session.app is a table; write the whole name in quotes: 'app.tenant' = …"),
    ("postgresql://db/shop", '"app.tenant" = ":requester_tenent"',
     'session.app.tenant = ":requester_tenent": is not known of a requester; did you mean :requester_tenant?'),
    ("postgresql://db/shop", '"app.grants" = ":requester_grants"',
     'session.app.grants = ":requester_grants": is not known of a requester; did you mean :requester_tenant?'),
    ("postgresql://db/shop", '"app.tenant" = 5', 'session.app.tenant = 5: is not text; write "some text"'),
    ("sqlite:///shop.db", 'role = "x"', "session: only a source of postgresql has a session"),
])  # fmt: skip
def test_what_a_source_cannot_set_is_told(write, url, session, said):
    text = f'{SMALLEST}[sources.shop]\nurl = "{url}"\n[sources.shop.session]\n{session}\n'
    assert (f"sources.shop.{said}",) == faults_of(write(text), schemes=("sqlite", "postgresql"))


@pytest.mark.parametrize(("url", "parallel", "said"), [
    ("postgresql://db/shop", "2", None),
    ("sqlite:///shop.db", "1", None),
    ("postgresql://db/shop", "0", "0: is out of range; write a whole number from 1 on"),
    ("postgresql://db/shop", "17", "17: is no number of connections; write 1 to 16"),
    ("postgresql://db/shop", '"two"', '"two": is not a whole number; write a whole number such as 2'),
    ("sqlite:///shop.db", "2", "2: only a source of postgresql is read over several connections"),
])  # fmt: skip
def test_only_postgresql_is_read_over_several_connections(write, url, parallel, said):
    text = f'{SMALLEST}[sources.shop]\nurl = "{url}"\n[datasets.orders]\nsource = "shop"\nsql = "select 1 as a"\n'
    path = write(f"{text}parallel = {parallel}\n")
    if said is None:
        assert int(parallel) == load(path, {}, formats=FORMATS).datasets[0].parallel
    else:
        assert (f"datasets.orders.parallel = {said}",) == faults_of(path, schemes=("sqlite", "postgresql"))


def test_conditions_of_columns_bind_what_is_declared(write):
    text = """
        [sources.shop]
        url = "sqlite:///shop.db"
        [datasets.orders]
        source = "shop"
        sql = "select 1 as customer"
        parameters = {own = {type = "text"}}
        [datasets.orders.columns.customer]
        visible = "customer = :own or customer = :onw or :requester_account in (:requester_grants)"
    """

    assert [
        (
            "datasets.orders.columns.customer.visible binds :onw, which no parameter declares; did you mean own? "
            "(or write onw = {type = …} in [datasets.orders.parameters])"
        )
    ] == list(faults_of(write(SMALLEST + text)))


def test_code_of_the_application_filters_its_rows_itself():
    columns = {"id": Column("id", "No."), "name": Column("name", "Name", visible="id = 1")}
    dataset = Dataset("q", "", pages=Pages("shop:rows"), columns=columns)

    assert [
        "datasets.q.columns.name.visible: code of the application makes the rows, and has to filter them itself"
    ] == dataset_faults(dataset, Known(()))

"""Stores that are entered as each role, and how the roles are made, made again, refused, and taken away."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.conformance import entered
from tests.conformance.cases import KITS, NOW, STORES
from tests.conformance.conftest import make_folder
from tests.servers import postgresql
from tests.servers.openers import OWNER

from haulage.artifacts.local import LocalArtifacts
from haulage.core.errors import SchemaMismatch, StoreUnavailable
from haulage.core.parents import ParentRef
from haulage.core.ports import Query
from haulage.exports.expire import ExportSweep
from haulage.flows import FLOWS
from haulage.stores.open import open_store
from haulage.stores.tenants import ROUTING, RUNTIME, WORKER

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def house():
    with entered.house() as made:
        yield made


# -- stores that are entered as each of them ---------------------------------------------------------------


def test_who_acts_for_one_tenant_neither_claims_nor_sweeps(house):
    """What it cannot see it must not take for gone: a sweep that sees no row would remove every file."""
    with make_folder() as folder, house.opened(RUNTIME) as store:
        artifacts = LocalArtifacts(folder / "artifacts")
        artifacts.prepare()
        artifacts.begin(f"{house.runs['south', 'running']}.1").joinpath("part").write_bytes(b"half")
        keys = artifacts.keys()
        sweep = ExportSweep(store, artifacts, house.case.limits, lambda _event: None)
        acts = {
            "sweep": lambda: sweep.pass_once(now=house.case.now),
            "orphans": lambda: sweep._remove_orphans(None),
            "claim": lambda: store.exports.claim(house.case.terms()),
            "list": lambda: store.exports.list(Query()),
            "tally": store.exports.tally,
            "parents": store.exports.parents,
            "remove_of": lambda: store.exports.remove_of("north", ParentRef("book", "7")),
            "get": lambda: store.exports.get(house.runs["north", "ready"]),
        }
        for act in acts.values():
            with pytest.raises(StoreUnavailable):
                act()

        assert 1 == len(keys)
        assert keys == artifacts.keys()
        assert store.one_tenant
        assert store.exports.get(house.runs["north", "ready"], tenant="north") is not None


def test_a_tenant_that_was_set_for_the_role_or_in_the_url_binds_nobody(house):
    """A sweep that sees one tenant alone would take the files of all others for nobody's."""
    for tenant in ("north", "south"):
        house.case.write(house.runs[tenant, "ready"], artifact_key=f"{house.runs[tenant, 'ready']}.1")
    kept = {f"{house.runs[tenant, 'ready']}.1" for tenant in ("north", "south")}
    roles = (RUNTIME, WORKER)
    for role in roles:
        house.case.opener.execute(
            house.case.url, f"alter role {role} in database {house.name} set haulage.tenant = 'south'"
        )
    try:
        with house.opened(WORKER) as worker, house.opened(RUNTIME) as runtime:
            told, promised = worker.exports.tally(), worker.exports.promised(sorted(kept))
            with pytest.raises(StoreUnavailable, match="no tenant is set"):
                runtime.exports.list(Query())
    finally:
        for role in roles:
            house.case.opener.execute(
                house.case.url, f"alter role {role} in database {house.name} reset haulage.tenant"
            )
    place = house.case.opener.as_role(house.case.url, WORKER)
    with closing(open_store(f"{place}?options=-c%20haulage.tenant%3Dsouth", house.case.limits)) as meant:
        assert kept == promised == meant.exports.promised(sorted(kept))
        assert told == meant.exports.tally()
        assert 2 == told["ready"]


def test_a_connection_that_was_left_with_a_tenant_takes_no_file_for_nobodys(house):
    """As if a statement of somebody had set it for the session: what others own is promised all the same."""
    for tenant in ("north", "south"):
        house.case.write(house.runs[tenant, "ready"], artifact_key=f"{house.runs[tenant, 'ready']}.1")
    kept = {f"{house.runs[tenant, 'ready']}.1" for tenant in ("north", "south")}
    with house.opened(WORKER) as worker:
        with worker._database.engine.connect() as connection:
            connection.exec_driver_sql("set haulage.tenant = 'south'")
        assert kept == worker.exports.promised(sorted(kept))


def test_a_store_knows_as_whom_it_is_entered(house):
    roles = {}
    for name in (RUNTIME, WORKER, OWNER, "postgres"):
        with house.opened(name) as store:
            roles[name] = store.role()

    assert [RUNTIME, WORKER, OWNER, "postgres"] == [role.name for role in roles.values()]
    assert [False, False, False, True] == [role.passes_by for role in roles.values()]
    assert [False, False, True, True] == [role.owns for role in roles.values()]
    assert [True, False, False, False] == [role.one_tenant for role in roles.values()]
    assert {(True, True)} == {(role.forced, role.roles) for role in roles.values()}


# -- making them --------------------------------------------------------------------------------------------


@pytest.fixture
def owned():
    """A new store of an owner who is no superuser, with its tables and no roles."""
    opener = STORES["postgresql"]
    with closing(open_store(opener.new(), migrate_new=False)) as store:
        store.migrate()
        yield store


def test_without_roles_the_owner_works_for_all_and_acts_for_one(owned):
    """Row security is forced: it binds the owner too, once a transaction has a tenant."""
    kit = KITS[FLOWS[0].name]
    runs = [kit.new(tenant=tenant, requested_at=NOW) for tenant in ("north", "south")]
    for run in runs:
        owned.exports.add(run)

    assert not owned.role().roles
    assert 2 == len(owned.exports.list(Query()))
    assert runs[0] == owned.exports.get(runs[0].id, tenant="north")
    with owned.begin(tenant="south") as tx:
        assert owned.exports.get(runs[0].id, tx=tx) is None
        assert 2 == owned.exports.waiting(tx=tx)


def test_roles_that_are_made_again_are_brought_to_what_they_may_do(owned):
    owned.make_roles()
    name = owned.url.rpartition("/")[2]
    hosts = f"create table of_the_host (a int); grant select on of_the_host to {RUNTIME}"
    postgresql.server().execute(name, hosts)  # A table beside ours is not ours to take rights from.
    before = rights(name)
    more = f"grant delete on exports to {RUNTIME}; grant select on sessions to {ROUTING}"
    postgresql.server().execute(name, f"{more}; grant select (plan) on exports to {ROUTING}")
    meddled = rights(name)
    owned.make_roles()

    assert before != meddled
    assert before == rights(name)
    assert [RUNTIME] == [RUNTIME for table, acl in before[0] if table == "of_the_host" and RUNTIME in acl]


def rights(database):
    acl = "select relname, relacl::text from pg_class where relnamespace = 'public'::regnamespace order by 1"
    columns = "select attrelid::regclass::text, attname, attacl::text from pg_attribute where attacl is not null"
    policies = "select polrelid::regclass::text, polname, polroles::text from pg_policy order by 1, 2"
    return [sorted(postgresql.server().execute(database, sql), key=str) for sql in (acl, columns, policies)]


@pytest.mark.parametrize(
    ("meddle", "mend"),
    [
        (f"alter role {ROUTING} bypassrls", f"alter role {ROUTING} nobypassrls"),
        (f"grant postgres to {WORKER}", f"revoke postgres from {WORKER}"),
        (f"grant {RUNTIME} to {WORKER}", f"revoke {RUNTIME} from {WORKER}"),
    ],
)
def test_a_role_that_could_pass_row_security_by_is_refused(owned, house, meddle, mend):
    server = postgresql.server()
    server.execute("postgres", meddle)
    try:
        with pytest.raises(StoreUnavailable, match="take that from it"):
            owned.make_roles()
    finally:
        server.execute("postgres", mend)
    assert not owned.role().roles
    owned.make_roles()


def test_a_store_in_a_schema_of_its_own_has_its_roles_there():
    """What the functions and triggers mean is pinned to where the tables are."""
    opener = STORES["postgresql"]
    place = opener.new()
    opener.execute(place, f"create schema ours authorization {OWNER}")
    url = f"{place}?options=-c%20search_path%3Dours"
    with closing(open_store(url, migrate_new=False)) as store:
        store.migrate()
        store.make_roles()
    run = KITS[FLOWS[0].name].new(tenant="north", requested_at=NOW)
    with (
        closing(open_store(opener.as_role(url, RUNTIME))) as web,
        closing(open_store(opener.as_role(url, WORKER))) as worker,
    ):
        web.exports.add(run)
        place = web.exports.queue_position(run), web.exports.get(run.id, tenant="south")
        drift = worker.exports.drift()

    assert ((1, None), []) == (place, drift)


def test_a_database_that_not_everybody_may_enter_is_opened_to_the_roles(owned):
    """As on a server that was made safe: what `--roles` has made must be able to come in."""
    server, name = postgresql.server(), owned.url.rpartition("/")[2]
    server.execute("postgres", f"revoke connect on database {name} from public")
    owned.make_roles()
    for role in (WORKER, RUNTIME, ROUTING):
        with closing(server.connect(name, role)) as entered_as:
            assert (1,) == entered_as.execute("select 1").fetchone()

    server.execute("postgres", f"revoke connect on database {name} from {ROUTING}")
    server.execute("postgres", f"alter database {name} owner to postgres")
    server.execute("postgres", f"grant connect on database {name} to {OWNER}")
    with pytest.raises(StoreUnavailable, match=f"grant connect on database {name} to {ROUTING}; then run this again"):
        owned.make_roles()


def test_tables_that_lie_where_a_search_path_does_not_look_are_told(owned):
    """Else who runs `migrate up` as told makes a second store beside the first."""
    owned.make_roles()
    place, opener = owned.url, STORES["postgresql"]
    for path in ("nowhere", "''"):
        opener.execute(place, f"alter role {WORKER} in database {place.rpartition('/')[2]} set search_path = {path}")
        with pytest.raises(SchemaMismatch, match="in the schema public, and none where the search_path of this user"):
            open_store(opener.as_role(place, WORKER))


def test_down_takes_policies_and_functions_away_and_up_brings_them_back(owned):
    owned.make_roles()
    owned.migrate("base")
    name = owned.url.rpartition("/")[2]
    ours = "select proname from pg_proc where pronamespace = 'public'::regnamespace"
    left = postgresql.server().execute(name, f"select polname from pg_policy union all {ours}")
    owned.migrate()
    owned.make_roles()

    assert [] == left
    assert owned.role().roles

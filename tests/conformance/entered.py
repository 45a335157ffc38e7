"""A store of PostgreSQL with runs of two tenants, and ways to come in as each role, past the store and by it."""

from __future__ import annotations

import itertools
from contextlib import closing, contextmanager

from psycopg.errors import InsufficientPrivilege
from tests.conformance.cases import NOW, STORES, Case
from tests.conformance.conftest import make_folder
from tests.servers import postgresql

from haulage.core.ports import KeptKey
from haulage.flows import FLOWS
from haulage.stores.open import open_store

STATES = ("queued", "running", "ready", "failed", "cancelled", "expired")


class House:
    """A store with a run of north and one of south in every state, and ways to come in as each role."""

    def __init__(self, case):
        self.case = case
        self.name = case.url.rpartition("/")[2]
        self.runs = {}
        for tenant, state in itertools.product(("north", "south"), STATES):
            run = case.add(tenant)
            slot = {"slot": 1 + len(self.runs)} if state == "running" else {}
            case.write(run.id, state=state, **SHAPES.get(state, {}), **slot)
            self.runs[tenant, state] = run.id
        for tenant in ("north", "south"):
            case.store.keys.keep(tenant, "amina", "k", KeptKey("b" * 64, "run"), seconds=60, now=case.now)

    def of(self, tenant, states=STATES):
        return {self.runs[tenant, state] for state in states}

    @contextmanager
    def connected(self, role):
        with closing(postgresql.server().connect(self.name, role)) as connection:
            yield connection

    @contextmanager
    def acting_for(self, connection, tenant):
        with connection.transaction():
            connection.execute("select set_config('haulage.tenant', %s, true)", [tenant])
            yield

    def opened(self, role):
        return closing(open_store(self.case.opener.as_role(self.case.url, role), self.case.limits))


PROVED = {"artifact_key": "a", "bytes": 1, "sha256": "f" * 64, "expires_at": NOW * 2, "complete": True}
SHAPES = {"ready": PROVED, "running": {"lease_until": NOW * 2, "worker": "w", "claim_no": 1}}


@contextmanager
def house():
    """One house for the tests of a file: they leave nothing behind."""
    opener = STORES["postgresql"]
    with make_folder() as folder:
        case = Case(opener, FLOWS[0], folder)
        yield House(case)
        case.store.close()  # Not to be used again: it has statistics, and the planner goes by them.


def refused(connection, sql, *values):
    """Whether the server refuses a statement for want of a right; what it did is taken back."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(sql, values)
    except InsufficientPrivilege:
        return True
    return False


def ids(connection, columns="id"):
    return {row[0] for row in connection.execute(f"select {columns} from exports")}

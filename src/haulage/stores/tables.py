"""Every table of ours, once. ``run_table`` makes the one of a flow from its life and its own columns.

``metadata`` is what every database has; ``counters`` what those have beside it where many write at once.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Dialect,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.types import JSON, String, TypeDecorator

from haulage.core.lifecycle import Lifecycle
from haulage.exports.life import ExportLife
from haulage.exports.stored import Unreadable
from haulage.stores.schema import MIN_WORKER, SCHEMA_VERSION

__all__ = [
    "MIN_WORKER",
    "SCHEMA_VERSION",
    "counters",
    "exports",
    "facts",
    "gates",
    "idempotency_keys",
    "metadata",
    "pools",
    "run_table",
    "sessions",
    "workers",
]

# Where the order of text is the locale's, that of ids and names is told to be the one of their bytes.
ID = String(36).with_variant(String(36, collation="C"), "postgresql")
NAME = String(200).with_variant(String(200, collation="C"), "postgresql")
Instant = BigInteger  # milliseconds since 1970 in UTC: no database drops a fraction of an integer


class JSONObject(TypeDecorator[dict[str, Any]]):
    """A JSON object; what cannot be read as one stands in its run, and says so (exports/stored.py)."""

    impl = JSON
    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> dict[str, Any]:
        """Read an object."""
        return value if isinstance(value, dict) else Unreadable()


class JSONTuple(TypeDecorator[tuple[Any, ...]]):
    """A JSON array of objects that is read back as the tuple that was written."""

    impl = JSON(none_as_null=True)
    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """Read an array as a tuple."""
        if value is None:
            return None
        good = isinstance(value, list) and all(isinstance(each, dict) for each in value)
        return tuple(value) if good else Unreadable()


metadata = MetaData(
    naming_convention={
        "ck": "%(table_name)s_%(constraint_name)s",
        "ix": "%(table_name)s_%(column_0_name)s",
    }
)


def table_of(name: str, *parts: Any, within: MetaData = metadata, **options: Any) -> Table:
    """A table; on MariaDB its text is compared byte by byte, blanks at the end included."""
    return Table(
        name,
        within,
        *parts,
        mariadb_engine="InnoDB",
        mariadb_charset="utf8mb4",
        mariadb_collate="utf8mb4_nopad_bin",
        **options,
    )


def index_of_some(name: str, *columns: str, where: str, mariadb: tuple[str, ...]) -> tuple[Index, Index]:
    """An index that leaves out the rows that nobody asks for; MariaDB has none, so its columns are other ones there."""
    some = Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))
    return some.ddl_if(callable_=_has_partial), Index(f"{name}_all", *mariadb).ddl_if(dialect="mariadb")


def _has_partial(*_: Any, dialect: Dialect, **__: Any) -> bool:
    return dialect.name != "mariadb"


def _listed(states: frozenset[str] | tuple[str, ...]) -> str:
    return ", ".join(f"'{state}'" for state in sorted(states))


def run_table(
    name: str,
    life: type[Lifecycle],
    *own: Column[Any] | CheckConstraint | Index,
    counted: bool = True,
    within: MetaData = metadata,
) -> Table:
    """The table of a flow: what every run has, one column per deadline of the life, then its own.

    The checks are derived from the life: only its states, and a lease exactly while a worker holds the run. Runs that
    are not ``counted`` share nothing: no slots, no budget, no limit of a tenant (``claims.ClaimOldest``).
    """
    leased = _listed(life.leased_states())
    # How the held runs are found (queue.in_state): each index more is a page more to write at every claim.
    shared = (
        (
            CheckConstraint(f"(state in ({leased})) = (slot is not null)", name="slot_while_held"),
            _unique(name, "slot"),
            # Without it a tenant's waiting runs would be looked for among all that it ever had.
            *index_of_some(
                f"{name}_waiting",
                *("tenant", "requested_at", "id"),
                where="state = 'queued'",
                mariadb=("state", "tenant", "requested_at", "id"),
            ),
        )
        if counted
        else index_of_some(
            f"{name}_held", "lease_until", where=f"state in ({leased})", mariadb=("state", "lease_until")
        )
    )
    unheld = text(" and ".join(f"state <> '{state}'" for state in sorted(life.leased_states())))  # lists.py
    deadlines = [column for column in life.deadline_columns() if column != "lease_until"]
    return table_of(
        name,
        Column("id", ID, primary_key=True),
        Column("tenant", NAME, nullable=False),
        Column("state", String(32), nullable=False),
        Column("requested_at", Instant, nullable=False),
        Column("worker", ID),
        Column("claim_no", Integer, nullable=False),
        Column("started_at", Instant),
        Column("heartbeat_at", Instant),
        Column("updated_at", Instant),
        Column("lease_until", Instant),
        Column("cancel_requested_at", Instant),
        Column("finished_at", Instant),
        Column("retain_until", Instant),
        Column("generation", Integer, nullable=False),
        Column("revision", Integer, nullable=False),
        *(Column(column, Instant) for column in deadlines),
        Column("slot", Integer),
        Column("active_key", String(64)),
        *own,
        CheckConstraint(f"state in ({_listed(life.states)})", name="state_known"),
        CheckConstraint(f"(state in ({leased})) = (lease_until is not null)", name="leased_while_held"),
        CheckConstraint(f"state in ({_listed(life.active)}) or active_key is null", name="key_while_active"),
        # A nullable unique column is a lock: it holds a value while the run is active and NULL afterwards. Where a
        # database can, the index leaves the NULLs out: every run that ended would be in it.
        *shared,
        _unique(name, "active_key"),
        *index_of_some(
            f"{name}_queued",
            *("requested_at", "id", "tenant"),
            where="state = 'queued'",
            mariadb=("state", "requested_at", "id", "tenant"),
        ),
        # Where the queue may be long. On SQLite the sweep reads it instead: an index more is a page more at each claim.
        Index(f"{name}_starving", "claim_by", postgresql_where=text("state = 'queued'")).ddl_if(dialect="postgresql"),
        Index(f"{name}_starving_all", "state", "claim_by").ddl_if(dialect="mariadb"),
        Index(f"{name}_listed", "tenant", "account", "requested_at", "id", postgresql_where=unheld),
        Index(f"{name}_requested", "requested_at", "id", postgresql_where=unheld),  # the operator's list of all tenants
        *index_of_some(f"{name}_retained", "retain_until", where="retain_until is not null", mariadb=("retain_until",)),
        within=within,
        info={"leased": life.leased_states(), "counted": counted},
    )


def _unique(table: str, column: str) -> Index:
    there = text(f"{column} is not null")
    return Index(f"{table}_{column}", column, unique=True, sqlite_where=there, postgresql_where=there)


# Bytes that no state promises any longer and that are not gone yet (the unlink can fail).
UNKEPT = text("artifact_key is not null and state in ('expired', 'failed', 'cancelled')")


# What came of an export: nothing, as long as it has not ended.
RESULTS = (
    *("expires_at", "snapshot_at", "rows", "bytes", "sha256", "columns", "file_name", "media_type", "complete"),
    *("policy_revision", "failure_code", "failure_detail", "stored_bytes"),
)
OF_PARENT = ("parent", "parent_kind", "tenant", "requested_at", "id")


def export_table(name: str, *, counted: bool = True, within: MetaData = metadata) -> Table:
    """The table of exports."""
    budget = index_of_some(
        f"{name}_budget",
        *("stored_bytes", "tenant"),
        where="stored_bytes is not null",
        mariadb=("stored_bytes", "tenant"),
    )
    return run_table(
        name,
        ExportLife,
        Column("account", NAME, nullable=False),
        Column("dataset", String(63), nullable=False),
        Column("parent_kind", String(63)),
        Column("parent", NAME),
        Column("dataset_hash", String(64), nullable=False),
        Column("source", NAME, nullable=False),
        Column("format", String(32), nullable=False),
        Column("compression", String(32)),
        Column("options", JSONObject, nullable=False),
        Column("parameters", JSONObject, nullable=False),
        Column("plan", JSONObject, nullable=False),
        Column("requester", JSONObject, nullable=False),
        Column("as_of", Instant, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("attempts_max", Integer, nullable=False),
        Column("generation_ms", BigInteger, nullable=False),
        Column("file_bytes", BigInteger, nullable=False),
        Column("phase", String(32)),
        Column("processed", BigInteger),
        Column("total", BigInteger),
        Column("logical_count", BigInteger),
        Column("notices", JSONTuple, nullable=False),
        Column("snapshot_at", Instant),
        Column("rows", BigInteger),
        Column("bytes", BigInteger),
        Column("sha256", String(64)),
        Column("columns", JSONTuple),
        Column("file_name", Text),
        Column("media_type", Text),
        Column("complete", Boolean),
        Column("policy_revision", String(64)),
        Column("failure_code", String(64)),
        Column("failure_detail", Text),
        Column("artifact_key", String(80)),
        Column("reserved_bytes", BigInteger),
        Column("stored_bytes", BigInteger),
        CheckConstraint(
            "state <> 'ready' or (artifact_key is not null and bytes is not null and sha256 is not null"
            " and expires_at is not null and complete is not null)",
            name="ready_is_provable",
        ),
        # The list of one parent, and the sweep's round over all of them.
        *index_of_some(f"{name}_of_parent", *OF_PARENT, where="parent is not null", mariadb=OF_PARENT),
        CheckConstraint("(parent is null) = (parent_kind is null)", name="parent_of_a_kind"),
        *index_of_some(f"{name}_expiring", "expires_at", where="state = 'ready'", mariadb=("state", "expires_at")),
        *index_of_some(f"{name}_unkept", "finished_at", where=UNKEPT.text, mariadb=("artifact_key",)),
        *(budget if counted else ()),
        counted=counted,
        within=within,
    )


exports = export_table("exports")

workers = table_of(
    "workers",
    Column("id", ID, primary_key=True),
    Column("host", NAME, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("version", String(32), nullable=False),
    Column("state", String(16), nullable=False),
    Column("lanes", Integer, nullable=False),
    Column("started_at", Instant, nullable=False),
    Column("seen_at", Instant, nullable=False),
    Column("only_run", ID),
)

idempotency_keys = table_of(
    "idempotency_keys",
    Column("tenant", NAME, primary_key=True),
    Column("account", NAME, primary_key=True),
    Column("key", NAME, primary_key=True),
    Column("body_hash", String(64), nullable=False),
    Column("run", ID, nullable=False),
    Column("expires_at", Instant, nullable=False, index=True),
)

sessions = table_of(
    "sessions",
    Column("id", String(64), primary_key=True),
    Column("key_name", NAME, nullable=False),
    Column("tenant", NAME, nullable=False),
    Column("account", NAME, nullable=False),
    Column("expires_at", Instant, nullable=False, index=True),
)

facts = table_of(
    "haulage_facts",
    Column("name", String(32), primary_key=True),
    Column("value", BigInteger, nullable=False),
)

# -- only where many write at once -------------------------------------------------------------------------
# They are kept by triggers of the database itself (counters.py), so that no way of writing a run passes them by.

counters = MetaData(naming_convention=metadata.naming_convention)

gates = table_of(
    "tenant_gates",
    Column("flow", String(32), primary_key=True),
    Column("tenant", NAME, primary_key=True),
    Column("queued", Integer, nullable=False),
    Column("running", Integer, nullable=False),
    Column("head_at", Instant),  # of the oldest run that waits
    Column("head_id", ID),
    *index_of_some(
        "tenant_gates_open",
        # A claim looks at each entry of the page, and none tells it anything by its flow. Where one has a head a run
        # waits; how many do is not asked here: a request that is not the first changes nothing in the index.
        *("running", "head_at", "head_id"),
        where="flow = 'exports' and head_at is not null",
        mariadb=("flow", "running", "head_at", "head_id"),
    ),
    within=counters,
)

pools = table_of(
    "run_pools",
    Column("flow", String(32), primary_key=True),
    Column("stored_bytes", BigInteger, nullable=False),
    Column("reserved_bytes", BigInteger, nullable=False),
    Column("changes", BigInteger, nullable=False),  # of states, for those who are not told but ask
    within=counters,
)

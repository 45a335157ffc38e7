"""The export table, presence of workers, idempotency keys, sign-ins; and counters where many write at once."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

SCHEMA_VERSION = 1
MIN_WORKER = 1

ID = sa.String(36).with_variant(sa.String(36, collation="C"), "postgresql")
NAME = sa.String(200).with_variant(sa.String(200, collation="C"), "postgresql")


def create_table(name: str, *parts: Any) -> None:
    """On MariaDB text is compared byte by byte, blanks at the end included."""
    op.create_table(
        name, *parts, mariadb_engine="InnoDB", mariadb_charset="utf8mb4", mariadb_collate="utf8mb4_nopad_bin"
    )


def create_index(
    name: str, table: str, columns: list[str], where: str, *, mariadb: list[str] | None = None, unique: bool = False
) -> None:
    """An index that leaves out the rows that nobody asks for; MariaDB has none, so its columns are other ones there."""
    if op.get_context().dialect.name == "mariadb":
        op.create_index(name if unique else f"{name}_all", table, mariadb or columns, unique=unique)
    else:
        some = sa.text(where)
        op.create_index(name, table, columns, unique=unique, sqlite_where=some, postgresql_where=some)


def counted() -> bool:
    """Where one writer is alone, counting is as quick."""
    return op.get_context().dialect.name != "sqlite"


def upgrade() -> None:
    """Make the first tables."""
    if op.get_context().dialect.name == "mariadb":
        try_to_make_a_routine()
    make_exports()
    make_small_tables()
    if counted():
        make_counters()
    write_facts()


def try_to_make_a_routine() -> None:
    """Fail before there are tables: MariaDB takes none back, and a server with a binary log lets few make triggers."""
    op.execute("create function haulage_trial() returns integer deterministic no sql return 1")
    op.execute("drop function haulage_trial")


def make_exports() -> None:
    """The runs."""
    create_table(
        "exports",
        sa.Column("id", ID, nullable=False),
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("requested_at", sa.BigInteger(), nullable=False),
        sa.Column("worker", ID, nullable=True),
        sa.Column("claim_no", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("heartbeat_at", sa.BigInteger(), nullable=True),
        sa.Column("updated_at", sa.BigInteger(), nullable=True),
        sa.Column("lease_until", sa.BigInteger(), nullable=True),
        sa.Column("cancel_requested_at", sa.BigInteger(), nullable=True),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("retain_until", sa.BigInteger(), nullable=True),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("finish_by", sa.BigInteger(), nullable=True),
        sa.Column("claim_by", sa.BigInteger(), nullable=True),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("slot", sa.Integer(), nullable=True),
        sa.Column("active_key", sa.String(length=64), nullable=True),
        sa.Column("account", NAME, nullable=False),
        sa.Column("dataset", sa.String(length=63), nullable=False),
        sa.Column("parent_kind", sa.String(length=63), nullable=True),
        sa.Column("parent", NAME, nullable=True),
        sa.Column("dataset_hash", sa.String(length=64), nullable=False),
        sa.Column("source", NAME, nullable=False),
        sa.Column("format", sa.String(length=32), nullable=False),
        sa.Column("compression", sa.String(length=32), nullable=True),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("parameters", sa.JSON(), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.Column("requester", sa.JSON(), nullable=False),
        sa.Column("as_of", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("attempts_max", sa.Integer(), nullable=False),
        sa.Column("generation_ms", sa.BigInteger(), nullable=False),
        sa.Column("file_bytes", sa.BigInteger(), nullable=False),
        sa.Column("phase", sa.String(length=32), nullable=True),
        sa.Column("processed", sa.BigInteger(), nullable=True),
        sa.Column("total", sa.BigInteger(), nullable=True),
        sa.Column("logical_count", sa.BigInteger(), nullable=True),
        sa.Column("notices", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("snapshot_at", sa.BigInteger(), nullable=True),
        sa.Column("rows", sa.BigInteger(), nullable=True),
        sa.Column("bytes", sa.BigInteger(), nullable=True),
        sa.Column("sha256", sa.String(length=64), nullable=True),
        sa.Column("columns", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("file_name", sa.Text(), nullable=True),
        sa.Column("media_type", sa.Text(), nullable=True),
        sa.Column("complete", sa.Boolean(), nullable=True),
        sa.Column("policy_revision", sa.String(length=64), nullable=True),
        sa.Column("failure_code", sa.String(length=64), nullable=True),
        sa.Column("failure_detail", sa.Text(), nullable=True),
        sa.Column("artifact_key", sa.String(length=80), nullable=True),
        sa.Column("reserved_bytes", sa.BigInteger(), nullable=True),
        sa.Column("stored_bytes", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "(state in ('running')) = (lease_until is not null)", name=op.f("exports_leased_while_held")
        ),
        sa.CheckConstraint("(state in ('running')) = (slot is not null)", name=op.f("exports_slot_while_held")),
        sa.CheckConstraint(
            "state <> 'ready' or (artifact_key is not null and bytes is not null and sha256 is not null"
            " and expires_at is not null and complete is not null)",
            name=op.f("exports_ready_is_provable"),
        ),
        sa.CheckConstraint(
            "state in ('cancelled', 'expired', 'failed', 'queued', 'ready', 'running')",
            name=op.f("exports_state_known"),
        ),
        sa.CheckConstraint("(parent is null) = (parent_kind is null)", name=op.f("exports_parent_of_a_kind")),
        sa.CheckConstraint(
            "state in ('queued', 'running') or active_key is null", name=op.f("exports_key_while_active")
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    create_index("exports_slot", "exports", ["slot"], "slot is not null", unique=True)
    create_index("exports_active_key", "exports", ["active_key"], "active_key is not null", unique=True)
    create_index("exports_budget", "exports", ["stored_bytes", "tenant"], "stored_bytes is not null")
    create_index("exports_expiring", "exports", ["expires_at"], "state = 'ready'", mariadb=["state", "expires_at"])
    unheld = sa.text("state <> 'running'")
    listed = ["tenant", "account", "requested_at", "id"]
    op.create_index("exports_listed", "exports", listed, postgresql_where=unheld)
    order = ["requested_at", "id"]
    create_index(
        "exports_queued",
        "exports",
        [*order, "tenant"],
        "state = 'queued'",
        mariadb=["state", *order, "tenant"],
    )
    create_index("exports_of_parent", "exports", ["parent", "parent_kind", "tenant", *order], "parent is not null")
    op.create_index("exports_requested", "exports", order, postgresql_where=unheld)
    if counted():
        create_index("exports_starving", "exports", ["claim_by"], "state = 'queued'", mariadb=["state", "claim_by"])
    create_index("exports_retained", "exports", ["retain_until"], "retain_until is not null")
    unkept = "artifact_key is not null and state in ('expired', 'failed', 'cancelled')"
    create_index("exports_unkept", "exports", ["finished_at"], unkept, mariadb=["artifact_key"])
    create_index(
        "exports_waiting",
        "exports",
        ["tenant", *order],
        "state = 'queued'",
        mariadb=["state", "tenant", *order],
    )


def make_small_tables() -> None:
    """What stands beside the runs."""
    create_table(
        "haulage_facts",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    create_table(
        "idempotency_keys",
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("account", NAME, nullable=False),
        sa.Column("key", NAME, nullable=False),
        sa.Column("body_hash", sa.String(length=64), nullable=False),
        sa.Column("run", ID, nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "account", "key"),
    )
    op.create_index("idempotency_keys_expires_at", "idempotency_keys", ["expires_at"], unique=False)
    create_table(
        "sessions",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("key_name", NAME, nullable=False),
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("account", NAME, nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("sessions_expires_at", "sessions", ["expires_at"], unique=False)
    create_table(
        "workers",
        sa.Column("id", ID, nullable=False),
        sa.Column("host", NAME, nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("version", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("lanes", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.Column("only_run", ID, nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )


def write_facts() -> None:
    """Last: a schema that has a version is whole, also where a migration that breaks off is not taken back."""
    facts = sa.table("haulage_facts", sa.column("name", sa.String), sa.column("value", sa.BigInteger))
    kept = {"schema_version": SCHEMA_VERSION, "min_worker": MIN_WORKER, "store_id": secrets.randbits(63)}
    if counted():
        kept["admission"] = 0  # the row that every door locks before it counts
    op.bulk_insert(facts, [{"name": name, "value": value} for name, value in kept.items()])


def make_counters() -> None:
    """Gates and pool, and the triggers that keep them."""
    create_table(
        "tenant_gates",
        sa.Column("flow", sa.String(length=32), nullable=False),
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("queued", sa.Integer(), nullable=False),
        sa.Column("running", sa.Integer(), nullable=False),
        sa.Column("head_at", sa.BigInteger(), nullable=True),
        sa.Column("head_id", ID, nullable=True),
        sa.PrimaryKeyConstraint("flow", "tenant"),
    )
    order = ["running", "head_at", "head_id"]
    some = "flow = 'exports' and head_at is not null"
    create_index("tenant_gates_open", "tenant_gates", order, some, mariadb=["flow", *order])
    create_table(
        "run_pools",
        sa.Column("flow", sa.String(length=32), nullable=False),
        sa.Column("stored_bytes", sa.BigInteger(), nullable=False),
        sa.Column("reserved_bytes", sa.BigInteger(), nullable=False),
        sa.Column("changes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("flow"),
    )
    name = op.get_context().dialect.name
    program = Path(__file__).with_name(f"v0001_counters.{name}.sql").read_text()
    for statement in program.split("\n--\n")[1:] if name == "mariadb" else [program]:
        op.get_bind().execution_options(no_parameters=True).exec_driver_sql(statement.strip().removesuffix(";"))
    if name == "postgresql":
        keep_tenants_apart()
    pools = sa.table("run_pools", *(sa.column(each) for each in ("flow", "stored_bytes", "reserved_bytes", "changes")))
    op.bulk_insert(pools, [{"flow": "exports", "stored_bytes": 0, "reserved_bytes": 0, "changes": 0}])


def keep_tenants_apart() -> None:
    """Row-level security."""
    program = Path(__file__).with_name("v0001_tenants.postgresql.sql").read_text()
    op.get_bind().execution_options(no_parameters=True).exec_driver_sql(program)


def downgrade() -> None:
    """Remove them, with every run in them."""
    for table in ("workers", "sessions", "idempotency_keys", "haulage_facts", "exports"):
        op.drop_table(table)
    if not counted():
        return
    for table in ("tenant_gates", "run_pools"):
        op.drop_table(table)
    if op.get_context().dialect.name == "postgresql":
        names = ("counted()", "place(text)", "progress()", "no_tenant()", "min_worker()")
        op.execute(f"drop function {', '.join(f'exports_{name}' for name in names)}")
    else:
        for name in ("came", "went", "worked", "took"):
            op.execute(f"drop procedure exports_{name}")

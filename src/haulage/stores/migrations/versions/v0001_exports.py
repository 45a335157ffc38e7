"""The export table, presence of workers, idempotency keys, sign-ins."""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

SCHEMA_VERSION = 1
MIN_WORKER = 1


def upgrade() -> None:
    """Make the first tables."""
    op.create_table(
        "exports",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("tenant", sa.String(length=200), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("requested_at", sa.BigInteger(), nullable=False),
        sa.Column("worker", sa.String(length=36), nullable=True),
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
        sa.Column("account", sa.String(length=200), nullable=False),
        sa.Column("dataset", sa.String(length=63), nullable=False),
        sa.Column("dataset_hash", sa.String(length=64), nullable=False),
        sa.Column("source", sa.String(length=200), nullable=False),
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
        sa.Column("notices", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("snapshot_at", sa.BigInteger(), nullable=True),
        sa.Column("rows", sa.BigInteger(), nullable=True),
        sa.Column("bytes", sa.BigInteger(), nullable=True),
        sa.Column("sha256", sa.String(length=64), nullable=True),
        sa.Column("columns", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("file_name", sa.Text(), nullable=True),
        sa.Column("media_type", sa.Text(), nullable=True),
        sa.Column("complete", sa.Boolean(), nullable=True),
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
        sa.CheckConstraint(
            "state in ('queued', 'running') or active_key is null", name=op.f("exports_key_while_active")
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("exports_slot", "exports", ["slot"], unique=True, sqlite_where=sa.text("slot is not null"))
    op.create_index(
        "exports_active_key",
        "exports",
        ["active_key"],
        unique=True,
        sqlite_where=sa.text("active_key is not null"),
    )
    op.create_index(
        "exports_budget",
        "exports",
        ["stored_bytes", "tenant"],
        unique=False,
        sqlite_where=sa.text("stored_bytes is not null"),
    )
    op.create_index(
        "exports_expiring", "exports", ["expires_at"], unique=False, sqlite_where=sa.text("state = 'ready'")
    )
    op.create_index("exports_listed", "exports", ["tenant", "account", "requested_at", "id"], unique=False)
    op.create_index(
        "exports_queued",
        "exports",
        ["requested_at", "id", "tenant"],
        unique=False,
        sqlite_where=sa.text("state = 'queued'"),
    )
    op.create_index("exports_requested", "exports", ["requested_at", "id"], unique=False)
    op.create_index(
        "exports_retained",
        "exports",
        ["retain_until"],
        unique=False,
        sqlite_where=sa.text("retain_until is not null"),
    )
    op.create_index(
        "exports_unkept",
        "exports",
        ["finished_at"],
        unique=False,
        sqlite_where=sa.text("artifact_key is not null and state in ('expired', 'failed', 'cancelled')"),
    )
    op.create_index(
        "exports_waiting",
        "exports",
        ["tenant", "requested_at", "id"],
        unique=False,
        sqlite_where=sa.text("state = 'queued'"),
    )
    op.create_table(
        "haulage_facts",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("tenant", sa.String(length=200), nullable=False),
        sa.Column("account", sa.String(length=200), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("body_hash", sa.String(length=64), nullable=False),
        sa.Column("run", sa.String(length=36), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "account", "key"),
    )
    op.create_index("idempotency_keys_expires_at", "idempotency_keys", ["expires_at"], unique=False)
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("key_name", sa.String(length=200), nullable=False),
        sa.Column("tenant", sa.String(length=200), nullable=False),
        sa.Column("account", sa.String(length=200), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("sessions_expires_at", "sessions", ["expires_at"], unique=False)
    op.create_table(
        "workers",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("host", sa.String(length=200), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("version", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("lanes", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.Column("only_run", sa.String(length=36), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    facts = sa.table("haulage_facts", sa.column("name", sa.String), sa.column("value", sa.BigInteger))
    op.bulk_insert(
        facts,
        [
            {"name": "schema_version", "value": SCHEMA_VERSION},
            {"name": "min_worker", "value": MIN_WORKER},
            {"name": "store_id", "value": secrets.randbits(63)},
        ],
    )


def downgrade() -> None:
    """Remove them, with every run in them."""
    op.drop_table("workers")
    op.drop_table("sessions")
    op.drop_table("idempotency_keys")
    op.drop_table("haulage_facts")
    op.drop_table("exports")

"""${message}"""

from alembic import op
import sqlalchemy as sa

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    """Bring the schema up."""
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    """Bring the schema down."""
    ${downgrades if downgrades else "pass"}
